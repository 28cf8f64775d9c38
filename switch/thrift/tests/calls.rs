// SPDX-License-Identifier: Apache-2.0
//! The methods of BMv2's runtime interface, asked over a connection as a client asks them.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

use apswitch_dataplane::control::*;
use apswitch_thrift::message::{Answer, Calls, Fields, Value as Wire, call};
use apswitch_thrift::notifications::{Socket, publish};
use apswitch_thrift::{Device, Server};
use tempfile::TempDir;
use thrift::protocol::TType;

/// Time within which everything arrives that arrives at all, and in which what was sent is likely to.
const SOON: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);
/// Kind of a `TApplicationException`.
const UNKNOWN_METHOD: i32 = 1;
const DUPLICATE_ENTRY: i32 = 17;
const INVALID_HANDLE: i32 = 2;

/// A switch with a program of testdata and a client.
struct Switch {
    dataplane: Dataplane,
    client: TcpStream,
    answers: std::cell::RefCell<Calls<BufReader<TcpStream>>>,
    sequence: AtomicI32,
    ends: Vec<MemoryEnd>,
    /// Path of the notifications, whose socket is there as long as this.
    notifications: PathBuf,
    _socket: Socket,
    _events: Events,
    _directory: TempDir,
}

impl Switch {
    fn start(program: &str) -> Switch {
        let port = |number| PortConfig { number, interface: format!("port{number}"), link: None };
        let config = DataplaneConfig {
            ports: vec![port(1), port(2)],
            cpu_port: None,
            priority_queues: 1,
            seed: 1,
            capture: None,
            aside: at_once,
        };
        let (dataplane, mut events, ends) = Dataplane::start_in_memory(config).unwrap();
        let path = format!("{}/../testdata/programs/{program}.json", env!("CARGO_MANIFEST_DIR"));
        let json = std::fs::read(path).unwrap();
        let mut loaded = Program::load(&json).unwrap();
        loaded.source = json.into();
        dataplane.commit_blocking(loaded).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = listener.local_addr().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let notifications = directory.path().join("notifications");
        let address = format!("ipc://{}", notifications.display());
        let (onward, digests) = async_channel::bounded(16);
        let digests = std::mem::replace(&mut events.digests, digests);
        let socket = publish(dataplane.clone(), 7, &address, digests, onward).unwrap();
        let device = Device { device_id: 7, port: listening.port(), notifications: Some(address) };
        Server::new(dataplane.clone(), device).serve(listener).unwrap();
        let client = TcpStream::connect(listening).unwrap();
        let answers = Calls::new(BufReader::new(client.try_clone().unwrap()));
        Switch {
            dataplane,
            client,
            answers: answers.into(),
            sequence: AtomicI32::new(0),
            ends,
            notifications,
            _socket: socket,
            _events: events,
            _directory: directory,
        }
    }

    fn ask(&self, method: &str, arguments: Fields) -> Answer {
        let sequence = self.sequence.fetch_add(1, Relaxed);
        let service = match method {
            _ if method.starts_with("bm_mc_") => "simple_pre_lag",
            _ if method.starts_with("bm_") => "standard",
            _ => "simple_switch",
        };
        (&self.client).write_all(&call(&format!("{service}:{method}"), sequence, &arguments).unwrap()).unwrap();
        let answer = self.answers.borrow_mut().next_call().unwrap().unwrap();
        assert_eq!((answer.name.as_str(), answer.sequence), (method, sequence));
        match answer.arguments.as_slice() {
            [] => Answer::Value(None),
            [(0, value)] => Answer::Value(Some(value.clone())),
            [(1, Wire::Struct(fields))] => match fields.as_slice() {
                [(1, Wire::I32(code))] => Answer::Declared(*code),
                other => panic!("{method}: {other:?}"),
            },
            [(1, Wire::Bytes(text)), (2, Wire::I32(kind))] => {
                let text = String::from_utf8(text.clone()).unwrap();
                if *kind == UNKNOWN_METHOD { Answer::Unknown(text) } else { Answer::Refused(text) }
            }
            other => panic!("{method}: {other:?}"),
        }
    }

    /// Asks about context 0: the numbers of the other arguments begin at 2.
    fn about(&self, method: &str, arguments: Vec<Wire>) -> Answer {
        self.ask(method, (1..).zip([Wire::I32(0)].into_iter().chain(arguments)).collect())
    }

