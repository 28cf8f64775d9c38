// SPDX-License-Identifier: Apache-2.0
//! Features of v1model, one a test, with testdata/programs/features.p4.

use crate::common;
use crate::common::features::{Answer, address_request, answer, ask, lab, request, value};
use crate::common::lab::{Lab, SOON};
use crate::common::{call, entry, exact, find_table, internet_checksum, program};
use apswitch_dataplane::control::*;

const VERIFY: u8 = 0x40;
const UPDATE: u8 = 0x41;

#[test]
fn headers_and_payload_come_out_in_the_deparser_s_order() {
    let lab = lab();
    let mut frame = request(0xff, 1, 2);
    frame.extend(b"payload");
    let (answer, rest) = ask(&lab, &frame);
    assert_eq!(rest, frame);
    // The answer counts where egress sees the length, and metadata are those of a new packet.
    let expected =
        Answer { value: 0, instance_type: 0, error_code: 0, egress_rid: 0, ingress_port: 1, packet_length: 29 };
    assert_eq!(answer, expected);
}

#[test]
fn the_parser_selects_by_masks_and_lookahead_and_reports_errors() {
    let lab = lab();
    let code = |frame: &[u8]| ask(&lab, frame).0.error_code;
    let with = |kind, index, value, rest: &[u8]| [request(kind, index, value), rest.to_vec()].concat();
    // (0x20, 0xabc) -> extra, whole or cut short.
    assert_eq!(code(&with(0x20, 0, 0, &[0xab, 0xc1, 0x23, 0x45])), 0);
    assert_eq!(code(&with(0x20, 0, 0, &[0xab, 0xc1])), 0xcc);
    // (0x20 &&& 0xfe, _) -> verify.
    assert_eq!(code(&with(0x21, 0, 100, &[0; 4])), 0xdd);
    assert_eq!(code(&with(0x21, 0, 101, &[0; 4])), 0);
    // advance by `index` bytes, then extra.
    let skipped = with(0x22, 3, 0, &[1, 2, 3, 0xab, 0xcd, 0xef, 0x12, 9]);
    let (answer, rest) = ask(&lab, &skipped);
    assert_eq!((answer.error_code, &rest[8..]), (0, &[0xab, 0xcd, 0xef, 0x12, 9][..]));
    assert_eq!(code(&with(0x22, 3, 0, &[1, 2])), 0xcc);
    // Every select needs the lookahead.
    assert_eq!(code(&with(0xff, 0, 0, &[1])), 0xcc);
    // Not even the first header: the answer alone, and the bytes behind it.
    lab.send(1, &[1, 2, 3]);
    let received = lab.receive(2);
    assert_eq!((received[5], &received[14..]), (0xcc, &[1, 2, 3][..]));
}

#[test]
fn indirect_counters_meters_and_registers() {
    let lab = lab();
    let (counter, meter, register) = (CounterId(0), MeterId(0), RegisterId(0));
    // Index 16 is beyond the array: nothing is counted.
    for index in [3, 3, 16] {
        ask(&lab, &[request(5, index, 0), vec![0; 5]].concat());
    }
    let counters = lab.dataplane.counters(counter, 0..16).unwrap();
    assert_eq!(counters[3], CounterValue { packets: 2, bytes: 26 });
    assert_eq!(counters.iter().map(|c| c.packets).sum::<u64>(), 2);
    lab.write(vec![Update::SetCounter { counter, index: 3, value: CounterValue { packets: 7, bytes: 8 } }]);
    ask(&lab, &[request(5, 3, 0), vec![0; 5]].concat());
    let counters = lab.dataplane.counters(counter, 3..4).unwrap();
    assert_eq!(counters, [CounterValue { packets: 8, bytes: 21 }]);

    let config = Some(MeterConfig { cir: 0, cburst: 0, pir: 0, pburst: 1 });
    lab.write(vec![Update::SetMeter { meter, index: 2, config }]);
    assert_eq!(lab.dataplane.meters(meter, 1..3).unwrap(), [None, config]);
    let colour = |index| value(&lab, &[request(6, index, 0), vec![0; 2]].concat());
    assert_eq!([colour(1), colour(2), colour(2), colour(1)], [0, 1, 2, 0]);

    ask(&lab, &[request(7, 15, 0xdead_beef), vec![0; 2]].concat());
    let read = |index| value(&lab, &[request(8, index, 0), vec![0; 2]].concat());
    assert_eq!(read(15), 0xdead_beef);
    assert_eq!(lab.dataplane.registers(register, 14..16).unwrap(), common::values(&[0, 0xdead_beef]));
    lab.write(vec![Update::SetRegister { register, index: 0, value: 77u32.into() }]);
    assert_eq!(read(0), 77);
    let too_wide = Update::SetRegister { register, index: 0, value: (1u64 << 32).into() };
    assert!(matches!(lab.refused(too_wide), UpdateError::OutOfRange(_)));
    let beyond = Update::SetRegister { register, index: 16, value: Value::ZERO };
    assert!(matches!(lab.refused(beyond), UpdateError::OutOfRange(_)));
    assert!(lab.dataplane.registers(register, 10..17).is_err());
}

