// SPDX-License-Identifier: Apache-2.0
//! Parser and deparser.

use num_bigint::BigInt;

use super::interpreter::{Interpreter, calculate, scope};
use super::packet_trace::{Event, Named, show};
use super::phv::{Bits, Packet, bits_of, fit, is_true, low64};
use super::program::*;
use super::tables::matches;
use apswitch_core::program::Value;

/// States that a packet passes at most; more is a parser that loops.
const MAX_STATES: usize = 1024;

/// The name of a parser error.
type Error = String;

fn error<T>(name: &str) -> Result<T, Error> {
    Err(name.to_string())
}

impl Interpreter {
    /// Parses the frame into headers, verifies checksums and leaves the standard metadata about errors.
    pub fn parse(&mut self, packet: &mut Packet) {
        let program = self.program.clone();
        let mut next = program.start;
        let mut parser_error = "NoError".to_string();
        for passed in 0.. {
            let Some(index) = next else { break };
            let state = &program.states[index];
            if passed == MAX_STATES {
                parser_error = "ParserTimeout".into();
                break;
            }
            self.note(|| Event::State { name: state.name.clone() });
            match self.state(state, packet) {
                Ok(following) => next = following,
                Err(error) => {
                    self.note(|| Event::ParserError { error: error.clone(), state: state.name.clone() });
                    parser_error = error;
                    break;
                }
            }
        }
        // `verify` may raise what has no name.
        let number = parser_error.parse().unwrap_or_else(|_| program.error(&parser_error));
        self.set_standard(packet, "standard_metadata.parser_error", number);
        let mut wrong = false;
        for checksum in program.checksums.iter().filter(|checksum| checksum.verify) {
            if !packet.phv.headers[checksum.header].valid || !condition(&program, checksum, packet) {
                continue;
            }
            let value = calculate(&program, &program.calculations[checksum.calculation], packet, &mut self.rng);
            let part = Part::Field(checksum.field);
            let width = packet.phv.width(&program, checksum.header, part);
            let correct = BigInt::from(value) == fit(&packet.phv.get(checksum.header, part), width, false);
            wrong |= !correct;
            self.note(|| Event::Checksum { name: program.field_name(checksum.header, part), correct });
        }
        self.set_standard(packet, "standard_metadata.checksum_error", wrong.into());
    }

    /// The state that follows.
    fn state(&mut self, state: &State, packet: &mut Packet) -> Result<Option<usize>, Error> {
        let program = self.program.clone();
        for op in &state.ops {
            if op.expressions().any(|expr| scope(&program, packet, &[]).reads_last_of_empty(expr)) {
                return error("StackOutOfBounds");
            }
            match op {
                ParserOp::Extract(target, varbit) => {
                    let varbit = varbit.as_ref().map(|bits| low64(&scope(&program, packet, &[]).eval(bits)));
                    self.extract(target, varbit, packet)?;
                }
                ParserOp::Set(target, value) => {
                    let value = scope(&program, packet, &[]).eval(value);
                    self.set_field(target, &value, packet);
                }
                ParserOp::SetAhead(target, ahead) => {
                    let value = look(packet, *ahead)?;
                    self.set_field(target, &value, packet);
                }
                ParserOp::Advance(bits) => {
                    let bits = low64(&scope(&program, packet, &[]).eval(bits));
                    if !bits.is_multiple_of(8) {
                        return error("ParserInvalidArgument");
                    }
                    if bits / 8 > packet.payload().len() as u64 {
                        return error("PacketTooShort");
                    }
                    packet.parsed += bits as usize / 8;
                    self.note(|| Event::Advanced { bits });
                }
                ParserOp::Verify(condition, raised) => {
                    let scope = scope(&program, packet, &[]);
                    if !is_true(&scope.eval(condition)) {
                        return Err(program.error_name(low64(&scope.eval(raised))));
                    }
                }
                ParserOp::Run(statement) => self.run_statement(statement, packet),
            }
        }
        let mut key = Bits::default();
        let mut parts: Vec<(Value, u32)> = Vec::new();
        let mut shown: Vec<Named> = Vec::new();
        for part in &state.select {
            let (name, value, width) = match part {
                SelectKey::Field(field) => {
                    let scope = scope(&program, packet, &[]);
                    match scope.header(&field.header) {
                        Some(header) => {
                            let name = program.field_name(header, field.part);
                            (name, scope.field(field), packet.phv.width(&program, header, field.part))
                        }
                        // The last of an empty stack.
                        None => return error("StackOutOfBounds"),
                    }
                }
                SelectKey::Lookahead(ahead) => ("what follows".into(), look(packet, *ahead)?, ahead.width as u32),
            };
            key.push(&BigInt::ZERO, width.next_multiple_of(8) - width);
            key.push(&value, width);
            parts.push((fit(&value, width, false).magnitude().into(), width));
            shown.push((name, show(&fit(&value, width, false), width)));
        }
        let key = key.value();
        let hits = |(case, _): &&(Case, Option<usize>)| match case {
            Case::Value { value, mask: Some(mask) } => &key & mask == value & mask,
            Case::Value { value, mask: None } => key == *value,
            Case::Set(set) => self.value_sets[*set]
                .iter()
                .any(|member| member.iter().zip(&parts).all(|(field, (value, width))| matches(field, value, *width))),
        };
        let next = match state.cases.iter().find(hits) {
            Some((_, next)) => *next,
            None => match state.default {
                Some(next) => next,
                None => return error("NoMatch"),
            },
        };
        let name = next.map_or("the end: accepted", |next| &program.states[next].name).to_string();
        self.note(|| Event::Selected { key: shown, next: name });
        Ok(next)
    }

