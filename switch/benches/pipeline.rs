// SPDX-License-Identifier: Apache-2.0
//! Cost of the access point's program for a packet, without any port: `make bench`. Times are those of the thread's
//! own CPU, so that other work on the machine counts little.

#[path = "../dataplane/tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Duration;

use apswitch_core::dataplane_ops::Outbox;
use apswitch_core::link::LinkConfig;
use apswitch_core::machine::Machine;
use apswitch_core::program::Program;
use apswitch_core::state::Shared;
use apswitch_core::state::frame::Pool;
use apswitch_core::store::Store;
use apswitch_core::tap::{Filter, Tap};
use apswitch_core::v1model::{Port, Switch};
use apswitch_reference::{Reference, Setup};
use common::{CPU_PORT, STATION, UPLINK, ap_entries, ap_json, udp_frame};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nix::time::{ClockId, clock_gettime};

const BATCH: usize = 64;
/// ns between two batches.
const INTERVAL: u64 = 1_000_000;

fn program() -> Program {
    let mut program = Program::load(&ap_json()).unwrap();
    program.source = ap_json().into();
    program
}

/// A switch that runs the program, and the store with its entries; uplink with a link model or without.
fn switch(flows: u32, link: Option<LinkConfig>) -> (Switch, Store) {
    let (packet_ins, _) = async_channel::bounded(1);
    let (digests, _) = async_channel::bounded(1);
    let ports = vec![Port::new(STATION, None, 1), Port::new(UPLINK, link, 1)];
    let pool = Pool::new(2048, 4096);
    let mut switch = Switch::new(ports, pool, Some(CPU_PORT), 8, Outbox { packet_ins, digests }, 1);
    let program = Arc::new(program());
    let shared = Arc::new(Shared::new(&program));
    let (mut store, mut changes) = Store::new(program.clone(), shared.clone()).unwrap();
    switch.commit(Box::new(Machine::new(&program, shared, 1)));
    for update in ap_entries(&program, flows) {
        store.update(update, 0, &mut changes).unwrap();
    }
    changes.iter_mut().for_each(|change| switch.apply(change, 0));
    (switch, store)
}

/// The frames of all flows, in an order that is not that of their entries.
fn frames(flows: u32) -> Vec<Vec<u8>> {
    (0..flows).map(|flow| udp_frame(flow.wrapping_mul(7919) % flows, 60)).collect()
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn pipeline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pipeline");
    let queued = LinkConfig { rate: Some(1_000_000_000_000), ..Default::default() };
    for (name, flows, link, is_traced) in [
        ("1_flow", 1, None, false),
        ("1000_flows", 1000, None, false),
        ("1000_flows_traced", 1000, None, true),
        ("65536_flows", 65_536, None, false),
        ("1000_flows_queued", 1000, Some(queued), false),
    ] {
        let mut switch = switch(flows, link).0;
        // One flow of all is chosen, and what it has is taken as fast as it may come.
        let conditions = [("ipv4.dst".into(), 0x0a00_0102u64.into()), ("udp.sport".into(), 10_003u64.into())];
        let tapped = is_traced.then(|| {
            let (tap, tapped) = Tap::new(Filter::new(&program(), None, &conditions).unwrap());
            switch.add_tap(tap);
            tapped
        });
        let mut received = Vec::with_capacity(BATCH);
        let frames = frames(flows);
        let mut frames = frames.iter().cycle();
        let mut now = 0;
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|batches| {
                let start = cpu_time();
                for _ in 0..batches {
                    now += INTERVAL;
                    for frame in frames.by_ref().take(BATCH) {
                        let mut packet = switch.pool.take().unwrap();
                        packet.frame.set(frame);
                        received.push(packet);
                    }
                    if switch.is_tapped() {
                        switch.tap(STATION, &received, now);
                    }
                    received.drain(..).for_each(|packet| switch.receive(STATION, packet, now));
                    tapped.iter().for_each(|tapped| while tapped.frames.try_recv().is_ok() {});
                    switch.serve(now + INTERVAL / 2);
                    let mut sent = 0;
                    switch.send(|_, port| sent += port.output.len());
                    assert_eq!(sent, BATCH);
                }
                cpu_time() - start
            });
        });
    }
    // One flow: the reference looks through its entries one by one.
    let store = switch(1, None).1;
    let setup = Setup { ports: vec![STATION, UPLINK], cpu_port: Some(CPU_PORT), queues: 8, seed: 1 };
    let mut reference = Reference::load(&ap_json(), setup).unwrap();
    reference.sync(&store, 0);
    let frame = udp_frame(0, 60);
    let mut now = 0;
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::from_parameter("1_flow_reference"), |bencher| {
        bencher.iter_custom(|packets| {
            let start = cpu_time();
            for _ in 0..packets {
                now += INTERVAL;
                assert_eq!(reference.receive(STATION, &frame, now).len(), 1);
            }
            cpu_time() - start
        });
    });
    group.finish();
}

/// From JSON to native code.
fn load(criterion: &mut Criterion) {
    let json = ap_json();
    criterion.bench_function("load", |bencher| {
        bencher.iter_custom(|times| {
            let start = cpu_time();
            (0..times).for_each(|_| drop(Program::load(&json).unwrap()));
            cpu_time() - start
        });
    });
}

criterion_group!(benches, pipeline, load);
criterion_main!(benches);
