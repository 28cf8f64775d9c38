// SPDX-License-Identifier: Apache-2.0
//! Entries as they were written, from their rows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::packed::{Packed, Stored};
use crate::dataplane_ops::{ColourCounts, CounterValue};
use crate::key_codec::unpack_field;
use crate::program::{ActionCall, EntryKey, Program, TableId, Value};
use crate::state::profile::GROUP;
use crate::state::table::EntryStats;
use crate::value;
use crate::write_api::{EntryAction, EntryView, TableEntry};

/// The entries of a table, and what is needed to say what they mean.
pub struct Rows<'a> {
    pub program: &'a Program,
    pub table: TableId,
    pub entries: &'a Packed,
}

impl Rows<'_> {
    pub fn key(&self, slot: u32) -> EntryKey {
        let (code, info) = (&self.program.code.tables[self.table.0], &self.program.tables[self.table.0]);
        let fields = code.places.iter().zip(&info.key);
        EntryKey {
            fields: fields.map(|(place, key)| unpack_field(place, key.kind, code, self.entries.key(slot))).collect(),
            priority: self.entries.priority(slot),
        }
    }

    pub fn action(&self, slot: u32) -> EntryAction {
        let info = &self.program.tables[self.table.0];
        let (first, mut words) = (self.entries.action(slot)[0], &self.entries.action(slot)[1..]);
        if info.profile.is_none() {
            let action = info.actions[first as usize];
            let params = self.program.actions[action.0].params.iter().map(|param| {
                let (value, rest) = words.split_at(value::words(param.width));
                words = rest;
                Value::from_words(value)
            });
            return EntryAction::Call(ActionCall { action, params: params.collect() });
        }
        match self.entries.get(slot).and_then(Stored::one_shot) {
            Some(one_shot) => EntryAction::OneShot(one_shot.calls.clone()),
            None if first & GROUP != 0 => EntryAction::Group(first as u32),
            None => EntryAction::Member(first as u32),
        }
    }

    /// An entry as it was written, but for its counter.
    pub fn entry(&self, slot: u32) -> Option<TableEntry> {
        let stored = self.entries.get(slot)?;
        Some(TableEntry {
            table: self.table,
            key: self.key(slot),
            action: self.action(slot),
            meter: stored.meter(),
            counter: None,
            idle_timeout_ns: stored.idle_timeout,
            cookie: stored.cookie().to_vec(),
        })
    }

    /// Returns the entry with its counts and age.
    pub fn view(&self, slot: u32, hits: Option<Hits>, colours: Option<ColourCounts>, now: u64) -> Option<EntryView> {
        let info = &self.program.tables[self.table.0];
        let (mut entry, mut idle_ns) = (self.entry(slot)?, 0);
        if let Some(hits) = hits {
            entry.counter = info.has_counter.then_some(hits.count);
            if info.support_timeout {
                idle_ns = now.saturating_sub(hits.last);
            }
        }
        let is_const = self.entries.get(slot)?.is_const;
        Some(EntryView { entry, colours, idle_ns, is_const })
    }
}

/// Counts of an entry.
#[derive(Clone, Copy)]
pub struct Hits {
    count: CounterValue,
    /// ns since the start of the switch.
    last: u64,
}

impl From<&EntryStats> for Hits {
    fn from(stats: &EntryStats) -> Hits {
        let count = CounterValue { packets: stats.packets.load(Relaxed), bytes: stats.bytes.load(Relaxed) };
        Hits { count, last: stats.last_hit.load(Relaxed) }
    }
}

/// The entries of a table at one time. It is taken quickly, as rows are copied as they stand; what they mean is said
/// entry by entry, when it is asked for.
pub struct Snapshot {
    pub(super) program: Arc<Program>,
    pub(super) table: TableId,
    /// Without its index.
    pub(super) entries: Packed,
    /// By slot; empty where nothing is counted.
    pub(super) hits: Vec<Hits>,
    pub(super) colours: Vec<ColourCounts>,
    pub(super) now: u64,
    pub(super) next: u32,
}

impl Iterator for Snapshot {
    type Item = EntryView;

    fn next(&mut self) -> Option<EntryView> {
        let rows = Rows { program: &self.program, table: self.table, entries: &self.entries };
        while self.next < rows.entries.slots().end {
            let slot = self.next;
            self.next += 1;
            let (hits, colours) = (self.hits.get(slot as usize), self.colours.get(slot as usize));
            let view = rows.view(slot, hits.copied(), colours.copied(), self.now);
            if view.is_some() {
                return view;
            }
        }
        None
    }
}
