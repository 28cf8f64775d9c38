// SPDX-License-Identifier: Apache-2.0
//! Features of v1model's tables, one a test, with testdata/programs/features.p4.

use crate::common;
use crate::common::features::{address_request, ask, lab, request, value};
use crate::common::{call, entry, exact, find_table};
use apswitch_dataplane::control::*;

#[test]
fn the_longest_prefix_wins() {
    let lab = lab();
    let program = lab.program();
    let route = |value, prefix_len, answer| {
        let field = common::prefix(value, prefix_len);
        Update::InsertEntry(entry(&program, "routes", &[field], 0, "answer", &[answer]))
    };
    lab.write(vec![
        route(0, 0, 1),
        route(0x0a00_0000, 8, 2),
        route(0x0a01_0000, 16, 3),
        route(0x0a01_0203, 32, 4),
        route(0x0a01_0000, 24, 5),
    ]);
    let ask = |address| value(&lab, &[request(1, 0, address), vec![0; 2]].concat());
    assert_eq!(ask(0x0a01_0203), 4);
    assert_eq!(ask(0x0a01_0099), 5);
    assert_eq!(ask(0x0a01_0204), 3);
    assert_eq!(ask(0x0a02_0000), 2);
    assert_eq!(ask(0x0b00_0000), 1);
    let key = EntryKey { fields: vec![common::prefix(0, 0)], priority: 0 };
    lab.write(vec![Update::DeleteEntry { table: find_table(&program, "routes"), key }]);
    assert_eq!(ask(0x0b00_0000), 0);

    let prefix = |value: u128, prefix_len, answer| {
        let field = common::prefix(value, prefix_len);
        Update::InsertEntry(entry(&program, "prefixes", &[field], 0, "set_answer", &[answer]))
    };
    let network = 0x2001_0db8_u128 << 96;
    lab.write(vec![prefix(network, 32, 1), prefix(network | 1 << 60, 68, 2), prefix(network | 7, 128, 3)]);
    let ask = |address| value(&lab, &address_request(0x32, address));
    assert_eq!(ask(network | 7), 3);
    assert_eq!(ask(network | 8), 1);
    assert_eq!(ask(network | 1 << 60 | 5), 2);
    assert_eq!(ask(1), 0);
}

#[test]
fn ranges_optionals_and_masks_follow_their_priority() {
    let lab = lab();
    let program = lab.program();
    let range = |low, high, optional: Option<u128>, mask, priority, answer| {
        let fields = [common::range(low, high), KeyField::Optional(optional.map(u128::into)), common::ternary(0, mask)];
        Update::InsertEntry(entry(&program, "ranges", &fields, priority, "set_answer", &[answer]))
    };
    lab.write(vec![
        range(0, 255, None, 0, 1, 10),
        range(5, 9, None, 0, 3, 11),
        range(9, 9, Some(1234), 0, 4, 12),
        // Never: no request has this checksum.
        range(0, 255, None, 0xffff, 9, 13),
    ]);
    let ask = |index, optional| {
        let answer = ask(&lab, &[request(2, index, optional), vec![0; 2]].concat()).0;
        (answer.value, answer.error_code)
    };
    assert_eq!(ask(4, 0), (10, 1));
    assert_eq!(ask(5, 0), (11, 1));
    assert_eq!(ask(9, 0), (11, 1));
    assert_eq!(ask(9, 1234), (12, 1));
    assert_eq!(ask(10, 1234), (10, 1));

    let mask = |value, mask, index: u128, priority, answer| {
        let fields = [common::ternary(value, mask), KeyField::Exact(index.into())];
        Update::InsertEntry(entry(&program, "masks", &fields, priority, "set_answer", &[answer]))
    };
    let entries =
        vec![mask(0, 0, 1, 5, 1), mask(0x10, 0xf0, 1, 7, 2), mask(0x12, 0xff, 1, 6, 3), mask(0x12, 0xff, 2, 1, 4)];
    lab.write(entries);
    let ask = |index, number| value(&lab, &[request(3, index, number), vec![0; 2]].concat());
    assert_eq!((ask(1, 0x12), ask(1, 0x22), ask(2, 0x12), ask(2, 0x13)), (2, 1, 4, 0));
    // The same key with another priority is another entry.
    lab.write(vec![mask(0x12, 0xff, 1, 8, 9)]);
    assert_eq!(ask(1, 0x12), 9);
    assert!(matches!(lab.refused(mask(0x12, 0xff, 1, 8, 9)), UpdateError::AlreadyExists(_)));
}

#[test]
fn const_entries_are_there_in_the_program_s_order_and_cannot_be_written() {
    let lab = lab();
    let program = lab.program();
    let ask = |index| value(&lab, &[request(4, index, 0), vec![0; 2]].concat());
    assert_eq!((ask(0x11), ask(0x20)), (100, 300));
    let entries = lab.dataplane.entries(find_table(&program, "fixed")).unwrap();
    assert_eq!(entries.iter().filter(|e| e.is_const).count(), 3);
    let hundred = call(&program, find_table(&program, "fixed"), "set_answer", &[100]);
    let first = entries.iter().find(|e| e.entry.action == hundred.clone().into()).unwrap().entry.clone();
    for update in [Update::InsertEntry(first.clone()), Update::ModifyEntry(first.clone())] {
        assert!(matches!(lab.refused(update), UpdateError::PermissionDenied(_)));
    }
    let default = Update::SetDefault { table: first.table, action: Some(hundred) };
    assert!(matches!(lab.refused(default), UpdateError::PermissionDenied(_)));
}

