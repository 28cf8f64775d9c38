// SPDX-License-Identifier: Apache-2.0
//! The v1model architecture around a program: what happens to a packet between its ports.
//!
//! ```text
//! receive -> parser -> ingress -+-> queues of the port (link model) -> egress -> deparser -> output
//!                               +-> multicast, clone: copies that take the same way
//!                               +-> resubmit, recirculate: ingress again
//! ```
//!
//! A port without a link model has no queue: its packets run egress at once. Semantics are those of BMv2's
//! simple_switch; beyond it, several digests of one packet are all sent, and copies keep `ingress_port`.
//! Time is an argument (ns since the start of the switch); what P4 sees is in µs.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::change::{Change, CloneSession, Digest, Outbox, PacketIn, Replica};
use crate::digest::DigestFilter;
use crate::link::{Link, LinkConfig, QUEUES};
use crate::machine::code::Place;
use crate::machine::frame::{Packet, PacketState, Pool};
use crate::machine::{DROP_PORT, Machine};
use crate::port::{PortCells, PortNumber, count};
use crate::program::{DigestId, Value};

/// Values of `instance_type`.
mod instance {
    pub const NORMAL: u64 = 0;
    pub const INGRESS_CLONE: u64 = 1;
    pub const EGRESS_CLONE: u64 = 2;
    pub const RECIRCULATED: u64 = 4;
    pub const REPLICATION: u64 = 5;
    pub const RESUBMITTED: u64 = 6;
}

/// Copies and returning packets that wait for their turn, at most.
const MAX_PENDING: usize = 8192;
/// How many of them are handled before the next frame is received.
const PENDING_BUDGET: usize = 1024;

/// Packets in flight beside those that links hold.
pub const MIN_PACKETS: usize = 4096;

/// Packets that left the switch without going through a port. Written by the packet thread alone.
#[derive(Default, Debug)]
pub struct SwitchCells {
    /// As many packets were in flight as memory is set aside for.
    pub no_buffer: AtomicU64,
    /// The egress port is none of the switch's, or the queue none of the port's.
    pub no_port: AtomicU64,
    /// Packet-ins and digests that the control plane did not fetch in time.
    pub not_fetched: AtomicU64,
}

pub struct Port {
    pub number: PortNumber,
    pub cells: Arc<PortCells>,
    /// Frames ready to be sent.
    pub output: Vec<Box<Packet>>,
    link: Option<Link<Box<Packet>>>,
    seed: u64,
}

impl Port {
    pub fn new(number: PortNumber, link: Option<LinkConfig>, seed: u64) -> Port {
        let seed = seed ^ number as u64;
        let link = link.map(|config| Link::new(config, seed));
        Port { number, cells: Arc::default(), output: Vec::new(), link, seed }
    }
}

pub struct Switch {
    pub ports: Vec<Port>,
    pub pool: Pool,
    pub cells: Arc<SwitchCells>,
    machine: Option<Box<Machine>>,
    /// Index into `ports` by number.
    port_index: Vec<Option<usize>>,
    cpu_port: Option<PortNumber>,
    queues: usize,
    groups: HashMap<u32, Vec<Replica>>,
    sessions: HashMap<u32, CloneSession>,
    digests: Vec<Option<DigestFilter>>,
    /// Copies, with their PHV, on their way to a port.
    copies: VecDeque<(PortNumber, Box<Packet>)>,
    /// Packets, with their PHV, on their way to ingress again.
    returning: VecDeque<Box<Packet>>,
    outbox: Outbox,
    seed: u64,
    saved_phv: Vec<u64>,
}

impl Switch {
    /// `queues`: per port; packets with a higher priority are dropped. `seed`: of the digest filters' hashes.
    pub fn new(
        ports: Vec<Port>,
        pool: Pool,
        cpu_port: Option<PortNumber>,
        queues: usize,
        outbox: Outbox,
        seed: u64,
    ) -> Switch {
        let highest = ports.iter().map(|port| port.number as usize).max().unwrap_or(0);
        let mut port_index = vec![None; highest + 1];
        for (index, port) in ports.iter().enumerate() {
            port_index[port.number as usize] = Some(index);
        }
        Switch {
            port_index,
            ports,
            pool,
            cells: Arc::default(),
            machine: None,
            cpu_port,
            queues: queues.min(QUEUES),
            groups: HashMap::new(),
            sessions: HashMap::new(),
            digests: Vec::new(),
            copies: VecDeque::new(),
            returning: VecDeque::new(),
            outbox,
            seed,
            saved_phv: Vec::new(),
        }
    }

