// SPDX-License-Identifier: Apache-2.0
//! Reading: what was written, and what packets have counted. Nothing here waits for the packet thread.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use apswitch_core::dataplane_ops::{CloneSession, ColourCounts, CounterValue, DigestConfig, MeterConfig, Replica};
use apswitch_core::program::{
    ActionCall, CounterId, DigestId, EntryKey, KeyField, MeterId, ProfileId, RegisterId, TableId, Value, ValueSetId,
};
use apswitch_core::state::register::RegisterArray;
use apswitch_core::state::{ColourCells, CounterCell};
use apswitch_core::store::{Snapshot, Store};
use apswitch_core::write_api::{EntryView, ProfileGroup, Replicated, UpdateError};

use super::{Backups, Dataplane};

impl Dataplane {
    pub fn entry(&self, table: TableId, key: &EntryKey) -> Result<EntryView, UpdateError> {
        self.read(|store| store.entry(table, key, self.inner.clock.now()))
    }

    /// The direct counter of an entry, without the rest of it.
    /// Without a key: of the default entry, as also the next.
    pub fn direct_counter(&self, table: TableId, key: Option<&EntryKey>) -> Result<CounterValue, UpdateError> {
        self.read(|store| store.direct_counter(table, key))
    }

    /// Returns the packets that a direct meter has coloured.
    pub fn direct_colours(&self, table: TableId, key: Option<&EntryKey>) -> Result<ColourCounts, UpdateError> {
        self.read(|store| store.direct_colours(table, key))
    }

    /// The configuration of the meter of the table's default entry.
    pub fn default_meter(&self, table: TableId) -> Result<Option<MeterConfig>, UpdateError> {
        self.read(|store| store.default_meter(table))
    }

    /// All entries of the table, const ones too, in no order.
    pub fn entries(&self, table: TableId) -> Result<Vec<EntryView>, UpdateError> {
        self.read(|store| store.entries(table, self.inner.clock.now()))
    }

    /// Returns a snapshot of a table's entries, which makes each when it is asked for.
    pub fn snapshot(&self, table: TableId) -> Result<Snapshot, UpdateError> {
        self.read(|store| store.snapshot(table, self.inner.clock.now()))
    }

    /// Entries of a table, and about how many bytes a snapshot of them has.
    pub fn snapshot_size(&self, table: TableId) -> Result<(usize, usize), UpdateError> {
        self.read(|store| store.snapshot_size(table))
    }

    /// The default action in effect; `None`: the table has none.
    pub fn default_action(&self, table: TableId) -> Result<Option<ActionCall>, UpdateError> {
        self.read(|store| store.default_action(table))
    }

    /// The cells `range` of an indirect counter.
    pub fn counters(&self, counter: CounterId, range: Range<usize>) -> Result<Vec<CounterValue>, UpdateError> {
        self.read(|store| store.counters(counter.0, range))
    }

    /// The configurations of the cells `range` of an indirect meter.
    pub fn meters(&self, meter: MeterId, range: Range<usize>) -> Result<Vec<Option<MeterConfig>>, UpdateError> {
        self.read(|store| store.meters(meter.0, range))
    }

    /// Returns the packets that the cells `range` of an indirect meter have coloured.
    pub fn colours(&self, meter: MeterId, range: Range<usize>) -> Result<Vec<ColourCounts>, UpdateError> {
        self.read(|store| store.colours(meter.0, range))
    }

    /// All cells of an indirect counter, of a meter's colours or of a register, to be read when it suits; they stay
    /// those of the program that runs now.
    pub fn counter_cells(&self, counter: CounterId) -> Result<Arc<[CounterCell]>, UpdateError> {
        self.read(|store| of(&store.shared.counters, "counter", counter.0))
    }

    pub fn colour_cells(&self, meter: MeterId) -> Result<Arc<[ColourCells]>, UpdateError> {
        self.read(|store| of(&store.shared.colours, "meter", meter.0))
    }

    pub fn register_cells(&self, register: RegisterId) -> Result<Arc<RegisterArray>, UpdateError> {
        self.read(|store| of(&store.shared.registers, "register", register.0))
    }