#[test]
fn hashes_and_random_numbers() {
    let lab = lab();
    // The check values of both CRCs, over the bytes "12345".
    let frame = [request(9, b'1', u32::from_be_bytes(*b"2345")), vec![0; 2]].concat();
    assert_eq!(value(&lab, &frame), 0xcbf5_3a1c);
    let frame = [request(0x0a, b'1', u32::from_be_bytes(*b"2345")), vec![0; 2]].concat();
    let crc16_arc = b"12345".iter().fold(0u16, |crc, &byte| {
        (0..8).fold(crc ^ byte as u16, |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xa001 } else { crc >> 1 })
    });
    assert_eq!(value(&lab, &frame), 1000 + (crc16_arc as u32 & 0xff));
    let mut seen = [false; 11];
    for _ in 0..1000 {
        let number = value(&lab, &[request(0x0b, 0, 0), vec![0; 2]].concat());
        seen[(number - 10) as usize] = true;
    }
    assert!(seen.iter().all(|&seen| seen), "{seen:?}");
}

#[test]
fn multicast_copies_carry_their_instance() {
    let lab = lab();
    let replicas = vec![Replica { port: 2, rid: 5 }, Replica { port: 3, rid: 6 }, Replica { port: 2, rid: 7 }];
    lab.write(vec![Update::InsertMulticastGroup { group: 4, replicas: replicas.clone() }]);
    lab.send(1, &[request(0x0c, 4, 0), vec![0; 2]].concat());
    let copies: Vec<Vec<u8>> = vec![lab.receive(2), lab.receive(2), lab.receive(3)];
    let rids: Vec<u16> = copies.iter().map(|frame| answer(frame).0.egress_rid).collect();
    assert_eq!(rids, [5, 7, 6]);
    // What ingress wrote of the type is that of a new packet.
    assert!(copies.iter().all(|frame| answer(frame).0.instance_type == 0));
    let again = Update::InsertMulticastGroup { group: 4, replicas };
    assert!(matches!(lab.refused(again), UpdateError::AlreadyExists(_)));
    lab.write(vec![Update::DeleteMulticastGroup { group: 4 }]);
    lab.send(1, &[request(0x0c, 4, 0), vec![0; 2]].concat());
    ask(&lab, &[request(0xff, 0, 0), vec![0; 2]].concat());
    lab.nothing(3);
}

#[test]
fn clones_keep_the_listed_fields_and_nothing_else() {
    let lab = lab();
    let config =
        CloneSession { replicas: vec![Replica { port: 3, rid: 9 }], packet_length_bytes: 0, ..Default::default() };
    lab.write(vec![Update::InsertCloneSession { session: 7, config: config.clone() }]);
    // From ingress: the packet as it came.
    let frame = [request(0x0e, 1, 4711), vec![1, 2, 3]].concat();
    ask(&lab, &frame);
    let clone = lab.receive(3);
    let (front, rest) = answer(&clone);
    assert_eq!((front.value, front.instance_type, front.egress_rid, front.ingress_port), (4711, 1, 9, 1));
    assert_eq!(rest, frame);
    // From egress: the packet as egress left it.
    ask(&lab, &[request(0x17, 1, 0), vec![1, 2, 3]].concat());
    let clone = lab.receive(3);
    let (front, _) = answer(&clone);
    assert_eq!((front.value, front.instance_type, front.egress_rid), (99, 2, 9));
    // Cut to length.
    let config = CloneSession { packet_length_bytes: 16, ..config };
    lab.write(vec![Update::ModifyCloneSession { session: 7, config }]);
    ask(&lab, &frame);
    assert_eq!(lab.receive(3).len(), 16);
}

