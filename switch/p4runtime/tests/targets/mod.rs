// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: what they do with an input; `corpus.rs` does it with those that were kept.
#![allow(dead_code)]

pub mod programs;

use std::cell::{OnceCell, RefCell};
use std::sync::OnceLock;

use apswitch_core::program::check_native_code;
use apswitch_dataplane::block_on;
use apswitch_dataplane::control::*;
use apswitch_p4runtime::in_process::{InProcess, Loaded};
use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::common::guess::{Seen, action, copies, profiles};
use crate::common::pair::{PORTS, Pair};

type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 4] =
    [("loader", loader), ("packets", packets), ("programs", programs::programs), ("write", write)];

/// Packets of an input; more would be slow and show no more.
const MAX_PACKETS: usize = 12;
const MAX_REQUESTS: usize = 24;
const ENTRIES: usize = 6;

const PROGRAMS: [&str; 8] = [
    "../p4src/compiled/ap",
    "testdata/programs/features",
    "testdata/programs/arithmetic",
    "testdata/programs/kinds",
    "testdata/programs/stacks",
    "testdata/programs/variable",
    "testdata/programs/profiles",
    "testdata/programs/wide",
];
/// Programs with a P4Info.
const WRITTEN: [&str; 3] = ["kinds", "profiles", "wide"];

pub fn read(path: &str) -> Vec<u8> {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Bytes that decide; where they end, everything is the first choice.
pub struct Tape<'t>(pub &'t [u8]);

impl Tape<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Picks a number below `count`.
    pub fn pick(&mut self, count: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % count.max(1)
    }
}

/// A document, or a program that was edited: it is refused or takes packets, in both forms.
pub fn loader(input: &[u8]) {
    check_native_code();
    let mut tape = Tape(input);
    let document = match tape.byte() as usize {
        which if which < PROGRAMS.len() => {
            let mut program = programs()[which].clone();
            while !tape.0.is_empty() {
                edit(&mut program, &mut tape);
            }
            program.to_string().into_bytes()
        }
        _ => tape.0.to_vec(),
    };
    if let Ok(mut pair) = Pair::new(&document) {
        for length in [0, 20, 130] {
            pair.send(1, &vec![0x11; length]);
        }
    }
}

fn programs() -> &'static [Json] {
    static PARSED: OnceLock<Vec<Json>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let parse = |name: &&str| serde_json::from_slice(&read(&format!("{name}.json"))).unwrap();
        PROGRAMS.iter().map(parse).map(without_places).collect()
    })
}

/// Half of a program only says where things stand in its source.
pub fn without_places(mut value: Json) -> Json {
    match &mut value {
        Json::Object(fields) => {
            fields.remove("source_info");
            fields.values_mut().for_each(|field| *field = without_places(field.take()));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| *item = without_places(item.take())),
        _ => {}
    }
    value
}

/// Walks into the document and changes what it finds there.
pub fn edit(value: &mut Json, tape: &mut Tape) {
    let steps = 1 + tape.byte() % 16;
    let mut at = value;
    for _ in 0..steps {
        // Whether there is something to walk into does not outlive the question.
        let length = match &*at {
            Json::Array(items) => items.len(),
            Json::Object(fields) => fields.len(),
            _ => 0,
        };
        if length == 0 {
            break;
        }
        let index = tape.pick(length);
        at = match at {
            Json::Array(items) => &mut items[index],
            Json::Object(fields) => fields.values_mut().nth(index).expect("below its length"),
            _ => unreachable!("it has a length"),
        };
    }
    const WORDS: [&str; 24] = [
        "field",
        "hexstr",
        "expression",
        "header",
        "header_stack",
        "lookahead",
        "stack_field",
        "exact",
        "ternary",
        "range",
        "lpm",
        "optional",
        "+",
        "<<",
        ">>",
        "*",
        "two_comp_mod",
        "usat_cast",
        "?",
        "push",
        "assign",
        "register_read",
        "-0xffffffffffffffffffffffffffffffffffffffffff",
        "0x0fffffffffffffffffffffffffffffffffffffffffffffffff",
    ];
    let choice = tape.byte() % 12;
    match (choice, &mut *at) {
        (0, Json::Array(items)) if !items.is_empty() => drop(items.remove(tape.pick(items.len()))),
        (1, Json::Array(items)) if !items.is_empty() => items.push(items[tape.pick(items.len())].clone()),
        (2, Json::Array(items)) if !items.is_empty() => {
            let (a, b) = (tape.pick(items.len()), tape.pick(items.len()));
            items.swap(a, b);
        }
        (0..3, Json::Object(fields)) if !fields.is_empty() => {
            let name = fields.keys().nth(tape.pick(fields.len())).expect("below its length").clone();
            fields.remove(&name);
        }
        (3 | 4, _) => *at = json!(tape.byte()),
        (5, _) => *at = json!(tape.pick(1 << 16)),
        (6, _) => *at = json!(u64::MAX >> (tape.byte() % 64)),
        (7, _) => *at = json!(format!("{:#x}", tape.pick(1 << 16))),
        (8, _) => *at = Json::Null,
        (9, _) => *at = json!(tape.byte() < 0x80),
        _ => *at = json!(WORDS[tape.pick(WORDS.len())]),
    }
}

