// SPDX-License-Identifier: Apache-2.0
//! The compiled form and the reference of one program, fed the same and compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use apswitch_core::dataplane_ops::{Digest, Outbox, PacketIn};
use apswitch_core::machine::Machine;
use apswitch_core::state::Shared;
use apswitch_core::state::frame::Pool;
use apswitch_core::store::{Store, check_size};
use apswitch_core::v1model::{Port, Switch};
use apswitch_dataplane::control::*;
use apswitch_reference::packet_trace::Event;
use apswitch_reference::{Output, Reference, Setup};
use async_channel::{Receiver, bounded};

use super::CPU_PORT;

pub const PORTS: std::ops::Range<u16> = 0..4;
/// More than a packet can cause.
const BACKLOG: usize = 65_536;

/// Packets and samples that left, by destination; the order among different destinations does not matter.
#[derive(Debug, Default, PartialEq)]
pub struct Outputs {
    pub frames: BTreeMap<u16, Vec<Vec<u8>>>,
    pub packet_ins: Vec<Vec<u8>>,
    pub digests: Vec<(usize, Vec<Value>)>,
}

pub struct Pair {
    pub program: Arc<Program>,
    pub store: Store,
    reference: Reference,
    /// Another one, which traces what packets would meet; what it does to registers does not matter.
    scout: Reference,
    switch: Switch,
    packet_ins: Receiver<PacketIn>,
    digests: Receiver<Digest>,
    /// ns
    now: u64,
}

impl Pair {
    /// Ports 0 to 3 and the CPU port, every digest enabled.
    pub fn new(json: &[u8]) -> Result<Pair, LoadError> {
        Pair::with(Program::load(json)?, json)
    }

    /// Makes a pair as [`Pair::new`] does, of the program that `json` was loaded as.
    pub fn with(program: Program, json: &[u8]) -> Result<Pair, LoadError> {
        let program = Arc::new(program);
        // What is refused when a pipeline is committed.
        let refused = |e: UpdateError| LoadError { place: "program".into(), reason: e.to_string() };
        check_size(&program).map_err(refused)?;
        Store::new(program.clone(), Arc::new(Shared::new(&program))).map_err(refused)?;
        let setup = Setup { ports: PORTS.collect(), cpu_port: Some(CPU_PORT), queues: 8, seed: 1 };
        Ok(Pair::of(program, Reference::load(json, setup)?))
    }

    /// Makes another one as this was when it was made.
    pub fn anew(&self) -> Pair {
        Pair::of(self.program.clone(), self.reference.anew())
    }

    fn of(program: Arc<Program>, reference: Reference) -> Pair {
        let mut scout = reference.anew();
        scout.start_trace();
        let shared = Arc::new(Shared::new(&program));
        let (packet_in_sender, packet_ins) = bounded(BACKLOG);
        let (digest_sender, digests) = bounded(BACKLOG);
        let outbox = Outbox { packet_ins: packet_in_sender, digests: digest_sender };
        let ports = PORTS.map(|number| Port::new(number, None, 1)).collect();
        let mut switch = Switch::new(ports, Pool::new(2048, 65_536), Some(CPU_PORT), 8, outbox, 1);
        let (store, mut changes) = Store::new(program.clone(), shared.clone()).unwrap();
        switch.commit(Box::new(Machine::new(&program, shared, 1)));
        changes.iter_mut().for_each(|change| switch.apply(change, 0));
        let mut pair = Pair { program: program.clone(), store, reference, scout, switch, packet_ins, digests, now: 0 };
        let enable =
            |digest| Update::SetDigest { digest: DigestId(digest), config: Some(DigestConfig { ack_timeout_ns: 0 }) };
        pair.write((0..program.digests.len()).map(enable));
        pair
    }

