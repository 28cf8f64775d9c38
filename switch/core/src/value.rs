// SPDX-License-Identifier: Apache-2.0
//! Values of key fields, parameters, digests and registers: unsigned numbers of any width.

use std::cmp::Ordering;
use std::fmt;
use std::ops::BitAnd;

use num_bigint::BigUint;

/// 64-bit words that a number of this width takes.
pub fn words(width: u16) -> usize {
    usize::from(width).div_ceil(64)
}

/// Both units are always counted; which of them the program asked for is in the P4Info.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterValue {
    pub packets: u64,
    pub bytes: u64,
}

/// A number; up to 64 bits it takes no memory of its own. Most values are that short, and there may be millions.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Value(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Word(u64),
    /// Low word first; at least two, the last one not 0.
    Words(Box<[u64]>),
}

const _: () = assert!(size_of::<Value>() == 16);

impl Value {
    pub const ZERO: Value = Value(Repr::Word(0));

    /// `words`: low word first.
    pub fn from_words(words: &[u64]) -> Value {
        let len = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
        match &words[..len] {
            [] => Value::ZERO,
            [word] => Value(Repr::Word(*word)),
            words => Value(Repr::Words(words.into())),
        }
    }

    /// `bytes`: in network order.
    pub fn from_bytes(bytes: &[u8]) -> Value {
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        match bytes.len() {
            ..=8 => Value(Repr::Word(word(bytes))),
            _ => Value::from_words(&bytes.rchunks(8).map(word).collect::<Vec<_>>()),
        }
    }

    /// The number of which the low `width` bits are set.
    pub fn ones(width: u32) -> Value {
        if width <= 64 {
            return u64::MAX.unbounded_shr(64 - width).into();
        }
        let words: Vec<u64> =
            (0..width.div_ceil(64)).map(|word| u64::MAX >> (64 - (width - 64 * word).min(64))).collect();
        Value::from_words(&words)
    }

    /// The mask of a prefix of `length` bits of a field of `width`.
    pub fn prefix(length: u32, width: u32) -> Value {
        let mut words = Value::ones(width).words().to_vec();
        let rest = Value::ones(width.saturating_sub(length));
        words.iter_mut().zip(rest.words()).for_each(|(word, rest)| *word &= !rest);
        Value::from_words(&words)
    }

    /// Low word first; the words behind are 0.
    pub fn words(&self) -> &[u64] {
        match &self.0 {
            Repr::Word(word) => std::slice::from_ref(word),
            Repr::Words(words) => words,
        }
    }

    /// 0 behind the last one.
    pub fn word(&self, index: usize) -> u64 {
        self.words().get(index).copied().unwrap_or(0)
    }

    /// Bits up to the highest that is set.
    pub fn bits(&self) -> u32 {
        let words = self.words();
        64 * words.len() as u32 - words[words.len() - 1].leading_zeros()
    }

    pub fn is_zero(&self) -> bool {
        *self == Value::ZERO
    }

    /// All its bits are set in the mask.
    pub fn is_within(&self, mask: &Value) -> bool {
        self.words().iter().enumerate().all(|(index, word)| word & !mask.word(index) == 0)
    }

    /// `length` bytes in network order; what is beyond them is cut off.
    pub fn to_bytes(&self, length: usize) -> Vec<u8> {
        (0..length).rev().map(|at| (self.word(at / 8) >> (8 * (at % 8))) as u8).collect()
    }

    /// `None`: there is no number in `text`, or it is not in digits of this base.
    pub fn parse(text: &str, base: u32) -> Option<Value> {
        BigUint::parse_bytes(text.as_bytes(), base).map(|value| (&value).into())
    }

    fn combine(&self, other: &Value, op: impl Fn(u64, u64) -> u64) -> Value {
        if let (Repr::Word(a), Repr::Word(b)) = (&self.0, &other.0) {
            return op(*a, *b).into();
        }
        let len = self.words().len().max(other.words().len());
        Value::from_words(&(0..len).map(|index| op(self.word(index), other.word(index))).collect::<Vec<_>>())
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::ZERO
    }
}

macro_rules! from {
    ($($number:ty),*) => {$(
        impl From<$number> for Value {
            fn from(value: $number) -> Value {
                Value(Repr::Word(value.into()))
            }
        }
    )*};
}

from!(bool, u8, u16, u32, u64);

impl From<u128> for Value {
    fn from(value: u128) -> Value {
        Value::from_words(&[value as u64, (value >> 64) as u64])
    }
}

impl From<&BigUint> for Value {
    fn from(value: &BigUint) -> Value {
        Value::from_words(&value.iter_u64_digits().collect::<Vec<_>>())
    }
}

impl From<&Value> for BigUint {
    fn from(value: &Value) -> BigUint {
        BigUint::new(value.words().iter().flat_map(|&word| [word as u32, (word >> 32) as u32]).collect())
    }
}

impl TryFrom<&Value> for u64 {
    type Error = ();

    fn try_from(value: &Value) -> Result<u64, ()> {
        match value.0 {
            Repr::Word(word) => Ok(word),
            Repr::Words(_) => Err(()),
        }
    }
}

impl BitAnd for &Value {
    type Output = Value;

    fn bitand(self, other: &Value) -> Value {
        self.combine(other, |a, b| a & b)
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        let (a, b) = (self.words(), other.words());
        a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::LowerHex for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&BigUint::from(self), f)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&BigUint::from(self), f)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_have_their_bits() {
        assert_eq!(Value::ones(0), Value::ZERO);
        assert_eq!(Value::ones(64), u64::MAX.into());
        assert_eq!(Value::ones(65), ((1u128 << 65) - 1).into());
        assert_eq!(Value::prefix(8, 12), 0xff0u64.into());
        assert_eq!(Value::prefix(0, 200), Value::ZERO);
        assert_eq!(format!("{:#x}", Value::prefix(3, 200)), format!("{:#x}", BigUint::from(7u8) << 197));
        assert_eq!((Value::ones(200).bits(), Value::ZERO.bits()), (200, 0));
    }

    proptest! {
        #[test]
        fn bytes_return(bytes: Vec<u8>, zeros in 0usize..9) {
            let padded = [vec![0; zeros], bytes.clone()].concat();
            let value = Value::from_bytes(&padded);
            prop_assert_eq!(&value, &Value::from_bytes(&bytes));
            prop_assert_eq!(value.to_bytes(bytes.len()), bytes);
            prop_assert_eq!(Value::parse(&format!("{value}"), 10), Some(value.clone()));
            prop_assert_eq!(Value::from(&BigUint::from(&value)), value);
        }

        #[test]
        fn numbers_are_compared_and_masked(a: u128, b: u128, shift in 0u32..128) {
            let (a, b) = (a >> shift, b);
            let (x, y) = (Value::from(a), Value::from(b));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(&x & &y, (a & b).into());
            prop_assert_eq!(x.is_within(&y), a & !b == 0);
            prop_assert_eq!(x.bits(), 128 - a.leading_zeros());
        }
    }
}
