// SPDX-License-Identifier: Apache-2.0
//! Names that clients give to the values of a type that is a string for them (P4Runtime 1.5, `sdn_string`).
//!
//! A decimal numeral without leading zeros is that number, so that ports and the like need no table. Any other text gets
//! a value of its own when a client first writes it, from the largest down, and keeps it as long as the pipeline and
//! those that it is reconciled with. `@p4runtime_translation_mappings` sets values beforehand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apswitch_dataplane::control::Value;
use bytes::Bytes;

use super::error::{Checked, refuse};

/// Names of all types of a pipeline together, and bytes of one.
const MAX_NAMES: usize = 1 << 16;
const MAX_NAME_LEN: usize = 256;
const MAPPINGS: &str = "@p4runtime_translation_mappings";

/// Handling of a name that stands for nothing yet: it gets a value, or is refused.
#[derive(Clone, Copy, PartialEq)]
pub enum Naming {
    Give,
    Find,
}

#[derive(Debug)]
pub struct Names {
    width: u32,
    given: Mutex<Given>,
    /// Names of all types of the pipeline.
    total: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
struct Given {
    values: HashMap<Bytes, Value>,
    names: HashMap<Value, Bytes>,
    /// Values from `floor` up are for names; those from `next` up have been given.
    next: u128,
    floor: u128,
}

impl Names {
    /// `annotations`: of the type. `total`: what all types of the pipeline share.
    pub fn new(width: u32, annotations: &[String], total: Arc<AtomicUsize>) -> Checked<Names> {
        let next = 1u128.checked_shl(width).unwrap_or(u128::MAX);
        let floor = next.saturating_sub(MAX_NAMES as u128);
        let given = Mutex::new(Given { values: HashMap::new(), names: HashMap::new(), next, floor });
        let names = Names { width, given, total };
        for annotation in annotations {
            if let Some(mappings) = annotation.trim().strip_prefix(MAPPINGS) {
                let Some(mappings) = parse_mappings(mappings) else {
                    return refuse!(InvalidArgument, "{annotation}: give {MAPPINGS}({{{{\"name\", number}}}})");
                };
                for (name, value) in mappings {
                    let mut given = names.lock();
                    if value.bits() > width || given.values.contains_key(&name) || given.names.contains_key(&value) {
                        return refuse!(
                            InvalidArgument,
                            "{annotation}: a value is too large, or something occurs twice"
                        );
                    }
                    names.put(&mut given, name, value)?;
                }
            }
        }
        Ok(names)
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, given: &mut Given, name: Bytes, value: Value) -> Checked<()> {
        if self.total.fetch_add(1, Relaxed) >= MAX_NAMES {
            self.total.fetch_sub(1, Relaxed);
            return refuse!(ResourceExhausted, "the types of the pipeline have {MAX_NAMES} names, which are the most");
        }
        given.values.insert(name.clone(), value.clone());
        given.names.insert(value, name);
        Ok(())
    }

    /// The value that a name stands for.
    pub fn value(&self, name: &[u8], naming: Naming) -> Checked<Value> {
        let mut given = self.lock();
        if let Some(value) = given.values.get(name) {
            return Ok(value.clone());
        }
        if let Some(number) = self.numeral(name)? {
            if let Some(other) = given.names.get(&number) {
                let other = String::from_utf8_lossy(other);
                return refuse!(InvalidArgument, "{number}: the value has the name {other:?}");
            }
            let is_for_names = number >= Value::from(given.floor);
            if naming == Naming::Give && is_for_names {
                self.put(&mut given, Bytes::copy_from_slice(name), number.clone())?;
            }
            return Ok(number);
        }
        let text = match std::str::from_utf8(name) {
            Ok(text) if name.len() <= MAX_NAME_LEN => text,
            Ok(_) => return refuse!(InvalidArgument, "a name of {} bytes: {MAX_NAME_LEN} are the most", name.len()),
            Err(_) => return refuse!(InvalidArgument, "a name is not text in UTF-8"),
        };
        if naming == Naming::Find {
            return refuse!(NotFound, "no value has the name {text:?}");
        }
        while given.next > given.floor {
            given.next -= 1;
            let value = Value::from(given.next);
            if !given.names.contains_key(&value) {
                self.put(&mut given, Bytes::copy_from_slice(name), value.clone())?;
                return Ok(value);
            }
        }
        refuse!(ResourceExhausted, "{text:?}: all values of {} bits that names may have are given", self.width)
    }

    /// The number that a numeral stands for; `None`: it is none.
    fn numeral(&self, name: &[u8]) -> Checked<Option<Value>> {
        if !name.iter().all(u8::is_ascii_digit) || !matches!(name, [b'0'] | [b'1'..=b'9', ..]) {
            return Ok(None);
        }
        // A digit is more than three bits.
        let fits = name.len() as u32 <= self.width / 3 + 1;
        match std::str::from_utf8(name).ok().filter(|_| fits).and_then(|text| Value::parse(text, 10)) {
            Some(value) if value.bits() <= self.width => Ok(Some(value)),
            _ => {
                let text = String::from_utf8_lossy(&name[..name.len().min(40)]);
                refuse!(OutOfRange, "{text}: the number does not fit in the data plane's {} bits", self.width)
            }
        }
    }

