// SPDX-License-Identifier: Apache-2.0
//! Ties a P4Info to the program that was loaded beside it, object by object; the first that differs is named.

use std::collections::{BTreeMap, BTreeSet};

use apswitch_core::program::TableInfo;
use apswitch_dataplane::control::{
    CounterId, DigestId, MatchKind, MeterId, MeterUnit, ProfileId, Program, RegisterId, TableId, ValueSetId,
};

use super::{
    Action, Counter, Digest, MatchField, Meter, Param, Profile, Register, Schema, Scope, SizeSemantics, Table,
    TableAction, ValueSet, counts_members,
};
use crate::data::{self, DataType};
use crate::error::{Checked, refuse};
use crate::header;
use crate::proto::p4::config::v1 as info;
use crate::translation::{SdnType, Types};

impl Schema {
    /// Ties `p4info` to `program`; the refusal names the object that differs.
    pub fn new(p4info: &info::P4Info, program: &Program) -> Checked<Schema> {
        let mut schema = Schema::default();
        unsupported(p4info)?;
        let types = Types::new(p4info.type_info.as_ref());
        for action in &p4info.actions {
            let (id, name) = identity(&action.preamble, "action")?;
            let loaded = program.actions.iter().find(|known| known.name == name);
            let params = action.params.iter().enumerate().map(|(at, p)| {
                let bitwidth = p.bitwidth.max(0) as u32;
                let width = loaded.and_then(|known| known.params.get(at)).map_or(bitwidth, |there| there.width.into());
                let sdn_type = SdnType::new(p.type_name.as_ref(), &types, p.bitwidth, width)
                    .map_err(|e| e.at(format!("action {name}: parameter {}", p.name)))?;
                Ok(Param { id: p.id, name: p.name.clone(), width, sdn_type })
            });
            let params = params.collect::<Checked<_>>()?;
            insert(&mut schema.actions, "action", id, Action { name, params })?;
        }
        for profile in &p4info.action_profiles {
            let (id, name) = identity(&profile.preamble, "action profile")?;
            let found = schema
                .profile(name.clone(), profile, p4info, program)
                .map_err(|e| e.at(format!("action profile {name}")))?;
            insert(&mut schema.profiles, "action profile", id, found)?;
        }
        for set in &p4info.value_sets {
            let (id, name) = identity(&set.preamble, "value set")?;
            let found = value_set(name.clone(), set, &types, program).map_err(|e| e.at(format!("value set {name}")))?;
            insert(&mut schema.value_sets, "value set", id, found)?;
        }
        let left_out = may_be_left_out(p4info, program);
        for table in &p4info.tables {
            let (id, name) = identity(&table.preamble, "table")?;
            if left_out && program.table(&name).is_none() {
                insert(&mut schema.left_out, "table", id, name)?;
                continue;
            }
            let table = schema
                .table(id, name.clone(), table, p4info, &types, program)
                .map_err(|e| e.at(format!("table {name} ({id:#x})")))?;
            insert(&mut schema.tables, "table", id, table)?;
        }
        for counter in &p4info.counters {
            let (id, name) = identity(&counter.preamble, "counter")?;
            let found = position(&program.counters, |c| c.name == name, "counter", &name)?;
            let size = same_size("counter", &name, counter.size, program.counters[found].size)?;
            insert(&mut schema.counters, "counter", id, Counter { name, target: CounterId(found), size })?;
        }
        for meter in &p4info.meters {
            let (id, name) = identity(&meter.preamble, "meter")?;
            let found = position(&program.meters, |m| m.name == name, "meter", &name)?;
            let size = same_size("meter", &name, meter.size, program.meters[found].size)?;
            let kind = meter_kind("meter", &name, meter.spec.as_ref(), program.meters[found].unit)?;
            insert(&mut schema.meters, "meter", id, Meter { name, target: MeterId(found), size, kind })?;
        }
        for register in &p4info.registers {
            let (id, name) = identity(&register.preamble, "register")?;
            let found = position(&program.registers, |r| r.name == name, "register", &name)?;
            let size = same_size("register", &name, register.size.into(), program.registers[found].size)?;
            let element = DataType::new(register.type_spec.as_ref(), &types, &[program.registers[found].width.into()])
                .map_err(|e| e.at(format!("register {name}")))?;
            insert(&mut schema.registers, "register", id, Register { name, target: RegisterId(found), size, element })?;
        }
        for digest in &p4info.digests {
            let (id, name) = identity(&digest.preamble, "digest")?;
            let digest =
                self::digest(name.clone(), digest, &types, program).map_err(|e| e.at(format!("digest {name}")))?;
            insert(&mut schema.digests, "digest", id, digest)?;
        }
        for header in &p4info.controller_packet_metadata {
            let (_, name) = identity(&header.preamble, "controller_packet_metadata")?;
            let fields = header::fields(&header.metadata, &types, program)
                .map_err(|e| e.at(format!("controller header {name}")))?;
            match name.as_str() {
                "packet_in" => schema.packet_in = fields,
                "packet_out" => schema.packet_out = fields,
                _ => {
                    return refuse!(
                        InvalidArgument,
                        "controller header {name}: only packet_in and packet_out have a meaning"
                    );
                }
            }
        }
        schema.names = types.into_names();
        Ok(schema)
    }