#[test]
fn resubmitted_and_recirculated_packets_pass_ingress_again() {
    let lab = lab();
    let (front, rest) = ask(&lab, &[request(0x0d, 0, 31), vec![5; 9]].concat());
    // `kept` has survived, `lost` has not.
    assert_eq!((front.value, front.instance_type, front.ingress_port), (31, 6, 1));
    assert_eq!(rest[8..], [5; 9]);
    // Three rounds, each a packet of its own.
    let (front, rest) = ask(&lab, &[request(0x18, 3, 0), vec![5; 9]].concat());
    assert_eq!((front.instance_type, rest[1]), (4, 0));
}

#[test]
fn drops_truncation_exit_and_removed_headers() {
    let lab = lab();
    for kind in [0x10, 0x19] {
        lab.send(1, &[request(kind, 0, 0), vec![0; 2]].concat());
    }
    // A failed assertion drops the packet; one that holds does not.
    lab.send(1, &[request(0x12, 0, 10), vec![0; 2]].concat());
    ask(&lab, &[request(0x12, 0, 11), vec![0; 2]].concat());
    // `exit`: without the answer, so what comes first is the request.
    let frame = [request(0x11, 0, 0), vec![0; 2]].concat();
    lab.send(1, &frame);
    assert_eq!(lab.receive(2), frame);
    lab.send(1, &[request(0x0f, 20, 0), vec![0; 100]].concat());
    assert_eq!(lab.receive(2).len(), 20);
    let (front, rest) = ask(&lab, &[request(0x16, 0, 0), vec![7; 3]].concat());
    assert_eq!((front.packet_length, rest), (17, vec![7; 3]));
    lab.nothing(2);
}

#[test]
fn checksums_are_verified_and_updated() {
    let lab = lab();
    let mut frame = [request(VERIFY, 1, 0x1234_5678), vec![0; 2]].concat();
    assert_eq!(ask(&lab, &frame).0.error_code, 0);
    frame[7] ^= 1;
    assert_eq!(ask(&lab, &frame).0.error_code, 1);
    // Over the payload too, of an odd length.
    let payload = [1, 2, 3, 4, 5];
    let (_, rest) = ask(&lab, &[request(UPDATE, 1, 0x1234_5678), payload.to_vec()].concat());
    let mut covered = rest[..6].to_vec();
    covered.extend(payload);
    assert_eq!(rest[6..8], internet_checksum(&covered).to_be_bytes());
}

#[test]
fn digests_are_sent_once_until_acknowledged() {
    let lab = lab();
    let digest = DigestId(0);
    let frame = [request(0x13, 1, 42), vec![0; 2]].concat();
    // Nothing before it is asked for.
    ask(&lab, &frame);
    let config = Some(DigestConfig { ack_timeout_ns: 3_600_000_000_000 });
    lab.write(vec![Update::SetDigest { digest, config }]);
    assert_eq!(lab.dataplane.digest_config(digest).unwrap(), config);
    for _ in 0..3 {
        ask(&lab, &frame);
    }
    let sample = lab.events.digests.recv_blocking().unwrap();
    assert_eq!((sample.digest, &sample.values[..]), (digest, &common::values(&[1, 42, 1 << 100])[..]));
    assert!(lab.events.digests.try_recv().is_err());
    ask(&lab, &[request(0x13, 2, 42), vec![0; 2]].concat());
    assert_eq!(lab.events.digests.recv_blocking().unwrap().values[0], 2u32.into());
    lab.write(vec![Update::AckDigest { digest, sequences: vec![sample.sequence] }]);
    ask(&lab, &frame);
    assert_eq!(lab.events.digests.recv_blocking().unwrap().values[0], 1u32.into());
}

