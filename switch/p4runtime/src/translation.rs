// SPDX-License-Identifier: Apache-2.0
//! Translation of values whose types are declared with `type` and `@p4runtime_translation` (P4Runtime 1.5,
//! "User-defined types" and "PSA Metadata Translation").
//!
//! The mapping is the platform's. A number is itself, in the bits of the clients' own type; where that is `string`,
//! values have [`Names`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use apswitch_dataplane::control::Value;
use bytes::Bytes;

use super::error::{Checked, refuse};
use super::names::{Names, Naming};
use super::proto::p4::config::v1 as info;
use super::value;

/// Types of a P4Info, and the names of those that are strings for clients.
#[derive(Default)]
pub struct Types<'a> {
    pub info: Option<&'a info::P4TypeInfo>,
    names: RefCell<BTreeMap<String, Arc<Names>>>,
    total: Arc<AtomicUsize>,
}

impl<'a> Types<'a> {
    pub fn new(info: Option<&'a info::P4TypeInfo>) -> Types<'a> {
        Types { info, ..Types::default() }
    }

    /// Returns the translation of values of that type; `None`: they are not translated.
    pub fn translation(&self, name: &str) -> Option<&'a info::P4NewTypeTranslation> {
        use info::p4_new_type_spec::Representation;
        match self.info?.new_types.get(name)?.representation.as_ref()? {
            Representation::TranslatedType(found) => Some(found),
            Representation::OriginalType(_) => None,
        }
    }

    /// The names of a type, which all its values share.
    fn names(&self, name: &str, width: u32) -> Checked<Arc<Names>> {
        // A type has one width in a program; the key says so for one that has several.
        let key = format!("{name}/{width}");
        if let Some(names) = self.names.borrow().get(&key) {
            return Ok(names.clone());
        }
        let spec = self.info.and_then(|types| types.new_types.get(name));
        let annotations = spec.map_or(&[][..], |spec| &spec.annotations);
        let names = Names::new(width, annotations, self.total.clone()).map_err(|e| e.at(format!("type {name}")))?;
        let names = Arc::new(names);
        self.names.borrow_mut().insert(key, names.clone());
        Ok(names)
    }

    /// The names of all types.
    pub fn into_names(self) -> BTreeMap<String, Arc<Names>> {
        self.names.into_inner()
    }
}

#[derive(Clone, Debug, Default)]
pub enum SdnType {
    /// As the data plane's number.
    #[default]
    Plain,
    /// As a number of so many bits, more than the data plane has.
    Wider(u32),
    /// As a string.
    Named(Arc<Names>),
}

impl SdnType {
    /// `bitwidth`: what the P4Info says of the value; `width`: of the data plane's.
    pub fn new(
        type_name: Option<&info::P4NamedType>,
        types: &Types<'_>,
        bitwidth: i32,
        width: u32,
    ) -> Checked<SdnType> {
        let translated = type_name.and_then(|name| Some((&name.name, types.translation(&name.name)?)));
        let (sdn_type, wanted) = match translated {
            // Values of type error have no number of bits there.
            None if bitwidth == 0 => return Ok(SdnType::Plain),
            None => (SdnType::Plain, width),
            Some((name, found)) => match SdnType::of_translation(name, found, types, width)? {
                SdnType::Plain => (SdnType::Plain, width),
                SdnType::Wider(bits) => (SdnType::Wider(bits), bits),
                named @ SdnType::Named(_) => (named, 0),
            },
        };
        match u32::try_from(bitwidth) == Ok(wanted) {
            true => Ok(sdn_type),
            false if matches!(sdn_type, SdnType::Plain) => {
                refuse!(InvalidArgument, "{bitwidth} bits in the P4Info, {width} in the device config")
            }
            false => refuse!(InvalidArgument, "{bitwidth} bits in the P4Info, {wanted} in its type"),
        }
    }