    /// Writes updates, leaving out those that the store refuses; returns the number of updates that it took.
    pub fn write(&mut self, updates: impl Iterator<Item = Update>) -> usize {
        let mut changes = Vec::new();
        let taken = updates.filter(|update| self.store.update(update.clone(), self.now, &mut changes).is_ok()).count();
        changes.iter_mut().for_each(|change| self.switch.apply(change, self.now));
        self.reference.sync(&self.store, self.now);
        self.scout.sync(&self.store, self.now);
        taken
    }

    /// The outputs of both forms for a frame.
    pub fn send(&mut self, port: u16, frame: &[u8]) -> (Outputs, Outputs) {
        self.now += 1_000_000;
        let mut packet = self.switch.pool.take().unwrap();
        assert!(packet.frame.set(frame));
        self.switch.receive(port, packet, self.now);
        while self.switch.is_pending() {
            self.switch.pending(self.now);
        }
        let mut compiled = Outputs::default();
        self.switch.send(|_, port| {
            let frames = port.output.iter().map(|packet| packet.frame.bytes().to_vec());
            compiled.frames.entry(port.number).or_default().extend(frames);
        });
        while let Ok(packet) = self.packet_ins.try_recv() {
            compiled.packet_ins.push(packet.frame);
        }
        while let Ok(digest) = self.digests.try_recv() {
            compiled.digests.push((digest.digest.0, digest.values));
        }
        let mut interpreted = Outputs::default();
        for output in self.reference.receive(port, frame, self.now) {
            match output {
                Output::Frame { port, frame } => interpreted.frames.entry(port).or_default().push(frame),
                Output::PacketIn { frame } => interpreted.packet_ins.push(frame),
                Output::Digest { digest, values } => interpreted.digests.push((digest.0, values)),
            }
        }
        (compiled, interpreted)
    }

    /// Sends as [`Pair::send`] does, checks that the two are equal, and returns what left.
    pub fn same(&mut self, port: u16, frame: &[u8]) -> Outputs {
        let (compiled, interpreted) = self.send(port, frame);
        assert_eq!(compiled, interpreted, "{}", self.trace(port, frame));
        compiled
    }

    /// Traces what the frame meets.
    pub fn scout(&mut self, port: u16, frame: &[u8]) -> Vec<Event> {
        self.scout.receive(port, frame, self.now);
        self.scout.take_trace()
    }

    /// The packet once more, in words.
    pub fn trace(&mut self, port: u16, frame: &[u8]) -> String {
        let events: Vec<String> = self.scout(port, frame).iter().map(Event::to_string).collect();
        format!("compiled (left) differs from the reference (right) for {frame:02x?}:\n{}", events.join("\n"))
    }

    /// Compares counters and registers.
    pub fn same_state(&self) {
        let cells = |size: usize| 0..size;
        for (index, info) in self.program.counters.iter().enumerate() {
            let compiled = self.store.counters(index, cells(info.size)).unwrap();
            assert_eq!(compiled, self.reference.counter(CounterId(index)), "counter {}", info.name);
        }
        for (index, info) in self.program.registers.iter().enumerate() {
            let compiled = self.store.registers(index, cells(info.size)).unwrap();
            assert_eq!(compiled, self.reference.register(RegisterId(index)), "register {}", info.name);
        }
        for (index, info) in self.program.tables.iter().enumerate().filter(|(_, info)| info.has_counter) {
            for view in self.store.entries(TableId(index), self.now).unwrap() {
                let counted = self.reference.direct_counter(&info.name, Some(&view.entry.key));
                assert_eq!(view.entry.counter, counted, "table {}, {:?}", info.name, view.entry.key);
            }
            let missed = self.store.direct_counter(TableId(index), None).unwrap();
            assert_eq!(
                missed,
                self.reference.direct_counter(&info.name, None).unwrap_or_default(),
                "misses of {}",
                info.name
            );
        }
    }
}

/// Returns the number of cases that a test runs: `APSWITCH_CASES` times the usual number.
pub fn cases(usual: u32) -> u32 {
    match std::env::var("APSWITCH_CASES") {
        Ok(times) => usual * times.parse::<u32>().expect("APSWITCH_CASES is a number of times"),
        Err(_) => usual,
    }
}
