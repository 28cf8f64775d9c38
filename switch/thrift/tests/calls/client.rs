// SPDX-License-Identifier: Apache-2.0
//! A switch whose runtime interface is called over a connection, and what calls are made of.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use apswitch_dataplane::control::*;
use apswitch_thrift::message::{Answer, Calls, Fields, Value as Wire, call};
use apswitch_thrift::notifications::{Socket, publish};
use apswitch_thrift::{Device, Server};
use tempfile::TempDir;
use thrift::protocol::TType;

/// Kind of a `TApplicationException`.
const UNKNOWN_METHOD: i32 = 1;

/// A switch with a program of testdata and a client.
pub struct Switch {
    pub dataplane: Dataplane,
    pub client: TcpStream,
    answers: std::cell::RefCell<Calls<BufReader<TcpStream>>>,
    sequence: AtomicI32,
    pub ends: Vec<MemoryEnd>,
    /// Path of the notifications, whose socket is there as long as this.
    pub notifications: PathBuf,
    _socket: Socket,
    _events: Events,
    _directory: TempDir,
}

impl Switch {
    pub fn start(program: &str) -> Switch {
        let port = |number| PortConfig { number, interface: format!("port{number}"), link: None };
        let config = DataplaneConfig {
            ports: vec![port(1), port(2)],
            cpu_port: None,
            priority_queues: 1,
            seed: 1,
            capture: None,
            aside: at_once,
        };
        let (dataplane, mut events, ends) = Dataplane::start_in_memory(config).unwrap();
        let path = format!("{}/../testdata/programs/{program}.json", env!("CARGO_MANIFEST_DIR"));
        let json = std::fs::read(path).unwrap();
        let mut loaded = Program::load(&json).unwrap();
        loaded.source = json.into();
        dataplane.commit_blocking(loaded).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = listener.local_addr().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let notifications = directory.path().join("notifications");
        let address = format!("ipc://{}", notifications.display());
        let (onward, digests) = async_channel::bounded(16);
        let digests = std::mem::replace(&mut events.digests, digests);
        let socket = publish(dataplane.clone(), 7, &address, digests, onward).unwrap();
        let device = Device { device_id: 7, port: listening.port(), notifications: Some(address) };
        Server::new(dataplane.clone(), device).serve(listener).unwrap();
        let client = TcpStream::connect(listening).unwrap();
        let answers = Calls::new(BufReader::new(client.try_clone().unwrap()));
        Switch {
            dataplane,
            client,
            answers: answers.into(),
            sequence: AtomicI32::new(0),
            ends,
            notifications,
            _socket: socket,
            _events: events,
            _directory: directory,
        }
    }

    pub fn ask(&self, method: &str, arguments: Fields) -> Answer {
        let sequence = self.sequence.fetch_add(1, Relaxed);
        let service = match method {
            _ if method.starts_with("bm_mc_") => "simple_pre_lag",
            _ if method.starts_with("bm_") => "standard",
            _ => "simple_switch",
        };
        (&self.client).write_all(&call(&format!("{service}:{method}"), sequence, &arguments).unwrap()).unwrap();
        let answer = self.answers.borrow_mut().next_call().unwrap();
        assert_eq!((answer.name.as_str(), answer.sequence), (method, sequence));
        match answer.arguments.as_slice() {
            [] => Answer::Value(None),
            [(0, value)] => Answer::Value(Some(value.clone())),
            [(1, Wire::Struct(fields))] => match fields.as_slice() {
                [(1, Wire::I32(code))] => Answer::Declared(*code),
                other => panic!("{method}: {other:?}"),
            },
            [(1, Wire::Bytes(text)), (2, Wire::I32(kind))] => {
                let text = String::from_utf8(text.clone()).unwrap();
                if *kind == UNKNOWN_METHOD { Answer::Unknown(text) } else { Answer::Refused(text) }
            }
            other => panic!("{method}: {other:?}"),
        }
    }

    /// Asks about context 0: the numbers of the other arguments begin at 2.
    pub fn about(&self, method: &str, arguments: Vec<Wire>) -> Answer {
        self.ask(method, (1..).zip([Wire::I32(0)].into_iter().chain(arguments)).collect())
    }

    pub fn value(&self, method: &str, arguments: Vec<Wire>) -> Wire {
        match self.about(method, arguments) {
            Answer::Value(Some(value)) => value,
            other => panic!("{method}: {other:?}"),
        }
    }

    pub fn done(&self, method: &str, arguments: Vec<Wire>) {
        assert_eq!(self.about(method, arguments), Answer::Value(None), "{method}");
    }

    pub fn refused(&self, method: &str, arguments: Vec<Wire>) -> i32 {
        match self.about(method, arguments) {
            Answer::Declared(code) => code,
            other => panic!("{method}: {other:?}"),
        }
    }

    pub fn table(&self, name: &str) -> TableId {
        self.program().table(name).unwrap()
    }

    pub fn program(&self) -> Arc<Program> {
        self.dataplane.program().unwrap()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.dataplane.stop();
    }
}

pub fn text(text: &str) -> Wire {
    text.into()
}

pub fn number(value: i32) -> Wire {
    Wire::I32(value)
}

pub fn binary(bytes: &[u8]) -> Wire {
    Wire::Bytes(bytes.to_vec())
}

pub fn data(params: &[&[u8]]) -> Wire {
    Wire::List(TType::String, params.iter().map(|bytes| binary(bytes)).collect())
}

pub fn param(kind: i32, id: i16, fields: Vec<Wire>) -> Fields {
    vec![(1, number(kind)), (id, Wire::Struct((1..).zip(fields).collect()))]
}

pub fn exact(bytes: &[u8]) -> Fields {
    param(0, 2, vec![binary(bytes)])
}

pub fn lpm(bytes: &[u8], length: i32) -> Fields {
    param(1, 3, vec![binary(bytes), number(length)])
}

pub fn ternary(bytes: &[u8], mask: &[u8]) -> Fields {
    param(2, 4, vec![binary(bytes), binary(mask)])
}

pub fn range(low: &[u8], high: &[u8]) -> Fields {
    param(4, 6, vec![binary(low), binary(high)])
}

pub fn priority(priority: i32) -> Wire {
    Wire::Struct(vec![(1, number(priority))])
}

pub fn none() -> Wire {
    Wire::Struct(Vec::new())
}

pub fn field(value: &Wire, id: i16) -> &Wire {
    let Wire::Struct(fields) = value else { panic!("{value:?}") };
    &fields.iter().find(|(own, _)| *own == id).unwrap_or_else(|| panic!("{id} of {value:?}")).1
}

pub const ROUTES: &str = "TheIngress.routes";

/// Entry of `routes`: the arguments of `bm_mt_add_entry`.
pub fn route(prefix: &[u8], length: i32, params: &[&[u8]]) -> Vec<Wire> {
    vec![text(ROUTES), Wire::structs([lpm(prefix, length)]), text("TheIngress.answer"), data(params), none()]
}