/// Packets through a program, before and after entries are made that they hit; both forms do the same with them.
/// Input: program, seed of the entries (8 bytes), then for each packet length, port and bytes.
pub fn packets(input: &[u8]) {
    check_native_code();
    thread_local! {
        static PAIRS: [OnceCell<Pair>; PROGRAMS.len()] = const { [const { OnceCell::new() }; PROGRAMS.len()] };
    }
    let Some((&which, rest)) = input.split_first() else { return };
    let Some((seed, mut rest)) = rest.split_first_chunk() else { return };
    let which = which as usize % PROGRAMS.len();
    let mut pair = PAIRS.with(|pairs| {
        let load = || Pair::new(&read(&format!("{}.json", PROGRAMS[which]))).expect("the program is loaded");
        pairs[which].get_or_init(load).anew()
    });
    let mut frames: Vec<(u16, &[u8])> = Vec::new();
    while let ([length, port, behind @ ..], true) = (rest, frames.len() < MAX_PACKETS) {
        let (frame, behind) = behind.split_at((*length as usize).min(behind.len()));
        frames.push((PORTS.start + u16::from(*port) % (PORTS.end - PORTS.start), frame));
        rest = behind;
    }
    let mut rng = Rng::with_seed(u64::from_le_bytes(*seed));
    let program = pair.program.clone();
    let mut seen = Seen::default();
    pair.write(copies(&mut rng).into_iter().chain(profiles(&program, &mut rng)));
    for _ in 0..2 {
        for (port, frame) in &frames {
            seen.watch(&mut pair, *port, frame);
            pair.same(*port, frame);
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
    for (port, frame) in &frames {
        pair.same(*port, frame);
    }
    pair.same_state();
}

struct Server {
    server: RefCell<InProcess>,
    loaded: Vec<Loaded>,
    /// Open as long as the server is there.
    _events: Events,
    ends: Vec<MemoryEnd>,
}

impl Server {
    fn start() -> Server {
        let port = |number: u16| PortConfig { number, interface: format!("memory{number}"), link: None };
        let ports = PORTS.map(port).collect();
        let config =
            DataplaneConfig { ports, cpu_port: Some(510), priority_queues: 8, seed: 1, capture: None, aside: at_once };
        let (dataplane, events, ends) = Dataplane::start_in_memory(config).unwrap();
        let load = |name: &&str| {
            let part = |kind: &str| read(&format!("testdata/programs/{name}.{kind}"));
            Loaded::new(&part("p4info.bin"), &part("json")).expect("the program is loaded")
        };
        let server = RefCell::new(InProcess::new(dataplane).unwrap());
        Server { server, loaded: WRITTEN.iter().map(load).collect(), _events: events, ends }
    }
}

/// Write requests to the server: it answers, what it says of its entries it takes back, and packets still pass.
/// Input: program, then for each request its length (2 bytes, low one first) and bytes.
pub fn write(input: &[u8]) {
    check_native_code();
    thread_local! {
        static SERVER: Server = Server::start();
    }
    let Some((&which, mut rest)) = input.split_first() else { return };
    SERVER.with(|Server { server, loaded, ends, .. }| {
        let mut server = server.borrow_mut();
        block_on(async {
            server.start(&loaded[which as usize % loaded.len()]).await.unwrap();
            for _ in 0..MAX_REQUESTS {
                let [low, high, behind @ ..] = rest else { break };
                let length = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
                // Refusing is fine.
                let _ = server.write(&behind[..length]).await;
                rest = &behind[length..];
            }
            if let Err(contradiction) = server.write_back().await {
                panic!("the server does not take its own entries back: {contradiction:?}");
            }
        });
        for end in ends {
            end.send(rest.get(..64).unwrap_or(&[0x11; 64]));
            while end.receive(std::time::Duration::ZERO).is_some() {}
        }
    });
}
