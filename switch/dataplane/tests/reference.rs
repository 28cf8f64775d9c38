// SPDX-License-Identifier: Apache-2.0
//! The compiled form against the reference on programs that p4c wrote: the same entries and packets, and what leaves is
//! equal byte for byte, as are counters and registers. `APSWITCH_CASES=100` runs a hundred times as many packets.

use std::path::PathBuf;

use crate::common::bmv2::{MAX_FRAMES, outputs};
use crate::common::frames::{mutate, seed_frame};
use crate::common::guess::{Seen, action, copies, profiles};
use crate::common::pair::{PORTS, Pair, cases};
use crate::common::{STATION, UPLINK, ap_entries, mac};
use apswitch_dataplane::control::*;
use fastrand::Rng;

/// Packets before the entries change.
const ROUND: u32 = 100;

fn read(path: &str) -> Vec<u8> {
    std::fs::read(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

/// Rounds of packets, each with entries that the packets of the one before would have hit.
fn compare(path: &str, rounds: u32, seed: u64, frame: impl Fn(&mut Rng) -> Vec<u8>) {
    let json = read(path);
    let mut rng = Rng::with_seed(seed);
    let (mut hits, mut left, mut writable) = (0, 0, false);
    for _ in 0..rounds {
        let mut pair = Pair::new(&json).unwrap_or_else(|e| panic!("{path}: {e}"));
        let program = pair.program.clone();
        writable |= program.tables.iter().any(|table| !table.key.is_empty() && !table.const_entries);
        pair.write(copies(&mut rng).into_iter());
        pair.write(profiles(&program, &mut rng).into_iter());
        let mut seen = Seen::default();
        // Twice: what the first entries do leads to other keys.
        for _ in 0..2 {
            for _ in 0..ROUND {
                let (port, frame) = (rng.u16(PORTS), frame(&mut rng));
                seen.watch(&mut pair, port, &frame);
                left += pair.same(port, &frame).frames.len();
            }
            let tables = 0..program.tables.len();
            let mut updates: Vec<Update> = Vec::new();
            for table in tables.map(TableId) {
                updates.extend((0..30).filter_map(|_| seen.entry(&program, table, &mut rng)));
                if rng.bool() {
                    updates.push(Update::SetDefault { table, action: action(&program, table, &mut rng) });
                }
                if program.tables[table.0].meter.is_some() && rng.bool() {
                    let config = Some(MeterConfig { cir: 10, cburst: 100, pir: 20, pburst: 300 });
                    updates.push(Update::SetDirectMeter { table, key: None, config });
                }
            }
            hits += pair.write(updates.into_iter());
        }
        for _ in 0..ROUND {
            left += pair.same(rng.u16(PORTS), &frame(&mut rng)).frames.len();
        }
        pair.same_state();
    }
    assert!(left > rounds as usize * ROUND as usize / 4, "{left} frames have left: that is no test");
    assert!(hits > 0 || !writable, "the store took no entry");
}

/// Requests of testdata/programs/features.p4.
fn request(rng: &mut Rng) -> Vec<u8> {
    let mut frame = vec![rng.u8(..0x44), rng.u8(..20)];
    let value = if rng.bool() { rng.u32(..8) } else { rng.u32(..) };
    frame.extend(value.to_be_bytes());
    frame.extend((0..rng.usize(..40)).map(|_| rng.u8(..)));
    frame
}

#[test]
fn features() {
    compare("testdata/programs/features.json", cases(20), 1, request);
}

/// A request to a program of the conformance suite: see checks/conformance/programs/frame.p4.
fn suite_request(op: u8, a: u8, b: u16, c: u32) -> Vec<u8> {
    let mut frame = vec![2; 14];
    frame.extend([op, a]);
    frame.extend(b.to_be_bytes());
    frame.extend(c.to_be_bytes());
    frame
}

#[test]
fn operators() {
    compare("../checks/conformance/programs/operators.json", cases(60), 2, |rng| {
        let op = if rng.u8(..3) == 0 { rng.u8(40..71) } else { rng.u8(1..28) };
        let width = if op < 40 { [5, 13, 33, 48, 64, 128][rng.usize(..6)] } else { 0 };
        let mut frame = suite_request(op, width, rng.u16(..), 0);
        let extreme = rng.bool();
        frame.extend((0..32).map(|_| if extreme { [0, 0xff, 0x80, 0x7f][rng.usize(..4)] } else { rng.u8(..) }));
        frame
    });
}

#[test]
fn stacks_and_unions() {
    compare("testdata/programs/stacks.json", cases(20), 6, |rng| {
        let mut frame = vec![rng.u8(0x10..0x33), rng.u8(..5)];
        for _ in 0..rng.usize(..9) {
            frame.push(rng.u8(..4));
            frame.extend((0..rng.usize(1..5)).map(|_| rng.u8(..6)));
        }
        frame
    });
}

#[test]
fn varbits_and_selects() {
    compare("testdata/programs/variable.json", cases(20), 7, |rng| {
        let mut frame = vec![rng.u8(1..9), rng.u8(..64)];
        frame.extend((0..rng.usize(..50)).map(|_| rng.u8(..)));
        frame
    });
}

#[test]
fn profiles_and_selectors() {
    compare("testdata/programs/profiles.json", cases(20), 8, |rng| {
        let mut frame = vec![rng.u8(..9), rng.u8(..4)];
        frame.extend((0..8).map(|_| rng.u8(..3)));
        frame
    });
}

#[test]
fn odd_widths() {
    compare("testdata/programs/wide.json", cases(30), 9, |rng| {
        let op = if rng.u8(..5) == 0 { rng.u8(0x80..0x84) } else { rng.u8(..35) };
        let argument = rng.u8(..if op == 0x83 { 4 } else { 200 });
        let length = rng.usize(if op < 0x80 { 100..130 } else { 0..250 });
        odd_frame(op, argument, length, rng)
    });
}

/// A command of testdata/programs/wide.p4 and its operands, extreme ones more often than not.
fn odd_frame(op: u8, argument: u8, length: usize, rng: &mut Rng) -> Vec<u8> {
    let extreme = rng.u8(..3);
    let byte = |rng: &mut Rng| match extreme {
        0 => [0, 0xff, 0x80, 0x7f][rng.usize(..4)],
        1 => rng.u8(..2),
        _ => rng.u8(..),
    };
    let mut frame = vec![op, argument];
    frame.extend((0..length).map(|_| byte(rng)));
    frame
}

#[test]
fn odd_widths_as_bmv2_has_them() {
    let mut rng = Rng::with_seed(11);
    for _ in 0..3 {
        // Not what sends a packet back to the parser, and behind others; nor what ends BMv2.
        let commands = (0..0x31u8).filter(|op| ![31, 33].contains(op)).chain([0x80, 0x81, 0x82, 0x83]);
        let frames: Vec<Vec<u8>> = commands
            .map(|op| {
                let argument = if matches!(op, 19 | 20 | 0x83) { rng.u8(..8) } else { rng.u8(..) };
                odd_frame(op, argument, if op == 0x80 { 280 } else { 120 }, &mut rng)
            })
            .collect();
        assert!(frames.len() <= MAX_FRAMES);
        let Some(theirs) = outputs("wide", &frames) else { return };
        let mut pair = Pair::new(&read("testdata/programs/wide.json")).unwrap();
        for (frame, theirs) in frames.iter().zip(theirs) {
            let ours = pair.same(1, frame);
            assert_eq!(ours.frames[&2], [theirs], "{}", pair.trace(1, frame));
        }
    }
}

#[test]
fn negative_selects() {
    compare("testdata/programs/signs.json", cases(10), 10, |rng| {
        let x = [5, 0xff, 0xfe, 6, 0xfc, 0][rng.usize(..6)];
        let y = [0xfff, 0xffd, 0x0fd, 0xffb, 5][rng.usize(..5)];
        let z = rng.u16(..5);
        let mut frame = vec![x, (y >> 4) as u8, (y << 4 | z) as u8];
        let wide = [u128::MAX, u128::MAX - 1, 5][rng.usize(..3)] << 28;
        frame.extend(&wide.to_be_bytes()[..13]);
        frame
    });
}

#[test]
fn entities() {
    compare("../checks/conformance/programs/entities.json", cases(20), 3, |rng| {
        // No index beyond an array.
        let mut frame = suite_request(rng.u8(..27), rng.u8(..8), rng.u16(..8), rng.u32(..));
        frame.extend((0..rng.usize(..60)).map(|_| rng.u8(..)));
        frame
    });
}

#[test]
fn the_access_point() {
    let own = |rng: &mut Rng| {
        let mut frame = seed_frame(rng);
        for at in [0, 6] {
            frame[at..at + 6].copy_from_slice(&mac(rng.u8(..4)).to_be_bytes()[10..]);
        }
        if rng.u8(..4) == 0 { mutate(frame, rng) } else { frame }
    };
    compare("../p4src/compiled/ap.json", cases(10), 4, own);

    // As a controller sets it up.
    let mut pair = Pair::new(&read("../p4src/compiled/ap.json")).unwrap();
    let program = pair.program.clone();
    let updates = ap_entries(&program, 500);
    let count = updates.len();
    assert_eq!(pair.write(updates.into_iter()), count);
    let mut rng = Rng::with_seed(5);
    let mut left = 0;
    for _ in 0..cases(2000) {
        let port = if rng.bool() { STATION } else { UPLINK };
        left += pair.same(port, &own(&mut rng)).frames.len();
    }
    assert!(left > 1000, "{left} frames have left: that is no test");
    pair.same_state();
}
