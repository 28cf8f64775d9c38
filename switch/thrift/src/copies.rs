// SPDX-License-Identifier: Apache-2.0
//! Methods about multicast groups and their nodes.

use apswitch_dataplane::control::{CloneSession, PortNumber, Replica, Update};
use serde_json::json;

use crate::Server;
use crate::call::{Answered, Call, Codes, Refusal, application, declared};
use crate::handles::{Mirror, Node, State};
use crate::message::Value;

/// `McOperationErrorCode`.
const TABLE_FULL: i32 = 1;
const INVALID_MGID: i32 = 2;
const INVALID_GROUP: i32 = 3;
const INVALID_NODE: i32 = 4;
const ERROR: i32 = 5;
const CODES: Codes =
    Codes { exists: INVALID_MGID, not_found: INVALID_GROUP, full: TABLE_FULL, denied: ERROR, other: ERROR };

/// Nodes of all groups.
const MAX_NODES: usize = 1 << 16;
const NO_LAGS: &str = "there are no link aggregation groups here: give the ports";

impl Server {
    pub fn copies(&self, method: &str, call: &Call) -> Option<Answered> {
        Some(match method {
            "bm_mc_mgrp_create" => self.create_multicast_group(call),
            "bm_mc_mgrp_destroy" => self.destroy_multicast_group(call),
            "bm_mc_node_create" => self.create_node(call),
            "bm_mc_node_associate" => self.associate_node(call),
            "bm_mc_node_dissociate" => self.dissociate_node(call),
            "bm_mc_node_destroy" => self.destroy_node(call),
            "bm_mc_node_update" => self.update_node(call),
            "bm_mc_set_lag_membership" => application(NO_LAGS),
            "bm_mc_get_entries" => Ok(Some(self.multicast_entries().as_str().into())),
            _ => return None,
        })
    }

    fn create_multicast_group(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let number = call.i32(2)?;
        let group = u32::try_from(number).map_err(|_| declared(INVALID_MGID, format!("multicast group {number}")))?;
        self.write(Update::InsertMulticastGroup { group, replicas: Vec::new() }, CODES)?;
        state.groups.insert(group, Vec::new());
        Ok(Some(Value::I32(number)))
    }

    fn destroy_multicast_group(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let group = group(&state, call, 2)?;
        self.write(Update::DeleteMulticastGroup { group }, CODES)?;
        for node in state.groups.remove(&group).unwrap_or_default() {
            if let Some(node) = state.nodes.get_mut(&node) {
                node.group = None;
            }
        }
        self.write_mirrors(&state, group).map(|()| None)
    }

    fn create_node(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let given = call.i32(2)?;
        let rid =
            u16::try_from(given).map_err(|_| declared(ERROR, format!("replication id {given}: 65535 is the last")))?;
        let ports = ports(call, 3, 4)?;
        if state.nodes.len() == MAX_NODES {
            return Err(declared(TABLE_FULL, format!("there are {MAX_NODES} nodes")));
        }
        let handle = state.next_node;
        state.next_node += 1;
        state.nodes.insert(handle, Node { rid, ports, group: None });
        Ok(Some(Value::I32(handle)))
    }

    fn associate_node(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let (group, handle) = (group(&state, call, 2)?, node(&state, call, 3)?);
        if let Some(own) = state.nodes[&handle].group {
            return Err(declared(ERROR, format!("node {handle} is in group {own} already")));
        }
        let replicas = [state.replicas(group), replicas(&state.nodes[&handle])].concat();
        self.write(Update::ModifyMulticastGroup { group, replicas }, CODES)?;
        state.groups.entry(group).or_default().push(handle);
        set_group(&mut state, handle, Some(group));
        self.write_mirrors(&state, group).map(|()| None)
    }

    fn dissociate_node(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let (group, handle) = (group(&state, call, 2)?, node(&state, call, 3)?);
        if state.nodes[&handle].group != Some(group) {
            return Err(declared(INVALID_NODE, format!("node {handle} is not in group {group}")));
        }
        self.dissociate(&mut state, group, handle).map(|()| None)
    }

    fn dissociate(&self, state: &mut State, group: u32, handle: i32) -> Result<(), Refusal> {
        state.groups.entry(group).or_default().retain(|own| *own != handle);
        set_group(state, handle, None);
        self.write_group(state, group)
    }