    fn table(
        &self,
        id: u32,
        name: String,
        table: &info::Table,
        p4info: &info::P4Info,
        types: &Types<'_>,
        program: &Program,
    ) -> Checked<Table> {
        let Some(target) = program.table(&name) else {
            return refuse!(InvalidArgument, "not in the device config");
        };
        let loaded = &program.tables[target.0];
        let profile = (table.implementation_id != 0).then_some(table.implementation_id);
        if loaded.profile != profile.and_then(|id| self.profiles.get(&id)).map(|profile| profile.target) {
            return refuse!(InvalidArgument, "its implementation is another one than in the device config");
        }
        if table.match_fields.len() != loaded.key.len() {
            let (here, there) = (table.match_fields.len(), loaded.key.len());
            return refuse!(InvalidArgument, "{here} match fields in the P4Info, {there} in the device config");
        }
        let mut fields: Vec<MatchField> = Vec::with_capacity(loaded.key.len());
        for (field, key) in table.match_fields.iter().zip(&loaded.key) {
            let name = field.name.clone();
            let kind = match_kind(field)?;
            if kind != key.kind && (kind, key.kind) != (MatchKind::Optional, MatchKind::Ternary) {
                return refuse!(
                    InvalidArgument,
                    "field {name}: {kind} in the P4Info, {} in the device config",
                    key.kind
                );
            }
            check_field_id(field, &fields)?;
            fields.push(match_field(field, types, kind, key.kind, key.field.width.into())?);
        }
        let actions = table
            .action_refs
            .iter()
            .map(|reference| self.table_action(reference, target, program))
            .collect::<Checked<Vec<_>>>()?;
        // p4c gives a constant table its default size in the P4Info and the number of its entries in the device config;
        // a table without key has no entries.
        if !table.is_const_table && !loaded.key.is_empty() {
            same_size("table", &name, table.size, loaded.max_size)?;
        }
        let (has_counter, meter) = direct_resources(id, &table.direct_resource_ids, p4info)?;
        if has_counter && !loaded.has_counter {
            return refuse!(InvalidArgument, "its direct counter is not in the device config");
        }
        let meter = match (meter, loaded.meter) {
            (Some(meter), Some(unit)) => Some(meter_kind("direct meter of table", &name, meter.spec.as_ref(), unit)?),
            (Some(_), None) => return refuse!(InvalidArgument, "its direct meter is not in the device config"),
            (None, _) => None,
        };
        let has_idle_timeout = table.idle_timeout_behavior() == info::table::IdleTimeoutBehavior::NotifyControl;
        if has_idle_timeout && !loaded.support_timeout {
            return refuse!(InvalidArgument, "its idle timeout is not in the device config");
        }
        Ok(Table {
            id,
            name,
            target,
            has_priority: fields
                .iter()
                .any(|f| matches!(f.kind, MatchKind::Ternary | MatchKind::Range | MatchKind::Optional)),
            fields,
            actions,
            is_const: table.is_const_table || loaded.const_entries,
            const_default: table.const_default_action_id != 0 || loaded.const_default,
            has_counter,
            meter,
            has_idle_timeout,
            profile,
        })
    }

