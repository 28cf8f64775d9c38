// SPDX-License-Identifier: Apache-2.0
//! `Write`: P4Runtime updates become updates of the data plane (P4Runtime 1.4, "Write RPC").
//!
//! A whole request is normally one message to the packet thread. The data plane knows what exists and how much fits;
//! here the shape of each update is checked. Each update has its own outcome; in a batch of which all updates take
//! effect or none, those that could have are `ABORTED`.

mod direct;

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::hash::Hash;
use std::ops::Deref;
use std::task::Poll;

use apswitch_dataplane::control::{
    CloneSession, ColourCounts, CounterValue, Dataplane, EntryAction, PortNumber, Replica, Replicated, TableId, Update,
};
use bytes::Bytes;
use prost::Message;

use super::digest::Digests;
use super::entry;
use super::error::{Checked, Code, MAX_ERROR_TEXTS, Status, refuse};
use super::names::Naming;
use super::profile;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::entity::Entity;
use super::proto::p4::v1::update::Type;
use super::replication::{self, Replicas};
use super::role::Access;
use super::schema::{Schema, Table, cells, known, table};

/// A longer request goes to the data plane in several messages.
const MAX_BATCH_LEN: usize = 8192;
/// Changes of an atomic batch at most, each cell and entry on its own.
const MAX_ATOMIC_CHANGES: usize = 1 << 20;
/// Updates after which streams get their turn.
const BREATH: usize = 512;
/// Bytes that a client may keep with a multicast group or a default action.
const MAX_METADATA_LEN: usize = 4096;

/// Counts of a meter that was cleared.
const NOTHING: ColourCounts = [CounterValue { packets: 0, bytes: 0 }; 3];

/// Data that clients may store and the data plane has no use for.
#[derive(Default)]
pub struct ClientMetadata {
    pub multicast_metadata: HashMap<u32, Bytes>,
    /// Replicas whose ports came as `egress_port`: for each of the entry, whether it did.
    pub numbered_ports: HashMap<Replicated, Vec<bool>>,
    pub default_cookies: HashMap<TableId, Vec<u8>>,
}

pub struct Writer<'a> {
    schema: &'a Schema,
    dataplane: &'a Dataplane,
    digests: &'a Digests,
    client_metadata: &'a mut ClientMetadata,
    access: Access,
    /// Ports that members of groups can watch.
    ports: Vec<PortNumber>,
    outcomes: Vec<Checked<()>>,
    /// Updates that were refused by their shape.
    failures: usize,
    /// The next message, and which of the request's updates each part belongs to.
    batch: Vec<Update>,
    owners: Vec<usize>,
    /// To note once the batch is in effect.
    noted: Vec<(usize, Note)>,
    /// The cells that a wildcard has named and the batch has no room for.
    rest: Option<Box<dyn Iterator<Item = Update> + Send>>,
    /// Configurations of digests after the batch.
    configs: BTreeMap<u32, Option<p4::digest_entry::Config>>,
}

