// SPDX-License-Identifier: Apache-2.0
//! Binary strings: how P4Runtime carries integers (P4Runtime 1.4, "Bytestrings").
//!
//! Any length is accepted as long as the value fits its width; what is kept and answered is the canonical form, the
//! shortest string of the value. Strings are big-endian; `int<W>` is in two's complement.

use apswitch_dataplane::control::Value;
use bytes::{Buf, Bytes};

/// Refusal of a binary string: `OUT_OF_RANGE` in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadValue {
    Empty,
    TooWide { width: u32 },
}

impl std::fmt::Display for BadValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadValue::Empty => write!(f, "the value is empty"),
            BadValue::TooWide { width } => write!(f, "the value does not fit in {width} bits"),
        }
    }
}

/// The canonical form of a `bit<width>` value.
pub fn canonical(bytes: &[u8], width: u32) -> Result<&[u8], BadValue> {
    let last = bytes.len().checked_sub(1).ok_or(BadValue::Empty)?;
    let start = bytes.iter().position(|&b| b != 0).unwrap_or(last);
    let short = &bytes[start..];
    let bits = short.len() * 8 - short[0].leading_zeros() as usize;
    match bits <= width as usize {
        true => Ok(short),
        false => Err(BadValue::TooWide { width }),
    }
}

/// Brings a `bit<W>` value that was accepted into its canonical form, without a copy.
pub fn shorten(bytes: &mut Bytes) {
    let zeros = bytes.iter().take_while(|&&b| b == 0).count();
    bytes.advance(zeros.min(bytes.len().saturating_sub(1)));
}

/// The canonical form of an `int<width>` value.
pub fn canonical_signed(bytes: &[u8], width: u32) -> Result<&[u8], BadValue> {
    let last = bytes.len().checked_sub(1).ok_or(BadValue::Empty)?;
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
    // A leading byte may go when it only repeats the sign that the next byte already shows.
    let start = (0..last).find(|&i| bytes[i] != sign || (bytes[i + 1] ^ sign) & 0x80 != 0).unwrap_or(last);
    let short = &bytes[start..];
    let repeated_sign_bits = (short[0] ^ sign).leading_zeros() as usize;
    let bits = short.len() * 8 - repeated_sign_bits + 1;
    match bits <= (width as usize).max(1) {
        true => Ok(short),
        false => Err(BadValue::TooWide { width }),
    }
}

/// A `bit<width>` value.
pub fn to_value(bytes: &[u8], width: u32) -> Result<Value, BadValue> {
    Ok(Value::from_bytes(canonical(bytes, width)?))
}

/// A `bit<32>` value.
pub fn to_u32(bytes: &[u8]) -> Result<u32, BadValue> {
    Ok(canonical(bytes, 32)?.iter().fold(0, |value, &b| value << 8 | u32::from(b)))
}

/// The canonical binary string of `value`.
pub fn from_value(value: &Value) -> Bytes {
    value.to_bytes(value.bits().div_ceil(8).max(1) as usize).into()
}

/// An `int<width>` value, as its `width` bits.
pub fn signed_to_value(bytes: &[u8], width: u32) -> Result<Value, BadValue> {
    let short = canonical_signed(bytes, width)?;
    let sign = if short[0] & 0x80 == 0 { 0 } else { 0xff };
    let mut extended = vec![sign; width.div_ceil(8) as usize - short.len()];
    extended.extend_from_slice(short);
    Ok(&Value::from_bytes(&extended) & &Value::ones(width))
}

/// The canonical binary string of the `int<width>` value with these bits.
pub fn from_signed(value: &Value, width: u32) -> Bytes {
    let mut bytes = value.to_bytes(width.div_ceil(8) as usize);
    let used = (width - 1) % 8 + 1;
    if bytes[0] >> (used - 1) & 1 == 1 {
        bytes[0] |= 0xff_u8.unbounded_shl(used);
    }
    let short = canonical_signed(&bytes, 8 * bytes.len() as u32);
    Bytes::copy_from_slice(short.unwrap_or(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples_of_the_specification() {
        for (width, bytes, short) in [
            (8, &b"\x63"[..], &b"\x63"[..]),
            (16, b"\x00\x63", b"\x63"),
            (16, b"\x30\x64", b"\x30\x64"),
            (16, b"\x00\x30\x64", b"\x30\x64"),
            (12, b"\x00\x00\x63", b"\x63"),
        ] {
            assert_eq!(canonical(bytes, width), Ok(short));
        }
        for (width, bytes) in [
            (8, &b"\x01\x63"[..]),
            (8, b""),
            (16, b"\x01\x00\x63"),
            (12, b"\x10\x63"),
            (12, b"\x01\x00\x63"),
            (12, b"\x00\x40\x63"),
        ] {
            assert!(canonical(bytes, width).is_err(), "{bytes:x?} in {width}");
        }
        for (width, bytes, short) in [
            (8, &b"\x63"[..], &b"\x63"[..]),
            (8, b"\x9d", b"\x9d"),
            (8, b"\xff\x9d", b"\x9d"),
            (12, b"\xfd\x1d", b"\xfd\x1d"),
            (16, b"\x00\x00", b"\x00"),
            (16, b"\xff\xff", b"\xff"),
        ] {
            assert_eq!(canonical_signed(bytes, width), Ok(short));
        }
        for (width, bytes) in [(8, &b"\x00\x9d"[..]), (12, b"\x8d\x1d"), (16, b"")] {
            assert!(canonical_signed(bytes, width).is_err(), "{bytes:x?} in {width}");
        }
    }

    proptest! {
        #[test]
        fn padding_changes_nothing(value: u128, zeros in 0usize..20) {
            let mut padded = vec![0; zeros];
            padded.extend(value.to_be_bytes());
            let value = Value::from(value);
            prop_assert_eq!(to_value(&padded, 128), Ok(value.clone()));
            let short = from_value(&value);
            prop_assert_eq!(canonical(&padded, 128), Ok(&short[..]));
            let mut shortened = Bytes::from(padded);
            shorten(&mut shortened);
            prop_assert_eq!(&shortened, &short);
            prop_assert!(short.len() == 1 || short[0] != 0);
        }

        #[test]
        fn accepts_exactly_what_fits(value: u128, width in 1u32..=128) {
            let fits = width == 128 || value >> width == 0;
            prop_assert_eq!(to_value(&value.to_be_bytes(), width).is_ok(), fits);
        }

        #[test]
        fn signed_values_return(bits: [u8; 30], width in 1u32..=240) {
            let value = &Value::from_bytes(&bits) & &Value::ones(width);
            prop_assert_eq!(signed_to_value(&from_signed(&value, width), width), Ok(value));
        }

        #[test]
        fn signed_accepts_exactly_what_fits(value: i64, width in 1u32..=64, extra in 0usize..9) {
            let mut padded = vec![if value < 0 { 0xff } else { 0 }; extra];
            padded.extend(value.to_be_bytes());
            let fits = width == 64 || (-(1i64 << (width - 1)) <= value && value < 1i64 << (width - 1));
            let answer = canonical_signed(&padded, width);
            prop_assert_eq!(answer.is_ok(), fits);
            if let Ok(short) = answer {
                let sign = if short[0] & 0x80 == 0 { 0 } else { -1i64 };
                prop_assert_eq!(short.iter().fold(sign, |v, &b| v << 8 | i64::from(b)), value);
                prop_assert!(short.len() == 1 || canonical_signed(&short[1..], 64) != Ok(short));
            }
        }
    }
}
