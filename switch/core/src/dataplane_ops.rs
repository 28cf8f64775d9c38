// SPDX-License-Identifier: Apache-2.0
//! Messages between the control plane and the packet thread: changes that cannot fail, and reports.

use std::sync::atomic::Ordering::Relaxed;

use async_channel::Sender;

use crate::machine::Machine;
use crate::port::PortNumber;
use crate::program::{DigestId, Value};
use crate::state::meter::Meter;
use crate::state::select::SetMember;
use crate::state::{ColourCells, State};
pub use crate::value::CounterValue;

/// RFC 2698 two-rate three-colour meter: rates in bytes/s or packets/s, bursts in bytes or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    pub cir: u64,
    pub cburst: u64,
    pub pir: u64,
    pub pburst: u64,
}

impl MeterConfig {
    /// A meter of this configuration that starts at `now` ns.
    pub fn meter(self, now: u64) -> Meter {
        Meter::configured(self.cir, self.cburst, self.pir, self.pburst, now)
    }
}

/// Packets that a meter has coloured green, yellow and red.
pub type ColourCounts = [CounterValue; 3];

/// One copy of a multicast packet; `rid` becomes `egress_rid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    pub port: PortNumber,
    pub rid: u16,
}

/// Destinations of the packets of a clone session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneSession {
    pub replicas: Vec<Replica>,
    /// Queue of the clones; 0: that of their priority.
    pub class_of_service: u8,
    /// Bytes of each clone that are kept; 0: all.
    pub packet_length_bytes: u32,
}

/// P4Runtime DigestEntry.Config, as far as the data plane takes part: it does not send a value again that is not
/// yet acknowledged. Lists are assembled by whoever receives the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestConfig {
    /// ns after which an unacknowledged value may be sent again; 0: nothing is ever suppressed.
    pub ack_timeout_ns: u64,
}

/// A frame that left through the CPU port, as its deparser wrote it (with the packet-in header, if the program has
/// one).
#[derive(Clone, Debug)]
pub struct PacketIn {
    pub frame: Vec<u8>,
}

/// One sample of a digest.
#[derive(Clone, Debug)]
pub struct Digest {
    pub digest: DigestId,
    /// Names the sample in [`AckDigest`](crate::write_api::Update::AckDigest).
    pub sequence: u64,
    /// In the order of [`crate::program::DigestInfo::fields`].
    pub values: Vec<Value>,
    /// µs since the start of the switch.
    pub timestamp_us: u64,
}

/// Bounded channels for the packet thread's reports; what does not fit is dropped and counted.
pub struct Outbox {
    pub packet_ins: Sender<PacketIn>,
    pub digests: Sender<Digest>,
}

/// One change of the packet thread's state: checked already, and with a free slot for what is new.
pub enum Change {
    InsertEntry {
        table: usize,
        slot: u32,
        /// See [`crate::state::table`].
        row: Box<[u64]>,
        priority: i32,
    },
    /// Action index and parameters.
    ModifyEntry {
        table: usize,
        slot: u32,
        action: Box<[u64]>,
    },
    RemoveEntry {
        table: usize,
        slot: u32,
    },
    SetDefault {
        table: usize,
        action: Option<Box<[u64]>>,
    },
    SetEntryCounter {
        table: usize,
        slot: u32,
        value: CounterValue,
    },
    SetEntryMeter {
        table: usize,
        slot: u32,
        config: Option<MeterConfig>,
    },
    /// Sets the counts of a direct meter.
    SetEntryColours {
        table: usize,
        slot: u32,
        value: ColourCounts,
    },
    SetCounter {
        counter: usize,
        index: usize,
        value: CounterValue,
    },
    SetMeter {
        meter: usize,
        index: usize,
        config: Option<MeterConfig>,
    },
    SetColours {
        meter: usize,
        index: usize,
        value: ColourCounts,
    },
    SetRegister {
        register: usize,
        index: usize,
        value: Value,
    },
    /// `action`: index among the profile's actions and parameters.
    SetMember {
        profile: usize,
        slot: u32,
        action: Box<[u64]>,
    },
    /// Slots of members, each as often as its weight says.
    SetGroup {
        profile: usize,
        slot: u32,
        members: Box<[u32]>,
    },
    SetValueSet {
        set: usize,
        members: Vec<SetMember>,
    },
    SetMulticastGroup {
        group: u32,
        replicas: Option<Vec<Replica>>,
    },
    SetCloneSession {
        session: u32,
        config: Option<CloneSession>,
    },
    SetDigest {
        digest: usize,
        config: Option<DigestConfig>,
    },
    AckDigest {
        digest: usize,
        sequences: Vec<u64>,
    },
}

impl Change {
    /// Part of the same update as the change before it, so that no packet comes between the two.
    fn continues(&self, before: &Change) -> bool {
        match (before.entry(), self.entry()) {
            (Some(before), Some(own)) => {
                let is_beside = matches!(
                    self,
                    Change::SetEntryMeter { .. } | Change::SetEntryCounter { .. } | Change::SetEntryColours { .. }
                );
                before == own && is_beside
            }
            _ => match (before, self) {
                // Replicas, and then who takes their place.
                (Change::SetMulticastGroup { group, .. }, Change::SetMulticastGroup { group: own, .. }) => group == own,
                (Change::SetCloneSession { session, .. }, Change::SetCloneSession { session: own, .. }) => {
                    session == own
                }
                _ => false,
            },
        }
    }