#[test]
fn defaults_can_be_set_and_reset() {
    let lab = lab();
    let program = lab.program();
    let table = find_table(&program, "ranges");
    let ask = || {
        let answer = ask(&lab, &[request(2, 0, 0), vec![0; 2]].concat()).0;
        (answer.value, answer.error_code)
    };
    assert_eq!(ask(), (7, 1));
    lab.write(vec![Update::SetDefault { table, action: Some(call(&program, table, "NoAction", &[])) }]);
    assert_eq!(ask(), (0, 2));
    lab.write(vec![Update::SetDefault { table, action: None }]);
    assert_eq!(ask(), (7, 1));
}

#[test]
fn wide_keys_and_parameters_and_writes_to_a_part_of_a_field() {
    let lab = lab();
    let program = lab.program();
    let address = 0x2001_0db8_0000_0001_0000_0000_0000_0099_u128;
    let other = u128::MAX - 5;
    let found = entry(&program, "addresses", &exact(&[address]), 0, "set_address", &[other]);
    lab.write(vec![Update::InsertEntry(found)]);
    let (answer, rest) = ask(&lab, &address_request(0x31, address));
    assert_eq!((answer.value, &rest[8..]), (1, &other.to_be_bytes()[..]));
    assert_eq!(value(&lab, &address_request(0x31, address + 1)), 0);
    let (answer, rest) = ask(&lab, &address_request(0x33, address));
    assert_eq!((answer.value, &rest[8..]), (0x2001_0db8, &(address >> 16 << 16 | 0xbeef).to_be_bytes()[..]));
}

#[test]
fn direct_counters_and_meters_belong_to_their_entry() {
    let lab = lab();
    let program = lab.program();
    let mut route = entry(&program, "routes", &[common::prefix(8, 29)], 0, "answer", &[5]);
    // Green, yellow, yellow, then red: no token comes back within the test.
    route.meter = Some(MeterConfig { cir: 0, cburst: 1, pir: 0, pburst: 3 });
    lab.write(vec![Update::InsertEntry(route.clone())]);
    let frame = [request(1, 0, 9), vec![0; 2]].concat();
    let colours: Vec<u8> = (0..4).map(|_| ask(&lab, &frame).0.error_code - 1).collect();
    assert_eq!(colours, [0, 1, 1, 2]);
    let view = lab.dataplane.entry(route.table, &route.key).unwrap();
    assert_eq!(view.entry.counter, Some(CounterValue { packets: 4, bytes: 40 }));
    assert_eq!(view.entry.meter, route.meter);

    // A change of the action alone leaves counter and buckets as they are.
    route.action = call(&program, route.table, "answer", &[6]).into();
    lab.write(vec![Update::ModifyEntry(route.clone())]);
    assert_eq!((ask(&lab, &frame).0.error_code, value(&lab, &frame)), (3, 6));
    route.meter = None;
    route.counter = Some(CounterValue { packets: 100, bytes: 1000 });
    lab.write(vec![Update::ModifyEntry(route.clone())]);
    assert_eq!(ask(&lab, &frame).0.error_code, 1);
    let view = lab.dataplane.entry(route.table, &route.key).unwrap();
    assert_eq!(view.entry.counter, Some(CounterValue { packets: 101, bytes: 1010 }));

    // A new entry in the place of an old one starts at 0.
    lab.write(vec![Update::DeleteEntry { table: route.table, key: route.key.clone() }]);
    route.counter = None;
    lab.write(vec![Update::InsertEntry(route.clone())]);
    let view = lab.dataplane.entry(route.table, &route.key).unwrap();
    assert_eq!(view.entry.counter, Some(CounterValue::default()));
}

#[test]
fn a_miss_belongs_to_the_default_entry() {
    let lab = lab();
    let program = lab.program();
    let route = entry(&program, "routes", &[common::prefix(8, 29)], 0, "answer", &[5]);
    let table = route.table;
    lab.write(vec![Update::InsertEntry(route)]);
    let counter = || lab.dataplane.direct_counter(table, None).unwrap();
    let frame = [request(1, 0, 1), vec![0; 2]].concat();
    let uncoloured = ask(&lab, &frame).0.error_code;
    let missed = counter();
    assert_eq!(missed.packets, 1);
    assert_eq!(lab.dataplane.direct_colours(table, None).unwrap(), [CounterValue::default(); 3], "no meter yet");

    let config = Some(MeterConfig { cir: 0, cburst: 1, pir: 0, pburst: 3 });
    lab.write(vec![Update::SetDirectMeter { table, key: None, config }]);
    assert_eq!(lab.dataplane.default_meter(table).unwrap(), config);
    (0..4).for_each(|_| drop(ask(&lab, &frame)));
    let colours = lab.dataplane.direct_colours(table, None).unwrap().map(|count| count.packets);
    assert_eq!(colours, [1, 2, 1]);
    assert_eq!(counter(), CounterValue { packets: 5, bytes: 5 * missed.bytes });
    lab.write(vec![
        Update::SetDirectColours { table, key: None, value: Default::default() },
        Update::SetDirectCounter { table, key: None, value: CounterValue { packets: 100, bytes: 0 } },
        Update::SetDirectMeter { table, key: None, config: None },
    ]);
    assert_eq!(ask(&lab, &frame).0.error_code, uncoloured);
    assert_eq!(counter().packets, 101);
    assert_eq!(lab.dataplane.direct_colours(table, None).unwrap(), [CounterValue::default(); 3]);
}