    fn set_field(&mut self, target: &FieldRef, value: &BigInt, packet: &mut Packet) {
        let result = self.assign(target, value, packet, &[]);
        self.note(|| Event::Step { text: "sets".into(), place: String::new(), result });
    }

    /// `varbit`: bits of the field of variable width.
    fn extract(&mut self, target: &Extract, varbit: Option<u64>, packet: &mut Packet) -> Result<(), Error> {
        let program = self.program.clone();
        let header = match *target {
            Extract::Header(header) => Some(header),
            Extract::Stack(stack) => program.stacks[stack].elements.get(packet.phv.filled[stack]).copied(),
            Extract::UnionStack { stack, member } => {
                let union = program.union_stacks[stack].elements.get(packet.phv.filled_unions[stack]);
                union.and_then(|&union| program.unions[union].members.get(member).copied())
            }
        };
        let Some(header) = header else { return error("StackOutOfBounds") };
        let fixed: u32 = program.headers[header].fields.iter().map(|field| field.width).sum();
        let varbit = varbit.unwrap_or(0);
        if !varbit.is_multiple_of(8) {
            return error("ParserInvalidArgument");
        }
        let bytes = u64::from(fixed / 8) + varbit / 8;
        if bytes > packet.payload().len() as u64 {
            return error("PacketTooShort");
        }
        if program.headers[header].max_bytes.is_some_and(|most| bytes > most as u64) {
            return error("HeaderTooShort");
        }
        let before = packet.headers_len(&program);
        packet.phv.set_valid(&program, header, true);
        packet.phv.headers[header].varbit = varbit as u32;
        let mut at = 0;
        for field in 0..program.headers[header].fields.len() {
            let width = packet.phv.width(&program, header, Part::Field(field));
            let value = bits_of(packet.payload(), at, width as usize).unwrap_or_default();
            packet.phv.set(&program, header, field, &value);
            at += width as usize;
        }
        packet.parsed += bytes as usize;
        // To extract a header changes the packet's length by nothing.
        packet.rest -= packet.headers_len(&program) - before;
        match *target {
            Extract::Header(_) => {}
            Extract::Stack(stack) => packet.phv.filled[stack] += 1,
            Extract::UnionStack { stack, .. } => packet.phv.filled_unions[stack] += 1,
        }
        self.note(|| Event::Extracted {
            header: program.headers[header].name.clone(),
            fields: shown(&program, packet, header),
        });
        Ok(())
    }

    /// Updates checksums and writes the valid headers in front of the payload.
    pub fn deparse(&mut self, packet: &mut Packet) -> Vec<u8> {
        let program = self.program.clone();
        for checksum in program.checksums.iter().filter(|checksum| checksum.update) {
            if condition(&program, checksum, packet) {
                let value = calculate(&program, &program.calculations[checksum.calculation], packet, &mut self.rng);
                packet.phv.set(&program, checksum.header, checksum.field, &BigInt::from(value));
                let field = program.field_name(checksum.header, Part::Field(checksum.field));
                self.note(|| Event::ChecksumUpdated { field, value: show(&BigInt::from(value), 16) });
            }
        }
        for statement in &program.deparser_statements {
            self.run_statement(statement, packet);
        }
        let mut frame = Vec::new();
        let mut names = Vec::new();
        for &header in program.deparser.iter().filter(|&&header| packet.phv.headers[header].valid) {
            let mut bits = Bits::default();
            packet.phv.push_header(&program, header, &mut bits);
            frame.extend(bits.bytes());
            names.push(program.headers[header].name.clone());
        }
        let payload = packet.payload().len();
        self.note(|| Event::Deparsed { headers: names, payload });
        frame.extend_from_slice(packet.payload());
        frame.truncate(packet.truncate as usize);
        frame
    }
}

fn shown(program: &Program, packet: &Packet, header: usize) -> Vec<Named> {
    let field = |(index, field): (usize, &Field)| {
        let width = packet.phv.width(program, header, Part::Field(index));
        (field.name.clone(), show(&packet.phv.headers[header].fields[index], width))
    };
    program.headers[header].fields.iter().enumerate().map(field).collect()
}

fn condition(program: &Program, checksum: &Checksum, packet: &Packet) -> bool {
    checksum.condition.as_ref().is_none_or(|condition| scope(program, packet, &[]).holds(condition))
}

fn look(packet: &Packet, ahead: Lookahead) -> Result<BigInt, Error> {
    bits_of(packet.payload(), ahead.offset, ahead.width).map_or_else(|| error("PacketTooShort"), Ok)
}
