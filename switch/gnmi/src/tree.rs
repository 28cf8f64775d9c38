// SPDX-License-Identifier: Apache-2.0
//! The data tree: what there is under each path now.

use std::collections::{BTreeMap, BTreeSet};

use apswitch_dataplane::control::{Dataplane, LinkView, PortView, QueueStats, WINDOW};
use tonic::Status;

use super::config::Leaves;
use super::path::{Path, Pattern};
use super::value::Value;

/// Leaves that a path may name at once. A port has about 150 of them, with eight queues.
pub const MAX_LEAVES: usize = 1 << 16;

/// Collects the leaves that are wanted.
struct Walk<'a> {
    wanted: &'a Pattern,
    at: Path,
    leaves: BTreeMap<Path, Value>,
    /// There are more than may be named.
    is_full: bool,
}

/// All leaves of a data plane with these ports that the pattern wants, in the order of their paths.
pub fn leaves(
    dataplane: &Dataplane,
    ports: &[(PortView, LinkView)],
    config: &Leaves,
    wanted: &Pattern,
) -> Result<BTreeMap<Path, Value>, Status> {
    let mut walk = Walk { wanted, at: Path::default(), leaves: BTreeMap::new(), is_full: false };
    walk.inside("interfaces", |walk| {
        for (port, link) in ports {
            walk.entry("interface", "name", &port.interface, |walk| interface(walk, port, link));
        }
    });
    walk.inside("pipeline-counters", |walk| {
        walk.inside("drop", |walk| {
            walk.inside("state", |walk| {
                for (reason, count, _) in dataplane.drops().reasons() {
                    walk.leaf(reason, count);
                }
            });
        });
    });
    walk.inside("qos", |walk| {
        walk.inside("interfaces", |walk| {
            for (port, link) in ports {
                walk.entry("interface", "interface-id", &port.interface, |walk| qos_interface(walk, port, link));
            }
        });
        walk.inside("queues", |walk| {
            let lanes = ports.iter().flat_map(|(_, link)| link.lanes.iter().map(|(lane, _)| *lane));
            for queue in (0..dataplane.queues()).chain(lanes).collect::<BTreeSet<_>>() {
                walk.entry("queue", "name", &queue.to_string(), |walk| {
                    walk.twice(|walk| {
                        walk.leaf("name", queue.to_string().as_str());
                        walk.leaf("queue-id", queue as u64);
                    });
                });
            }
        });
    });
    // Leaves that were set, and their states.
    for (path, value) in config {
        walk.set(path, value);
    }
    match walk.is_full {
        true => Err(Status::resource_exhausted(format!(
            "{wanted}: more than {MAX_LEAVES} leaves: ask for some of the ports at a time"
        ))),
        false => Ok(walk.leaves),
    }
}

impl Walk<'_> {
    fn take(&mut self, path: Path, value: impl FnOnce(&Path) -> Value) {
        if self.is_full || self.wanted.depth(&path.0).is_none() {
            return;
        }
        let value = value(&path);
        self.leaves.insert(path, value);
        self.is_full = self.leaves.len() > MAX_LEAVES;
    }

    fn step(&mut self, path: Path, body: impl FnOnce(&mut Self)) {
        if !self.is_full && self.wanted.may_match(&path.0) {
            let above = std::mem::replace(&mut self.at, path);
            body(self);
            self.at = above;
        }
    }

    fn inside(&mut self, name: &'static str, body: impl FnOnce(&mut Self)) {
        self.step(self.at.join(name, None), body);
    }

    fn entry(&mut self, list: &'static str, key: &'static str, value: &str, body: impl FnOnce(&mut Self)) {
        self.step(self.at.join(list, Some((key, value.to_string()))), |walk| {
            walk.leaf(key, value);
            body(walk);
        });
    }

    /// Adds the same leaves under `config` and `state`.
    fn twice(&mut self, body: impl Fn(&mut Self)) {
        self.inside("config", &body);
        self.inside("state", &body);
    }

    fn leaf(&mut self, name: &'static str, value: impl Into<Value>) {
        self.take(self.at.join(name, None), |_| value.into());
    }

    /// A leaf that was set, its twin below `state`, and the keys on the way.
    fn set(&mut self, path: &Path, value: &Value) {
        let mut twin = path.clone();
        for index in 0..twin.0.len() {
            if let Some((key, value)) = &path.0[index].key {
                self.take(Path(path.0[..=index].to_vec()).join(key, None), |at| at.key_value(value));
            }
            if twin.0[index].name == "config" {
                twin.0[index].name = "state";
            }
        }
        for path in [path.clone(), twin] {
            self.take(path, |_| value.clone());
        }
    }
}

