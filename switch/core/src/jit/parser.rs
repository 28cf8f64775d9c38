// SPDX-License-Identifier: Apache-2.0
//! Parser and deparser.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value};
use cranelift_frontend::Variable;

use super::emit::Emitter;
use super::helpers::{self, NO_ERROR};
use crate::state::State;
use crate::state::bounds::Memory;
use crate::state::code::{ExtractTarget, NextState, ParserOp, ParserState, SelectKey, Snippet};
use crate::state::frame::{Frame, PacketState};
use crate::state::op::{Address, Reg};
use crate::state::select::Select;
use crate::state::wire::HeaderLayout;

/// Times that a packet goes back to a state at most; more is a parser that loops.
const MAX_ROUNDS: i64 = 1024;

/// The blocks of a parser.
struct Parser {
    states: Vec<Block>,
    /// Takes the error.
    finish: Block,
    /// Times that a state was entered from itself or a later one.
    rounds: Variable,
}

/// Parses the frame, verifies checksums, and leaves the standard metadata about both.
pub fn parse(emitter: &mut Emitter) {
    let code = emitter.code;
    let start = emitter.load(Memory::Frame, emitter.frame, offset_of!(Frame, start));
    emitter.set_payload(start);
    let parser = Parser {
        states: code.parser.states.iter().map(|_| emitter.builder.create_block()).collect(),
        finish: emitter.builder.create_block(),
        rounds: emitter.builder.declare_var(I64),
    };
    emitter.builder.append_block_param(parser.finish, I64);
    let none = emitter.constant(0);
    emitter.builder.def_var(parser.rounds, none);
    go_on(emitter, &parser, None, code.parser.start);
    for (index, state) in code.parser.states.iter().enumerate() {
        emitter.builder.switch_to_block(parser.states[index]);
        for op in &state.ops {
            if emitter.is_full() {
                return;
            }
            emitter.checks.at = ("state", index);
            operation(emitter, &parser, op);
        }
        emitter.checks.at = ("state", index);
        transition(emitter, &parser, index as u16, state);
    }
    emitter.builder.switch_to_block(parser.finish);
    let error = emitter.builder.block_params(parser.finish)[0];
    emitter.put_place(code.standard.parser_error, error);
    verify(emitter);
    let done = emitter.constant(0);
    emitter.builder.ins().return_(&[done]);
}

fn operation(emitter: &mut Emitter, parser: &Parser, op: &ParserOp) {
    let code = emitter.code;
    match op {
        ParserOp::Run { start } => run(emitter, *start),
        ParserOp::Move { dst, a } => {
            let value = emitter.get(*a);
            emitter.put(*dst, value);
        }
        ParserOp::Extract { target: ExtractTarget::Header(header) } => extract(emitter, parser, *header),
        ParserOp::Extract { target: ExtractTarget::Next { stack, member } } => {
            let (stack, done) = (&code.stacks[*stack as usize], emitter.builder.create_block());
            let next = emitter.get(stack.next);
            for (index, element) in stack.elements.iter().enumerate() {
                if emitter.is_full() {
                    return;
                }
                let (this, other) = (emitter.builder.create_block(), emitter.builder.create_block());
                let is_this = emitter.builder.ins().icmp_imm_u(IntCC::Equal, next, index as i64);
                emitter.builder.ins().brif(is_this, this, &[], other, &[]);
                emitter.builder.switch_to_block(this);
                extract(emitter, parser, element[*member]);
                let behind = emitter.constant(index as u64 + 1);
                emitter.put(stack.next, behind);
                emitter.jump(done);
                emitter.builder.switch_to_block(other);
            }
            stop(emitter, parser, code.parser.errors.stack_out_of_bounds);
            emitter.builder.switch_to_block(done);
        }
        ParserOp::Other(op) => {
            let (frame, op) = (emitter.frame, emitter.pointer(op));
            let [error] = emitter.call(helpers::parse_other as *const (), &[frame, op]);
            stop_at(emitter, parser, error);
        }
        ParserOp::Lookahead { dst, offset, width } => {
            let words = lookahead(emitter, parser, *offset, *width);
            let zero = emitter.constant(0);
            for word in 0..dst.words() {
                emitter.put(dst.reg + word as Reg, words.get(word).copied().unwrap_or(zero));
            }
        }
        ParserOp::Advance { bits } => {
            run(emitter, bits.start);
            let bits = emitter.get(bits.result);
            let rest = emitter.builder.ins().band_imm_s(bits, 7);
            stop_if(emitter, parser, rest, code.parser.errors.invalid_argument);
            let bytes = emitter.builder.ins().ushr_imm_u(bits, 3);
            let start = cursor(emitter, parser, bytes);
            let next = emitter.builder.ins().iadd(start, bytes);
            emitter.set_payload(next);
        }
        ParserOp::Verify { condition, error } => {
            run(emitter, condition.start);
            let (holds, go_on) = (emitter.get(condition.result), emitter.builder.create_block());
            let fails = emitter.builder.create_block();
            emitter.builder.ins().brif(holds, go_on, &[], fails, &[]);
            emitter.builder.switch_to_block(fails);
            run(emitter, error.start);
            let error = emitter.get(error.result);
            emitter.builder.ins().jump(parser.finish, &[BlockArg::Value(error)]);
            emitter.builder.switch_to_block(go_on);
        }
    }
}

