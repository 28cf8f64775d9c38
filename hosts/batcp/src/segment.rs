// SPDX-License-Identifier: Apache-2.0
//! Frames on subflows after the hello: segments, acknowledgements, the end and the reset of a connection.
//!
//! | octets | field |
//! | --- | --- |
//! | 1 | kind: 1 segment, 2 acknowledgement, 3 end, 4 reset |
//! | 2 | length of the payload of a segment, 1..=65535; reason of a reset; else 0 |
//! | 5 | segment number, 0..=9,999,999,999 (ten digits, paper 003, section 3.6), the next one after the last is 0 |
//! | | segment: its payload; acknowledgement: 8 octets, how many bytes of payload the sender may have sent in all |
//!
//! All in network byte order. An acknowledgement names the segment that is expected next, an end the number after the last segment.

use bytes::{Buf, Bytes, BytesMut};

/// Segment numbers have ten digits.
pub const NUMBERS: u64 = 10_000_000_000;
/// Segments that may be unacknowledged at a time: bounds the receiver's bookkeeping whatever the segments' lengths.
pub const MAX_OUTSTANDING: u64 = 16_384;
/// The longest payload of a segment.
pub const MAX_PAYLOAD: usize = 65_535;
/// Octets before the payload.
pub const HEADER: usize = 8;
/// Octets of the longest segment that is sent, header included: sealed with its tag of 16 it fills a message of Noise.
pub const MAX_FRAME: usize = 65_535 - 16;

/// Frame of a subflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Segment {
        number: u64,
        payload: Bytes,
    },
    /// `expected`: every segment before it has arrived. `limit`: bytes of payload, counted from the start of the connection.
    Acknowledgement {
        expected: u64,
        limit: u64,
    },
    /// End of the stream: `number` follows the last segment (the FIN of section 3.2).
    End {
        number: u64,
    },
    /// Reset of the connection (the RST of section 3.3).
    Reset {
        reason: u16,
    },
}

/// Violation of the protocol by a peer, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Encode the header of a segment.
pub fn segment_header(number: u64, length: usize) -> [u8; HEADER] {
    header(1, u16::try_from(length).expect("payloads are at most MAX_PAYLOAD long"), number)
}

fn header(kind: u8, length: u16, number: u64) -> [u8; HEADER] {
    let mut octets = ((number % NUMBERS) | u64::from(length) << 40).to_be_bytes();
    octets[0] = kind;
    octets
}

/// Encode an acknowledgement, an end or a reset. Segments are written as header and payload, without a copy.
pub fn encode(frame: &Frame) -> Vec<u8> {
    match *frame {
        Frame::Segment { number, ref payload } => [&segment_header(number, payload.len())[..], payload].concat(),
        Frame::Acknowledgement { expected, limit } => [header(2, 0, expected), limit.to_be_bytes()].concat(),
        Frame::End { number } => header(3, 0, number).to_vec(),
        Frame::Reset { reason } => header(4, reason, 0).to_vec(),
    }
}

/// Take the first whole frame out of `from`; None while it is incomplete. `near` returns the number next to the
/// expected one with these ten digits, so that numbers here never wrap. Errors: an unknown kind, a length or number
/// that no sender writes.
pub fn decode(from: &mut BytesMut, near: impl Fn(&WireSequence) -> u64) -> Result<Option<Frame>, Malformed> {
    let Some(head) = from.first_chunk::<HEADER>() else { return Ok(None) };
    let (kind, word) = (head[0], u64::from_be_bytes(*head));
    let length = (word >> 40 & 0xffff) as usize;
    let number = word & 0xff_ffff_ffff;
    if number >= NUMBERS {
        return Err(Malformed("a segment number of more than ten digits"));
    }
    let whole = HEADER
        + match kind {
            1 if length == 0 => return Err(Malformed("a segment without payload")),
            1 => length,
            2 => 8,
            3 | 4 => 0,
            _ => return Err(Malformed("a frame of unknown kind")),
        };
    if matches!(kind, 2 | 3) && length != 0 {
        return Err(Malformed("a frame with a length that it has not"));
    }
    if from.len() < whole {
        from.reserve(whole - from.len());
        return Ok(None);
    }
    let mut body = from.split_to(whole);
    body.advance(HEADER);
    Ok(Some(match kind {
        1 => Frame::Segment { number: near(&WireSequence::Received(number)), payload: body.freeze() },
        2 => Frame::Acknowledgement { expected: near(&WireSequence::Sent(number)), limit: body.get_u64() },
        3 => Frame::End { number: near(&WireSequence::Received(number)) },
        _ => Frame::Reset { reason: length as u16 },
    }))
}

/// Segment number as it is on the wire, ten digits, by the direction of the segments that it counts.
pub enum WireSequence {
    /// The peer sends these segments.
    Received(u64),
    /// This end sends these segments.
    Sent(u64),
}

/// Return the number next to `near` whose last ten digits are `digits`.
pub fn continue_number(digits: u64, near: u64) -> u64 {
    let ahead = (digits + NUMBERS - near % NUMBERS) % NUMBERS;
    if ahead >= NUMBERS / 2 && near + ahead >= NUMBERS { near + ahead - NUMBERS } else { near + ahead }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(sequence: &WireSequence) -> u64 {
        match *sequence {
            WireSequence::Received(number) | WireSequence::Sent(number) => number,
        }
    }

    fn frames() -> impl Strategy<Value = Frame> {
        prop_oneof![
            (0..NUMBERS, prop::collection::vec(any::<u8>(), 1..300))
                .prop_map(|(number, payload)| Frame::Segment { number, payload: payload.into() }),
            (0..NUMBERS, any::<u64>()).prop_map(|(expected, limit)| Frame::Acknowledgement { expected, limit }),
            (0..NUMBERS).prop_map(|number| Frame::End { number }),
            any::<u16>().prop_map(|reason| Frame::Reset { reason }),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_fragmentation(sent in prop::collection::vec(frames(), 0..20), cut in 1usize..50) {
            let octets: Vec<u8> = sent.iter().flat_map(encode).collect();
            let (mut buffer, mut got) = (BytesMut::new(), Vec::new());
            for piece in octets.chunks(cut) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = decode(&mut buffer, plain).unwrap() {
                    got.push(frame);
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn any_octets_end_in_frames_or_an_error(octets in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut buffer = BytesMut::from(&octets[..]);
            while let Ok(Some(_)) = decode(&mut buffer, plain) {}
            prop_assert!(buffer.capacity() <= 2 * (MAX_PAYLOAD + HEADER + 2000));
        }

        #[test]
        fn numbers_continue(near in 0u64..1 << 50, distance in 0u64..1 << 30) {
            prop_assert_eq!(continue_number((near + distance) % NUMBERS, near), near + distance);
            let below = near.saturating_sub(distance);
            prop_assert_eq!(continue_number(below % NUMBERS, near), below);
        }
    }

    #[test]
    fn wrong_headers_are_named() {
        let refused = |octets: [u8; 8]| decode(&mut BytesMut::from(&octets[..]), plain).unwrap_err().0;
        assert_eq!(refused([9, 0, 0, 0, 0, 0, 0, 0]), "a frame of unknown kind");
        assert_eq!(refused([1, 0, 0, 0, 0, 0, 0, 0]), "a segment without payload");
        assert_eq!(refused([1, 0, 1, 255, 255, 255, 255, 255]), "a segment number of more than ten digits");
        assert_eq!(refused([2, 0, 1, 0, 0, 0, 0, 0]), "a frame with a length that it has not");
    }
}
