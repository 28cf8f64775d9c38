// SPDX-License-Identifier: Apache-2.0
//! Packets that a program sends round and round: they end neither the switch nor the others' way through it.

use std::time::{Duration, Instant};

use crate::common;
use crate::common::lab::{Lab, SOON};
use apswitch_dataplane::control::*;
use serde_json::Value as Json;

/// `testdata/programs/features.p4` with some of its conditions and numbers changed.
fn features(change: impl FnOnce(&mut Json)) -> Program {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/features.json");
    let mut json: Json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut json);
    Program::load(json.to_string().as_bytes()).unwrap()
}

/// The condition of egress that asks for this kind, and for something more.
fn condition(json: &mut Json, kind: u8) -> &mut Json {
    let conditions = json["pipelines"][1]["conditionals"].as_array_mut().unwrap();
    let kind = format!("{kind:#x}");
    let found = conditions.iter_mut().map(|condition| &mut condition["expression"]["value"]);
    found.into_iter().find(|both| both["left"]["value"]["right"]["value"] == *kind).unwrap()
}

/// Recirculates all packets of this kind, and for ever: their index stays as it is.
fn recirculate_for_ever(json: &mut Json, kind: u8) {
    condition(json, 0x18)["left"]["value"]["right"]["value"] = format!("{kind:#x}").into();
    let actions = json["actions"].as_array_mut().unwrap();
    let recirculates =
        |action: &&mut Json| action["primitives"].as_array().unwrap().iter().any(|p| p["op"] == "recirculate");
    let action = actions.iter_mut().find(recirculates).unwrap();
    let sum = &mut action["primitives"][0]["parameters"][1]["value"]["value"]["left"]["value"];
    assert_eq!(sum["right"]["value"], "0xff");
    sum["right"]["value"] = "0x0".into();
}

/// Clones packets of this kind in egress, to session 7; also those that were there before, if they shall.
fn clone_in_egress(json: &mut Json, kind: u8, again: bool) {
    let both = condition(json, 0x17);
    both["left"]["value"]["right"]["value"] = format!("{kind:#x}").into();
    if again {
        both["right"]["value"]["op"] = ">=".into();
    }
}

fn frame(kind: u8, index: u8, value: u32) -> Vec<u8> {
    [&[kind, index][..], &value.to_be_bytes(), &[0; 54]].concat()
}

/// Others are served; the switch that serves them goes on until the test ends.
fn others_are_served(lab: &Lab) {
    for number in 0..200 {
        lab.send(3, &frame(0xff, 1, number));
        let answer = lab.receive(2);
        assert_eq!(answer[16..20], number.to_be_bytes());
    }
}

fn session(ports: &[u16]) -> Update {
    let replicas = ports.iter().map(|&port| Replica { port, rid: 1 }).collect();
    Update::InsertCloneSession {
        session: 7,
        config: CloneSession { replicas, packet_length_bytes: 0, ..Default::default() },
    }
}

