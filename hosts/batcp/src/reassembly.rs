// SPDX-License-Identifier: Apache-2.0
//! Reassembles segments in order (paper 003, section 3.6), in bounded memory.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes, BytesMut};

use super::segment::{MAX_OUTSTANDING, Malformed};

/// Minimum length of a segment that is kept in its read buffer, in bytes: an eighth of the longest read buffer, so that
/// the memory held is at most eight times the bytes kept, if a peer with the key is hostile.
const LONG: usize = 32_768;

/// The receiving end of a connection. Never holds more than `window` bytes, nor more than `MAX_OUTSTANDING` segments.
pub struct Reassembly {
    window: usize,
    /// Number of the segment that is to be read next.
    expected: u64,
    /// Bytes in order and not yet read: long segments in their read buffers, and then the short ones behind them,
    /// copied together, as each would keep a whole buffer alive.
    readable: VecDeque<Bytes>,
    tail: BytesMut,
    readable_bytes: usize,
    /// Segments that came before their turn, kept in the same way.
    early: BTreeMap<u64, Bytes>,
    early_bytes: usize,
    read: u64,
    end: Option<u64>,
    duplicates: u64,
}

impl Reassembly {
    /// `window`: bytes that may be held.
    pub fn new(window: usize) -> Self {
        Self {
            window,
            expected: 0,
            readable: VecDeque::new(),
            tail: BytesMut::new(),
            readable_bytes: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            read: 0,
            end: None,
            duplicates: 0,
        }
    }

    /// Add a segment; return true if it was new. Errors: the peer exceeds its window, numbers a segment after the end,
    /// or one further ahead than a sender may.
    pub fn accept(&mut self, number: u64, payload: Bytes) -> Result<bool, Malformed> {
        if number < self.expected || self.early.contains_key(&number) {
            self.duplicates += 1;
            return Ok(false);
        }
        if self.end.is_some_and(|end| number >= end) {
            return Err(Malformed("a segment after the end"));
        }
        if number - self.expected >= MAX_OUTSTANDING {
            return Err(Malformed("a segment too far ahead"));
        }
        if self.readable_bytes + self.early_bytes + payload.len() > self.window {
            return Err(Malformed("more bytes than the window holds"));
        }
        if number > self.expected {
            self.early_bytes += payload.len();
            let is_long = payload.len() >= LONG;
            self.early.insert(number, if is_long { payload } else { Bytes::copy_from_slice(&payload) });
            return Ok(true);
        }
        self.append(payload);
        self.expected += 1;
        while let Some(payload) = self.early.remove(&self.expected) {
            self.early_bytes -= payload.len();
            self.append(payload);
            self.expected += 1;
        }
        Ok(true)
    }

    fn append(&mut self, payload: Bytes) {
        self.readable_bytes += payload.len();
        if payload.len() < LONG {
            self.tail.extend_from_slice(&payload);
            return;
        }
        if !self.tail.is_empty() {
            self.readable.push_back(self.tail.split().freeze());
        }
        self.readable.push_back(payload);
    }

    /// The peer says that `number` segments are all. Errors: it said otherwise before, or sent later ones.
    pub fn finish(&mut self, number: u64) -> Result<(), Malformed> {
        let last = self.early.last_key_value().map_or(self.expected, |(last, _)| last + 1);
        if self.end.is_some_and(|end| end != number) || number < last {
            return Err(Malformed("two different ends"));
        }
        self.end = Some(number);
        Ok(())
    }

    /// Return the acknowledgement: the next expected segment, or one more once the end and all before it have come; and
    /// the bytes that the peer may have sent in all.
    pub fn acknowledgement(&self) -> (u64, u64) {
        (self.expected + u64::from(self.is_complete()), self.read + self.window as u64)
    }

