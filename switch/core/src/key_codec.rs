// SPDX-License-Identifier: Apache-2.0
//! Fields of keys as they stand in the rows of a table, and checks of widths and indices.

use std::fmt;
use std::ops::Range;

use crate::program::{EntryKey, KeyField, MatchKind, Value};
use crate::state::code::{KeyPlace, TableCode};
use crate::state::table::RowShape;
use crate::write_api::UpdateError;

type Result<T> = std::result::Result<T, UpdateError>;

fn invalid<T>(reason: impl Into<String>) -> Result<T> {
    Err(UpdateError::InvalidArgument(reason.into()))
}

/// Puts a key field and its mask into the row.
pub fn pack_field(
    field: &KeyField,
    place: &KeyPlace,
    kind: MatchKind,
    width: u16,
    name: &str,
    code: &TableCode,
    row: &mut [u64],
) -> Result<()> {
    let what = NamedField(name);
    // `None`: all bits.
    let (value, mask) = match (kind, field) {
        (MatchKind::Exact, KeyField::Exact(value)) => (value, None),
        (MatchKind::Lpm, KeyField::Lpm { value, prefix_len }) => {
            if *prefix_len > width {
                return invalid(format!("{what}: a prefix of {prefix_len} bits is longer than {width}"));
            }
            (value, Some(Value::prefix((*prefix_len).into(), width.into())))
        }
        (MatchKind::Ternary, KeyField::Ternary { value, mask }) => {
            check_width(format_args!("{what}, mask"), mask, width)?;
            (value, Some(mask.clone()))
        }
        // The format calls optional fields ternary.
        (MatchKind::Optional | MatchKind::Ternary, KeyField::Optional(value)) => {
            (value.as_ref().unwrap_or(&Value::ZERO), value.is_none().then_some(Value::ZERO))
        }
        (MatchKind::Range, KeyField::Range { low, high }) => {
            check_width(&what, low, width)?;
            check_width(&what, high, width)?;
            if low > high {
                return invalid(format!("{what}: the range {low}..{high} is empty"));
            }
            let KeyPlace::Range(first, words) = *place else { return invalid(format!("{what}: not a range")) };
            let at = RowShape::new(code).ranges + 2 * first;
            for word in 0..words {
                let place = at + words - 1 - word;
                (row[place], row[place + words]) = (low.word(word), high.word(word));
            }
            return Ok(());
        }
        (kind, _) => return invalid(format!("{what} has to be of kind {kind}")),
    };
    check_width(&what, value, width)?;
    if mask.as_ref().is_some_and(|mask| !value.is_within(mask)) {
        return invalid(format!("{what}: value {value:#x} has bits outside its mask"));
    }
    let KeyPlace::Packed(places) = place else { return invalid(format!("{what}: a range is needed")) };
    let shape = RowShape::new(code);
    for (index, &(word, shift, bits)) in places.iter().enumerate() {
        row[word as usize] |= value.word(index) << shift;
        if shape.ranges > shape.mask {
            let bits = u64::MAX >> (64 - bits);
            row[shape.mask + word as usize] |= mask.as_ref().map_or(bits, |mask| mask.word(index)) << shift;
        }
    }
    Ok(())
}

/// The key field that [`pack_field`] has put into the row.
pub fn unpack_field(place: &KeyPlace, kind: MatchKind, code: &TableCode, row: &[u64]) -> KeyField {
    let shape = RowShape::new(code);
    let places = match place {
        KeyPlace::Packed(places) => places,
        KeyPlace::Range(first, words) => {
            let (low, high) = row[shape.ranges + 2 * first..][..2 * words].split_at(*words);
            let value = |words: &[u64]| match words {
                [word] => Value::from(*word),
                words => Value::from_words(&words.iter().rev().copied().collect::<Vec<_>>()),
            };
            return KeyField::Range { low: value(low), high: value(high) };
        }
    };
    let read = |row: &[u64]| {
        let part = |&(word, shift, bits): &(u16, u8, u8)| row[word as usize] >> shift & u64::MAX >> (64 - bits);
        match &places[..] {
            [place] => Value::from(part(place)),
            places => Value::from_words(&places.iter().map(part).collect::<Vec<_>>()),
        }
    };
    let value = read(row);
    if kind == MatchKind::Exact {
        return KeyField::Exact(value);
    }
    let mask = read(&row[shape.mask..shape.ranges]);
    match kind {
        MatchKind::Lpm => {
            let prefix_len = mask.words().iter().map(|word| word.count_ones() as u16).sum();
            KeyField::Lpm { value, prefix_len }
        }
        MatchKind::Optional => KeyField::Optional((!mask.is_zero()).then_some(value)),
        _ => KeyField::Ternary { value, mask },
    }
}

