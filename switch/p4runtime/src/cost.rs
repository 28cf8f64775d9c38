// SPDX-License-Identifier: Apache-2.0
//! Cost of a `Read`, counted before anything is collected.

use apswitch_dataplane::control::MeterConfig;

use super::error::{Checked, refuse};
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::entity::Entity;
use super::proto::p4::v1::packet_replication_engine_entry::Type;
use super::read::{Asked, Reader};
use super::schema::Table;
use super::write;

/// Entities that a `Read` may go through, and bytes that it may copy.
const MAX_READ_ENTITIES: usize = 1 << 24;
const MAX_READ_BYTES: usize = 192 << 20;
/// Entities of a read that is answered at once; a larger one is answered while others are served.
const FEW_ENTITIES: usize = 4096;
const FEW_BYTES: usize = 1 << 20;
/// Bytes that an entity which is answered at once holds until it is sent; and one that is copied.
const ANSWER: usize = 128;
const COPY: usize = 64;

/// Entities to go through and bytes to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    entities: usize,
    pub bytes: usize,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.entities = self.entities.saturating_add(other.entities);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    pub fn is_small(&self) -> bool {
        self.entities <= FEW_ENTITIES && self.bytes <= FEW_BYTES
    }

    fn check(&self) -> Checked<()> {
        for (number, most, what) in
            [(self.entities, MAX_READ_ENTITIES, "entities"), (self.bytes, MAX_READ_BYTES, "bytes to copy")]
        {
            if number > most {
                return refuse!(
                    ResourceExhausted,
                    "a Read of {number} {what}: {most} are the most: ask for less at once"
                );
            }
        }
        Ok(())
    }
}

/// An entity with what goes with it.
const ONE: Cost = Cost { entities: 1, bytes: ANSWER };

fn copies(entities: usize, bytes: usize) -> Cost {
    Cost { entities: entities.max(1), bytes: entities.saturating_mul(bytes).max(ANSWER) }
}

impl Reader<'_> {
    /// Returns the cost of all the requests, or a refusal when it is too high.
    pub fn cost(&self, asked: &[Asked]) -> Checked<Cost> {
        let mut cost = Cost::default();
        for asked in asked {
            cost.add(match asked {
                Asked::Answered(_) => ONE,
                Asked::Entity(request) => match write::read::<p4::Entity>(request.clone()) {
                    Ok(p4::Entity { entity: Some(entity) }) => self.cost_of(&entity),
                    _ => ONE,
                },
            });
            cost.check()?;
        }
        Ok(cost)
    }

    fn cost_of(&self, entity: &Entity) -> Cost {
        let schema = &self.pipeline.schema;
        let indexed = |index: &Option<p4::Index>, size: usize, bytes: usize| match index {
            Some(_) => ONE,
            None => copies(size, bytes),
        };
        match entity {
            Entity::TableEntry(filter) => self.cost_of_entries(filter, |_| true),
            Entity::DirectCounterEntry(p4::DirectCounterEntry { table_entry: Some(filter), .. }) => {
                self.cost_of_entries(filter, |table| table.has_counter)
            }
            Entity::DirectMeterEntry(p4::DirectMeterEntry { table_entry: Some(filter), .. }) => {
                self.cost_of_entries(filter, |table| table.meter.is_some())
            }
            Entity::CounterEntry(filter) => {
                let counters = named(&schema.counters, filter.counter_id);
                sum(counters.map(|counter| indexed(&filter.index, counter.size, 0)))
            }
            Entity::MeterEntry(filter) => {
                let meters = named(&schema.meters, filter.meter_id);
                sum(meters.map(|meter| indexed(&filter.index, meter.size, size_of::<Option<MeterConfig>>())))
            }
            Entity::RegisterEntry(filter) => {
                let registers = named(&schema.registers, filter.register_id);
                sum(registers.map(|register| indexed(&filter.index, register.size, 0)))
            }
            Entity::ActionProfileMember(p4::ActionProfileMember { action_profile_id, member_id: id, .. })
            | Entity::ActionProfileGroup(p4::ActionProfileGroup { action_profile_id, group_id: id, .. }) => {
                let number = |target| self.dataplane.profile_size(target).unwrap_or(0);
                let profiles = named(&schema.profiles, *action_profile_id);
                sum(profiles.map(|profile| match id {
                    0 => copies(number(profile.target), 4 * COPY),
                    _ => ONE,
                }))
            }
            Entity::PacketReplicationEngineEntry(entry) => match &entry.r#type {
                Some(Type::MulticastGroupEntry(p4::MulticastGroupEntry { multicast_group_id: 0, .. }))
                | Some(Type::CloneSessionEntry(p4::CloneSessionEntry { session_id: 0, .. })) => {
                    copies(self.dataplane.replicas(), COPY)
                }
                // One may have thousands of replicas.
                _ => Cost { entities: 1, bytes: 64 * ANSWER },
            },
            Entity::ValueSetEntry(filter) => {
                sum(named(&schema.value_sets, filter.value_set_id).map(|_| Cost { entities: 1, bytes: 64 * ANSWER }))
            }
            Entity::DigestEntry(_) => copies(schema.digests.len(), COPY),
            Entity::DirectCounterEntry(_) | Entity::DirectMeterEntry(_) | Entity::ExternEntry(_) => ONE,
        }
    }

    fn cost_of_entries(&self, filter: &p4::TableEntry, has: fn(&Table) -> bool) -> Cost {
        let tables = named(&self.pipeline.schema.tables, filter.table_id).filter(|table| has(table));
        sum(tables.map(|table| {
            let is_one = !filter.r#match.is_empty() && (!table.has_priority || filter.priority != 0);
            match filter.is_default_action || is_one {
                true => ONE,
                false => {
                    let (entities, bytes) = self.dataplane.snapshot_size(table.target).unwrap_or_default();
                    Cost { entities: entities.max(1), bytes: bytes.max(ANSWER) }
                }
            }
        }))
    }
}

/// The one of that id, if there is one, or all for id 0.
fn named<T>(objects: &std::collections::BTreeMap<u32, T>, id: u32) -> impl Iterator<Item = &T> {
    objects.iter().filter(move |(own, _)| id == 0 || **own == id).map(|(_, object)| object)
}

/// Adds costs; each is at least that of a refusal.
fn sum(costs: impl Iterator<Item = Cost>) -> Cost {
    let mut all = ONE;
    costs.for_each(|cost| all.add(cost));
    all
}