    /// The entry that it is about: its table and slot.
    fn entry(&self) -> Option<(usize, u32)> {
        match *self {
            Change::InsertEntry { table, slot, .. }
            | Change::ModifyEntry { table, slot, .. }
            | Change::RemoveEntry { table, slot }
            | Change::SetEntryCounter { table, slot, .. }
            | Change::SetEntryMeter { table, slot, .. }
            | Change::SetEntryColours { table, slot, .. } => Some((table, slot)),
            _ => None,
        }
    }

    /// Returns true if it affects packets alone: nothing that the control plane reads comes from what it changes.
    pub fn is_for_packets_only(&self) -> bool {
        matches!(
            self,
            Change::ModifyEntry { .. }
                | Change::SetDefault { .. }
                | Change::SetMember { .. }
                | Change::SetGroup { .. }
                | Change::SetValueSet { .. }
                | Change::SetMulticastGroup { .. }
                | Change::SetCloneSession { .. }
        )
    }

    /// Makes the change in the state that the program runs on; false: it is not about that. What is not needed any
    /// more is left in it, so that it can be freed elsewhere.
    pub fn apply(&mut self, state: &mut State, now: u64) -> bool {
        let meter = |config: Option<MeterConfig>| config.map(|config| Box::new(config.meter(now)));
        match *self {
            Change::InsertEntry { table, slot, ref row, priority } => {
                if let Some(stats) = state.shared.entries[table].get(slot as usize) {
                    stats.last_hit.store(now, Relaxed);
                }
                if let Some(colours) = state.shared.entry_colours[table].get(slot as usize) {
                    set_colours(colours, ColourCounts::default());
                }
                state.tables[table].insert(slot, row, priority);
            }
            Change::ModifyEntry { table, slot, ref action } => state.tables[table].modify(slot, action),
            Change::RemoveEntry { table, slot } => state.tables[table].remove(slot),
            Change::SetDefault { table, ref mut action } => state.tables[table].swap_default(action),
            Change::SetEntryCounter { table, slot, value } => {
                let stats = &state.shared.entries[table][slot as usize];
                stats.packets.store(value.packets, Relaxed);
                stats.bytes.store(value.bytes, Relaxed);
            }
            Change::SetEntryMeter { table, slot, config } => {
                state.tables[table].meters[slot as usize] = meter(config);
            }
            Change::SetEntryColours { table, slot, value } => {
                set_colours(&state.shared.entry_colours[table][slot as usize], value);
            }
            Change::SetCounter { counter, index, value } => state.shared.counters[counter][index].set(value),
            Change::SetColours { meter, index, value } => set_colours(&state.shared.colours[meter][index], value),
            Change::SetMeter { meter: array, index, config } => state.meters[array][index] = meter(config),
            Change::SetRegister { register, index, ref value } => {
                state.shared.registers[register].write(index, value.words());
            }
            Change::SetMember { profile, slot, ref mut action } => state.profiles[profile].swap_member(slot, action),
            Change::SetGroup { profile, slot, ref mut members } => state.profiles[profile].swap_group(slot, members),
            Change::SetValueSet { set, ref mut members } => std::mem::swap(&mut state.value_sets[set], members),
            Change::SetMulticastGroup { .. }
            | Change::SetCloneSession { .. }
            | Change::SetDigest { .. }
            | Change::AckDigest { .. } => return false,
        }
        true
    }
}

impl Machine {
    /// Makes a change in its state; false: it is not about that.
    pub fn apply(&mut self, change: &mut Change, now: u64) -> bool {
        change.apply(&mut self.state, now)
    }
}

/// Returns how many changes to apply: at least `number`, and as many more as belong to the last one's update.
pub fn whole(changes: &[Change], number: usize) -> usize {
    let more = changes.windows(2).skip(number.saturating_sub(1)).take_while(|pair| pair[1].continues(&pair[0]));
    if number == 0 { 0 } else { number + more.count() }
}

fn set_colours(cells: &ColourCells, value: ColourCounts) {
    cells.iter().zip(value).for_each(|(cell, value)| cell.set(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_whole_wherever_a_turn_ends() {
        let entry = |slot| Change::InsertEntry { table: 0, slot, row: Box::default(), priority: 0 };
        let meter = |slot| Change::SetEntryMeter { table: 0, slot, config: None };
        let counter = |slot| Change::SetEntryCounter { table: 0, slot, value: CounterValue::default() };
        let group = |group| Change::SetMulticastGroup { group, replicas: None };
        let changes = [entry(1), meter(1), counter(1), entry(2), meter(3), group(7), group(7), group(8), entry(8)];
        let ends: Vec<usize> = (0..=changes.len()).map(|number| whole(&changes, number)).collect();
        assert_eq!(ends, [0, 3, 3, 3, 4, 5, 7, 7, 8, 9]);
    }
}
