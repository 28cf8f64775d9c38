// SPDX-License-Identifier: Apache-2.0
//! Parser states.

use std::collections::{BTreeSet, HashMap};

use num_bigint::{BigInt, BigUint};
use serde_json::Value as Json;

use super::asm::Assembler;
use super::expr::{self, Expr, Range, hex};
use super::json::{Document, ParseState, ParserOp as JsonOp, Primitive, Transition, Typed};
use super::{LoadError, Objects, actions, operands, place, place_of, refuse, snippet};
use crate::program::{Program, Value};
use crate::state::code::{
    ExtractTarget, Message, NextState, OtherParserOp, ParserCode, ParserErrors, ParserOp, ParserState, SelectKey,
    Snippet,
};
use crate::state::op::{Op, Reg};
use crate::state::select::{MAX_LOOKAHEAD, Select, SelectCase, SelectPart};
use crate::state::wide::power;

/// Bits of the longest key that is compared as one number.
const MAX_SELECT: u32 = 128;

pub fn compile(
    doc: &Document,
    asm: &mut Assembler,
    objects: &Objects,
    messages: &mut Vec<Message>,
    program: &mut Program,
) -> Result<ParserCode, LoadError> {
    let [parser] = doc.parsers.as_slice() else {
        return refuse("`parsers`", "exactly one parser is needed");
    };
    let states: HashMap<&str, u16> =
        parser.parse_states.iter().enumerate().map(|(index, state)| (state.name.as_str(), index as u16)).collect();
    let next = |name: &Option<String>, place: &str| -> Result<NextState, LoadError> {
        match name {
            None => Ok(None),
            Some(name) => match states.get(name.as_str()) {
                Some(&state) => Ok(Some(state)),
                None => refuse(place, format!("unknown state `{name}`")),
            },
        }
    };
    // Value sets whose fields a select has told.
    let mut told = BTreeSet::new();
    let compiled = parser.parse_states.iter().map(|state| {
        let place = place_of("parser state", &state.name, &state.source_info);
        let ops = operations(state, &place, asm, objects, messages)?;
        let parts = state.transition_key.iter().map(|key| select_part(key, asm, &place));
        let (parts, signs): (Vec<_>, Vec<_>) = parts.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let shape: Vec<_> = parts.iter().map(SelectPart::width).zip(signs).collect();
        let transitions = state.transitions.iter().map(|transition| {
            let next = next(&transition.next_state, &place)?;
            Ok((wanted(transition, &shape, &place)?, next))
        });
        let transitions = transitions.collect::<Result<Vec<_>, LoadError>>()?;
        match simple_select(&parts, &transitions) {
            Some((keys, cases, default)) => Ok(ParserState { ops, keys, cases, default, select: None }),
            None => {
                let select = Box::new(select(parts, &transitions, &place, objects, &mut told, program)?);
                Ok(ParserState { ops, keys: Vec::new(), cases: Vec::new(), default: None, select: Some(select) })
            }
        }
    });
    let states_compiled = compiled.collect::<Result<Vec<_>, _>>()?;
    let start = next(&parser.init_state, "parser")?;
    Ok(ParserCode { states: states_compiled, start, errors: errors(doc)? })
}

/// The program's numbers for the errors that the parser itself raises.
fn errors(doc: &Document) -> Result<ParserErrors, LoadError> {
    if let Some((name, value)) = doc.errors.iter().find(|(_, value)| u32::try_from(*value).is_err()) {
        return refuse("`errors`", format!("{name} is number {value}: they have 32 bits"));
    }
    let number = |name: &str| doc.errors.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value);
    Ok(ParserErrors {
        none: number("NoError"),
        packet_too_short: number("PacketTooShort"),
        no_match: number("NoMatch"),
        timeout: number("ParserTimeout"),
        invalid_argument: number("ParserInvalidArgument"),
        stack_out_of_bounds: number("StackOutOfBounds"),
        header_too_short: number("HeaderTooShort"),
    })
}