/// The longest prefix wins.
pub fn prefix_length(key: &EntryKey) -> i32 {
    let length = |field: &KeyField| match field {
        KeyField::Lpm { prefix_len, .. } => *prefix_len as i32,
        _ => 0,
    };
    key.fields.iter().map(length).sum()
}

/// Formatted only for a refusal: keys are packed for every update and query.
struct NamedField<'a>(&'a str);

impl fmt::Display for NamedField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key field `{}`", self.0)
    }
}

pub fn check_width(what: impl fmt::Display, value: &Value, width: u16) -> Result<()> {
    if value.bits() > width.into() {
        return Err(UpdateError::OutOfRange(format!("{what}: {value:#x} does not fit in {width} bits")));
    }
    Ok(())
}

pub fn check_index(what: &str, size: Option<usize>, index: usize) -> Result<()> {
    match size {
        Some(size) if index < size => Ok(()),
        Some(size) => Err(UpdateError::OutOfRange(format!("{what} index {index} is not below {size}"))),
        None => Err(UpdateError::NotFound(what.to_string())),
    }
}

pub fn no_cells(what: &str, range: Range<usize>) -> UpdateError {
    UpdateError::OutOfRange(format!("{what} has no cells {}..{}", range.start, range.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::code::{Matching, RangeField, key_places};
    use crate::value::words;
    use proptest::prelude::*;

    fn value(width: u16) -> impl Strategy<Value = Value> {
        let bytes = proptest::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 40);
        bytes.prop_map(move |bytes| &Value::from_bytes(&bytes) & &Value::ones(width.into()))
    }

    /// A field of any kind and width, with its width.
    fn key_field() -> impl Strategy<Value = (MatchKind, u16, KeyField)> {
        use MatchKind::{Exact, Lpm, Optional, Range, Ternary};
        let kind = prop_oneof![Just(Exact), Just(Lpm), Just(Ternary), Just(Range), Just(Optional)];
        (kind, prop_oneof![1u16..=64, 1u16..=300]).prop_flat_map(|(kind, width)| {
            (value(width), value(width), 0..=width).prop_map(move |(a, b, prefix_len)| {
                let field = match kind {
                    Exact => KeyField::Exact(a),
                    Lpm => KeyField::Lpm { value: &a & &Value::prefix(prefix_len.into(), width.into()), prefix_len },
                    Ternary => KeyField::Ternary { value: &a & &b, mask: b },
                    Range => KeyField::Range { low: a.clone().min(b.clone()), high: a.max(b) },
                    Optional => KeyField::Optional((prefix_len > 0).then_some(a)),
                };
                (kind, width, field)
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(fields in proptest::collection::vec(key_field(), 1..6)) {
            let is_exact = fields.iter().all(|(kind, ..)| *kind == MatchKind::Exact);
            let matching = if is_exact { Matching::Exact } else { Matching::Scan };
            let (mut code, mut used) = (TableCode { matching, ..TableCode::default() }, Vec::new());
            for &(kind, width, _) in &fields {
                code.places.push(match kind {
                    MatchKind::Range => {
                        let first = code.ranges.iter().map(|range| range.words.len()).sum();
                        code.ranges.push(RangeField { words: vec![(0, 0); words(width)], valid: 0 });
                        KeyPlace::Range(first, words(width))
                    }
                    _ => KeyPlace::Packed(key_places(width, &mut used)),
                });
            }
            code.key_words = used.len();
            let mut row = vec![0; RowShape::new(&code).action];
            for ((kind, width, field), place) in fields.iter().zip(&code.places) {
                pack_field(field, place, *kind, *width, "f", &code, &mut row).unwrap();
            }
            for ((kind, _, field), place) in fields.iter().zip(&code.places) {
                prop_assert_eq!(&unpack_field(place, *kind, &code, &row), field);
            }
        }
    }
}
