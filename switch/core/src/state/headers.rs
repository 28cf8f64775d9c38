// SPDX-License-Identifier: Apache-2.0
//! Headers coming, going and moving: validity, stacks, unions, varbits and elements that an index chooses.

use super::State;
use super::code::Code;
use super::op::{REGISTERS, Reg};
use super::wire::NOT_IN_FRAME;

/// A stack of headers or of unions.
#[derive(Debug)]
pub struct Stack {
    /// Index behind the last element that was extracted.
    pub next: Reg,
    /// The headers of each element: one, or the members of the union. All elements are alike.
    pub elements: Vec<Vec<u16>>,
}

#[derive(Debug)]
pub enum HeaderRef {
    Fixed(u16),
    /// By the index in the register; there is none beyond the last.
    Indexed {
        headers: Box<[u16]>,
        index: Reg,
    },
}

#[derive(Debug)]
pub enum HeaderOp {
    Add(HeaderRef),
    Remove(HeaderRef),
    Copy {
        dst: HeaderRef,
        src: HeaderRef,
    },
    /// The varbit of one header to that of another.
    CopyVarbit {
        dst: HeaderRef,
        src: HeaderRef,
    },
    Push {
        stack: u16,
        count: Reg,
    },
    Pop {
        stack: u16,
        count: Reg,
    },
    /// Writes `words` registers from `value` on to the field of the element at `index`, if there is one.
    Store {
        /// First register of the field; register with the place of its header in the frame.
        fields: Box<[(Reg, Reg)]>,
        words: u16,
        index: Reg,
        value: Reg,
    },
}

impl State {
    pub fn header_op(&mut self, code: &Code, op: u32) {
        match &code.header_ops[op as usize] {
            HeaderOp::Add(header) => {
                if let Some(header) = self.resolve(header) {
                    self.add_header(code, header);
                }
            }
            HeaderOp::Remove(header) => {
                if let Some(header) = self.resolve(header) {
                    self.remove_header(code, header);
                }
            }
            HeaderOp::Copy { dst, src } => {
                if let (Some(dst), Some(src)) = (self.resolve(dst), self.resolve(src)) {
                    self.copy_header(code, dst, src);
                }
            }
            HeaderOp::CopyVarbit { dst, src } => {
                if let (Some(dst), Some(src)) = (self.resolve(dst), self.resolve(src)) {
                    self.copy_varbit(code, dst, src);
                }
            }
            HeaderOp::Push { stack, count } => {
                let count = self.reg(*count);
                self.shift(code, &code.stacks[*stack as usize], count, true);
            }
            HeaderOp::Pop { stack, count } => {
                let count = self.reg(*count);
                self.shift(code, &code.stacks[*stack as usize], count, false);
            }
            HeaderOp::Store { fields, words, index, value } => {
                if let Some(&(dst, place)) = fields.get(self.reg(*index) as usize) {
                    let first = *value as usize;
                    self.regs.copy_within(first..first + *words as usize, dst as usize);
                    self.put(place, NOT_IN_FRAME);
                }
            }
        }
    }

    fn resolve(&self, header: &HeaderRef) -> Option<u16> {
        match header {
            HeaderRef::Fixed(header) => Some(*header),
            HeaderRef::Indexed { headers, index } => headers.get(self.reg(*index) as usize).copied(),
        }
    }

    /// Bytes that the header contributes to the packet.
    fn present(&self, code: &Code, header: u16) -> u32 {
        let layout = &code.headers[header as usize];
        if self.reg(layout.valid) == 0 { 0 } else { layout.length(&self.regs) }
    }

    /// One member of a union is valid at most: the one that became it last.
    pub fn remove_rivals(&mut self, code: &Code, header: u16) {
        for &rival in &code.headers[header as usize].rivals {
            self.remove_header(code, rival);
        }
    }

    pub fn add_header(&mut self, code: &Code, header: u16) {
        let layout = &code.headers[header as usize];
        if self.reg(layout.valid) == 0 {
            let fields = layout.fields.clone();
            self.regs[fields].fill(0);
            self.put(layout.valid, 1);
            self.put(layout.offset, NOT_IN_FRAME);
            self.packet.length = self.packet.length.wrapping_add(layout.bytes);
            self.remove_rivals(code, header);
        }
    }

    pub fn remove_header(&mut self, code: &Code, header: u16) {
        let present = self.present(code, header);
        self.packet.length = self.packet.length.wrapping_sub(present);
        self.put(code.headers[header as usize].valid, 0);
    }

    pub fn copy_header(&mut self, code: &Code, dst: u16, src: u16) {
        let was = self.present(code, dst);
        let (to, from) = (&code.headers[dst as usize], &code.headers[src as usize]);
        let is = self.reg(from.valid);
        self.put(to.valid, is);
        if is != 0 {
            self.regs.copy_within(from.fields.clone(), to.fields.start);
            self.put(to.offset, NOT_IN_FRAME);
        }
        self.packet.length = self.packet.length.wrapping_add(self.present(code, dst)).wrapping_sub(was);
        if is != 0 {
            self.remove_rivals(code, dst);
        }
    }

    fn copy_varbit(&mut self, code: &Code, dst: u16, src: u16) {
        let was = self.present(code, dst);
        let (to, from) = (&code.headers[dst as usize], &code.headers[src as usize]);
        if let (Some((to, _)), Some((from, bits))) = (to.varbit(&self.regs), from.varbit(&self.regs)) {
            let words = to.width.div_ceil(64).min(from.width.div_ceil(64)) as usize;
            let first = from.reg as usize;
            self.regs.copy_within(first..first + words, to.reg as usize);
            if let Some(length) = to.length {
                self.regs[length as usize % REGISTERS] = bits as u64;
            }
        }
        self.put(to.offset, NOT_IN_FRAME);
        self.packet.length = self.packet.length.wrapping_add(self.present(code, dst)).wrapping_sub(was);
    }

    /// P4_16's `push_front` or `pop_front`: elements move, those that come free are invalid.
    fn shift(&mut self, code: &Code, stack: &Stack, count: u64, push: bool) {
        let size = stack.elements.len();
        let count = count.min(size as u64) as usize;
        let next = self.reg(stack.next);
        self.put(
            stack.next,
            if push { (next + count as u64).min(size as u64) } else { next.saturating_sub(count as u64) },
        );
        for at in 0..size {
            // From the end that is moved towards.
            let dst = if push { size - 1 - at } else { at };
            let src = if push { dst.checked_sub(count) } else { Some(dst + count).filter(|src| *src < size) };
            for (member, &header) in stack.elements[dst].iter().enumerate() {
                match src {
                    Some(src) => self.copy_header(code, header, stack.elements[src][member]),
                    None => self.remove_header(code, header),
                }
            }
        }
    }
}
