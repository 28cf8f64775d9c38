// SPDX-License-Identifier: Apache-2.0
//! The loader: BMv2 JSON in, a [`Program`] out, or the name and place of what is not supported.

mod actions;
mod asm;
mod control;
mod expr;
mod fields;
mod json;
mod operands;
mod parser;
mod phv;
mod profiles;
mod tables;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::asm::Assembler;
use self::json::{Document, SourceInfo, Typed};
use self::phv::{Field, MAX_WIDTH, Phv};
use crate::jit::Native;
use crate::program::{
    CounterInfo, DigestInfo, FieldInfo, LoadError, MeterInfo, MeterUnit, Program, RegisterInfo, ValueSetInfo,
};
use crate::state::code::{Algorithm, Calculation, ChecksumCode, Code, FieldRef, HashInput, Message, Snippet, Standard};
use crate::state::headers::Stack;
use crate::state::op::{Address, Op, REGISTERS};
use crate::state::wide::store;
use crate::state::wire::NOT_IN_FRAME;
use crate::value::words;

fn refuse<T>(place: impl Into<String>, reason: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError { place: shortened(place.into()), reason: shortened(reason.into()) })
}

/// Cuts what a refusal quotes, which may be as long as the document.
fn shortened(mut text: String) -> String {
    const MAX: usize = 400;
    if text.len() > MAX {
        text.truncate(text.floor_char_boundary(MAX));
        text.push_str("...");
    }
    text
}

/// ``kind `name` (file:line)``.
fn place_of(kind: &str, name: &str, source: &Option<SourceInfo>) -> String {
    match source {
        Some(source) if source.line > 0 => format!("{kind} `{name}` ({}:{})", source.filename, source.line),
        _ => format!("{kind} `{name}`"),
    }
}

/// Registers that the parameters of an action take at most.
const MAX_PARAM_REGISTERS: usize = REGISTERS / 8;

/// Indices of named objects, for references by name or id.
struct Objects {
    counters: HashMap<String, u16>,
    /// Index and size.
    meters: HashMap<String, (u16, usize)>,
    /// Index, width and size.
    registers: HashMap<String, (u16, u16, usize)>,
    /// Index, and whether the payload is part of the input.
    calculations: HashMap<String, (u16, bool)>,
    /// Learn list id to index.
    digests: HashMap<u64, u16>,
    /// Field list id to index.
    field_lists: HashMap<u64, u16>,
    value_sets: HashMap<String, u16>,
    profiles: HashMap<String, usize>,
}

impl Program {
    /// Reads and compiles BMv2 JSON; refuses what is not supported.
    pub fn load(json: &[u8]) -> Result<Program, LoadError> {
        Program::load_with(json, &HashMap::new())
    }

    /// Loads as [`Program::load`] does, with the sizes of the tables whose entries the JSON gives and the control plane
    /// may write: the JSON does not tell them from those with constant entries.
    pub fn load_with(json: &[u8], sizes: &HashMap<String, usize>) -> Result<Program, LoadError> {
        load(json, sizes).map_err(|error| foreign(json).unwrap_or(error))
    }
}

/// Names what makes a file no program of this switch, where that says more than its first fault: another architecture,
/// or the format of the first BMv2.
fn foreign(text: &[u8]) -> Option<LoadError> {
    let document: serde_json::Value = serde_json::from_slice(text).ok()?;
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let parsers = list(&document["parsers"]);
    for (parser, architecture) in [("ingress_parser", "PSA"), ("main_parser", "PNA")] {
        if parsers.iter().any(|one| one["name"] == parser) {
            let reason = format!(
                "the program is for {architecture}, and this switch runs v1model: end it in V1Switch, and compile it \
                 with p4c --target bmv2 --arch v1model"
            );
            return refuse::<()>(format!("parser `{parser}`"), reason).err();
        }
    }
    let pipelines = list(&document["pipelines"]);
    let tables: Vec<_> = pipelines.iter().flat_map(|pipeline| list(&pipeline["tables"])).collect();
    let table = tables.iter().find(|table| table["action_ids"].is_null())?;
    let reason = "it has no `action_ids`, as in the format from before 2017: compile the P4 program again, with p4c \
                  --target bmv2 --arch v1model (and --std p4-14 if it is P4_14)";
    refuse::<()>(format!("table `{}`", table["name"].as_str().unwrap_or_default()), reason).err()
}

