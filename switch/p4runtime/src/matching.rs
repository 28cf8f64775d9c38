// SPDX-License-Identifier: Apache-2.0
//! Match fields between P4Runtime messages and the control API (P4Runtime 1.4, "Match Format").

use apswitch_dataplane::control::{KeyField, MatchKind, Value};

use super::error::{Checked, refuse};
use super::names::Naming;
use super::proto::p4::v1 as p4;
use super::schema::MatchField;

/// `of`: the table or value set whose `known` fields these are.
pub fn match_fields(
    of: &str,
    known: &[MatchField],
    matches: &[p4::FieldMatch],
    naming: Naming,
) -> Checked<Vec<KeyField>> {
    let any = |field: &MatchField| match field.stored {
        MatchKind::Exact => KeyField::Exact(Value::ZERO),
        MatchKind::Lpm => KeyField::Lpm { value: Value::ZERO, prefix_len: 0 },
        MatchKind::Ternary => KeyField::Ternary { value: Value::ZERO, mask: Value::ZERO },
        MatchKind::Range => KeyField::Range { low: Value::ZERO, high: Value::ones(field.width) },
        MatchKind::Optional => KeyField::Optional(None),
    };
    let mut fields: Vec<KeyField> = known.iter().map(any).collect();
    let mut given = Seen::default();
    for field_match in matches {
        let Some(i) = numbered(known, field_match.field_id, |field| field.id) else {
            return refuse!(InvalidArgument, "{of} has no match field {}", field_match.field_id);
        };
        let field = &known[i];
        if !given.insert(i) {
            return refuse!(InvalidArgument, "{of} {} is given twice", field.name);
        }
        fields[i] = match_field(field, field_match.field_match_type.as_ref(), naming)
            .map_err(|e| e.at(format_args!("{of} {}", field.name)))?;
    }
    for (i, field) in known.iter().enumerate() {
        if field.kind == MatchKind::Exact && !given.contains(i) {
            return refuse!(InvalidArgument, "{of} {}: an exact field cannot be left out", field.name);
        }
    }
    Ok(fields)
}

/// Parts of a list that have come; the first 64 take no memory of their own.
#[derive(Default)]
pub struct Seen {
    first: u64,
    rest: Vec<u64>,
}

impl Seen {
    fn word(&mut self, index: usize) -> &mut u64 {
        match index / 64 {
            0 => &mut self.first,
            word => {
                self.rest.resize(self.rest.len().max(word), 0);
                &mut self.rest[word - 1]
            }
        }
    }

