// SPDX-License-Identifier: Apache-2.0
//! Translation of values whose types are declared with `type` and `@p4runtime_translation` (P4Runtime 1.5,
//! "User-defined types" and "PSA Metadata Translation").
//!
//! The mapping is the platform's, and here it needs no memory: a number is itself. Clients say it in the bits of their
//! own type, or, where that is `string`, as the decimal numeral without leading zeros. So every value of the data plane
//! has a name, each its own, and after a restart the same one.

use apswitch_dataplane::control::Value;
use bytes::Bytes;

use super::error::{Checked, refuse};
use super::proto::p4::config::v1 as info;
use super::value;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SdnType {
    /// As the data plane's number.
    #[default]
    Plain,
    /// As a number of so many bits, more than the data plane has.
    Wider(u32),
    /// As a decimal numeral.
    Numeral,
}

impl SdnType {
    /// `bitwidth`: what the P4Info says of the value; `width`: of the data plane's.
    pub fn new(
        type_name: Option<&info::P4NamedType>,
        types: Option<&info::P4TypeInfo>,
        bitwidth: i32,
        width: u32,
    ) -> Checked<SdnType> {
        let translated = type_name.and_then(|name| Some((&name.name, translation(&name.name, types)?)));
        let (sdn_type, wanted) = match translated {
            // Values of type error have no number of bits there.
            None if bitwidth == 0 => return Ok(SdnType::Plain),
            None => (SdnType::Plain, width),
            Some((name, found)) => match SdnType::of_translation(name, found, width)? {
                SdnType::Plain => (SdnType::Plain, width),
                SdnType::Wider(bits) => (SdnType::Wider(bits), bits),
                SdnType::Numeral => (SdnType::Numeral, 0),
            },
        };
        match u32::try_from(bitwidth) == Ok(wanted) {
            true => Ok(sdn_type),
            false if sdn_type == SdnType::Plain => {
                refuse!(InvalidArgument, "{bitwidth} bits in the P4Info, {width} in the device config")
            }
            false => refuse!(InvalidArgument, "{bitwidth} bits in the P4Info, {wanted} in its type"),
        }
    }

    /// Makes one as [`SdnType::new`] does, where the P4Info names the type alone.
    pub fn of_translation(name: &str, translation: &info::P4NewTypeTranslation, width: u32) -> Checked<SdnType> {
        use info::p4_new_type_translation::SdnType as Declared;
        match translation.sdn_type {
            Some(Declared::SdnString(_)) => Ok(SdnType::Numeral),
            Some(Declared::SdnBitwidth(bits)) => match u32::try_from(bits) {
                Ok(bits) if bits == width => Ok(SdnType::Plain),
                Ok(bits) if bits > width => Ok(SdnType::Wider(bits)),
                _ => refuse!(
                    Unimplemented,
                    "type {name} ({}): the {bits} bits that clients see do not hold the data plane's {width}",
                    translation.uri
                ),
            },
            None => refuse!(InvalidArgument, "type {name}: the P4Info does not say what clients see of it"),
        }
    }

    /// The data plane's value of `width` bits.
    pub fn decode(self, bytes: &[u8], width: u32) -> Checked<Value> {
        match self {
            // Bits beyond the data plane's have no meaning there, however many of them clients see.
            SdnType::Plain | SdnType::Wider(_) => Ok(value::to_value(bytes, width)?),
            SdnType::Numeral => numeral(bytes, width),
        }
    }

    pub fn encode(self, value: &Value) -> Bytes {
        match self {
            SdnType::Plain | SdnType::Wider(_) => value::from_value(value),
            SdnType::Numeral => value.to_string().into(),
        }
    }

    /// Bits that clients see above the data plane's `width`; they are 0.
    pub fn extra(self, width: u32) -> u32 {
        match self {
            SdnType::Wider(bits) => bits - width,
            SdnType::Plain | SdnType::Numeral => 0,
        }
    }

    /// A mask over the data plane's `width` bits. Clients ask for a certain value with all bits that they see; any
    /// other mask is one of the data plane's bits, so that each mask is said in one way only.
    pub fn decode_mask(self, bytes: &[u8], width: u32) -> Checked<Value> {
        let SdnType::Wider(bits) = self else { return Ok(value::to_value(bytes, width)?) };
        let mask = value::to_value(bytes, bits)?;
        if mask == Value::ones(bits) {
            return Ok(Value::ones(width));
        }
        match mask.bits() <= width && mask != Value::ones(width) {
            true => Ok(mask),
            false => {
                refuse!(
                    InvalidArgument,
                    "a mask of a translated field has all of its {bits} bits, or some of the {width} that the data plane has"
                )
            }
        }
    }

    pub fn encode_mask(self, mask: &Value, width: u32) -> Bytes {
        match self {
            SdnType::Wider(bits) if *mask == Value::ones(width) => value::from_value(&Value::ones(bits)),
            _ => value::from_value(mask),
        }
    }
}