    fn profile(
        &self,
        name: String,
        profile: &info::ActionProfile,
        p4info: &info::P4Info,
        program: &Program,
    ) -> Checked<Profile> {
        let target = position(&program.profiles, |p| p.name == name, "action profile", &name)?;
        let loaded = &program.profiles[target];
        same_size("action profile", &name, profile.size, loaded.size)?;
        if profile.with_selector != loaded.has_selector {
            return refuse!(InvalidArgument, "only one of P4Info and device config gives it a selector");
        }
        let id = |table: &&info::Table| table.preamble.as_ref().map_or(0, |preamble| preamble.id);
        let table = p4info.tables.iter().find(|table| profile.table_ids.first() == Some(&id(table)));
        let actions = table.map_or(&[][..], |table| &table.action_refs).iter().map(|reference| {
            let Some(action) = self.actions.get(&reference.id) else {
                return refuse!(InvalidArgument, "action id {:#x} is not in the P4Info", reference.id);
            };
            match loaded.actions.iter().find(|known| program.actions[known.0].name == action.name) {
                Some(&target) => Ok(TableAction { id: reference.id, target, scope: Scope::of(reference) }),
                None => refuse!(InvalidArgument, "action {} is not in the device config", action.name),
            }
        });
        Ok(Profile {
            actions: actions.collect::<Checked<_>>()?,
            name,
            target: ProfileId(target),
            has_selector: loaded.has_selector,
            max_group_size: profile.max_group_size.max(0) as u32,
            counts_members: counts_members(profile),
            max_weight: match &profile.selector_size_semantics {
                Some(SizeSemantics::SumOfMembers(members)) => members.max_member_weight.max(0) as u32,
                _ => 0,
            },
            no_weights: profile.weights_disallowed,
        })
    }

    fn table_action(&self, reference: &info::ActionRef, table: TableId, program: &Program) -> Checked<TableAction> {
        let Some(action) = self.actions.get(&reference.id) else {
            return refuse!(InvalidArgument, "action id {:#x} is not in the P4Info", reference.id);
        };
        let name = &action.name;
        let Some(target) = program.table_action(table, name) else {
            return refuse!(InvalidArgument, "action {name} is not in the device config");
        };
        let loaded = &program.actions[target.0].params;
        if action.params.len() != loaded.len() {
            let (here, there) = (action.params.len(), loaded.len());
            return refuse!(
                InvalidArgument,
                "action {name}: {here} parameters in the P4Info, {there} in the device config"
            );
        }
        for (param, there) in action.params.iter().zip(loaded) {
            if param.name != there.name || param.width != u32::from(there.width) {
                return refuse!(
                    InvalidArgument,
                    "action {name}: parameter {} of {} bits in the P4Info, {} of {} bits in the device config",
                    param.name,
                    param.width,
                    there.name,
                    there.width
                );
            }
        }
        Ok(TableAction { id: reference.id, target, scope: Scope::of(reference) })
    }
}

/// p4c describes tables in the P4Info that it then finds to be dead code. If on the other hand the program has a table
/// for clients to write that is not described, the two are of different programs.
fn may_be_left_out(p4info: &info::P4Info, program: &Program) -> bool {
    let described: BTreeSet<&str> =
        p4info.tables.iter().filter_map(|table| Some(table.preamble.as_ref()?.name.as_str())).collect();
    let is_written = |table: &&TableInfo| !table.key.is_empty() && !table.const_entries;
    program.tables.iter().filter(is_written).all(|table| described.contains(table.name.as_str()))
}

/// Refuses a P4Info with features that this switch does not support.
fn unsupported(p4info: &info::P4Info) -> Checked<()> {
    match p4info.externs.first() {
        Some(external) => refuse!(Unimplemented, "extern {}: not supported", external.extern_type_name),
        None => Ok(()),
    }
}

