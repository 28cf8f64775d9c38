// SPDX-License-Identifier: Apache-2.0
//! Reads of what was written, as it is now: counters and registers are read where the packet thread counts them.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::unpack::{Hits, Snapshot};
use super::{Result, Store, TableStore};
use crate::dataplane_ops::{ColourCounts, CounterValue, DigestConfig, MeterConfig};
use crate::key_codec::no_cells;
use crate::program::{ActionCall, EntryKey, KeyField, TableId, Value, ValueSetId};
use crate::state::{ColourCells, CounterCell};
use crate::write_api::{EntryView, TableEntry, UpdateError};

impl Store {
    pub fn entry(&self, id: TableId, key: &EntryKey, now: u64) -> Result<EntryView> {
        let slot = self.find(id, key)?;
        self.view(id, slot, now).ok_or_else(|| self.no_entry(id))
    }

    /// Returns the count of an entry; without a key: of the default entry, as also the next.
    pub fn direct_counter(&self, id: TableId, key: Option<&EntryKey>) -> Result<CounterValue> {
        self.check_counter(id)?;
        let slot = self.slot(id, key)?;
        let stats = self.shared.entries[id.0].get(slot as usize).ok_or_else(|| self.no_entry(id))?;
        Ok(CounterValue { packets: stats.packets.load(Relaxed), bytes: stats.bytes.load(Relaxed) })
    }

    pub fn direct_colours(&self, id: TableId, key: Option<&EntryKey>) -> Result<ColourCounts> {
        self.check_meter(id)?;
        let slot = self.slot(id, key)?;
        self.colours_at(id, slot).ok_or_else(|| self.no_entry(id))
    }

    fn colours_at(&self, id: TableId, slot: u32) -> Option<ColourCounts> {
        self.shared.entry_colours[id.0].get(slot as usize).map(colour_counts)
    }

    /// The configuration of the default entry's meter.
    pub fn default_meter(&self, id: TableId) -> Result<Option<MeterConfig>> {
        self.check_meter(id)?;
        Ok(self.tables[id.0].default_meter)
    }

    pub fn entries(&self, id: TableId, now: u64) -> Result<Vec<EntryView>> {
        self.table(id)?;
        Ok(self.tables[id.0].entries.slots().filter_map(|slot| self.view(id, slot, now)).collect())
    }

    fn view(&self, id: TableId, slot: u32, now: u64) -> Option<EntryView> {
        let hits = self.shared.entries[id.0].get(slot as usize).map(Hits::from);
        self.rows(id).view(slot, hits, self.colours_at(id, slot), now)
    }

    pub fn snapshot(&self, id: TableId, now: u64) -> Result<Snapshot> {
        self.table(id)?;
        let entries = self.tables[id.0].entries.without_index();
        let slots = entries.slots().len();
        Ok(Snapshot {
            program: self.program.clone(),
            table: id,
            hits: self.shared.entries[id.0].iter().take(slots).map(Hits::from).collect(),
            colours: self.shared.entry_colours[id.0].iter().take(slots).map(colour_counts).collect(),
            entries,
            now,
            next: 0,
        })
    }

    /// Copies what was written, quickly and for reading alone: entries are not found by their keys in the copy.
    pub fn to_read(&self) -> Store {
        let table = |table: &TableStore| TableStore {
            entries: table.entries.without_index(),
            default: table.default.clone(),
            ..*table
        };
        Store {
            program: self.program.clone(),
            shared: self.shared.clone(),
            tables: self.tables.iter().map(table).collect(),
            meters: self.meters.clone(),
            digests: self.digests.clone(),
            profiles: self.profiles.clone(),
            value_sets: self.value_sets.clone(),
            copies: self.copies.clone(),
        }
    }