    pub fn registers(&self, register: RegisterId, range: Range<usize>) -> Result<Vec<Value>, UpdateError> {
        self.read(|store| store.registers(register.0, range))
    }

    pub fn digest_config(&self, digest: DigestId) -> Result<Option<DigestConfig>, UpdateError> {
        self.read(|store| store.digest_config(digest.0))
    }

    /// The members of an action profile, by id.
    pub fn profile_members(&self, profile: ProfileId) -> Result<Vec<(u32, ActionCall)>, UpdateError> {
        self.read(|store| Ok(store.profile(profile)?.members().map(|(id, action)| (id, action.clone())).collect()))
    }

    pub fn profile_member(&self, profile: ProfileId, member: u32) -> Result<ActionCall, UpdateError> {
        self.read(|store| store.profile(profile)?.member(member).cloned())
    }

    /// The groups of an action profile, by id; one-shot groups have none.
    pub fn profile_groups(&self, profile: ProfileId) -> Result<Vec<(u32, ProfileGroup)>, UpdateError> {
        self.read(|store| Ok(store.profile(profile)?.groups().map(|(id, group)| (id, group.clone())).collect()))
    }

    pub fn profile_group(&self, profile: ProfileId, group: u32) -> Result<ProfileGroup, UpdateError> {
        self.read(|store| store.profile(profile)?.group(group).cloned())
    }

    /// Members of an action profile and of its groups.
    pub fn profile_size(&self, profile: ProfileId) -> Result<usize, UpdateError> {
        self.read(|store| Ok(store.profile(profile)?.number()))
    }

    /// The members of a value set, as written.
    pub fn value_set(&self, set: ValueSetId) -> Result<Vec<Vec<KeyField>>, UpdateError> {
        self.read(|store| store.value_set(set))
    }

    /// Multicast groups, and what [`Update::SetBackups`] has set of them: one, or all.
    pub fn multicast_groups(&self, id: Option<u32>) -> BTreeMap<u32, (Vec<Replica>, Backups)> {
        self.read(|store| {
            let backups = |id| store.backups().get(&Replicated::Group(id)).cloned().unwrap_or_default();
            Ok(some(store.groups(), id, |id, group| (group.clone(), backups(id))))
        })
        .unwrap_or_default()
    }

    /// Returns clone sessions, with the backups of each replica; all without an id.
    pub fn clone_sessions(&self, id: Option<u32>) -> BTreeMap<u32, (CloneSession, Backups)> {
        self.read(|store| {
            let backups = |id| store.backups().get(&Replicated::Session(id)).cloned().unwrap_or_default();
            Ok(some(store.sessions(), id, |id, session| (session.clone(), backups(id))))
        })
        .unwrap_or_default()
    }

    /// Replicas of all groups and sessions together, with backups.
    pub fn replicas(&self) -> usize {
        self.read(|store| Ok(store.replicas())).unwrap_or_default()
    }

    /// A cell of an indirect counter.
    pub fn counter(&self, counter: CounterId, index: usize) -> Result<CounterValue, UpdateError> {
        self.read(|store| store.counter(counter.0, index))
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Store) -> Result<T, UpdateError>) -> Result<T, UpdateError> {
        if self.staged {
            let stage = self.inner.stage();
            return read(&stage.as_ref().ok_or(UpdateError::NoProgram)?.store);
        }
        let store = self.inner.store();
        self.check_bound(store.as_ref())?;
        read(store.as_ref().ok_or(UpdateError::NoProgram)?)
    }
}

/// Maps one of them, if it is there, or all, by `view`.
fn some<T, V>(all: &BTreeMap<u32, T>, id: Option<u32>, view: impl Fn(u32, &T) -> V) -> BTreeMap<u32, V> {
    match id {
        Some(id) => all.get(&id).map(|one| (id, view(id, one))).into_iter().collect(),
        None => all.iter().map(|(&id, one)| (id, view(id, one))).collect(),
    }
}

fn of<T: Clone>(things: &[T], what: &str, index: usize) -> Result<T, UpdateError> {
    things.get(index).cloned().ok_or_else(|| UpdateError::NotFound(format!("{what} {index}")))
}