    /// Replaces the program; gives the old one back. Packets of the old one are dropped, as are groups and sessions.
    pub fn commit(&mut self, machine: Box<Machine>) -> Option<Box<Machine>> {
        for port in &mut self.ports {
            if let Some(link) = &mut port.link {
                link.clear().for_each(|packet| self.pool.give(packet));
                port.cells.queues.iter().for_each(|queue| queue.cleared());
            }
        }
        self.copies.drain(..).for_each(|(_, packet)| self.pool.give(packet));
        self.returning.drain(..).for_each(|packet| self.pool.give(packet));
        self.groups.clear();
        self.sessions.clear();
        self.digests = machine.code.digests.iter().map(|_| None).collect();
        self.machine.replace(machine)
    }

    /// Gives ports, by index, other link models. What they hold stays in its order.
    pub fn set_links(&mut self, links: Vec<(usize, LinkConfig)>) {
        for (index, config) in links {
            let port = &mut self.ports[index];
            match &mut port.link {
                Some(link) => link.configure(config),
                None => port.link = Some(Link::new(config, port.seed)),
            }
        }
        let in_flight = |port: &Port| port.link.as_ref().map_or(0, |link| link.config().most_in_flight());
        self.pool.set_limit(MIN_PACKETS + self.ports.iter().map(in_flight).sum::<usize>());
    }

    /// There is a program.
    pub fn is_loaded(&self) -> bool {
        self.machine.is_some()
    }

    /// A frame that a port received.
    #[inline]
    pub fn receive(&mut self, port: PortNumber, mut packet: Box<Packet>, now: u64) {
        let Some(machine) = &mut self.machine else {
            self.pool.give(packet);
            return;
        };
        let length = packet.frame.len() as u32;
        let lane = packet.state.lane;
        packet.state = PacketState { payload: 0, length, ingress_length: length, truncate: u32::MAX, lane };
        machine.reset();
        let Machine { code, state, .. } = &mut **machine;
        state.set(code.standard.ingress_port, port as u64);
        state.set(code.standard.packet_length, length as u64);
        state.set(code.standard.ingress_global_timestamp, now / 1000);
        self.ingress(packet, now);
    }

    /// A frame from the control plane.
    pub fn inject(&mut self, frame: &[u8], now: u64) {
        let (Some(port), Some(mut packet)) = (self.cpu_port, self.pool.take()) else {
            count(&self.cells.no_buffer, 1);
            return;
        };
        if packet.frame.set(frame) {
            // All by the same one: they stay in their order.
            packet.state.lane = 0;
            self.receive(port, packet, now);
        } else {
            self.pool.give(packet);
        }
    }

    /// Copies and returning packets wait.
    pub fn is_pending(&self) -> bool {
        !self.copies.is_empty() || !self.returning.is_empty()
    }

    /// Takes a limited number of copies and returning packets one step further.
    pub fn pending(&mut self, now: u64) {
        for _ in 0..PENDING_BUDGET {
            if let Some((port, packet)) = self.copies.pop_front() {
                self.unpark(&packet);
                self.enqueue(port, packet, now);
            } else {
                break;
            }
        }
        for _ in 0..PENDING_BUDGET.min(self.returning.len()) {
            if let Some(packet) = self.returning.pop_front() {
                self.unpark(&packet);
                self.ingress(packet, now);
            }
        }
    }

    /// Moves packets that are due by `now` from the queues onto the wires and from the wires to the outputs.
    pub fn serve(&mut self, now: u64) {
        for index in 0..self.ports.len() {
            while let Some(dequeued) = self.ports[index].link.as_mut().and_then(|link| link.dequeue(now)) {
                self.unpark(&dequeued.item);
                let (start, waited) = (dequeued.start, dequeued.start - dequeued.enqueued);
                let queue = dequeued.queue;
                self.ports[index].cells.queues[queue].dequeued(dequeued.bytes as u64, waited);
                let Some(machine) = &mut self.machine else { continue };
                let Machine { code, state, .. } = &mut **machine;
                state.set(code.standard.deq_timedelta, waited / 1000);
                state.set(code.standard.deq_qdepth, dequeued.depth as u64);
                state.set(code.standard.qid, queue as u64);
                let number = self.ports[index].number;
                if let Some(packet) = self.egress(number, dequeued.item, start)
                    && let Port { link: Some(link), cells, .. } = &mut self.ports[index]
                {
                    cells.queues[queue].sent(packet.frame.len() as u64);
                    if let Some(lost) = link.transmit(packet.frame.len(), packet) {
                        count(&cells.lost, 1);
                        self.pool.give(lost);
                    }
                }
            }
            let port = &mut self.ports[index];
            let Some(link) = &mut port.link else { continue };
            while let Some(mut packet) = link.arrived(now) {
                // All by the same one: the order of the queues is that on the wire.
                packet.state.lane = 0;
                port.output.push(packet);
            }
            port.cells.queue_packets.store(link.packets() as u64, Relaxed);
            port.cells.queue_bytes.store(link.bytes(), Relaxed);
        }
    }

