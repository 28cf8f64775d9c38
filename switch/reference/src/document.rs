// SPDX-License-Identifier: Apache-2.0
//! The sections of the JSON document, one after the other.

use std::collections::HashMap;

use num_bigint::BigInt;
use serde_json::Value;

use super::load::{Kind, Loader, list, source, text};
use super::phv::fit;
use super::program::*;
use apswitch_core::program::LoadError;

type Result<T> = std::result::Result<T, LoadError>;

/// Reads BMv2 JSON of format 2.x.
pub fn load(json: &[u8]) -> Result<Program> {
    let mut loader = Loader {
        headers: Vec::new(),
        stacks: Vec::new(),
        unions: Vec::new(),
        union_stacks: Vec::new(),
        names: HashMap::new(),
        place: "BMv2 JSON".to_string(),
    };
    let document: Value = match serde_json::from_slice(json) {
        Ok(document) => document,
        Err(e) => return loader.refuse(e.to_string()),
    };
    if document["__meta__"]["version"][0] != 2 {
        return loader.refuse("this is not of format 2.x");
    }
    headers(&mut loader, &document)?;
    for (section, kind) in
        [("calculations", Kind::Calculation), ("register_arrays", Kind::Register), ("parse_vsets", Kind::ValueSet)]
    {
        for (index, object) in list(&document[section]).iter().enumerate() {
            loader.names.insert((kind, text(&object["name"]).to_string()), index);
        }
    }
    for (section, kind) in [("field_lists", Kind::FieldList), ("learn_lists", Kind::Digest), ("actions", Kind::Action)]
    {
        for (index, object) in list(&document[section]).iter().enumerate() {
            loader.names.insert((kind, object["id"].to_string()), index);
        }
    }
    let counters = arrays(&mut loader, &document["counter_arrays"], Kind::Counter);
    let meters = arrays(&mut loader, &document["meter_arrays"], Kind::Meter);
    let registers = arrays(&mut loader, &document["register_arrays"], Kind::Register);

    let calculations = each(&mut loader, &document["calculations"], "calculation", |l, v| l.calculation(v))?;
    let field_lists = each(&mut loader, &document["field_lists"], "field list", field_list)?;
    let digests = each(&mut loader, &document["learn_lists"], "digest", field_list)?;
    let actions = each(&mut loader, &document["actions"], "action", action)?;
    let checksums = each(&mut loader, &document["checksums"], "checksum", checksum)?;
    let (states, start) = parser(&mut loader, &document["parsers"][0])?;
    let ingress = control(&mut loader, &document, "ingress")?;
    let egress = control(&mut loader, &document, "egress")?;

    let deparser = &document["deparsers"][0];
    loader.enter("deparser", deparser);
    let order = list(&deparser["order"]).iter().map(|name| loader.find(Kind::Header, text(name)));
    let order = order.collect::<Result<_>>()?;
    let deparser_statements =
        list(&deparser["primitives"]).iter().map(|s| loader.statement(s)).collect::<Result<_>>()?;

    let errors = list(&document["errors"]).iter();
    let errors = errors.map(|e| (text(&e[0]).to_string(), e[1].as_u64().unwrap_or(0))).collect();
    Ok(Program {
        standard: standard(&loader, &document)?,
        headers: loader.headers,
        stacks: loader.stacks,
        unions: loader.unions,
        union_stacks: loader.union_stacks,
        errors,
        states,
        start,
        value_sets: list(&document["parse_vsets"]).iter().map(|set| text(&set["name"]).to_string()).collect(),
        actions,
        ingress,
        egress,
        counters,
        meters,
        registers,
        calculations,
        checksums,
        digests,
        field_lists,
        deparser: order,
        deparser_statements,
    })
}

fn each<T>(
    loader: &mut Loader,
    section: &Value,
    kind: &str,
    read: impl Fn(&mut Loader, &Value) -> Result<T>,
) -> Result<Vec<T>> {
    list(section)
        .iter()
        .map(|value| {
            loader.enter(kind, value);
            read(loader, value)
        })
        .collect()
}

