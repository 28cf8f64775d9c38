// SPDX-License-Identifier: Apache-2.0
//! The reference: programs interpreted as they stand in the JSON, with integers of any size, clarity before speed.
//!
//! The compiled form is tested against it packet by packet, and `apswitch explain` tells a packet's way with it. The
//! two share no parser, expression, action, table or deparser; what was written they take from the same
//! [`Store`], and of the architecture they share meters and the random numbers' generator.
//!
//! | module | what it knows |
//! | --- | --- |
//! | `program`, `load`, `document` | the program as a tree, and how it is read |
//! | `phv`, `stacks` | headers and metadata of one packet, expressions |
//! | `interpreter`, `tables`, `registers`, `hash` | controls, tables, registers, actions, checksums |
//! | `parser` | parser and deparser |
//! | this one | what v1model does between the ports |
//! | [`packet_trace`] | what happened, as data and in words |
//!
//! Ports have no queues here: a packet is at its port at once. Everything happens in the order in which a switch
//! without link models does it.

mod document;
mod hash;
mod interpreter;
mod load;
pub mod packet_trace;
mod parser;
mod phv;
mod program;
mod registers;
mod stacks;
mod tables;

use std::collections::{BTreeMap, VecDeque};
use std::iter::repeat_n;
use std::sync::Arc;

use self::interpreter::{DROP_PORT, Interpreter};
use self::packet_trace::{Event, show};
use self::phv::{Packet, Phv, fit};
use self::program::{Part, Program as Tree};
use self::registers::Registers;
use apswitch_core::dataplane_ops::{CloneSession, CounterValue, Replica};
use apswitch_core::port::PortNumber;
use apswitch_core::program::{
    ActionCall, CounterId, DigestId, EntryKey, LoadError, ProfileId, RegisterId, TableId, Value, ValueSetId,
};
use apswitch_core::state::Shared;
use apswitch_core::store::Store;
use apswitch_core::write_api::EntryAction;

/// Values of `instance_type`.
mod instance {
    pub const NORMAL: u64 = 0;
    pub const INGRESS_CLONE: u64 = 1;
    pub const EGRESS_CLONE: u64 = 2;
    pub const RECIRCULATED: u64 = 4;
    pub const REPLICATION: u64 = 5;
    pub const RESUBMITTED: u64 = 6;
}

/// A packet that comes back more often than this is dropped: nobody wants to hear the rest of its story.
const MAX_ROUNDS: usize = 8192;

/// apswitch's own: lanes of queue 0, behind the last of the queues that priorities name.
const LANES: u64 = 64;
const LAST_QUEUE: u64 = 7;

/// Packet or sample that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Frame { port: PortNumber, frame: Vec<u8> },
    PacketIn { frame: Vec<u8> },
    Digest { digest: DigestId, values: Vec<Value> },
}

/// Ports and queues, as the switch has them.
#[derive(Clone, Debug)]
pub struct Setup {
    pub ports: Vec<PortNumber>,
    pub cpu_port: Option<PortNumber>,
    /// Per port; packets with a higher priority are dropped.
    pub queues: usize,
    /// Seed of P4's `random`.
    pub seed: u64,
}

/// A copy on its way to a port.
struct Copy {
    kind: &'static str,
    port: PortNumber,
    packet: Packet,
}

pub struct Reference {
    interpreter: Interpreter,
    setup: Setup,
    groups: BTreeMap<u32, Vec<Replica>>,
    sessions: BTreeMap<u32, CloneSession>,
    /// Digests that are enabled.
    digests: Vec<bool>,
    copies: VecDeque<Copy>,
    /// Packets on their way to ingress again, and what they are.
    returning: VecDeque<(&'static str, Packet)>,
    outputs: Vec<Output>,
}

impl Reference {
    /// Reads BMv2 JSON of format 2.x.
    pub fn load(json: &[u8], setup: Setup) -> Result<Reference, LoadError> {
        Ok(Reference::of(Arc::new(document::load(json)?), setup))
    }