#[test]
fn idle_entries_are_told_and_hits_keep_them() {
    let lab = lab();
    let program = lab.program();
    let entry_of = |address: u128, timeout_ns| {
        let mut entry = entry(&program, "addresses", &exact(&[address]), 0, "set_answer", &[1]);
        entry.idle_timeout_ns = timeout_ns;
        entry
    };
    lab.write(vec![Update::InsertEntry(entry_of(1, 200_000_000)), Update::InsertEntry(entry_of(2, 0))]);
    let told = |lab: &Lab| match lab.events.notices.recv_blocking() {
        Ok(Notice::IdleTimeout(entry)) => entry.key.fields[0].clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&lab), KeyField::Exact(1u32.into()));
    // And again after another timeout.
    assert_eq!(told(&lab), KeyField::Exact(1u32.into()));
    let key = EntryKey { fields: exact(&[1]), priority: 0 };
    let table = find_table(&program, "addresses");
    ask(&lab, &address_request(0x31, 1));
    let idle = lab.dataplane.entry(table, &key).unwrap().idle_ns;
    assert!(idle < SOON.as_nanos() as u64, "{idle}");
    let wrong = entry(&program, "routes", &[common::prefix(0, 0)], 0, "answer", &[1]);
    let wrong = TableEntry { idle_timeout_ns: 1, ..wrong };
    assert!(matches!(lab.refused(Update::InsertEntry(wrong)), UpdateError::InvalidArgument(_)));
}

#[test]
fn queues_follow_priority_and_depths_are_those_of_the_queue() {
    // 2.4 s for each packet: the first leaves, the others wait.
    let link = LinkConfig { rate: Some(100), limit_packets: 4, ..Default::default() };
    let lab = Lab::new(program("features"), &[None, Some(link)]);
    for (index, kind) in [(0, 0x1a), (1, 0x14), (2, 0x1a), (7, 0x14), (3, 0x1a), (4, 0x1a)] {
        lab.send(1, &[request(kind, index, 0), vec![0; 8]].concat());
        // The queues are empty when the first comes, so it must be on its way before the others fill them.
        if index == 0 {
            lab.wait_for_packets(1, 1);
        }
    }
    let frames: Vec<Vec<u8>> = (0..5).map(|_| lab.receive(2)).collect();
    let indices: Vec<u8> = frames.iter().map(|frame| frame[15]).collect();
    // Index 0 was on the wire; then queue 7, queue 1, and queue 0 in order. Index 4 found the queues full.
    assert_eq!(indices, [0, 7, 1, 2, 3]);
    lab.nothing(2);
    let depth = |frame: &[u8]| (answer(frame).0.value, answer(frame).0.packet_length);
    assert_eq!((depth(&frames[0]), depth(&frames[3]), depth(&frames[4])), ((0, 0), (0, 1), (1, 0)));
    let stats = lab.dataplane.ports()[1].stats;
    assert_eq!((stats.tx_packets, stats.queue_drops, stats.queue_packets, stats.queue_bytes), (5, 1, 0, 0));
}

#[test]
fn packets_go_to_the_cpu_port_and_come_from_it() {
    let lab = lab();
    lab.send(1, &[request(0x15, 0, 510), vec![0; 2]].concat());
    let packet = lab.events.packet_ins.recv_blocking().unwrap();
    assert_eq!(answer(&packet.frame).0.ingress_port, 1);
    lab.dataplane.inject([request(0xff, 0, 0), vec![0; 2]].concat()).unwrap();
    assert_eq!(answer(&lab.receive(2)).0.ingress_port, 510);
    // Nobody is there.
    lab.send(1, &[request(0x15, 0, 99), vec![0; 2]].concat());
    lab.wait_for_packets(1, 2);
    ask(&lab, &[request(0xff, 0, 0), vec![0; 2]].concat());
    assert_eq!(lab.dataplane.drops(), Drops { no_port: 1, ..Default::default() });
}