fn headers(loader: &mut Loader, document: &Value) -> Result<()> {
    let types: HashMap<&str, &Value> = list(&document["header_types"]).iter().map(|t| (text(&t["name"]), t)).collect();
    let mut ids = HashMap::new();
    for header in list(&document["headers"]) {
        loader.enter("header", header);
        let Some(header_type) = types.get(text(&header["header_type"])) else {
            return loader.refuse(format!("unknown type {}", header["header_type"]));
        };
        let field = |field: &Value| Field {
            name: text(&field[0]).to_string(),
            width: field[1].as_u64().unwrap_or(0) as u32,
            signed: field[2] == true,
            varbit: field[1] == "*",
        };
        let index = loader.headers.len();
        loader.names.insert((Kind::Header, text(&header["name"]).to_string()), index);
        ids.insert(header["id"].to_string(), index);
        loader.headers.push(Header {
            name: text(&header["name"]).to_string(),
            metadata: header["metadata"] == true,
            fields: list(&header_type["fields"]).iter().map(field).collect(),
            max_bytes: header_type["max_length"].as_u64().map(|bytes| bytes as usize),
            union: None,
        });
    }
    // By the ids of their elements.
    let members = |loader: &Loader, object: &Value, key: &str, ids: &HashMap<String, usize>| {
        let member = |id: &Value| ids.get(&id.to_string()).copied();
        match list(&object[key]).iter().map(member).collect::<Option<Vec<_>>>() {
            Some(members) => Ok(members),
            None => loader.refuse(format!("unknown ids in {}", object[key])),
        }
    };
    for stack in list(&document["header_stacks"]) {
        loader.enter("header stack", stack);
        let (name, elements) = (text(&stack["name"]).to_string(), members(loader, stack, "header_ids", &ids)?);
        loader.names.insert((Kind::Stack, name.clone()), loader.stacks.len());
        loader.stacks.push(Stack { name, elements });
    }
    let mut union_ids = HashMap::new();
    for union in list(&document["header_unions"]) {
        loader.enter("header union", union);
        let (name, members) = (text(&union["name"]).to_string(), members(loader, union, "header_ids", &ids)?);
        let index = loader.unions.len();
        members.iter().for_each(|&header| loader.headers[header].union = Some(index));
        union_ids.insert(union["id"].to_string(), index);
        loader.names.insert((Kind::Union, name), index);
        let union_type = list(&document["header_union_types"]).iter().find(|t| t["name"] == union["union_type"]);
        let named = union_type.map_or(&[][..], |union_type| list(&union_type["headers"]));
        let member_names = named.iter().map(|member| text(&member[0]).to_string()).collect();
        loader.unions.push(Union { members, member_names });
    }
    for stack in list(&document["header_union_stacks"]) {
        loader.enter("header union stack", stack);
        let (name, elements) =
            (text(&stack["name"]).to_string(), members(loader, stack, "header_union_ids", &union_ids)?);
        loader.names.insert((Kind::UnionStack, name.clone()), loader.union_stacks.len());
        loader.union_stacks.push(Stack { name, elements });
    }
    Ok(())
}

/// The field of a program's metadata that apswitch reads; p4c calls it `_STRUCT_FIELD` and a number where it is in a struct.
pub const LANE: &str = "intrinsic_metadata_lane";

/// The architecture's fields by the names that it has for them.
fn standard(loader: &Loader, document: &Value) -> Result<HashMap<String, (usize, usize)>> {
    let mut standard = HashMap::new();
    for (index, header) in loader.headers.iter().enumerate().filter(|(_, header)| header.metadata) {
        for (field, info) in header.fields.iter().enumerate() {
            standard.insert(format!("{}.{}", header.name, info.name), (index, field));
            let last = info.name.rsplit('.').next().unwrap_or_default();
            if last == LANE || last.strip_prefix('_').map(|it| it.trim_end_matches(char::is_numeric)) == Some(LANE) {
                standard.insert(LANE.to_string(), (index, field));
            }
        }
    }
    for alias in list(&document["field_aliases"]) {
        if let (header, Part::Field(field)) = loader.plain_field(&alias[1])? {
            standard.insert(text(&alias[0]).to_string(), (header, field));
        }
    }
    Ok(standard)
}

/// Counters, meters or registers that an index chooses from; direct ones belong to their tables.
fn arrays(loader: &mut Loader, section: &Value, kind: Kind) -> Vec<Named> {
    let mut arrays = Vec::new();
    for array in list(section).iter().filter(|array| array["is_direct"] != true) {
        let name = text(&array["name"]).to_string();
        loader.names.insert((kind, name.clone()), arrays.len());
        arrays.push(Named {
            name,
            size: array["size"].as_u64().unwrap_or(0) as usize,
            width: array["bitwidth"].as_u64().unwrap_or(0) as u32,
            bytes: array["type"] == "bytes",
        });
    }
    arrays
}

fn field_list(loader: &mut Loader, value: &Value) -> Result<FieldList> {
    let fields = list(&value["elements"]).iter().map(|element| loader.field_ref(element));
    Ok(FieldList { name: text(&value["name"]).to_string(), fields: fields.collect::<Result<_>>()? })
}

