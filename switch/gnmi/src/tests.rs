// SPDX-License-Identifier: Apache-2.0
//! Ports that clients add and remove, on veth pairs in a network namespace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apswitch_core::state::frame::Pool;
use apswitch_dataplane::control::{Dataplane, DataplaneConfig, Events, PortConfig, PortNumber, Program, at_once};
use apswitch_dataplane::peer::{self, Peer};
use apswitch_dataplane::port::{PacketPort, PortIo};
use serde_json::{Value as Json, json};
use tonic::{Code, Request, Status};

use super::proto::gnmi;
use super::proto::gnmi::g_nmi_server::GNmi;
use super::proto::gnmi::typed_value::Value as Typed;
use super::service::Service;
use super::shared::Shared;

#[path = "../../dataplane/tests/common/namespace.rs"]
mod namespace;
use namespace::{enter, pair};

const SOON: Duration = Duration::from_secs(60);
const CPU_PORT: PortNumber = 510;

/// A switch with the interface `s1` as port 1, and its gNMI service.
struct Lab {
    runtime: tokio::runtime::Runtime,
    dataplane: Dataplane,
    _events: Events,
    service: Service,
    pool: Pool,
}

/// `/a/b[k=v]/c`
fn path(text: &str) -> gnmi::Path {
    let elem = |step: &str| {
        let (name, rest) = step.split_once('[').unwrap_or((step, ""));
        let key = rest.trim_end_matches(']').split_once('=').map(|(key, value)| (key.into(), value.into()));
        gnmi::PathElem { name: name.into(), key: key.into_iter().collect() }
    };
    let elem = text.split('/').filter(|step| !step.is_empty()).map(elem).collect();
    gnmi::Path { elem, ..Default::default() }
}

fn update((at, value): (&str, Json)) -> gnmi::Update {
    let val = Some(gnmi::TypedValue { value: Some(Typed::JsonIetfVal(value.to_string().into_bytes())) });
    gnmi::Update { path: Some(path(at)), val, ..Default::default() }
}

fn request<const D: usize, const U: usize>(delete: [&str; D], updates: [(&str, Json); U]) -> gnmi::SetRequest {
    let (delete, update) = (delete.map(path).to_vec(), updates.map(update).to_vec());
    gnmi::SetRequest { delete, update, ..Default::default() }
}

impl Lab {
    /// `None`: there are no namespaces.
    fn new() -> Option<Lab> {
        if !enter() {
            return None;
        }
        (1..=3).for_each(|number| pair(&format!("s{number}"), &format!("h{number}")));
        let ports = vec![PortConfig { number: 1, interface: "s1".into(), link: None }];
        let config = DataplaneConfig {
            ports,
            cpu_port: Some(CPU_PORT),
            priority_queues: 8,
            seed: 1,
            capture: None,
            aside: at_once,
        };
        let (dataplane, events) = Dataplane::start(config).unwrap();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/features.json");
        dataplane.commit_blocking(Program::load(&std::fs::read(program).unwrap()).unwrap()).unwrap();
        let service = Service(Arc::new(Shared::new(dataplane.clone())));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Some(Lab { runtime, dataplane, _events: events, service, pool: Pool::new(2048, 16) })
    }

    fn try_set(&self, request: impl Into<Request<gnmi::SetRequest>>) -> Result<(), Status> {
        self.runtime.block_on(self.service.set(request.into())).map(drop)
    }

    fn set<const D: usize, const U: usize>(&self, delete: [&str; D], updates: [(&str, Json); U]) {
        self.try_set(Request::new(request(delete, updates))).unwrap();
    }

    /// Checks that a request is refused, and that nothing of it happens.
    fn refused(&self, code: Code, text: &str, request: gnmi::SetRequest) {
        let (ports, config) = (self.dataplane.port_numbers(), self.get("/", gnmi::get_request::DataType::Config));
        let status = self.try_set(Request::new(request)).unwrap_err();
        assert_eq!((status.code(), status.message().contains(text)), (code, true), "{status:?}");
        assert_eq!(ports, self.dataplane.port_numbers());
        assert_eq!(config, self.get("/", gnmi::get_request::DataType::Config));
    }

