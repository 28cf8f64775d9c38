// SPDX-License-Identifier: Apache-2.0
//! Reading single cells of counters and the direct counters of single entries, of which a request may name thousands:
//! what is said in the usual way is read and answered as it stands on the wire, which takes a fraction of the time.
//! All else is `None` here and takes the way of every message.

use apswitch_dataplane::control::{CounterValue, EntryKey, KeyField, MatchKind, Value};
use prost::encoding::{self, WireType, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len};

use super::entry;
use super::schema::{Counter, MatchField, Schema, Table};
use super::translation::SdnType;
use super::value;

/// Numbers of fields in the protos.
const ENTITY_COUNTER_ENTRY: u32 = 7;
const CELL_COUNTER_ID: u32 = 1;
const CELL_INDEX: u32 = 2;
const CELL_DATA: u32 = 3;
const INDEX_INDEX: u32 = 1;
const ENTITY_DIRECT_COUNTER_ENTRY: u32 = 8;
const COUNTER_TABLE_ENTRY: u32 = 1;
const COUNTER_DATA: u32 = 2;
const ENTRY_TABLE_ID: u32 = 1;
const ENTRY_MATCH: u32 = 2;
const MATCH_FIELD_ID: u32 = 1;
const MATCH_EXACT: u32 = 2;
const EXACT_VALUE: u32 = 1;

/// Takes a number off a message, which has to be the next field.
fn number(message: &mut &[u8], field: u32) -> Option<u64> {
    let key = decode_varint(message).ok()?;
    (key == tag(field, WireType::Varint)).then(|| decode_varint(message).ok())?
}

/// Reads a length-delimited field.
fn bytes<'a>(message: &mut &'a [u8], field: u32) -> Option<&'a [u8]> {
    if decode_varint(message).ok()? != tag(field, WireType::LengthDelimited) {
        return None;
    }
    let length = decode_varint(message).ok()?.try_into().ok()?;
    let (part, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(part)
}

/// The only field of a message.
fn only(mut message: &[u8], field: u32) -> Option<&[u8]> {
    bytes(&mut message, field).filter(|_| message.is_empty())
}

fn tag(field: u32, wire_type: WireType) -> u64 {
    u64::from(field << 3 | wire_type as u32)
}

/// The entry whose counter an `Entity` asks for, and the `TableEntry` that names it: by exact fields in the order of
/// the P4Info, their values canonical, and by nothing else.
pub fn counter_of<'s, 'm>(schema: &'s Schema, entity: &'m [u8]) -> Option<(&'s Table, EntryKey, &'m [u8])> {
    let named = only(only(entity, ENTITY_DIRECT_COUNTER_ENTRY)?, COUNTER_TABLE_ENTRY)?;
    let mut rest = named;
    let table = schema.tables.get(&number(&mut rest, ENTRY_TABLE_ID)?.try_into().ok()?)?;
    let field = |known: &MatchField| {
        let mut matched = bytes(&mut rest, ENTRY_MATCH)?;
        let id = number(&mut matched, MATCH_FIELD_ID)?;
        let exact = only(only(matched, MATCH_EXACT)?, EXACT_VALUE)?;
        let is_usual = (u64::from(known.id), known.kind) == (id, MatchKind::Exact);
        let is_usual = is_usual && matches!(known.sdn_type, SdnType::Plain);
        (is_usual && value::canonical(exact, known.width) == Ok(exact))
            .then(|| KeyField::Exact(Value::from_bytes(exact)))
    };
    let fields = table.fields.iter().map(field).collect::<Option<Vec<_>>>()?;
    let is_whole = rest.is_empty() && !fields.is_empty() && table.has_counter;
    is_whole.then_some((table, EntryKey { fields, priority: 0 }, named))
}

/// The `Entity` that answers it.
pub fn counter_message(named: &[u8], value: CounterValue) -> Vec<u8> {
    let head = key_len(COUNTER_TABLE_ENTRY) + encoded_len_varint(named.len() as u64);
    let mut message = begin(ENTITY_DIRECT_COUNTER_ENTRY, head + named.len(), COUNTER_DATA, value);
    encode_key(COUNTER_TABLE_ENTRY, WireType::LengthDelimited, &mut message);
    encode_varint(named.len() as u64, &mut message);
    end(message, named, COUNTER_DATA, value)
}

