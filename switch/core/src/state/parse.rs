// SPDX-License-Identifier: Apache-2.0
//! Operations of parser and deparser beyond native code.

use super::State;
use super::code::{Code, ExtractTarget, OtherParserOp};
use super::frame::Frame;
use super::select::MAX_LOOKAHEAD;
use super::wire::{NOT_IN_FRAME, sign_extend};

impl State {
    /// Runs a rare operation of parsers; the error is the parser error's number.
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
                let bits = self.reg(*length);
                if !bits.is_multiple_of(8) {
                    return Err(errors.invalid_argument);
                }
                let layout = &code.headers[header as usize];
                let at = self.packet.payload;
                let bytes = layout.bytes as u64 + bits / 8;
                if ((frame.end - at) as u64) < bytes {
                    return Err(errors.packet_too_short);
                }
                if bytes > *most as u64 {
                    return Err(errors.header_too_short);
                }
                layout.extract_parts(frame, at, bits as u32, &mut self.regs);
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
                // Wider ones are kept as they are on the wire.
                if *signed && last == 0 {
                    words[0] = sign_extend(words[0], dst.width as u8);
                }
                self.regs[first..=first + last].copy_from_slice(&words[..=last]);
                self.put(*place, NOT_IN_FRAME);
            }
        }
        Ok(())
    }

    /// The value of a checksum over header fields and payload.
    pub fn checksum(&mut self, code: &Code, frame: &Frame, calculation: u16) -> u64 {
        self.calculate(code, calculation, frame.from(self.packet.payload))
    }

    /// Moves the start of the frame `len` bytes in front of the payload. False: it does not fit its buffer.
    pub fn make_room(&mut self, frame: &mut Frame, len: usize) -> bool {
        let payload = frame.prepend(self.packet.payload, len);
        self.packet.payload = payload.unwrap_or(self.packet.payload);
        payload.is_some()
    }

    /// Writes a header of variable length to its place in the buffer.
    pub fn emit_parts(&mut self, code: &Code, frame: &mut Frame, header: u16, at: usize) {
        self.scratch.clear();
        code.headers[header as usize].append(&mut self.scratch, &self.regs);
        frame.write(at, &self.scratch);
    }
}
