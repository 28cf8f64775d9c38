// SPDX-License-Identifier: Apache-2.0
//! Batches of which all updates take effect or none: how an update is taken back, and which part of the pipeline sees
//! it.

use super::{Result, Store};
use crate::program::{Program, TableId};
use crate::write_api::{Replicated, Update, UpdateError};

/// Part of the pipeline in which packets see an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineScope {
    /// Packets see nothing of it: it is read by the control plane alone.
    Nowhere,
    /// In the parser, in ingress and when a packet is replicated after it.
    Ingress,
    Egress,
    Both,
}

impl PipelineScope {
    pub fn of(update: &Update, program: &Program) -> PipelineScope {
        let table = |TableId(table): TableId| match program.tables.get(table) {
            Some(info) if info.in_egress => PipelineScope::Egress,
            _ => PipelineScope::Ingress,
        };
        match update {
            Update::InsertEntry(entry) | Update::ModifyEntry(entry) => table(entry.table),
            Update::DeleteEntry { table: id, .. }
            | Update::SetDefault { table: id, .. }
            | Update::SetDirectMeter { table: id, .. } => table(*id),
            Update::InsertMember { profile, .. }
            | Update::ModifyMember { profile, .. }
            | Update::DeleteMember { profile, .. }
            | Update::InsertGroup { profile, .. }
            | Update::ModifyGroup { profile, .. }
            | Update::DeleteGroup { profile, .. } => {
                let users = program.tables.iter().filter(|info| info.profile == Some(*profile));
                users.fold(PipelineScope::Nowhere, |scope, info| {
                    scope.and(if info.in_egress { PipelineScope::Egress } else { PipelineScope::Ingress })
                })
            }
            Update::SetValueSet { .. }
            | Update::InsertMulticastGroup { .. }
            | Update::ModifyMulticastGroup { .. }
            | Update::DeleteMulticastGroup { .. } => PipelineScope::Ingress,
            Update::FindEntry { .. }
            | Update::SetDirectCounter { .. }
            | Update::SetDirectColours { .. }
            | Update::SetColours { .. }
            | Update::SetCounter { .. }
            | Update::SetDigest { .. }
            | Update::AckDigest { .. } => PipelineScope::Nowhere,
            Update::SetBackups { of: Replicated::Group(_), .. } => PipelineScope::Ingress,
            Update::SetMeter { .. }
            | Update::SetRegister { .. }
            | Update::SetBackups { of: Replicated::Session(_), .. }
            | Update::InsertCloneSession { .. }
            | Update::ModifyCloneSession { .. }
            | Update::DeleteCloneSession { .. } => PipelineScope::Both,
        }
    }

    pub fn and(self, other: PipelineScope) -> PipelineScope {
        match (self, other) {
            (PipelineScope::Nowhere, scope) | (scope, PipelineScope::Nowhere) => scope,
            (one, another) if one == another => one,
            _ => PipelineScope::Both,
        }
    }
}

impl Store {
    /// The updates that take this one back once it is made, the last one first. An update that would be refused may be
    /// refused here, too. Taken back in reverse order, slots are as they were.
    pub fn inverse(&self, update: &Update, now: u64) -> Result<Vec<Update>> {
        let replicated = match *update {
            Update::ModifyMulticastGroup { group, .. } | Update::DeleteMulticastGroup { group } => {
                Some(Replicated::Group(group))
            }
            Update::ModifyCloneSession { session, .. } | Update::DeleteCloneSession { session } => {
                Some(Replicated::Session(session))
            }
            _ => None,
        };
        let backups =
            replicated.and_then(|of| Some(Update::SetBackups { of, backups: self.backups().get(&of)?.clone() }));
        let colours = match update {
            Update::DeleteEntry { table, key } if self.check_meter(*table).is_ok() => {
                let (table, key) = (*table, Some(key.clone()));
                let value = self.direct_colours(table, key.as_ref())?;
                Some(Update::SetDirectColours { table, key, value })
            }
            _ => None,
        };
        let beside = backups.into_iter().chain(colours);
        Ok(beside.chain(self.inverse_of_itself(update, now)?).collect())
    }