/// `sizes`: see [`Program::load_with`].
fn load(text: &[u8], sizes: &HashMap<String, usize>) -> Result<Program, LoadError> {
    let mut doc: Document = match serde_json::from_slice(text) {
        Ok(doc) => doc,
        Err(e) => return refuse("BMv2 JSON", e.to_string()),
    };
    for table in doc.pipelines.iter_mut().flat_map(|pipeline| &mut pipeline.tables) {
        if let Some(&size) = sizes.get(&table.name) {
            (table.writable, table.max_size) = (true, size);
        }
    }
    check_format(&doc)?;
    check_numbers(&doc)?;
    let phv = Phv::new(&doc)?;
    let (mut objects, mut program) = declare(&doc, &phv)?;

    let mut asm = Assembler::new(&phv, param_registers(&doc)?);
    let mut messages = Vec::new();

    let (mut calculations, verify, update) = checksums(&doc, &mut asm, &objects)?;
    let selectors = profiles::compile(&doc, &phv, &mut calculations, &mut objects, &mut program)?;
    let parser = parser::compile(&doc, &mut asm, &objects, &mut messages, &mut program)?;
    let control = control::compile(&doc, &mut asm, &objects, &mut messages, &mut program)?;
    let standard = standard(&phv, &mut asm)?;
    let (deparser, before_deparser) = deparser(&doc, &mut asm, &objects, &mut messages)?;
    let field_lists =
        doc.field_lists.iter().map(|list| field_places(list, "field list", &phv)).collect::<Result<_, _>>()?;
    let digests = doc.learn_lists.iter().map(|list| field_places(list, "digest", &phv)).collect::<Result<_, _>>()?;

    let headers: Vec<_> = (0..phv.headers.len() as u16).map(|h| phv.wire_layout(h)).collect();
    let mut template = vec![0; phv.fields];
    for (index, header) in phv.headers.iter().enumerate() {
        template[phv.valid(index as u16) as usize] = header.metadata as u64;
        template[phv.offset(index as u16) as usize] = NOT_IN_FRAME;
    }
    let stacks = phv.stacks.iter().map(|s| Stack { next: s.next.reg, elements: s.elements.clone() }).collect();
    let constants = asm.finish();
    program.code = Arc::new(Code {
        ops: asm.code,
        wide: asm.wide,
        constants,
        phv: template,
        params: phv.fields,
        headers,
        stacks,
        header_ops: asm.header_ops,
        parser,
        verify,
        ingress: control.ingress,
        egress: control.egress,
        update,
        before_deparser,
        deparser,
        tables: control.tables,
        calculations,
        selectors,
        digests,
        field_lists,
        messages,
        standard,
        counters: program.counters.len(),
        meters: program.meters.len(),
        registers: program.registers.iter().map(|register| register.width).collect(),
    });
    match Native::compile(&program.code) {
        Ok(native) => program.native = Some(Arc::new(native)),
        Err(reason) => return refuse("native code", reason),
    }
    Ok(program)
}

fn check_format(doc: &Document) -> Result<(), LoadError> {
    match &doc.meta {
        Some(meta) if meta.version.0 == 2 => {}
        Some(meta) => {
            return refuse("`__meta__`", format!("format version {}.{} is not 2.x", meta.version.0, meta.version.1));
        }
        None => return refuse("`__meta__`", "missing: this is not BMv2 JSON of format 2.x"),
    }
    if let Some(object) = doc.extern_instances.first() {
        return refuse(place_of("extern", &object.name, &object.source_info), "not supported");
    }
    Ok(())
}

/// Checks that numbers of objects fit 16 bits, and that sizes can be counted.
fn check_numbers(doc: &Document) -> Result<(), LoadError> {
    const MAX: usize = u16::MAX as usize;
    let all = |count: fn(&json::Pipeline) -> usize| doc.pipelines.iter().map(count).sum();
    let calculations = doc.calculations.len() + all(|pipeline| pipeline.action_profiles.len());
    for (what, count) in [
        ("headers", doc.headers.len()),
        ("header_stacks", doc.header_stacks.len() + doc.header_union_stacks.len()),
        ("parse_states", doc.parsers.iter().map(|parser| parser.parse_states.len()).max().unwrap_or(0)),
        ("parse_vsets", doc.parse_vsets.len()),
        ("counter_arrays", doc.counter_arrays.len()),
        ("meter_arrays", doc.meter_arrays.len()),
        ("register_arrays", doc.register_arrays.len()),
        ("calculations", calculations),
        ("learn_lists", doc.learn_lists.len()),
        ("field_lists", doc.field_lists.len()),
        ("actions", doc.actions.len()),
        ("tables", all(|pipeline| pipeline.tables.len())),
    ] {
        if count > MAX {
            return refuse(format!("`{what}`"), format!("{count} of them are not supported (at most {MAX})"));
        }
    }
    Ok(())
}