    /// When [`Switch::serve`] has something to do next.
    pub fn deadline(&self) -> Option<u64> {
        self.ports.iter().filter_map(|port| port.link.as_ref()?.deadline()).min()
    }

    /// Parses and runs ingress; the registers hold the metadata that the packet starts with.
    fn ingress(&mut self, packet: Box<Packet>, now: u64) {
        let Some(machine) = &mut self.machine else { return };
        machine.state.packet = packet.state;
        machine.parse(&packet.frame, now);
        machine.state.digests.clear();
        machine.ingress(now);
        let requests = machine.state.requests;
        if let Some((session, fields)) = requests.clone {
            self.clone_ingress(&packet, session, fields, now);
        }
        self.learn(now);
        let Some(machine) = &mut self.machine else { return };
        if let Some(fields) = requests.resubmit {
            self.return_to_ingress(packet, fields, instance::RESUBMITTED, now);
            return;
        }
        let Machine { code, state, .. } = &mut **machine;
        let standard = &code.standard;
        let group = state.get(standard.mcast_grp);
        if group != 0 {
            state.set(standard.instance_type, instance::REPLICATION);
            self.multicast(packet, group as u32);
            self.pending(now);
            return;
        }
        let port = state.get(standard.egress_spec);
        if port == DROP_PORT {
            self.pool.give(packet);
        } else {
            state.set(standard.instance_type, instance::NORMAL);
            self.enqueue(port as PortNumber, packet, now);
        }
        if !self.copies.is_empty() {
            self.pending(now);
        }
    }

    /// The packet in the registers joins a queue, or runs egress if there is none.
    #[inline]
    fn enqueue(&mut self, number: PortNumber, mut packet: Box<Packet>, now: u64) {
        let Some(machine) = &mut self.machine else { return };
        let queue = machine.get(machine.code.standard.priority) as usize;
        let index = self.port_index.get(number as usize).copied().flatten();
        if queue >= self.queues || index.is_none() && self.cpu_port != Some(number) {
            count(&self.cells.no_port, 1);
            self.pool.give(packet);
            return;
        }
        let Machine { code, state, .. } = &mut **machine;
        state.set(code.standard.enq_timestamp, now / 1000);
        if let Some(port) = index.map(|index| &mut self.ports[index])
            && let Some(link) = &mut port.link
        {
            state.set(code.standard.enq_qdepth, link.depth(queue) as u64);
            park(machine, &mut packet);
            let (bytes, counted) = (packet.state.length, &port.cells.queues[queue]);
            match link.enqueue(now, queue, bytes, packet) {
                Ok(()) => counted.enqueued(bytes as u64, link.depth_bytes(queue)),
                Err(packet) => {
                    count(&port.cells.queue_drops, 1);
                    counted.dropped(bytes as u64);
                    self.pool.give(packet);
                }
            }
            return;
        }
        state.set(code.standard.enq_qdepth, 0);
        state.set(code.standard.deq_timedelta, 0);
        state.set(code.standard.deq_qdepth, 0);
        state.set(code.standard.qid, queue as u64);
        packet.state = state.packet;
        let Some(packet) = self.egress(number, packet, now) else { return };
        match index {
            Some(index) => self.ports[index].output.push(packet),
            None => {
                let report = PacketIn { frame: packet.frame.bytes().to_vec() };
                if self.outbox.packet_ins.try_send(report).is_err() {
                    count(&self.cells.not_fetched, 1);
                }
                self.pool.give(packet);
            }
        }
    }

