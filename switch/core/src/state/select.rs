// SPDX-License-Identifier: Apache-2.0
//! Selects of a parser whose key is long, or that ask a value set. The key is the concatenation of its fields, each
//! padded to whole bytes.

use std::ops::Range;

use super::State;
use super::bits::{BitWriter, load};
use super::code::{Code, FieldRef, NextState};
use super::frame::Frame;
use super::op::{REGISTERS, Reg};

#[derive(Debug)]
pub enum SelectPart {
    Field(FieldRef),
    /// The field of the element before `next`; an empty stack is an error.
    Last {
        next: Reg,
        fields: Box<[Reg]>,
        width: u16,
    },
    Lookahead {
        offset: u32,
        width: u16,
    },
}

impl SelectPart {
    pub fn width(&self) -> u16 {
        match self {
            SelectPart::Field(place) => place.width,
            SelectPart::Last { width, .. } | SelectPart::Lookahead { width, .. } => *width,
        }
    }
}

#[derive(Debug)]
pub enum SelectCase {
    /// The masked key is the value.
    Key {
        value: Box<[u8]>,
        mask: Box<[u8]>,
    },
    ValueSet(u16),
}

#[derive(Debug)]
pub struct Select {
    pub parts: Vec<SelectPart>,
    pub cases: Vec<(SelectCase, NextState)>,
    /// `None`: no match is an error.
    pub default: Option<NextState>,
}

/// A member of a value set, as bytes of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetMember {
    pub value: Box<[u8]>,
    pub mask: Box<[u8]>,
    pub ranges: Vec<KeyRange>,
}

/// Bytes of a key, and the lowest and the highest value there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub at: Range<usize>,
    pub low: Box<[u8]>,
    pub high: Box<[u8]>,
}

impl SetMember {
    fn contains(&self, key: &[u8]) -> bool {
        masked(key, &self.mask, &self.value)
            && self.ranges.iter().all(|range| {
                let value = &key[range.at.clone()];
                *range.low <= *value && *value <= *range.high
            })
    }
}

fn masked(key: &[u8], mask: &[u8], value: &[u8]) -> bool {
    key.iter().zip(mask).zip(value).all(|((key, mask), value)| key & mask == *value)
}

impl State {
    /// Returns the next state of the parser, or the number of the error.
    pub fn select(&mut self, code: &Code, select: &Select, frame: &Frame) -> Result<NextState, u64> {
        let errors = &code.parser.errors;
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        let mut writer = BitWriter::new(&mut key);
        let mut result = Ok(());
        for part in &select.parts {
            let width = part.width() as u32;
            let padding = width.next_multiple_of(8) - width;
            writer.push(&[0], padding);
            match part {
                SelectPart::Field(place) => {
                    let first = place.reg as usize % REGISTERS;
                    writer.push(&self.regs[first..first + place.words()], width);
                }
                SelectPart::Last { next, fields, .. } => {
                    let last = (self.reg(*next) as usize).checked_sub(1).and_then(|last| fields.get(last));
                    match last {
                        Some(&reg) => {
                            let words = width.div_ceil(64) as usize;
                            writer.push(&self.regs[reg as usize..reg as usize + words], width);
                        }
                        None => result = Err(errors.stack_out_of_bounds),
                    }
                }
                SelectPart::Lookahead { offset, .. } => {
                    let mut words = [0; MAX_LOOKAHEAD / 64];
                    let words = &mut words[..width.div_ceil(64) as usize];
                    if self.peek(frame, *offset, width, words) {
                        writer.push(words, width);
                    } else {
                        result = Err(errors.packet_too_short);
                    }
                }
            }
            if result.is_err() {
                break;
            }
        }
        let next = result.and_then(|()| {
            let found = select.cases.iter().find(|(case, _)| match case {
                SelectCase::Key { value, mask } => masked(&key, mask, value),
                SelectCase::ValueSet(set) => self.value_sets[*set as usize].iter().any(|member| member.contains(&key)),
            });
            match (found, select.default) {
                (Some((_, next)), _) => Ok(*next),
                (None, Some(next)) => Ok(next),
                (None, None) => Err(errors.no_match),
            }
        });
        self.scratch = key;
        next
    }

    /// Reads the `width` bits that start `offset` bits behind the cursor; false: the frame ends before.
    pub fn peek(&self, frame: &Frame, offset: u32, width: u32, words: &mut [u64]) -> bool {
        let bytes = frame.from(self.packet.payload);
        if (offset as usize + width as usize).div_ceil(8) > bytes.len() {
            return false;
        }
        load(bytes, offset as usize, width as usize, words);
        true
    }
}

/// Bits that a select looks ahead at most.
pub const MAX_LOOKAHEAD: usize = 2048;
