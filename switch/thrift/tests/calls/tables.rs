// SPDX-License-Identifier: Apache-2.0
//! Tables and what belongs to them: profiles, counters, meters, registers and value sets.

use apswitch_dataplane::control::*;
use apswitch_thrift::message::{Answer, Value as Wire};
use thrift::protocol::TType;

use crate::client::*;

const DUPLICATE_ENTRY: i32 = 17;
const INVALID_HANDLE: i32 = 2;

#[test]
fn entries_are_added_found_changed_and_deleted() {
    let switch = Switch::start("features");
    let routes = switch.table(ROUTES);
    let (a, b) = (&[0, 0, 0, 5][..], &[0, 0, 0, 6][..]);
    let params =
        switch.program().actions[switch.program().table_action(routes, "TheIngress.answer").unwrap().0].params.len();
    let params: Vec<&[u8]> = vec![a; params];
    assert_eq!(switch.value("bm_mt_add_entry", route(&[10, 1, 2, 3], 16, &params)), number(0));
    assert_eq!(switch.value("bm_mt_add_entry", route(&[10, 2, 0, 0], 16, &params)), number(1));
    assert_eq!(switch.refused("bm_mt_add_entry", route(&[10, 1, 0, 0], 16, &params)), DUPLICATE_ENTRY);
    assert_eq!(switch.value("bm_mt_get_num_entries", vec![text(ROUTES)]), Wire::I64(2));

    // The bits behind the prefix are gone, as in BMv2.
    let entry = switch.value("bm_mt_get_entry", vec![text(ROUTES), number(0)]);
    assert_eq!(*field(&entry, 1), Wire::structs([lpm(&[10, 1, 0, 0], 16)]));
    assert_eq!((field(&entry, 2), field(&entry, 3)), (&priority(-1), &number(0)));
    assert_eq!(*field(field(&entry, 4), 2), text("TheIngress.answer"));
    assert_eq!(*field(field(&entry, 4), 3), data(&vec![&[5][..]; params.len()]));
    let by_key = vec![text(ROUTES), Wire::structs([lpm(&[10, 2, 0, 0], 16)]), none()];
    assert_eq!(*field(&switch.value("bm_mt_get_entry_from_key", by_key), 3), number(1));
    let Wire::List(_, all) = switch.value("bm_mt_get_entries", vec![text(ROUTES)]) else { panic!() };
    assert_eq!(all.len(), 2);

    let modified = vec![b; params.len()];
    switch.done("bm_mt_modify_entry", vec![text(ROUTES), number(1), text("TheIngress.answer"), data(&modified)]);
    let view = switch.dataplane.entries(routes).unwrap();
    assert!(view.iter().any(|view| view.entry.action
        == EntryAction::Call(ActionCall {
            action: switch.program().table_action(routes, "TheIngress.answer").unwrap(),
            params: vec![6u8.into(); params.len()],
        })));

    switch.done("bm_mt_delete_entry", vec![text(ROUTES), number(0)]);
    assert_eq!(switch.refused("bm_mt_delete_entry", vec![text(ROUTES), number(0)]), INVALID_HANDLE);
    // A handle is given out once.
    assert_eq!(switch.value("bm_mt_add_entry", route(&[10, 1, 0, 0], 16, &params)), number(2));
    switch.done("bm_mt_clear_entries", vec![text(ROUTES), Wire::Bool(true)]);
    assert_eq!(switch.value("bm_mt_get_num_entries", vec![text(ROUTES)]), Wire::I64(0));
}

