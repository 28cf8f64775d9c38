// SPDX-License-Identifier: Apache-2.0
//! Multicast groups and clone sessions, and who takes the place of a replica whose port is down.

use std::collections::{BTreeMap, HashSet};

use super::{Result, Store, exhausted, invalid};
use crate::dataplane_ops::{Change, CloneSession, Replica};
use crate::port::PortNumber;
use crate::write_api::{Replicated, Update, UpdateError};

/// Copies of a packet at most, and replicas that all groups and sessions hold together, with their backups.
const MAX_REPLICAS: usize = 4096;
const MAX_TOTAL_REPLICAS: usize = 1 << 20;
const MAX_SESSIONS: usize = 1 << 16;

#[derive(Clone, Default)]
pub struct Copies {
    groups: BTreeMap<u32, Vec<Replica>>,
    sessions: BTreeMap<u32, CloneSession>,
    /// Backups of the groups and sessions that have some.
    backups: BTreeMap<Replicated, Vec<Vec<Replica>>>,
    down: HashSet<PortNumber>,
    /// Replicas and backups of all groups and sessions.
    number: usize,
}

impl Store {
    /// The groups as written.
    pub fn groups(&self) -> &BTreeMap<u32, Vec<Replica>> {
        &self.copies.groups
    }

    /// The sessions as written.
    pub fn sessions(&self) -> &BTreeMap<u32, CloneSession> {
        &self.copies.sessions
    }

    /// Replicas of all groups and sessions, and those themselves.
    pub fn replicas(&self) -> usize {
        self.copies.number + self.copies.groups.len() + self.copies.sessions.len()
    }

    pub fn backups(&self) -> &BTreeMap<Replicated, Vec<Vec<Replica>>> {
        &self.copies.backups
    }
}

impl Copies {
    /// Takes one of the updates of groups and sessions.
    pub fn update(&mut self, update: Update, changes: &mut Vec<Change>) -> Result<()> {
        match update {
            Update::InsertMulticastGroup { group, .. } if self.groups.contains_key(&group) => {
                Err(UpdateError::AlreadyExists(format!("multicast group {group}")))
            }
            Update::ModifyMulticastGroup { group, .. } | Update::DeleteMulticastGroup { group }
                if !self.groups.contains_key(&group) =>
            {
                Err(UpdateError::NotFound(format!("multicast group {group}")))
            }
            Update::InsertMulticastGroup { group, replicas } | Update::ModifyMulticastGroup { group, replicas } => {
                if group == 0 || group > u16::MAX as u32 {
                    return invalid(format!("multicast group {group}: groups are numbered from 1 to 65535"));
                }
                self.check(&replicas, Replicated::Group(group))?;
                self.forget(Replicated::Group(group));
                self.number += replicas.len();
                self.groups.insert(group, replicas);
                changes.extend(self.change(Replicated::Group(group)));
                Ok(())
            }
            Update::DeleteMulticastGroup { group } => {
                self.forget(Replicated::Group(group));
                changes.push(Change::SetMulticastGroup { group, replicas: None });
                Ok(())
            }
            Update::InsertCloneSession { session, .. } if self.sessions.contains_key(&session) => {
                Err(UpdateError::AlreadyExists(format!("clone session {session}")))
            }
            Update::ModifyCloneSession { session, .. } | Update::DeleteCloneSession { session }
                if !self.sessions.contains_key(&session) =>
            {
                Err(UpdateError::NotFound(format!("clone session {session}")))
            }
            Update::InsertCloneSession { .. } if self.sessions.len() == MAX_SESSIONS => {
                exhausted(format!("there are {MAX_SESSIONS} clone sessions"))
            }
            Update::InsertCloneSession { session, config } | Update::ModifyCloneSession { session, config } => {
                self.check(&config.replicas, Replicated::Session(session))?;
                self.forget(Replicated::Session(session));
                self.number += config.replicas.len();
                self.sessions.insert(session, config);
                changes.extend(self.change(Replicated::Session(session)));
                Ok(())
            }
            Update::DeleteCloneSession { session } => {
                self.forget(Replicated::Session(session));
                changes.push(Change::SetCloneSession { session, config: None });
                Ok(())
            }
            Update::SetBackups { of, backups } => self.set_backups(of, backups, changes),
            _ => invalid("this is about no copies of packets"),
        }
    }

