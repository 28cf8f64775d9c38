// SPDX-License-Identifier: Apache-2.0
//! Methods about multicast groups and their nodes.

use apswitch_dataplane::control::{CloneSession, PortNumber, Update};
use serde_json::json;

use crate::Handler;
use crate::call::{Answered, Call, Codes, Refusal, declared};
use crate::handles::{Mirror, Node};
use crate::message::Value;

/// `McOperationErrorCode`.
const TABLE_FULL: i32 = 1;
const INVALID_MGID: i32 = 2;
const INVALID_GROUP: i32 = 3;
const INVALID_NODE: i32 = 4;
const ERROR: i32 = 5;
const CODES: Codes = Codes { not_found: INVALID_GROUP, full: TABLE_FULL, ..Codes::all(ERROR) };

/// Nodes of all groups, and their ports.
const MAX_NODES: usize = 1 << 16;
const NO_LAGS: &str = "there are no link aggregation groups here: give the ports";

impl Handler<'_> {
    pub fn copies(&mut self, method: &str, call: &Call) -> Option<Answered> {
        Some(match method {
            "bm_mc_mgrp_create" => self.create_multicast_group(call),
            "bm_mc_mgrp_destroy" => self.destroy_multicast_group(call),
            "bm_mc_node_create" => self.create_node(call),
            "bm_mc_node_associate" => self.associate_node(call),
            "bm_mc_node_dissociate" => self.dissociate_node(call),
            "bm_mc_node_destroy" => self.destroy_node(call),
            "bm_mc_node_update" => self.update_node(call),
            "bm_mc_set_lag_membership" => Err(declared(ERROR, NO_LAGS)),
            "bm_mc_get_entries" => Ok(Some(self.multicast_entries().as_str().into())),
            _ => return None,
        })
    }

    /// Creates a group; an existing one stays as it is, as in BMv2.
    fn create_multicast_group(&mut self, call: &Call) -> Answered {
        let number = call.i32(2)?;
        let group = u32::try_from(number).map_err(|_| declared(INVALID_MGID, format!("multicast group {number}")))?;
        if self.group(call, 2).is_err() {
            let codes = Codes { other: INVALID_MGID, ..CODES };
            self.write(Update::InsertMulticastGroup { group, replicas: Vec::new() }, codes)?;
            self.state.groups.insert(group, Vec::new());
        }
        Ok(Some(Value::I32(number)))
    }

    /// Deletes a group; a missing one is no error, as in BMv2.
    fn destroy_multicast_group(&mut self, call: &Call) -> Answered {
        if let Ok(group) = self.group(call, 2) {
            self.write(Update::DeleteMulticastGroup { group }, CODES)?;
            self.forget(group);
            self.write_mirrors(group);
        }
        Ok(None)
    }

    /// The group of an argument; clients of P4Runtime may have deleted it.
    fn group(&mut self, call: &Call, argument: i16) -> Result<u32, Refusal> {
        let number = call.i32(argument)?;
        let group = u32::try_from(number).ok().filter(|group| self.state.groups.contains_key(group));
        if let Some(group) = group {
            if self.dataplane.multicast_groups(Some(group)).contains_key(&group) {
                return Ok(group);
            }
            self.forget(group);
        }
        Err(declared(INVALID_GROUP, format!("there is no multicast group {number} made over Thrift")))
    }

    fn forget(&mut self, group: u32) {
        for handle in self.state.groups.remove(&group).unwrap_or_default() {
            if let Some(node) = self.state.nodes.get_mut(&handle) {
                node.group = None;
            }
        }
    }

    fn create_node(&mut self, call: &Call) -> Answered {
        let given = call.i32(2)?;
        let rid =
            u16::try_from(given).map_err(|_| declared(ERROR, format!("replication id {given}: 65535 is the last")))?;
        let ports = ports(call, 3, 4)?;
        self.check_room(ports.len() + 1)?;
        // The first that is free, as in BMv2.
        let handle = self.state.nodes.keys().fold(0, |free, &taken| if taken == free { free + 1 } else { free });
        self.state.nodes.insert(handle, Node { rid, ports, group: None });
        Ok(Some(Value::I32(handle)))
    }

    /// Checks that there is room for so many more nodes and ports.
    fn check_room(&self, more: usize) -> Result<(), Refusal> {
        let taken: usize = self.state.nodes.values().map(|node| node.ports.len() + 1).sum();
        let full = || declared(TABLE_FULL, format!("all nodes together have {MAX_NODES} ports at most"));
        (taken + more <= MAX_NODES).then_some(()).ok_or_else(full)
    }

    /// The handle of a node in an argument, and the group that it is in.
    fn node(&self, call: &Call, argument: i16) -> Result<(i32, Option<u32>), Refusal> {
        let handle = call.i32(argument)?;
        let unknown = || declared(INVALID_NODE, format!("there is no node {handle}"));
        self.state.nodes.get(&handle).map(|node| (handle, node.group)).ok_or_else(unknown)
    }

    fn associate_node(&mut self, call: &Call) -> Answered {
        let (group, (handle, own)) = (self.group(call, 2)?, self.node(call, 3)?);
        if let Some(own) = own {
            return Err(declared(ERROR, format!("node {handle} is in group {own} already")));
        }
        self.change(group, |nodes| nodes.push(handle))?;
        self.set_group(handle, Some(group));
        Ok(None)
    }

    fn dissociate_node(&mut self, call: &Call) -> Answered {
        let (group, (handle, own)) = (self.group(call, 2)?, self.node(call, 3)?);
        if own != Some(group) {
            return Err(declared(ERROR, format!("node {handle} is not in group {group}")));
        }
        self.change(group, |nodes| nodes.retain(|own| *own != handle))?;
        self.set_group(handle, None);
        Ok(None)
    }

    fn destroy_node(&mut self, call: &Call) -> Answered {
        let (handle, own) = self.node(call, 2)?;
        if let Some(group) = own {
            self.change(group, |nodes| nodes.retain(|own| *own != handle))?;
        }
        self.state.nodes.remove(&handle);
        Ok(None)
    }

    fn update_node(&mut self, call: &Call) -> Answered {
        let (handle, own) = self.node(call, 2)?;
        let mut ports = ports(call, 3, 4)?;
        self.check_room(ports.len())?;
        self.swap_ports(handle, &mut ports);
        let Some(group) = own else { return Ok(None) };
        let changed = self.change(group, |_| ());
        if changed.is_err() {
            self.swap_ports(handle, &mut ports);
        }
        changed.map(|()| None)
    }

    fn swap_ports(&mut self, handle: i32, ports: &mut Vec<PortNumber>) {
        if let Some(node) = self.state.nodes.get_mut(&handle) {
            std::mem::swap(&mut node.ports, ports);
        }
    }

    fn set_group(&mut self, handle: i32, group: Option<u32>) {
        if let Some(node) = self.state.nodes.get_mut(&handle) {
            node.group = group;
        }
    }

    /// Changes the nodes of a group and writes its replicas; on a refusal the nodes are as before. One that clients of
    /// P4Runtime have deleted is forgotten.
    fn change(&mut self, group: u32, change: impl FnOnce(&mut Vec<i32>)) -> Result<(), Refusal> {
        let Some(nodes) = self.state.groups.get_mut(&group) else { return Ok(()) };
        let before = nodes.clone();
        change(nodes);
        let replicas = self.state.replicas(group);
        match self.write(Update::ModifyMulticastGroup { group, replicas }, CODES) {
            Err(Refusal { code: Some(INVALID_GROUP), .. }) => {
                self.forget(group);
                Ok(())
            }
            Err(refusal) => {
                self.state.groups.insert(group, before);
                Err(refusal)
            }
            Ok(()) => {
                self.write_mirrors(group);
                Ok(())
            }
        }
    }

    /// Writes the replicas of the sessions that copy to the group; one that cannot follow it is logged.
    fn write_mirrors(&mut self, group: u32) {
        let follows = |mirror: &Mirror| mirror.group == Some(group);
        let mirrors = self.state.mirrors.iter().filter(|(_, mirror)| follows(mirror));
        let mirrors: Vec<(u32, Mirror)> = mirrors.map(|(&id, &mirror)| (id, mirror)).collect();
        for (session, mirror) in mirrors {
            let Some((config, _)) = self.dataplane.clone_sessions(Some(session)).remove(&session) else {
                self.state.mirrors.remove(&session);
                continue;
            };
            let config = CloneSession { replicas: self.state.mirrored(mirror), ..config };
            if let Err(Refusal { text, .. }) = self.write(Update::ModifyCloneSession { session, config }, CODES) {
                tracing::warn!("mirroring session {session} does not follow multicast group {group}: {text}");
            }
        }
    }

    /// Groups and nodes in the JSON of BMv2's `bm_mc_get_entries`.
    fn multicast_entries(&self) -> String {
        let (groups, nodes) = (&self.state.groups, &self.state.nodes);
        let groups = groups.iter().map(|(id, nodes)| json!({"id": id, "l1_handles": nodes}));
        let ports = nodes.iter().map(|(handle, node)| json!({"handle": handle, "ports": node.ports, "lags": []}));
        let nodes = nodes.iter().map(|(handle, node)| json!({"handle": handle, "rid": node.rid, "l2_handle": handle}));
        json!({
            "mgrps": groups.collect::<Vec<_>>(),
            "l1_handles": nodes.collect::<Vec<_>>(),
            "l2_handles": ports.collect::<Vec<_>>(),
            "lags": [],
        })
        .to_string()
    }
}

/// Ports of a map: a digit for each, that of port 0 at its end.
fn ports(call: &Call, map: i16, lags: i16) -> Result<Vec<PortNumber>, Refusal> {
    let (map, lags) = (call.text(map)?, call.text(lags)?);
    if lags.contains('1') {
        return Err(declared(ERROR, NO_LAGS));
    }
    if map.len() > 512 || map.chars().any(|digit| !matches!(digit, '0' | '1')) {
        return Err(declared(ERROR, "a map of ports has up to 512 digits, 0 or 1"));
    }
    Ok((0..).zip(map.bytes().rev()).filter(|(_, digit)| *digit == b'1').map(|(port, _)| port).collect())
}