    /// True if all segments up to the end have come. They may still wait to be read.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.expected)
    }

    /// Copies what is in order into `into`; returns the number of bytes.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let mut length = 0;
        while let Some(front) = self.readable.front_mut()
            && length < into.len()
        {
            length += copy(front, &mut into[length..]);
            if front.is_empty() {
                self.readable.pop_front();
            }
        }
        length += copy(&mut self.tail, &mut into[length..]);
        self.readable_bytes -= length;
        self.read += length as u64;
        length
    }

    /// Take at most `max` bytes that are in order, as they came.
    pub fn take(&mut self, max: usize) -> Bytes {
        let bytes = match self.readable.front_mut() {
            Some(front) if front.len() > max => front.split_to(max),
            Some(_) => self.readable.pop_front().expect("it is there"),
            None => self.tail.split_to(max.min(self.tail.len())).freeze(),
        };
        self.readable_bytes -= bytes.len();
        self.read += bytes.len() as u64;
        bytes
    }

    /// An idle connection keeps no window. One that gets on would only ask for the memory again.
    pub fn rest(&mut self) {
        if self.readable_bytes == 0 {
            (self.readable, self.tail) = (VecDeque::new(), BytesMut::new());
        }
    }

    /// Bytes that can be read now.
    pub fn readable(&self) -> usize {
        self.readable_bytes
    }

    /// Bytes that wait for a segment before them.
    pub fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Segments that came twice.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }
}

/// Moves as much of `from` to `into` as there is; returns the number of bytes.
fn copy(from: &mut impl Buf, into: &mut [u8]) -> usize {
    let length = from.remaining().min(into.len());
    from.copy_to_slice(&mut into[..length]);
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_and_repetition_gives_the_stream(
            lengths in prop::collection::vec(prop_oneof![8 => 1usize..50, 1 => LONG..LONG + 9], 1..60),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
            chunk in prop_oneof![1usize..100, LONG / 2..2 * LONG],
        ) {
            let mut next = 0u8;
            let segments: Vec<Bytes> = lengths.iter().map(|&length| {
                (0..length).map(|_| { next = next.wrapping_add(1); next }).collect()
            }).collect();
            let stream: Vec<u8> = segments.concat();
            let mut receiver = Reassembly::new(stream.len());
            let (mut got, mut buffer) = (Vec::new(), vec![0; chunk]);
            // Random picks, with repetition, then all once more so that none is missing.
            for number in order.iter().map(|index| index.index(segments.len())).chain(0..segments.len()) {
                receiver.accept(number as u64, segments[number].clone()).unwrap();
                let length = receiver.read(&mut buffer);
                got.extend_from_slice(&buffer[..length]);
            }
            receiver.finish(segments.len() as u64).unwrap();
            prop_assert!(receiver.is_complete());
            while receiver.readable() > 0 {
                let length = receiver.read(&mut buffer);
                got.extend_from_slice(&buffer[..length]);
            }
            prop_assert_eq!(got, stream);
            prop_assert_eq!(receiver.early_bytes(), 0);
        }

        #[test]
        fn hostile_segments_never_exceed_the_window(
            segments in prop::collection::vec((0u64..30_000, 0usize..3000), 0..100), end in 0u64..30_000,
        ) {
            let mut receiver = Reassembly::new(10_000);
            for (k, (number, length)) in segments.iter().enumerate() {
                let _ = receiver.accept(*number, vec![0; *length].into());
                if k == 50 {
                    let _ = receiver.finish(end);
                }
                prop_assert!(receiver.readable() + receiver.early_bytes() <= 10_000);
                prop_assert_eq!(receiver.early.values().map(|p| p.len()).sum::<usize>(), receiver.early_bytes());
            }
        }
    }

    #[test]
    fn breaches_are_named() {
        let mut receiver = Reassembly::new(10);
        assert_eq!(
            receiver.accept(MAX_OUTSTANDING, Bytes::from_static(b"x")),
            Err(Malformed("a segment too far ahead"))
        );
        assert_eq!(
            receiver.accept(1, Bytes::from_static(&[0; 11])),
            Err(Malformed("more bytes than the window holds"))
        );
        assert_eq!(receiver.accept(3, Bytes::from_static(b"abc")), Ok(true));
        assert_eq!(receiver.finish(3), Err(Malformed("two different ends")));
        assert_eq!(receiver.finish(4), Ok(()));
        assert_eq!(receiver.finish(5), Err(Malformed("two different ends")));
        assert_eq!(receiver.accept(4, Bytes::from_static(b"x")), Err(Malformed("a segment after the end")));
        assert_eq!(receiver.acknowledgement(), (0, 10));
    }

    #[test]
    fn the_window_opens_as_bytes_are_read() {
        let mut receiver = Reassembly::new(4);
        receiver.accept(0, Bytes::from_static(b"abcd")).unwrap();
        assert_eq!(receiver.acknowledgement(), (1, 4));
        assert_eq!(receiver.read(&mut [0; 3]), 3);
        assert_eq!(receiver.acknowledgement(), (1, 7));
        receiver.finish(1).unwrap();
        assert_eq!(receiver.acknowledgement(), (2, 7));
    }
}
