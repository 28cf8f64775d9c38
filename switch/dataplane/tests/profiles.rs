// SPDX-License-Identifier: Apache-2.0
//! Action profiles and selectors with testdata/programs/profiles.p4.

use crate::common;
use crate::common::lab::Lab;
use crate::common::{call, exact, find_table, program};
use apswitch_dataplane::control::*;

const MEMBERS: ProfileId = ProfileId(0);
const SELECTOR: ProfileId = ProfileId(1);

fn lab() -> Lab {
    Lab::new(program("profiles"), &[None, None])
}

/// Value and hit of the answer.
fn ask(lab: &Lab, table: u8, key: u8, flow: u32) -> (u32, u8) {
    let frame = [&[table, key][..], &flow.to_be_bytes(), &[0, 7]].concat();
    lab.send(1, &frame);
    let answer = lab.receive(2);
    assert_eq!(answer[5..], frame);
    (u32::from_be_bytes(answer[..4].try_into().unwrap()), answer[4])
}

/// The place of the flow in a group of so many: CRC-16/ARC over flow and port.
fn place(flow: u32, of: u16) -> u32 {
    let bytes = [&flow.to_be_bytes()[..], &[0, 7]].concat();
    let mut crc = 0u16;
    for byte in bytes {
        crc ^= byte as u16;
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xa001 } else { crc >> 1 };
        }
    }
    (crc % of) as u32
}

fn insert(program: &Program, table: &str, key: u8, action: EntryAction) -> TableEntry {
    let table = find_table(program, table);
    let ternary = common::ternary(key.into(), 0xff);
    let needs_priority = program.tables[table.0].needs_priority();
    let fields = if needs_priority { vec![ternary] } else { exact(&[key.into()]) };
    TableEntry {
        table,
        key: EntryKey { fields, priority: needs_priority as i32 },
        action,
        meter: None,
        counter: None,
        idle_timeout_ns: 0,
        cookie: Vec::new(),
    }
}

fn member(program: &Program, profile: ProfileId, member: u32, action: &str, params: &[u128]) -> Update {
    let table = if profile == MEMBERS { "plain" } else { "chosen" };
    Update::InsertMember { profile, member, action: call(program, find_table(program, table), action, params) }
}

fn group(members: &[(u32, u32)]) -> ProfileGroup {
    let member = |&(member, weight): &(u32, u32)| GroupMember { member, weight, watch: None };
    ProfileGroup { members: members.iter().map(member).collect(), max_size: 0 }
}