    fn set_backups(&mut self, of: Replicated, backups: Vec<Vec<Replica>>, changes: &mut Vec<Change>) -> Result<()> {
        let Some(replicas) = self.replicas(of) else {
            return Err(UpdateError::NotFound(of.to_string()));
        };
        if replicas.len() != backups.len() {
            return invalid(format!("{} replicas have {} lists of backups", replicas.len(), backups.len()));
        }
        let number = count(&backups);
        let together = self.number - self.backups.get(&of).map_or(0, |old| count(old)) + number;
        if number > MAX_REPLICAS || together > MAX_TOTAL_REPLICAS {
            return exhausted(format!("{number} backups: {MAX_REPLICAS} are the most"));
        }
        self.number = together;
        match number {
            0 => drop(self.backups.remove(&of)),
            _ => drop(self.backups.insert(of, backups)),
        }
        changes.extend(self.change(of));
        Ok(())
    }

    /// Replicas of a group or session.
    pub fn len(&self, of: Replicated) -> usize {
        self.replicas(of).map_or(0, Vec::len)
    }

    fn replicas(&self, of: Replicated) -> Option<&Vec<Replica>> {
        match of {
            Replicated::Group(group) => self.groups.get(&group),
            Replicated::Session(session) => self.sessions.get(&session).map(|config| &config.replicas),
        }
    }

    /// Checks the replicas that take the place of those that there are.
    fn check(&self, replicas: &[Replica], of: Replicated) -> Result<()> {
        let mut seen = HashSet::with_capacity(replicas.len());
        if let Some(twice) = replicas.iter().find(|replica| !seen.insert(**replica)) {
            return invalid(format!("port {} occurs twice with instance {}", twice.port, twice.rid));
        }
        if replicas.len() > MAX_REPLICAS {
            return exhausted(format!("{} replicas: {MAX_REPLICAS} are the most", replicas.len()));
        }
        if self.number - self.len(of) + replicas.len() > MAX_TOTAL_REPLICAS {
            return exhausted(format!("all groups and sessions have {MAX_TOTAL_REPLICAS} replicas together"));
        }
        Ok(())
    }

    fn forget(&mut self, of: Replicated) {
        self.number -= self.backups.remove(&of).map_or(0, |backups| count(&backups));
        self.number -= match of {
            Replicated::Group(group) => self.groups.remove(&group).map_or(0, |replicas| replicas.len()),
            Replicated::Session(session) => self.sessions.remove(&session).map_or(0, |config| config.replicas.len()),
        };
    }

    /// Returns the present destinations: the first of each replica and its backups whose port is up.
    fn now(&self, of: Replicated, replicas: &[Replica]) -> Vec<Replica> {
        let Some(backups) = self.backups.get(&of) else { return replicas.to_vec() };
        let is_up = |replica: &&Replica| !self.down.contains(&replica.port);
        let choose = |(first, others): (&Replica, &Vec<Replica>)| {
            *std::iter::once(first).chain(others).find(is_up).unwrap_or(first)
        };
        replicas.iter().zip(backups).map(choose).collect()
    }

    fn change(&self, of: Replicated) -> Option<Change> {
        Some(match of {
            Replicated::Group(group) => {
                let replicas = Some(self.now(of, self.groups.get(&group)?));
                Change::SetMulticastGroup { group, replicas }
            }
            Replicated::Session(session) => {
                let config = self.sessions.get(&session)?;
                let config = Some(CloneSession { replicas: self.now(of, &config.replicas), ..config.clone() });
                Change::SetCloneSession { session, config }
            }
        })
    }

    /// Returns the changes that give the packet thread all groups and sessions.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        let groups = self.groups.keys().map(|&group| Replicated::Group(group));
        let sessions = self.sessions.keys().map(|&session| Replicated::Session(session));
        groups.chain(sessions).filter_map(|of| self.change(of))
    }

    pub fn set_port(&mut self, port: PortNumber, up: bool, changes: &mut Vec<Change>) {
        let changed = if up { self.down.remove(&port) } else { self.down.insert(port) };
        if changed {
            changes.extend(self.backups.keys().filter_map(|&of| self.change(of)));
        }
    }
}

fn count(backups: &[Vec<Replica>]) -> usize {
    backups.iter().map(Vec::len).sum()
}
