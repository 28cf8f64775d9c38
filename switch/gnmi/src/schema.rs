// SPDX-License-Identifier: Apache-2.0
//! The part of OpenConfig that this target has, and what it adds, as a tree. Names, types and units are those of the
//! YANG modules in [`MODELS`].

use apswitch_dataplane::control::Drops;

use super::value::Type;
use super::value::Type::{Bool, Enum, Fraction, Identity, Long, Text, Uint};

/// Name, organization and version of the models.
pub const MODELS: [(&str, &str, &str); 5] = [
    ("openconfig-interfaces", "OpenConfig working group", "3.8.1"),
    ("openconfig-if-rates", "OpenConfig working group", "0.1.0"),
    ("openconfig-p4rt", "OpenConfig working group", "1.0.0"),
    ("openconfig-qos", "OpenConfig working group", "2.2.0"),
    (OWN, "apswitch", "0.2.0"),
];

const OWN: &str = "apswitch-queues";

#[derive(Debug)]
pub struct Node {
    pub name: &'static str,
    /// Module that defines it, if not its parent's.
    module: Option<&'static str>,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    /// The children may be in several lists: a `state` also has what `config` has.
    Container(&'static [&'static [Node]]),
    List {
        key: &'static str,
        children: &'static [&'static [Node]],
    },
    Leaf(Type),
    /// Below a `config`, but always as this target has it.
    Fixed(Type),
}

const fn node(name: &'static str, kind: Kind) -> Node {
    Node { name, module: None, kind }
}

const fn container(name: &'static str, children: &'static [&'static [Node]]) -> Node {
    node(name, Kind::Container(children))
}

const fn list(name: &'static str, key: &'static str, children: &'static [&'static [Node]]) -> Node {
    node(name, Kind::List { key, children })
}

const fn leaf(name: &'static str, kind: Type) -> Node {
    node(name, Kind::Leaf(kind))
}

const fn fixed(name: &'static str, kind: Type) -> Node {
    node(name, Kind::Fixed(kind))
}

const fn from(module: &'static str, node: Node) -> Node {
    Node { name: node.name, module: Some(module), kind: node.kind }
}

const U8: Type = Uint(u8::MAX as u64);
const U16: Type = Uint(u16::MAX as u64);
const U32: Type = Uint(u32::MAX as u64);

pub static ROOT: Node = container(
    "",
    &[&[
        from("openconfig-interfaces", container("interfaces", &[&[list("interface", "name", &[INTERFACE])]])),
        // Named as in openconfig-platform-pipeline-counters, whose reasons are those of other pipelines.
        from(OWN, container("pipeline-counters", &[&[container("drop", &[&[container("state", &[DROPS])]])]])),
        from("openconfig-qos", container("qos", &[QOS])),
    ]],
);

const INTERFACE: &[Node] = &[
    leaf("name", Text),
    container("config", &[INTERFACE_CONFIG]),
    container("state", &[INTERFACE_CONFIG, INTERFACE_STATE]),
    from(
        "openconfig-if-rates",
        container(
            "rates",
            &[&[container("config", &[RATES_CONFIG]), container("state", &[RATES_CONFIG, RATES_STATE])]],
        ),
    ),
    from(OWN, container("link-model", &[&[container("config", &[LINK_MODEL]), container("state", &[LINK_MODEL])]])),
];

const INTERFACE_CONFIG: &[Node] = &[
    fixed("name", Text),
    fixed("type", Identity("iana-if-type", &["ethernetCsmacd"])),
    fixed("mtu", U16),
    leaf("enabled", Bool),
    from("openconfig-p4rt", leaf("id", U32)),
];

const STATUS: Type = Enum(&["UP", "DOWN"]);

const INTERFACE_STATE: &[Node] = &[
    leaf("ifindex", U32),
    leaf("admin-status", STATUS),
    leaf("oper-status", STATUS),
    container(
        "counters",
        &[&[
            leaf("in-octets", Long),
            leaf("in-pkts", Long),
            leaf("in-errors", Long),
            leaf("out-octets", Long),
            leaf("out-pkts", Long),
            leaf("out-discards", Long),
            leaf("out-errors", Long),
            from(OWN, leaf("lost-pkts", Long)),
        ]],
    ),
];

const RATES_CONFIG: &[Node] = &[fixed("load-interval", U16)];

const RATES_STATE: &[Node] =
    &[leaf("out-bits-rate", Long), leaf("in-bits-rate", Long), leaf("out-pkts-rate", Long), leaf("in-pkts-rate", Long)];

const LINK_MODEL: &[Node] = &[leaf("delay", Long), leaf("jitter", Long), leaf("loss", Fraction), leaf("overhead", U32)];

const DROPS: &[Node] = &drops();

/// A leaf for each reason.
const fn drops() -> [Node; Drops::NAMES.len()] {
    let mut nodes = [const { leaf("", Long) }; Drops::NAMES.len()];
    let mut index = 0;
    while index < nodes.len() {
        nodes[index].name = Drops::NAMES[index];
        index += 1;
    }
    nodes
}

const QOS: &[Node] = &[
    container("interfaces", &[&[list("interface", "interface-id", &[QOS_INTERFACE])]]),
    container(
        "queues",
        &[&[list(
            "queue",
            "name",
            &[&[leaf("name", Text), container("config", &[QUEUE]), container("state", &[QUEUE])]],
        )]],
    ),
    container(
        "scheduler-policies",
        &[&[list(
            "scheduler-policy",
            "name",
            &[&[
                leaf("name", Text),
                container("config", &[NAME]),
                container("state", &[NAME]),
                container("schedulers", &[&[list("scheduler", "sequence", &[SCHEDULER])]]),
            ]],
        )]],
    ),
];

