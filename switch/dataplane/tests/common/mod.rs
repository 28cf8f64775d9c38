// SPDX-License-Identifier: Apache-2.0
//! Helpers of tests and benchmarks of the access point's program: its JSON, its entries, and frames.
#![allow(dead_code)]

pub mod bmv2;
pub mod features;
pub mod frames;
pub mod generate;
pub mod guess;
pub mod lab;
pub mod pair;

use apswitch_dataplane::control::*;

pub const CPU_PORT: u16 = 510;
pub const STATION: u16 = 1;
pub const UPLINK: u16 = 2;

pub fn ap_json() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4src/compiled/ap.json");
    std::fs::read(path).expect("the compiled program is part of the repository")
}

pub fn ap_program() -> Program {
    Program::load(&ap_json()).unwrap()
}

/// A program of `testdata/programs`, compiled by p4c.
pub fn program(name: &str) -> Program {
    let path = format!("{}/../testdata/programs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    Program::load(&std::fs::read(path).unwrap()).unwrap()
}

/// An entry without meter, counter and timeout; names without their control.
pub fn entry(
    program: &Program,
    table: &str,
    fields: &[KeyField],
    priority: i32,
    action: &str,
    params: &[u128],
) -> TableEntry {
    let table = find_table(program, table);
    TableEntry {
        table,
        key: EntryKey { fields: fields.to_vec(), priority },
        action: call(program, table, action, params).into(),
        meter: None,
        counter: None,
        idle_timeout_ns: 0,
        cookie: Vec::new(),
    }
}

pub fn find_table(program: &Program, name: &str) -> TableId {
    let ends = |full: &str| full == name || full.ends_with(&format!(".{name}"));
    TableId(program.tables.iter().position(|t| ends(&t.name)).unwrap_or_else(|| panic!("no table {name}")))
}

pub fn call(program: &Program, table: TableId, action: &str, params: &[u128]) -> ActionCall {
    let ends = |full: &str| full == action || full.ends_with(&format!(".{action}"));
    let actions = &program.tables[table.0].actions;
    let action = actions.iter().copied().find(|a| ends(&program.actions[a.0].name)).expect("action of the table");
    ActionCall { action, params: values(params) }
}

pub fn exact(values: &[u128]) -> Vec<KeyField> {
    values.iter().map(|&value| KeyField::Exact(value.into())).collect()
}

pub fn ternary(value: u128, mask: u128) -> KeyField {
    KeyField::Ternary { value: value.into(), mask: mask.into() }
}

pub fn prefix(value: u128, prefix_len: u16) -> KeyField {
    KeyField::Lpm { value: value.into(), prefix_len }
}

pub fn range(low: u128, high: u128) -> KeyField {
    KeyField::Range { low: low.into(), high: high.into() }
}

pub fn values(numbers: &[u128]) -> Vec<Value> {
    numbers.iter().map(|&number| number.into()).collect()
}

pub fn mac(number: u8) -> u128 {
    0x0200_0000_0000 + number as u128
}

/// Roles, addresses and `flows` flows of IPv4 from host 1 (station) to host 2 (uplink), port 10000 + i to 80.
pub fn ap_entries(program: &Program, flows: u32) -> Vec<Update> {
    let mut entries = vec![
        entry(program, "ingress_roles", &exact(&[STATION as u128]), 0, "set_ingress_role", &[1]),
        entry(program, "ingress_roles", &exact(&[UPLINK as u128]), 0, "set_ingress_role", &[2]),
        entry(program, "egress_roles", &exact(&[STATION as u128]), 0, "set_egress_role", &[1]),
        entry(program, "egress_roles", &exact(&[UPLINK as u128]), 0, "set_egress_role", &[2]),
        entry(program, "learn", &exact(&[mac(1), STATION as u128, 0, 0]), 0, "known_source", &[]),
        entry(program, "learn", &exact(&[mac(2), UPLINK as u128, 0, 0]), 0, "known_source", &[]),
        entry(program, "forward", &exact(&[mac(1), 0, 0]), 0, "forward_to", &[STATION as u128]),
        entry(program, "forward", &exact(&[mac(2), 0, 0]), 0, "forward_to", &[UPLINK as u128]),
    ];
    for flow in 0..flows {
        let (src_port, index) = (10_000 + (flow & 0x7fff), flow & 0xffff);
        let src = 0x0a00_0001 + (flow >> 15);
        let place = [STATION as u128, UPLINK as u128, 0, 0];
        let key = exact(&[&[src as u128, 0x0a00_0102, 17, src_port as u128, 80], &place[..]].concat());
        entries.push(entry(program, "flows_ipv4", &key, 0, "set_flow_ipv4", &[index as u128, 0, 2, 0, 0]));
    }
    let group = Update::InsertMulticastGroup {
        group: 1,
        replicas: vec![Replica { port: STATION, rid: 0 }, Replica { port: UPLINK, rid: 0 }],
    };
    entries.into_iter().map(Update::InsertEntry).chain([group]).collect()
}

/// The UDP frame of flow `flow` of [`ap_entries`], `length` bytes.
pub fn udp_frame(flow: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length.max(42)];
    frame[0..6].copy_from_slice(&mac(2).to_be_bytes()[10..]);
    frame[6..12].copy_from_slice(&mac(1).to_be_bytes()[10..]);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip_length = (frame.len() - 14) as u16;
    let src = 0x0a00_0001 + (flow >> 15);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame[16..18].copy_from_slice(&ip_length.to_be_bytes());
    frame[26..30].copy_from_slice(&src.to_be_bytes());
    frame[30..34].copy_from_slice(&0x0a00_0102u32.to_be_bytes());
    let checksum = internet_checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[34..36].copy_from_slice(&((10_000 + (flow & 0x7fff)) as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&80u16.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip_length - 20).to_be_bytes());
    frame
}

/// RFC 1071.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |&b| b as u32)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