/// Code that the parser goes on behind.
fn run(emitter: &mut Emitter, start: Address) {
    let end = emitter.builder.create_block();
    emitter.run(start, end);
    emitter.builder.switch_to_block(end);
}

/// Ends the parser if the value is not 0.
fn stop_if(emitter: &mut Emitter, parser: &Parser, value: Value, error: u64) {
    let (error, go_on) = (emitter.constant(error), emitter.builder.create_block());
    emitter.builder.ins().brif(value, parser.finish, &[BlockArg::Value(error)], go_on, &[]);
    emitter.builder.switch_to_block(go_on);
}

/// Ends the parser unless the error is none.
fn stop_at(emitter: &mut Emitter, parser: &Parser, error: Value) {
    let go_on = emitter.builder.create_block();
    let none = emitter.builder.ins().icmp_imm_s(IntCC::Equal, error, NO_ERROR as i64);
    emitter.builder.ins().brif(none, go_on, &[], parser.finish, &[BlockArg::Value(error)]);
    emitter.builder.switch_to_block(go_on);
}

fn stop(emitter: &mut Emitter, parser: &Parser, error: u64) {
    let error = emitter.constant(error);
    emitter.builder.ins().jump(parser.finish, &[BlockArg::Value(error)]);
}

/// The place in the buffer up to which the frame is parsed, if there are that many more bytes in it.
fn cursor(emitter: &mut Emitter, parser: &Parser, bytes: Value) -> Value {
    let start = emitter.payload();
    let end = emitter.load(Memory::Frame, emitter.frame, offset_of!(Frame, end));
    let left = emitter.builder.ins().isub(end, start);
    let short = emitter.builder.ins().icmp(IntCC::UnsignedLessThan, left, bytes);
    let too_short = emitter.code.parser.errors.packet_too_short;
    stop_if(emitter, parser, short, too_short);
    start
}

/// Eight bytes of the frame as a number.
fn load_bytes(emitter: &mut Emitter, address: Value, offset: usize) -> Value {
    let word = emitter.load(Memory::Bytes, address, offset);
    emitter.builder.ins().bswap(word)
}

fn extract(emitter: &mut Emitter, parser: &Parser, header: u16) {
    let code = emitter.code;
    let layout = &code.headers[header as usize];
    let bytes = emitter.constant(layout.bytes as u64);
    let start = cursor(emitter, parser, bytes);
    let address = emitter.builder.ins().iadd(emitter.bytes, start);
    for (index, window) in layout.windows().iter().enumerate() {
        let word = load_bytes(emitter, address, 8 * index);
        for piece in window {
            let bits = emitter.builder.ins().ushr_imm_u(word, piece.shift as i64);
            let bits = emitter.builder.ins().band_imm_s(bits, piece.mask as i64);
            let mut bits = emitter.builder.ins().ishl_imm_u(bits, piece.place as i64);
            if !piece.starts_word {
                let before = emitter.get(piece.reg);
                bits = emitter.builder.ins().bor(before, bits);
            }
            emitter.put_extracted(piece.reg, bits);
        }
    }
    for &(reg, width) in &layout.signed {
        let value = emitter.get(reg);
        let value = emitter.sign_extend(value, width);
        emitter.put_extracted(reg, value);
    }
    let (valid, invalid) = (emitter.constant(1), emitter.constant(0));
    emitter.put_extracted(layout.valid, valid);
    emitter.put_extracted(layout.offset, start);
    let next = emitter.builder.ins().iadd(start, bytes);
    emitter.set_payload(next);
    // The bytes of a member that this one takes the place of are still in the packet.
    for &rival in &layout.rivals {
        emitter.put(code.headers[rival as usize].valid, invalid);
    }
}