fn action(loader: &mut Loader, value: &Value) -> Result<Action> {
    let name = text(&value["name"]).to_string();
    let params = list(&value["runtime_data"]).iter();
    let params = params.map(|p| (text(&p["name"]).to_string(), p["bitwidth"].as_u64().unwrap_or(0) as u32)).collect();
    let body = list(&value["primitives"]).iter().map(|s| loader.statement(s)).collect::<Result<_>>()?;
    Ok(Action { name, params, body })
}

fn checksum(loader: &mut Loader, value: &Value) -> Result<Checksum> {
    let (header, Part::Field(field)) = loader.plain_field(&value["target"])? else {
        return loader.refuse("its target is not a field");
    };
    Ok(Checksum {
        header,
        field,
        calculation: loader.find(Kind::Calculation, text(&value["calculation"]))?,
        // Missing, both are meant.
        verify: value["verify"] != false,
        update: value["update"] != false,
        condition: if value["if_cond"].is_null() { None } else { Some(loader.expr(&value["if_cond"])?) },
    })
}

fn parser(loader: &mut Loader, parser: &Value) -> Result<(Vec<State>, Option<usize>)> {
    let states = list(&parser["parse_states"]);
    let names: HashMap<&str, usize> = states.iter().enumerate().map(|(i, state)| (text(&state["name"]), i)).collect();
    let find = |loader: &Loader, name: &Value| match (name.is_null(), names.get(text(name))) {
        (true, _) => Ok(None),
        (false, Some(index)) => Ok(Some(*index)),
        (false, None) => loader.refuse(format!("unknown state {name}")),
    };
    let start = find(loader, &parser["init_state"])?;
    let states = each(loader, &parser["parse_states"], "parser state", |loader, value| {
        let ops = list(&value["parser_ops"]).iter().map(|op| parser_op(loader, op)).collect::<Result<_>>()?;
        let mut state =
            State { name: text(&value["name"]).to_string(), ops, select: Vec::new(), cases: Vec::new(), default: None };
        for key in list(&value["transition_key"]) {
            state.select.push(match text(&key["type"]) {
                "lookahead" => SelectKey::Lookahead(lookahead(loader, &key["value"])?),
                _ => SelectKey::Field(loader.field_ref(key)?),
            });
        }
        let shape: Vec<(u32, bool)> = state.select.iter().map(|key| loader.shape(key)).collect::<Result<_>>()?;
        for transition in list(&value["transitions"]) {
            let next = find(loader, &transition["next_state"])?;
            let mask = loader.mask(&transition["mask"])?;
            // p4c left the type out until 2018.
            let kind = match (text(&transition["type"]), text(&transition["value"])) {
                ("", "" | "default") | ("hexstr", "default") => "default",
                ("", _) => "hexstr",
                (kind, _) => kind,
            };
            let case = match kind {
                "default" => {
                    state.default = Some(next);
                    continue;
                }
                "hexstr" => Case::Value { value: key_of(loader.hex(&transition["value"])?, &shape), mask },
                "parse_vset" => Case::Set(loader.find(Kind::ValueSet, text(&transition["value"]))?),
                other => return loader.refuse(format!("a transition of type `{other}`")),
            };
            state.cases.push((case, next));
        }
        Ok(state)
    })?;
    Ok((states, start))
}

/// The key of parts of these widths and signs. p4c adds them up, so that a negative part is missing in what stands
/// before.
fn key_of(mut sum: BigInt, shape: &[(u32, bool)]) -> BigInt {
    let (mut key, mut at) = (BigInt::ZERO, 0);
    for &(width, signed) in shape.iter().rev() {
        let padded = width.next_multiple_of(8);
        let part = fit(&sum, padded, signed);
        sum = (sum - &part) >> padded;
        key += fit(&part, width, false) << at;
        at += padded;
    }
    // Nothing stands before the first part.
    let signed = shape.first().is_some_and(|(_, signed)| *signed);
    if signed { key } else { key + (sum.max(BigInt::ZERO) << at) }
}

fn lookahead(loader: &Loader, value: &Value) -> Result<Lookahead> {
    Ok(Lookahead { offset: loader.number(&value[0])?, width: loader.number(&value[1])? })
}