/// Lets other tasks have their turn.
async fn breathe() {
    let mut is_over = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Keeps what a client wrote; nothing at all takes no place.
fn keep<K: Eq + Hash, T, V: Deref<Target = [T]>>(kept: &mut HashMap<K, V>, key: K, written: V) {
    if written.is_empty() {
        kept.remove(&key);
    } else {
        kept.insert(key, written);
    }
}

enum Note {
    Multicast(u32, Bytes),
    NumberedPorts(Replicated, Vec<bool>),
    Default(TableId, Vec<u8>),
}

impl<'a> Writer<'a> {
    pub fn new(
        schema: &'a Schema,
        dataplane: &'a Dataplane,
        digests: &'a Digests,
        client_metadata: &'a mut ClientMetadata,
        access: Access,
    ) -> Self {
        let (outcomes, failures, batch, owners, noted, rest, configs) = Default::default();
        let ports = dataplane.port_numbers();
        Writer {
            schema,
            dataplane,
            digests,
            client_metadata,
            access,
            ports,
            outcomes,
            failures,
            batch,
            owners,
            noted,
            rest,
            configs,
        }
    }

    /// Applies the updates in order, each on its own (CONTINUE_ON_ERROR); one outcome for each.
    pub async fn run(mut self, updates: Vec<Bytes>) -> Vec<Checked<()>> {
        self.batch.reserve(updates.len().min(MAX_BATCH_LEN));
        self.owners.reserve(updates.len().min(MAX_BATCH_LEN));
        for (number, update) in updates.into_iter().enumerate() {
            if number % BREATH == BREATH - 1 {
                breathe().await;
            }
            let outcome = self.update(update);
            self.end(outcome);
            while self.take_rest(MAX_BATCH_LEN) {
                self.flush().await;
            }
            if self.batch.len() >= MAX_BATCH_LEN {
                self.flush().await;
            }
        }
        self.flush().await;
        self.outcomes
    }

    /// Applies all updates or none (ROLLBACK_ON_ERROR); `at_once`: packets see all or none of them, too
    /// (DATAPLANE_ATOMIC). The error: this cannot be done.
    pub async fn run_all(mut self, updates: Vec<Bytes>, at_once: bool) -> Result<Vec<Checked<()>>, Status> {
        for (number, update) in updates.into_iter().enumerate() {
            if number % BREATH == BREATH - 1 {
                breathe().await;
            }
            let outcome = self.update(update);
            self.end(outcome);
            if self.take_rest(MAX_ATOMIC_CHANGES) || self.batch.len() > MAX_ATOMIC_CHANGES {
                let reason = format!("the updates change more than {MAX_ATOMIC_CHANGES} things together");
                return Err(Status::new(Code::ResourceExhausted, reason));
            }
        }
        if self.outcomes.iter().any(Result::is_err) {
            return Ok(aborted(self.outcomes));
        }
        if at_once {
            self.dataplane.check_at_once(&self.batch).map_err(|reason| Status::new(Code::Unimplemented, reason))?;
        }
        let before: Vec<_> = self.configs.keys().map(|&id| (id, self.digests.config(id))).collect();
        self.enable_digests();
        let (mut batch, mut written, mut undo) = (std::mem::take(&mut self.batch), 0, Vec::new());
        while !batch.is_empty() {
            let rest = batch.split_off(batch.len().min(MAX_BATCH_LEN));
            let number = batch.len();
            if let Err((place, error)) = self.dataplane.write_all(batch, at_once, &mut undo).await {
                self.dataplane.undo(undo).await;
                before.into_iter().for_each(|(id, config)| self.digests.configure(id, config));
                self.outcomes[self.owners[written + place]] = Err(error.into());
                return Ok(aborted(self.outcomes));
            }
            (batch, written) = (rest, written + number);
        }
        self.settle();
        Ok(self.outcomes)
    }

    /// Notes how an update ended. Of very many failures the texts are told to nobody, and not kept.
    fn end(&mut self, mut outcome: Checked<()>) {
        if let Err(refusal) = &mut outcome {
            self.failures += 1;
            if self.failures > MAX_ERROR_TEXTS {
                refusal.message = String::new();
            }
        }
        self.outcomes.push(outcome);
    }

    /// Brings the batch into effect.
    async fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.enable_digests();
        let results = self.dataplane.write(std::mem::take(&mut self.batch)).await;
        for (owner, result) in self.owners.drain(..).zip(results) {
            if let (Err(error), outcome @ Ok(())) = (result, &mut self.outcomes[owner]) {
                *outcome = Err(error.into());
            }
        }
        self.settle();
    }

    /// Enables digests before the data plane does, so that no sample comes without a queue.
    fn enable_digests(&mut self) {
        self.configs.iter().filter(|(_, config)| config.is_some()).for_each(|(&id, &config)| {
            self.digests.configure(id, config);
        });
    }

    /// Notes what the data plane has no use for, now that the batch is in effect.
    fn settle(&mut self) {
        for (id, config) in std::mem::take(&mut self.configs) {
            if config.is_none() {
                self.digests.configure(id, None);
            }
        }
        for (owner, note) in self.noted.drain(..) {
            match note {
                _ if self.outcomes[owner].is_err() => {}
                Note::Multicast(group, metadata) => keep(&mut self.client_metadata.multicast_metadata, group, metadata),
                Note::NumberedPorts(of, numbered) => keep(&mut self.client_metadata.numbered_ports, of, numbered),
                Note::Default(table, cookie) => keep(&mut self.client_metadata.default_cookies, table, cookie),
            }
        }
    }

    fn push(&mut self, update: Update) {
        self.batch.push(update);
        self.owners.push(self.outcomes.len());
    }

    /// Updates of all the cells that a wildcard names.
    fn spread(&mut self, mut updates: impl Iterator<Item = Update> + Send + 'static) {
        updates.by_ref().take(MAX_BATCH_LEN).for_each(|update| self.push(update));
        if updates.size_hint().1 != Some(0) {
            self.rest = Some(Box::new(updates));
        }
    }

    /// Lets the batch grow up to `most`; answers whether there is still something left.
    fn take_rest(&mut self, most: usize) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        let owner = self.outcomes.len() - 1;
        let before = self.batch.len();
        self.batch.extend(rest.take(most.saturating_sub(before)));
        self.owners.resize(self.batch.len(), owner);
        let left = self.batch.len() >= most;
        if !left {
            self.rest = None;
        }
        left
    }

    fn note(&mut self, note: Note) {
        self.noted.push((self.outcomes.len(), note));
    }

    /// `update`: as it came.
    fn update(&mut self, update: Bytes) -> Checked<()> {
        let update = read::<p4::Update>(update)?;
        let operation = match update.r#type() {
            Type::Unspecified => return refuse!(InvalidArgument, "the update has no type"),
            operation => operation,
        };
        let entity = update.entity.as_ref().and_then(|entity| entity.entity.as_ref());
        if entity.is_some_and(|entity| !self.access.has_entity(entity)) {
            return refuse!(PermissionDenied, "this is not the role's");
        }
        match entity {
            Some(Entity::TableEntry(message)) if message.is_default_action => self.default_entry(operation, message),
            Some(Entity::TableEntry(message)) => self.table_entry(operation, message),
            Some(Entity::DirectCounterEntry(message)) => self.direct_counter(operation, message),
            Some(Entity::DirectMeterEntry(message)) => self.direct_meter(operation, message),
            Some(Entity::CounterEntry(message)) => self.counter(operation, message),
            Some(Entity::MeterEntry(message)) => self.meter(operation, message),
            Some(Entity::RegisterEntry(message)) => self.register(operation, message),
            Some(Entity::PacketReplicationEngineEntry(message)) => self.replication(operation, message),
            Some(Entity::DigestEntry(message)) => self.digest(operation, message),
            Some(Entity::ActionProfileMember(message)) => self.member(operation, message),
            Some(Entity::ActionProfileGroup(message)) => self.group(operation, message),
            Some(Entity::ValueSetEntry(message)) => self.value_set(operation, message),
            Some(Entity::ExternEntry(_)) => refuse!(Unimplemented, "externs beyond v1model's are not supported"),
            None => refuse!(InvalidArgument, "the update has no entity"),
        }
    }

    fn table_entry(&mut self, operation: Type, message: &p4::TableEntry) -> Checked<()> {
        let table = table(self.schema, message.table_id)?;
        if message.is_const {
            return refuse!(InvalidArgument, "is_const cannot be written");
        }
        if table.is_const && (operation != Type::Modify || message.action.is_some()) {
            return refuse!(PermissionDenied, "the entries of table {} are constant", table.name);
        }
        if operation == Type::Insert && table.fields.is_empty() {
            return refuse!(InvalidArgument, "table {} has no key, so it has no entries", table.name);
        }
        let naming = if operation == Type::Insert { Naming::Give } else { Naming::Find };
        let key = entry::key(table, message, naming)?;
        if operation == Type::Delete {
            self.push(Update::DeleteEntry { table: table.target, key });
            return Ok(());
        }
        let cleared = entry::clears_colours(table, message)?;
        let action = match &message.action {
            Some(action) => profile::entry_action(self.schema, table, &self.ports, action)?,
            None if operation == Type::Insert => {
                return refuse!(InvalidArgument, "table {}: the entry has no action", table.name);
            }
            None => EntryAction::Same,
        };
        let entry = entry::entry(table, key, action, message)?;
        if table.is_const {
            // Only the direct resources of a constant entry can be modified.
            if entry.idle_timeout_ns != 0 || !entry.cookie.is_empty() {
                return refuse!(PermissionDenied, "the entries of table {} are constant", table.name);
            }
            let key = Some(entry.key.clone());
            if table.meter.is_some() {
                self.push(Update::SetDirectMeter { table: table.target, key: key.clone(), config: entry.meter });
            }
            if cleared {
                self.push(Update::SetDirectColours { table: table.target, key: key.clone(), value: NOTHING });
            }
            self.push(match entry.counter {
                Some(value) => Update::SetDirectCounter { table: table.target, key, value },
                None => Update::FindEntry { table: table.target, key: entry.key },
            });
            return Ok(());
        }
        if operation == Type::Insert {
            self.push(Update::InsertEntry(entry));
            return Ok(());
        }
        let (table, key) = (entry.table, cleared.then(|| entry.key.clone()));
        self.push(Update::ModifyEntry(entry));
        if cleared {
            self.push(Update::SetDirectColours { table, key, value: NOTHING });
        }
        Ok(())
    }

    fn counter(&mut self, operation: Type, message: &p4::CounterEntry) -> Checked<()> {
        only_modify(operation, "a counter")?;
        let counter = known(&self.schema.counters, "counter", message.counter_id)?;
        let cells = cells(&counter.name, message.index.as_ref(), counter.size)?;
        if let Some(data) = &message.data {
            let (counter, value) = (counter.target, entry::counter_value(data)?);
            self.spread(cells.map(move |index| Update::SetCounter { counter, index, value }));
        }
        Ok(())
    }

    fn meter(&mut self, operation: Type, message: &p4::MeterEntry) -> Checked<()> {
        only_modify(operation, "a meter")?;
        let cleared = entry::clears(message.counter_data.as_ref())?;
        let meter = known(&self.schema.meters, "meter", message.meter_id)?;
        let cells = cells(&meter.name, message.index.as_ref(), meter.size)?;
        let config = message.config.as_ref().map(|config| entry::meter_config(meter.kind, config)).transpose()?;
        let meter = meter.target;
        self.spread(cells.flat_map(move |index| {
            let clear = cleared.then_some(Update::SetColours { meter, index, value: NOTHING });
            std::iter::once(Update::SetMeter { meter, index, config }).chain(clear)
        }));
        Ok(())
    }

    fn register(&mut self, operation: Type, message: &p4::RegisterEntry) -> Checked<()> {
        only_modify(operation, "a register")?;
        let register = known(&self.schema.registers, "register", message.register_id)?;
        let cells = cells(&register.name, message.index.as_ref(), register.size)?;
        let values = register.element.decode(message.data.as_ref()).map_err(|e| e.at(&register.name))?;
        let [value] = &values[..] else {
            return refuse!(Unimplemented, "{}: only registers of a number can be written", register.name);
        };
        let (register, value) = (register.target, value.clone());
        self.spread(cells.map(move |index| Update::SetRegister { register, index, value: value.clone() }));
        Ok(())
    }

    fn member(&mut self, operation: Type, message: &p4::ActionProfileMember) -> Checked<()> {
        let known = known(&self.schema.profiles, "action profile", message.action_profile_id)?;
        let (profile, member) = (known.target, message.member_id);
        if operation == Type::Delete {
            self.push(Update::DeleteMember { profile, member });
            return Ok(());
        }
        let action = profile::member_action(self.schema, known, message)?;
        self.push(match operation {
            Type::Insert => Update::InsertMember { profile, member, action },
            _ => Update::ModifyMember { profile, member, action },
        });
        Ok(())
    }

    fn group(&mut self, operation: Type, message: &p4::ActionProfileGroup) -> Checked<()> {
        let known = known(&self.schema.profiles, "action profile", message.action_profile_id)?;
        let (profile, group) = (known.target, message.group_id);
        if operation == Type::Delete {
            self.push(Update::DeleteGroup { profile, group });
            return Ok(());
        }
        let value = profile::group(known, &self.ports, message)?;
        self.push(match operation {
            Type::Insert => Update::InsertGroup { profile, group, value },
            _ => Update::ModifyGroup { profile, group, value },
        });
        Ok(())
    }

    fn value_set(&mut self, operation: Type, message: &p4::ValueSetEntry) -> Checked<()> {
        only_modify(operation, "a value set")?;
        let known = known(&self.schema.value_sets, "value set", message.value_set_id)?;
        let members = profile::set_members(known, message)?;
        self.push(Update::SetValueSet { set: known.target, members });
        Ok(())
    }

    fn replication(&mut self, operation: Type, message: &p4::PacketReplicationEngineEntry) -> Checked<()> {
        use p4::packet_replication_engine_entry::Type as Entry;
        match &message.r#type {
            Some(Entry::MulticastGroupEntry(message)) => {
                let group = message.multicast_group_id;
                if group == 0 {
                    return refuse!(InvalidArgument, "multicast group 0 cannot be written");
                }
                if operation == Type::Delete {
                    self.push(Update::DeleteMulticastGroup { group });
                    self.note(Note::Multicast(group, Bytes::new()));
                    self.note(Note::NumberedPorts(Replicated::Group(group), Vec::new()));
                    return Ok(());
                }
                if message.metadata.len() > MAX_METADATA_LEN {
                    let reason = "bytes of metadata are the most";
                    return refuse!(ResourceExhausted, "multicast group {group}: {MAX_METADATA_LEN} {reason}");
                }
                let Replicas { replicas, backups, numbered } = replication::replicas(&message.replicas)
                    .map_err(|e| e.at(format_args!("multicast group {group}")))?;
                self.push(match operation {
                    Type::Insert => Update::InsertMulticastGroup { group, replicas },
                    _ => Update::ModifyMulticastGroup { group, replicas },
                });
                self.backups(Replicated::Group(group), backups);
                // A copy, so that it does not keep the whole request alive.
                self.note(Note::Multicast(group, Bytes::copy_from_slice(&message.metadata)));
                self.note(Note::NumberedPorts(Replicated::Group(group), numbered));
                Ok(())
            }
            Some(Entry::CloneSessionEntry(message)) => {
                let session = message.session_id;
                if session == 0 {
                    return refuse!(InvalidArgument, "clone session 0 cannot be written");
                }
                if operation == Type::Delete {
                    self.push(Update::DeleteCloneSession { session });
                    self.note(Note::NumberedPorts(Replicated::Session(session), Vec::new()));
                    return Ok(());
                }
                let Replicas { replicas, backups, numbered } = replication::replicas(&message.replicas)
                    .map_err(|e| e.at(format_args!("clone session {session}")))?;
                let queues = self.dataplane.queues();
                let class_of_service = match u8::try_from(message.class_of_service) {
                    Ok(class) if usize::from(class) < queues => class,
                    _ => {
                        let class = message.class_of_service;
                        return refuse!(
                            InvalidArgument,
                            "clone session {session}: class of service {class}: the ports have {queues} queues, from 0 on"
                        );
                    }
                };
                let Ok(packet_length_bytes) = u32::try_from(message.packet_length_bytes) else {
                    return refuse!(InvalidArgument, "clone session {session}: the packet length is negative");
                };
                let config = CloneSession { replicas, class_of_service, packet_length_bytes };
                self.push(match operation {
                    Type::Insert => Update::InsertCloneSession { session, config },
                    _ => Update::ModifyCloneSession { session, config },
                });
                self.backups(Replicated::Session(session), backups);
                self.note(Note::NumberedPorts(Replicated::Session(session), numbered));
                Ok(())
            }
            None => refuse!(InvalidArgument, "the packet replication engine entry is empty"),
        }
    }

    fn backups(&mut self, of: Replicated, backups: Vec<Vec<Replica>>) {
        if backups.iter().any(|others| !others.is_empty()) {
            self.push(Update::SetBackups { of, backups });
        }
    }

    fn digest(&mut self, operation: Type, message: &p4::DigestEntry) -> Checked<()> {
        let digest = known(&self.schema.digests, "digest", message.digest_id)?;
        let config = match (operation, message.config) {
            (Type::Delete, _) => None,
            (_, None) => return refuse!(InvalidArgument, "digest {}: there is no config", digest.name),
            (_, Some(c)) if c.max_timeout_ns < 0 || c.max_list_size < 0 || c.ack_timeout_ns < 0 => {
                return refuse!(InvalidArgument, "digest {}: the config has a negative value", digest.name);
            }
            (_, Some(config)) => Some(config),
        };
        let before = match self.configs.get(&message.digest_id) {
            Some(config) => *config,
            None => self.digests.config(message.digest_id),
        };
        match (operation, before.is_some()) {
            (Type::Insert, true) => return refuse!(AlreadyExists, "digest {} is enabled already", digest.name),
            (Type::Modify | Type::Delete, false) => return refuse!(NotFound, "digest {} is not enabled", digest.name),
            _ => {}
        }
        self.configs.insert(message.digest_id, config);
        let config =
            config.map(|c| apswitch_dataplane::control::DigestConfig { ack_timeout_ns: c.ack_timeout_ns as u64 });
        for &digest in &digest.targets {
            self.push(Update::SetDigest { digest, config });
        }
        Ok(())
    }
}

/// A part of a batch.
pub fn read<M: Message + Default>(part: Bytes) -> Checked<M> {
    match M::decode(part) {
        Ok(message) => Ok(message),
        Err(error) => refuse!(InvalidArgument, "this cannot be read: {error}"),
    }
}

/// The outcomes of a batch of which nothing took effect.
fn aborted(mut outcomes: Vec<Checked<()>>) -> Vec<Checked<()>> {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
        *outcome = refuse!(Aborted, "another update of the batch failed");
    }
    outcomes
}

fn only_modify(operation: Type, what: &str) -> Checked<()> {
    match operation {
        Type::Modify => Ok(()),
        _ => refuse!(InvalidArgument, "{what} can only be modified"),
    }
}