    /// Runs egress and deparser for the packet in the registers; `None`: it was dropped or goes to ingress again.
    fn egress(&mut self, number: PortNumber, mut packet: Box<Packet>, now: u64) -> Option<Box<Packet>> {
        let machine = self.machine.as_mut()?;
        let Machine { code, state, .. } = &mut **machine;
        let standard = &code.standard;
        state.set(standard.egress_port, number as u64);
        state.set(standard.egress_global_timestamp, now / 1000);
        // BMv2: any port but the drop port.
        state.set(standard.egress_spec, DROP_PORT + 1);
        state.set(standard.packet_length, state.packet.length as u64);
        state.requests = Default::default();
        machine.egress(now);
        let requests = machine.state.requests;
        if let Some((session, fields)) = requests.clone {
            self.clone_egress(&packet, session, fields);
        }
        let machine = self.machine.as_mut()?;
        let dropped = machine.get(machine.code.standard.egress_spec) == DROP_PORT;
        if dropped || !machine.deparse(&mut packet.frame, now) {
            self.pool.give(packet);
            return None;
        }
        if let Some(fields) = requests.recirculate {
            let length = packet.frame.len() as u32;
            let state = &mut machine.state.packet;
            (state.length, state.ingress_length, state.truncate) = (length, length, u32::MAX);
            self.return_to_ingress(packet, fields, instance::RECIRCULATED, now);
            return None;
        }
        Some(packet)
    }

    fn multicast(&mut self, packet: Box<Packet>, group: u32) {
        let replicas = self.groups.get(&group).map(Vec::as_slice).unwrap_or_default();
        let Some(machine) = &mut self.machine else { return };
        let Some((last, others)) = replicas.split_last() else {
            self.pool.give(packet);
            return;
        };
        for replica in others {
            if let Some(copy) = copy(&mut self.pool, &packet, self.copies.len(), &self.cells) {
                replicate(machine, *replica, copy, &mut self.copies);
            }
        }
        replicate(machine, *last, packet, &mut self.copies);
    }

    /// The packet as it came, parsed again, with the listed fields of what became of it.
    fn clone_ingress(&mut self, packet: &Packet, session: u32, fields: u16, now: u64) {
        let Some(config) = self.sessions.get(&session) else { return };
        let Some(machine) = &mut self.machine else { return };
        self.saved_phv.clear();
        self.saved_phv.extend_from_slice(machine.phv());
        let saved = machine.state.packet;
        let ingress_port = machine.get(machine.code.standard.ingress_port);

        machine.reset();
        machine.set(machine.code.standard.ingress_port, ingress_port);
        machine.state.packet = PacketState { truncate: u32::MAX, ..packet.state };
        machine.parse(&packet.frame, now);
        prepare_clone(machine, config, fields, &self.saved_phv, instance::INGRESS_CLONE);
        for replica in &config.replicas {
            if let Some(copy) = copy(&mut self.pool, packet, self.copies.len(), &self.cells) {
                replicate(machine, *replica, copy, &mut self.copies);
            }
        }
        machine.set_phv(&self.saved_phv);
        machine.state.packet = saved;
    }

    /// The packet as egress leaves it.
    fn clone_egress(&mut self, packet: &Packet, session: u32, fields: u16) {
        let Some(config) = self.sessions.get(&session) else { return };
        let Some(machine) = &mut self.machine else { return };
        self.saved_phv.clear();
        self.saved_phv.extend_from_slice(machine.phv());
        let saved = machine.state.packet;
        prepare_clone(machine, config, fields, &self.saved_phv, instance::EGRESS_CLONE);
        for replica in &config.replicas {
            if let Some(copy) = copy(&mut self.pool, packet, self.copies.len(), &self.cells) {
                replicate(machine, *replica, copy, &mut self.copies);
            }
        }
        machine.set_phv(&self.saved_phv);
        machine.state.packet = saved;
    }

    /// Puts the packet in the registers back in front of the parser, with nothing but the listed fields.
    fn return_to_ingress(&mut self, mut packet: Box<Packet>, fields: u16, instance_type: u64, now: u64) {
        let Some(machine) = &mut self.machine else { return };
        if self.returning.len() >= MAX_PENDING {
            count(&self.cells.no_buffer, 1);
            self.pool.give(packet);
            return;
        }
        self.saved_phv.clear();
        self.saved_phv.extend_from_slice(machine.phv());
        machine.reset();
        machine.copy_fields(fields, &self.saved_phv);
        let standard = &machine.code.standard;
        let ingress_port = self.saved_phv[standard.ingress_port.reg as usize];
        let length = packet.frame.len() as u32;
        let settings: [(Place, u64); 4] = [
            (standard.ingress_port, ingress_port),
            (standard.instance_type, instance_type),
            (standard.packet_length, length as u64),
            (standard.ingress_global_timestamp, now / 1000),
        ];
        settings.into_iter().for_each(|(place, value)| machine.set(place, value));
        machine.state.packet.length = length;
        park(machine, &mut packet);
        self.returning.push_back(packet);
    }

