// SPDX-License-Identifier: Apache-2.0
//! RECONCILE_AND_COMMIT: what is written under the running pipeline, as updates for its successor.
//!
//! Only a successor with the same P4Info can keep all of it; this is what a change of the program behind the same
//! tables needs. Between the two pipelines packets meet empty tables for a moment.

use std::sync::Arc;

use super::error::{Checked, refuse};
use super::pipeline::Pipeline;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::entity::Entity;
use super::proto::p4::v1::get_forwarding_pipeline_config_request::ResponseType;
use super::proto::p4::v1::packet_replication_engine_entry::Type as Replication;
use super::proto::p4::v1::update::Type;
use super::read::Reader;
use super::stream::Digests;
use super::write::Notes;
use crate::control::Dataplane;

/// The updates that bring the present state back.
pub fn keep(
    running: &Arc<Pipeline>,
    next: &Pipeline,
    dataplane: &Dataplane,
    digests: &Digests,
    notes: &Notes,
) -> Checked<Vec<p4::Update>> {
    let p4info = |pipeline: &Pipeline| pipeline.config(ResponseType::P4infoAndCookie).p4info;
    if p4info(running) != p4info(next) {
        return refuse!(InvalidArgument, "the state can only be kept under an unchanged P4Info");
    }
    let reader = Reader { pipeline: running, dataplane, digests, notes };
    let mut updates = Vec::new();
    for everything in wildcards() {
        let answer = reader.read(&p4::Entity { entity: Some(everything) })?;
        updates.extend(answer.filter_map(update));
    }
    Ok(updates)
}

/// The updates that take away the entries that a program starts with: which of them are there was written, too.
pub fn clear(reader: &Reader) -> Checked<Vec<p4::Update>> {
    let entries = reader.read(&p4::Entity { entity: Some(Entity::TableEntry(Default::default())) })?;
    let written = entries.filter(|entity| matches!(entity, Entity::TableEntry(entry) if !entry.is_const));
    let delete = |entity| p4::Update { r#type: Type::Delete as i32, entity: Some(p4::Entity { entity: Some(entity) }) };
    Ok(written.map(delete).collect())
}

/// In the order in which they can be written.
fn wildcards() -> [Entity; 11] {
    let entries = p4::TableEntry {
        meter_config: Some(Default::default()),
        counter_data: Some(Default::default()),
        ..Default::default()
    };
    let replication =
        |entry| Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry { r#type: Some(entry) });
    [
        Entity::ActionProfileMember(Default::default()),
        Entity::ActionProfileGroup(Default::default()),
        Entity::ValueSetEntry(Default::default()),
        Entity::TableEntry(entries),
        Entity::TableEntry(p4::TableEntry { is_default_action: true, ..Default::default() }),
        Entity::CounterEntry(Default::default()),
        Entity::MeterEntry(Default::default()),
        Entity::RegisterEntry(Default::default()),
        Entity::DigestEntry(Default::default()),
        replication(Replication::MulticastGroupEntry(Default::default())),
        replication(Replication::CloneSessionEntry(Default::default())),
    ]
}

/// The update that writes what was read, or `None` for what the program brings itself.
fn update(entity: Entity) -> Option<p4::Update> {
    let operation = match &entity {
        Entity::TableEntry(entry) if entry.is_const => return None,
        Entity::TableEntry(entry) if !entry.is_default_action => Type::Insert,
        Entity::ActionProfileMember(_) | Entity::ActionProfileGroup(_) => Type::Insert,
        Entity::PacketReplicationEngineEntry(_) | Entity::DigestEntry(_) => Type::Insert,
        _ => Type::Modify,
    };
    Some(p4::Update { r#type: operation as i32, entity: Some(p4::Entity { entity: Some(entity) }) })
}