    /// Entries of a table, and about how many bytes a snapshot of them has.
    pub fn snapshot_size(&self, id: TableId) -> Result<(usize, usize)> {
        let info = self.table(id)?;
        let entries = &self.tables[id.0].entries;
        let has_hits = info.has_counter || info.support_timeout;
        let beside = [(has_hits, size_of::<Hits>()), (info.meter.is_some(), size_of::<ColourCounts>())];
        let beside = beside.into_iter().filter_map(|(has, bytes)| has.then_some(bytes)).sum::<usize>();
        Ok((entries.len(), entries.slots().len() * (entries.bytes_of_one() + beside)))
    }

    pub fn default_action(&self, id: TableId) -> Result<Option<ActionCall>> {
        self.table(id)?;
        Ok(self.tables[id.0].default.clone())
    }

    pub fn counter(&self, counter: usize, index: usize) -> Result<CounterValue> {
        let cell = self.shared.counters.get(counter).and_then(|cells| cells.get(index));
        let cell = cell.ok_or_else(|| no_cells("counter", index..index + 1))?;
        Ok(cell.value())
    }

    pub fn counters(&self, counter: usize, range: Range<usize>) -> Result<Vec<CounterValue>> {
        let cells = self.shared.counters.get(counter).and_then(|cells| cells.get(range.clone()));
        Ok(cells.ok_or_else(|| no_cells("counter", range))?.iter().map(CounterCell::value).collect())
    }

    pub fn meters(&self, meter: usize, range: Range<usize>) -> Result<Vec<Option<MeterConfig>>> {
        let cells = self.meters.get(meter).and_then(|cells| cells.get(range.clone()));
        Ok(cells.ok_or_else(|| no_cells("meter", range))?.to_vec())
    }

    /// Returns the packets that the cells `range` of an indirect meter have coloured.
    pub fn colours(&self, meter: usize, range: Range<usize>) -> Result<Vec<ColourCounts>> {
        let cells = self.shared.colours.get(meter).and_then(|cells| cells.get(range.clone()));
        Ok(cells.ok_or_else(|| no_cells("meter", range))?.iter().map(colour_counts).collect())
    }

    pub fn registers(&self, register: usize, range: Range<usize>) -> Result<Vec<Value>> {
        let array = self.shared.registers.get(register).filter(|array| range.end <= array.cells());
        let array = array.ok_or_else(|| no_cells("register", range.clone()))?;
        Ok(range.map(|index| array.read(index)).collect())
    }

    pub fn digest_config(&self, digest: usize) -> Result<Option<DigestConfig>> {
        self.digests.get(digest).copied().ok_or_else(|| UpdateError::NotFound(format!("digest {digest}")))
    }

    /// Slots of a table among which entries can time out.
    pub fn ageing_slots(&self, table: usize) -> usize {
        let store = &self.tables[table];
        match self.program.tables[table].support_timeout && store.ageing > 0 {
            true => store.entries.slots().len(),
            false => 0,
        }
    }

    /// Entries of the slots `range` of a table that have been idle for their timeout; none is told twice within it.
    pub fn idle(&mut self, table: usize, range: Range<usize>, now: u64) -> Vec<TableEntry> {
        let store = &mut self.tables[table];
        let is_idle = |&slot: &u32| {
            let Some(stored) = store.entries.get_mut(slot).filter(|stored| stored.idle_timeout > 0) else {
                return false;
            };
            let last_hit = self.shared.entries[table][slot as usize].last_hit.load(Relaxed);
            let is_idle = now.saturating_sub(last_hit.max(stored.seen)) >= stored.idle_timeout;
            if is_idle {
                stored.seen = now;
            }
            is_idle
        };
        let idle: Vec<u32> = (range.start as u32..range.end as u32).filter(is_idle).collect();
        idle.into_iter().filter_map(|slot| self.rows(TableId(table)).entry(slot)).collect()
    }

    pub fn value_set(&self, id: ValueSetId) -> Result<Vec<Vec<KeyField>>> {
        self.value_sets.get(id.0).cloned().ok_or_else(|| UpdateError::NotFound(format!("value set {}", id.0)))
    }
}

fn colour_counts(cells: &ColourCells) -> ColourCounts {
    cells.each_ref().map(CounterCell::value)
}