/// `width` bits that start `offset` bits behind the cursor, low word first.
fn lookahead(emitter: &mut Emitter, parser: &Parser, offset: u32, width: u16) -> Vec<Value> {
    let last = offset + width as u32;
    let bytes = emitter.constant(last.div_ceil(8) as u64);
    let start = cursor(emitter, parser, bytes);
    let address = emitter.builder.ins().iadd(emitter.bytes, start);
    let mut words = Vec::new();
    let mut end = last;
    while end > offset {
        let bits = (end - offset).min(64);
        let (byte, skip) = ((end - bits) / 8, (end - bits) % 8);
        let mut word = load_bytes(emitter, address, byte as usize);
        word = emitter.builder.ins().ishl_imm_u(word, skip as i64);
        if skip + bits > 64 {
            emitter.check(Memory::Bytes, address, byte as usize + 8, 1);
            let flags = emitter.memory(Memory::Bytes);
            let next = emitter.builder.ins().uload8(I64, flags, address, byte as i32 + 8);
            let next = emitter.builder.ins().ushr_imm_u(next, 8 - skip as i64);
            word = emitter.builder.ins().bor(word, next);
        }
        words.push(emitter.builder.ins().ushr_imm_u(word, 64 - bits as i64));
        end -= bits;
    }
    words
}

fn transition(emitter: &mut Emitter, parser: &Parser, index: u16, state: &ParserState) {
    let code = emitter.code;
    if let Some(select) = &state.select {
        return long_select(emitter, parser, index, select);
    }
    // For each part of the key: its words, and its bits in whole bytes.
    let mut parts = Vec::new();
    for key in state.keys.iter().take(if state.cases.is_empty() { 0 } else { usize::MAX }) {
        let (words, width) = match key {
            SelectKey::Field(place) => (emitter.get_place(*place), place.width),
            SelectKey::Lookahead { offset, width } => (lookahead(emitter, parser, *offset, *width), *width),
        };
        parts.push((words, width.next_multiple_of(8) as u32));
    }
    for (value, mask, next) in &state.cases {
        if emitter.is_full() {
            return;
        }
        let (found, other) = (emitter.builder.create_block(), emitter.builder.create_block());
        let (mut value, mut mask) = (*value, *mask);
        for (words, padded) in parts.iter().rev() {
            for (index, &word) in words.iter().enumerate() {
                let bits = (padded - 64 * index as u32).min(64);
                let part = u64::MAX >> (64 - bits);
                let masked = emitter.builder.ins().band_imm_s(word, (mask as u64 & part) as i64);
                let differs = emitter.builder.ins().icmp_imm_u(IntCC::NotEqual, masked, (value as u64 & part) as i64);
                let go_on = emitter.builder.create_block();
                emitter.builder.ins().brif(differs, other, &[], go_on, &[]);
                emitter.builder.switch_to_block(go_on);
                (value, mask) = (value.unbounded_shr(bits), mask.unbounded_shr(bits));
            }
        }
        // Bits in front of the key are 0.
        emitter.jump(if value == 0 { found } else { other });
        emitter.builder.switch_to_block(found);
        go_on(emitter, parser, Some(index), *next);
        emitter.builder.switch_to_block(other);
    }
    match state.default {
        Some(next) => go_on(emitter, parser, Some(index), next),
        None => stop(emitter, parser, code.parser.errors.no_match),
    }
}

/// A select over more than can be compared here.
fn long_select(emitter: &mut Emitter, parser: &Parser, index: u16, select: &Select) {
    let (frame, pointer) = (emitter.frame, emitter.pointer(select));
    let [error, next] = emitter.call(helpers::select as *const (), &[frame, pointer]);
    stop_at(emitter, parser, error);
    let mut targets: Vec<NextState> = select.cases.iter().map(|(_, next)| *next).chain(select.default).collect();
    targets.sort();
    targets.dedup();
    for target in targets {
        let (this, other) = (emitter.builder.create_block(), emitter.builder.create_block());
        let number = target.map_or(parser.states.len() as i64, i64::from);
        let is_this = emitter.builder.ins().icmp_imm_u(IntCC::Equal, next, number);
        emitter.builder.ins().brif(is_this, this, &[], other, &[]);
        emitter.builder.switch_to_block(this);
        go_on(emitter, parser, Some(index), target);
        emitter.builder.switch_to_block(other);
    }
    let no_match = emitter.code.parser.errors.no_match;
    stop(emitter, parser, no_match);
}

