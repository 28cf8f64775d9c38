// SPDX-License-Identifier: Apache-2.0
//! Tables against a plain list of entries, through random insertions, changes and removals.

use std::collections::BTreeMap;

use crate::common;
use crate::common::lab::Lab;
use crate::common::{entry, program};
use apswitch_dataplane::control::*;
use fastrand::Rng;

/// Key as one number to compare with, and how it matches.
struct Reference {
    fields: Vec<KeyField>,
    priority: i32,
    answer: u32,
}

fn matches(field: &KeyField, value: u128, width: u32) -> bool {
    let number = |value: &Value| u128::from_be_bytes(value.to_bytes(16).try_into().unwrap());
    match field {
        KeyField::Exact(wanted) => value == number(wanted),
        KeyField::Lpm { value: wanted, prefix_len } => {
            let rest = width - u32::from(*prefix_len);
            *prefix_len == 0 || value >> rest == number(wanted) >> rest
        }
        KeyField::Ternary { value: wanted, mask } => value & number(mask) == number(wanted),
        KeyField::Range { low, high } => (number(low)..=number(high)).contains(&value),
        KeyField::Optional(wanted) => wanted.as_ref().is_none_or(|wanted| value == number(wanted)),
    }
}

/// Runs random changes; `make` invents a key, `ask` sends a packet with values that it may match.
fn compare(
    table: &str,
    action: &str,
    seed: u64,
    widths: &[u32],
    make: impl Fn(&mut Rng) -> (Vec<KeyField>, i32),
    values: impl Fn(&mut Rng) -> Vec<u128>,
    frame: impl Fn(&[u128]) -> Vec<u8>,
) {
    let lab = Lab::new(program("features"), &[None, None]);
    let program = lab.program();
    let mut rng = Rng::with_seed(seed);
    let mut reference: BTreeMap<String, Reference> = BTreeMap::new();
    for step in 0..600u32 {
        let (fields, priority) = make(&mut rng);
        let name = format!("{fields:?} {priority}");
        let insert = entry(&program, table, &fields, priority, action, &[step as u128 + 1]);
        let update = match reference.contains_key(&name) {
            false => Update::InsertEntry(insert),
            true if rng.bool() => Update::ModifyEntry(insert),
            true => Update::DeleteEntry { table: insert.table, key: insert.key },
        };
        let delete = matches!(update, Update::DeleteEntry { .. });
        let full = lab.dataplane.write_blocking(vec![update]).remove(0)
            == Err(UpdateError::ResourceExhausted(format!(
                "table `TheIngress.{table}` is full ({} entries)",
                reference.len()
            )));
        if delete {
            reference.remove(&name);
        } else if !full {
            reference.insert(name, Reference { fields, priority, answer: step + 1 });
        }
        for _ in 0..5 {
            let values = values(&mut rng);
            let hits = |r: &&Reference| r.fields.iter().zip(&values).zip(widths).all(|((f, &v), &w)| matches(f, v, w));
            let best = reference.values().filter(hits).max_by_key(|r| rank(r));
            lab.send(1, &frame(&values));
            let answer = lab.receive(2);
            let answer = u32::from_be_bytes(answer[0..4].try_into().unwrap());
            match best {
                None => assert!(answer == 0 || answer == 7, "step {step}: {values:x?} hit {answer}"),
                Some(best) => {
                    // Among equals, any may win.
                    let rank_of = |r: &Reference| rank(r);
                    let won = reference.values().filter(hits).find(|r| r.answer == answer);
                    let won = won.unwrap_or_else(|| panic!("step {step}: {values:x?} gave {answer}"));
                    assert_eq!(rank_of(won), rank_of(best), "step {step}: {values:x?} gave {answer}");
                }
            }
        }
    }
    assert!(reference.len() > 5, "{} entries are no test", reference.len());
}

/// Returns what decides between entries that match: the priority, or the length of the prefix.
fn rank(reference: &Reference) -> i32 {
    let prefix = reference.fields.iter().map(|field| match field {
        KeyField::Lpm { prefix_len, .. } => *prefix_len as i32,
        _ => 0,
    });
    reference.priority.max(prefix.sum())
}

fn request(kind: u8, index: u128, value: u128) -> Vec<u8> {
    let mut frame = vec![kind, index as u8];
    frame.extend((value as u32).to_be_bytes());
    frame.extend([0; 4]);
    frame
}