    fn value(&self, method: &str, arguments: Vec<Wire>) -> Wire {
        match self.about(method, arguments) {
            Answer::Value(Some(value)) => value,
            other => panic!("{method}: {other:?}"),
        }
    }

    fn done(&self, method: &str, arguments: Vec<Wire>) {
        assert_eq!(self.about(method, arguments), Answer::Value(None), "{method}");
    }

    fn refused(&self, method: &str, arguments: Vec<Wire>) -> i32 {
        match self.about(method, arguments) {
            Answer::Declared(code) => code,
            other => panic!("{method}: {other:?}"),
        }
    }

    fn table(&self, name: &str) -> TableId {
        self.program().table(name).unwrap()
    }

    fn program(&self) -> Arc<Program> {
        self.dataplane.program().unwrap()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.dataplane.stop();
    }
}

fn text(text: &str) -> Wire {
    text.into()
}

fn number(value: i32) -> Wire {
    Wire::I32(value)
}

fn binary(bytes: &[u8]) -> Wire {
    Wire::Bytes(bytes.to_vec())
}

fn data(params: &[&[u8]]) -> Wire {
    Wire::List(TType::String, params.iter().map(|bytes| binary(bytes)).collect())
}

fn param(kind: i32, id: i16, fields: Vec<Wire>) -> Fields {
    vec![(1, number(kind)), (id, Wire::Struct((1..).zip(fields).collect()))]
}

fn exact(bytes: &[u8]) -> Fields {
    param(0, 2, vec![binary(bytes)])
}

fn lpm(bytes: &[u8], length: i32) -> Fields {
    param(1, 3, vec![binary(bytes), number(length)])
}

fn ternary(bytes: &[u8], mask: &[u8]) -> Fields {
    param(2, 4, vec![binary(bytes), binary(mask)])
}

fn range(low: &[u8], high: &[u8]) -> Fields {
    param(4, 6, vec![binary(low), binary(high)])
}

fn priority(priority: i32) -> Wire {
    Wire::Struct(vec![(1, number(priority))])
}

fn none() -> Wire {
    Wire::Struct(Vec::new())
}

fn field(value: &Wire, id: i16) -> &Wire {
    let Wire::Struct(fields) = value else { panic!("{value:?}") };
    &fields.iter().find(|(own, _)| *own == id).unwrap_or_else(|| panic!("{id} of {value:?}")).1
}

const ROUTES: &str = "TheIngress.routes";