/// The cell of an indirect counter that an `Entity` asks for, with the counter's id, and the fields that name it: id
/// and index, and nothing else.
pub fn cell_of<'s, 'm>(schema: &'s Schema, entity: &'m [u8]) -> Option<(u32, &'s Counter, usize, &'m [u8])> {
    let named = only(entity, ENTITY_COUNTER_ENTRY)?;
    let mut rest = named;
    let id = number(&mut rest, CELL_COUNTER_ID)?.try_into().ok()?;
    let mut inner = only(rest, CELL_INDEX)?;
    // A field that is 0 is left out.
    let index = if inner.is_empty() { 0 } else { number(&mut inner, INDEX_INDEX)? };
    let counter = schema.counters.get(&id)?;
    let index = usize::try_from(index).ok().filter(|&index| index < counter.size)?;
    inner.is_empty().then_some((id, counter, index, named))
}

/// The `Entity` that answers it.
pub fn cell_message(named: &[u8], value: CounterValue) -> Vec<u8> {
    end(begin(ENTITY_COUNTER_ENTRY, named.len(), CELL_DATA, value), named, CELL_DATA, value)
}

/// The begin of an `Entity` that holds `length` bytes, and a counter's value as field `data`.
fn begin(entity: u32, length: usize, data: u32, value: CounterValue) -> Vec<u8> {
    let inner = length + encoding::message::encoded_len(data, &entry::counter_message(value));
    let mut message = Vec::with_capacity(inner + 8);
    encode_key(entity, WireType::LengthDelimited, &mut message);
    encode_varint(inner as u64, &mut message);
    message
}

