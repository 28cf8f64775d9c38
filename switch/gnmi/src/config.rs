// SPDX-License-Identifier: Apache-2.0
//! The configuration that was set, and its meaning for the ports: scheduler policies and link models become
//! [`LinkConfig`]s, and the other way round at the start.

use std::collections::{BTreeMap, BTreeSet};

use apswitch_core::link::MAX_WEIGHT;
use apswitch_dataplane::control::{LinkConfig, QueueConfig};
use tonic::Status;

use super::path::{Path, Step};
use super::value::Value;

/// Every leaf that was set, under its path below a `config`.
pub type Leaves = BTreeMap<Path, Value>;

/// Packets that the queues of a port may be given memory for.
const MAX_QUEUE_PACKETS: u64 = 1 << 20;
const MAX_RATE: u64 = 1_000_000_000_000_000;
const MAX_DELAY_NS: u64 = 60_000_000_000;

/// A port as the configuration knows it.
pub struct Port {
    pub interface: String,
    /// In effect now.
    pub link: Option<LinkConfig>,
}

/// Settings of a port by a configuration.
#[derive(Debug, PartialEq)]
pub struct Meaning {
    pub enabled: bool,
    /// `None`: no queues.
    pub link: Option<LinkConfig>,
}

/// Names the interface that is missing, and the fix.
pub fn no_interface(name: &str) -> String {
    format!("there is no interface {name}: give its config/id, the number of its port, to add it")
}

fn refuse<T>(text: String) -> Result<T, Status> {
    Err(Status::invalid_argument(text))
}