#[test]
fn bad_calls_are_refused_by_code() {
    let switch = Switch::start("features");
    let add = |table: &str, key: Wire, action: &str, params: &[&[u8]]| {
        vec![text(table), key, text(action), data(params), none()]
    };
    let key = || Wire::structs([lpm(&[1, 2, 3, 4], 8)]);
    let refused = |arguments| switch.refused("bm_mt_add_entry", arguments);
    assert_eq!(refused(add("nothing", key(), "NoAction", &[])), 7);
    assert_eq!(refused(add(ROUTES, key(), "nothing", &[])), 8);
    assert_eq!(refused(add(ROUTES, key(), "NoAction", &[&[1]])), 26);
    assert_eq!(refused(add(ROUTES, Wire::structs([]), "NoAction", &[])), 18);
    assert_eq!(refused(add(ROUTES, Wire::structs([lpm(&[1, 2, 3, 4], 33)]), "NoAction", &[])), 18);
    assert_eq!(refused(add(ROUTES, Wire::structs([lpm(&[1, 2, 3, 4], -1)]), "NoAction", &[])), 18);
    assert_eq!(refused(add(ROUTES, Wire::structs([exact(&[1])]), "NoAction", &[])), 18);
    assert_eq!(refused(add(ROUTES, Wire::structs([lpm(&[1, 2, 3, 4, 5], 8)]), "NoAction", &[])), 18);
    // Fixed entries cannot be written.
    let fixed = vec![
        text("TheIngress.fixed"),
        Wire::structs([ternary(&[9], &[255])]),
        text("NoAction"),
        data(&[]),
        priority(1),
    ];
    assert_eq!(refused(fixed), 25);
    assert_eq!(switch.refused("bm_counter_read", vec![text("TheIngress.hits"), number(16)]), 2);
    assert_eq!(switch.refused("bm_counter_read", vec![text("TheIngress.hits"), number(-1)]), 2);
    assert_eq!(switch.refused("bm_register_read", vec![text("none"), number(0)]), 1);
    assert_eq!(switch.refused("bm_swap_configs", vec![]), 1);
    assert_eq!(switch.refused("bm_mt_add_entry", add("tbl_features128", Wire::structs([]), "features128", &[])), 27);
    let unknown = vec![text(ROUTES), Wire::structs([lpm(&[1, 2, 3, 4], 8)]), none()];
    assert_eq!(switch.refused("bm_mt_get_entry_from_key", unknown), 18);
    assert_eq!(switch.refused("bm_mt_indirect_set_default_member", vec![]), 100);
    assert_eq!(switch.refused("bm_set_crc16_custom_parameters", vec![]), 3);
    assert_eq!(switch.refused("bm_mc_set_lag_membership", vec![]), 5);
    let unknown = switch.ask("bm_serialize_state", vec![]);
    assert_eq!(unknown, Answer::Unknown("there is no method \"standard:bm_serialize_state\" here".into()));
    // A refusal without a code has a text, and the connection stays.
    for (method, arguments, said) in [
        ("bm_mt_add_entry", vec![text(ROUTES)], "argument 3 is missing"),
        ("bm_mt_get_num_entries", vec![number(3)], "argument 2 is not a string"),
        ("bm_mt_get_num_entries", vec![binary(&[0xff])], "not UTF-8"),
        ("set_all_egress_queue_rates", vec![], "bit/s"),
        ("set_all_egress_queue_depths", vec![], "has no queue"),
    ] {
        match switch.about(method, arguments) {
            Answer::Refused(text) | Answer::Unknown(text) => assert!(text.contains(said), "{method}: {text}"),
            other => panic!("{method}: {other:?}"),
        }
    }
}

#[test]
fn priorities_are_those_of_bmv2() {
    let switch = Switch::start("features");
    let key =
        |value: u8| Wire::structs([range(&[value], &[value]), ternary(&[0; 4], &[0; 4]), ternary(&[0; 2], &[0; 2])]);
    let add = |value: u8, options| vec![text("TheIngress.ranges"), key(value), text("NoAction"), data(&[]), options];
    assert_eq!(switch.value("bm_mt_add_entry", add(1, priority(10))), number(0));
    assert_eq!(switch.value("bm_mt_add_entry", add(2, priority(0))), number(1));
    assert_eq!(switch.refused("bm_mt_add_entry", add(3, none())), 100);
    assert_eq!(switch.refused("bm_mt_add_entry", add(3, priority(-1))), 100);
    // The smaller one wins there, the larger here.
    let entries = switch.dataplane.entries(switch.table("TheIngress.ranges")).unwrap();
    let mut priorities: Vec<i32> = entries.iter().map(|view| view.entry.key.priority).collect();
    priorities.sort();
    assert_eq!(priorities, [i32::MAX - 10, i32::MAX]);
    let entry = switch.value("bm_mt_get_entry", vec![text("TheIngress.ranges"), number(0)]);
    assert_eq!(*field(field(&entry, 2), 1), number(10));
    assert_eq!(*field(&entry, 1), key(1));
}

