// SPDX-License-Identifier: Apache-2.0
//! Parser and deparser: from the frame to registers and back.

use super::State;
use super::code::{Code, ExtractTarget, OtherParserOp, ParserErrors, ParserOp, SelectKey};
use super::frame::Frame;
use super::hash::read;
use super::op::REGISTERS;
use super::select::MAX_LOOKAHEAD;
use super::wire::{NOT_IN_FRAME, sign_extend};

/// States that a packet passes at most; more is a parser that loops.
const MAX_STATES: usize = 1024;

impl State {
    /// Parses the frame into the registers, which are empty but for what the parser may branch on. Verifies
    /// checksums and leaves the standard metadata about errors. `now`: ns.
    pub fn parse(&mut self, code: &Code, frame: &Frame, now: u64) {
        self.packet.payload = frame.start;
        let error = match self.parse_states(code, frame, now) {
            Ok(()) => code.parser.errors.none,
            Err(error) => error,
        };
        self.set(code.standard.parser_error, error);
        let mut wrong = false;
        for checksum in &code.verify {
            if self.reg(checksum.target_valid) == 0 {
                continue;
            }
            if let Some(condition) = checksum.condition {
                self.run(code, condition.start, now);
                if self.reg(condition.result) == 0 {
                    continue;
                }
            }
            let payload = frame.from(self.packet.payload);
            let value = self.calculate(code, checksum.calculation, payload);
            wrong |= value as u128 & checksum.target.mask() as u128 != read(checksum.target, &self.regs);
        }
        self.set(code.standard.checksum_error, wrong as u64);
    }

    fn parse_states(&mut self, code: &Code, frame: &Frame, now: u64) -> Result<(), u64> {
        let errors = &code.parser.errors;
        let mut next = code.parser.start;
        for _ in 0..MAX_STATES {
            let Some(index) = next else { return Ok(()) };
            let state = &code.parser.states[index as usize];
            for op in &state.ops {
                match op {
                    ParserOp::Extract { header } => {
                        let layout = &code.headers[*header as usize];
                        let at = self.packet.payload;
                        if frame.end - at < layout.bytes as usize {
                            return Err(errors.packet_too_short);
                        }
                        layout.extract(frame, at, &mut self.regs);
                        self.packet.payload += layout.bytes as usize;
                    }
                    ParserOp::Move { dst, a } => {
                        let value = self.reg(*a);
                        self.put(*dst, value);
                    }
                    ParserOp::Run { start } => self.run(code, *start, now),
                    ParserOp::Lookahead { dst, offset, width } => {
                        let value = self.lookahead(frame, *offset, *width, errors)?;
                        self.put(dst.reg, value as u64);
                        if dst.words() == 2 {
                            self.put(dst.reg + 1, (value >> 64) as u64);
                        }
                    }
                    ParserOp::Advance { bits } => {
                        self.run(code, bits.start, now);
                        let bits = self.reg(bits.result);
                        if !bits.is_multiple_of(8) {
                            return Err(errors.invalid_argument);
                        }
                        if ((frame.end - self.packet.payload) as u64) < bits / 8 {
                            return Err(errors.packet_too_short);
                        }
                        self.packet.payload += (bits / 8) as usize;
                    }
                    ParserOp::Verify { condition, error } => {
                        self.run(code, condition.start, now);
                        if self.reg(condition.result) == 0 {
                            return Err(self.reg(*error));
                        }
                    }
                    ParserOp::Other(op) => self.parse_other(code, op, frame)?,
                }
            }
            if let Some(select) = &state.select {
                next = self.select(code, select, frame)?;
                continue;
            }
            if state.cases.is_empty() {
                match state.default {
                    Some(default) => next = default,
                    None => return Err(errors.no_match),
                }
                continue;
            }
            let mut key = 0u128;
            for part in &state.keys {
                let value = match part {
                    SelectKey::Field(place) => read(*place, &self.regs),
                    SelectKey::Lookahead { offset, width } => self.lookahead(frame, *offset, *width, errors)?,
                };
                let padded = part.width().next_multiple_of(8) as u32;
                key = key.checked_shl(padded).unwrap_or(0) | value;
            }
            let case = state.cases.iter().find(|(value, mask, _)| key & mask == *value);
            next = match (case, state.default) {
                (Some((_, _, next)), _) => *next,
                (None, Some(next)) => next,
                (None, None) => return Err(errors.no_match),
            };
        }
        Err(errors.timeout)
    }

