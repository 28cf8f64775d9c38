// SPDX-License-Identifier: Apache-2.0
//! The switch itself: multicast groups, sessions, its program, digests, and connections.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use apswitch_dataplane::control::*;
use apswitch_thrift::message::{Answer, Calls, Value as Wire, call};

use crate::client::*;

/// Time within which everything arrives that arrives at all, and in which what was sent is likely to.
const SOON: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(2);

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
        assert!(!Calls::new(BufReader::new(client)).begins().unwrap(), "{bytes:?}");
    }
    // A call with a valid start is answered with the reason.
    let mut client = TcpStream::connect(address).unwrap();
    let mut begun = call("standard:bm_reset_state", 4, &Vec::new()).unwrap();
    begun.pop();
    begun.extend([11, 0, 1, 0x7f, 0xff, 0xff, 0xff]);
    client.write_all(&begun).unwrap();
    let answer = Calls::new(BufReader::new(client)).next_call().unwrap();
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