const NAME: &[Node] = &[leaf("name", Text)];
const FIXED_NAME: &[Node] = &[fixed("name", Text)];
const QUEUE: &[Node] = &[fixed("name", Text), fixed("queue-id", U8)];
const INTERFACE_ID: &[Node] = &[fixed("interface-id", Text)];
const REFERENCE: &[Node] = &[fixed("interface", Text)];

const QOS_INTERFACE: &[Node] = &[
    leaf("interface-id", Text),
    container("config", &[INTERFACE_ID]),
    container("state", &[INTERFACE_ID]),
    container("interface-ref", &[&[container("config", &[REFERENCE]), container("state", &[REFERENCE])]]),
    container(
        "output",
        &[&[
            container("scheduler-policy", &[&[container("config", &[NAME]), container("state", &[NAME])]]),
            container(
                "queues",
                &[&[list(
                    "queue",
                    "name",
                    &[&[
                        leaf("name", Text),
                        container("config", &[FIXED_NAME]),
                        container("state", &[FIXED_NAME, OUTPUT_QUEUE]),
                    ]],
                )]],
            ),
        ]],
    ),
];

const OUTPUT_QUEUE: &[Node] = &[
    leaf("max-queue-len", Long),
    leaf("transmit-pkts", Long),
    leaf("transmit-octets", Long),
    leaf("dropped-pkts", Long),
    leaf("dropped-octets", Long),
    from(OWN, leaf("enqueued-pkts", Long)),
    from(OWN, leaf("enqueued-octets", Long)),
    from(OWN, leaf("queue-len-pkts", Long)),
    from(OWN, leaf("queue-len-octets", Long)),
    from(OWN, leaf("sojourn-p50", Long)),
    from(OWN, leaf("sojourn-p99", Long)),
];

const SCHEDULER: &[Node] = &[
    leaf("sequence", U32),
    container("config", &[SCHEDULER_CONFIG]),
    container("state", &[SCHEDULER_CONFIG]),
    container(
        "inputs",
        &[&[list("input", "id", &[&[leaf("id", Text), container("config", &[INPUT]), container("state", &[INPUT])]])]],
    ),
    container("output", &[&[container("config", &[OUTPUT]), container("state", &[OUTPUT])]]),
    container("one-rate-two-color", &[&[container("config", &[SHAPER]), container("state", &[SHAPER])]]),
];

const SCHEDULER_CONFIG: &[Node] = &[
    leaf("sequence", U32),
    leaf("type", Identity("openconfig-qos-types", &["ONE_RATE_TWO_COLOR"])),
    leaf("priority", Enum(&["STRICT"])),
];

const INPUT: &[Node] =
    &[leaf("id", Text), leaf("input-type", Enum(&["QUEUE"])), leaf("queue", Text), leaf("weight", Long)];

const OUTPUT: &[Node] = &[leaf("output-type", Enum(&["INTERFACE"]))];

const SHAPER: &[Node] = &[
    leaf("cir", Long),
    leaf("bc", U32),
    leaf("queuing-behavior", Enum(&["SHAPE"])),
    leaf("max-queue-depth-bytes", U32),
    leaf("max-queue-depth-packets", U32),
];

impl Node {
    pub fn children(&self) -> impl Iterator<Item = &'static Node> {
        let children: &'static [&'static [Node]] = match self.kind {
            Kind::Container(children) | Kind::List { children, .. } => children,
            Kind::Leaf(_) | Kind::Fixed(_) => &[],
        };
        children.iter().copied().flatten()
    }

    /// A child, by its name with or without its module in front.
    pub fn child(&self, name: &str) -> Option<&'static Node> {
        let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
        self.children().find(|child| child.name == name)
    }

    /// The key of a list.
    pub fn key(&self) -> Option<&'static str> {
        match self.kind {
            Kind::List { key, .. } => Some(key),
            _ => None,
        }
    }

    /// The type of a leaf.
    pub fn leaf_type(&self) -> Option<&Type> {
        match &self.kind {
            Kind::Leaf(kind) | Kind::Fixed(kind) => Some(kind),
            _ => None,
        }
    }

    /// The module of this node below one of `parent`.
    pub fn module(&self, parent: &'static str) -> &'static str {
        self.module.unwrap_or(parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(node: &'static Node, module: &'static str, found: &mut Vec<(&'static str, &'static str)>) {
        for child in node.children() {
            let module = child.module(module);
            match child.leaf_type() {
                Some(_) => found.push((child.name, module)),
                None => leaves(child, module, found),
            }
        }
    }

    #[test]
    fn the_page_names_every_leaf_and_the_module_our_own() {
        let page = include_str!("../../../docs/switch/queues.md");
        let module = include_str!("../../../docs/switch/apswitch-queues.yang");
        let mut found = Vec::new();
        leaves(&ROOT, "", &mut found);
        assert!(found.len() > 80, "{}", found.len());
        for (name, of) in found {
            assert!(page.contains(&format!("{name}`")), "{name} is not in docs/switch/queues.md");
            assert!(MODELS.iter().any(|(model, ..)| *model == of), "{name} is of {of}");
            assert!(of != OWN || module.contains(&format!("leaf {name} ")), "{name} is not in apswitch-queues.yang");
        }
    }
}
