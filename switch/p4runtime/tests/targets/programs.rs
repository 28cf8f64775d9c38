// SPDX-License-Identifier: Apache-2.0
//! A fuzz target: every program that there is, with parts of it moved, doubled, left out and changed, runs packets.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use apswitch_core::program::check_native_code;
use apswitch_dataplane::control::*;
use fastrand::Rng;
use serde_json::{Value as Json, json};

use super::{Tape, edit, read, without_places};
use crate::common::guess::{Seen, action, copies, profiles};
use crate::common::pair::{PORTS, Pair};

const PROGRAMS: [&str; 13] = [
    "../p4src/compiled/ap",
    "../checks/conformance/programs/entities",
    "../checks/conformance/programs/externs",
    "../checks/conformance/programs/initial",
    "../checks/conformance/programs/operators",
    "../checks/conformance/programs/parsing",
    "../checks/conformance/programs/types",
    "testdata/programs/features",
    "testdata/programs/profiles",
    "testdata/programs/signs",
    "testdata/programs/stacks",
    "testdata/programs/variable",
    "testdata/programs/wide",
];

const MAX_EDITS: usize = 12;
const MAX_PACKETS: usize = 6;
const ENTRIES: usize = 3;
/// Entries, cells and members of a program at most: what larger ones do takes only longer.
const MAX_CELLS: usize = 1 << 20;

/// A program that was edited is refused, or runs packets before and after entries are made, without a panic and without
/// reaching for memory that is not its own. Input: program, number of edits, edits, seed of the entries, packets (each
/// its length and bytes).
pub fn programs(input: &[u8]) {
    check_native_code();
    let mut tape = Tape(input);
    let mut document = parsed()[tape.byte() as usize % PROGRAMS.len()].clone();
    for _ in 0..tape.byte() as usize % MAX_EDITS {
        mutate(&mut document, &mut tape);
    }
    let document = document.to_string().into_bytes();
    // What is large is refused when it is committed, or only slow.
    let Ok(program) = Program::load(&document) else { return };
    if cells(&program) > MAX_CELLS {
        return;
    }
    let Ok(mut pair) = Pair::with(program, &document) else { return };
    let mut rng = Rng::with_seed((0..4).fold(0, |seed, _| seed << 8 | u64::from(tape.byte())));
    let mut frames: Vec<Vec<u8>> = vec![vec![], vec![0x11; 20], vec![0; 200]];
    while frames.len() < MAX_PACKETS && !tape.0.is_empty() {
        let length = tape.byte() as usize;
        frames.push((0..length).map(|_| tape.byte()).collect());
    }
    let program = pair.program.clone();
    let mut seen = Seen::default();
    pair.write(copies(&mut rng).into_iter().chain(profiles(&program, &mut rng)));
    for _ in 0..2 {
        for (number, frame) in (0u16..).zip(&frames) {
            let port = PORTS.start + number % (PORTS.end - PORTS.start);
            seen.watch(&mut pair, port, frame);
            pair.send(port, frame);
        }
        let mut updates: Vec<Update> = Vec::new();
        for table in (0..program.tables.len()).map(TableId) {
            updates.extend((0..ENTRIES).filter_map(|_| seen.entry(&program, table, &mut rng)));
            if rng.bool() {
                updates.push(Update::SetDefault { table, action: action(&program, table, &mut rng) });
            }
        }
        pair.write(updates.into_iter());
    }
    for (number, frame) in (0u16..).zip(&frames) {
        pair.send(PORTS.start + number % (PORTS.end - PORTS.start), frame);
    }
}

fn parsed() -> &'static [Json] {
    static PARSED: OnceLock<Vec<Json>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let parse = |name: &&str| serde_json::from_slice(&read(&format!("{name}.json"))).unwrap();
        PROGRAMS.iter().map(parse).map(without_places).collect()
    })
}

fn cells(program: &Program) -> usize {
    let tables = program.tables.iter().map(|table| table.max_size);
    let arrays = program.counters.iter().map(|c| c.size).chain(program.meters.iter().map(|m| m.size));
    let registers = program.registers.iter().map(|register| register.size);
    let profiles = program.profiles.iter().map(|profile| profile.size);
    tables.chain(arrays).chain(registers).chain(profiles).fold(0, usize::saturating_add)
}

/// Collects the positions of values, by the name of the field that holds them: values of one name can take each other's
/// place.
fn places(value: &Json, name: &str, at: &mut Vec<usize>, found: &mut BTreeMap<String, Vec<Vec<usize>>>) {
    let inner: Vec<(&str, &Json)> = match value {
        Json::Object(fields) => fields.iter().map(|(name, value)| (name.as_str(), value)).collect(),
        Json::Array(items) => items.iter().map(|item| (name, item)).collect(),
        _ => return,
    };
    for (index, (name, value)) in inner.into_iter().enumerate() {
        at.push(index);
        found.entry(name.to_string()).or_default().push(at.clone());
        places(value, name, at, found);
        at.pop();
    }
}

fn place<'v>(value: &'v mut Json, at: &[usize]) -> &'v mut Json {
    at.iter().fold(value, |value, &index| match value {
        Json::Array(items) => &mut items[index],
        Json::Object(fields) => fields.values_mut().nth(index).expect("it was there"),
        _ => unreachable!("it has parts"),
    })
}

fn mutate(document: &mut Json, tape: &mut Tape) {
    let how = tape.byte() % 8;
    if how == 0 {
        return edit(document, tape);
    }
    let mut found = BTreeMap::new();
    places(document, "", &mut Vec::new(), &mut found);
    let Some(same) = found.values().nth(tape.pick(found.len())) else { return };
    let (to, from) = (&same[tape.pick(same.len())], &same[tape.pick(same.len())]);
    match how {
        // The value of another field of that name.
        1..=3 => {
            let other = place(document, from).clone();
            *place(document, to) = other;
        }
        // Both change places, unless one is in the other.
        4 => {
            let (one, other) = (place(document, to).clone(), place(document, from).clone());
            if !to.starts_with(from) && !from.starts_with(to) {
                (*place(document, to), *place(document, from)) = (other, one);
            }
        }
        // An item of the one list more in the other.
        5 => {
            let item = match place(document, from) {
                Json::Array(items) if !items.is_empty() => items[tape.pick(items.len())].clone(),
                _ => return,
            };
            if let Json::Array(items) = place(document, to) {
                items.insert(tape.pick(items.len() + 1), item);
            }
        }
        // A number, or the digits of one, a little or much different.
        6 => {
            let value = place(document, to);
            let change = |number: u64, tape: &mut Tape| match tape.byte() % 6 {
                0 => number.wrapping_add(1),
                1 => number.wrapping_sub(1),
                2 => number.wrapping_mul(2),
                3 => number ^ 1 << (tape.byte() % 64),
                4 => tape.byte().into(),
                _ => u64::MAX >> (tape.byte() % 64),
            };
            let number = match &*value {
                Json::Number(number) => number.as_u64(),
                Json::String(text) => text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()),
                _ => None,
            };
            if let Some(number) = number {
                let changed = change(number, tape);
                *value = if value.is_string() { json!(format!("{changed:#x}")) } else { json!(changed) };
            }
        }
        // Left out.
        _ => {
            let Some((&last, list)) = to.split_last() else { return };
            if let Json::Array(items) = place(document, list) {
                items.remove(last);
            }
        }
    }
}