/// Goes from one state to the next.
fn go_on(emitter: &mut Emitter, parser: &Parser, from: Option<u16>, next: NextState) {
    let code = emitter.code;
    let errors = &code.parser.errors;
    let Some(next) = next else { return stop(emitter, parser, errors.none) };
    let to = parser.states[next as usize];
    // Every loop goes back somewhere.
    if from.is_none_or(|from| from < next) {
        return emitter.jump(to);
    }
    let rounds = emitter.builder.use_var(parser.rounds);
    let rounds = emitter.builder.ins().iadd_imm_s(rounds, 1);
    emitter.builder.def_var(parser.rounds, rounds);
    let timeout = emitter.constant(errors.timeout);
    let over = emitter.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, rounds, MAX_ROUNDS);
    emitter.builder.ins().brif(over, parser.finish, &[BlockArg::Value(timeout)], to, &[]);
}

/// Goes to `skip` if the condition does not hold.
fn condition(emitter: &mut Emitter, condition: Option<Snippet>, skip: Block) {
    if let Some(condition) = condition {
        run(emitter, condition.start);
        let (holds, go_on) = (emitter.get(condition.result), emitter.builder.create_block());
        emitter.builder.ins().brif(holds, go_on, &[], skip, &[]);
        emitter.builder.switch_to_block(go_on);
    }
}

/// The value of a calculation over header fields and payload.
fn checksum(emitter: &mut Emitter, calculation: u16) -> Value {
    let (frame, number) = (emitter.frame, emitter.constant(calculation as u64));
    let [value] = emitter.call(helpers::checksum as *const (), &[frame, number]);
    value
}

fn verify(emitter: &mut Emitter) {
    let code = emitter.code;
    let wrong = emitter.builder.declare_var(I64);
    let none = emitter.constant(0);
    emitter.builder.def_var(wrong, none);
    for check in &code.verify {
        let (valid, skip) = (emitter.builder.create_block(), emitter.builder.create_block());
        let is_valid = emitter.get(check.target_valid);
        emitter.builder.ins().brif(is_valid, valid, &[], skip, &[]);
        emitter.builder.switch_to_block(valid);
        condition(emitter, check.condition, skip);
        // All of it: a field that is too short for the value is wrong, as in BMv2.
        let expected = checksum(emitter, check.calculation);
        let is = emitter.get_place(check.target);
        let mut differences = emitter.builder.use_var(wrong);
        let low = emitter.builder.ins().bxor(is[0], expected);
        for difference in [low].iter().chain(&is[1..]) {
            differences = emitter.builder.ins().bor(differences, *difference);
        }
        emitter.builder.def_var(wrong, differences);
        emitter.jump(skip);
        emitter.builder.switch_to_block(skip);
    }
    let wrong = emitter.builder.use_var(wrong);
    let is_wrong = emitter.builder.ins().icmp_imm_u(IntCC::NotEqual, wrong, 0);
    let is_wrong = emitter.builder.ins().uextend(I64, is_wrong);
    emitter.put_place(code.standard.checksum_error, is_wrong);
}

/// Updates checksums and writes the headers in front of the payload; 0: the frame does not fit its buffer.
pub fn deparse(emitter: &mut Emitter) {
    let code = emitter.code;
    for update in &code.update {
        let skip = emitter.builder.create_block();
        condition(emitter, update.condition, skip);
        let value = checksum(emitter, update.calculation);
        emitter.put_place(update.target, value);
        emitter.jump(skip);
        emitter.builder.switch_to_block(skip);
    }
    if let Some(start) = code.before_deparser {
        run(emitter, start);
    }
    let none = emitter.constant(0);
    let mut length = none;
    for &header in &code.deparser {
        let layout = &code.headers[header as usize];
        let (valid, bytes) = (emitter.get(layout.valid), bytes_of(emitter, layout));
        let bytes = emitter.builder.ins().select(valid, bytes, none);
        length = emitter.builder.ins().iadd(length, bytes);
    }
    let (full, write) = (emitter.builder.create_block(), emitter.builder.create_block());
    let frame = emitter.frame;
    let [fits] = emitter.call(helpers::make_room as *const (), &[frame, length]);
    emitter.builder.ins().brif(fits, write, &[], full, &[]);
    emitter.builder.switch_to_block(full);
    emitter.builder.ins().return_(&[none]);

    emitter.builder.switch_to_block(write);
    let mut at = emitter.load(Memory::Frame, frame, offset_of!(Frame, start));
    for &header in &code.deparser {
        if emitter.is_full() {
            return;
        }
        emitter.checks.at = ("header", header as usize);
        let layout = &code.headers[header as usize];
        let (valid, here, changed, next) = (
            emitter.builder.create_block(),
            emitter.builder.create_block(),
            emitter.builder.create_block(),
            emitter.builder.create_block(),
        );
        emitter.builder.append_block_param(next, I64);
        let is_valid = emitter.get(layout.valid);
        emitter.builder.ins().brif(is_valid, valid, &[], next, &[BlockArg::Value(at)]);
        emitter.builder.switch_to_block(valid);
        // Untouched and where it came from: the bytes are there already.
        let offset = emitter.get(layout.offset);
        let moved = emitter.builder.ins().icmp(IntCC::NotEqual, offset, at);
        emitter.builder.ins().brif(moved, changed, &[], here, &[]);
        emitter.builder.switch_to_block(changed);
        if layout.parts.is_empty() {
            emit(emitter, layout, at);
        } else {
            let number = emitter.constant(header as u64);
            emitter.call::<0>(helpers::emit_parts as *const (), &[frame, number, at]);
        }
        emitter.jump(here);
        emitter.builder.switch_to_block(here);
        let bytes = bytes_of(emitter, layout);
        let behind = emitter.builder.ins().iadd(at, bytes);
        emitter.builder.ins().jump(next, &[BlockArg::Value(behind)]);
        emitter.builder.switch_to_block(next);
        at = emitter.builder.block_params(next)[0];
    }
    truncate(emitter);
    let fits = emitter.constant(1);
    emitter.builder.ins().return_(&[fits]);
}