fn operations(
    state: &ParseState,
    place: &str,
    asm: &mut Assembler,
    objects: &Objects,
    messages: &mut Vec<Message>,
) -> Result<Vec<ParserOp>, LoadError> {
    let mut ops = Vec::new();
    // Neighbouring assignments and primitives run as one piece of code.
    let mut running = false;
    asm.params.clear();
    for op in &state.parser_ops {
        asm.next_statement();
        asm.place = match &op.source_info {
            Some(_) => place_of("parser operation", &op.op, &op.source_info),
            None => place.to_string(),
        };
        let lasts = op.parameters.iter().flat_map(|param| read_lasts(param, asm)).collect::<Vec<_>>();
        let is_code = match op.op.as_str() {
            "primitive" => true,
            "set" => typed(op, 1, asm)?.kind != "lookahead" && plain_move(op, asm)?.is_none(),
            _ => false,
        };
        if running && (!is_code || !lasts.is_empty()) {
            asm.code.push(Op::Exit);
            running = false;
        }
        ops.extend(lasts.into_iter().map(|next| ParserOp::Other(OtherParserOp::HasLast { next })));
        if is_code && !running {
            ops.push(ParserOp::Run { start: asm.code.len() as u32 });
            running = true;
        }
        match op.op.as_str() {
            "primitive" => {
                let primitive: Primitive = match op.parameters.first().map(|p| serde_json::from_value(p.clone())) {
                    Some(Ok(primitive)) => primitive,
                    _ => return asm.refuse("a parser primitive without its call"),
                };
                actions::single(&primitive, place, asm, objects, messages)?;
            }
            "set" => {
                let value = typed(op, 1, asm)?;
                if value.kind == "lookahead" {
                    ops.push(set_lookahead(op, &value, asm)?);
                } else if let Some((dst, a)) = plain_move(op, asm)? {
                    ops.push(ParserOp::Move { dst, a });
                } else {
                    let parameters = vec![typed(op, 0, asm)?, value];
                    let primitive =
                        Primitive { op: "set".to_string(), parameters, source_info: op.source_info.clone() };
                    actions::single(&primitive, place, asm, objects, messages)?;
                }
            }
            "extract" | "extract_VL" => extract(op, asm, &mut ops)?,
            "advance" => ops.push(ParserOp::Advance { bits: snippet(&typed(op, 0, asm)?, asm)? }),
            "verify" => {
                let (condition, error) = (typed(op, 0, asm)?, typed(op, 1, asm)?);
                let condition = snippet(&condition, asm)?;
                ops.push(ParserOp::Verify { condition, error: snippet(&error, asm)? });
            }
            other => return asm.refuse(format!("parser operation `{other}` is not supported")),
        }
    }
    if running {
        asm.code.push(Op::Exit);
    }
    Ok(ops)
}

/// Returns the next-index registers of the stacks whose last element the object reads.
fn read_lasts(value: &Json, asm: &Assembler) -> Vec<Reg> {
    match value {
        Json::Object(object) => {
            let kind = object.get("type").and_then(Json::as_str);
            if let Some("stack_field" | "union_stack_field") = kind
                && let Ok((next, _)) = operands::last(&value["value"], asm.phv, "")
            {
                return vec![next.reg];
            }
            object.values().flat_map(|value| read_lasts(value, asm)).collect()
        }
        Json::Array(values) => values.iter().flat_map(|value| read_lasts(value, asm)).collect(),
        _ => Vec::new(),
    }
}

fn extract(op: &JsonOp, asm: &mut Assembler, ops: &mut Vec<ParserOp>) -> Result<(), LoadError> {
    let param = typed(op, 0, asm)?;
    let (target, header) = match param.kind.as_str() {
        "regular" => match param.value.as_str().and_then(|name| asm.phv.header(name)) {
            Some(header) => (ExtractTarget::Header(header), header),
            None => return asm.refuse(format!("cannot extract {}", param.value)),
        },
        "stack" => {
            let (stack, info) = operands::stack(&param, asm.phv, &asm.place)?;
            (ExtractTarget::Next { stack, member: 0 }, info.elements[0][0])
        }
        "union_stack" => {
            let name = param.value.get(0).and_then(Json::as_str).unwrap_or_default();
            let member = param.value.get(1).and_then(Json::as_str).unwrap_or_default();
            let found = asm.phv.stack(name).and_then(|stack| {
                let info = &asm.phv.stacks[stack as usize];
                let member = info.members.iter().position(|m| m == member)?;
                Some((ExtractTarget::Next { stack, member }, info.elements[0][member]))
            });
            match found {
                Some(found) => found,
                None => return asm.refuse(format!("cannot extract {}", param.value)),
            }
        }
        other => return asm.refuse(format!("extraction to `{other}` is not supported")),
    };
    let info = &asm.phv.headers[header as usize];
    if info.metadata {
        return asm.refuse(format!("cannot extract {}", param.value));
    }
    let varbit = info.varbit().copied();
    let most = (info.bits + varbit.map_or(0, |field| field.width as u32)) / 8;
    let length = match (op.op.as_str(), varbit) {
        ("extract_VL", Some(_)) => {
            let Snippet { start, result } = snippet(&typed(op, 1, asm)?, asm)?;
            ops.push(ParserOp::Run { start });
            Some(result)
        }
        ("extract", None) => None,
        _ => return asm.refuse("a header is extracted with a length if, and only if, it has a varbit"),
    };
    ops.push(match length {
        None => ParserOp::Extract { target },
        Some(length) => ParserOp::Other(OtherParserOp::Extract { target, length, most }),
    });
    Ok(())
}