    /// The name of a value; of one without, its numeral.
    pub fn name(&self, value: &Value) -> Bytes {
        self.lock().names.get(value).cloned().unwrap_or_else(|| value.to_string().into())
    }

    /// Takes over the names of the same type of the pipeline before.
    pub fn take_over(&self, before: &Names) {
        if self.width == before.width {
            let taken = before.lock().clone();
            let mut given = self.lock();
            self.total.fetch_add(taken.values.len().saturating_sub(given.values.len()), Relaxed);
            *given = taken;
        }
    }
}

/// Reads `({ {"", 0}, {"name", 1}, })`.
fn parse_mappings(text: &str) -> Option<Vec<(Bytes, Value)>> {
    let inside = |text: &'_ str, open: char, close: char| -> Option<String> {
        Some(text.trim().strip_prefix(open)?.strip_suffix(close)?.trim().to_owned())
    };
    let list = inside(&inside(text, '(', ')')?, '{', '}')?;
    let mut rest = list.as_str();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix('{')?.trim_start().strip_prefix('"')?.split_once('"')?;
        let (number, after) = after.trim_start().strip_prefix(',')?.split_once('}')?;
        found.push((Bytes::copy_from_slice(name.as_bytes()), Value::parse(number.trim(), 10)?));
        rest = after.trim_start().strip_prefix(',').unwrap_or(after).trim_start();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use proptest::prelude::*;

    fn names(width: u32) -> Names {
        Names::new(width, &[], Arc::default()).unwrap()
    }

    #[test]
    fn names_are_of_any_text_and_numerals_are_themselves() {
        let names = names(9);
        let give = |text: &str| names.value(text.as_bytes(), Naming::Give).map_err(|refusal| refusal.code);
        assert_eq!((give("0"), give("7"), give("511")), (Ok(Value::ZERO), Ok(7u32.into()), Ok(511u32.into())));
        assert_eq!((give("eth0"), give("007"), give("")), (Ok(510u32.into()), Ok(509u32.into()), Ok(508u32.into())));
        assert_eq!(give("eth0"), Ok(510u32.into()), "the same again");
        assert_eq!(give("509"), Err(Code::InvalidArgument), "another name's value");
        assert_eq!((give("512"), give(&"9".repeat(1 << 20))), (Err(Code::OutOfRange), Err(Code::OutOfRange)));
        assert_eq!(give(&"x".repeat(300)), Err(Code::InvalidArgument));
        assert_eq!(names.value(b"\xff", Naming::Give).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(names.value(b"eth1", Naming::Find).unwrap_err().code, Code::NotFound);
        assert_eq!((&names.name(&510u32.into())[..], &names.name(&3u32.into())[..]), (&b"eth0"[..], &b"3"[..]));
    }

    #[test]
    fn names_end_with_the_values() {
        let names = names(2);
        let give = |number: u32| names.value(format!("n{number}").as_bytes(), Naming::Give);
        assert!((0..4).all(|number| give(number).is_ok()));
        assert_eq!(give(4).unwrap_err().code, Code::ResourceExhausted);
        let total = Arc::new(AtomicUsize::new(MAX_NAMES));
        let names = Names::new(32, &[], total).unwrap();
        assert_eq!(names.value(b"a", Naming::Give).unwrap_err().code, Code::ResourceExhausted);
        assert_eq!(names.value(b"5", Naming::Give), Ok(5u32.into()), "numerals need no place");
    }

    #[test]
    fn mappings_of_the_program_come_first() {
        let mapped = |text: &str| Names::new(10, &["@x".into(), text.into()], Arc::default());
        let names = mapped(r#"@p4runtime_translation_mappings({ { "" , 0 } , { "drop", 1023 }, })"#).unwrap();
        assert_eq!(names.value(b"", Naming::Find), Ok(Value::ZERO));
        assert_eq!(names.value(b"drop", Naming::Find), Ok(1023u32.into()));
        assert_eq!(names.value(b"vrf", Naming::Give), Ok(1022u32.into()));
        assert_eq!(names.value(b"0", Naming::Give).unwrap_err().code, Code::InvalidArgument);
        let again = self::names(10);
        again.take_over(&names);
        assert_eq!(again.value(b"vrf", Naming::Find), Ok(1022u32.into()));
        for wrong in ["({{\"a\", x}})", "({{\"a\", 1024}})", "({{\"a\", 1}, {\"b\", 1}})", "", "({{a, 1}})", "({"] {
            assert!(mapped(&format!("{MAPPINGS}{wrong}")).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn names_are_read_as_they_were_written(texts in proptest::collection::hash_set("[a-c0-9]{0,3}", 0..50)) {
            let names = names(12);
            let values: Vec<_> = texts.iter().map(|text| (text, names.value(text.as_bytes(), Naming::Give))).collect();
            for (text, value) in values {
                // The value of a numeral may be another name's by now: then it was refused.
                if let Ok(value) = value {
                    prop_assert_eq!(&names.name(&value)[..], text.as_bytes());
                }
            }
        }
    }
}