#[test]
fn default_entries_are_set_and_reset() {
    let switch = Switch::start("features");
    let before = switch.value("bm_mt_get_default_entry", vec![text(ROUTES)]);
    switch.done("bm_mt_set_default_action", vec![text(ROUTES), text("NoAction"), data(&[])]);
    let now = switch.value("bm_mt_get_default_entry", vec![text(ROUTES)]);
    assert_eq!((field(&now, 1), field(&now, 2)), (&number(1), &text("NoAction")));
    let by_key = switch.value("bm_mt_get_entry_from_key", vec![text(ROUTES), Wire::structs([]), none()]);
    assert_eq!(*field(&by_key, 4), now);
    switch.done("bm_mt_reset_default_entry", vec![text(ROUTES)]);
    assert_eq!(switch.value("bm_mt_get_default_entry", vec![text(ROUTES)]), before);
}

#[test]
fn counts_rates_and_registers_are_written_and_read() {
    let switch = Switch::start("features");
    let counter = |bytes: i64, packets: i64| Wire::Struct(vec![(1, Wire::I64(bytes)), (2, Wire::I64(packets))]);
    let hits = || text("TheIngress.hits");
    switch.done("bm_counter_write", vec![hits(), number(3), counter(640, 10)]);
    assert_eq!(switch.value("bm_counter_read", vec![hits(), number(3)]), counter(640, 10));
    switch.done("bm_counter_reset_all", vec![hits()]);
    assert_eq!(switch.value("bm_counter_read", vec![hits(), number(3)]), counter(0, 0));

    let rates = |burst| {
        let rate = |rate| vec![(1, Wire::Double(rate)), (2, number(burst))];
        Wire::structs([rate(0.5), rate(1.0)])
    };
    let limits = || text("TheIngress.limits");
    switch.done("bm_meter_set_rates", vec![limits(), number(2), rates(1500)]);
    assert_eq!(switch.value("bm_meter_get_rates", vec![limits(), number(2)]), rates(1500));
    switch.done("bm_meter_array_set_rates", vec![limits(), rates(9)]);
    assert_eq!(switch.value("bm_meter_get_rates", vec![limits(), number(15)]), rates(9));

    let cells = || text("TheIngress.cells");
    switch.done("bm_register_write", vec![cells(), number(1), Wire::I64(-1)]);
    assert_eq!(switch.value("bm_register_read", vec![cells(), number(1)]), Wire::I64(0xffff_ffff));
    switch.done("bm_register_write_range", vec![cells(), number(2), number(4), Wire::I64(8)]);
    let Wire::List(_, all) = switch.value("bm_register_read_all", vec![cells()]) else { panic!() };
    assert_eq!(all[..5], [0, 0xffff_ffff, 8, 8, 0].map(Wire::I64));
    assert_eq!(switch.refused("bm_register_write_range", vec![cells(), number(4), number(17), Wire::I64(0)]), 2);
    switch.done("bm_register_reset", vec![cells()]);
    assert_eq!(switch.value("bm_register_read", vec![cells(), number(1)]), Wire::I64(0));

    // Direct ones, by the entry's handle.
    let routes = switch.table(ROUTES);
    let params =
        switch.program().actions[switch.program().table_action(routes, "TheIngress.answer").unwrap().0].params.len();
    switch.value("bm_mt_add_entry", route(&[1, 0, 0, 0], 8, &vec![&[1][..]; params]));
    switch.done("bm_mt_write_counter", vec![text(ROUTES), number(0), counter(64, 1)]);
    assert_eq!(switch.value("bm_mt_read_counter", vec![text(ROUTES), number(0)]), counter(64, 1));
    switch.done("bm_mt_reset_counters", vec![text(ROUTES)]);
    assert_eq!(switch.value("bm_mt_read_counter", vec![text(ROUTES), number(0)]), counter(0, 0));
    switch.done("bm_mt_set_meter_rates", vec![text(ROUTES), number(0), rates(100)]);
    assert_eq!(switch.value("bm_mt_get_meter_rates", vec![text(ROUTES), number(0)]), rates(100));
    assert_eq!(switch.refused("bm_mt_set_entry_ttl", vec![text(ROUTES), number(0), number(1000)]), 6);
    assert_eq!(switch.refused("bm_mt_reset_counters", vec![text("TheIngress.masks")]), 4);
}

