// SPDX-License-Identifier: Apache-2.0
//! Copies of received frames for clients that trace.

use std::time::Duration;

use crate::common;
use crate::common::lab::Lab;
use crate::common::{STATION, UPLINK, ap_json, udp_frame};
use apswitch_core::tap::Tapped;
use apswitch_dataplane::block_on;
use apswitch_dataplane::control::*;

fn program() -> Program {
    let mut program = Program::load(&ap_json()).unwrap();
    program.source = ap_json().into();
    program
}

fn lab() -> Lab {
    Lab::new(program(), &[None, None])
}

fn tap(lab: &Lab, port: Option<PortNumber>, conditions: &[(&str, u64)]) -> Tapped {
    let conditions: Vec<_> = conditions.iter().map(|&(name, value)| (name.to_string(), value.into())).collect();
    lab.dataplane.tap(port, &conditions).unwrap().1
}

/// Sends frames of flows 0 to 9 from both ports, and returns what a tap has taken: port and frame.
fn taken(lab: &Lab, tapped: &Tapped) -> Vec<(PortNumber, Vec<u8>)> {
    let before = lab.dataplane.ports()[0].stats.rx_packets;
    for flow in 0..10 {
        for port in [STATION, UPLINK] {
            lab.send(port, &udp_frame(flow, 60));
        }
    }
    for port in [STATION, UPLINK] {
        lab.wait_for_packets(port, before + 10);
    }
    std::iter::from_fn(|| tapped.frames.try_recv().ok()).map(|tapped| (tapped.port, tapped.frame)).collect()
}

#[test]
fn tap_takes_frames_of_its_port_and_values_as_they_came() {
    let lab = lab();
    for (port, conditions, flows) in [
        (Some(STATION), &[][..], (0..10).collect::<Vec<_>>()),
        (Some(STATION), &[("udp.sport", 10_003)], vec![3]),
        (Some(UPLINK), &[("ipv4.dst", 0x0a00_0102), ("udp.src_port", 10_009)], vec![9]),
        (Some(STATION), &[("ipv4.dst", 0x0a00_0103)], vec![]),
        // A header that the frame does not have, whatever the value.
        (Some(STATION), &[("tcp.sport", 0)], vec![]),
    ] {
        let expected: Vec<_> = flows.iter().map(|&flow| (port.unwrap(), udp_frame(flow, 60))).collect();
        assert_eq!(taken(&lab, &tap(&lab, port, conditions)), expected, "{conditions:?}");
    }
    assert_eq!(taken(&lab, &tap(&lab, None, &[("udp.dst", 80)])).len(), 20);
}

#[test]
fn tapped_switch_forwards_counts_and_drops_as_another_one() {
    let [plain, tapped] = [lab(), lab()];
    let _taps = [tap(&tapped, None, &[("udp.dport", 80)]), tap(&tapped, Some(STATION), &[])];
    let results = [&plain, &tapped].map(|lab| {
        lab.write(common::ap_entries(&lab.program(), 10));
        for flow in 0..10 {
            lab.send(STATION, &udp_frame(flow, 60));
        }
        let sent: Vec<_> = (0..10).map(|_| lab.receive(UPLINK)).collect();
        let program = lab.program();
        let counters = (0..program.counters.len()).map(|id| lab.dataplane.counters(CounterId(id), 0..1).unwrap());
        (sent, counters.collect::<Vec<_>>(), format!("{}", lab.dataplane.drops()))
    });
    assert_eq!(results[0], results[1]);
}

#[test]
fn tap_ends_with_its_program_and_another_field_is_refused() {
    let lab = lab();
    let tapped = tap(&lab, None, &[]);
    lab.dataplane.commit_blocking(program()).unwrap();
    assert!(block_on(tapped.frames.recv()).is_err());
    let refused = lab.dataplane.tap(None, &[("ipv4.nothing".into(), 1u64.into())]).map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, UpdateError::InvalidArgument(text) if text.contains("it has version, ihl, ")),
        "{refused}"
    );
}

#[test]
fn tap_of_a_client_that_has_gone_is_removed_with_the_next_frame() {
    let lab = lab();
    let tapped = tap(&lab, None, &[]);
    let frames = tapped.frames.clone();
    drop(tapped);
    assert_eq!(frames.sender_count(), 1);
    frames.close();
    let deadline = std::time::Instant::now() + common::lab::SOON;
    while frames.sender_count() > 0 {
        assert!(std::time::Instant::now() < deadline, "the switch keeps the tap");
        lab.send(STATION, &udp_frame(0, 60));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn copy_to_read_has_what_was_written() {
    let lab = lab();
    let before = lab.dataplane.writes();
    lab.write(common::ap_entries(&lab.program(), 10));
    assert_ne!(lab.dataplane.writes(), before);
    let (copy, program) = (lab.dataplane.written().unwrap(), lab.program());
    for table in (0..program.tables.len()).map(TableId) {
        let entries = |entries: Vec<EntryView>| entries.into_iter().map(|view| view.entry).collect::<Vec<_>>();
        assert_eq!(entries(copy.entries(table, 0).unwrap()), entries(lab.dataplane.entries(table).unwrap()));
    }
    assert_eq!(copy.groups().len(), 1);
}