    fn get(&self, at: &str, kind: gnmi::get_request::DataType) -> Json {
        let encoding = gnmi::Encoding::JsonIetf.into();
        let request = gnmi::GetRequest { path: vec![path(at)], encoding, r#type: kind.into(), ..Default::default() };
        let answer = self.runtime.block_on(self.service.get(Request::new(request))).unwrap().into_inner();
        match &answer.notification[0].update[0].val.as_ref().unwrap().value {
            Some(Typed::JsonIetfVal(text)) => serde_json::from_slice(text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Numbers by interface, as gNMI has them: those that P4Runtime takes for ports.
    fn ports(&self) -> BTreeMap<String, u64> {
        let interfaces = self.get("/", gnmi::get_request::DataType::State);
        let Some(list) = interfaces["openconfig-interfaces:interfaces"]["interface"].as_array() else {
            assert!(self.dataplane.port_numbers().is_empty());
            return BTreeMap::new();
        };
        let port = |entry: &Json| {
            let state = &entry["state"];
            assert_eq!(state["openconfig-p4rt:id"], state["ifindex"]);
            (entry["name"].as_str().unwrap().to_string(), state["ifindex"].as_u64().unwrap())
        };
        let ports: BTreeMap<_, _> = list.iter().map(port).collect();
        let mut numbers = self.dataplane.port_numbers();
        numbers.sort_unstable();
        let mut listed: Vec<_> = ports.values().map(|number| *number as PortNumber).collect();
        listed.sort_unstable();
        assert_eq!(listed, numbers);
        ports
    }

    fn is(&self, ports: &[(&str, u64)]) {
        assert_eq!(self.ports(), ports.iter().map(|(name, number)| (name.to_string(), *number)).collect());
    }

    /// Returns true if a frame that comes in at `from` for port `to` leaves by `interface`.
    fn passes(&mut self, from: &mut PacketPort, to: u8, interface: &mut PacketPort) -> bool {
        // Kind 0x15 goes to the port that is its value (see testdata/programs/features.p4).
        let request = [&[0x15, 0, 0, 0, 0, to][..], &[to; 54]].concat();
        let mut packets = vec![self.pool.take().unwrap()];
        packets[0].frame.set(&request);
        let drops = self.dataplane.drops().no_port;
        from.send(&mut packets).unwrap();
        let deadline = Instant::now() + SOON;
        loop {
            let received = interface.receive(&mut packets).map_or(0, |received| received.packets);
            let found = received == 1 && packets[0].frame.bytes().ends_with(&request);
            if found || self.dataplane.drops().no_port > drops {
                packets.into_iter().for_each(|packet| self.pool.give(packet));
                return found;
            }
            assert!(Instant::now() < deadline, "it is nowhere");
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn id(interface: &str) -> String {
    format!("/interfaces/interface[name={interface}]/config/id")
}

#[test]
fn ports_that_cannot_come_are_refused_with_the_mend() {
    let Some(lab) = Lab::new() else { return };
    let add = |interface: &str, number: u64| request([], [(&*id(interface), json!(number))]);
    let (invalid, missing) = (Code::InvalidArgument, Code::NotFound);
    lab.refused(missing, "no such interface `s9`: create it", add("s9", 2));
    lab.refused(Code::AlreadyExists, "1 is the port of s1: give another number, or delete s1", add("s2", 1));
    lab.refused(invalid, "s1 is port 1 until", add("s1", 2));
    lab.refused(invalid, "below 511 that is not the CPU port's", add("s2", CPU_PORT.into()));
    lab.refused(invalid, "below 511", add("s2", 511));
    lab.refused(invalid, "70000 is no port's number", add("s2", 70_000));
    let enabled = "/interfaces/interface[name=s2]/config/enabled";
    lab.refused(missing, "no interface s2: give its config/id", request([], [(enabled, json!(true))]));
    let named = json!({"interface": [{"name": "s2", "config": {"name": "s2"}}]});
    lab.refused(missing, "no interface s2: give its config/id", request([], [("/interfaces", named)]));
    lab.refused(invalid, "delete the interface itself", request([&id("s1")], []));
    // What is good beside it does not happen either.
    lab.refused(missing, "s9", request([], [(&id("s2"), json!(2)), (&id("s9"), json!(9))]));
    lab.refused(missing, "s9", request(["/interfaces/interface[name=s1]"], [(&id("s9"), json!(1))]));
    lab.refused(Code::AlreadyExists, "2 is", request([], [(&id("s2"), json!(2)), (&id("s3"), json!(2))]));
    let renumbered = request(["/interfaces/interface[name=s1]"], [(&id("s1"), json!(7))]);
    lab.refused(invalid, "s1 is port 1 until this request has ended", renumbered);
    let mtu = json!({"id": 2, "mtu": 9000});
    lab.refused(invalid, "always 1500", request([], [("/interfaces/interface[name=s2]/config", mtu)]));
    let many = (0..65).map(|number| json!({"name": format!("x{number}"), "config": {"id": 100 + number}}));
    let many = json!({"interface": many.collect::<Vec<_>>()});
    lab.refused(Code::ResourceExhausted, "65 ports", request([], [("/interfaces", many)]));

    let rights = peer::rights(&["client=default-role".parse().unwrap()], &["client".to_string()]);
    let (address, names) = ("127.0.0.1:1".parse().unwrap(), Arc::from(["client".to_string()]));
    let mut stranger = Request::new(add("s3", 3));
    stranger.extensions_mut().insert(Peer { address, names, rights: Arc::new(rights), under_way: Arc::default() });
    let status = lab.try_set(stranger).unwrap_err();
    assert!(status.code() == Code::PermissionDenied && status.message().contains("--allow"), "{status:?}");
    lab.is(&[("s1", 1)]);
    lab.dataplane.stop();
}

#[test]
fn ports_come_and_go_over_gnmi() {
    let Some(mut lab) = Lab::new() else { return };
    let [mut h1, mut h2, _h3] = ["h1", "h2", "h3"].map(|name| PacketPort::open(name).unwrap());
    assert!(!lab.passes(&mut h1, 2, &mut h2));
    // All that a Get of its configuration would say, and a link model; the other one is not enabled.
    let config = json!({"name": "s2", "type": "iana-if-type:ethernetCsmacd", "mtu": 1500, "id": 2, "enabled": true});
    let s2 = json!({"config": config, "apswitch-queues:link-model": {"config": {"delay": "1000000"}}});
    let s3 = json!({"config": {"openconfig-p4rt:id": 3, "enabled": false}});
    lab.set([], [("/interfaces/interface[name=s2]", s2), ("/interfaces/interface[name=s3]", s3)]);
    lab.is(&[("s1", 1), ("s2", 2), ("s3", 3)]);
    let views = lab.dataplane.views();
    assert_eq!(views[1].1.link.as_ref().unwrap().delay_ns, 1_000_000);
    assert!(views[1].1.enabled && views[1].0.up && !views[2].1.enabled && !views[2].0.up);
    assert!(lab.passes(&mut h1, 2, &mut h2));

    // A port keeps its number whatever is deleted or replaced but itself.
    let only = request([], [("/interfaces/interface[name=s2]/config", json!({"enabled": false}))]).update;
    lab.try_set(Request::new(gnmi::SetRequest { replace: only, ..Default::default() })).unwrap();
    assert!(!lab.dataplane.views()[1].1.enabled);
    lab.set(["/interfaces", "/", "/interfaces/interface[name=s2]/config"], []);
    lab.is(&[("s1", 1), ("s2", 2), ("s3", 3)]);
    assert!(lab.dataplane.views().iter().all(|(_, view)| view.enabled));

    // What was set for a port goes with it.
    let name = json!("gold");
    let policy = ("/qos/scheduler-policies/scheduler-policy[name=gold]/config/name", name.clone());
    let binding = ("/qos/interfaces/interface[interface-id=s2]/output/scheduler-policy/config/name", name);
    lab.set([], [policy, binding]);
    lab.set(["/interfaces/interface[name=s2]"], []);
    lab.is(&[("s1", 1), ("s3", 3)]);
    assert!(!lab.passes(&mut h1, 2, &mut h2));
    // What is not there may be deleted.
    lab.set(["/interfaces/interface[name=s2]"], []);
    // In one request another interface takes a number, and an interface gets what it had.
    lab.set(
        ["/interfaces/interface[name=s3]", "/interfaces/interface[name=s1]"],
        [(&id("s2"), json!(3)), (&id("s1"), json!(1))],
    );
    lab.is(&[("s1", 1), ("s2", 3)]);
    assert!(lab.passes(&mut h1, 3, &mut h2));
    assert!(lab.dataplane.views()[1].1.link.is_none());

    // All of them go, and come back as they were.
    let config = lab.get("/interfaces", gnmi::get_request::DataType::Config);
    lab.set(["/interfaces/interface[name=*]"], []);
    lab.is(&[]);
    lab.set([], [("/interfaces", config)]);
    lab.is(&[("s1", 1), ("s2", 3)]);
    assert!(lab.passes(&mut h1, 3, &mut h2));
    lab.dataplane.stop();
}

#[test]
fn who_adds_and_removes_without_end_holds_no_more_than_there_is() {
    let Some(lab) = Lab::new() else { return };
    let sockets = || {
        let files =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        files.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    };
    let before = sockets();
    for _ in 0..100 {
        lab.set([], [(&id("s2"), json!(2)), (&id("s3"), json!(3))]);
        lab.set(["/interfaces/interface[name=s2]", "/interfaces/interface[name=s3]"], []);
    }
    lab.is(&[("s1", 1)]);
    // Other tests of this process have sockets, too.
    assert!(sockets() < before + 50, "{before}, then {}", sockets());
    lab.dataplane.stop();
}
