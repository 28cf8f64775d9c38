// SPDX-License-Identifier: Apache-2.0
//! Copies of a packet: those on their way to a port (multicast, clones), and packets on their way back
//! to ingress (resubmitted, recirculated). They wait with their PHV for their turn.

use std::collections::VecDeque;

use super::Switch;
use crate::dataplane_ops::{CloneSession, Replica};
use crate::drops::DropCells;
use crate::machine::Machine;
use crate::port::{PortNumber, count};
use crate::state::code::FieldRef;
use crate::state::frame::{Packet, Pool};

/// Values of `instance_type`.
pub(super) mod instance {
    pub const NORMAL: u64 = 0;
    pub const INGRESS_CLONE: u64 = 1;
    pub const EGRESS_CLONE: u64 = 2;
    pub const RECIRCULATED: u64 = 4;
    pub const REPLICATION: u64 = 5;
    pub const RESUBMITTED: u64 = 6;
}

/// Copies and returning packets that wait for their turn, at most.
pub(super) const MAX_PENDING: usize = 8192;
/// Copies that are taken a step further in one turn of the packet thread, whatever has caused them: what a program
/// does to its packets never keeps the next frames waiting for longer.
pub(super) const PENDING_BUDGET: usize = 1024;

impl Switch {
    /// Copies and returning packets wait.
    #[inline]
    pub fn is_pending(&self) -> bool {
        !self.copies.is_empty() || !self.returning.is_empty()
    }

    /// Begins a turn: takes copies and returning packets a step further, each of the latter once, as far as the turn's
    /// budget goes. As in BMv2, copies go before what returns, and that before what is received.
    pub fn pending(&mut self, now: u64) {
        self.budget = PENDING_BUDGET;
        self.replicas(now);
        for _ in 0..self.returning.len().min(self.budget) {
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            if let Some(packet) = self.returning.pop_front() {
                self.unpark(&packet);
                self.ingress(packet, now);
            }
            self.replicas(now);
        }
    }

    /// Sends copies, and what egress makes of them, on their way, as far as the turn's budget goes.
    #[inline]
    pub(super) fn replicas(&mut self, now: u64) {
        while self.budget > 0
            && let Some((port, packet)) = self.copies.pop_front()
        {
            self.budget -= 1;
            self.unpark(&packet);
            self.enqueue(port, packet, now);
        }
    }

    pub(super) fn multicast(&mut self, packet: Box<Packet>, group: u32) {
        let replicas = self.groups.get(&group).map(Vec::as_slice).unwrap_or_default();
        let Some(machine) = &mut self.machine else { return };
        let Some((last, others)) = replicas.split_last() else {
            count(&self.drops.no_multicast_group, 1);
            self.pool.give(packet);
            return;
        };
        if self.copies.len() + self.returning.len() >= MAX_PENDING {
            count(&self.drops.replication_limit, replicas.len() as u64);
            self.pool.give(packet);
            return;
        }
        for replica in others {
            if let Some(copy) = copy(&mut self.pool, &packet, self.copies.len() + self.returning.len(), &self.drops) {
                replicate(machine, *replica, copy, &mut self.copies);
            }
        }
        replicate(machine, *last, packet, &mut self.copies);
    }

    /// The packet as it came, parsed again, with the listed fields of what became of it.
    pub(super) fn clone_ingress(&mut self, packet: &Packet, session: u32, fields: u16, now: u64) {
        let Some(config) = self.sessions.get(&session) else {
            count(&self.drops.no_clone_session, 1);
            return;
        };
        let Some(machine) = &mut self.machine else { return };
        self.saved_phv.clear();
        self.saved_phv.extend_from_slice(machine.phv());
        let saved = machine.state.packet;
        let ingress_port = machine.get(machine.code.standard.ingress_port);

        machine.reset();
        machine.set(machine.code.standard.ingress_port, ingress_port);
        machine.state.packet = packet.state;
        machine.parse(&packet.frame, now);
        prepare_clone(machine, config, fields, &self.saved_phv, instance::INGRESS_CLONE);
        for replica in &config.replicas {
            if let Some(copy) = copy(&mut self.pool, packet, self.copies.len() + self.returning.len(), &self.drops) {
                replicate(machine, *replica, copy, &mut self.copies);
            }
        }
        machine.set_phv(&self.saved_phv);
        machine.state.packet = saved;
    }

    /// The packet as egress leaves it.
    pub(super) fn clone_egress(&mut self, packet: &Packet, session: u32, fields: u16) {
        let Some(config) = self.sessions.get(&session) else {
            count(&self.drops.no_clone_session, 1);
            return;
        };
        let Some(machine) = &mut self.machine else { return };
        self.saved_phv.clear();
        self.saved_phv.extend_from_slice(machine.phv());
        let saved = machine.state.packet;
        prepare_clone(machine, config, fields, &self.saved_phv, instance::EGRESS_CLONE);
        for replica in &config.replicas {
            if let Some(copy) = copy(&mut self.pool, packet, self.copies.len() + self.returning.len(), &self.drops) {
                replicate(machine, *replica, copy, &mut self.copies);
            }
        }
        machine.set_phv(&self.saved_phv);
        machine.state.packet = saved;
    }

    /// Puts the packet in the registers back in front of the parser, with nothing but the listed fields.
    pub(super) fn return_to_ingress(&mut self, mut packet: Box<Packet>, fields: u16, instance_type: u64, now: u64) {
        let Some(machine) = &mut self.machine else { return };
        if self.copies.len() + self.returning.len() >= MAX_PENDING {
            count(&self.drops.replication_limit, 1);
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
        let settings: [(FieldRef, u64); 4] = [
            (standard.ingress_port, ingress_port),
            (standard.instance_type, instance_type),
            (standard.packet_length, length as u64),
            (standard.ingress_global_timestamp, now / 1000),
        ];
        settings.into_iter().for_each(|(place, value)| machine.set(place, value));
        // As in BMv2, a packet begins anew: what was said of its length is forgotten.
        (machine.state.packet.length, machine.state.packet.truncate) = (length, u32::MAX);
        park(machine, &mut packet);
        self.returning.push_back(packet);
    }

    pub(super) fn unpark(&mut self, packet: &Packet) {
        if let Some(machine) = &mut self.machine {
            machine.set_phv(&packet.phv);
            machine.state.packet = packet.state;
        }
    }
}

/// Keeps the registers and the state of the packet with it.
pub(super) fn park(machine: &Machine, packet: &mut Packet) {
    packet.phv.clear();
    packet.phv.extend_from_slice(machine.phv());
    packet.state = machine.state.packet;
}

/// `None`, and counted: there is no room for another copy. `waiting`: copies and returning packets.
fn copy(pool: &mut Pool, packet: &Packet, waiting: usize, drops: &DropCells) -> Option<Box<Packet>> {
    if waiting >= MAX_PENDING {
        count(&drops.replication_limit, 1);
        return None;
    }
    let Some(mut copy) = pool.take() else {
        count(&drops.no_buffer, 1);
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
    if config.class_of_service > 0 {
        machine.set(machine.code.standard.priority, config.class_of_service.into());
    }
    // The original's truncation is not the clone's.
    machine.state.packet.truncate = match config.packet_length_bytes {
        0 => u32::MAX,
        bytes => bytes,
    };
}