    fn of(tree: Arc<Tree>, setup: Setup) -> Reference {
        Reference {
            digests: vec![false; tree.digests.len()],
            interpreter: Interpreter::new(tree, setup.seed),
            setup,
            groups: BTreeMap::new(),
            sessions: BTreeMap::new(),
            copies: VecDeque::new(),
            returning: VecDeque::new(),
            outputs: Vec::new(),
        }
    }

    /// Makes another one as this was when it was loaded.
    pub fn anew(&self) -> Reference {
        Reference::of(self.interpreter.program.clone(), self.setup.clone())
    }

    /// Explains packets of a running switch from now on: its registers are read and never written, nothing is counted,
    /// and a meter knows the explained packets alone.
    pub fn follow(&mut self, shared: Arc<Shared>) {
        self.interpreter.registers = Registers::live(shared);
        self.interpreter.counters.iter_mut().for_each(|cells| *cells = Vec::new());
    }

    /// Ports that there are now.
    pub fn set_ports(&mut self, ports: Vec<PortNumber>) {
        self.setup.ports = ports;
    }

    /// Takes over what was written to `store`, which is of the same program; `now`: ns. Counters and meters of what is
    /// the same stay as they are.
    pub fn sync(&mut self, store: &Store, now: u64) {
        self.interpreter.now = now;
        for (index, info) in store.program.tables.iter().enumerate() {
            let entries = store.entries(TableId(index), now).unwrap_or_default().into_iter();
            let entries = entries
                .map(|view| (view.entry.key, actions(store, info.profile, &view.entry.action), view.entry.meter))
                .collect();
            let table = self.interpreter.tables.entry(info.name.clone()).or_default();
            table.replace(entries, now);
            table.default = store.default_action(TableId(index)).unwrap_or_default();
            table.missed.configure(store.default_meter(TableId(index)).unwrap_or_default(), now);
        }
        for (array, info) in store.program.meters.iter().enumerate() {
            let configs = store.meters(array, 0..info.size).unwrap_or_default();
            configs
                .into_iter()
                .enumerate()
                .for_each(|(index, config)| self.interpreter.set_meter(array, index, config));
        }
        for (members, name) in self.interpreter.value_sets.iter_mut().zip(&self.interpreter.program.value_sets) {
            let set = store.program.value_sets.iter().position(|set| set.name == *name);
            *members = set.and_then(|set| store.value_set(ValueSetId(set)).ok()).unwrap_or_default();
        }
        for (digest, enabled) in self.digests.iter_mut().enumerate() {
            *enabled = store.digest_config(digest).is_ok_and(|config| config.is_some());
        }
        self.groups = store.groups().clone();
        self.sessions = store.sessions().clone();
    }

    /// Cells in order.
    pub fn register(&self, register: RegisterId) -> Vec<Value> {
        let cells = (0..).map_while(|index| self.interpreter.registers.get(register.0, index));
        cells.map(|cell| cell.magnitude().into()).collect()
    }

    /// Cells in order.
    pub fn counter(&self, counter: CounterId) -> &[CounterValue] {
        &self.interpreter.counters[counter.0]
    }

    /// `None`: there is no such entry. Without a key: of the default entry.
    pub fn direct_counter(&self, table: &str, key: Option<&EntryKey>) -> Option<CounterValue> {
        let table = self.interpreter.tables.get(table)?;
        let direct = match key {
            Some(key) => table.entries.iter().find(|entry| entry.key == *key).map(|entry| &entry.direct),
            None => Some(&table.missed),
        };
        direct.map(|direct| direct.counter)
    }

    /// Keeps the story of every packet from now on.
    pub fn start_trace(&mut self) {
        self.interpreter.trace = Some(Vec::new());
    }