    /// Makes one as [`SdnType::new`] does, where the P4Info names the type alone.
    pub fn of_translation(
        name: &str,
        translation: &info::P4NewTypeTranslation,
        types: &Types<'_>,
        width: u32,
    ) -> Checked<SdnType> {
        use info::p4_new_type_translation::SdnType as Declared;
        match translation.sdn_type {
            Some(Declared::SdnString(_)) => Ok(SdnType::Named(types.names(name, width)?)),
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
    pub fn decode(&self, bytes: &[u8], width: u32, naming: Naming) -> Checked<Value> {
        match self {
            // Bits beyond the data plane's have no meaning there, however many of them clients see.
            SdnType::Plain | SdnType::Wider(_) => Ok(value::to_value(bytes, width)?),
            SdnType::Named(names) => names.value(bytes, naming),
        }
    }

    pub fn encode(&self, value: &Value) -> Bytes {
        match self {
            SdnType::Plain | SdnType::Wider(_) => value::from_value(value),
            SdnType::Named(names) => names.name(value),
        }
    }

    /// Bits that clients see above the data plane's `width`; they are 0.
    pub fn extra(&self, width: u32) -> u32 {
        match self {
            SdnType::Wider(bits) => bits - width,
            SdnType::Plain | SdnType::Named(_) => 0,
        }
    }

    /// A mask over the data plane's `width` bits. Clients ask for a certain value with all bits that they see; any
    /// other mask is one of the data plane's bits, so that each mask is said in one way only.
    pub fn decode_mask(&self, bytes: &[u8], width: u32) -> Checked<Value> {
        let SdnType::Wider(bits) = *self else { return Ok(value::to_value(bytes, width)?) };
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

    pub fn encode_mask(&self, mask: &Value, width: u32) -> Bytes {
        match *self {
            SdnType::Wider(bits) if *mask == Value::ones(width) => value::from_value(&Value::ones(bits)),
            _ => value::from_value(mask),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use info::p4_new_type_translation::{SdnString, SdnType as Declared};
    use proptest::prelude::*;

    /// The kind of type, and the bits that clients see.
    fn sdn_type(sdn_type: Option<Declared>, bitwidth: i32) -> Result<(&'static str, u32), Code> {
        use info::p4_new_type_spec::Representation;
        let translation = info::P4NewTypeTranslation { uri: "example/t".into(), sdn_type };
        let representation = Some(Representation::TranslatedType(translation));
        let spec = info::P4NewTypeSpec { representation, ..Default::default() };
        let types = info::P4TypeInfo { new_types: [("t".into(), spec)].into(), ..Default::default() };
        let name = info::P4NamedType { name: "t".into() };
        let made = SdnType::new(Some(&name), &Types::new(Some(&types)), bitwidth, 9);
        made.map_err(|refusal| refusal.code).map(|made| match made {
            SdnType::Plain => ("plain", 9),
            SdnType::Wider(bits) => ("wider", bits),
            SdnType::Named(_) => ("named", 0),
        })
    }

    #[test]
    fn types_are_wider_numbers_or_strings() {
        assert_eq!(sdn_type(Some(Declared::SdnBitwidth(32)), 32), Ok(("wider", 32)));
        assert_eq!(sdn_type(Some(Declared::SdnBitwidth(9)), 9), Ok(("plain", 9)));
        assert_eq!(sdn_type(Some(Declared::SdnString(SdnString {})), 0), Ok(("named", 0)));
        assert_eq!(sdn_type(Some(Declared::SdnBitwidth(8)), 8), Err(Code::Unimplemented), "not every value has a name");
        assert_eq!(
            sdn_type(Some(Declared::SdnBitwidth(32)), 9),
            Err(Code::InvalidArgument),
            "the P4Info says two things"
        );
        assert_eq!(sdn_type(Some(Declared::SdnString(SdnString {})), 9), Err(Code::InvalidArgument));
        assert_eq!(sdn_type(None, 9), Err(Code::InvalidArgument));
        let plain = |bitwidth| SdnType::new(None, &Types::default(), bitwidth, 9);
        assert!(matches!(plain(9), Ok(SdnType::Plain)));
        assert_eq!(plain(8).unwrap_err().code, Code::InvalidArgument);
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
            let named = SdnType::Named(Arc::new(Names::new(width, &[], Arc::default()).unwrap()));
            for sdn_type in [SdnType::Plain, SdnType::Wider(width + 5), named] {
                prop_assert_eq!(sdn_type.decode(&sdn_type.encode(&value), width, Naming::Give), Ok(value.clone()));
            }
            for sdn_type in [SdnType::Plain, SdnType::Wider(width + 5)] {
                prop_assert_eq!(sdn_type.decode_mask(&sdn_type.encode_mask(&value, width), width), Ok(value.clone()));
            }
        }
    }
}