fn check_field_id(field: &info::MatchField, others: &[MatchField]) -> Checked<()> {
    match field.id == 0 || others.iter().any(|other| other.id == field.id) {
        true => refuse!(InvalidArgument, "field {}: id {} is zero or used twice", field.name, field.id),
        false => Ok(()),
    }
}

/// `stored` and `width`: as in the device config.
fn match_field(
    field: &info::MatchField,
    types: &Types<'_>,
    kind: MatchKind,
    stored: MatchKind,
    width: u32,
) -> Checked<MatchField> {
    let name = field.name.clone();
    let sdn_type = SdnType::new(field.type_name.as_ref(), types, field.bitwidth, width)
        .map_err(|e| e.at(format!("field {name}")))?;
    if matches!(sdn_type, SdnType::Named(_)) && !matches!(kind, MatchKind::Exact | MatchKind::Optional) {
        let of = field.type_name.as_ref().map_or("", |found| &found.name);
        return refuse!(Unimplemented, "field {name}: type {of} is a string for clients, which has no {kind} match");
    }
    Ok(MatchField { id: field.id, name, width, sdn_type, kind, stored })
}

fn value_set(name: String, set: &info::ValueSet, types: &Types<'_>, program: &Program) -> Checked<ValueSet> {
    let target = position(&program.value_sets, |s| s.name == name, "value set", &name)?;
    let loaded = &program.value_sets[target];
    same_size("value set", &name, set.size.into(), loaded.max_size)?;
    if set.r#match.len() != loaded.widths.len() {
        return refuse!(
            InvalidArgument,
            "its fields are {} bits wide in the device config",
            data::listed(&loaded.widths)
        );
    }
    let mut fields: Vec<MatchField> = Vec::new();
    for (field, &width) in set.r#match.iter().zip(&loaded.widths) {
        check_field_id(field, &fields)?;
        let kind = match_kind(field)?;
        fields.push(match_field(field, types, kind, kind, width.into())?);
    }
    Ok(ValueSet { name, target: ValueSetId(target), fields })
}

fn identity(preamble: &Option<info::Preamble>, kind: &str) -> Checked<(u32, String)> {
    match preamble {
        Some(preamble) if preamble.id != 0 => Ok((preamble.id, preamble.name.clone())),
        Some(preamble) => refuse!(InvalidArgument, "{kind} {}: the P4Info gives it no id", preamble.name),
        None => refuse!(InvalidArgument, "a {kind} of the P4Info has no preamble"),
    }
}

fn insert<T>(objects: &mut BTreeMap<u32, T>, kind: &str, id: u32, object: T) -> Checked<()> {
    match objects.insert(id, object) {
        None => Ok(()),
        Some(_) => refuse!(InvalidArgument, "{kind} id {id:#x} is used twice in the P4Info"),
    }
}

fn position<T>(loaded: &[T], is_it: impl Fn(&T) -> bool, kind: &str, name: &str) -> Checked<usize> {
    match loaded.iter().position(is_it) {
        Some(index) => Ok(index),
        None => refuse!(InvalidArgument, "{kind} {name}: not in the device config"),
    }
}

fn same_size(kind: &str, name: &str, here: i64, there: usize) -> Checked<usize> {
    match usize::try_from(here) == Ok(there) {
        true => Ok(there),
        false => refuse!(InvalidArgument, "{kind} {name}: size {here} in the P4Info, {there} in the device config"),
    }
}

fn match_kind(field: &info::MatchField) -> Checked<MatchKind> {
    use info::match_field::{Match, MatchType};
    let standard = match field.r#match {
        Some(Match::MatchType(number)) => MatchType::try_from(number).unwrap_or_default(),
        _ => MatchType::Unspecified,
    };
    Ok(match standard {
        MatchType::Exact => MatchKind::Exact,
        MatchType::Lpm => MatchKind::Lpm,
        MatchType::Ternary => MatchKind::Ternary,
        MatchType::Range => MatchKind::Range,
        MatchType::Optional => MatchKind::Optional,
        MatchType::Unspecified => {
            return refuse!(Unimplemented, "field {}: its match type is not supported", field.name);
        }
    })
}