/// Bytes on the wire, with those of a varbit.
fn bytes_of(emitter: &mut Emitter, layout: &HeaderLayout) -> Value {
    let bytes = emitter.constant(layout.bytes as u64);
    match layout.parts.iter().find_map(|part| part.length) {
        None => bytes,
        Some(length) => {
            let bits = emitter.get(length);
            let more = emitter.builder.ins().ushr_imm_u(bits, 3);
            emitter.builder.ins().iadd(bytes, more)
        }
    }
}

/// Writes a header to its place in the buffer.
fn emit(emitter: &mut Emitter, layout: &HeaderLayout, at: Value) {
    let address = emitter.builder.ins().iadd(emitter.bytes, at);
    emitter.check(Memory::Bytes, address, 0, layout.bytes as usize);
    let flags = emitter.memory(Memory::Bytes);
    for (index, window) in layout.windows().iter().enumerate() {
        let mut word = emitter.constant(0);
        for piece in window {
            let value = emitter.get(piece.reg);
            let bits = emitter.builder.ins().ushr_imm_u(value, piece.place as i64);
            let bits = emitter.builder.ins().band_imm_s(bits, piece.mask as i64);
            let bits = emitter.builder.ins().ishl_imm_u(bits, piece.shift as i64);
            word = emitter.builder.ins().bor(word, bits);
        }
        // The first byte of the frame is the lowest.
        let mut left = emitter.builder.ins().bswap(word);
        let (mut at, end) = (8 * index as i32, layout.bytes as i32);
        if end - at >= 8 {
            emitter.builder.ins().store(flags, left, address, at);
            continue;
        }
        for bytes in [4, 2, 1].into_iter().filter(|bytes| (end - 8 * index as i32) & bytes != 0) {
            match bytes {
                4 => emitter.builder.ins().istore32(flags, left, address, at),
                2 => emitter.builder.ins().istore16(flags, left, address, at),
                _ => emitter.builder.ins().istore8(flags, left, address, at),
            };
            left = emitter.builder.ins().ushr_imm_u(left, 8 * bytes as i64);
            at += bytes;
        }
    }
}

/// Cuts the frame to what may leave of it.
fn truncate(emitter: &mut Emitter) {
    let flags = emitter.memory(Memory::Packet);
    let offset = offset_of!(State, packet) + offset_of!(PacketState, truncate);
    let most = emitter.builder.ins().uload32(flags, emitter.state, offset as i32);
    let start = emitter.load(Memory::Frame, emitter.frame, offset_of!(Frame, start));
    let end = emitter.load(Memory::Frame, emitter.frame, offset_of!(Frame, end));
    let last = emitter.builder.ins().iadd(start, most);
    let end = emitter.builder.ins().umin(end, last);
    emitter.store(Memory::Frame, end, emitter.frame, offset_of!(Frame, end));
}

impl Emitter<'_> {
    /// Emits the number of bytes that are parsed.
    fn payload(&mut self) -> Value {
        self.load(Memory::Packet, self.state, offset_of!(State, packet) + offset_of!(PacketState, payload))
    }

    fn set_payload(&mut self, cursor: Value) {
        self.store(Memory::Packet, cursor, self.state, offset_of!(State, packet) + offset_of!(PacketState, payload));
    }
}