    /// Takes the events since the last call.
    pub fn take_trace(&mut self) -> Vec<Event> {
        self.interpreter.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A frame that a port received, and everything that comes of it. `now`: ns.
    pub fn receive(&mut self, port: PortNumber, frame: &[u8], now: u64) -> Vec<Output> {
        self.interpreter.now = now;
        self.interpreter.registers.start();
        let mut packet = Packet::new(&self.interpreter.program, frame.to_vec());
        self.interpreter.note(|| Event::Received { port, bytes: frame.len() });
        self.set(&mut packet, "standard_metadata.ingress_port", port.into());
        self.set(&mut packet, "standard_metadata.packet_length", frame.len() as u64);
        self.set(&mut packet, "intrinsic_metadata.ingress_global_timestamp", now / 1000);
        self.ingress(packet);
        for _ in 0..MAX_ROUNDS {
            if let Some(Copy { kind, port, packet }) = self.copies.pop_front() {
                self.interpreter.note(|| Event::Continued { kind, port: Some(port) });
                self.enqueue(port, packet);
            } else if let Some((kind, packet)) = self.returning.pop_front() {
                self.interpreter.note(|| Event::Continued { kind, port: None });
                self.ingress(packet);
            } else {
                break;
            }
        }
        self.copies.clear();
        self.returning.clear();
        std::mem::take(&mut self.outputs)
    }

    fn set(&self, packet: &mut Packet, name: &str, value: u64) {
        self.interpreter.set_standard(packet, name, value);
    }

    fn get(&self, packet: &Packet, name: &str) -> u64 {
        self.interpreter.standard(packet, name)
    }

    fn tree(&self) -> &Tree {
        &self.interpreter.program
    }

    fn drop_packet(&mut self, why: impl FnOnce() -> String) {
        self.interpreter.note(|| Event::Dropped { why: why() });
    }

    fn ingress(&mut self, mut packet: Packet) {
        let program = self.interpreter.program.clone();
        let ingress_port = self.get(&packet, "standard_metadata.ingress_port");
        self.interpreter.parse(&mut packet);
        let requests = self.interpreter.run(&program.ingress, &mut packet);
        if let Some((session, fields)) = requests.clone {
            self.clone_ingress(&packet, session, fields, ingress_port);
        }
        for digest in requests.digests {
            self.digest(digest, &packet);
        }
        if let Some(fields) = requests.resubmit {
            self.interpreter.note(|| Event::Resubmitted);
            let mut again = Packet::new(&program, packet.frame.clone());
            again.ingress_length = packet.ingress_length;
            self.return_to_ingress(&packet, again, fields, instance::RESUBMITTED);
            return;
        }
        let group = self.get(&packet, "intrinsic_metadata.mcast_grp") as u32;
        if group != 0 {
            self.set(&mut packet, "standard_metadata.instance_type", instance::REPLICATION);
            let replicas = self.groups.get(&group).cloned().unwrap_or_default();
            let ports = replicas.iter().map(|replica| replica.port).collect();
            self.interpreter.note(|| Event::Multicast { group, ports });
            if replicas.is_empty() {
                self.drop_packet(|| format!("multicast group {group} does not exist or has no port"));
            }
            self.replicate("multicast", &replicas, &packet);
            return;
        }
        let port = self.get(&packet, "standard_metadata.egress_spec");
        if port == DROP_PORT {
            self.drop_packet(|| {
                format!("egress_spec is {DROP_PORT} at the end of ingress, set by {}", packet.chosen_by)
            });
            return;
        }
        self.set(&mut packet, "standard_metadata.instance_type", instance::NORMAL);
        self.enqueue(port as PortNumber, packet);
    }

    /// Sends a packet to a port, through egress.
    fn enqueue(&mut self, port: PortNumber, mut packet: Packet) {
        let mut queue = self.get(&packet, "intrinsic_metadata.priority");
        let lane = self.get(&packet, document::LANE);
        if queue >= self.setup.queues as u64 {
            let queues = self.setup.queues;
            self.drop_packet(|| format!("queue {queue} of port {port} does not exist: there are {queues}"));
            return;
        }
        if queue == 0 && lane > LANES {
            self.drop_packet(|| format!("lane {lane} of port {port} does not exist: there are {LANES}"));
            return;
        }
        if queue == 0 && lane > 0 {
            queue = LAST_QUEUE + lane;
        }
        self.interpreter.note(|| Event::Queued { port, queue });
        let now = self.interpreter.now;
        let length = packet.length(self.tree());
        for (name, value) in [
            ("queueing_metadata.enq_timestamp", now / 1000),
            ("queueing_metadata.enq_qdepth", 0),
            ("queueing_metadata.deq_timedelta", 0),
            ("queueing_metadata.deq_qdepth", 0),
            ("queueing_metadata.qid", queue),
            ("standard_metadata.egress_port", port.into()),
            ("intrinsic_metadata.egress_global_timestamp", now / 1000),
            // Any port but the drop port.
            ("standard_metadata.egress_spec", DROP_PORT + 1),
            ("standard_metadata.packet_length", length),
        ] {
            self.set(&mut packet, name, value);
        }
        let program = self.interpreter.program.clone();
        let requests = self.interpreter.run(&program.egress, &mut packet);
        if let Some((session, fields)) = requests.clone {
            self.clone_egress(&packet, session, fields);
        }
        if self.get(&packet, "standard_metadata.egress_spec") == DROP_PORT {
            self.drop_packet(|| {
                format!("egress_spec is {DROP_PORT} at the end of egress, set by {}", packet.chosen_by)
            });
            return;
        }
        let frame = self.interpreter.deparse(&mut packet);
        if let Some(fields) = requests.recirculate {
            self.interpreter.note(|| Event::Recirculated);
            let again = Packet::new(&program, frame);
            self.return_to_ingress(&packet, again, fields, instance::RECIRCULATED);
            return;
        }
        let bytes = frame.len();
        if self.setup.cpu_port == Some(port) {
            self.interpreter.note(|| Event::PacketIn { bytes });
            self.outputs.push(Output::PacketIn { frame });
        } else if !self.setup.ports.contains(&port) {
            // Egress has run: it may have cloned or recirculated the packet.
            self.drop_packet(|| match packet.chosen_by.as_str() {
                "" => format!("port {port} does not exist, and nothing has set another egress port"),
                who => format!("port {port} does not exist, set by {who}"),
            });
        } else {
            self.interpreter.note(|| Event::Sent { port, bytes });
            self.outputs.push(Output::Frame { port, frame });
        }
    }

    fn replicate(&mut self, kind: &'static str, replicas: &[Replica], packet: &Packet) {
        for replica in replicas {
            let mut packet = packet.clone();
            self.set(&mut packet, "intrinsic_metadata.egress_rid", replica.rid.into());
            self.copies.push_back(Copy { kind, port: replica.port, packet });
        }
    }

    /// The packet as it came, parsed again, with the listed fields of what became of it.
    fn clone_ingress(&mut self, packet: &Packet, session: u32, fields: usize, ingress_port: u64) {
        let Some(config) = self.session(session) else { return };
        let mut copy = Packet::new(self.tree(), packet.frame.clone());
        copy.ingress_length = packet.ingress_length;
        self.set(&mut copy, "standard_metadata.ingress_port", ingress_port);
        // Told already.
        let trace = self.interpreter.trace.take();
        self.interpreter.parse(&mut copy);
        self.interpreter.trace = trace;
        self.send_clone(&config, packet, copy, fields, instance::INGRESS_CLONE);
    }

    /// The packet as egress leaves it.
    fn clone_egress(&mut self, packet: &Packet, session: u32, fields: usize) {
        let Some(config) = self.session(session) else { return };
        self.send_clone(&config, packet, packet.clone(), fields, instance::EGRESS_CLONE);
    }

    fn session(&mut self, session: u32) -> Option<CloneSession> {
        let config = self.sessions.get(&session).cloned();
        let ports = config.iter().flat_map(|config| &config.replicas).map(|replica| replica.port).collect();
        self.interpreter.note(|| Event::ClonedTo { session, ports });
        config
    }

    /// Metadata start anew, but for the listed fields and the ingress port.
    fn send_clone(&mut self, config: &CloneSession, from: &Packet, mut copy: Packet, fields: usize, kind: u64) {
        let fresh = Phv::new(self.tree());
        let metadata = self.tree().headers.iter().map(|header| header.metadata);
        for ((to, from), metadata) in copy.phv.headers.iter_mut().zip(fresh.headers).zip(metadata) {
            if metadata {
                *to = from;
            }
        }
        let ingress_port = self.get(from, "standard_metadata.ingress_port");
        self.copy_fields(fields, from, &mut copy);
        self.set(&mut copy, "standard_metadata.ingress_port", ingress_port);
        self.set(&mut copy, "standard_metadata.instance_type", kind);
        if config.class_of_service > 0 {
            self.set(&mut copy, "intrinsic_metadata.priority", config.class_of_service.into());
        }
        // The original's truncation is not the clone's.
        let kept = Some(config.packet_length_bytes).filter(|bytes| *bytes > 0);
        copy.truncate = kept.unwrap_or(u32::MAX).into();
        self.replicate("cloned", &config.replicas, &copy);
    }

    /// Returns a packet to ingress with nothing but the listed fields of what became of it.
    fn return_to_ingress(&mut self, from: &Packet, mut again: Packet, fields: usize, kind: u64) {
        self.copy_fields(fields, from, &mut again);
        let ingress_port = self.get(from, "standard_metadata.ingress_port");
        self.set(&mut again, "standard_metadata.ingress_port", ingress_port);
        self.set(&mut again, "standard_metadata.instance_type", kind);
        let length = again.frame.len() as u64;
        self.set(&mut again, "standard_metadata.packet_length", length);
        self.set(&mut again, "intrinsic_metadata.ingress_global_timestamp", self.interpreter.now / 1000);
        let name = if kind == instance::RESUBMITTED { "resubmitted" } else { "recirculated" };
        self.returning.push_back((name, again));
    }

    fn copy_fields(&self, list: usize, from: &Packet, to: &mut Packet) {
        for field in &self.tree().field_lists[list].fields {
            let scope = interpreter::scope(self.tree(), from, &[]);
            if let (Some(header), Part::Field(part)) = (scope.header(&field.header), field.part) {
                to.phv.set(self.tree(), header, part, &scope.field(field));
            }
        }
    }

    fn digest(&mut self, digest: usize, packet: &Packet) {
        let program = self.interpreter.program.clone();
        let scope = interpreter::scope(&program, packet, &[]);
        let mut values = Vec::new();
        let mut shown = Vec::new();
        for field in &program.digests[digest].fields {
            let Some(header) = scope.header(&field.header) else { continue };
            let width = packet.phv.width(&program, header, field.part);
            let value = fit(&scope.field(field), width, false);
            shown.push((program.field_name(header, field.part), show(&value, width)));
            values.push(value.magnitude().into());
        }
        let sent = self.digests[digest];
        self.interpreter.note(|| Event::Digest { name: program.digests[digest].name.clone(), values: shown, sent });
        if sent {
            self.outputs.push(Output::Digest { digest: DigestId(digest), values });
        }
    }
}

/// Returns the actions of an entry: one, or those of its group, each as often as its weight says. All ports are up.
fn actions(store: &Store, profile: Option<ProfileId>, action: &EntryAction) -> Vec<ActionCall> {
    let profile = profile.and_then(|profile| store.profile(profile).ok());
    let member = |id: u32| {
        let mut members = profile.iter().flat_map(|profile| profile.members());
        members.find(|(member, _)| *member == id).map(|(_, call)| call.clone())
    };
    match action {
        EntryAction::Call(call) => vec![call.clone()],
        EntryAction::Member(id) => member(*id).into_iter().collect(),
        EntryAction::Group(id) => {
            let group = profile.iter().flat_map(|profile| profile.groups()).find(|(group, _)| group == id);
            let members = group.into_iter().flat_map(|(_, group)| &group.members);
            members.filter_map(|m| Some(repeat_n(member(m.member)?, m.weight as usize))).flatten().collect()
        }
        EntryAction::OneShot(calls) => {
            calls.iter().flat_map(|call| repeat_n(call.call.clone(), call.weight as usize)).collect()
        }
        EntryAction::Same => Vec::new(),
    }
}
