// SPDX-License-Identifier: Apache-2.0
//! Parser states.

use std::collections::HashMap;

use serde_json::Value;

use super::asm::Assembler;
use super::expr::{self, Range, hex};
use super::json::{Document, ParseState, ParserOp as JsonOp, Primitive, Typed};
use super::{LoadError, Objects, actions, place, place_of, refuse, snippet};
use crate::machine::code::{Message, NextState, ParserCode, ParserErrors, ParserOp, ParserState, SelectKey};
use crate::machine::op::{Effect, Op, Reg};

/// Bits that a `select` compares at most.
const MAX_SELECT: u32 = 128;

pub fn compile(
    doc: &Document,
    asm: &mut Assembler,
    objects: &Objects,
    messages: &mut Vec<Message>,
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
    let compiled = parser.parse_states.iter().map(|state| {
        let place = place_of("parser state", &state.name, &state.source_info);
        let ops = operations(state, &place, asm, objects, messages)?;
        let keys =
            state.transition_key.iter().map(|key| select_key(key, asm, &place)).collect::<Result<Vec<_>, _>>()?;
        let bits: u32 = keys.iter().map(|key| key.width().next_multiple_of(8) as u32).sum();
        if bits > MAX_SELECT {
            return refuse(&place, format!("a select over {bits} bits is not supported (at most {MAX_SELECT})"));
        }
        let mut cases = Vec::new();
        let mut default = None;
        for transition in &state.transitions {
            let next = next(&transition.next_state, &place)?;
            match (transition.kind.as_deref(), &transition.value) {
                (Some("default"), _) | (None, None) => default = Some(next),
                (None, Some(value)) if value == "default" => default = Some(next),
                (Some("hexstr") | None, Some(value)) => {
                    let value = hex(value, &place)?.as_u128();
                    let mask = match &transition.mask {
                        Some(mask) => hex(mask, &place)?.as_u128(),
                        None => u128::MAX,
                    };
                    cases.push((value & mask, mask, next));
                }
                (kind, _) => return refuse(&place, format!("a transition of type {kind:?} is not supported")),
            }
        }
        Ok(ParserState { ops, keys, cases, default })
    });
    let states_compiled = compiled.collect::<Result<Vec<_>, _>>()?;
    let start = next(&parser.init_state, "parser")?;
    Ok(ParserCode { states: states_compiled, start, errors: errors(doc) })
}

/// The program's numbers for the errors that the parser itself raises.
fn errors(doc: &Document) -> ParserErrors {
    let number = |name: &str| doc.errors.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value);
    ParserErrors {
        none: number("NoError"),
        packet_too_short: number("PacketTooShort"),
        no_match: number("NoMatch"),
        timeout: number("ParserTimeout"),
        invalid_argument: number("ParserInvalidArgument"),
    }
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
        let is_code = match op.op.as_str() {
            "primitive" => true,
            "set" => typed(op, 1, asm)?.kind != "lookahead" && plain_move(op, asm)?.is_none(),
            _ => false,
        };
        if is_code && !running {
            ops.push(ParserOp::Run { start: asm.code.len() as u32 });
        } else if !is_code && running {
            asm.code.push(Op::Effect(Effect::Exit));
        }
        running = is_code;
        match op.op.as_str() {
            "primitive" => {
                let primitive: Primitive = match op.parameters.first().map(|p| serde_json::from_value(p.clone())) {
                    Some(Ok(primitive)) => primitive,
                    _ => return asm.refuse("a parser primitive without its call"),
                };
                actions::single(&primitive, place, asm, objects, messages)?;
            }
            "set" => {
                let dst = asm.phv.field_of(&typed(op, 0, asm)?.value, &asm.place)?;
                let value = typed(op, 1, asm)?;
                if value.kind == "lookahead" {
                    let (offset, width) = lookahead(&value.value, asm)?;
                    if width > dst.width || dst.signed {
                        return asm.refuse("a lookahead into a narrower or signed field is not supported");
                    }
                    ops.push(ParserOp::Lookahead { dst: super::place(dst), offset, width });
                } else if let Some((dst, a)) = plain_move(op, asm)? {
                    ops.push(ParserOp::Move { dst, a });
                } else {
                    let expr = expr::parse(&value, asm.phv, &asm.place)?;
                    asm.assign(dst, &expr)?;
                }
            }
            "extract" => {
                let param = typed(op, 0, asm)?;
                if param.kind != "regular" {
                    return asm.refuse(format!("extraction to `{}` is not supported", param.kind));
                }
                match param.value.as_str().and_then(|name| asm.phv.header(name)) {
                    Some(header) if !asm.phv.headers[header as usize].metadata => {
                        ops.push(ParserOp::Extract { header });
                    }
                    _ => return asm.refuse(format!("cannot extract {}", param.value)),
                }
            }
            "advance" => ops.push(ParserOp::Advance { bits: snippet(&typed(op, 0, asm)?, asm)? }),
            "verify" => {
                let place = asm.place.clone();
                let condition = snippet(&typed(op, 0, asm)?, asm)?;
                let error = expr::parse(&typed(op, 1, asm)?, asm.phv, &place)?;
                let expr::Expr::Constant(error) = error else {
                    return asm.refuse("an error that is not a constant is not supported");
                };
                let error = asm.constant(error.as_u64())?;
                ops.push(ParserOp::Verify { condition, error });
            }
            other => return asm.refuse(format!("parser operation `{other}` is not supported")),
        }
    }
    if running {
        asm.code.push(Op::Effect(Effect::Exit));
    }
    Ok(ops)
}

/// A `set` from a field to one that can hold all its values.
fn plain_move(op: &JsonOp, asm: &Assembler) -> Result<Option<(Reg, Reg)>, LoadError> {
    let dst = asm.phv.field_of(&typed(op, 0, asm)?.value, &asm.place)?;
    let value = expr::parse(&typed(op, 1, asm)?, asm.phv, &asm.place)?;
    Ok(match value {
        expr::Expr::Field(a) if !a.is_wide() && !dst.is_wide() && Range::of_field(a).within(Range::of_field(dst)) => {
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

fn lookahead(value: &Value, asm: &Assembler) -> Result<(u32, u16), LoadError> {
    let numbers = value.as_array().and_then(|a| Some((a.first()?.as_u64()?, a.get(1)?.as_u64()?)));
    match numbers {
        Some((offset, width)) if (1..=128).contains(&width) && offset < 1 << 16 => Ok((offset as u32, width as u16)),
        _ => asm.refuse(format!("lookahead {value} is not supported (1 to 128 bits)")),
    }
}

fn select_key(key: &Typed, asm: &mut Assembler, where_: &str) -> Result<SelectKey, LoadError> {
    asm.place = where_.to_string();
    match key.kind.as_str() {
        "field" => Ok(SelectKey::Field(place(asm.phv.field_of(&key.value, where_)?))),
        "lookahead" => {
            let (offset, width) = lookahead(&key.value, asm)?;
            Ok(SelectKey::Lookahead { offset, width })
        }
        other => refuse(where_, format!("a select over `{other}` is not supported")),
    }
}
