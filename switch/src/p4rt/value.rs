// SPDX-License-Identifier: Apache-2.0
//! Binary strings: how P4Runtime carries integers (P4Runtime 1.4, "Bytestrings").
//!
//! Any length is accepted as long as the value fits its width; what is kept and answered is the canonical form, the
//! shortest string of the value. Strings are big-endian; `int<W>` is in two's complement.

use bytes::{Buf, Bytes};

/// Why a binary string is refused: `OUT_OF_RANGE` in either case.
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

/// A `bit<width>` value of at most 128 bits.
pub fn to_u128(bytes: &[u8], width: u32) -> Result<u128, BadValue> {
    debug_assert!(width <= 128);
    Ok(canonical(bytes, width)?.iter().fold(0, |value, &b| value << 8 | u128::from(b)))
}

/// The canonical binary string of `value`.
pub fn from_u128(value: u128) -> Bytes {
    let bytes = value.to_be_bytes();
    let length = (128 - value.leading_zeros()).div_ceil(8).max(1) as usize;
    Bytes::copy_from_slice(&bytes[16 - length..])
}

/// An `int<width>` value of at most 128 bits, as its `width` bits.
pub fn signed_to_u128(bytes: &[u8], width: u32) -> Result<u128, BadValue> {
    debug_assert!((1..=128).contains(&width));
    let short = canonical_signed(bytes, width)?;
    let sign = if short[0] & 0x80 == 0 { 0 } else { u128::MAX };
    Ok(short.iter().fold(sign, |value, &b| value << 8 | u128::from(b)) & (u128::MAX >> (128 - width)))
}

/// The canonical binary string of the `int<width>` value with these bits.
pub fn from_signed(bits: u128, width: u32) -> Bytes {
    debug_assert!((1..=128).contains(&width));
    let unused = 128 - width;
    let extended = ((bits << unused) as i128 >> unused).to_be_bytes();
    Bytes::copy_from_slice(canonical_signed(&extended, 128).unwrap_or(&extended))
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
            prop_assert_eq!(to_u128(&padded, 128), Ok(value));
            let short = from_u128(value);
            prop_assert_eq!(canonical(&padded, 128), Ok(&short[..]));
            let mut shortened = Bytes::from(padded);
            shorten(&mut shortened);
            prop_assert_eq!(&shortened, &short);
            prop_assert!(short.len() == 1 || short[0] != 0);
        }

        #[test]
        fn accepts_exactly_what_fits(value: u128, width in 1u32..=128) {
            let fits = width == 128 || value >> width == 0;
            prop_assert_eq!(to_u128(&value.to_be_bytes(), width).is_ok(), fits);
        }

        #[test]
        fn signed_values_return(bits: u128, width in 1u32..=128) {
            let bits = bits & (u128::MAX >> (128 - width));
            prop_assert_eq!(signed_to_u128(&from_signed(bits, width), width), Ok(bits));
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
