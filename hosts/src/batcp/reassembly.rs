// SPDX-License-Identifier: Apache-2.0
//! Puts segments into order again (paper 003, section 3.6), in bounded memory.

use std::collections::{BTreeMap, VecDeque};

use super::segment::{MAX_OUTSTANDING, Malformed};

/// The receiving end of a connection. Never holds more than `window` bytes, nor more than `MAX_OUTSTANDING` segments.
pub struct Reassembly {
    window: usize,
    /// Number of the segment that is to be read next.
    expected: u64,
    /// Bytes in order, not yet read. One ring, so that many short segments cost no more than their bytes.
    readable: VecDeque<u8>,
    /// Segments that came before their turn. Copied, so that none keeps the buffer alive that it was read into.
    early: BTreeMap<u64, Box<[u8]>>,
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
            early: BTreeMap::new(),
            early_bytes: 0,
            read: 0,
            end: None,
            duplicates: 0,
        }
    }

    /// Takes a segment. Returns whether it was new. Errors: the peer exceeds the window that it was given, numbers a segment after
    /// the end, or one further ahead than a sender may be.
    pub fn accept(&mut self, number: u64, payload: &[u8]) -> Result<bool, Malformed> {
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
        if self.readable.len() + self.early_bytes + payload.len() > self.window {
            return Err(Malformed("more bytes than the window holds"));
        }
        if number > self.expected {
            self.early_bytes += payload.len();
            self.early.insert(number, payload.into());
            return Ok(true);
        }
        self.readable.extend(payload);
        self.expected += 1;
        while let Some(payload) = self.early.remove(&self.expected) {
            self.early_bytes -= payload.len();
            self.readable.extend(&payload[..]);
            self.expected += 1;
        }
        Ok(true)
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

    /// What to acknowledge: the next segment, or one more once the end and all before it have come; and how many bytes the
    /// peer may have sent in all.
    pub fn acknowledgement(&self) -> (u64, u64) {
        (self.expected + u64::from(self.is_complete()), self.read + self.window as u64)
    }

    /// Whether all segments to the end have come. They may still wait to be read.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.expected)
    }

    /// Copies what is in order into `into`; returns the number of bytes.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let (first, second) = self.readable.as_slices();
        let from_first = first.len().min(into.len());
        into[..from_first].copy_from_slice(&first[..from_first]);
        let from_second = second.len().min(into.len() - from_first);
        into[from_first..from_first + from_second].copy_from_slice(&second[..from_second]);
        let length = from_first + from_second;
        self.readable.drain(..length);
        if self.readable.is_empty() && self.readable.capacity() > 1 << 18 {
            self.readable.shrink_to(1 << 16); // an idle connection keeps no window
        }
        self.read += length as u64;
        length
    }

    /// Bytes that can be read now.
    pub fn readable(&self) -> usize {
        self.readable.len()
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_and_repetition_gives_the_stream(
            lengths in prop::collection::vec(1usize..50, 1..60),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
            chunk in 1usize..100,
        ) {
            let mut next = 0u8;
            let segments: Vec<Vec<u8>> = lengths.iter().map(|&length| {
                (0..length).map(|_| { next = next.wrapping_add(1); next }).collect()
            }).collect();
            let stream: Vec<u8> = segments.concat();
            let mut receiver = Reassembly::new(stream.len());
            let (mut got, mut buffer) = (Vec::new(), vec![0; chunk]);
            // Random picks, with repetition, then all once more so that none is missing.
            for number in order.iter().map(|index| index.index(segments.len())).chain(0..segments.len()) {
                receiver.accept(number as u64, &segments[number]).unwrap();
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
                let _ = receiver.accept(*number, &vec![0; *length]);
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
        assert_eq!(receiver.accept(MAX_OUTSTANDING, b"x"), Err(Malformed("a segment too far ahead")));
        assert_eq!(receiver.accept(1, &[0; 11]), Err(Malformed("more bytes than the window holds")));
        assert_eq!(receiver.accept(3, b"abc"), Ok(true));
        assert_eq!(receiver.finish(3), Err(Malformed("two different ends")));
        assert_eq!(receiver.finish(4), Ok(()));
        assert_eq!(receiver.finish(5), Err(Malformed("two different ends")));
        assert_eq!(receiver.accept(4, b"x"), Err(Malformed("a segment after the end")));
        assert_eq!(receiver.acknowledgement(), (0, 10));
    }

    #[test]
    fn the_window_opens_as_bytes_are_read() {
        let mut receiver = Reassembly::new(4);
        receiver.accept(0, b"abcd").unwrap();
        assert_eq!(receiver.acknowledgement(), (1, 4));
        assert_eq!(receiver.read(&mut [0; 3]), 3);
        assert_eq!(receiver.acknowledgement(), (1, 7));
        receiver.finish(1).unwrap();
        assert_eq!(receiver.acknowledgement(), (2, 7));
    }
}
