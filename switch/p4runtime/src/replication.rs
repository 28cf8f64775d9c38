// SPDX-License-Identifier: Apache-2.0
//! Replicas between P4Runtime messages and the control API (P4Runtime 1.4, "PacketReplicationEngineEntry").

use apswitch_dataplane::control::{PortNumber, Replica};

use super::error::{Checked, refuse};
use super::proto::p4::v1 as p4;
use super::value;

/// `egress_spec` has 9 bits in v1model.
const MAX_PORT: u32 = 511;

/// Replicas, and for each of them those that may take its place.
pub fn replicas(messages: &[p4::Replica]) -> Checked<(Vec<Replica>, Vec<Vec<Replica>>)> {
    let mut replicas = Vec::with_capacity(messages.len());
    let mut backups = Vec::with_capacity(messages.len());
    for message in messages {
        #[allow(deprecated)]
        let port = match &message.port_kind {
            Some(p4::replica::PortKind::Port(bytes)) => value::to_u32(bytes)?,
            Some(p4::replica::PortKind::EgressPort(number)) => *number,
            None => return refuse!(InvalidArgument, "a replica has no port"),
        };
        replicas.push(replica(port, message.instance)?);
        let others = message.backup_replicas.iter();
        let others = others.map(|other| replica(value::to_u32(&other.port)?, other.instance));
        backups.push(others.collect::<Checked<_>>()?);
    }
    Ok((replicas, backups))
}

fn replica(port: u32, instance: u32) -> Checked<Replica> {
    if port > MAX_PORT {
        return refuse!(InvalidArgument, "port {port} is above {MAX_PORT}");
    }
    match u16::try_from(instance) {
        Ok(rid) => Ok(Replica { port: port as PortNumber, rid }),
        Err(_) => refuse!(InvalidArgument, "instance {instance} is above {}", u16::MAX),
    }
}

/// `backups`: for each replica, or none.
pub fn messages(replicas: &[Replica], backups: &[Vec<Replica>]) -> Vec<p4::Replica> {
    let port = |replica: &Replica| value::from_value(&replica.port.into());
    let backup = |replica: &Replica| p4::BackupReplica { port: port(replica), instance: replica.rid.into() };
    let message = |(place, replica): (usize, &Replica)| p4::Replica {
        port_kind: Some(p4::replica::PortKind::Port(port(replica))),
        instance: replica.rid.into(),
        backup_replicas: backups.get(place).into_iter().flatten().map(backup).collect(),
    };
    replicas.iter().enumerate().map(message).collect()
}