/// Registers of the longest list of parameters.
fn param_registers(doc: &Document) -> Result<usize, LoadError> {
    let mut most = 0;
    for action in &doc.actions {
        let registers = action.runtime_data.iter().map(|param| words(param.bitwidth)).sum();
        if registers > MAX_PARAM_REGISTERS {
            let reason = format!(
                "parameters of {} bits together are not supported (at most {})",
                64 * registers,
                64 * MAX_PARAM_REGISTERS
            );
            return refuse(place_of("action", &action.name, &action.source_info), reason);
        }
        most = most.max(registers);
    }
    Ok(most)
}

/// Declares objects that are only named and sized.
fn declare(doc: &Document, phv: &Phv) -> Result<(Objects, Program), LoadError> {
    let mut objects = Objects {
        counters: HashMap::new(),
        meters: HashMap::new(),
        registers: HashMap::new(),
        calculations: HashMap::new(),
        digests: HashMap::new(),
        field_lists: HashMap::new(),
        value_sets: HashMap::new(),
        profiles: HashMap::new(),
    };
    let mut program = Program::default();
    for counter in doc.counter_arrays.iter().filter(|c| !c.is_direct) {
        objects.counters.insert(counter.name.clone(), program.counters.len() as u16);
        program.counters.push(CounterInfo { name: counter.name.clone(), size: counter.size });
    }
    for meter in &doc.meter_arrays {
        let unit = meter_unit(meter)?;
        if !meter.is_direct {
            objects.meters.insert(meter.name.clone(), (program.meters.len() as u16, meter.size));
            program.meters.push(MeterInfo { name: meter.name.clone(), size: meter.size, unit });
        }
    }
    for register in &doc.register_arrays {
        if !(1..=MAX_WIDTH).contains(&register.bitwidth) {
            return refuse(
                place_of("register", &register.name, &register.source_info),
                format!("cells of {} bits are not supported (1 to {MAX_WIDTH})", register.bitwidth),
            );
        }
        let index = program.registers.len() as u16;
        objects.registers.insert(register.name.clone(), (index, register.bitwidth, register.size));
        let (name, size, width) = (register.name.clone(), register.size, register.bitwidth);
        program.registers.push(RegisterInfo { name, size, width });
    }
    for (index, calculation) in doc.calculations.iter().enumerate() {
        let payload = calculation.input.iter().any(|item| item.kind == "payload");
        objects.calculations.insert(calculation.name.clone(), (index as u16, payload));
    }
    for (index, list) in doc.learn_lists.iter().enumerate() {
        objects.digests.insert(list.id, index as u16);
        let fields = field_places(list, "digest", phv)?;
        let names = list.elements.iter().map(|e| e.value.get(1).and_then(|v| v.as_str()).unwrap_or_default());
        let fields = names.zip(fields).map(|(name, place)| FieldInfo { name: name.to_string(), width: place.width });
        program.digests.push(DigestInfo { name: list.name.clone(), fields: fields.collect() });
    }
    for (index, set) in doc.parse_vsets.iter().enumerate() {
        objects.value_sets.insert(set.name.clone(), index as u16);
        let (name, max_size) = (set.name.clone(), set.max_size);
        program.value_sets.push(ValueSetInfo { name, widths: vec![set.compressed_bitwidth], max_size });
    }
    let metadata: HashSet<&str> =
        doc.headers.iter().filter(|h| h.metadata).map(|header| header.header_type.as_str()).collect();
    for header_type in doc.header_types.iter().filter(|t| !metadata.contains(t.name.as_str())) {
        let field = |field: &Vec<serde_json::Value>| {
            let width = u16::try_from(field.get(1)?.as_u64()?).ok()?;
            Some(FieldInfo { name: field.first()?.as_str()?.to_string(), width })
        };
        program.headers.extend(header_type.fields.iter().map(field).collect::<Option<Vec<_>>>());
    }
    for (index, list) in doc.field_lists.iter().enumerate() {
        objects.field_lists.insert(list.id, index as u16);
    }
    Ok((objects, program))
}