    fn learn(&mut self, now: u64) {
        let Some(machine) = &mut self.machine else { return };
        machine.state.digests.sort_unstable();
        for digest in machine.state.digests.iter().map(|digest| *digest as usize) {
            let Some(filter) = &mut self.digests[digest] else { continue };
            let values: Vec<Value> = machine.digest_values(digest).collect();
            if !filter.wants(&values, now) {
                continue;
            }
            match self.outbox.digests.try_reserve() {
                Ok(permit) => {
                    let sequence = filter.sent(&values, now);
                    permit.send(Digest { digest: DigestId(digest), sequence, values, timestamp_us: now / 1000 });
                }
                // Not remembered as sent: the next packet tries again.
                Err(_) => count(&self.cells.not_fetched, 1),
            }
        }
    }

    fn unpark(&mut self, packet: &Packet) {
        if let Some(machine) = &mut self.machine {
            machine.set_phv(&packet.phv);
            machine.state.packet = packet.state;
        }
    }

    /// Applies a change between two packets.
    pub fn apply(&mut self, change: &mut Change, now: u64) {
        let Some(machine) = &mut self.machine else { return };
        if change.apply(&mut machine.state, now) {
            return;
        }
        match change {
            Change::SetMulticastGroup { group, replicas } => swap(&mut self.groups, *group, replicas),
            Change::SetCloneSession { session, config } => swap(&mut self.sessions, *session, config),
            Change::SetDigest { digest, config } => {
                self.digests[*digest] = config.map(|c| DigestFilter::new(c.ack_timeout_ns, self.seed));
            }
            Change::AckDigest { digest, sequences } => {
                if let Some(filter) = &mut self.digests[*digest] {
                    filter.acknowledge(sequences);
                }
            }
            _ => {}
        }
    }
}

/// Puts a value into the map, or takes it out; the old one goes into its place.
fn swap<V>(map: &mut HashMap<u32, V>, key: u32, value: &mut Option<V>) {
    *value = match value.take() {
        Some(new) => map.insert(key, new),
        None => map.remove(&key),
    };
}

/// Keeps the registers and the state of the packet with it.
fn park(machine: &Machine, packet: &mut Packet) {
    packet.phv.clear();
    packet.phv.extend_from_slice(machine.phv());
    packet.state = machine.state.packet;
}

/// `None`, and counted: there is no room for another copy.
fn copy(pool: &mut Pool, packet: &Packet, waiting: usize, cells: &SwitchCells) -> Option<Box<Packet>> {
    let copy = if waiting < MAX_PENDING { pool.take() } else { None };
    let Some(mut copy) = copy else {
        count(&cells.no_buffer, 1);
        return None;
    };
    copy.frame.copy_from(&packet.frame);
    Some(copy)
}

/// Sends a copy with the PHV of the registers on its way to a port.
fn replicate(
    machine: &mut Machine,
    replica: Replica,
    mut packet: Box<Packet>,
    copies: &mut VecDeque<(PortNumber, Box<Packet>)>,
) {
    machine.set(machine.code.standard.egress_rid, replica.rid as u64);
    park(machine, &mut packet);
    copies.push_back((replica.port, packet));
}

/// Metadata start anew, but for the listed fields and the ingress port.
fn prepare_clone(machine: &mut Machine, config: &CloneSession, fields: u16, original: &[u64], instance_type: u64) {
    let Machine { code, state, .. } = machine;
    for header in code.headers.iter().filter(|header| header.metadata) {
        state.regs[header.fields.clone()].fill(0);
    }
    let ingress_port = original[code.standard.ingress_port.reg as usize];
    machine.copy_fields(fields, original);
    machine.set(machine.code.standard.ingress_port, ingress_port);
    machine.set(machine.code.standard.instance_type, instance_type);
    if config.packet_length_bytes > 0 {
        machine.state.packet.truncate = config.packet_length_bytes;
    }
}
