// SPDX-License-Identifier: Apache-2.0
//! `Read`: entities as they are, with wildcards (P4Runtime 1.4, "Read RPC").
//!
//! A request is answered in two steps: a snapshot of what was written is taken while no write is under way, and turned
//! into messages afterwards, as fast as the client takes them. Nothing here reaches the packet thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use apswitch_dataplane::control::{
    ActionCall, ColourCounts, Dataplane, EntryAction, EntryKey, EntryView, MeterConfig, Replicated,
};
use bytes::Bytes;
use prost::Message;

use super::digest::Digests;
use super::entry::{self, Wanted, default_has_no_key};
use super::error::{Checked, Code, Refusal, refuse};
use super::fast_read;
use super::matching;
use super::names::Naming;
use super::pipeline::Pipeline;
use super::profile;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::entity::Entity;
use super::replication;
use super::role::Access;
use super::schema::{Counter, Meter, Profile, Register, Table, ValueSet, cells, known, table};
use super::write::{self, ClientMetadata};

/// One request of a batch: answered already, as those for single counters are, or as it came.
pub enum Asked {
    Answered(Checked<Answer>),
    Entity(Bytes),
}

/// Entries of a table, one after the other.
type Views = Box<dyn Iterator<Item = EntryView> + Send>;

/// The answer to one request of a batch: an entity, or many that are still to be turned into messages.
pub enum Answer {
    One(Option<Vec<u8>>),
    Many(Box<dyn Iterator<Item = Vec<u8>> + Send>),
}

impl Iterator for Answer {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        match self {
            Answer::One(entity) => entity.take(),
            Answer::Many(entities) => entities.next(),
        }
    }
}

/// The entries of which a direct counter or meter is asked for.
enum Direct<'a> {
    /// One that has to exist.
    One(&'a Table, EntryKey),
    /// The default entries of these tables.
    Defaults(Vec<&'a Table>),
    /// Entries of these tables, by id.
    Many(Vec<(u32, Views)>),
}

pub struct Reader<'a> {
    pub pipeline: &'a Arc<Pipeline>,
    pub dataplane: &'a Dataplane,
    pub digests: &'a Digests,
    pub client_metadata: &'a ClientMetadata,
    pub access: Access,
}