#[test]
fn a_wrong_update_changes_nothing() {
    let lab = lab();
    let program = lab.program();
    let route = |value, prefix_len| entry(&program, "routes", &[common::prefix(value, prefix_len)], 0, "answer", &[1]);
    let good = route(0x0a00_0000, 8);
    let insert = |entry: &TableEntry| Update::InsertEntry(entry.clone());
    let answer = |params: &[u128]| call(&program, find_table(&program, "routes"), "answer", params).into();
    let with = |change: &dyn Fn(&mut TableEntry)| {
        let mut entry = good.clone();
        change(&mut entry);
        Update::InsertEntry(entry)
    };
    let invalid = [
        with(&|e| e.key.fields[0] = common::prefix(1, 33)),
        with(&|e| e.key.fields[0] = common::prefix(1, 8)),
        with(&|e| e.key.fields[0] = KeyField::Exact(1u32.into())),
        with(&|e| e.key.fields.clear()),
        with(&|e| e.key.priority = 1),
        with(&|e| e.action = answer(&[])),
        with(&|e| e.action = call(&program, find_table(&program, "ranges"), "set_answer", &[1]).into()),
        with(&|e| e.action = EntryAction::Member(1)),
    ];
    for update in invalid {
        let text = format!("{update:?}");
        assert!(matches!(lab.refused(update), UpdateError::InvalidArgument(_)), "{text}");
    }
    let wide = with(&|e| e.key.fields[0] = common::prefix(1 << 32, 32));
    assert!(matches!(lab.refused(wide), UpdateError::OutOfRange(_)));
    assert!(matches!(lab.refused(with(&|e| e.action = answer(&[1 << 32]))), UpdateError::OutOfRange(_)));
    assert!(matches!(lab.refused(with(&|e| e.table = TableId(999))), UpdateError::NotFound(_)));
    assert!(matches!(lab.refused(Update::ModifyEntry(good.clone())), UpdateError::NotFound(_)));
    let delete = Update::DeleteEntry { table: good.table, key: good.key.clone() };
    assert!(matches!(lab.refused(delete.clone()), UpdateError::NotFound(_)));
    assert!(lab.dataplane.entries(good.table).unwrap().is_empty());

    // One batch: each update on its own.
    let results =
        lab.dataplane.write_blocking(vec![insert(&good), insert(&good), delete.clone(), delete, insert(&good)]);
    let failed: Vec<bool> = results.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, true, false]);

    // The table holds what its size says.
    let fill: Vec<Update> = (0..64).map(|i| insert(&route(i << 8, 24))).collect();
    let results = lab.dataplane.write_blocking(fill);
    assert!(results[..63].iter().all(Result::is_ok));
    assert!(matches!(results[63], Err(UpdateError::ResourceExhausted(_))));
    assert_eq!(lab.dataplane.entries(good.table).unwrap().len(), 64);
}

#[test]
fn a_new_program_starts_empty_and_without_one_nothing_is_written() {
    let lab = lab();
    let program = lab.program();
    lab.write(vec![Update::InsertEntry(entry(&program, "addresses", &exact(&[5]), 0, "set_answer", &[9]))]);
    assert_eq!(value(&lab, &address_request(0x31, 5)), 9);
    lab.dataplane.commit_blocking(common::program("features")).unwrap();
    assert_eq!(value(&lab, &address_request(0x31, 5)), 0);
    assert!(lab.dataplane.entries(find_table(&program, "addresses")).unwrap().is_empty());

    let config = DataplaneConfig {
        ports: Vec::new(),
        cpu_port: Some(510),
        priority_queues: 8,
        seed: 1,
        capture: None,
        aside: at_once,
    };
    let (dataplane, _events, _) = Dataplane::start_in_memory(config).unwrap();
    let results = dataplane.write_blocking(vec![Update::DeleteMulticastGroup { group: 1 }]);
    assert_eq!(results, [Err(UpdateError::NoProgram)]);
    assert!(dataplane.program().is_none());
    dataplane.stop();
    assert_eq!(dataplane.inject(vec![0; 60]), Err(UpdateError::Stopped));
}