fn set_lookahead(op: &JsonOp, value: &Typed, asm: &Assembler) -> Result<ParserOp, LoadError> {
    let Some(Expr::Field(dst)) = operands::field(&typed(op, 0, asm)?, asm.phv, &asm.place)? else {
        return asm.refuse("a lookahead into anything but a field is not supported");
    };
    if dst.length.is_some() {
        return asm.refuse("a lookahead into a varbit is not supported");
    }
    let (offset, width) = lookahead(&value.value, asm)?;
    let place = super::place(dst);
    if width <= dst.width && dst.width <= MAX_SELECT as u16 && !dst.signed {
        return Ok(ParserOp::Lookahead { dst: place, offset, width });
    }
    let header = asm.phv.offset(dst.header);
    Ok(ParserOp::Other(OtherParserOp::Lookahead { dst: place, signed: dst.signed, place: header, offset, width }))
}

/// A `set` from a field to one that can hold all its values.
fn plain_move(op: &JsonOp, asm: &Assembler) -> Result<Option<(Reg, Reg)>, LoadError> {
    let dst = operands::field(&typed(op, 0, asm)?, asm.phv, &asm.place)?;
    let value = expr::parse(&typed(op, 1, asm)?, asm.phv, &asm.place)?;
    Ok(match (dst, value) {
        (Some(Expr::Field(dst)), Expr::Field(a))
            if !a.is_wide() && !dst.is_wide() && Range::of_field(a).within(Range::of_field(dst)) =>
        {
            Some((dst.reg, a.reg))
        }
        _ => None,
    })
}

fn typed(op: &JsonOp, index: usize, asm: &Assembler) -> Result<Typed, LoadError> {
    match op.parameters.get(index).map(|p| serde_json::from_value(p.clone())) {
        Some(Ok(typed)) => Ok(typed),
        _ => asm.refuse(format!("parser operation `{}` lacks parameter {index}", op.op)),
    }
}

fn lookahead(value: &Json, asm: &Assembler) -> Result<(u32, u16), LoadError> {
    let numbers = value.as_array().and_then(|a| Some((a.first()?.as_u64()?, a.get(1)?.as_u64()?)));
    match numbers {
        Some((offset, width)) if (1..=MAX_LOOKAHEAD as u64).contains(&width) && offset < 1 << 16 => {
            Ok((offset as u32, width as u16))
        }
        _ => asm.refuse(format!("lookahead {value} is not supported (1 to {MAX_LOOKAHEAD} bits)")),
    }
}

/// Parses a part of a key; returns it and whether it is signed.
fn select_part(key: &Typed, asm: &mut Assembler, where_: &str) -> Result<(SelectPart, bool), LoadError> {
    asm.place = where_.to_string();
    match key.kind.as_str() {
        "field" => {
            let field = asm.phv.field_of(&key.value, where_)?;
            Ok((SelectPart::Field(place(field)), field.signed))
        }
        "stack_field" | "union_stack_field" => {
            let (next, fields) = operands::last(&key.value, asm.phv, where_)?;
            let width = fields[0].width;
            let registers = fields.iter().map(|f| f.reg).collect();
            Ok((SelectPart::Last { next: next.reg, fields: registers, width }, fields[0].signed))
        }
        "lookahead" => {
            let (offset, width) = lookahead(&key.value, asm)?;
            Ok((SelectPart::Lookahead { offset, width }, false))
        }
        other => refuse(where_, format!("a select over `{other}` is not supported")),
    }
}

/// Condition of a transition; `None`: nothing, it is the default.
enum Wanted<'t> {
    Default,
    /// Value and mask.
    Key(BigUint, Option<BigUint>),
    ValueSet(&'t str),
}

/// `shape`: width and sign of each part of the key.
fn wanted<'t>(transition: &'t Transition, shape: &[(u16, bool)], where_: &str) -> Result<Wanted<'t>, LoadError> {
    let value = transition.value.as_deref();
    match (transition.kind.as_deref(), value) {
        (Some("default"), _) | (None, None | Some("default")) | (Some("hexstr"), Some("default")) => {
            Ok(Wanted::Default)
        }
        (Some("hexstr") | None, Some(value)) => {
            let mask = transition.mask.as_deref().map(|mask| {
                let unsigned: Vec<_> = shape.iter().map(|(width, _)| (*width, false)).collect();
                concatenation(mask, &unsigned, where_)
            });
            Ok(Wanted::Key(concatenation(value, shape, where_)?, mask.transpose()?))
        }
        (Some("parse_vset"), Some(set)) if transition.mask.is_none() => Ok(Wanted::ValueSet(set)),
        (kind, _) => refuse(where_, format!("a transition of type `{}` is not supported", kind.unwrap_or("hexstr"))),
    }
}

