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

mod replication;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::dataplane_ops::{Change, CloneSession, Digest, Outbox, PacketIn, Replica};
use crate::digest::DigestFilter;
use crate::drops::DropCells;
use crate::link::{Lane, Link, LinkConfig, QUEUES, place};
use crate::machine::Machine;
use crate::port::{PortCells, PortNumber, count};
use crate::program::{DigestId, Value};
use crate::state::DROP_PORT;
use crate::state::frame::{Packet, PacketState, Pool};
use crate::tap::Tap;
use replication::{MAX_PENDING, PENDING_BUDGET, instance, park};

/// Packets in flight beside those that links hold: more than may wait here, so that there is always memory to receive.
pub const MIN_PACKETS: usize = MAX_PENDING + 4096;

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

    /// Packets that its link may hold, and does where it could hold more before.
    fn max_in_flight(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.config().max_in_flight().max(link.in_flight()))
    }
}

pub struct Switch {
    pub ports: Vec<Port>,
    pub pool: Pool,
    pub drops: Arc<DropCells>,
    machine: Option<Box<Machine>>,
    /// Index into `ports` by number.
    port_index: Vec<Option<usize>>,
    /// Indices of ports whose output is not empty.
    sending: Vec<usize>,
    /// Time at which the first link has something to do (ns); [`u64::MAX`]: none has.
    due: u64,
    cpu_port: Option<PortNumber>,
    queues: usize,
    groups: HashMap<u32, Vec<Replica>>,
    sessions: HashMap<u32, CloneSession>,
    digests: Vec<Option<DigestFilter>>,
    /// Copies, with their PHV, on their way to a port.
    copies: VecDeque<(PortNumber, Box<Packet>)>,
    /// Packets, with their PHV, on their way to ingress again.
    returning: VecDeque<Box<Packet>>,
    /// Number of them and of copies that may go a step further in this turn.
    budget: usize,
    outbox: Outbox,
    seed: u64,
    saved_phv: Vec<u64>,
    /// Clients that trace, of this program.
    taps: Vec<Tap>,
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
        let mut switch = Switch {
            port_index: Vec::new(),
            sending: Vec::with_capacity(ports.len()),
            due: 0,
            ports,
            pool,
            drops: Arc::default(),
            machine: None,
            cpu_port,
            queues: queues.min(QUEUES),
            groups: HashMap::new(),
            sessions: HashMap::new(),
            digests: Vec::new(),
            copies: VecDeque::new(),
            returning: VecDeque::new(),
            budget: PENDING_BUDGET,
            outbox,
            seed,
            saved_phv: Vec::new(),
            taps: Vec::new(),
        };
        switch.number_ports();
        switch
    }

    fn number_ports(&mut self) {
        self.port_index = vec![None; DROP_PORT as usize + 1];
        for (index, port) in self.ports.iter().enumerate() {
            self.port_index[port.number as usize] = Some(index);
        }
        self.due = 0;
    }

    /// The index of a port in `ports`.
    #[inline]
    pub fn index(&self, number: PortNumber) -> Option<usize> {
        self.port_index.get(number as usize).copied().flatten()
    }

    /// Adds a port, behind the others.
    pub fn add_port(&mut self, port: Port) {
        self.ports.push(port);
        self.number_ports();
        self.set_aside();
    }

    /// Takes a port away, without the packets that it held.
    pub fn remove_port(&mut self, index: usize) -> Port {
        let mut port = self.ports.remove(index);
        let Port { output, link, .. } = &mut port;
        let held = output.drain(..).chain(link.iter_mut().flat_map(|link| link.clear()));
        let dropped = held.map(|packet| self.pool.give(packet)).count();
        count(&self.drops.port_removed, dropped as u64);
        port.cells.queues.iter().for_each(|queue| queue.cleared());
        self.sending.clear();
        self.sending.extend((0..self.ports.len()).filter(|&index| !self.ports[index].output.is_empty()));
        self.number_ports();
        self.set_aside();
        port
    }

    /// Lets as many packets be in flight as links may hold, and those beside.
    fn set_aside(&mut self) {
        self.pool.set_limit(MIN_PACKETS + self.ports.iter().map(Port::max_in_flight).sum::<usize>());
    }

    /// Replaces the program; gives the old one back. Packets of the old one are dropped, as are groups and sessions.
    pub fn commit(&mut self, machine: Box<Machine>) -> Option<Box<Machine>> {
        for port in &mut self.ports {
            if let Some(link) = &mut port.link {
                let dropped = link.clear().map(|packet| self.pool.give(packet)).count();
                count(&self.drops.pipeline_replaced, dropped as u64);
                port.cells.queues.iter().for_each(|queue| queue.cleared());
            }
        }
        count(&self.drops.pipeline_replaced, (self.copies.len() + self.returning.len()) as u64);
        self.copies.drain(..).for_each(|(_, packet)| self.pool.give(packet));
        self.returning.drain(..).for_each(|packet| self.pool.give(packet));
        self.groups.clear();
        self.sessions.clear();
        self.taps.clear();
        self.digests = machine.code.digests.iter().map(|_| None).collect();
        self.machine.replace(machine)
    }

    /// Gives ports other link models. What they hold stays in its order.
    pub fn set_links(&mut self, links: Vec<(PortNumber, LinkConfig)>) {
        for (number, config) in links {
            let Some(port) = self.index(number).map(|index| &mut self.ports[index]) else { continue };
            match &mut port.link {
                Some(link) => link.configure(config),
                None => port.link = Some(Link::new(config, port.seed)),
            }
        }
        self.due = 0;
        self.set_aside();
    }

    /// Returns true if there is a program.
    #[inline]
    pub fn is_loaded(&self) -> bool {
        self.machine.is_some()
    }

    /// Adds a client that traces, whose fields are the running program's.
    pub fn add_tap(&mut self, tap: Tap) {
        self.taps.push(tap);
    }

    /// Returns true if a client traces: [`Switch::tap`] is due before [`Switch::receive`].
    #[inline]
    pub fn is_tapped(&self) -> bool {
        !self.taps.is_empty()
    }

    /// Offers frames that a port has received to the clients that trace. Where headers decide, each frame is parsed for
    /// that, in addition.
    pub fn tap(&mut self, port: PortNumber, packets: &[Box<Packet>], now: u64) {
        self.taps.retain(|tap| !tap.is_closed());
        let Some(machine) = &mut self.machine else { return };
        let parses = self.taps.iter().any(|tap| tap.reads_headers(port));
        for packet in packets.iter().filter(|packet| !packet.frame.is_empty()) {
            if parses {
                machine.start(port, PacketState::received(&packet.frame), now);
                machine.parse(&packet.frame, now);
            }
            self.taps.iter_mut().for_each(|tap| tap.offer(port, packet.frame.bytes(), now, &machine.state.regs));
        }
    }

    /// A frame that a port received.
    #[inline]
    pub fn receive(&mut self, port: PortNumber, mut packet: Box<Packet>, now: u64) {
        let Some(machine) = &mut self.machine else {
            count(&self.drops.no_pipeline, 1);
            self.pool.give(packet);
            return;
        };
        packet.state = PacketState::received(&packet.frame);
        machine.start(port, packet.state, now);
        self.ingress(packet, now);
        // Copies leave before what was received later.
        self.replicas(now);
    }

    /// A frame from the control plane.
    pub fn inject(&mut self, frame: &[u8], now: u64) {
        let (Some(port), Some(mut packet)) = (self.cpu_port, self.pool.take()) else {
            count(&self.drops.no_buffer, 1);
            return;
        };
        if packet.frame.set(frame) {
            if self.is_tapped() {
                self.tap(port, std::slice::from_ref(&packet), now);
            }
            self.receive(port, packet, now);
        } else {
            count(&self.drops.no_headroom, 1);
            self.pool.give(packet);
        }
    }

    /// Moves packets that are due by `now` from the queues onto the wires and from the wires to the outputs.
    pub fn serve(&mut self, now: u64) {
        if now < self.due {
            return;
        }
        self.due = u64::MAX;
        for index in 0..self.ports.len() {
            while let Some(dequeued) = self.ports[index].link.as_mut().and_then(|link| link.dequeue(now)) {
                self.unpark(&dequeued.item);
                let (start, waited) = (dequeued.start, dequeued.start - dequeued.enqueued);
                let queue = dequeued.queue;
                self.ports[index].cells.dequeued(queue, dequeued.bytes as u64, waited);
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
            while let Some(packet) = link.arrived(now) {
                if port.output.is_empty() {
                    self.sending.push(index);
                }
                port.output.push(packet);
            }
            self.due = self.due.min(link.deadline().unwrap_or(u64::MAX));
            port.cells.holds(link.packets(), link.bytes());
        }
    }

    /// Back-pressure of what is behind a port ([`Link::allow`]); false: the port has no link.
    pub fn allow(&mut self, index: usize, packets: u32, now: u64) -> bool {
        let Some(link) = &mut self.ports[index].link else { return false };
        link.allow(now, packets);
        self.due = self.due.min(link.deadline().unwrap_or(u64::MAX));
        true
    }

    /// Returns when [`Switch::serve`] has something to do next (ns).
    #[inline]
    pub fn deadline(&self) -> Option<u64> {
        Some(self.due).filter(|&due| due < u64::MAX)
    }

    /// Takes the packets that are ready to be sent out of the ports, with the port's index.
    pub fn send(&mut self, mut send: impl FnMut(usize, &mut Port)) {
        for index in self.sending.drain(..) {
            let port = &mut self.ports[index];
            send(index, port);
            port.output.drain(..).for_each(|packet| self.pool.give(packet));
        }
    }

    /// Parses and runs ingress. Whatever comes of the packet beside itself only joins those that wait: nothing here
    /// calls back. The registers hold the metadata that the packet starts with.
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
            return;
        }
        let port = state.get(standard.egress_spec);
        if port == DROP_PORT {
            count(&self.drops.ingress, 1);
            self.pool.give(packet);
        } else {
            state.set(standard.instance_type, instance::NORMAL);
            self.enqueue(port as PortNumber, packet, now);
        }
    }

    /// The packet in the registers joins a queue, or runs egress if there is none.
    #[inline]
    fn enqueue(&mut self, number: PortNumber, mut packet: Box<Packet>, now: u64) {
        let index = self.index(number);
        let Some(machine) = &mut self.machine else { return };
        let priority = machine.get(machine.code.standard.priority) as usize;
        let lane = if priority == 0 { machine.get(machine.code.standard.lane) } else { 0 };
        let queue = if lane == 0 { Some(priority).filter(|&queue| queue < self.queues) } else { place(lane) };
        let Some(queue) = queue else {
            count(&self.drops.no_queue, 1);
            self.pool.give(packet);
            return;
        };
        let Machine { code, state, .. } = &mut **machine;
        state.set(code.standard.enq_timestamp, now / 1000);
        if let Some(port) = index.map(|index| &mut self.ports[index])
            && let Some(link) = &mut port.link
        {
            let mut flow = 0;
            if lane != 0 {
                let weight = state.get(code.standard.lane_weight).min(u32::MAX.into()) as u32;
                let rate = state.get(code.standard.lane_rate).min(u32::MAX.into()) as u32;
                link.set_lane(queue, Lane { weight, rate });
                flow = state.get(code.standard.lane_flow) as u32;
            }
            let (bytes, counted) = (state.packet.length, &port.cells.queues[queue]);
            let takes = loop {
                if link.takes(queue, bytes) {
                    break true;
                }
                count(&port.cells.queue_drops, 1);
                let Some(out) = link.push_out(queue, bytes) else { break false };
                port.cells.queues[out.queue].pushed_out(out.bytes as u64);
                self.pool.give(out.item);
            };
            if takes {
                state.set(code.standard.enq_qdepth, link.depth(queue) as u64);
                park(machine, &mut packet);
                link.push(now, queue, flow, bytes, packet);
                counted.enqueued(bytes as u64, link.depth_bytes(queue));
            } else {
                counted.dropped(bytes as u64);
                self.pool.give(packet);
            }
            port.cells.holds(link.packets(), link.bytes());
            self.due = self.due.min(link.deadline().unwrap_or(u64::MAX));
            return;
        }
        state.set(code.standard.enq_qdepth, 0);
        state.set(code.standard.deq_timedelta, 0);
        state.set(code.standard.deq_qdepth, 0);
        state.set(code.standard.qid, queue as u64);
        packet.state = state.packet;
        let Some(packet) = self.egress(number, packet, now) else { return };
        match index {
            Some(index) => {
                let output = &mut self.ports[index].output;
                if output.is_empty() {
                    self.sending.push(index);
                }
                output.push(packet);
            }
            None if self.cpu_port == Some(number) => {
                let packet_ins = &self.outbox.packet_ins;
                let packet_in = || PacketIn { frame: packet.frame.bytes().to_vec() };
                if packet_ins.is_full() || packet_ins.try_send(packet_in()).is_err() {
                    count(&self.drops.packet_in_overflow, 1);
                }
                self.pool.give(packet);
            }
            // Egress has run, as in BMv2: it may have cloned or recirculated the packet.
            None => {
                count(&self.drops.no_port, 1);
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
            count(if dropped { &self.drops.egress } else { &self.drops.no_headroom }, 1);
            self.pool.give(packet);
            return None;
        }
        if let Some(fields) = requests.recirculate {
            machine.state.packet.ingress_length = packet.frame.len() as u32;
            self.return_to_ingress(packet, fields, instance::RECIRCULATED, now);
            return None;
        }
        Some(packet)
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
            let digests = &self.outbox.digests;
            if digests.is_full() || digests.is_closed() {
                // Not remembered as sent: the next packet tries again.
                count(&self.drops.digest_overflow, 1);
                continue;
            }
            let sequence = filter.sent(&values, now);
            // Nobody else sends: there is room. Without a receiver the switch ends.
            let _ = digests.try_send(Digest { digest: DigestId(digest), sequence, values, timestamp_us: now / 1000 });
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
