// SPDX-License-Identifier: Apache-2.0
//! Headers between the wire and the registers, eight bytes at a time.

use super::bits::{BitWriter, load};
use super::frame::Frame;
use super::op::{REGISTERS, Reg, Registers};

/// Bits of one field within one 8-byte window of a header.
#[derive(Clone, Debug)]
pub struct Piece {
    pub reg: Reg,
    /// Right shift that brings the bits of the window down to bit 0.
    pub shift: u8,
    /// Left shift that brings them to their place in the register.
    pub place: u8,
    /// The first piece of its register, read from the wire.
    pub starts_word: bool,
    pub mask: u64,
}

/// A field of a header of variable length.
#[derive(Clone, Debug)]
pub struct Part {
    pub reg: Reg,
    pub width: u16,
    pub signed: bool,
    /// Register with the varbit's length in bits.
    pub length: Option<Reg>,
}

/// A header type instance on the wire.
#[derive(Clone, Debug)]
pub struct HeaderLayout {
    pub valid: Reg,
    pub offset: Reg,
    /// A varbit counts nothing.
    pub bytes: u32,
    /// Never on the wire; always valid.
    pub metadata: bool,
    /// The registers of the fields.
    pub fields: std::ops::Range<usize>,
    windows: Vec<Vec<Piece>>,
    /// Signed fields (register, width), kept sign-extended.
    pub signed: Vec<(Reg, u8)>,
    /// All fields, if one of them is a varbit; none otherwise.
    pub parts: Vec<Part>,
    /// Other members of its union.
    pub rivals: Vec<u16>,
}

/// Offset of a header that was not extracted, or of which a field was written since.
pub const NOT_IN_FRAME: u64 = u64::MAX;

impl HeaderLayout {
    pub fn new(valid: Reg, offset: Reg, bytes: u32, fields: std::ops::Range<usize>) -> Self {
        HeaderLayout {
            valid,
            offset,
            bytes,
            metadata: false,
            fields,
            windows: vec![Vec::new(); bytes.div_ceil(8) as usize],
            signed: Vec::new(),
            parts: Vec::new(),
            rivals: Vec::new(),
        }
    }

    /// The varbit, and its bits now.
    pub fn varbit(&self, regs: &Registers) -> Option<(&Part, u32)> {
        self.parts.iter().find_map(|part| Some((part, regs[part.length? as usize % REGISTERS] as u32)))
    }

    /// Bytes on the wire.
    #[inline]
    pub fn length(&self, regs: &Registers) -> u32 {
        if self.parts.is_empty() {
            return self.bytes;
        }
        self.bytes + self.varbit(regs).map_or(0, |(_, bits)| bits / 8)
    }

    /// Reads a header whose varbit has `length` bits at `at` of the frame's buffer; the caller has checked that it is
    /// there.
    pub fn extract_parts(&self, frame: &Frame, at: usize, length: u32, regs: &mut Registers) {
        let bytes = frame.from(at);
        let mut bit = 0;
        for part in &self.parts {
            let width = if part.length.is_some() { length as usize } else { part.width as usize };
            let words = part.width.div_ceil(64) as usize;
            let first = part.reg as usize;
            load(bytes, bit, width, &mut regs[first..first + words]);
            if part.signed {
                regs[first] = sign_extend(regs[first], part.width as u8);
            }
            if let Some(register) = part.length {
                regs[register as usize % REGISTERS] = length as u64;
            }
            bit += width;
        }
        regs[self.valid as usize % REGISTERS] = 1;
        regs[self.offset as usize % REGISTERS] = at as u64;
    }

    fn append_parts(&self, bytes: &mut Vec<u8>, regs: &Registers) {
        let mut writer = BitWriter::new(bytes);
        for part in &self.parts {
            let width = part.length.map_or(part.width as u64, |length| regs[length as usize % REGISTERS]);
            let first = part.reg as usize;
            writer.push(&regs[first..first + part.width.div_ceil(64) as usize], width as u32);
        }
    }

    /// Adds a piece to the 8-byte window with this index.
    pub fn push(&mut self, window: u32, piece: Piece) {
        self.windows[window as usize].push(piece);
    }

    /// The pieces of each eight bytes.
    pub fn windows(&self) -> &[Vec<Piece>] {
        &self.windows
    }

    /// Appends the header.
    pub fn append(&self, bytes: &mut Vec<u8>, regs: &Registers) {
        if !self.parts.is_empty() {
            self.append_parts(bytes, regs);
            return;
        }
        for (index, window) in self.windows.iter().enumerate() {
            let mut word = 0u64;
            for piece in window {
                word |= ((regs[piece.reg as usize % REGISTERS] >> piece.place) & piece.mask) << piece.shift;
            }
            bytes.extend_from_slice(&word.to_be_bytes()[..(self.bytes as usize - 8 * index).min(8)]);
        }
    }
}

/// The two's complement value of the low `width` bits (1 to 64).
#[inline]
pub fn sign_extend(value: u64, width: u8) -> u64 {
    let unused = 64 - width as u32;
    (((value << unused) as i64) >> unused) as u64
}