/// The parts of a key one after the other, each padded to whole bytes. p4c adds them up, so that a negative part has
/// taken 1 from the part before.
fn concatenation(text: &str, shape: &[(u16, bool)], where_: &str) -> Result<BigUint, LoadError> {
    let mut rest = hex(text, where_)?;
    let (mut result, mut shift) = (BigUint::ZERO, 0);
    for (index, &(width, signed)) in shape.iter().enumerate().rev() {
        let padded = u32::from(width.next_multiple_of(8));
        let part: BigInt = &rest & (power(padded) - 1);
        rest >>= padded;
        let negative = part.bit(u64::from(padded) - 1);
        if signed && negative && index > 0 {
            rest += 1;
        }
        // The padding of a negative part is no bit of it.
        let bits = if negative { part & (power(width.into()) - 1) } else { part };
        result |= bits.magnitude() << shift;
        shift += padded;
    }
    // The first part may stand there as a negative number or as its bits.
    if rest != BigInt::ZERO && rest != BigInt::from(-1) {
        return refuse(where_, format!("`{text}` is longer than the key of {shift} bits"));
    }
    Ok(result)
}

type Transitions<'t> = [(Wanted<'t>, NextState)];
type SimpleSelect = (Vec<SelectKey>, Vec<(u128, u128, NextState)>, Option<NextState>);

/// The form for keys of at most 128 bits; `None`: the state needs the other one.
fn simple_select(parts: &[SelectPart], transitions: &Transitions) -> Option<SimpleSelect> {
    let mut keys = Vec::new();
    for part in parts {
        keys.push(match part {
            SelectPart::Field(place) => SelectKey::Field(*place),
            SelectPart::Lookahead { offset, width } => SelectKey::Lookahead { offset: *offset, width: *width },
            SelectPart::Last { .. } => return None,
        });
    }
    if keys.iter().map(|key| key.width().next_multiple_of(8) as u32).sum::<u32>() > MAX_SELECT {
        return None;
    }
    let mut cases = Vec::new();
    let mut default = None;
    for (wanted, next) in transitions {
        match wanted {
            Wanted::Default => default = Some(*next),
            Wanted::Key(value, mask) => {
                // The key is no longer than that.
                let number = |value: &BigUint| u128::try_from(value).unwrap_or(u128::MAX);
                let mask = mask.as_ref().map_or(u128::MAX, number);
                cases.push((number(value) & mask, mask, *next));
            }
            Wanted::ValueSet(_) => return None,
        }
    }
    Some((keys, cases, default))
}

fn select(
    parts: Vec<SelectPart>,
    transitions: &Transitions,
    where_: &str,
    objects: &Objects,
    told: &mut BTreeSet<u16>,
    program: &mut Program,
) -> Result<Select, LoadError> {
    let widths: Vec<u16> = parts.iter().map(SelectPart::width).collect();
    let bytes = widths.iter().map(|width| width.div_ceil(8) as usize).sum();
    let mut cases = Vec::new();
    let mut default = None;
    for (wanted, next) in transitions {
        match wanted {
            Wanted::Default => default = Some(*next),
            Wanted::Key(value, mask) => {
                let padded = |value: &BigUint| Value::from(value).to_bytes(bytes);
                let mask = mask.as_ref().map_or_else(|| vec![0xff; bytes], padded);
                let value = padded(value).iter().zip(&mask).map(|(v, m)| v & m).collect();
                cases.push((SelectCase::Key { value, mask: mask.into() }, *next));
            }
            Wanted::ValueSet(name) => {
                let Some(&set) = objects.value_sets.get(*name) else {
                    return refuse(where_, format!("unknown value set `{name}`"));
                };
                let info = &mut program.value_sets[set as usize];
                // Until a select tells its fields, a set is known by the total of their widths.
                let total = |widths: &[u16]| widths.iter().map(|w| *w as u32).sum::<u32>();
                let first = told.insert(set);
                if info.widths != widths && !(first && total(&info.widths) == total(&widths)) {
                    return refuse(where_, format!("value set `{name}` is of other fields than the select"));
                }
                info.widths = widths.clone();
                cases.push((SelectCase::ValueSet(set), *next));
            }
        }
    }
    Ok(Select { parts, cases, default })
}
