// SPDX-License-Identifier: Apache-2.0
//! Role configurations: the rights of a role in the scheme of Stratum and finsy, `stratum.P4RoleConfig` (P4Runtime 1.4,
//! "Role Config").

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::error::{Code, Status};
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::entity::Entity;
use super::value;

/// Type name of the `Any` that holds a role configuration.
const TYPE: &str = "stratum.P4RoleConfig";
/// Ids that a role may list.
const MAX_ROLE_IDS: usize = 4096;

/// The message, as Stratum defines it.
#[derive(Clone, PartialEq, Message)]
struct P4RoleConfig {
    #[prost(uint32, repeated, tag = "1")]
    exclusive_p4_ids: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    shared_p4_ids: Vec<u32>,
    #[prost(message, optional, tag = "3")]
    packet_in_filter: Option<PacketFilter>,
    #[prost(bool, tag = "4")]
    receives_packet_ins: bool,
    #[prost(bool, tag = "5")]
    can_push_pipeline: bool,
}

#[derive(Clone, PartialEq, Message)]
struct PacketFilter {
    #[prost(uint32, tag = "1")]
    metadata_id: u32,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// A role's configuration, as it was sent and as it is asked.
#[derive(Debug, PartialEq)]
pub struct RoleConfig {
    pub message: prost_types::Any,
    exclusive: BTreeSet<u32>,
    shared: BTreeSet<u32>,
    /// A packet-in has to have this metadata with this value.
    filter: Option<(u32, Bytes)>,
    receives_packet_ins: bool,
    can_push_pipeline: bool,
}

impl RoleConfig {
    pub fn new(message: &prost_types::Any) -> Result<RoleConfig, Status> {
        let invalid = |reason: &str| Status::new(Code::InvalidArgument, format!("role.config: {reason}"));
        if message.type_url.rsplit('/').next() != Some(TYPE) {
            return Err(invalid(&format!("the scheme here is {TYPE}, or unset for full pipeline access")));
        }
        let Ok(config) = P4RoleConfig::decode(&message.value[..]) else {
            return Err(invalid(&format!("this is no {TYPE}")));
        };
        if config.exclusive_p4_ids.len() + config.shared_p4_ids.len() > MAX_ROLE_IDS {
            return Err(invalid(&format!("more than {MAX_ROLE_IDS} ids")));
        }
        let exclusive: BTreeSet<u32> = config.exclusive_p4_ids.into_iter().collect();
        let shared: BTreeSet<u32> = config.shared_p4_ids.into_iter().collect();
        if let Some(id) = exclusive.intersection(&shared).next() {
            return Err(invalid(&format!("id {id:#x} is both exclusive and shared")));
        }
        let filter = config.packet_in_filter.filter(|filter| filter.metadata_id != 0).map(|mut filter| {
            value::shorten(&mut filter.value);
            (filter.metadata_id, filter.value)
        });
        Ok(RoleConfig {
            message: message.clone(),
            exclusive,
            shared,
            filter,
            receives_packet_ins: config.receives_packet_ins,
            can_push_pipeline: config.can_push_pipeline,
        })
    }

    /// An id that both roles have and one of them wants for itself.
    pub fn conflict(&self, other: &RoleConfig) -> Option<u32> {
        let mine = self.exclusive.iter().find(|&&id| other.may_use(id));
        mine.or_else(|| other.exclusive.iter().find(|&&id| self.may_use(id))).copied()
    }