impl Reader<'_> {
    /// Answers a request if that takes no longer than to understand it.
    pub fn asked(&self, request: Bytes) -> Asked {
        if let Some((table, key, named)) = fast_read::counter_of(&self.pipeline.schema, &request)
            && self.access.has(table.id)
        {
            let value = self.dataplane.direct_counter(table.target, Some(&key));
            let answer = value.map(|value| Answer::One(Some(fast_read::counter_message(named, value))));
            return Asked::Answered(answer.map_err(Refusal::from));
        }
        if let Some((id, counter, index, named)) = fast_read::cell_of(&self.pipeline.schema, &request)
            && self.access.has(id)
        {
            let value = self.dataplane.counter(counter.target, index);
            let answer = value.map(|value| Answer::One(Some(fast_read::cell_message(named, value))));
            return Asked::Answered(answer.map_err(Refusal::from));
        }
        Asked::Entity(request)
    }

    /// Answers the request with the entities that belong to the role.
    pub fn answer(&self, asked: Asked) -> Checked<Answer> {
        let request = match asked {
            Asked::Answered(answer) => return answer,
            Asked::Entity(request) => write::read::<p4::Entity>(request)?,
        };
        match request.entity {
            Some(Entity::TableEntry(filter)) => self.table_entries(&filter),
            Some(Entity::DirectCounterEntry(filter)) => self.direct_counters(filter),
            Some(Entity::DirectMeterEntry(filter)) => self.direct_meters(filter),
            Some(Entity::CounterEntry(filter)) => self.counters(&filter),
            Some(Entity::MeterEntry(filter)) => self.meters(&filter),
            Some(Entity::RegisterEntry(filter)) => self.registers(&filter),
            Some(Entity::PacketReplicationEngineEntry(filter)) => self.replication(&filter),
            Some(Entity::DigestEntry(filter)) => self.digest_entries(&filter),
            Some(Entity::ActionProfileMember(filter)) => self.members(&filter),
            Some(Entity::ActionProfileGroup(filter)) => self.groups(&filter),
            Some(Entity::ValueSetEntry(filter)) => self.value_sets(&filter),
            // There are none, so all of them are no entities; one of them is an error.
            Some(Entity::ExternEntry(filter)) if filter.extern_type_id == 0 => Ok(none()),
            Some(Entity::ExternEntry(_)) => refuse!(Unimplemented, "externs beyond v1model's are not supported"),
            None => refuse!(InvalidArgument, "the request has no entity"),
        }
    }

    fn one(&self, entity: Entity) -> Answer {
        Answer::One(self.access.has_entity(&entity).then(|| encode(entity)))
    }

    fn many(&self, entities: impl Iterator<Item = Entity> + Send + 'static) -> Answer {
        let access = self.access.clone();
        Answer::Many(Box::new(entities.filter(move |entity| access.has_entity(entity)).map(encode)))
    }

    fn table_entries(&self, filter: &p4::TableEntry) -> Checked<Answer> {
        if filter.table_id == 0 {
            let tables = self.pipeline.schema.tables.values();
            return chain(tables.map(|table| self.entries_of(table, filter, false)));
        }
        let table = table(&self.pipeline.schema, filter.table_id)?;
        if filter.time_since_last_hit.is_some() && (!table.has_idle_timeout || filter.is_default_action) {
            return refuse!(InvalidArgument, "table {} has no idle timeout", table.name);
        }
        self.entries_of(table, filter, true)
    }

    /// The entries of a table that pass the filter; a wildcard over all tables has no filter.
    fn entries_of(&self, table: &Table, filter: &p4::TableEntry, filtered: bool) -> Checked<Answer> {
        if filter.is_default_action {
            return self.default_entry(table, filter, filtered);
        }
        let mut views = if filtered { self.matching(table, filter)? } else { self.snapshot(table)? };
        if filtered {
            let action = filter.action.as_ref().map(|action| filtered_action(table, action)).transpose()?.flatten();
            #[allow(deprecated)]
            let number = filter.controller_metadata;
            let metadata = filter.metadata.clone();
            let actions: Vec<_> = table.actions.iter().map(|action| (action.id, action.target)).collect();
            if action.is_some() || number != 0 || !metadata.is_empty() {
                views = Box::new(views.filter(move |view| {
                    let message = entry::split_cookie(&view.entry.cookie);
                    let is_it = |id, call: &ActionCall| actions.contains(&(id, call.action));
                    action.is_none_or(|id| matches!(&view.entry.action, EntryAction::Call(call) if is_it(id, call)))
                        && (number == 0 || number == message.0)
                        && (metadata.is_empty() || metadata == message.1)
                }));
            }
        }
        let wanted = Wanted {
            counter: filter.counter_data.is_some() && table.has_counter,
            meter: filter.meter_config.is_some() && table.meter.is_some(),
            colours: filter.meter_counter_data.is_some() && table.meter.is_some(),
            time_since_last_hit: filter.time_since_last_hit.is_some() && table.has_idle_timeout,
        };
        let (pipeline, id) = (self.pipeline.clone(), table.id);
        Ok(self.many(views.filter_map(move |view| {
            let table = pipeline.schema.tables.get(&id)?;
            entry::to_message(&pipeline.schema, table, &view, &wanted).map(Entity::TableEntry)
        })))
    }

    /// All entries of a table, as they are now.
    fn snapshot(&self, table: &Table) -> Checked<Views> {
        Ok(Box::new(self.dataplane.snapshot(table.target)?))
    }

    /// The entries that a match and a priority name, each of which may be left out.
    fn matching(&self, table: &Table, filter: &p4::TableEntry) -> Checked<Views> {
        match self.named(table, filter) {
            Err(refusal) if refusal.code == Code::NotFound => Ok(Box::new(std::iter::empty())),
            found => found,
        }
    }

    /// Finds entries as [`Reader::matching`] does; one that is absent is an error.
    fn named(&self, table: &Table, filter: &p4::TableEntry) -> Checked<Views> {
        let priority = filter.priority;
        if filter.r#match.is_empty() {
            let views = self.snapshot(table)?;
            return Ok(match priority {
                0 => views,
                _ => Box::new(views.filter(move |view| view.entry.key.priority == priority)),
            });
        }
        if table.has_priority && priority == 0 {
            let fields = matching::match_fields(&table.name, &table.fields, &filter.r#match, Naming::Find)?;
            return Ok(Box::new(self.snapshot(table)?.filter(move |view| view.entry.key.fields == fields)));
        }
        let view = self.dataplane.entry(table.target, &entry::key(table, filter, Naming::Find)?)?;
        Ok(Box::new(std::iter::once(view)))
    }

    fn default_entry(&self, table: &Table, filter: &p4::TableEntry, filtered: bool) -> Checked<Answer> {
        if filtered {
            default_has_no_key(table, filter)?;
        }
        let action = match self.dataplane.default_action(table.target)? {
            Some(call) => entry::action_message(&self.pipeline.schema, table, &call),
            // p4c writes none for these tables, and P4Runtime makes it NoAction (1.5, "Default Entry").
            None => match entry::no_action(&self.pipeline.schema, table).filter(|_| table.profile.is_some()) {
                Some(action) => Some(action),
                None => return Ok(none()),
            },
        };
        let cookie = self.client_metadata.default_cookies.get(&table.target).map_or(&[][..], |cookie| cookie);
        let (controller_metadata, metadata) = entry::split_cookie(cookie);
        #[allow(deprecated)]
        let mut message = p4::TableEntry {
            is_const: table.const_default,
            action,
            controller_metadata,
            metadata,
            ..default_key(table.id)
        };
        if filter.counter_data.is_some() && table.has_counter {
            let value = self.dataplane.direct_counter(table.target, None)?;
            message.counter_data = Some(entry::counter_message(value));
        }
        if filter.meter_config.is_some() && table.meter.is_some() {
            message.meter_config = self.dataplane.default_meter(table.target)?.map(entry::meter_message);
        }
        if filter.meter_counter_data.is_some() && table.meter.is_some() {
            let colours = self.dataplane.direct_colours(table.target, None)?;
            message.meter_counter_data = Some(entry::colours_message(colours));
        }
        Ok(self.one(Entity::TableEntry(message)))
    }

    /// The entries whose direct resources are asked for.
    fn direct(&self, filter: Option<&p4::TableEntry>, has: fn(&Table) -> bool, what: &str) -> Checked<Direct<'_>> {
        let Some(filter) = filter else {
            return refuse!(InvalidArgument, "there is no table entry");
        };
        if filter.table_id == 0 {
            let tables = self.pipeline.schema.tables.values().filter(|table| has(table));
            if filter.is_default_action {
                return Ok(Direct::Defaults(tables.collect()));
            }
            let found = tables.map(|table| Ok((table.id, self.snapshot(table)?)));
            return found.collect::<Checked<_>>().map(Direct::Many);
        }
        let table = table(&self.pipeline.schema, filter.table_id)?;
        if !has(table) {
            return refuse!(InvalidArgument, "table {} has no direct {what}", table.name);
        }
        if filter.is_default_action {
            default_has_no_key(table, filter)?;
            return Ok(Direct::Defaults(vec![table]));
        }
        match filter.r#match.is_empty() || (table.has_priority && filter.priority == 0) {
            true => Ok(Direct::Many(vec![(table.id, self.matching(table, filter)?)])),
            false => Ok(Direct::One(table, entry::key(table, filter, Naming::Find)?)),
        }
    }

    fn direct_counters(&self, filter: p4::DirectCounterEntry) -> Checked<Answer> {
        let message = |table_entry, value| {
            let data = Some(entry::counter_message(value));
            Entity::DirectCounterEntry(p4::DirectCounterEntry { table_entry, data })
        };
        match self.direct(filter.table_entry.as_ref(), |table| table.has_counter, "counter")? {
            Direct::One(table, key) => {
                let named = filter.table_entry.map(entry::canonical_key);
                Ok(self.one(message(named, self.dataplane.direct_counter(table.target, Some(&key))?)))
            }
            Direct::Defaults(tables) => chain(tables.into_iter().map(|table| {
                let value = self.dataplane.direct_counter(table.target, None)?;
                Ok(self.one(message(Some(default_key(table.id)), value)))
            })),
            Direct::Many(found) => Ok(self.each_entry(found, move |table, view| {
                message(Some(entry::key_message(table, &view.entry)), view.entry.counter.unwrap_or_default())
            })),
        }
    }

    fn direct_meters(&self, filter: p4::DirectMeterEntry) -> Checked<Answer> {
        let asked = filter.counter_data.is_some();
        let message = move |table_entry, config: Option<MeterConfig>, colours: Option<ColourCounts>| {
            let config = config.map(entry::meter_message);
            let counter_data = colours.filter(|_| asked).map(entry::colours_message);
            Entity::DirectMeterEntry(p4::DirectMeterEntry { table_entry, config, counter_data })
        };
        match self.direct(filter.table_entry.as_ref(), |table| table.meter.is_some(), "meter")? {
            Direct::One(table, key) => {
                let named = filter.table_entry.map(entry::canonical_key);
                let view = self.dataplane.entry(table.target, &key)?;
                Ok(self.one(message(named, view.entry.meter, view.colours)))
            }
            Direct::Defaults(tables) => chain(tables.into_iter().map(|table| {
                let config = self.dataplane.default_meter(table.target)?;
                let colours = self.dataplane.direct_colours(table.target, None)?;
                Ok(self.one(message(Some(default_key(table.id)), config, Some(colours))))
            })),
            Direct::Many(found) => Ok(self.each_entry(found, move |table, view| {
                message(Some(entry::key_message(table, &view.entry)), view.entry.meter, view.colours)
            })),
        }
    }

    fn each_entry(
        &self,
        found: Vec<(u32, Views)>,
        message: impl Fn(&Table, EntryView) -> Entity + Send + 'static,
    ) -> Answer {
        let pipeline = self.pipeline.clone();
        let views = found.into_iter().flat_map(|(id, views)| views.map(move |view| (id, view)));
        self.many(views.filter_map(move |(id, view)| Some(message(pipeline.schema.tables.get(&id)?, view))))
    }

    fn counters(&self, filter: &p4::CounterEntry) -> Checked<Answer> {
        let read = |(&id, counter): (&u32, &Counter)| -> Checked<Answer> {
            let cells = cells(&counter.name, filter.index.as_ref(), counter.size)?;
            if filter.index.is_some() {
                let data = Some(entry::counter_message(self.dataplane.counter(counter.target, cells.start)?));
                return Ok(self.one(Entity::CounterEntry(p4::CounterEntry {
                    counter_id: id,
                    index: filter.index,
                    data,
                })));
            }
            let values = self.dataplane.counter_cells(counter.target)?;
            Ok(self.many(cells.map(move |index| {
                let data = Some(entry::counter_message(values[index].value()));
                Entity::CounterEntry(p4::CounterEntry {
                    counter_id: id,
                    index: Some(p4::Index { index: index as i64 }),
                    data,
                })
            })))
        };
        match filter.counter_id {
            0 => chain(self.pipeline.schema.counters.iter().map(read)),
            id => read((&id, known(&self.pipeline.schema.counters, "counter", id)?)),
        }
    }

    fn meters(&self, filter: &p4::MeterEntry) -> Checked<Answer> {
        let asked = filter.counter_data.is_some();
        let read = |(&id, meter): (&u32, &Meter)| -> Checked<Answer> {
            let cells = cells(&meter.name, filter.index.as_ref(), meter.size)?;
            let configs = self.dataplane.meters(meter.target, cells.clone())?;
            let colours = self.dataplane.colour_cells(meter.target)?;
            Ok(self.many(cells.zip(configs).map(move |(index, config)| {
                let colours = asked.then(|| colours[index].each_ref().map(|cell| cell.value()));
                let (index, config) = (Some(p4::Index { index: index as i64 }), config.map(entry::meter_message));
                let counter_data = colours.map(entry::colours_message);
                Entity::MeterEntry(p4::MeterEntry { meter_id: id, index, config, counter_data })
            })))
        };
        match filter.meter_id {
            0 => chain(self.pipeline.schema.meters.iter().map(read)),
            id => read((&id, known(&self.pipeline.schema.meters, "meter", id)?)),
        }
    }

    fn registers(&self, filter: &p4::RegisterEntry) -> Checked<Answer> {
        let read = |(&id, register): (&u32, &Register)| -> Checked<Answer> {
            let cells = cells(&register.name, filter.index.as_ref(), register.size)?;
            let values = self.dataplane.register_cells(register.target)?;
            let element = register.element.clone();
            Ok(self.many(cells.map(move |index| {
                let data = element.encode(&[values.read(index)]);
                let index = Some(p4::Index { index: index as i64 });
                Entity::RegisterEntry(p4::RegisterEntry { register_id: id, index, data })
            })))
        };
        match filter.register_id {
            0 => chain(self.pipeline.schema.registers.iter().map(read)),
            id => read((&id, known(&self.pipeline.schema.registers, "register", id)?)),
        }
    }

    fn members(&self, filter: &p4::ActionProfileMember) -> Checked<Answer> {
        let schema = &self.pipeline.schema;
        let read = |(&id, profile): (&u32, &Profile)| -> Checked<Answer> {
            let members = match filter.member_id {
                0 => self.dataplane.profile_members(profile.target)?,
                id => vec![(id, self.dataplane.profile_member(profile.target, id)?)],
            };
            let message = |(member_id, call)| {
                let action = Some(entry::call_message(schema, &profile.actions, &call)?);
                Some(Entity::ActionProfileMember(p4::ActionProfileMember { action_profile_id: id, member_id, action }))
            };
            Ok(self.many(members.into_iter().filter_map(message).collect::<Vec<_>>().into_iter()))
        };
        match filter.action_profile_id {
            0 => chain(schema.profiles.iter().map(read)),
            id => read((&id, known(&schema.profiles, "action profile", id)?)),
        }
    }

    fn groups(&self, filter: &p4::ActionProfileGroup) -> Checked<Answer> {
        let schema = &self.pipeline.schema;
        let read = |(&id, profile): (&u32, &Profile)| -> Checked<Answer> {
            let groups = match filter.group_id {
                0 => self.dataplane.profile_groups(profile.target)?,
                id => vec![(id, self.dataplane.profile_group(profile.target, id)?)],
            };
            let message =
                |(group, value)| Entity::ActionProfileGroup(profile::group_message(id, profile, group, &value));
            Ok(self.many(groups.into_iter().map(message).collect::<Vec<_>>().into_iter()))
        };
        match filter.action_profile_id {
            0 => chain(schema.profiles.iter().map(read)),
            id => read((&id, known(&schema.profiles, "action profile", id)?)),
        }
    }

    fn value_sets(&self, filter: &p4::ValueSetEntry) -> Checked<Answer> {
        let schema = &self.pipeline.schema;
        let read = |(&id, set): (&u32, &ValueSet)| -> Checked<Answer> {
            let members = self.dataplane.value_set(set.target)?;
            Ok(self.one(Entity::ValueSetEntry(profile::set_message(id, set, &members))))
        };
        match filter.value_set_id {
            0 => chain(schema.value_sets.iter().map(read)),
            id => read((&id, known(&schema.value_sets, "value set", id)?)),
        }
    }

    fn replication(&self, filter: &p4::PacketReplicationEngineEntry) -> Checked<Answer> {
        use p4::packet_replication_engine_entry::Type;
        let wrap =
            |entry| Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry { r#type: Some(entry) });
        match &filter.r#type {
            Some(Type::MulticastGroupEntry(filter)) => {
                let id = filter.multicast_group_id;
                let groups = self.dataplane.multicast_groups(Some(id).filter(|&id| id != 0));
                check_found(&groups, id, "multicast group")?;
                let metadata = |group| self.client_metadata.multicast_metadata.get(&group).cloned().unwrap_or_default();
                let numbered = |group| self.numbered_ports(Replicated::Group(group));
                let groups: Vec<_> =
                    groups.into_iter().map(|(id, group)| (id, group, metadata(id), numbered(id))).collect();
                Ok(self.many(groups.into_iter().map(
                    move |(multicast_group_id, (group, backups), metadata, numbered)| {
                        let replicas = replication::messages(&group, &backups, &numbered);
                        let entry = p4::MulticastGroupEntry { multicast_group_id, replicas, metadata };
                        wrap(Type::MulticastGroupEntry(entry))
                    },
                )))
            }
            Some(Type::CloneSessionEntry(filter)) => {
                let id = filter.session_id;
                let sessions = self.dataplane.clone_sessions(Some(id).filter(|&id| id != 0));
                check_found(&sessions, id, "clone session")?;
                let numbered = |session| self.numbered_ports(Replicated::Session(session));
                let sessions: Vec<_> = sessions.into_iter().map(|(id, session)| (id, session, numbered(id))).collect();
                Ok(self.many(sessions.into_iter().map(move |(session_id, (session, backups), numbered)| {
                    wrap(Type::CloneSessionEntry(p4::CloneSessionEntry {
                        session_id,
                        replicas: replication::messages(&session.replicas, &backups, &numbered),
                        class_of_service: session.class_of_service.into(),
                        packet_length_bytes: session.packet_length_bytes as i32,
                    }))
                })))
            }
            None => refuse!(InvalidArgument, "the packet replication engine entry is empty"),
        }
    }

    fn numbered_ports(&self, of: Replicated) -> Vec<bool> {
        self.client_metadata.numbered_ports.get(&of).cloned().unwrap_or_default()
    }

    fn digest_entries(&self, filter: &p4::DigestEntry) -> Checked<Answer> {
        let ids: Vec<u32> = match filter.digest_id {
            0 => self.pipeline.schema.digests.keys().copied().collect(),
            id => {
                let digest = known(&self.pipeline.schema.digests, "digest", id)?;
                match self.digests.config(id) {
                    Some(_) => vec![id],
                    None => return refuse!(NotFound, "digest {} is not enabled", digest.name),
                }
            }
        };
        let entry = |digest_id| {
            self.digests.config(digest_id).map(|config| p4::DigestEntry { digest_id, config: Some(config) })
        };
        Ok(self.many(ids.into_iter().filter_map(entry).map(Entity::DigestEntry).collect::<Vec<_>>().into_iter()))
    }
}