/// The direct counter and meter among a table's direct resources.
fn direct_resources<'a>(
    table: u32,
    ids: &[u32],
    p4info: &'a info::P4Info,
) -> Checked<(bool, Option<&'a info::DirectMeter>)> {
    let (mut counter, mut meter) = (false, None);
    for &id in ids {
        let has_id = |preamble: &Option<info::Preamble>| preamble.as_ref().is_some_and(|p| p.id == id);
        if p4info.direct_counters.iter().any(|c| has_id(&c.preamble) && c.direct_table_id == table) {
            counter = true;
        } else if let Some(found) =
            p4info.direct_meters.iter().find(|m| has_id(&m.preamble) && m.direct_table_id == table)
        {
            meter = Some(found);
        } else {
            return refuse!(InvalidArgument, "direct resource {id:#x} is not in the P4Info");
        }
    }
    Ok((counter, meter))
}

fn meter_kind(
    kind: &str,
    name: &str,
    spec: Option<&info::MeterSpec>,
    loaded: MeterUnit,
) -> Checked<info::meter_spec::Type> {
    use info::meter_spec::Unit;
    let spec = spec.cloned().unwrap_or_default();
    let same = matches!((spec.unit(), loaded), (Unit::Bytes, MeterUnit::Bytes) | (Unit::Packets, MeterUnit::Packets));
    match same {
        true => Ok(spec.r#type()),
        false => {
            let unit = spec.unit().as_str_name();
            refuse!(InvalidArgument, "{kind} {name}: {unit} in the P4Info, {loaded} in the device config")
        }
    }
}

fn digest(name: String, digest: &info::Digest, types: &Types<'_>, program: &Program) -> Checked<Digest> {
    let targets: Vec<DigestId> =
        (0..program.digests.len()).filter(|&i| program.digests[i].name == name).map(DigestId).collect();
    if targets.is_empty() {
        return refuse!(InvalidArgument, "not in the device config");
    }
    let widths =
        |target: &DigestId| -> Vec<u32> { program.digests[target.0].fields.iter().map(|f| f.width.into()).collect() };
    let data = DataType::new(digest.type_spec.as_ref(), types, &widths(&targets[0]))?;
    for target in &targets[1..] {
        data.check_widths(&widths(target))?;
    }
    Ok(Digest { name, targets, data })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::schema;

    fn entities() -> (info::P4Info, Program) {
        let read = |file: &str| {
            std::fs::read(format!("{}/../../checks/conformance/programs/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
        };
        (info::P4Info::decode(&*read("entities.p4info.bin")).unwrap(), Program::load(&read("entities.json")).unwrap())
    }

    #[test]
    fn a_table_that_no_packet_meets_is_described_and_takes_no_entries() {
        let (mut p4info, program) = entities();
        let preamble =
            info::Preamble { id: 0x0200_0001, name: "EntitiesIngress.dead".to_string(), ..Default::default() };
        p4info.tables.push(info::Table { preamble: Some(preamble), size: 1024, ..Default::default() });
        let schema = Schema::new(&p4info, &program).unwrap();
        assert_eq!(schema.tables.len(), p4info.tables.len() - 1);
        let refusal = schema::table(&schema, 0x0200_0001).map(|table| table.id).unwrap_err();
        assert!(refusal.message.contains("EntitiesIngress.dead"), "{}", refusal.message);
        // A table of another name, too, is that of another program.
        let renamed = p4info.tables.iter_mut().filter_map(|table| table.preamble.as_mut());
        renamed.filter(|preamble| preamble.alias == "lpm_table").for_each(|preamble| preamble.name = "x".to_string());
        assert!(Schema::new(&p4info, &program).is_err());
    }

    #[test]
    fn a_key_of_type_error_has_the_bits_of_the_data_plane() {
        let (mut p4info, program) = entities();
        let field = &mut p4info.tables.iter_mut().find(|table| !table.match_fields.is_empty()).unwrap().match_fields[0];
        field.bitwidth = 0;
        let schema = Schema::new(&p4info, &program).unwrap();
        let widths = |table: &Table| {
            table.fields.iter().all(|field| field.width > 0 && matches!(field.sdn_type, SdnType::Plain))
        };
        assert!(schema.tables.values().all(widths));
    }
}