/// Waits until so many packets were dropped for the reason.
fn wait_for(lab: &Lab, reason: fn(&Drops) -> u64, count: u64) {
    let deadline = Instant::now() + SOON;
    while reason(&lab.dataplane.drops()) < count {
        assert!(Instant::now() < deadline, "{}", lab.dataplane.drops());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_multicast_packet_that_recirculates_for_ever_takes_no_stack() {
    let lab = Lab::new(features(|json| recirculate_for_ever(json, 0x0c)), &[None, None, None]);
    lab.write(vec![Update::InsertMulticastGroup { group: 4, replicas: vec![Replica { port: 2, rid: 0 }] }]);
    lab.send(1, &frame(0x0c, 4, 0));
    std::thread::sleep(Duration::from_millis(200));
    others_are_served(&lab);
}

#[test]
fn a_packet_that_is_cloned_in_every_round_takes_no_stack() {
    let program = features(|json| {
        recirculate_for_ever(json, 0x18);
        clone_in_egress(json, 0x18, true);
    });
    let lab = Lab::new(program, &[None, None, None]);
    lab.write(vec![session(&[510])]);
    lab.send(1, &frame(0x18, 1, 0));
    std::thread::sleep(Duration::from_millis(200));
    others_are_served(&lab);
    // Clones are recirculated, too, and so become more and more.
    wait_for(&lab, |drops| drops.replication_limit, 1);
    others_are_served(&lab);
}

#[test]
fn there_is_always_memory_for_what_is_received() {
    let lab = Lab::new(features(|json| recirculate_for_ever(json, 0x18)), &[None, None, None]);
    // Turns are short: half of them come while others go round.
    for _ in 0..16_384 {
        lab.send(1, &frame(0x18, 1, 0));
    }
    wait_for(&lab, |drops| drops.replication_limit, 1);
    others_are_served(&lab);
    let drops = lab.dataplane.drops();
    assert_eq!(Drops { replication_limit: 0, ..drops }, Drops::default());
}

#[test]
fn egress_runs_also_for_a_port_that_does_not_exist() {
    // Kind 0x15 goes to the port that is its value.
    let lab = Lab::new(features(|json| clone_in_egress(json, 0x15, false)), &[None, None, None]);
    lab.write(vec![session(&[3])]);
    lab.send(1, &frame(0x15, 0, 99));
    assert_eq!(lab.receive(3)[4], 2, "the clone of egress");
    assert_eq!(lab.dataplane.drops(), Drops { no_port: 1, ..Drops::default() });
}

#[test]
fn what_a_packet_was_cut_to_is_forgotten_when_it_begins_anew() {
    // Kind 0x0d is cut to as many bytes as its index says, then resubmitted.
    let program = features(|json| {
        let actions = json["actions"].as_array_mut().unwrap();
        let with = |actions: &[Json], op: &str| {
            let has = |action: &Json| action["primitives"].as_array().unwrap().iter().position(|p| p["op"] == op);
            actions.iter().enumerate().find_map(|(place, action)| Some((place, has(action)?))).unwrap()
        };
        let (from, place) = with(actions, "truncate");
        let truncate = actions[from]["primitives"].as_array().unwrap()[..=place].to_vec();
        for op in ["resubmit", "clone_egress_pkt_to_egress"] {
            let (to, _) = with(actions, op);
            actions[to]["primitives"].as_array_mut().unwrap().splice(0..0, truncate.clone());
        }
    });
    let lab = Lab::new(program, &[None, None, None]);
    lab.write(vec![session(&[3])]);
    const ANSWER: usize = 14;
    lab.send(1, &frame(0x0d, 20, 0));
    assert_eq!(lab.receive(2).len(), 60 + ANSWER);
    // The same for a clone; the packet itself is cut.
    lab.send(1, &frame(0x17, 20, 0));
    assert_eq!((lab.receive(3).len(), lab.receive(2).len()), (60 + ANSWER, 20));
}

#[test]
fn a_long_wire_takes_no_memory_of_other_ports() {
    let link = LinkConfig { delay_ns: 60_000_000_000, ..Default::default() };
    let lab = Lab::new(common::program("features"), &[None, Some(link), None]);
    // To port 2, until its wire is full.
    let deadline = Instant::now() + SOON;
    while lab.dataplane.ports()[1].stats.queue_drops < 1000 {
        assert!(Instant::now() < deadline, "{:?}", lab.dataplane.ports()[1].stats);
        (0..1000).for_each(|_| lab.send(1, &frame(0xff, 0, 0)));
        std::thread::sleep(Duration::from_millis(1));
    }
    for number in 0..200 {
        lab.send(1, &frame(0x15, number, 3));
        assert_eq!(lab.receive(3)[15], number);
    }
    assert_eq!(lab.dataplane.drops(), Drops::default());
}