fn end(mut message: Vec<u8>, named: &[u8], data: u32, value: CounterValue) -> Vec<u8> {
    message.extend_from_slice(named);
    encoding::message::encode(data, &entry::counter_message(value), &mut message);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Naming;
    use crate::proto::p4::v1 as p4;
    use apswitch_dataplane::control::{CounterId, TableId};
    use bytes::Bytes;
    use p4::entity::Entity;
    use p4::field_match::{Exact, FieldMatchType};
    use proptest::prelude::*;
    use prost::Message;

    /// One table with exact fields of 12 and 32 bits.
    fn schema() -> Schema {
        let field = |id: u32, width| {
            let (kind, sdn_type) = (MatchKind::Exact, SdnType::Plain);
            MatchField { id, name: format!("f{id}"), width, sdn_type, kind, stored: kind }
        };
        let table = Table {
            id: 7,
            name: "t".into(),
            target: TableId(0),
            fields: vec![field(1, 12), field(2, 32)],
            has_priority: false,
            actions: Vec::new(),
            is_const: false,
            const_default: false,
            has_counter: true,
            meter: None,
            has_idle_timeout: false,
            profile: None,
        };
        let counter = Counter { name: "c".into(), target: CounterId(0), size: 1 << 20 };
        Schema { tables: [(7, table)].into(), counters: [(9, counter)].into(), ..Schema::default() }
    }

    fn cell(counter_id: u32, index: Option<i64>, data: Option<p4::CounterData>) -> Vec<u8> {
        let index = index.map(|index| p4::Index { index });
        let entry = p4::CounterEntry { counter_id, index, data };
        p4::Entity { entity: Some(Entity::CounterEntry(entry)) }.encode_to_vec()
    }

    fn entity(table_entry: p4::TableEntry, data: Option<p4::CounterData>) -> Vec<u8> {
        let entry = p4::DirectCounterEntry { table_entry: Some(table_entry), data };
        p4::Entity { entity: Some(Entity::DirectCounterEntry(entry)) }.encode_to_vec()
    }

    fn named(values: [&[u8]; 2]) -> p4::TableEntry {
        let matched = |(field_id, value): (u32, &[u8])| p4::FieldMatch {
            field_id,
            field_match_type: Some(FieldMatchType::Exact(Exact { value: Bytes::copy_from_slice(value) })),
        };
        p4::TableEntry { table_id: 7, r#match: (1..).zip(values).map(matched).collect(), ..Default::default() }
    }

    #[test]
    fn all_that_is_not_usual_takes_the_other_way() {
        let (schema, usual) = (schema(), named([b"\x01", b"\x02"]));
        assert!(counter_of(&schema, &entity(usual.clone(), None)).is_some());
        let mut turned = usual.clone();
        turned.r#match.reverse();
        let mut twice = usual.clone();
        twice.r#match.push(usual.r#match[0].clone());
        let mut short = usual.clone();
        short.r#match.pop();
        let others = [
            turned,
            twice,
            short,
            named([b"\x00\x01", b"\x02"]),
            named([b"\x10\x00", b"\x02"]),
            named([b"", b"\x02"]),
            p4::TableEntry { table_id: 8, ..usual.clone() },
            p4::TableEntry { priority: 1, ..usual.clone() },
            p4::TableEntry { is_default_action: true, ..usual.clone() },
            p4::TableEntry { action: Some(p4::TableAction::default()), ..usual.clone() },
        ];
        for other in others {
            assert_eq!(counter_of(&schema, &entity(other.clone(), None)).map(|found| found.1), None, "{other:?}");
        }
        let bytes = entity(usual.clone(), None);
        for length in 0..bytes.len() {
            assert!(counter_of(&schema, &bytes[..length]).is_none(), "cut off after {length} bytes");
        }
        assert!(counter_of(&schema, &[&bytes[..], &bytes[..]].concat()).is_none(), "two in one");
        assert!(counter_of(&schema, &entity(usual, Some(p4::CounterData::default()))).is_none());
    }

    #[test]
    fn cells_that_are_not_there_take_the_other_way() {
        let schema = schema();
        assert!(cell_of(&schema, &cell(9, Some(0), None)).is_some());
        let others = [
            cell(8, Some(0), None),
            cell(0, Some(0), None),
            cell(9, None, None),
            cell(9, Some(-1), None),
            cell(9, Some(1 << 20), None),
            cell(9, Some(0), Some(p4::CounterData::default())),
            [cell(9, Some(0), None), cell(9, Some(0), None)].concat(),
        ];
        for other in others {
            assert!(cell_of(&schema, &other).is_none(), "{other:?}");
        }
        let bytes = cell(9, Some(1000), None);
        for length in 0..bytes.len() {
            assert!(cell_of(&schema, &bytes[..length]).is_none(), "cut off after {length} bytes");
        }
    }

    proptest! {
        #[test]
        fn both_ways_say_the_same_of_a_cell(index in 0i64..1 << 20, packets: u64, bytes in 0u64..300) {
            let (schema, request) = (schema(), cell(9, Some(index), None));
            let (id, _, found, named) = cell_of(&schema, &request).expect("it is the usual way");
            prop_assert_eq!((id, found), (9, index as usize));
            let value = CounterValue { packets, bytes };
            prop_assert_eq!(cell_message(named, value), cell(9, Some(index), Some(entry::counter_message(value))));
        }

        #[test]
        fn both_ways_say_the_same(
            a in 0u32..1 << 12, b: u32, zeros in 0usize..2, turned: bool, packets: u64, bytes in 0u64..300,
        ) {
            let schema = schema();
            let value = |value: u32, zeros: usize| {
                [&[0, 0][..zeros], &value::from_value(&value.into())[..]].concat()
            };
            let mut message = named([&value(a, 0), &value(b, zeros)]);
            if turned {
                message.r#match.reverse();
            }
            let found = CounterValue { packets, bytes };
            let request = entity(message.clone(), None);
            let usual = counter_of(&schema, &request);
            prop_assert_eq!(usual.is_some(), zeros == 0 && !turned);
            if let Some((table, key, named)) = usual {
                prop_assert_eq!(Ok(key), entry::key(table, &message, Naming::Find));
                let answer = entity(entry::canonical_key(message), Some(entry::counter_message(found)));
                prop_assert_eq!(&counter_message(named, found)[..], &answer[..]);
            }
        }

        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>) {
            counter_of(&schema(), &bytes);
            cell_of(&schema(), &bytes);
        }
    }
}