    fn inverse_of_itself(&self, update: &Update, now: u64) -> Result<Option<Update>> {
        Ok(Some(match update {
            Update::InsertEntry(entry) => Update::DeleteEntry { table: entry.table, key: entry.key.clone() },
            Update::ModifyEntry(entry) => {
                let mut before = self.entry(entry.table, &entry.key, now)?.entry;
                before.counter = before.counter.filter(|_| entry.counter.is_some());
                Update::ModifyEntry(before)
            }
            Update::DeleteEntry { table, key } => Update::InsertEntry(self.entry(*table, key, now)?.entry),
            Update::FindEntry { .. } | Update::AckDigest { .. } => return Ok(None),
            Update::SetDefault { table, .. } => {
                Update::SetDefault { table: *table, action: self.default_action(*table)? }
            }
            Update::SetDirectCounter { table, key, .. } => {
                let value = self.direct_counter(*table, key.as_ref())?;
                Update::SetDirectCounter { table: *table, key: key.clone(), value }
            }
            Update::SetDirectMeter { table, key, .. } => {
                let config = match key {
                    Some(key) => self.entry(*table, key, now)?.entry.meter,
                    None => self.default_meter(*table)?,
                };
                Update::SetDirectMeter { table: *table, key: key.clone(), config }
            }
            Update::SetDirectColours { table, key, .. } => {
                let value = self.direct_colours(*table, key.as_ref())?;
                Update::SetDirectColours { table: *table, key: key.clone(), value }
            }
            Update::SetColours { meter, index, .. } => {
                let value = self.colours(meter.0, *index..*index + 1)?[0];
                Update::SetColours { meter: *meter, index: *index, value }
            }
            Update::SetCounter { counter, index, .. } => {
                let value = self.counters(counter.0, *index..*index + 1)?[0];
                Update::SetCounter { counter: *counter, index: *index, value }
            }
            Update::SetMeter { meter, index, .. } => {
                let config = self.meters(meter.0, *index..*index + 1)?[0];
                Update::SetMeter { meter: *meter, index: *index, config }
            }
            Update::SetRegister { register, index, .. } => {
                let value = self.registers(register.0, *index..*index + 1)?.swap_remove(0);
                Update::SetRegister { register: *register, index: *index, value }
            }
            Update::InsertMulticastGroup { group, .. } => Update::DeleteMulticastGroup { group: *group },
            Update::ModifyMulticastGroup { group, .. } => {
                Update::ModifyMulticastGroup { group: *group, replicas: self.known_group(*group)? }
            }
            Update::DeleteMulticastGroup { group } => {
                Update::InsertMulticastGroup { group: *group, replicas: self.known_group(*group)? }
            }
            Update::InsertCloneSession { session, .. } => Update::DeleteCloneSession { session: *session },
            Update::ModifyCloneSession { session, .. } => {
                Update::ModifyCloneSession { session: *session, config: self.known_session(*session)? }
            }
            Update::DeleteCloneSession { session } => {
                Update::InsertCloneSession { session: *session, config: self.known_session(*session)? }
            }
            Update::SetBackups { of, .. } => {
                let none = || vec![Vec::new(); self.copies.len(*of)];
                let backups = self.backups().get(of).cloned().unwrap_or_else(none);
                Update::SetBackups { of: *of, backups }
            }
            Update::InsertMember { profile, member, .. } => Update::DeleteMember { profile: *profile, member: *member },
            Update::ModifyMember { profile, member, .. } => {
                let action = self.profile(*profile)?.member(*member)?.clone();
                Update::ModifyMember { profile: *profile, member: *member, action }
            }
            Update::DeleteMember { profile, member } => {
                let action = self.profile(*profile)?.member(*member)?.clone();
                Update::InsertMember { profile: *profile, member: *member, action }
            }
            Update::InsertGroup { profile, group, .. } => Update::DeleteGroup { profile: *profile, group: *group },
            Update::ModifyGroup { profile, group, .. } => {
                let value = self.profile(*profile)?.group(*group)?.clone();
                Update::ModifyGroup { profile: *profile, group: *group, value }
            }
            Update::DeleteGroup { profile, group } => {
                let value = self.profile(*profile)?.group(*group)?.clone();
                Update::InsertGroup { profile: *profile, group: *group, value }
            }
            Update::SetValueSet { set, .. } => Update::SetValueSet { set: *set, members: self.value_set(*set)? },
            Update::SetDigest { digest, .. } => {
                Update::SetDigest { digest: *digest, config: self.digest_config(digest.0)? }
            }
        }))
    }

    fn known_group(&self, group: u32) -> Result<Vec<crate::dataplane_ops::Replica>> {
        self.groups().get(&group).cloned().ok_or_else(|| UpdateError::NotFound(format!("multicast group {group}")))
    }

    fn known_session(&self, session: u32) -> Result<crate::dataplane_ops::CloneSession> {
        self.sessions().get(&session).cloned().ok_or_else(|| UpdateError::NotFound(format!("clone session {session}")))
    }
}