fn meter_unit(meter: &json::MeterArray) -> Result<MeterUnit, LoadError> {
    let place = place_of("meter", &meter.name, &meter.source_info);
    if meter.rate_count != 2 {
        return refuse(place, format!("{} rates are not supported (2)", meter.rate_count));
    }
    match meter.unit.as_str() {
        "bytes" => Ok(MeterUnit::Bytes),
        "packets" => Ok(MeterUnit::Packets),
        other => refuse(place, format!("unit `{other}` is not supported (bytes, packets)")),
    }
}

fn place(field: Field) -> FieldRef {
    FieldRef { reg: field.reg, width: field.width, signed: field.signed }
}

fn field_places(list: &json::FieldList, kind: &str, phv: &Phv) -> Result<Vec<FieldRef>, LoadError> {
    let where_ = place_of(kind, &list.name, &list.source_info);
    list.elements
        .iter()
        .map(|element| match element.kind.as_str() {
            "field" => phv.field_of(&element.value, &where_).map(place),
            other => refuse(&where_, format!("an element of type `{other}` is not supported")),
        })
        .collect()
}

type Checksums = (Vec<Calculation>, Vec<ChecksumCode>, Vec<ChecksumCode>);

fn checksums(doc: &Document, asm: &mut Assembler, objects: &Objects) -> Result<Checksums, LoadError> {
    let calculations = doc.calculations.iter().map(|c| calculation(c, asm.phv)).collect::<Result<_, _>>()?;
    let (mut verify, mut update) = (Vec::new(), Vec::new());
    for checksum in &doc.checksums {
        asm.place = place_of("checksum", &checksum.name, &checksum.source_info);
        let Some(target) = asm.phv.field(&checksum.target.0, &checksum.target.1) else {
            return asm.refuse(format!("unknown target `{}.{}`", checksum.target.0, checksum.target.1));
        };
        let Some(&(calculation, _)) = objects.calculations.get(&checksum.calculation) else {
            return asm.refuse(format!("unknown calculation `{}`", checksum.calculation));
        };
        let condition = match &checksum.if_cond {
            None => None,
            Some(Typed { kind, value, .. }) if kind == "bool" && value.as_bool() == Some(true) => None,
            Some(condition) => Some(snippet(condition, asm)?),
        };
        let code = || ChecksumCode {
            target: place(target),
            target_valid: asm.phv.valid(target.header),
            calculation,
            condition,
        };
        if checksum.verify {
            verify.push(code());
        }
        if checksum.update {
            update.push(code());
        }
    }
    Ok((calculations, verify, update))
}

fn calculation(calculation: &json::Calculation, phv: &Phv) -> Result<Calculation, LoadError> {
    let where_ = place_of("calculation", &calculation.name, &calculation.source_info);
    let algorithm = match calculation.algo.as_str() {
        "csum16" => Algorithm::Csum16,
        "xor16" => Algorithm::Xor16,
        // The custom ones are what BMv2 takes while nobody sets another polynomial.
        "crc16" | "crc16_custom" => Algorithm::Crc16,
        "crc32" | "crc32_custom" => Algorithm::Crc32,
        "random" => Algorithm::Random,
        "crcCCITT" => Algorithm::CrcCcitt,
        "identity" => Algorithm::Identity,
        other => return refuse(where_, format!("algorithm `{other}` is not supported")),
    };
    let input = calculation.input.iter().map(|item| match item.kind.as_str() {
        "field" => {
            let field = phv.field_of(&item.value, &where_)?;
            let (place, valid) = (place(field), phv.valid(field.header));
            Ok(match field.length {
                None => HashInput::Field { place, valid },
                Some(length) => HashInput::Varbit { place, valid, length },
            })
        }
        "hexstr" => {
            let value = expr::hex(item.value.as_str().unwrap_or_default(), &where_)?;
            match item.bitwidth {
                Some(width) if (1..=MAX_WIDTH).contains(&width) => {
                    let mut words = vec![0; words(width)];
                    store(&value, width, &mut words);
                    Ok(HashInput::Constant { words: words.into(), width })
                }
                _ => refuse(&where_, format!("a constant without a width from 1 to {MAX_WIDTH} bits")),
            }
        }
        "header" => match operands::header(item, phv, &where_)? {
            operands::HeaderRef::Fixed(header) => Ok(HashInput::Header(header)),
            operands::HeaderRef::Indexed { .. } => refuse(&where_, "a header at a computed index is not supported"),
        },
        "payload" => Ok(HashInput::Payload),
        other => refuse(&where_, format!("an input of type `{other}` is not supported")),
    });
    Ok(Calculation { algorithm, input: input.collect::<Result<_, _>>()? })
}