    /// Inserts an index; returns true if it is new.
    pub fn insert(&mut self, index: usize) -> bool {
        let (word, bit) = (self.word(index), 1 << (index % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub fn contains(&self, index: usize) -> bool {
        let word = if index < 64 { Some(&self.first) } else { self.rest.get(index / 64 - 1) };
        word.is_some_and(|word| word & 1 << (index % 64) != 0)
    }
}

/// Returns the index of the object with this id: usually they are numbered from 1.
pub fn numbered<T>(known: &[T], id: u32, id_of: impl Fn(&T) -> u32) -> Option<usize> {
    let likely = (id as usize).wrapping_sub(1);
    match known.get(likely) {
        Some(found) if id_of(found) == id => Some(likely),
        _ => known.iter().position(|one| id_of(one) == id),
    }
}

fn match_field(
    field: &MatchField,
    given: Option<&p4::field_match::FieldMatchType>,
    naming: Naming,
) -> Checked<KeyField> {
    use p4::field_match::FieldMatchType as Given;
    let MatchField { kind, width, ref sdn_type, .. } = *field;
    let read = |bytes: &[u8]| sdn_type.decode(bytes, width, naming);
    match (kind, given) {
        (MatchKind::Exact, Some(Given::Exact(exact))) => Ok(KeyField::Exact(read(&exact.value)?)),
        (MatchKind::Optional, Some(Given::Optional(optional))) => {
            let value = read(&optional.value)?;
            Ok(match field.stored {
                MatchKind::Ternary => KeyField::Ternary { value, mask: Value::ones(width) },
                _ => KeyField::Optional(Some(value)),
            })
        }
        (MatchKind::Lpm, Some(Given::Lpm(lpm))) => {
            let value = read(&lpm.value)?;
            let (given, extra) = (lpm.prefix_len, sdn_type.extra(width));
            let prefix_len = match u16::try_from(i64::from(given) - i64::from(extra)) {
                Ok(0) => return refuse!(InvalidArgument, "leave the field out instead of a prefix of length 0"),
                Ok(length) if u32::from(length) <= width => length,
                _ if extra > 0 && given > 0 && i64::from(given) < extra.into() => {
                    return refuse!(InvalidArgument, "leave the field out: the first {extra} bits are always 0");
                }
                _ => return refuse!(InvalidArgument, "prefix length {given} of {} bits", width + extra),
            };
            match value.is_within(&Value::prefix(prefix_len.into(), width)) {
                true => Ok(KeyField::Lpm { value, prefix_len }),
                false => refuse!(InvalidArgument, "bits beyond the prefix are set"),
            }
        }
        (MatchKind::Ternary, Some(Given::Ternary(ternary))) => {
            let (value, mask) = (read(&ternary.value)?, sdn_type.decode_mask(&ternary.mask, width)?);
            match value.is_within(&mask) {
                _ if mask.is_zero() => refuse!(InvalidArgument, "leave the field out instead of a mask of 0"),
                true => Ok(KeyField::Ternary { value, mask }),
                false => refuse!(InvalidArgument, "bits outside the mask are set"),
            }
        }
        (MatchKind::Range, Some(Given::Range(range))) => {
            let (low, high) = (read(&range.low)?, read(&range.high)?);
            if low > high {
                return refuse!(InvalidArgument, "the range ends before it starts");
            }
            if is_all(&low, &high, width) {
                return refuse!(InvalidArgument, "leave the field out instead of the whole range");
            }
            Ok(KeyField::Range { low, high })
        }
        (_, None) => refuse!(InvalidArgument, "no match is given"),
        _ => refuse!(InvalidArgument, "the field is matched as {kind}"),
    }
}

/// Returns true if the range is all that a field can hold.
fn is_all(low: &Value, high: &Value, width: u32) -> bool {
    low.is_zero() && *high == Value::ones(width)
}

pub fn match_messages(fields: &[MatchField], parts: &[KeyField]) -> Vec<p4::FieldMatch> {
    use p4::field_match::{self as m, FieldMatchType};
    let message = |(field, part): (&MatchField, &KeyField)| {
        let bytes = |value: &Value| field.sdn_type.encode(value);
        let given = match part {
            KeyField::Exact(v) => FieldMatchType::Exact(m::Exact { value: bytes(v) }),
            KeyField::Lpm { prefix_len: 0, .. } | KeyField::Optional(None) => return None,
            KeyField::Ternary { mask, .. } if mask.is_zero() => return None,
            KeyField::Range { low, high } if is_all(low, high, field.width) => return None,
            KeyField::Lpm { value, prefix_len } => {
                let prefix_len = i32::from(*prefix_len) + field.sdn_type.extra(field.width) as i32;
                FieldMatchType::Lpm(m::Lpm { value: bytes(value), prefix_len })
            }
            KeyField::Ternary { value: v, .. } if field.kind == MatchKind::Optional => {
                FieldMatchType::Optional(m::Optional { value: bytes(v) })
            }
            KeyField::Ternary { value, mask } => {
                let mask = field.sdn_type.encode_mask(mask, field.width);
                FieldMatchType::Ternary(m::Ternary { value: bytes(value), mask })
            }
            KeyField::Range { low, high } => FieldMatchType::Range(m::Range { low: bytes(low), high: bytes(high) }),
            KeyField::Optional(Some(v)) => FieldMatchType::Optional(m::Optional { value: bytes(v) }),
        };
        Some(p4::FieldMatch { field_id: field.id, field_match_type: Some(given) })
    };
    fields.iter().zip(parts).filter_map(message).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::Code;
    use crate::names::Names;
    use crate::translation::SdnType;
    use p4::field_match::{self as m, FieldMatchType};
    use proptest::prelude::*;

    const KINDS: [MatchKind; 5] =
        [MatchKind::Exact, MatchKind::Lpm, MatchKind::Ternary, MatchKind::Range, MatchKind::Optional];

    /// A 12-bit field of each kind, with ids 1 to 5, and as number 6 an optional one as p4c writes it.
    fn known() -> Vec<MatchField> {
        let field = |id: u32, kind: MatchKind, stored| {
            let (name, sdn_type) = (kind.to_string(), SdnType::Plain);
            MatchField { id, name, width: 12, sdn_type, kind, stored }
        };
        let mut fields: Vec<MatchField> = (1..).zip(KINDS).map(|(id, kind)| field(id, kind, kind)).collect();
        fields.push(field(6, MatchKind::Optional, MatchKind::Ternary));
        fields
    }

    fn field(id: u32, field_match_type: FieldMatchType) -> p4::FieldMatch {
        p4::FieldMatch { field_id: id, field_match_type: Some(field_match_type) }
    }

    fn exact(value: &'static [u8]) -> p4::FieldMatch {
        field(1, FieldMatchType::Exact(m::Exact { value: value.into() }))
    }

    fn code(extra: &[p4::FieldMatch]) -> Code {
        let matches = [&[exact(b"\x01")], extra].concat();
        match_fields("t", &known(), &matches, Naming::Give).map_or_else(|refusal| refusal.code, |_| Code::Ok)
    }

    #[test]
    fn match_fields_are_checked() {
        let lpm = |value: &'static [u8], prefix_len| {
            field(2, FieldMatchType::Lpm(m::Lpm { value: value.into(), prefix_len }))
        };
        assert_eq!(code(&[lpm(b"\x0f\x00", 4)]), Code::Ok);
        assert_eq!(code(&[lpm(b"\x0f\x01", 4)]), Code::InvalidArgument, "bits beyond the prefix");
        assert_eq!(code(&[lpm(b"\x00", 0)]), Code::InvalidArgument, "don't care is left out");
        assert_eq!(code(&[lpm(b"\x00", 13)]), Code::InvalidArgument);
        assert_eq!(code(&[lpm(b"\x00", -1)]), Code::InvalidArgument);

        let ternary = |value: &'static [u8], mask: &'static [u8]| {
            field(3, FieldMatchType::Ternary(m::Ternary { value: value.into(), mask: mask.into() }))
        };
        assert_eq!(code(&[ternary(b"\x01", b"\x03")]), Code::Ok);
        assert_eq!(code(&[ternary(b"\x04", b"\x03")]), Code::InvalidArgument, "bits outside the mask");
        assert_eq!(code(&[ternary(b"\x00", b"\x00")]), Code::InvalidArgument, "don't care is left out");
        assert_eq!(code(&[ternary(b"\x00", b"\x10\x00")]), Code::OutOfRange, "13 bits in 12");

        let range = |low: &'static [u8], high: &'static [u8]| {
            field(4, FieldMatchType::Range(m::Range { low: low.into(), high: high.into() }))
        };
        assert_eq!(code(&[range(b"\x01", b"\x01")]), Code::Ok);
        assert_eq!(code(&[range(b"\x02", b"\x01")]), Code::InvalidArgument);
        assert_eq!(code(&[range(b"\x00", b"\x0f\xff")]), Code::InvalidArgument, "don't care is left out");

        let optional = field(5, FieldMatchType::Optional(m::Optional { value: b"\x00\x00\x09"[..].into() }));
        assert_eq!(code(std::slice::from_ref(&optional)), Code::Ok);
        assert_eq!(code(&[optional.clone(), optional]), Code::InvalidArgument, "given twice");
        assert_eq!(
            code(&[field(9, FieldMatchType::Exact(m::Exact::default()))]),
            Code::InvalidArgument,
            "no such field"
        );
        assert_eq!(code(&[p4::FieldMatch { field_id: 5, field_match_type: None }]), Code::InvalidArgument);
        assert_eq!(
            code(&[field(5, FieldMatchType::Exact(m::Exact::default()))]),
            Code::InvalidArgument,
            "another kind"
        );
        assert_eq!(
            match_fields("t", &known(), &[], Naming::Give).unwrap_err().code,
            Code::InvalidArgument,
            "exact fields have no don't care"
        );
        assert_eq!(match_fields("t", &known(), &[exact(b"")], Naming::Give).unwrap_err().code, Code::OutOfRange);
    }

    #[test]
    fn translated_fields_are_checked() {
        let mut known = known();
        known.iter_mut().for_each(|field| field.sdn_type = SdnType::Wider(32));
        let code = |extra: p4::FieldMatch| {
            match_fields("t", &known, &[exact(b"\x01"), extra], Naming::Give)
                .map_or_else(|refusal| refusal.code, |_| Code::Ok)
        };
        let lpm = |value: &'static [u8], prefix_len| {
            field(2, FieldMatchType::Lpm(m::Lpm { value: value.into(), prefix_len }))
        };
        assert_eq!(code(lpm(b"\x0f\x01", 32)), Code::Ok);
        assert_eq!(code(lpm(b"\x0f\x01", 12)), Code::InvalidArgument, "bits beyond the prefix");
        assert_eq!(code(lpm(b"\x00", 20)), Code::InvalidArgument, "matches all that there is");
        assert_eq!(code(lpm(b"\x00", 33)), Code::InvalidArgument);
        assert_eq!(code(lpm(b"\x10\x00", 32)), Code::OutOfRange, "13 bits in 12");
        let ternary = |value: &'static [u8], mask: &'static [u8]| {
            field(3, FieldMatchType::Ternary(m::Ternary { value: value.into(), mask: mask.into() }))
        };
        assert_eq!(code(ternary(b"\x01", b"\xff\xff\xff\xff")), Code::Ok);
        assert_eq!(code(ternary(b"\x01", b"\x0f\xff")), Code::InvalidArgument, "said the other way");
    }

    #[test]
    fn any_number_of_fields() {
        let many: Vec<MatchField> = (1..=200).map(|id| MatchField { id, ..known().swap_remove(0) }).collect();
        let message = |id| p4::FieldMatch { field_id: id, ..exact(b"\x07") };
        let mut messages: Vec<_> = (1..=200).rev().map(message).collect();
        assert_eq!(match_fields("t", &many, &messages, Naming::Give), Ok(vec![KeyField::Exact(7u32.into()); 200]));
        let last = messages.swap_remove(0);
        assert_eq!(
            match_fields("t", &many, &messages, Naming::Give).unwrap_err().code,
            Code::InvalidArgument,
            "field 200 is missing"
        );
        messages.extend([last.clone(), last]);
        assert_eq!(
            match_fields("t", &many, &messages, Naming::Give).unwrap_err().code,
            Code::InvalidArgument,
            "given twice"
        );
    }

    fn key_field(kind: MatchKind) -> BoxedStrategy<KeyField> {
        let value = (0u64..1 << 12).prop_map(Value::from);
        match kind {
            MatchKind::Exact => value.prop_map(KeyField::Exact).boxed(),
            MatchKind::Lpm => (value, 0u16..=12)
                .prop_map(|(v, prefix_len)| KeyField::Lpm {
                    value: &v & &Value::prefix(prefix_len.into(), 12),
                    prefix_len,
                })
                .boxed(),
            MatchKind::Ternary => {
                (value.clone(), value).prop_map(|(v, mask)| KeyField::Ternary { value: &v & &mask, mask }).boxed()
            }
            MatchKind::Range => (value.clone(), value)
                .prop_map(|(a, b)| KeyField::Range { low: a.clone().min(b.clone()), high: a.max(b) })
                .boxed(),
            MatchKind::Optional => proptest::option::of(value).prop_map(KeyField::Optional).boxed(),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            mut fields in KINDS.map(key_field).to_vec(),
            optional in proptest::option::of((0u64..1 << 12).prop_map(Value::from)),
        ) {
            let known = known();
            fields.push(match optional {
                Some(value) => KeyField::Ternary { value, mask: Value::ones(12) },
                None => KeyField::Ternary { value: Value::ZERO, mask: Value::ZERO },
            });
            let messages = match_messages(&known, &fields);
            prop_assert_eq!(match_fields("t", &known, &messages, Naming::Give), Ok(fields));
        }

        #[test]
        fn translated_fields_are_read_as_they_were_written(mut fields in KINDS.map(key_field).to_vec()) {
            let mut known = known();
            known.truncate(5);
            known.iter_mut().for_each(|field| field.sdn_type = SdnType::Wider(32));
            let messages = match_messages(&known, &fields);
            prop_assert_eq!(match_fields("t", &known, &messages, Naming::Give), Ok(fields.clone()));
            let names = Arc::new(Names::new(12, &[], Arc::default()).unwrap());
            known.retain(|field| matches!(field.kind, MatchKind::Exact | MatchKind::Optional));
            known.iter_mut().for_each(|field| field.sdn_type = SdnType::Named(names.clone()));
            fields.retain(|field| matches!(field, KeyField::Exact(_) | KeyField::Optional(_)));
            let messages = match_messages(&known, &fields);
            prop_assert_eq!(match_fields("t", &known, &messages, Naming::Give), Ok(fields));
        }
    }
}
