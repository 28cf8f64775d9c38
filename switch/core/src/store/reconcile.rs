// SPDX-License-Identifier: Apache-2.0
//! Reconciliation: takes over what was written under one program by another: everything is known by its name, and what
//! does not fit the new program any more is refused.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Result, Store};
use crate::dataplane_ops::Change;
use crate::program::{ActionCall, ActionId, DigestId, MeterId, ProfileId, Program, TableId, ValueSetId};
use crate::state::table::EntryStats;
use crate::state::{ColourCells, Shared};
use crate::write_api::{EntryAction, TableEntry, Update, UpdateError};

/// Counts of entries that move to other slots when the packet thread changes programs.
pub struct MovedCounts {
    from: Arc<[EntryStats]>,
    to: Arc<[EntryStats]>,
    from_colours: Arc<[ColourCells]>,
    to_colours: Arc<[ColourCells]>,
    slots: Vec<(u32, u32)>,
}

impl MovedCounts {
    /// Copies the counts; to be called by the packet thread, which alone counts.
    pub fn copy(&self) {
        for &(from, to) in &self.slots {
            if let (Some(from), Some(to)) = (self.from.get(from as usize), self.to.get(to as usize)) {
                to.packets.store(from.packets.load(Relaxed), Relaxed);
                to.bytes.store(from.bytes.load(Relaxed), Relaxed);
                to.last_hit.store(from.last_hit.load(Relaxed), Relaxed);
            }
            if let (Some(from), Some(to)) = (self.from_colours.get(from as usize), self.to_colours.get(to as usize)) {
                from.iter().zip(to).for_each(|(from, to)| to.set(from.value()));
            }
        }
    }
}

fn lost<T>(what: String) -> Result<T> {
    Err(UpdateError::InvalidArgument(format!("{what}, so that what was written to it would be lost")))
}

/// Returns the index of the thing of that name.
fn named<T>(things: &[T], name: impl Fn(&T) -> &str, wanted: &str) -> Option<usize> {
    things.iter().position(|thing| name(thing) == wanted)
}

/// The cells of counters, meters' colours and registers that both programs have are the same: nothing that is counted
/// meanwhile is lost.
pub fn share(old: &Program, counted: &Shared, program: &Program, shared: &mut Shared) {
    for (cells, info) in shared.counters.iter_mut().zip(&program.counters) {
        if let Some(at) = named(&old.counters, |c| &c.name, &info.name)
            && old.counters[at].size == info.size
        {
            *cells = counted.counters[at].clone();
        }
    }
    for (cells, info) in shared.colours.iter_mut().zip(&program.meters) {
        if let Some(at) = named(&old.meters, |m| &m.name, &info.name)
            && (old.meters[at].size, old.meters[at].unit) == (info.size, info.unit)
        {
            *cells = counted.colours[at].clone();
        }
    }
    for (cells, info) in shared.registers.iter_mut().zip(&program.registers) {
        if let Some(at) = named(&old.registers, |r| &r.name, &info.name)
            && (old.registers[at].size, old.registers[at].width) == (info.size, info.width)
        {
            *cells = counted.registers[at].clone();
        }
    }
}

impl Store {
    /// Takes over what was written to `old`.
    pub fn reconcile(&mut self, old: &Store, now: u64, changes: &mut Vec<Change>) -> Result<Vec<MovedCounts>> {
        for at in 0..old.program.profiles.len() {
            self.reconcile_profile(old, at, now, changes)?;
        }
        for (at, info) in old.program.value_sets.iter().enumerate() {
            let members = old.value_set(ValueSetId(at))?;
            match named(&self.program.value_sets, |set| &set.name, &info.name) {
                Some(set) => self.update(Update::SetValueSet { set: ValueSetId(set), members }, now, changes)?,
                None if members.is_empty() => {}
                None => return lost(format!("value set `{}` is gone", info.name)),
            }
        }
        let mut moved_counts = Vec::new();
        for table in 0..old.program.tables.len() {
            moved_counts.extend(self.reconcile_table(old, TableId(table), now, changes)?);
        }
        for (at, info) in old.program.meters.iter().enumerate() {
            let place = named(&self.program.meters, |meter| &meter.name, &info.name);
            for (index, config) in old.meters(at, 0..info.size)?.into_iter().enumerate() {
                match (place, config) {
                    (_, None) => {}
                    (Some(meter), config) if self.program.meters[meter].unit == info.unit => {
                        self.update(Update::SetMeter { meter: MeterId(meter), index, config }, now, changes)?;
                    }
                    _ => return lost(format!("meter `{}` is gone or has another unit", info.name)),
                }
            }
        }
        let program = self.program.clone();
        for (at, info) in program.digests.iter().enumerate() {
            if let Some(before) = named(&old.program.digests, |digest| &digest.name, &info.name) {
                let config = old.digest_config(before)?;
                self.update(Update::SetDigest { digest: DigestId(at), config }, now, changes)?;
            }
        }
        for (&group, replicas) in old.groups() {
            self.update(Update::InsertMulticastGroup { group, replicas: replicas.clone() }, now, changes)?;
        }
        for (&session, config) in old.sessions() {
            self.update(Update::InsertCloneSession { session, config: config.clone() }, now, changes)?;
        }
        for (&of, backups) in old.backups() {
            self.update(Update::SetBackups { of, backups: backups.clone() }, now, changes)?;
        }
        Ok(moved_counts)
    }