    fn destroy_node(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let handle = node(&state, call, 2)?;
        if let Some(group) = state.nodes[&handle].group {
            self.dissociate(&mut state, group, handle)?;
        }
        state.nodes.remove(&handle);
        Ok(None)
    }

    fn update_node(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let handle = node(&state, call, 2)?;
        let ports = ports(call, 3, 4)?;
        let (before, group) = match state.nodes.get_mut(&handle) {
            Some(node) => (std::mem::replace(&mut node.ports, ports), node.group),
            None => return Ok(None),
        };
        let Some(group) = group else { return Ok(None) };
        let written = self.write_group(&state, group);
        if let (Err(_), Some(node)) = (&written, state.nodes.get_mut(&handle)) {
            node.ports = before;
        }
        written.map(|()| None)
    }

    /// Writes the replicas of a group anew, and those of the sessions that copy to it.
    fn write_group(&self, state: &State, group: u32) -> Result<(), Refusal> {
        self.write(Update::ModifyMulticastGroup { group, replicas: state.replicas(group) }, CODES)?;
        self.write_mirrors(state, group)
    }

    fn write_mirrors(&self, state: &State, group: u32) -> Result<(), Refusal> {
        let follows = |(_, mirror): &(&i32, &Mirror)| mirror.group == Some(group);
        for (&session, mirror) in state.mirrors.iter().filter(follows) {
            let update = Update::ModifyCloneSession { session: session as u32, config: self.session(state, *mirror) };
            self.write(update, CODES)?;
        }
        Ok(())
    }

    /// Configuration of a mirroring session.
    pub fn session(&self, state: &State, mirror: Mirror) -> CloneSession {
        let port = mirror.port.map(|port| Replica { port, rid: 0 });
        let group = mirror.group.map(|group| state.replicas(group)).unwrap_or_default();
        CloneSession { replicas: port.into_iter().chain(group).collect(), ..CloneSession::default() }
    }

    /// Groups and nodes in the JSON of BMv2's `bm_mc_get_entries`.
    fn multicast_entries(&self) -> String {
        let state = self.state();
        let groups = state.groups.iter().map(|(id, nodes)| json!({"id": id, "l1_handles": nodes}));
        let nodes =
            state.nodes.iter().map(|(handle, node)| json!({"handle": handle, "rid": node.rid, "l2_handle": handle}));
        let ports = state.nodes.iter().map(|(handle, node)| json!({"handle": handle, "ports": node.ports, "lags": []}));
        json!({
            "mgrps": groups.collect::<Vec<_>>(),
            "l1_handles": nodes.collect::<Vec<_>>(),
            "l2_handles": ports.collect::<Vec<_>>(),
            "lags": [],
        })
        .to_string()
    }
}

fn replicas(node: &Node) -> Vec<Replica> {
    node.ports.iter().map(|&port| Replica { port, rid: node.rid }).collect()
}

fn set_group(state: &mut State, handle: i32, group: Option<u32>) {
    if let Some(node) = state.nodes.get_mut(&handle) {
        node.group = group;
    }
}

/// The group of an argument.
fn group(state: &State, call: &Call, argument: i16) -> Result<u32, Refusal> {
    let number = call.i32(argument)?;
    let group = u32::try_from(number).ok().filter(|group| state.groups.contains_key(group));
    group.ok_or_else(|| declared(INVALID_GROUP, format!("there is no multicast group {number} made over Thrift")))
}

/// The handle of a node in an argument.
fn node(state: &State, call: &Call, argument: i16) -> Result<i32, Refusal> {
    let handle = call.i32(argument)?;
    let unknown = || declared(INVALID_NODE, format!("there is no node {handle}"));
    state.nodes.contains_key(&handle).then_some(handle).ok_or_else(unknown)
}

/// Ports of a map: a digit for each, that of port 0 at its end.
fn ports(call: &Call, map: i16, lags: i16) -> Result<Vec<PortNumber>, Refusal> {
    let (map, lags) = (call.text(map)?, call.text(lags)?);
    if lags.contains('1') {
        return application(NO_LAGS);
    }
    if map.len() > 512 || map.chars().any(|digit| !matches!(digit, '0' | '1')) {
        return application("a map of ports has up to 512 digits, 0 or 1");
    }
    Ok((0..).zip(map.bytes().rev()).filter(|(_, digit)| *digit == b'1').map(|(port, _)| port).collect())
}