#[test]
fn entries_have_their_timeout() {
    let switch = Switch::start("features");
    let table = || text("TheIngress.addresses");
    let key = Wire::structs([exact(&[0; 16])]);
    switch.value("bm_mt_add_entry", vec![table(), key, text("NoAction"), data(&[]), none()]);
    switch.done("bm_mt_set_entry_ttl", vec![table(), number(0), number(60_000)]);
    let entry = switch.value("bm_mt_get_entry", vec![table(), number(0)]);
    assert_eq!(*field(field(&entry, 5), 1), number(60_000));
}

#[test]
fn members_and_groups_have_handles_from_zero() {
    let switch = Switch::start("profiles");
    let names: Vec<String> = switch.program().profiles.iter().map(|profile| profile.name.clone()).collect();
    let (plain, selector) = (names[0].as_str(), names[1].as_str());
    let profile = &switch.program().profiles[1];
    let action =
        profile.actions.iter().find(|action| switch.program().actions[action.0].name == "TheIngress.answer").unwrap().0;
    let params = vec![&[1][..]; switch.program().actions[action].params.len()];
    let member = |name: &str| {
        switch.value("bm_mt_act_prof_add_member", vec![text(name), text("TheIngress.answer"), data(&params)])
    };
    assert_eq!([member(plain), member(selector), member(selector)], [0, 0, 1].map(number));
    let on =
        |handles: &[i32]| [text(selector)].into_iter().chain(handles.iter().map(|&handle| number(handle))).collect();
    assert_eq!(switch.value("bm_mt_act_prof_create_group", on(&[])), number(0));
    assert_eq!(switch.refused("bm_mt_act_prof_create_group", vec![text(plain)]), 24);
    switch.done("bm_mt_act_prof_add_member_to_group", on(&[1, 0]));
    assert_eq!(switch.refused("bm_mt_act_prof_add_member_to_group", on(&[1, 0])), 12);
    assert_eq!(switch.refused("bm_mt_act_prof_add_member_to_group", on(&[9, 0])), 10);
    assert_eq!(switch.refused("bm_mt_act_prof_add_member_to_group", on(&[0, 9])), 14);
    let group = switch.value("bm_mt_act_prof_get_group", on(&[0]));
    assert_eq!(*field(&group, 2), Wire::List(TType::I32, vec![number(1)]));

    let entry = |table: &str, handle| vec![text(table), Wire::structs([exact(&[1])]), number(handle), none()];
    assert_eq!(switch.value("bm_mt_indirect_add_entry", entry("TheIngress.plain", 0)), number(0));
    assert_eq!(switch.value("bm_mt_indirect_ws_add_entry", entry("TheIngress.chosen", 0)), number(0));
    assert_eq!(switch.refused("bm_mt_indirect_add_entry", entry("TheIngress.started", 0)), 9);
    let read = switch.value("bm_mt_get_entry", vec![text("TheIngress.chosen"), number(0)]);
    assert_eq!(*field(field(&read, 4), 5), number(0));

    switch.done("bm_mt_act_prof_remove_member_from_group", on(&[1, 0]));
    assert_eq!(switch.refused("bm_mt_act_prof_remove_member_from_group", on(&[1, 0])), 13);
    assert_eq!(switch.refused("bm_mt_act_prof_delete_group", on(&[0])), 15);
    assert_eq!(switch.refused("bm_mt_act_prof_delete_member", vec![text(plain), number(0)]), 11);
    switch.done("bm_mt_indirect_reset_default_entry", vec![text("TheIngress.chosen")]);
    let default = switch.value("bm_mt_get_default_entry", vec![text("TheIngress.chosen")]);
    assert_eq!(default, Wire::Struct(vec![(1, number(0))]));
    let answer = text("TheIngress.answer");
    switch.done("bm_mt_act_prof_modify_member", vec![text(selector), number(1), answer, data(&params)]);
    switch.done("bm_mt_act_prof_delete_member", on(&[1]));
    let Wire::List(_, members) = switch.value("bm_mt_act_prof_get_members", on(&[])) else { panic!() };
    assert_eq!(members.len(), 1);
    // A gap is filled, as BMv2 does.
    assert_eq!(member(selector), number(1));
}

