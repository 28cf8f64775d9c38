// SPDX-License-Identifier: Apache-2.0
//! Expressions with values beyond 64 bits, evaluated as BMv2 does: as integers of any size, cut only when stored.

use num_bigint::{BigInt, BigUint, Sign};

use super::op::{Compare, Reg, Registers};
use crate::value::words;

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
    Constant(BigInt),
    /// Low word first.
    Register {
        reg: Reg,
        width: u16,
        signed: bool,
    },
    /// The field of the element at the index; 0 beyond the last.
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

/// A left shift by more leaves nothing in any field.
const MAX_SHIFT: u32 = 1 << 16;

pub fn power(bits: u32) -> BigInt {
    BigInt::from(1) << bits
}

pub fn is_true(value: &BigInt) -> bool {
    value.sign() != Sign::NoSign
}

/// The value modulo 2^64.
pub fn low_word(value: &BigInt) -> u64 {
    let low = value.iter_u64_digits().next().unwrap_or(0);
    if value.sign() == Sign::Minus { low.wrapping_neg() } else { low }
}

/// The low `width` bits in two's complement, low word first; words above them are 0.
pub fn store(value: &BigInt, width: u16, to: &mut [u64]) {
    let negative = value.sign() == Sign::Minus;
    let mut digits = value.iter_u64_digits();
    let mut carry = negative;
    for (index, word) in to.iter_mut().enumerate() {
        let digit = digits.next().unwrap_or(0);
        *word = if negative { (!digit).wrapping_add(carry.into()) } else { digit };
        carry &= digit == 0;
        let used = u32::from(width).saturating_sub(64 * index as u32).min(64);
        *word &= u64::MAX.unbounded_shr(64 - used);
    }
}

impl Wide {
    pub fn evaluate(&self, regs: &Registers) -> BigInt {
        match self {
            Wide::Constant(value) => value.clone(),
            Wide::Register { reg, width, signed } => load(*reg, *width, *signed, regs),
            Wide::Element { regs: fields, width, signed, index } => {
                let index = usize::try_from(&index.evaluate(regs)).unwrap_or(usize::MAX);
                fields.get(index).map_or(BigInt::ZERO, |&reg| load(reg, *width, *signed, regs))
            }
            Wide::Not(a) => !a.evaluate(regs),
            Wide::Binary { op, a, b } => binary(*op, a.evaluate(regs), b.evaluate(regs)),
            Wide::Select { condition, a, b } => {
                if is_true(&condition.evaluate(regs)) {
                    a.evaluate(regs)
                } else {
                    b.evaluate(regs)
                }
            }
            Wide::Fit { fit, a, width } => fit_to(*fit, a.evaluate(regs), (*width).into()),
        }
    }
}

fn load(reg: Reg, width: u16, signed: bool, regs: &Registers) -> BigInt {
    let first = reg as usize;
    match (&regs[first..first + words(width)], signed) {
        // One word holds a sign-extended value.
        ([word], true) => BigInt::from(*word as i64),
        ([word], false) => BigInt::from(*word),
        (words, signed) => {
            let value = BigUint::new(words.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]).collect());
            let negative = signed && value.bit(u64::from(width) - 1);
            if negative { BigInt::from(value) - power(width.into()) } else { BigInt::from(value) }
        }
    }
}

fn binary(op: Binary, a: BigInt, b: BigInt) -> BigInt {
    // Negative amounts are none of P4's.
    let amount = || match b.sign() {
        Sign::Minus => 0,
        _ => u32::try_from(&b).unwrap_or(MAX_SHIFT).min(MAX_SHIFT),
    };
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a.checked_div(&b).unwrap_or_default(),
        Binary::Modulo if is_true(&b) => a % b,
        Binary::Modulo => BigInt::ZERO,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft => a << amount(),
        Binary::ShiftRight => a >> amount(),
        Binary::Compare(compare) => BigInt::from(match compare {
            Compare::Equal => a == b,
            Compare::NotEqual => a != b,
            Compare::Less | Compare::SignedLess => a < b,
            Compare::LessOrEqual | Compare::SignedLessOrEqual => a <= b,
        } as u8),
    }
}

fn fit_to(fit: Fit, a: BigInt, width: u32) -> BigInt {
    match fit {
        Fit::TwosComplement => {
            let low: BigInt = a & (power(width) - 1);
            if low.bit(u64::from(width) - 1) { low - power(width) } else { low }
        }
        Fit::SaturateSigned => a.clamp(-power(width - 1), power(width - 1) - 1),
        Fit::SaturateUnsigned => a.clamp(BigInt::ZERO, power(width) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_stored_is_the_value_modulo_its_width(value: i128, shift in 0u32..128, width in 1u16..200) {
            let value = value >> shift;
            let mut words = [u64::MAX; 4];
            store(&BigInt::from(value), width, &mut words);
            let stored = words.iter().rev().fold(BigInt::ZERO, |sum, &word| (sum << 64) + word);
            prop_assert_eq!(stored, BigInt::from(value) & (power(width.into()) - 1));
            prop_assert_eq!(low_word(&BigInt::from(value)), value as u64);
        }
    }
}