    fn may_use(&self, id: u32) -> bool {
        self.exclusive.contains(&id) || self.shared.contains(&id)
    }
}

/// Rights of a client: all, unless its role has a configuration.
#[derive(Clone, Debug, Default)]
pub struct Access(pub Option<Arc<RoleConfig>>);

impl Access {
    pub fn is_full(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if entities of the object with this P4Info id belong to the role.
    pub fn has(&self, id: u32) -> bool {
        self.0.as_ref().is_none_or(|config| config.may_use(id))
    }

    /// Returns true if the entity belongs to the role. Multicast groups and clone sessions have no id that a
    /// configuration could list.
    pub fn has_entity(&self, entity: &Entity) -> bool {
        self.is_full() || p4info_id(entity).is_some_and(|id| self.has(id))
    }

    pub fn gets_packet(&self, metadata: &[p4::PacketMetadata]) -> bool {
        let Some(config) = &self.0 else { return true };
        let passes = |(id, value): &(u32, Bytes)| metadata.iter().any(|m| m.metadata_id == *id && m.value == *value);
        config.receives_packet_ins && config.filter.as_ref().is_none_or(passes)
    }

    pub fn can_push_pipeline(&self) -> bool {
        self.0.as_ref().is_none_or(|config| config.can_push_pipeline)
    }
}

/// The id of what the entity belongs to.
fn p4info_id(entity: &Entity) -> Option<u32> {
    let of_table = |entry: &Option<p4::TableEntry>| entry.as_ref().map(|entry| entry.table_id);
    match entity {
        Entity::TableEntry(entry) => Some(entry.table_id),
        Entity::DirectCounterEntry(entry) => of_table(&entry.table_entry),
        Entity::DirectMeterEntry(entry) => of_table(&entry.table_entry),
        Entity::CounterEntry(entry) => Some(entry.counter_id),
        Entity::MeterEntry(entry) => Some(entry.meter_id),
        Entity::RegisterEntry(entry) => Some(entry.register_id),
        Entity::DigestEntry(entry) => Some(entry.digest_id),
        Entity::ActionProfileMember(entry) => Some(entry.action_profile_id),
        Entity::ActionProfileGroup(entry) => Some(entry.action_profile_id),
        Entity::ValueSetEntry(entry) => Some(entry.value_set_id),
        Entity::ExternEntry(entry) => Some(entry.extern_id),
        Entity::PacketReplicationEngineEntry(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(config: &P4RoleConfig) -> prost_types::Any {
        prost_types::Any { type_url: format!("type.googleapis.com/{TYPE}"), value: config.encode_to_vec() }
    }

    fn role(exclusive: &[u32], shared: &[u32]) -> RoleConfig {
        let (exclusive_p4_ids, shared_p4_ids) = (exclusive.to_vec(), shared.to_vec());
        RoleConfig::new(&any(&P4RoleConfig { exclusive_p4_ids, shared_p4_ids, ..Default::default() })).unwrap()
    }

    #[test]
    fn other_schemes_are_refused() {
        let good = any(&P4RoleConfig::default());
        assert!(RoleConfig::new(&good).is_ok());
        for bad in [
            prost_types::Any { type_url: "type.googleapis.com/p4.v1.Role".into(), ..good.clone() },
            prost_types::Any { value: vec![0xff; 5], ..good },
            any(&P4RoleConfig { exclusive_p4_ids: vec![1], shared_p4_ids: vec![1], ..Default::default() }),
            any(&P4RoleConfig { shared_p4_ids: (0..5000).collect(), ..Default::default() }),
        ] {
            assert_eq!(RoleConfig::new(&bad).unwrap_err().code, crate::error::Code::InvalidArgument);
        }
    }

    #[test]
    fn what_is_exclusive_is_nobody_elses() {
        assert_eq!(role(&[1], &[2]).conflict(&role(&[3], &[2])), None);
        assert_eq!(role(&[1], &[2]).conflict(&role(&[], &[1])), Some(1));
        assert_eq!(role(&[], &[2]).conflict(&role(&[2], &[])), Some(2));
        assert_eq!(role(&[4], &[]).conflict(&role(&[4], &[])), Some(4));
    }

    #[test]
    fn packet_ins_pass_the_filter() {
        let metadata = [p4::PacketMetadata { metadata_id: 1, value: Bytes::from_static(&[7]) }];
        let gets = |receives_packet_ins, filter: Option<(u32, &'static [u8])>| {
            let packet_in_filter =
                filter.map(|(metadata_id, value)| PacketFilter { metadata_id, value: Bytes::from_static(value) });
            let config = P4RoleConfig { receives_packet_ins, packet_in_filter, ..Default::default() };
            Access(Some(Arc::new(RoleConfig::new(&any(&config)).unwrap()))).gets_packet(&metadata)
        };
        assert!(Access::default().gets_packet(&metadata));
        assert!(!gets(false, None));
        assert!(gets(true, None));
        assert!(gets(true, Some((1, &[0, 7]))), "not canonical");
        assert!(!gets(true, Some((1, &[8]))));
        assert!(!gets(true, Some((2, &[7]))));
    }
}