#[test]
fn value_sets_take_and_lose_members() {
    let switch = Switch::start("wide");
    let known = || text("TheParser.known");
    let bytes = usize::from(switch.program().value_sets[0].widths[0]).div_ceil(8);
    let value = |last: u8| binary(&[vec![0; bytes - 1], vec![last]].concat());
    switch.done("bm_parse_vset_add", vec![known(), value(1)]);
    switch.done("bm_parse_vset_add", vec![known(), value(1)]);
    switch.done("bm_parse_vset_add", vec![known(), value(0)]);
    let members = || switch.value("bm_parse_vset_get", vec![known()]);
    assert_eq!(members(), Wire::List(TType::String, vec![value(1), value(0)]));
    switch.done("bm_parse_vset_remove", vec![known(), value(1)]);
    assert_eq!(members(), Wire::List(TType::String, vec![value(0)]));
    switch.done("bm_parse_vset_clear", vec![known()]);
    assert_eq!(members(), Wire::List(TType::String, vec![]));
}

#[test]
fn handles_of_another_program_are_gone() {
    let switch = Switch::start("features");
    switch.value(
        "bm_mt_add_entry",
        vec![text(ROUTES), Wire::structs([lpm(&[1, 0, 0, 0], 8)]), text("NoAction"), data(&[]), none()],
    );
    let (bound, _) = switch.dataplane.bound().unwrap();
    switch.dataplane.commit_blocking((*switch.program()).clone()).unwrap();
    assert_eq!(switch.refused("bm_mt_delete_entry", vec![text(ROUTES), number(0)]), INVALID_HANDLE);
    // A call that started before changes nothing.
    let table = switch.table(ROUTES);
    assert!(bound.write_blocking(vec![Update::SetDefault { table, action: None }]).remove(0).is_err());
    assert!(bound.entries(table).is_err() && bound.commit_blocking((*switch.program()).clone()).is_err());

    // Neither does a program of P4Runtime that shares its counters with the one before a reset.
    let prepared = switch.dataplane.prepare_to_reconcile((*switch.program()).clone()).unwrap();
    assert_eq!(switch.ask("bm_reset_state", vec![]), Answer::Value(None));
    assert!(apswitch_dataplane::block_on(switch.dataplane.reconcile_prepared(prepared)).is_err());
    let prepared = switch.dataplane.prepare_to_reconcile((*switch.program()).clone()).unwrap();
    assert!(apswitch_dataplane::block_on(switch.dataplane.reconcile_prepared(prepared)).is_ok());
}

#[test]
fn deleted_entries_keep_no_handles() {
    let switch = Switch::start("features");
    let add =
        |last: u8| vec![text(ROUTES), Wire::structs([lpm(&[1, 0, 0, last], 32)]), text("NoAction"), data(&[]), none()];
    switch.value("bm_mt_add_entry", add(1));
    let table = switch.table(ROUTES);
    let key = switch.dataplane.entries(table).unwrap().remove(0).entry.key;
    switch.dataplane.write_blocking(vec![Update::DeleteEntry { table, key }]).remove(0).unwrap();
    switch.value("bm_mt_add_entry", add(2));
    let Wire::List(_, entries) = switch.value("bm_mt_get_entries", vec![text(ROUTES)]) else { panic!() };
    assert_eq!(*field(&entries[0], 3), number(1));
    assert_eq!(switch.refused("bm_mt_get_entry", vec![text(ROUTES), number(0)]), INVALID_HANDLE);
}
