// SPDX-License-Identifier: Apache-2.0
//! Replicas between P4Runtime messages and the control API (P4Runtime 1.4, "PacketReplicationEngineEntry").

use apswitch_dataplane::control::{PortNumber, Replica};

use super::error::{Checked, refuse};
use super::proto::p4::v1 as p4;
use super::value;

/// `egress_spec` has 9 bits in v1model.
const MAX_PORT: u32 = 511;

/// Replicas as a client wrote them. backups: for each of them those that may take its place. numbered: for each, whether its
/// port came as `egress_port`, in which form it is read back; empty if none.
pub struct Replicas {
    pub replicas: Vec<Replica>,
    pub backups: Vec<Vec<Replica>>,
    pub numbered: Vec<bool>,
}

/// Return the replicas of an entry, or which of them is invalid.
pub fn replicas(messages: &[p4::Replica]) -> Checked<Replicas> {
    let mut replicas = Vec::with_capacity(messages.len());
    let mut backups = Vec::with_capacity(messages.len());
    let mut numbered = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        #[allow(deprecated)]
        let port = match &message.port_kind {
            Some(p4::replica::PortKind::Port(bytes)) => value::to_u32(bytes)?,
            Some(p4::replica::PortKind::EgressPort(number)) => {
                numbered.resize(messages.len(), false);
                numbered[place] = true;
                *number
            }
            None => return refuse!(InvalidArgument, "a replica has no port"),
        };
        replicas.push(replica(port, message.instance)?);
        let others = message.backup_replicas.iter();
        let others = others.map(|other| replica(value::to_u32(&other.port)?, other.instance));
        backups.push(others.collect::<Checked<_>>()?);
    }
    Ok(Replicas { replicas, backups, numbered })
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

/// Return replicas as they were written. `backups`, `numbered`: for each replica, or none.
pub fn messages(replicas: &[Replica], backups: &[Vec<Replica>], numbered: &[bool]) -> Vec<p4::Replica> {
    let port = |replica: &Replica| value::from_value(&replica.port.into());
    let backup = |replica: &Replica| p4::BackupReplica { port: port(replica), instance: replica.rid.into() };
    #[allow(deprecated)]
    let kind = |place, replica: &Replica| match numbered.get(place) {
        Some(true) => p4::replica::PortKind::EgressPort(replica.port.into()),
        _ => p4::replica::PortKind::Port(port(replica)),
    };
    let message = |(place, replica): (usize, &Replica)| p4::Replica {
        port_kind: Some(kind(place, replica)),
        instance: replica.rid.into(),
        backup_replicas: backups.get(place).into_iter().flatten().map(backup).collect(),
    };
    replicas.iter().enumerate().map(message).collect()
}