/// Entry of `routes`: the arguments of `bm_mt_add_entry`.
fn route(prefix: &[u8], length: i32, params: &[&[u8]]) -> Vec<Wire> {
    vec![text(ROUTES), Wire::structs([lpm(prefix, length)]), text("TheIngress.answer"), data(params), none()]
}

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
fn groups_are_made_of_nodes() {
    let switch = Switch::start("features");
    let node = |rid: i32, ports: &str| switch.value("bm_mc_node_create", vec![number(rid), text(ports), text("")]);
    assert_eq!(switch.value("bm_mc_mgrp_create", vec![number(5)]), number(5));
    assert_eq!([node(1, "110"), node(2, "100")], [0, 1].map(number));
    switch.done("bm_mc_node_associate", vec![number(5), number(0)]);
    switch.done("bm_mc_node_associate", vec![number(5), number(1)]);
    assert_eq!(switch.refused("bm_mc_node_associate", vec![number(5), number(1)]), 5);
    let replicas = || switch.dataplane.multicast_groups(Some(5)).remove(&5).unwrap().0;
    let replica = |port, rid| Replica { port, rid };
    assert_eq!(replicas(), [replica(1, 1), replica(2, 1), replica(2, 2)]);

    // A session that copies to the group follows it.
    let mirror = Wire::Struct(vec![(2, number(5))]);
    let done = Answer::Value(None);
    assert_eq!(switch.ask("mirroring_session_add", vec![(1, number(100)), (2, mirror.clone())]), done);
    assert_eq!(switch.ask("mirroring_session_get", vec![(1, number(100))]), Answer::Value(Some(mirror)));
    // A port of its own that the group has, too, is one copy.
    assert_eq!(node(0, "10"), number(2));
    let both = Wire::Struct(vec![(1, number(1)), (2, number(5))]);
    assert_eq!(switch.ask("mirroring_session_add", vec![(1, number(101)), (2, both)]), done);
    switch.done("bm_mc_node_associate", vec![number(5), number(2)]);
    assert_eq!(switch.dataplane.clone_sessions(Some(101))[&101].0.replicas.len(), 4);
    switch.done("bm_mc_node_destroy", vec![number(2)]);
    switch.done("bm_mc_node_update", vec![number(0), text("10"), text("")]);
    assert_eq!(replicas(), [replica(1, 1), replica(2, 2)]);
    assert_eq!(switch.dataplane.clone_sessions(Some(100))[&100].0.replicas, replicas());
    switch.done("bm_mc_node_dissociate", vec![number(5), number(0)]);
    switch.done("bm_mc_node_destroy", vec![number(1)]);
    assert_eq!(replicas(), []);
    let Wire::Bytes(json) = switch.value("bm_mc_get_entries", vec![]) else { panic!() };
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["mgrps"][0]["id"], 5);
    assert_eq!(json["l2_handles"][0]["ports"][0], 1);
    switch.done("bm_mc_mgrp_destroy", vec![number(5)]);
    // As in BMv2, creating a group twice and destroying it twice succeeds.
    switch.done("bm_mc_mgrp_destroy", vec![number(5)]);
    assert_eq!([(); 2].map(|()| switch.value("bm_mc_mgrp_create", vec![number(5)])), [5, 5].map(number));
    assert_eq!(switch.refused("bm_mc_mgrp_create", vec![number(0)]), 2);
    assert_eq!(node(3, "1000"), number(1));
    switch.done("bm_mc_node_associate", vec![number(5), number(1)]);
    assert_eq!(replicas(), [replica(3, 3)]);

    // Another client deletes it.
    switch.dataplane.write_blocking(vec![Update::DeleteMulticastGroup { group: 5 }]).remove(0).unwrap();
    switch.done("bm_mc_node_update", vec![number(1), text("10"), text("")]);
    assert_eq!(switch.refused("bm_mc_node_associate", vec![number(5), number(1)]), 3);
    assert_eq!(switch.value("bm_mc_mgrp_create", vec![number(5)]), number(5));
    switch.done("bm_mc_node_associate", vec![number(5), number(1)]);
    assert_eq!(replicas(), [replica(1, 3)]);

    let port = |port| Wire::Struct(vec![(1, number(port))]);
    assert_eq!(switch.ask("mirroring_session_add", vec![(1, number(7)), (2, port(2))]), done);
    assert_eq!(switch.ask("mirroring_session_add", vec![(1, number(7)), (2, port(1))]), done);
    assert_eq!(switch.ask("mirroring_session_get", vec![(1, number(7))]), Answer::Value(Some(port(1))));
    assert_eq!(switch.ask("mirroring_session_delete", vec![(1, number(7))]), done);
    assert_eq!(switch.ask("mirroring_session_get", vec![(1, number(7))]), Answer::Declared(1));
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
fn device_is_described_and_reset() {
    let switch = Switch::start("features");
    let Answer::Value(Some(info)) = switch.ask("bm_mgmt_get_info", vec![]) else { panic!() };
    assert_eq!(
        (field(&info, 1), field(&info, 3)),
        (&Wire::I64(7), &text(&format!("ipc://{}", switch.notifications.display())))
    );
    let Answer::Value(Some(Wire::Bytes(json))) = switch.ask("bm_get_config", vec![]) else { panic!() };
    assert_eq!(json, switch.program().source);
    let Answer::Value(Some(Wire::List(_, ports))) = switch.ask("bm_dev_mgr_show_ports", vec![]) else { panic!() };
    assert_eq!(ports.len(), 2);
    assert_eq!(*field(&ports[0], 2), text("port1"));
    assert_eq!(switch.ask("bm_dev_mgr_remove_port", vec![(1, number(9))]), Answer::Declared(1));

    switch.done("bm_register_write", vec![text("TheIngress.cells"), number(1), Wire::I64(5)]);
    switch.value("bm_mc_mgrp_create", vec![number(5)]);
    let port = Wire::Struct(vec![(1, number(2))]);
    assert_eq!(switch.ask("mirroring_session_add", vec![(1, number(9)), (2, port.clone())]), Answer::Value(None));
    assert_eq!(switch.ask("bm_reset_state", vec![]), Answer::Value(None));
    // Sessions stay, as in BMv2.
    assert_eq!(switch.ask("mirroring_session_get", vec![(1, number(9))]), Answer::Value(Some(port)));
    assert_eq!(switch.value("bm_register_read", vec![text("TheIngress.cells"), number(1)]), Wire::I64(0));
    assert!(switch.dataplane.multicast_groups(None).is_empty());
    assert_eq!(switch.value("bm_mc_mgrp_create", vec![number(5)]), number(5));
}