    fn reconcile_profile(&mut self, old: &Store, at: usize, now: u64, changes: &mut Vec<Change>) -> Result<()> {
        let before = old.profile(ProfileId(at))?;
        let name = &old.program.profiles[at].name;
        let Some(to) = named(&self.program.profiles, |profile| &profile.name, name) else {
            return if before.has_members() { lost(format!("action profile `{name}` is gone")) } else { Ok(()) };
        };
        let (profile, program) = (ProfileId(to), self.program.clone());
        for (member, call) in before.members() {
            let action = translated(old, &program, &program.profiles[to].actions, name, call)?;
            self.update(Update::InsertMember { profile, member, action }, now, changes)?;
        }
        for (group, value) in before.groups() {
            self.update(Update::InsertGroup { profile, group, value: value.clone() }, now, changes)?;
        }
        Ok(())
    }

    fn reconcile_table(
        &mut self,
        old: &Store,
        from: TableId,
        now: u64,
        changes: &mut Vec<Change>,
    ) -> Result<Option<MovedCounts>> {
        let info = &old.program.tables[from.0];
        let name = &info.name;
        let program = self.program.clone();
        let entries = |store: &Store, table: TableId, is_const: bool| {
            let entries = &store.tables[table.0].entries;
            let slots = entries.slots().filter(|&slot| entries.get(slot).is_some_and(|s| s.is_const == is_const));
            slots.collect::<Vec<_>>()
        };
        let written = || !entries(old, from, false).is_empty();
        let Some(to) = program.table(name) else {
            return if written() { lost(format!("table `{name}` is gone")) } else { Ok(None) };
        };
        let new = &program.tables[to.0];
        if new.key != info.key {
            return if written() { lost(format!("table `{name}` has another key")) } else { Ok(None) };
        }
        // Deletions of entries that the program starts with were written, too.
        for slot in entries(self, to, false) {
            let key = self.rows(to).key(slot);
            self.update(Update::DeleteEntry { table: to, key }, now, changes)?;
        }
        let mut slots = Vec::new();
        for slot in old.tables[from.0].entries.slots() {
            let Some(stored) = old.tables[from.0].entries.get(slot) else { continue };
            let key = old.rows(from).key(slot);
            if stored.is_const {
                if self.find(to, &key).is_err() {
                    continue;
                }
                if let (Some(config), Some(_)) = (stored.meter(), new.meter) {
                    let (key, config) = (Some(key.clone()), Some(config));
                    self.update(Update::SetDirectMeter { table: to, key, config }, now, changes)?;
                }
            } else {
                let call = |call: &ActionCall| translated(old, &program, &new.actions, name, call);
                // The entry's counts move with it.
                let Some(entry) = old.rows(from).entry(slot) else { continue };
                let mut entry = TableEntry { table: to, ..entry };
                match &mut entry.action {
                    EntryAction::Call(action) => *action = call(action)?,
                    EntryAction::OneShot(calls) => {
                        for weighted in calls {
                            weighted.call = call(&weighted.call)?;
                        }
                    }
                    EntryAction::Member(_) | EntryAction::Group(_) | EntryAction::Same => {}
                }
                self.update(Update::InsertEntry(entry), now, changes)?;
            }
            let at = self.find(to, &key)?;
            if let Some(new) = self.tables[to.0].entries.get_mut(at) {
                new.seen = stored.seen;
            }
            slots.push((slot, at));
        }
        let default = &old.tables[from.0].default;
        if *default != old.program.defaults[from.0]
            && let Some(call) = default
        {
            let action = Some(translated(old, &program, &new.actions, name, call)?);
            self.update(Update::SetDefault { table: to, action }, now, changes)?;
        }
        if let (Some(config), Some(_)) = (old.tables[from.0].default_meter, new.meter) {
            self.update(Update::SetDirectMeter { table: to, key: None, config: Some(config) }, now, changes)?;
        }
        slots.push((info.max_size as u32, new.max_size as u32));
        Ok(Some(MovedCounts {
            from: old.shared.entries[from.0].clone(),
            to: self.shared.entries[to.0].clone(),
            from_colours: old.shared.entry_colours[from.0].clone(),
            to_colours: self.shared.entry_colours[to.0].clone(),
            slots,
        }))
    }
}

/// The action of the same name and parameters among `choices`, those of `of`.
fn translated(old: &Store, program: &Program, choices: &[ActionId], of: &str, call: &ActionCall) -> Result<ActionCall> {
    let before = &old.program.actions[call.action.0];
    let same = |id: &&ActionId| {
        let action = &program.actions[id.0];
        (&action.name, &action.params) == (&before.name, &before.params)
    };
    match choices.iter().find(same) {
        Some(&action) => Ok(ActionCall { action, params: call.params.clone() }),
        None => lost(format!("`{of}` has no action `{}` with these parameters any more", before.name)),
    }
}
