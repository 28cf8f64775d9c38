// SPDX-License-Identifier: Apache-2.0
//! What BMv2 names by handles and the data plane does not: entries, nodes of multicast groups, mirroring sessions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use apswitch_dataplane::control::{Dataplane, EntryKey, PortNumber, Program, Replica, TableId, UpdateError};

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
        let handle = self.next;
        self.next += 1;
        self.keys.insert(handle, key.clone());
        self.handles.insert(key.clone(), handle);
        handle
    }

    pub fn remove(&mut self, handle: i32) {
        if let Some(key) = self.keys.remove(&handle) {
            self.handles.remove(&key);
        }
    }

    /// Forgets those of entries that are gone: others may delete what was written here.
    fn keep(&mut self, is_there: impl Fn(&EntryKey) -> bool) {
        self.keys.retain(|_, key| is_there(key));
        self.handles.retain(|key, _| is_there(key));
    }
}

/// A node: a replication id and its ports, in one group or in none yet.
pub struct Node {
    pub rid: u16,
    pub ports: Vec<PortNumber>,
    pub group: Option<u32>,
}

/// Destination of a mirroring session.
#[derive(Clone, Copy, PartialEq)]
pub struct Mirror {
    pub port: Option<PortNumber>,
    pub group: Option<u32>,
}

#[derive(Default)]
pub struct State {
    pub program: Option<Arc<Program>>,
    tables: Vec<Entries>,
    /// Nodes by handles.
    pub nodes: BTreeMap<i32, Node>,
    pub next_node: i32,
    /// Nodes of the groups, in the order in which they came.
    pub groups: BTreeMap<u32, Vec<i32>>,
    pub mirrors: BTreeMap<i32, Mirror>,
}

impl State {
    /// Handles of what the program starts with, in the order of their keys' places.
    pub fn new(program: Option<Arc<Program>>, dataplane: &Dataplane) -> State {
        let tables = program.as_ref().map_or(0, |program| program.tables.len());
        let mut state = State { program: program.clone(), ..State::default() };
        state.tables.resize_with(tables, Entries::default);
        for (table, key, _) in program.iter().flat_map(|program| &program.const_entries) {
            if dataplane.entry(*table, key).is_ok() {
                state.tables[table.0].handle(key);
            }
        }
        state
    }

    pub fn entries(&mut self, table: TableId) -> &mut Entries {
        &mut self.tables[table.0]
    }

    /// The handle of an entry that was written; makes room when there are more handles than entries can be.
    pub fn written(&mut self, dataplane: &Dataplane, table: TableId, key: &EntryKey, max: usize) -> i32 {
        let entries = &mut self.tables[table.0];
        if entries.keys.len() > max {
            entries.keep(|key| !matches!(dataplane.entry(table, key), Err(UpdateError::NotFound(_))));
        }
        entries.handle(key)
    }

    /// Replicas of a group: the ports of its nodes.
    pub fn replicas(&self, group: u32) -> Vec<Replica> {
        let nodes = self.groups.get(&group).into_iter().flatten().filter_map(|node| self.nodes.get(node));
        nodes.flat_map(|node| node.ports.iter().map(|&port| Replica { port, rid: node.rid })).collect()
    }
}