#[test]
fn entries_share_the_members_of_a_profile() {
    let lab = lab();
    let program = lab.program();
    assert_eq!(ask(&lab, 1, 5, 0), (0, 0));
    lab.write(vec![
        member(&program, MEMBERS, 7, "answer", &[70]),
        member(&program, MEMBERS, 8, "both", &[80, 0x11]),
        Update::InsertEntry(insert(&program, "plain", 5, EntryAction::Member(7))),
        Update::InsertEntry(insert(&program, "plain", 6, EntryAction::Member(7))),
    ]);
    assert_eq!((ask(&lab, 1, 5, 0), ask(&lab, 1, 6, 0), ask(&lab, 1, 7, 0)), ((70, 0x80), (70, 0x80), (0, 0)));
    lab.write(vec![Update::ModifyEntry(insert(&program, "plain", 6, EntryAction::Member(8)))]);
    assert_eq!((ask(&lab, 1, 5, 0), ask(&lab, 1, 6, 0)), ((70, 0x80), (80, 0x91)));
    let action = call(&program, find_table(&program, "plain"), "answer", &[71]);
    lab.write(vec![Update::ModifyMember { profile: MEMBERS, member: 7, action: action.clone() }]);
    assert_eq!(ask(&lab, 1, 5, 0), (71, 0x80));
    assert_eq!(lab.dataplane.profile_members(MEMBERS).unwrap()[0], (7, action));

    let gone = Update::DeleteMember { profile: MEMBERS, member: 7 };
    assert!(matches!(lab.refused(gone.clone()), UpdateError::FailedPrecondition(_)));
    let key = insert(&program, "plain", 5, EntryAction::Member(7)).key;
    lab.write(vec![Update::DeleteEntry { table: find_table(&program, "plain"), key }, gone.clone()]);
    assert!(matches!(lab.refused(gone), UpdateError::NotFound(_)));

    let wrong = |action| lab.refused(Update::InsertEntry(insert(&program, "plain", 9, action)));
    assert!(matches!(wrong(EntryAction::Member(7)), UpdateError::NotFound(_)));
    assert!(matches!(wrong(EntryAction::Group(7)), UpdateError::NotFound(_)));
    assert!(matches!(wrong(EntryAction::OneShot(Vec::new())), UpdateError::InvalidArgument(_)));
    let direct = call(&program, find_table(&program, "plain"), "answer", &[1]);
    assert!(matches!(wrong(direct.into()), UpdateError::InvalidArgument(_)));
    assert!(matches!(lab.refused(member(&program, MEMBERS, 8, "answer", &[1])), UpdateError::AlreadyExists(_)));
    assert!(matches!(lab.refused(member(&program, MEMBERS, 0, "answer", &[1])), UpdateError::InvalidArgument(_)));
    assert!(matches!(lab.refused(member(&program, MEMBERS, 9, "answer", &[1 << 32])), UpdateError::OutOfRange(_)));
    lab.write((1..4).map(|number| member(&program, MEMBERS, number, "answer", &[1])).collect());
    assert!(matches!(lab.refused(member(&program, MEMBERS, 9, "answer", &[1])), UpdateError::ResourceExhausted(_)));
}

#[test]
fn a_hash_chooses_among_the_members_of_a_group() {
    let lab = lab();
    let program = lab.program();
    let mut updates: Vec<_> = (1..4).map(|n| member(&program, SELECTOR, n, "answer", &[10 * n as u128])).collect();
    updates.extend([
        Update::InsertGroup { profile: SELECTOR, group: 1, value: group(&[(1, 1), (2, 2), (3, 1)]) },
        Update::InsertGroup { profile: SELECTOR, group: 2, value: group(&[]) },
        Update::InsertEntry(insert(&program, "chosen", 1, EntryAction::Group(1))),
        Update::InsertEntry(insert(&program, "chosen", 2, EntryAction::Member(3))),
        Update::InsertEntry(insert(&program, "chosen_too", 1, EntryAction::Group(1))),
        Update::InsertEntry(insert(&program, "chosen_too", 2, EntryAction::Group(2))),
    ]);
    lab.write(updates);
    let values = [10, 20, 20, 30];
    for flow in 0..50u32 {
        let flow = flow * 0x0101_3377;
        let expected = values[place(flow, 4) as usize];
        assert_eq!(ask(&lab, 2, 1, flow), (expected, 0x80));
        assert_eq!(ask(&lab, 3, 1, flow), (expected, 1));
        assert_eq!(ask(&lab, 2, 2, flow), (30, 0x80));
    }
    // Nothing is done for an empty group, nor for a miss; the packet goes on.
    assert_eq!((ask(&lab, 3, 2, 0), ask(&lab, 3, 9, 0)), ((0, 0), (0, 0)));

    let value = group(&[(2, 1)]);
    lab.write(vec![Update::ModifyGroup { profile: SELECTOR, group: 1, value: value.clone() }]);
    assert!((0..9).all(|flow| ask(&lab, 2, 1, flow) == (20, 0x80)));
    assert_eq!(lab.dataplane.profile_groups(SELECTOR).unwrap(), [(1, value), (2, group(&[]))]);
    let entry = insert(&program, "chosen", 1, EntryAction::Group(1));
    let view = lab.dataplane.entry(entry.table, &entry.key).unwrap().entry;
    assert_eq!((view.action, view.counter.unwrap().packets), (EntryAction::Group(1), 59));

    let refused = |update| lab.refused(update);
    let modify = |value| Update::ModifyGroup { profile: SELECTOR, group: 1, value };
    assert!(matches!(refused(modify(group(&[(9, 1)]))), UpdateError::NotFound(_)));
    assert!(matches!(refused(modify(group(&[(1, 0)]))), UpdateError::InvalidArgument(_)));
    assert!(matches!(refused(modify(group(&[(1, 1), (1, 1)]))), UpdateError::InvalidArgument(_)));
    assert!(matches!(refused(modify(group(&[(1, 9)]))), UpdateError::ResourceExhausted(_)));
    assert!(matches!(refused(modify(ProfileGroup { max_size: 3, ..group(&[]) })), UpdateError::InvalidArgument(_)));
    let profile = SELECTOR;
    assert!(matches!(refused(Update::DeleteGroup { profile, group: 1 }), UpdateError::FailedPrecondition(_)));
    assert!(matches!(refused(Update::DeleteMember { profile, member: 2 }), UpdateError::FailedPrecondition(_)));
    let key = insert(&program, "chosen_too", 2, EntryAction::Group(2)).key;
    let delete = Update::DeleteEntry { table: find_table(&program, "chosen_too"), key };
    lab.write(vec![delete, Update::DeleteGroup { profile, group: 2 }, Update::DeleteMember { profile, member: 1 }]);
    assert!((0..9).all(|flow| ask(&lab, 2, 1, flow) == (20, 0x80)));
}

