// SPDX-License-Identifier: Apache-2.0
//! Handles of entries and of nodes of multicast groups, and mirroring sessions: BMv2 names them, the data plane does not.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use apswitch_dataplane::control::{Dataplane, EntryKey, PortNumber, Program, Replica, TableId};

use crate::notifications;

/// Entries of a table by handles, which are given out once each.
#[derive(Default)]
pub struct Entries {
    next: i32,
    keys: BTreeMap<i32, EntryKey>,
    handles: HashMap<EntryKey, i32>,
}

impl Entries {
    pub fn key(&self, handle: i32) -> Option<&EntryKey> {
        self.keys.get(&handle)
    }

    /// The entry's handle, a new one if it has none.
    pub fn handle(&mut self, key: &EntryKey) -> i32 {
        if let Some(handle) = self.handles.get(key) {
            return *handle;
        }
        while self.keys.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1) & i32::MAX;
        }
        let handle = self.next;
        self.next = self.next.wrapping_add(1) & i32::MAX;
        self.keys.insert(handle, key.clone());
        self.handles.insert(key.clone(), handle);
        handle
    }

    pub fn remove(&mut self, handle: i32) {
        if let Some(key) = self.keys.remove(&handle) {
            self.handles.remove(&key);
        }
    }

    /// Number of handles.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Forgets the handles of all other entries: clients of P4Runtime may have deleted them.
    pub fn keep(&mut self, there: &HashSet<i32>) {
        self.keys.retain(|handle, _| there.contains(handle));
        self.handles.retain(|_, handle| there.contains(handle));
    }
}

/// A node: a replication id and its ports, in one group or in none yet.
pub struct Node {
    pub rid: u16,
    pub ports: Vec<PortNumber>,
    pub group: Option<u32>,
}

impl Node {
    pub fn replicas(&self) -> impl Iterator<Item = Replica> {
        self.ports.iter().map(|&port| Replica { port, rid: self.rid })
    }
}

/// Destination of a mirroring session.
#[derive(Clone, Copy)]
pub struct Mirror {
    pub port: Option<PortNumber>,
    pub group: Option<u32>,
}

#[derive(Default)]
pub struct State {
    pub program: Option<Arc<Program>>,
    tables: Vec<Entries>,
    /// Ids of the learn lists, by the places of the digests.
    pub lists: Vec<i32>,
    /// Nodes by handles.
    pub nodes: BTreeMap<i32, Node>,
    /// Nodes of the groups, in the order in which they came.
    pub groups: BTreeMap<u32, Vec<i32>>,
    pub mirrors: BTreeMap<u32, Mirror>,
}

impl State {
    /// Creates the state of a program to which no client has written over Thrift.
    pub fn new(program: Option<Arc<Program>>, dataplane: &Dataplane) -> State {
        let tables = program.as_ref().map_or(0, |program| program.tables.len());
        let lists = program.as_deref().map(notifications::lists).unwrap_or_default();
        let mut state = State { program: program.clone(), lists, ..State::default() };
        state.tables.resize_with(tables, Entries::default);
        // Entries that the program starts with have the first handles.
        for (table, key, _) in program.iter().flat_map(|program| &program.const_entries) {
            if dataplane.entry(*table, key).is_ok() {
                state.tables[table.0].handle(key);
            }
        }
        state
    }

    /// Returns true if this is the state of the program.
    pub fn is_of(&self, program: Option<&Arc<Program>>) -> bool {
        match (program, &self.program) {
            (Some(program), Some(own)) => Arc::ptr_eq(program, own),
            (None, None) => true,
            _ => false,
        }
    }

    pub fn entries(&mut self, table: TableId) -> &mut Entries {
        &mut self.tables[table.0]
    }

    /// Replicas of a group: the ports of its nodes.
    pub fn replicas(&self, group: u32) -> Vec<Replica> {
        let nodes = self.groups.get(&group).into_iter().flatten().filter_map(|node| self.nodes.get(node));
        nodes.flat_map(Node::replicas).collect()
    }

    /// Replicas of a mirroring session: its port, and what its group has now, each once.
    pub fn mirrored(&self, mirror: Mirror) -> Vec<Replica> {
        let port = mirror.port.map(|port| Replica { port, rid: 0 });
        let group = mirror.group.map(|group| self.replicas(group)).unwrap_or_default();
        let mut seen = HashSet::new();
        port.into_iter().chain(group).filter(|replica| seen.insert(*replica)).collect()
    }
}