    /// What few parsers do; the number of the error.
    pub fn parse_other(&mut self, code: &Code, op: &OtherParserOp, frame: &Frame) -> Result<(), u64> {
        let errors = &code.parser.errors;
        match op {
            OtherParserOp::Extract { target, length, most } => {
                let (header, stack) = match target {
                    ExtractTarget::Header(header) => (*header, None),
                    ExtractTarget::Next { stack, member } => {
                        let stack = &code.stacks[*stack as usize];
                        match stack.elements.get(self.reg(stack.next) as usize) {
                            Some(element) => (element[*member], Some(stack.next)),
                            None => return Err(errors.stack_out_of_bounds),
                        }
                    }
                };
                let bits = length.map_or(0, |length| self.reg(length));
                if !bits.is_multiple_of(8) {
                    return Err(errors.invalid_argument);
                }
                let layout = &code.headers[header as usize];
                let at = self.packet.payload;
                let bytes = layout.bytes as u64 + bits / 8;
                if ((frame.end - at) as u64) < bytes {
                    return Err(errors.packet_too_short);
                }
                if length.is_some() && bytes > *most as u64 {
                    return Err(errors.header_too_short);
                }
                if layout.parts.is_empty() {
                    layout.extract(frame, at, &mut self.regs);
                } else {
                    layout.extract_parts(frame, at, bits as u32, &mut self.regs);
                }
                self.packet.payload += bytes as usize;
                // The bytes of a member that this one takes the place of are still in the packet.
                for &rival in &layout.rivals {
                    self.put(code.headers[rival as usize].valid, 0);
                }
                if let Some(next) = stack {
                    let index = self.reg(next);
                    self.put(next, index + 1);
                }
            }
            OtherParserOp::HasLast { next } => {
                if self.reg(*next) == 0 {
                    return Err(errors.stack_out_of_bounds);
                }
            }
            OtherParserOp::Lookahead { dst, signed, place, offset, width } => {
                let mut words = [0; MAX_LOOKAHEAD / 64];
                if !self.peek(frame, *offset, *width as u32, &mut words) {
                    return Err(errors.packet_too_short);
                }
                let first = dst.reg as usize;
                let last = dst.words() - 1;
                words[last] &= u64::MAX >> (64 - ((dst.width - 1) % 64 + 1));
                if *signed {
                    words[0] = sign_extend(words[0], dst.width as u8);
                }
                self.regs[first..=first + last].copy_from_slice(&words[..=last]);
                self.put(*place, NOT_IN_FRAME);
            }
        }
        Ok(())
    }

    /// `width` bits (at most 128) that start `offset` bits behind the cursor.
    fn lookahead(&self, frame: &Frame, offset: u32, width: u16, errors: &ParserErrors) -> Result<u128, u64> {
        let mut words = [0; 2];
        if !self.peek(frame, offset, width as u32, &mut words) {
            return Err(errors.packet_too_short);
        }
        Ok((words[1] as u128) << 64 | words[0] as u128)
    }

    /// Updates checksums and writes the headers in front of the payload. False: the frame does not fit its buffer.
    pub fn deparse(&mut self, code: &Code, frame: &mut Frame, now: u64) -> bool {
        for checksum in &code.update {
            if let Some(condition) = checksum.condition {
                self.run(code, condition.start, now);
                if self.reg(condition.result) == 0 {
                    continue;
                }
            }
            let value = self.calculate(code, checksum.calculation, frame.from(self.packet.payload));
            self.set(checksum.target, value);
        }
        let valid = |header: &&u16| self.regs[code.headers[**header as usize].valid as usize % REGISTERS] != 0;
        let length: usize =
            code.deparser.iter().filter(valid).map(|h| code.headers[*h as usize].length(&self.regs) as usize).sum();
        let was = self.packet.payload;
        let Some(payload) = frame.prepend(was, length) else { return false };
        let mut at = frame.start;
        for header in code.deparser.iter().filter(valid) {
            let layout = &code.headers[*header as usize];
            let offset = self.regs[layout.offset as usize % REGISTERS];
            // Untouched and where it came from: the bytes are there already.
            if layout.written || offset != at as u64 || payload != was {
                layout.emit(frame, at, &self.regs);
            }
            at += layout.length(&self.regs) as usize;
        }
        self.packet.payload = payload;
        let most = self.packet.truncate as usize;
        frame.end = frame.end.min(frame.start.saturating_add(most));
        true
    }
}
