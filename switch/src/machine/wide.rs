// SPDX-License-Identifier: Apache-2.0
//! Expressions with values beyond 64 bits, evaluated as BMv2 does: as integers, cut only when stored.
//!
//! Fields are at most 128 bits, so 256 bits hold every sum, difference and product; a left shift beyond them is
//! cut, which the compiler's own masks make invisible.

use ethnum::I256;

use super::op::{Compare, REGISTERS, Reg, Registers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    /// 0 or 1.
    Compare(Compare),
}

/// Ways to fit a value into a number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Modulo 2^width, as a signed number.
    TwosComplement,
    SaturateSigned,
    SaturateUnsigned,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Wide {
    Constant(I256),
    /// Unsigned, low word first.
    Register {
        reg: Reg,
        width: u16,
    },
    /// A register that holds a sign-extended value.
    Signed {
        reg: Reg,
    },
    /// The field, `width` bits wide, of the element at the index; 0 beyond the last.
    Element {
        regs: Box<[Reg]>,
        width: u16,
        signed: bool,
        index: Box<Wide>,
    },
    Not(Box<Wide>),
    Binary {
        op: Binary,
        a: Box<Wide>,
        b: Box<Wide>,
    },
    Select {
        condition: Box<Wide>,
        a: Box<Wide>,
        b: Box<Wide>,
    },
    Fit {
        fit: Fit,
        a: Box<Wide>,
        width: u16,
    },
}

impl Wide {
    pub fn evaluate(&self, regs: &Registers) -> I256 {
        match self {
            Wide::Constant(value) => *value,
            Wide::Register { reg, width } => unsigned(*reg, *width, regs),
            Wide::Signed { reg } => signed(*reg, regs),
            Wide::Element { regs: fields, width, signed: is_signed, index } => {
                let index = usize::try_from(index.evaluate(regs)).unwrap_or(usize::MAX);
                match fields.get(index) {
                    Some(&reg) if *is_signed => signed(reg, regs),
                    Some(&reg) => unsigned(reg, *width, regs),
                    None => I256::ZERO,
                }
            }
            Wide::Not(a) => !a.evaluate(regs),
            Wide::Binary { op, a, b } => binary(*op, a.evaluate(regs), b.evaluate(regs)),
            Wide::Select { condition, a, b } => {
                if condition.evaluate(regs) != I256::ZERO {
                    a.evaluate(regs)
                } else {
                    b.evaluate(regs)
                }
            }
            Wide::Fit { fit, a, width } => fit_to(*fit, a.evaluate(regs), *width),
        }
    }
}

fn unsigned(reg: Reg, width: u16, regs: &Registers) -> I256 {
    let low = regs[reg as usize % REGISTERS] as u128;
    let high = if width > 64 { regs[(reg as usize + 1) % REGISTERS] as u128 } else { 0 };
    I256::from(high << 64 | low)
}

fn signed(reg: Reg, regs: &Registers) -> I256 {
    I256::from(regs[reg as usize % REGISTERS] as i64)
}

fn binary(op: Binary, a: I256, b: I256) -> I256 {
    // A shift by more than there are bits leaves nothing (or the sign).
    let amount = if (I256::ZERO..I256::from(256)).contains(&b) { b.as_u32() } else { 256 };
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply => a.wrapping_mul(b),
        Binary::Divide => a.checked_div(b).unwrap_or(I256::ZERO),
        Binary::Modulo => a.checked_rem(b).unwrap_or(I256::ZERO),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft if amount == 256 => I256::ZERO,
        Binary::ShiftLeft => a << amount,
        Binary::ShiftRight => a >> amount.min(255),
        Binary::Compare(compare) => I256::from(match compare {
            Compare::Equal => a == b,
            Compare::NotEqual => a != b,
            Compare::Less | Compare::SignedLess => a < b,
            Compare::LessOrEqual | Compare::SignedLessOrEqual => a <= b,
        } as u8),
    }
}

fn fit_to(fit: Fit, a: I256, width: u16) -> I256 {
    let one = I256::ONE;
    match fit {
        Fit::TwosComplement => {
            let unused = 256 - width as u32;
            (a << unused) >> unused
        }
        Fit::SaturateSigned => a.clamp(-(one << (width - 1)), (one << (width - 1)) - one),
        Fit::SaturateUnsigned => a.clamp(I256::ZERO, (one << width) - one),
    }
}