#[test]
fn one_shot_groups_belong_to_their_entry() {
    let lab = lab();
    let program = lab.program();
    let shot = |table: &str, values: &[(u128, u32)]| {
        let call = |value| call(&program, find_table(&program, table), "both", &[value, 0]);
        let weighted = |&(value, weight): &(u128, u32)| WeightedCall { call: call(value), weight, watch: None };
        EntryAction::OneShot(values.iter().map(weighted).collect())
    };
    let action = shot("chosen", &[(1, 1), (2, 3)]);
    lab.write(vec![Update::InsertEntry(insert(&program, "chosen", 1, action.clone()))]);
    let values = [1, 2, 2, 2];
    let flows = (0..20u32).map(|flow| flow.wrapping_mul(0x3301_0107));
    for flow in flows.clone() {
        assert_eq!(ask(&lab, 2, 1, flow), (values[place(flow, 4) as usize], 0x80));
    }
    let entry = insert(&program, "chosen", 1, action.clone());
    assert_eq!(lab.dataplane.entry(entry.table, &entry.key).unwrap().entry.action, action);
    assert_eq!(lab.dataplane.profile_members(SELECTOR).unwrap(), []);

    // The old group makes room for the new one.
    lab.write(vec![Update::ModifyEntry(insert(&program, "chosen", 1, shot("chosen", &[(5, 8)])))]);
    assert!(flows.clone().all(|flow| ask(&lab, 2, 1, flow) == (5, 0x80)));
    let other = insert(&program, "chosen_too", 1, shot("chosen_too", &[(6, 1)]));
    assert!(matches!(lab.refused(Update::InsertEntry(other.clone())), UpdateError::ResourceExhausted(_)));
    lab.write(vec![Update::ModifyEntry(insert(&program, "chosen", 1, shot("chosen", &[(5, 7)])))]);
    lab.write(vec![Update::InsertEntry(other)]);
    assert_eq!(ask(&lab, 3, 1, 0), (6, 2));

    let mixed = lab.refused(Update::InsertEntry(insert(&program, "chosen", 3, EntryAction::Member(1))));
    assert!(matches!(mixed, UpdateError::InvalidArgument(_)));
    let beside = lab.refused(member(&program, SELECTOR, 1, "both", &[1, 0]));
    assert!(matches!(beside, UpdateError::InvalidArgument(_)));
    let wrong = |values: &[(u128, u32)]| {
        lab.refused(Update::ModifyEntry(insert(&program, "chosen", 1, shot("chosen", values))))
    };
    assert!(matches!(wrong(&[(1, 0)]), UpdateError::InvalidArgument(_)));
    assert!(matches!(wrong(&[(1 << 32, 1)]), UpdateError::OutOfRange(_)));
    let delete = Update::DeleteEntry { table: entry.table, key: entry.key };
    lab.write(vec![delete, Update::InsertEntry(insert(&program, "chosen", 2, shot("chosen", &[(8, 7)])))]);
    assert_eq!((ask(&lab, 2, 1, 0), ask(&lab, 2, 2, 0)), ((0, 0), (8, 0x80)));

    // An empty one is one, too; without any the profile can be used the other way.
    lab.write(vec![Update::ModifyEntry(insert(&program, "chosen", 2, shot("chosen", &[])))]);
    let delete = |table| Update::DeleteEntry {
        table: find_table(&program, table),
        key: insert(&program, table, 1, shot(table, &[])).key,
    };
    lab.write(vec![delete("chosen_too")]);
    let own = member(&program, SELECTOR, 1, "both", &[1, 0]);
    assert!(matches!(lab.refused(own.clone()), UpdateError::InvalidArgument(_)));
    let key = insert(&program, "chosen", 2, shot("chosen", &[])).key;
    lab.write(vec![Update::DeleteEntry { table: find_table(&program, "chosen"), key }, own]);
}