/// Returns the key that names a table's default entry.
fn default_key(table_id: u32) -> p4::TableEntry {
    p4::TableEntry { table_id, is_default_action: true, ..Default::default() }
}

fn encode(entity: Entity) -> Vec<u8> {
    p4::Entity { entity: Some(entity) }.encode_to_vec()
}

fn none() -> Answer {
    Answer::One(None)
}

/// All answers one after the other, or the first refusal.
fn chain(answers: impl Iterator<Item = Checked<Answer>>) -> Checked<Answer> {
    Ok(Answer::Many(Box::new(answers.collect::<Checked<Vec<Answer>>>()?.into_iter().flatten())))
}

/// Checks that the object asked for exists; id 0 asks for all.
fn check_found<T>(found: &BTreeMap<u32, T>, id: u32, what: &str) -> Checked<()> {
    match id != 0 && found.is_empty() {
        true => refuse!(NotFound, "there is no {what} {id}"),
        false => Ok(()),
    }
}

/// The action that entries are selected by. Members, groups and one-shot sets select nothing, as in BMv2: a client may
/// read an entry as it has written it (p4runtime-shell does).
fn filtered_action(table: &Table, action: &p4::TableAction) -> Checked<Option<u32>> {
    match &action.r#type {
        Some(p4::table_action::Type::Action(_)) if table.profile.is_some() => {
            refuse!(InvalidArgument, "table {}: its entries have no actions of their own", table.name)
        }
        Some(p4::table_action::Type::Action(action)) if table.actions.iter().any(|a| a.id == action.action_id) => {
            Ok(Some(action.action_id))
        }
        Some(p4::table_action::Type::Action(action)) => {
            refuse!(InvalidArgument, "table {} has no action {:#x}", table.name, action.action_id)
        }
        _ if table.profile.is_some() => Ok(None),
        _ => refuse!(InvalidArgument, "table {}: its entries have no members and groups", table.name),
    }
}