fn interface(walk: &mut Walk, port: &PortView, link: &LinkView) {
    let stats = &port.stats;
    walk.twice(|walk| {
        walk.leaf("name", port.interface.as_str());
        walk.leaf("type", "ethernetCsmacd");
        if let Some(mtu) = link.mtu {
            walk.leaf("mtu", mtu as u64);
        }
        walk.leaf("enabled", true);
        walk.leaf("id", port.number as u64);
    });
    walk.inside("state", |walk| {
        let status = |up: bool| if up { "UP" } else { "DOWN" };
        walk.leaf("ifindex", port.number as u64);
        walk.leaf("admin-status", status(link.enabled));
        walk.leaf("oper-status", status(port.up));
        walk.inside("counters", |walk| {
            walk.leaf("in-octets", stats.rx_bytes);
            walk.leaf("in-pkts", stats.rx_packets);
            walk.leaf("in-errors", stats.rx_errors);
            walk.leaf("out-octets", stats.tx_bytes);
            walk.leaf("out-pkts", stats.tx_packets);
            walk.leaf("out-discards", stats.queue_drops);
            walk.leaf("out-errors", stats.tx_errors);
            walk.leaf("lost-pkts", stats.lost);
        });
    });
    walk.inside("rates", |walk| {
        walk.twice(|walk| walk.leaf("load-interval", WINDOW.as_secs()));
        walk.inside("state", |walk| {
            walk.leaf("out-bits-rate", link.window.out_bits);
            walk.leaf("in-bits-rate", link.window.in_bits);
            walk.leaf("out-pkts-rate", link.window.out_packets);
            walk.leaf("in-pkts-rate", link.window.in_packets);
        });
    });
}

fn qos_interface(walk: &mut Walk, port: &PortView, link: &LinkView) {
    walk.twice(|walk| walk.leaf("interface-id", port.interface.as_str()));
    walk.inside("interface-ref", |walk| walk.twice(|walk| walk.leaf("interface", port.interface.as_str())));
    walk.inside("output", |walk| {
        walk.inside("queues", |walk| {
            let lanes = link.lanes.iter().map(|(number, stats)| (*number, stats));
            for (number, stats) in link.queues.iter().enumerate().chain(lanes) {
                let name = number.to_string();
                walk.entry("queue", "name", &name, |walk| {
                    walk.twice(|walk| walk.leaf("name", name.as_str()));
                    walk.inside("state", |walk| {
                        output_queue(walk, stats, link.window.sojourn.get(number).copied().flatten())
                    });
                });
            }
        });
    });
}

fn output_queue(walk: &mut Walk, stats: &QueueStats, sojourn: Option<(u64, u64)>) {
    walk.leaf("max-queue-len", stats.max_bytes);
    walk.leaf("transmit-pkts", stats.sent_packets);
    walk.leaf("transmit-octets", stats.sent_bytes);
    walk.leaf("dropped-pkts", stats.dropped_packets);
    walk.leaf("dropped-octets", stats.dropped_bytes);
    walk.leaf("enqueued-pkts", stats.enqueued_packets);
    walk.leaf("enqueued-octets", stats.enqueued_bytes);
    walk.leaf("queue-len-pkts", stats.packets);
    walk.leaf("queue-len-octets", stats.bytes);
    if let Some((median, high)) = sojourn {
        walk.leaf("sojourn-p50", median);
        walk.leaf("sojourn-p99", high);
    }
}
