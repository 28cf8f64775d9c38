// SPDX-License-Identifier: Apache-2.0
//! A million random and mutated packets, seeded, through the access point's program: nothing panics, every packet is
//! accounted for, and the switch forwards as before.

use crate::common;
use crate::common::frames::{mutate, seed_frame};
use crate::common::lab::Lab;
use crate::common::{STATION, UPLINK, ap_entries, ap_program, entry, ternary, udp_frame};
use apswitch_dataplane::control::*;
use fastrand::Rng;

const PACKETS: u64 = 1_000_000;
/// Packets on their way at once.
const WINDOW: u64 = 1000;

#[test]
fn a_million_packets_do_no_harm() {
    let queued = LinkConfig { rate: Some(1_000_000_000), delay_ns: 100_000, loss: 0.01, ..Default::default() };
    let lab = Lab::new(ap_program(), &[None, Some(queued)]);
    let program = lab.program();
    let mut updates = ap_entries(&program, 1000);
    // Everything of the controller's that a packet can run into: classes, feedback, gate, copies to the controller.
    let any = ternary(0, 0);
    let class = [ternary(1, 3), any.clone(), any.clone(), any.clone()];
    let ports = [common::range(0, 50_000), common::range(0, 65_535)];
    let rest = [(); 6].map(|()| any.clone());
    let class: Vec<KeyField> = class.into_iter().chain(ports).chain(rest).collect();
    let punt = [ternary(STATION as u128, 511), any.clone(), any.clone(), ternary(17, 255), any];
    for entry in [
        entry(&program, "classify", &class, 1, "set_class", &[2, 3, 1]),
        entry(&program, "punt", &punt, 1, "copy_to_cpu", &[]),
        entry(&program, "port_feedback", &common::exact(&[UPLINK as u128, 2]), 0, "add_port_feedback", &[20_000]),
        entry(&program, "ack_priority", &common::exact(&[UPLINK as u128]), 0, "prioritise", &[7, 1]),
        entry(&program, "gate", &common::exact(&[UPLINK as u128]), 0, "batch_gate", &[500, 10]),
    ] {
        updates.push(Update::InsertEntry(entry));
    }
    let session =
        CloneSession { replicas: vec![Replica { port: 510, rid: 1 }], packet_length_bytes: 0, ..Default::default() };
    updates.push(Update::InsertCloneSession { session: 1, config: session });
    for digest in 0..program.digests.len() {
        let config = Some(DigestConfig { ack_timeout_ns: 1_000_000 });
        updates.push(Update::SetDigest { digest: DigestId(digest), config });
    }
    lab.write(updates);

    let mut rng = Rng::with_seed(20_181_118);
    let (mut from_station, mut from_uplink) = (0, 0);
    for number in 0..PACKETS {
        let frame = match rng.u8(..4) {
            0 => (0..rng.usize(..300)).map(|_| rng.u8(..)).collect(),
            1 => seed_frame(&mut rng),
            _ => {
                let frame = seed_frame(&mut rng);
                mutate(frame, &mut rng)
            }
        };
        match rng.u8(..3) {
            0 => {
                lab.send(UPLINK, &frame);
                from_uplink += 1;
            }
            1 if number % 8 == 0 => lab.dataplane.inject(frame).expect("there is room within the window"),
            _ => {
                lab.send(STATION, &frame);
                from_station += 1;
            }
        }
        if number % WINDOW == 0 {
            lab.wait_for_packets(STATION, from_station);
            lab.wait_for_packets(UPLINK, from_uplink);
            while lab.events.packet_ins.try_recv().is_ok() {}
            while lab.events.digests.try_recv().is_ok() {}
            for end in &lab.ends {
                while let Some(frame) = end.receive(std::time::Duration::ZERO) {
                    assert!(frame.len() <= 2048 + 256, "a frame of {} bytes left", frame.len());
                }
            }
        }
    }
    lab.wait_for_packets(STATION, from_station);
    lab.wait_for_packets(UPLINK, from_uplink);
    let ports = lab.dataplane.ports();
    let received: u64 = ports.iter().map(|port| port.stats.rx_packets + port.stats.rx_errors).sum();
    assert_eq!(received, from_station + from_uplink);
    assert!(ports.iter().all(|port| port.stats.tx_packets > PACKETS / 100), "{ports:?}");

    // Still there: a packet of known addresses goes where it should, unchanged.
    let frame = {
        let mut frame = udp_frame(0, 100);
        let (dst, src) = (common::mac(1).to_be_bytes(), common::mac(2).to_be_bytes());
        frame[0..6].copy_from_slice(&dst[10..]);
        frame[6..12].copy_from_slice(&src[10..]);
        // Not from a flow that the tables know: it is not marked.
        frame[23] = 99;
        frame
    };
    while lab.ends[0].receive(std::time::Duration::from_secs(2)).is_some() {}
    lab.send(UPLINK, &frame);
    assert_eq!(lab.receive(STATION), frame);
}
