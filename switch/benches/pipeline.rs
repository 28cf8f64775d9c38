// SPDX-License-Identifier: Apache-2.0
//! The time that the access point's program takes for a packet, without any port: `cargo bench`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use apswitch::change::Outbox;
use apswitch::control::{LinkConfig, Program};
use apswitch::machine::frame::Pool;
use apswitch::machine::{Machine, Shared};
use apswitch::store::Store;
use apswitch::v1model::{Port, Switch};
use common::{CPU_PORT, STATION, UPLINK, ap_entries, ap_program, udp_frame};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const BATCH: usize = 64;

/// A switch that runs `program`; uplink with a link model or without.
fn switch(program: Program, flows: u32, link: Option<LinkConfig>) -> Switch {
    let (packet_ins, _) = tokio::sync::mpsc::channel(1);
    let (digests, _) = tokio::sync::mpsc::channel(1);
    let ports = vec![Port::new(STATION, None, 1), Port::new(UPLINK, link, 1)];
    let pool = Pool::new(2048, 4096);
    let mut switch = Switch::new(ports, pool, Some(CPU_PORT), 8, Outbox { packet_ins, digests }, 1);
    let program = Arc::new(program);
    let shared = Arc::new(Shared::new(&program));
    let (mut store, mut changes) = Store::new(program.clone(), shared.clone()).unwrap();
    switch.commit(Box::new(Machine::new(&program, shared, 1)));
    for update in ap_entries(&program, flows) {
        store.update(update, 0, &mut changes).unwrap();
    }
    changes.into_iter().for_each(|change| switch.apply(change, 0));
    switch
}

fn pipeline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pipeline");
    let queued = LinkConfig { rate: Some(1_000_000_000_000), ..Default::default() };
    for (name, flows, link) in
        [("1000_flows", 1000, None), ("65536_flows", 65_536, None), ("1000_flows_queued", 1000, Some(queued))]
    {
        let mut switch = switch(ap_program(), flows, link);
        let frames: Vec<_> = (0..flows).map(|flow| udp_frame(flow.wrapping_mul(7919) % flows, 60)).collect();
        let mut frames = frames.iter().cycle();
        let mut now = 0;
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| {
                now += 1_000_000;
                for frame in frames.by_ref().take(BATCH) {
                    let mut packet = switch.pool.take().unwrap();
                    packet.frame.set(frame);
                    switch.receive(STATION, packet, now);
                }
                switch.serve(now + 500_000);
                let sent: Vec<_> = switch.ports[1].output.drain(..).collect();
                assert_eq!(sent.len(), BATCH);
                sent.into_iter().for_each(|packet| switch.pool.give(packet));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
