// SPDX-License-Identifier: Apache-2.0
//! Frames for the access point's program: of the kinds that it knows, and what mutation makes of them.

use fastrand::Rng;

use super::udp_frame;

/// A well-formed frame of one of the kinds that the program knows.
pub fn seed_frame(rng: &mut Rng) -> Vec<u8> {
    let mut frame = udp_frame(rng.u32(..2000), rng.usize(42..200));
    match rng.u8(..6) {
        // TCP, an acknowledgement more often than not.
        0 | 1 => {
            frame.resize(frame.len().max(54), 0);
            frame[23] = 6;
            frame[46] = [0x50, 0x80, 0xf0, 0x40][rng.usize(..4)];
            frame[47] = if rng.bool() { 0x10 } else { rng.u8(..) };
        }
        // IPv6.
        2 | 3 => {
            frame.resize(frame.len().max(74), 0);
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            frame[14] = 0x60 | rng.u8(..16);
            frame[20] = [6, 17, 58, 0][rng.usize(..4)];
        }
        // ARP, or a type that nobody knows.
        4 => frame[12..14].copy_from_slice(&if rng.bool() { [0x08, 0x06] } else { [rng.u8(..), rng.u8(..)] }),
        _ => {}
    }
    frame
}

pub fn mutate(mut frame: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    for _ in 0..rng.u8(..8) {
        match rng.u8(..5) {
            0 => frame.truncate(rng.usize(..=frame.len())),
            1 => frame.extend((0..rng.usize(..64)).map(|_| rng.u8(..))),
            2 if !frame.is_empty() => {
                let at = rng.usize(..frame.len());
                frame.remove(at);
            }
            _ if !frame.is_empty() => {
                let at = rng.usize(..frame.len());
                frame[at] = rng.u8(..);
            }
            _ => {}
        }
    }
    frame
}