/// Code for an expression outside an action.
fn snippet(typed: &Typed, asm: &mut Assembler) -> Result<Snippet, LoadError> {
    asm.next_statement();
    asm.params.clear();
    let expr = expr::parse(typed, asm.phv, &asm.place)?;
    let start = asm.code.len() as u32;
    let result = asm.value(&expr)?;
    asm.code.push(Op::Exit);
    Ok(Snippet { start, result })
}

/// The headers, and the code that runs before they are written.
fn deparser(
    doc: &Document,
    asm: &mut Assembler,
    objects: &Objects,
    messages: &mut Vec<Message>,
) -> Result<(Vec<u16>, Option<Address>), LoadError> {
    let [deparser] = doc.deparsers.as_slice() else {
        return refuse("`deparsers`", "exactly one deparser is needed");
    };
    let where_ = place_of("deparser", "deparser", &deparser.source_info);
    let start = (!deparser.primitives.is_empty()).then_some(asm.code.len() as Address);
    for primitive in &deparser.primitives {
        asm.params.clear();
        actions::single(primitive, &where_, asm, objects, messages)?;
    }
    if start.is_some() {
        asm.code.push(Op::Exit);
    }
    let header = |name: &String| match asm.phv.header(name) {
        Some(header) => Ok(header),
        None => refuse(&where_, format!("unknown header `{name}`")),
    };
    Ok((deparser.order.iter().map(header).collect::<Result<_, _>>()?, start))
}

fn standard(phv: &Phv, asm: &mut Assembler) -> Result<Standard, LoadError> {
    asm.place = "`standard_metadata`".to_string();
    // Read only: a missing multicast group, priority or lane is 0.
    let zero = FieldRef { reg: asm.constant(0)?, width: 64, signed: false };
    // Written only.
    let sink = FieldRef { reg: asm.sink, width: 64, signed: false };
    let number = |name: &str| match phv.intrinsic(name) {
        Some(field) if field.signed || field.is_wide() || field.length.is_some() => {
            refuse(format!("`{name}`"), "not a number of at most 64 bits: this is not a v1model program")
        }
        field => Ok(field.map(place)),
    };
    let optional = |name: &str, missing: FieldRef| Ok(number(name)?.unwrap_or(missing));
    let required = |name: &str| match number(name)? {
        Some(place) => Ok(place),
        None => refuse(format!("`{name}`"), "missing: this is not a v1model program"),
    };
    Ok(Standard {
        ingress_port: required("standard_metadata.ingress_port")?,
        egress_spec: required("standard_metadata.egress_spec")?,
        egress_port: required("standard_metadata.egress_port")?,
        instance_type: required("standard_metadata.instance_type")?,
        packet_length: required("standard_metadata.packet_length")?,
        parser_error: optional("standard_metadata.parser_error", sink)?,
        checksum_error: optional("standard_metadata.checksum_error", sink)?,
        enq_timestamp: optional("queueing_metadata.enq_timestamp", sink)?,
        enq_qdepth: optional("queueing_metadata.enq_qdepth", sink)?,
        deq_timedelta: optional("queueing_metadata.deq_timedelta", sink)?,
        deq_qdepth: optional("queueing_metadata.deq_qdepth", sink)?,
        qid: optional("queueing_metadata.qid", sink)?,
        ingress_global_timestamp: optional("intrinsic_metadata.ingress_global_timestamp", sink)?,
        egress_global_timestamp: optional("intrinsic_metadata.egress_global_timestamp", sink)?,
        mcast_grp: optional("intrinsic_metadata.mcast_grp", zero)?,
        egress_rid: optional("intrinsic_metadata.egress_rid", sink)?,
        priority: optional("intrinsic_metadata.priority", zero)?,
        lane: optional("intrinsic_metadata_lane", zero)?,
        lane_weight: optional("intrinsic_metadata_lane_weight", zero)?,
        lane_rate: optional("intrinsic_metadata_lane_rate", zero)?,
        lane_flow: optional("intrinsic_metadata_lane_flow", zero)?,
    })
}