/// Returns the translation of values of that type; `None`: they are not translated.
pub fn translation<'a>(name: &str, types: Option<&'a info::P4TypeInfo>) -> Option<&'a info::P4NewTypeTranslation> {
    use info::p4_new_type_spec::Representation;
    match types?.new_types.get(name)?.representation.as_ref()? {
        Representation::TranslatedType(found) => Some(found),
        Representation::OriginalType(_) => None,
    }
}

fn numeral(bytes: &[u8], width: u32) -> Checked<Value> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
    let is_numeral = bytes.iter().all(u8::is_ascii_digit) && matches!(bytes, [b'0'] | [b'1'..=b'9', ..]);
    if !is_numeral {
        return refuse!(
            InvalidArgument,
            "{text:?}: the strings of this type are the decimal numbers of {width} bits, without leading zeros"
        );
    }
    // A digit is more than three bits.
    let fits = bytes.len() as u32 <= width / 3 + 1;
    match std::str::from_utf8(bytes).ok().filter(|_| fits).and_then(|text| Value::parse(text, 10)) {
        Some(value) if value.bits() <= width => Ok(value),
        _ => refuse!(OutOfRange, "{text}: the number does not fit in the data plane's {width} bits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use info::p4_new_type_translation::{SdnString, SdnType as Declared};
    use proptest::prelude::*;

    fn sdn_type(sdn_type: Option<Declared>, bitwidth: i32) -> Result<SdnType, Code> {
        use info::p4_new_type_spec::Representation;
        let translation = info::P4NewTypeTranslation { uri: "example/t".into(), sdn_type };
        let representation = Some(Representation::TranslatedType(translation));
        let spec = info::P4NewTypeSpec { representation, ..Default::default() };
        let types = info::P4TypeInfo { new_types: [("t".into(), spec)].into(), ..Default::default() };
        let name = info::P4NamedType { name: "t".into() };
        SdnType::new(Some(&name), Some(&types), bitwidth, 9).map_err(|refusal| refusal.code)
    }

    #[test]
    fn types_are_wider_numbers_or_strings() {
        assert_eq!(sdn_type(Some(Declared::SdnBitwidth(32)), 32), Ok(SdnType::Wider(32)));
        assert_eq!(sdn_type(Some(Declared::SdnBitwidth(9)), 9), Ok(SdnType::Plain));
        assert_eq!(sdn_type(Some(Declared::SdnString(SdnString {})), 0), Ok(SdnType::Numeral));
        assert_eq!(sdn_type(Some(Declared::SdnBitwidth(8)), 8), Err(Code::Unimplemented), "not every value has a name");
        assert_eq!(
            sdn_type(Some(Declared::SdnBitwidth(32)), 9),
            Err(Code::InvalidArgument),
            "the P4Info says two things"
        );
        assert_eq!(sdn_type(Some(Declared::SdnString(SdnString {})), 9), Err(Code::InvalidArgument));
        assert_eq!(sdn_type(None, 9), Err(Code::InvalidArgument));
        assert_eq!(SdnType::new(None, None, 9, 9).unwrap(), SdnType::Plain);
        assert_eq!(SdnType::new(None, None, 8, 9).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn strings_are_numerals() {
        let read = |text: &[u8]| SdnType::Numeral.decode(text, 9).map_err(|refusal| refusal.code);
        assert_eq!((read(b"0"), read(b"511")), (Ok(Value::ZERO), Ok(511u32.into())));
        for text in [&b"007"[..], b"", b"eth0", b"+1", b" 1", b"1\xff"] {
            assert_eq!(read(text), Err(Code::InvalidArgument), "{text:?}");
        }
        assert_eq!(read(b"512"), Err(Code::OutOfRange));
        assert_eq!(read(&[b'9'; 1 << 20]), Err(Code::OutOfRange), "not even read");
    }

    #[test]
    fn masks_of_wider_types() {
        let read = |mask: &[u8]| SdnType::Wider(16).decode_mask(mask, 9).map_err(|refusal| refusal.code);
        assert_eq!(read(b"\xff\xff"), Ok(Value::ones(9)), "a certain value");
        assert_eq!(read(b"\x01\xf0"), Ok(0x1f0u32.into()));
        assert_eq!(read(b"\x01\xff"), Err(Code::InvalidArgument), "the other way to say a certain value");
        assert_eq!(read(b"\x02\x00"), Err(Code::InvalidArgument));
        assert_eq!(read(b"\x01\x00\x00"), Err(Code::OutOfRange));
    }

    proptest! {
        #[test]
        fn what_is_said_is_read(number: u128, width in 1u32..=128) {
            let value = &Value::from(number) & &Value::ones(width);
            for sdn_type in [SdnType::Plain, SdnType::Wider(width + 5), SdnType::Numeral] {
                prop_assert_eq!(sdn_type.decode(&sdn_type.encode(&value), width), Ok(value.clone()));
            }
            for sdn_type in [SdnType::Plain, SdnType::Wider(width + 5)] {
                prop_assert_eq!(sdn_type.decode_mask(&sdn_type.encode_mask(&value, width), width), Ok(value.clone()));
            }
        }
    }
}