#[test]
fn invalid_bytes_end_their_own_connection() {
    let switch = Switch::start("features");
    let address = switch.client.peer_addr().unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x80, 1, 0, 1, 0x7f, 0xff, 0xff, 0xff], &[0; 64]] {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(bytes).unwrap();
        assert!(Calls::new(BufReader::new(client)).next_call().is_ok_and(|answer| answer.is_none()), "{bytes:?}");
    }
    // A call with a valid start is answered with the reason.
    let mut client = TcpStream::connect(address).unwrap();
    let mut begun = call("standard:bm_reset_state", 4, &Vec::new()).unwrap();
    begun.pop();
    begun.extend([11, 0, 1, 0x7f, 0xff, 0xff, 0xff]);
    client.write_all(&begun).unwrap();
    let answer = Calls::new(BufReader::new(client)).next_call().unwrap().unwrap();
    assert!(matches!(&answer.arguments[0], (1, Wire::Bytes(text)) if text.ends_with(b"262144")), "{answer:?}");
    assert_eq!(switch.ask("bm_reset_state", vec![]), Answer::Value(None));
}

/// Subscribes as a SUB socket of nanomsg does.
fn subscribe(switch: &Switch) -> UnixStream {
    let mut subscriber = UnixStream::connect(&switch.notifications).unwrap();
    subscriber.write_all(&[0, b'S', b'P', 0, 0, 0x21, 0, 0]).unwrap();
    let mut greeting = [0; 8];
    subscriber.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, [0, b'S', b'P', 0, 0, 0x20, 0, 0]);
    subscriber
}

/// The next message's body.
fn message(subscriber: &mut UnixStream) -> Vec<u8> {
    let mut start = [0; 9];
    subscriber.read_exact(&mut start).unwrap();
    let mut body = vec![0; u64::from_be_bytes(start[1..].try_into().unwrap()) as usize];
    subscriber.read_exact(&mut body).unwrap();
    body
}

#[test]
fn digests_are_published_until_they_are_acknowledged() {
    let switch = Switch::start("features");
    // A connection without a greeting delays the next one only briefly.
    drop(UnixStream::connect(&switch.notifications).unwrap());
    let mut subscriber = subscribe(&switch);
    // Request 0x13 makes a digest of index and value, and the program answers at port 2.
    let send = |index: u8| {
        let request = [0x13, index, 0, 0, 0, 42];
        let sum: u32 = request.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let frame = [&request[..], &(!(sum as u16)).to_be_bytes(), &[0; 2]].concat();
        assert!(switch.ends[0].send(&frame));
        switch.ends[1].receive(SOON).unwrap();
    };
    // Other values, until the subscription is there.
    subscriber.set_read_timeout(Some(SHORT)).unwrap();
    let subscribed = (100..255).any(|index| {
        send(index);
        subscriber.read_exact(&mut [0; 9]).is_ok()
    });
    assert!(subscribed);
    subscriber.set_read_timeout(Some(SHORT)).unwrap();
    let mut rest = Vec::new();
    let _ = subscriber.read_to_end(&mut rest);
    subscriber.set_read_timeout(Some(SOON)).unwrap();

    send(1);
    send(1);
    send(2);
    let (first, second) = (message(&mut subscriber), message(&mut subscriber));
    assert_eq!((&first[..4], &first[4..12]), (&b"LEA|"[..], &7u64.to_le_bytes()[..]));
    assert_eq!((first[32], second[32]), (1, 2));
    let list = i32::from_le_bytes(first[16..20].try_into().unwrap());
    let buffer = i64::from_le_bytes(first[20..28].try_into().unwrap());
    switch.done("bm_learning_ack_buffer", vec![number(list), Wire::I64(buffer)]);
    send(1);
    assert_eq!(message(&mut subscriber)[32], 1);
    assert_eq!(switch.refused("bm_learning_ack_buffer", vec![number(99), Wire::I64(0)]), 1);
    // After a new start, too.
    assert_eq!(switch.ask("bm_reset_state", vec![]), Answer::Value(None));
    send(1);
    assert_eq!(message(&mut subscriber)[32], 1);
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