#[test]
fn entries_that_are_not_constant_can_be_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/profiles.json");
    let json = std::fs::read(path).unwrap();
    let ask_all = |lab: &Lab| [1, 2, 3].map(|key| ask(lab, 4, key, 0).0);
    let lab = lab();
    let program = lab.program();
    assert_eq!(ask_all(&lab), [11, 22, 0]);
    let change = |program: &Program, key| {
        let action = call(program, find_table(program, "started"), "answer", &[77]);
        insert(program, "started", key, action.into())
    };
    let denied = lab.refused(Update::InsertEntry(change(&program, 3)));
    assert!(matches!(denied, UpdateError::PermissionDenied(_)));

    // As the P4Info tells.
    let sizes = [("TheIngress.started".to_string(), 4)].into();
    let lab = Lab::new(Program::load_with(&json, &sizes).unwrap(), &[None, None]);
    let program = lab.program();
    assert_eq!(ask_all(&lab), [11, 22, 0]);
    let entry = change(&program, 1);
    assert!(!lab.dataplane.entry(entry.table, &entry.key).unwrap().is_const);
    lab.write(vec![Update::ModifyEntry(entry.clone()), Update::InsertEntry(change(&program, 3))]);
    assert_eq!(ask_all(&lab), [77, 22, 77]);
    lab.write(vec![Update::DeleteEntry { table: entry.table, key: entry.key }]);
    assert_eq!(ask_all(&lab), [0, 22, 77]);
    lab.write(vec![Update::InsertEntry(change(&program, 5)), Update::InsertEntry(change(&program, 6))]);
    let full = lab.refused(Update::InsertEntry(change(&program, 7)));
    assert!(matches!(full, UpdateError::ResourceExhausted(_)));
}

#[test]
fn custom_and_random_hashes() {
    let lab = lab();
    let random: std::collections::HashSet<u32> = (0..5).map(|_| ask(&lab, 5, 0, 7).0).collect();
    assert!(random.len() > 1);
    // The check values of CRC-32/ISO-HDLC and CRC-16/ARC over four bytes of 0.
    assert_eq!((ask(&lab, 6, 0, 0).0, ask(&lab, 7, 0, 0).0), (0x2144_df1c, 0));
    assert_eq!(ask(&lab, 7, 0, 0x3132_3334).0, 0x14ba);
}