fn parser_op(loader: &mut Loader, value: &Value) -> Result<ParserOp> {
    let params = &value["parameters"];
    match text(&value["op"]) {
        op @ ("extract" | "extract_VL") => {
            let target = &params[0]["value"];
            let extract = match text(&params[0]["type"]) {
                "regular" => Extract::Header(loader.find(Kind::Header, text(target))?),
                "stack" => Extract::Stack(loader.find(Kind::Stack, text(target))?),
                "union_stack" => {
                    let stack = loader.find(Kind::UnionStack, text(&target[0]))?;
                    Extract::UnionStack { stack, member: loader.union_member(stack, text(&target[1]))? }
                }
                other => return loader.refuse(format!("extraction to `{other}`")),
            };
            let length = if op == "extract" { None } else { Some(loader.expr(&params[1])?) };
            Ok(ParserOp::Extract(extract, length))
        }
        "set" => {
            let target = loader.field_ref(&params[0])?;
            match text(&params[1]["type"]) {
                "lookahead" => Ok(ParserOp::SetAhead(target, lookahead(loader, &params[1]["value"])?)),
                _ => Ok(ParserOp::Set(target, loader.expr(&params[1])?)),
            }
        }
        "advance" => Ok(ParserOp::Advance(loader.expr(&params[0])?)),
        "verify" => Ok(ParserOp::Verify(loader.expr(&params[0])?, loader.expr(&params[1])?)),
        "primitive" => Ok(ParserOp::Run(loader.statement(&params[0])?)),
        other => loader.refuse(format!("unknown parser operation `{other}`")),
    }
}

fn control(loader: &mut Loader, document: &Value, name: &'static str) -> Result<Control> {
    let Some(pipeline) = list(&document["pipelines"]).iter().find(|pipeline| pipeline["name"] == name) else {
        return loader.refuse(format!("there is no pipeline `{name}`: this is not a v1model program"));
    };
    let sections = ["tables", "conditionals", "action_calls"];
    let objects = sections.iter().flat_map(|section| list(&pipeline[section]));
    let names: HashMap<&str, usize> = objects.enumerate().map(|(index, node)| (text(&node["name"]), index)).collect();
    let find = |loader: &Loader, name: &Value| match (name.is_null(), names.get(text(name))) {
        (true, _) => Ok(None),
        (false, Some(index)) => Ok(Some(*index)),
        (false, None) => loader.refuse(format!("unknown node {name}")),
    };
    let mut nodes = each(loader, &pipeline["tables"], "table", |loader, value| {
        Ok(Node::Table(Table {
            name: text(&value["name"]).to_string(),
            source: source(value),
            key: list(&value["key"]).iter().map(|key| table_key(loader, key)).collect::<Result<_>>()?,
            next: match value["next_tables"].as_object() {
                Some(next) => {
                    next.iter().map(|(how, node)| Ok((how.clone(), find(loader, node)?))).collect::<Result<_>>()?
                }
                None => HashMap::new(),
            },
            default_next: find(loader, &value["base_default_next"])?,
            has_counter: value["with_counters"] == true,
            meter: direct_meter(loader, document, value)?,
            selector: selector(loader, pipeline, value)?,
        }))
    })?;
    nodes.extend(each(loader, &pipeline["conditionals"], "condition", |loader, value| {
        Ok(Node::Condition(Condition {
            expr: loader.expr(&value["expression"])?,
            source: source(value),
            then: find(loader, &value["true_next"])?,
            otherwise: find(loader, &value["false_next"])?,
        }))
    })?);
    nodes.extend(each(loader, &pipeline["action_calls"], "action call", |loader, value| {
        let action = loader.find(Kind::Action, &value["action_id"].to_string())?;
        Ok(Node::Call(action, find(loader, &value["next_node"])?))
    })?);
    let start = find(loader, &pipeline["init_table"])?;
    Ok(Control { name, start, nodes })
}

fn table_key(loader: &mut Loader, key: &Value) -> Result<Key> {
    let (header, part) = loader.plain_field(&key["target"])?;
    let name = match key["name"].as_str() {
        Some(name) => name.to_string(),
        None => format!("{}.{}", text(&key["target"][0]), text(&key["target"][1])),
    };
    Ok(Key { name, header, part, mask: loader.mask(&key["mask"])? })
}

fn direct_meter(loader: &Loader, document: &Value, table: &Value) -> Result<Option<(FieldRef, bool)>> {
    let Some(name) = table["direct_meters"].as_str() else { return Ok(None) };
    let Some(meter) = list(&document["meter_arrays"]).iter().find(|meter| meter["name"] == name) else {
        return loader.refuse(format!("unknown direct meter `{name}`"));
    };
    let (header, part) = loader.plain_field(&meter["result_target"])?;
    Ok(Some((FieldRef { header: HeaderRef::Header(header), part }, meter["type"] == "bytes")))
}

fn selector(loader: &Loader, pipeline: &Value, table: &Value) -> Result<Option<Calculation>> {
    if table["type"] != "indirect_ws" {
        return Ok(None);
    }
    let profile = list(&pipeline["action_profiles"]).iter().find(|p| p["name"] == table["action_profile"]);
    match profile.map(|profile| &profile["selector"]) {
        Some(selector) => loader.calculation(selector).map(Some),
        None => loader.refuse(format!("unknown action profile {}", table["action_profile"])),
    }
}