#[test]
fn masks() {
    let make = |rng: &mut Rng| {
        let mask = [0xff00_0000, 0x0fff_0000, 0, 0xff, u32::MAX][rng.usize(..5)] as u128;
        let value = rng.u32(..) as u128 & 0x0102_0003 & mask;
        (vec![common::ternary(value, mask), KeyField::Exact(rng.u128(..2).into())], rng.i32(1..8))
    };
    let values = |rng: &mut Rng| vec![rng.u32(..) as u128 & 0x0102_0003, rng.u128(..3)];
    compare("masks", "set_answer", 1, &[32, 8], make, values, |v| request(3, v[1], v[0]));
}

#[test]
fn ranges() {
    let make = |rng: &mut Rng| {
        let low = rng.u128(..250);
        let range = common::range(low, rng.u128(low..256));
        let optional = KeyField::Optional(if rng.bool() { Some(rng.u128(..3).into()) } else { None });
        (vec![range, optional, common::ternary(0, 0)], rng.i32(1..5))
    };
    let values = |rng: &mut Rng| vec![rng.u128(..256), rng.u128(..4), 0];
    compare("ranges", "set_answer", 2, &[8, 32, 16], make, values, |v| request(2, v[0], v[1]));
}

#[test]
fn prefixes() {
    let make = |rng: &mut Rng| {
        let prefix_len = rng.u16(..=32);
        let all = (u32::MAX as u128) << (32 - prefix_len) & u32::MAX as u128;
        (vec![common::prefix(rng.u32(..) as u128 & 0xc000_0003 & all, prefix_len)], 0)
    };
    let values = |rng: &mut Rng| vec![rng.u32(..) as u128 & 0xc000_0003];
    compare("routes", "answer", 3, &[32], make, values, |v| request(1, 0, v[0]));
}

#[test]
fn exact_addresses() {
    let make = |rng: &mut Rng| (vec![KeyField::Exact((rng.u128(..8) << 100 | rng.u128(..3)).into())], 0);
    let values = |rng: &mut Rng| vec![rng.u128(..8) << 100 | rng.u128(..3)];
    compare("addresses", "set_answer", 4, &[128], make, values, |v| {
        let mut frame = request(0x31, 0, 0);
        frame.truncate(8);
        frame.extend(v[0].to_be_bytes());
        frame
    });
}

/// p4c writes an entry with a mask for a prefix (`0x11 &&& 0xf0`) as the value that stands in the source.
#[test]
fn the_prefix_of_a_constant_entry_is_all_that_counts_of_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../checks/conformance/programs/entities.json");
    let mut program: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let tables = program["pipelines"][0]["tables"].as_array_mut().unwrap();
    let table = tables.iter_mut().find(|table| table["name"] == "EntitiesIngress.lpm_table").unwrap();
    let entry = |value: &str, length: u16| {
        let key = serde_json::json!([{"match_type": "lpm", "key": value, "prefix_length": length}]);
        let none = table["action_ids"][2].clone();
        serde_json::json!({"match_key": key, "priority": 1, "action_entry": {"action_id": none, "action_data": []}})
    };
    table["entries"] = serde_json::json!([entry("0x00000011", 28), entry("0x00000012", 32)]);
    let load = |program: &serde_json::Value| Program::load(program.to_string().as_bytes());
    let loaded = load(&program).unwrap();
    let keys: Vec<_> = loaded.const_entries.iter().map(|(_, key, _)| key.fields.clone()).collect();
    // Behind them, those of another table.
    assert_eq!(keys[..2], [vec![common::prefix(0x10, 28)], vec![common::prefix(0x12, 32)]]);
    let shared = std::sync::Arc::new(apswitch_core::state::Shared::new(&loaded));
    assert!(apswitch_core::store::Store::new(std::sync::Arc::new(loaded), shared).is_ok());
    let table = &mut program["pipelines"][0]["tables"].as_array_mut().unwrap();
    let table = table.iter_mut().find(|table| table["name"] == "EntitiesIngress.lpm_table").unwrap();
    table["entries"][0]["match_key"][0]["prefix_length"] = serde_json::json!(33);
    let refusal = load(&program).map(drop).unwrap_err().to_string();
    assert!(refusal.contains("entry of table `EntitiesIngress.lpm_table`") && refusal.contains("33"), "{refusal}");
}