fn steps<const N: usize>(parts: [(&'static str, Option<(&'static str, &str)>); N]) -> Path {
    let step =
        |(name, key): (_, Option<(&'static str, &str)>)| Step { name, key: key.map(|(k, v)| (k, v.to_string())) };
    Path(parts.map(step).to_vec())
}

fn policy_path(name: &str) -> Path {
    steps([("qos", None), ("scheduler-policies", None), ("scheduler-policy", Some(("name", name)))])
}

fn binding_path(interface: &str) -> Path {
    let interface = Some(("interface-id", interface));
    let above = [("qos", None), ("interfaces", None), ("interface", interface), ("output", None)];
    steps(above).join("scheduler-policy", None).join("config", None).join("name", None)
}

fn interface_path(name: &str) -> Path {
    steps([("interfaces", None), ("interface", Some(("name", name)))])
}

/// The leaves that stand for the ports as they were started: a policy for each one that has a link model, under the
/// name of the interface.
pub fn of_start(ports: &[Port]) -> Leaves {
    let mut leaves = Leaves::new();
    for Port { interface, link } in ports {
        let Some(link) = link else { continue };
        let model = interface_path(interface).join("link-model", None).join("config", None);
        for (name, value) in [("delay", link.delay_ns), ("jitter", link.jitter_ns), ("overhead", link.overhead.into())]
        {
            if value > 0 {
                leaves.insert(model.join(name, None), value.into());
            }
        }
        if link.loss > 0.0 {
            leaves.insert(model.join("loss", None), Value::Fraction(link.loss));
        }
        let mut sequence = 0;
        let mut scheduler = |shaper: [Option<u64>; 4], own: &[(&'static str, Value)]| {
            let path = policy_path(interface)
                .join("schedulers", None)
                .join("scheduler", Some(("sequence", sequence.to_string())));
            sequence += 1;
            for (name, value) in SHAPER.into_iter().zip(shaper) {
                if let Some(value) = value {
                    let shaper = path.join("one-rate-two-color", None).join("config", None);
                    // Only the rate has 64 bits there; who allows more bytes than 32 bits can say means all.
                    let most = if name == "cir" { u64::MAX } else { u32::MAX.into() };
                    leaves.insert(shaper.join(name, None), value.min(most).into());
                    leaves.insert(path.join("config", None).join("type", None), "ONE_RATE_TWO_COLOR".into());
                }
            }
            for (name, value) in own {
                let below = match *name {
                    "priority" => path.join("config", None),
                    "output-type" => path.join("output", None).join("config", None),
                    _ => path.join("inputs", None).join("input", Some(("id", own[0].1.text()))).join("config", None),
                };
                leaves.insert(below.join(name, None), value.clone());
            }
        };
        let shaper = [link.rate, some(link.burst.into()), Some(link.limit_packets.into()), link.limit_bytes];
        scheduler(shaper, &[("output-type", "INTERFACE".into())]);
        let order = |weighted| move |(_, queue): &(usize, &QueueConfig)| queue.weight.is_some() == weighted;
        let queues = || link.queues.iter().enumerate().rev().filter(|(_, queue)| **queue != QueueConfig::default());
        for (number, queue) in queues().filter(order(false)).chain(queues().filter(order(true))) {
            let shaper = [queue.rate, some(queue.burst.into()), queue.limit_packets.map(u64::from), queue.limit_bytes];
            let kind = match queue.weight {
                None => ("priority", "STRICT".into()),
                Some(weight) => ("weight", u64::from(weight).into()),
            };
            scheduler(shaper, &[("queue", number.to_string().as_str().into()), ("input-type", "QUEUE".into()), kind]);
        }
        leaves.insert(binding_path(interface), interface.as_str().into());
    }
    with_keys(&mut leaves);
    leaves
}

const SHAPER: [&str; 4] = ["cir", "bc", "max-queue-depth-packets", "max-queue-depth-bytes"];

fn some(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

/// Entries of lists have their keys among their leaves, whoever made them.
pub fn with_keys(leaves: &mut Leaves) {
    let mut keys = Leaves::new();
    for path in leaves.keys().filter(|path| path.has(1, "scheduler-policies")) {
        for (index, step) in path.0.iter().enumerate() {
            if let Some((key, value)) = &step.key {
                let at = Path(path.0[..=index].to_vec()).join("config", None).join(key, None);
                // A key that its type does not have is refused with the rest of the entry.
                let value = at.key_value(value);
                keys.insert(at, value);
            }
        }
    }
    leaves.extend(keys);
}

/// The port that a leaf is about; `None`: one of a policy, which is nobody's.
pub fn interface_of(path: &Path) -> Option<&str> {
    if path.has(1, "scheduler-policies") { None } else { path.key("interface") }
}

/// Returns the settings of each port by the configuration, or an error that names the leaf at fault.
pub fn meaning(leaves: &Leaves, ports: &[Port], queues: usize) -> Result<Vec<Meaning>, Status> {
    for path in leaves.keys() {
        if let Some(name) = interface_of(path)
            && !ports.iter().any(|port| port.interface == name)
        {
            return Err(Status::not_found(format!("{path}: {}", no_interface(name))));
        }
    }
    // Every policy, so that one is not found to be wrong only when an interface takes it.
    let policies = leaves.keys().filter(|path| path.has(1, "scheduler-policies"));
    let policies: BTreeSet<&str> = policies.filter_map(|path| path.key("scheduler-policy")).collect();
    let policies = policies.into_iter().map(|name| Ok((name, policy(leaves, name, queues)?)));
    let policies: BTreeMap<&str, LinkConfig> = policies.collect::<Result<_, Status>>()?;
    let of_port = |port: &Port| {
        let model = |name| {
            leaves.get(&interface_path(&port.interface).join("link-model", None).join("config", None).join(name, None))
        };
        let number = |name, most| match model(name) {
            Some(Value::Number(value)) if *value <= most => Ok(*value),
            Some(Value::Number(value)) => refuse(format!("{}: {name} {value} is above {most}", port.interface)),
            _ => Ok(0),
        };
        let mut link = match leaves.get(&binding_path(&port.interface)).map(Value::text) {
            None => None,
            Some(name) => match policies.get(name.as_str()) {
                Some(link) => Some(link.clone()),
                None => return refuse(format!("{}: there is no scheduler-policy {name}", port.interface)),
            },
        };
        let modelled = ["delay", "jitter", "loss", "overhead"].iter().any(|name| model(name).is_some());
        let trace = port.link.as_ref().and_then(|link| link.trace.clone());
        if port.link.is_some() && link.is_none() {
            // Queues that there are do not go away; nothing waits in them any more.
            link = Some(LinkConfig { limit_packets: UNLIMITED, ..Default::default() });
        }
        if link.is_none() && modelled {
            link = Some(LinkConfig::default());
        }
        if let Some(link) = &mut link {
            if trace.is_some() && link.rate.is_some() {
                return refuse(format!("{}: its link plays a trace in place of a rate: give no cir", port.interface));
            }
            link.trace = trace;
            link.delay_ns = number("delay", MAX_DELAY_NS)?;
            link.jitter_ns = number("jitter", MAX_DELAY_NS)?;
            link.overhead = number("overhead", 1 << 16)? as u32;
            link.loss = match model("loss") {
                Some(Value::Fraction(loss)) => *loss,
                _ => 0.0,
            };
        }
        let enabled = interface_path(&port.interface).join("config", None).join("enabled", None);
        Ok(Meaning { enabled: leaves.get(&enabled) != Some(&Value::Bool(false)), link })
    };
    ports.iter().map(of_port).collect()
}

/// More than passes between two looks at the queues.
const UNLIMITED: u32 = 1 << 14;

#[derive(Default)]
struct Scheduler {
    strict: bool,
    to_interface: bool,
    /// Queue and weight by id.
    inputs: BTreeMap<String, (Option<String>, Option<u64>)>,
    /// As [`SHAPER`].
    shaper: [Option<u64>; 4],
}

/// Compiles a scheduler policy to a link's configuration: schedulers with strict priority from the highest queue down,
/// then those that share by weight, as one round, and one whose output is the interface, for the port as a whole.
fn policy(leaves: &Leaves, name: &str, queues: usize) -> Result<LinkConfig, Status> {
    let mut schedulers: BTreeMap<u64, Scheduler> = BTreeMap::new();
    let whole = policy_path(name);
    let own = leaves.range(whole.clone()..).take_while(|(path, _)| path.starts_with(&whole));
    for (path, value) in own {
        let Some(sequence) = path.key("scheduler") else { continue };
        let Ok(sequence) = sequence.parse::<u32>() else {
            return refuse(format!("{path}: the sequence {sequence} is not a number of 32 bits"));
        };
        let scheduler = schedulers.entry(sequence.into()).or_default();
        let number = match value {
            Value::Number(number) => Some(*number),
            _ => None,
        };
        match (path.key("input"), path.name()) {
            (Some(id), leaf) => {
                let input = scheduler.inputs.entry(id.to_string()).or_default();
                match leaf {
                    "queue" => input.0 = Some(value.text()),
                    "weight" => input.1 = number,
                    _ => {}
                }
            }
            (None, "priority") => scheduler.strict = true,
            (None, "output-type") => scheduler.to_interface = true,
            (None, leaf) => {
                if let Some(at) = SHAPER.iter().position(|name| *name == leaf) {
                    scheduler.shaper[at] = number;
                }
            }
        }
    }
    let mut link = LinkConfig::default();
    let (mut has_port, mut taken, mut last_strict, mut weighted) = (false, BTreeSet::new(), usize::MAX, false);
    for (sequence, scheduler) in schedulers {
        let at = format!("scheduler-policy {name}, scheduler {sequence}");
        let [rate, burst, packets, bytes] = scheduler.shaper;
        if burst.is_some() && rate.is_none() {
            return refuse(format!("{at}: bc without cir"));
        }
        if let Some(rate) = rate.filter(|rate| !(1..=MAX_RATE).contains(rate)) {
            return refuse(format!("{at}: cir {rate} is not from 1 to {MAX_RATE}"));
        }
        if let Some(packets) = packets.filter(|packets| *packets > MAX_QUEUE_PACKETS) {
            return refuse(format!("{at}: max-queue-depth-packets {packets} is above {MAX_QUEUE_PACKETS}"));
        }
        let (burst, packets) = (burst.unwrap_or(0) as u32, packets.map(|packets| packets as u32));
        if scheduler.to_interface {
            if has_port || scheduler.strict || !scheduler.inputs.is_empty() {
                let only = "output-type INTERFACE is for one scheduler without inputs and priority";
                return refuse(format!("{at}: {only}, whose one-rate-two-color is the port's"));
            }
            has_port = true;
            (link.rate, link.burst, link.limit_bytes) = (rate, burst, bytes);
            link.limit_packets = packets.unwrap_or(link.limit_packets);
            continue;
        }
        let shapes = scheduler.shaper.iter().any(Option::is_some);
        if scheduler.inputs.is_empty() || shapes && scheduler.inputs.len() > 1 {
            return refuse(format!("{at}: one-rate-two-color needs one input (or output-type INTERFACE and none)"));
        }
        let mut of_scheduler = Vec::new();
        for (id, (queue, weight)) in scheduler.inputs {
            let number = queue.as_ref().and_then(|queue| queue.parse::<usize>().ok()).filter(|number| *number < queues);
            let Some(number) = number else {
                let given = queue.unwrap_or_default();
                return refuse(format!("{at}, input {id}: queue {given:?} is not within 0 to {}", queues - 1));
            };
            if !taken.insert(number) {
                return refuse(format!("{at}, input {id}: queue {number} is an input already"));
            }
            of_scheduler.push(number);
            let weight = match (scheduler.strict, weight) {
                (true, None) => None,
                (true, Some(_)) => return refuse(format!("{at}, input {id}: strict priority has no weight")),
                (false, weight) => match weight.unwrap_or(1) {
                    weight if (1..=MAX_WEIGHT.into()).contains(&weight) => Some(weight as u32),
                    weight => {
                        return refuse(format!("{at}, input {id}: weight {weight} is not from 1 to {MAX_WEIGHT}"));
                    }
                },
            };
            link.queues[number] = QueueConfig { limit_packets: packets, limit_bytes: bytes, rate, burst, weight };
        }
        if scheduler.strict {
            of_scheduler.sort_unstable_by(|a, b| b.cmp(a));
            if weighted || of_scheduler[0] >= last_strict {
                return refuse(format!("{at}: strict priority comes first, and the highest queue first of all"));
            }
            last_strict = *of_scheduler.last().unwrap_or(&0);
        }
        weighted |= !scheduler.strict;
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ports(link: Option<LinkConfig>) -> Vec<Port> {
        vec![Port { interface: "other".into(), link: None }, Port { interface: "veth/2".into(), link }]
    }

    fn queue() -> impl Strategy<Value = QueueConfig> {
        let limits = (prop::option::of(0u32..=MAX_QUEUE_PACKETS as u32), prop::option::of(0..=u64::from(u32::MAX)));
        let rate = prop::option::of((1..=MAX_RATE, any::<u32>()));
        let weight = prop::option::of(1..=MAX_WEIGHT);
        let queue = (limits, rate, weight).prop_map(|((limit_packets, limit_bytes), rate, weight)| {
            let (rate, burst) = (rate.map(|(rate, _)| rate), rate.map_or(0, |(_, burst)| burst));
            QueueConfig { limit_packets, limit_bytes, rate, burst, weight }
        });
        prop_oneof![Just(QueueConfig::default()), queue]
    }

    proptest! {
        /// Checks that the command line's links are a configuration that means the same.
        #[test]
        fn a_start_is_a_configuration(
            queues in prop::array::uniform8(queue()),
            port in queue(),
            limit_packets in 0..=MAX_QUEUE_PACKETS as u32,
            delays in (0..=MAX_DELAY_NS, 0..=MAX_DELAY_NS, prop_oneof![Just(0.0), 0.0..=1.0], 0u32..=1 << 16),
        ) {
            let (delay_ns, jitter_ns, loss, overhead) = delays;
            let QueueConfig { rate, burst, limit_bytes, .. } = port;
            let link = LinkConfig {
                rate, burst, limit_bytes, limit_packets, delay_ns, jitter_ns, loss, overhead, queues, trace: None,
            };
            let ports = ports(Some(link.clone()));
            let meant = meaning(&of_start(&ports), &ports, 8).unwrap();
            prop_assert_eq!(&meant[0], &Meaning { enabled: true, link: None });
            prop_assert_eq!(&meant[1], &Meaning { enabled: true, link: Some(link) });
        }
    }

    #[test]
    fn queues_that_lose_their_policy_hold_nothing_back() {
        let ports = ports(Some(LinkConfig { rate: Some(1000), ..Default::default() }));
        let left = meaning(&Leaves::new(), &ports, 8).unwrap().remove(1).link.unwrap();
        assert_eq!((left.rate, left.delay_ns, left.limit_packets >= 1000), (None, 0, true));
    }

    #[test]
    fn a_trace_stays_and_allows_no_rate() {
        let trace = std::sync::Arc::new(apswitch_core::link_trace::Trace::parse("1\n").unwrap());
        let with_trace = |rate| LinkConfig { rate, trace: Some(trace.clone()), ..Default::default() };
        let ports = ports(Some(with_trace(None)));
        let mut leaves = of_start(&ports);
        assert_eq!(meaning(&leaves, &ports, 8).unwrap()[1].link, Some(with_trace(None)));
        leaves.extend(of_start(&[Port { interface: "veth/2".into(), link: Some(with_trace(Some(1000))) }]));
        assert!(meaning(&leaves, &ports, 8).unwrap_err().message().contains("give no cir"));
    }
}
