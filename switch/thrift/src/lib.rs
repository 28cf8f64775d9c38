// SPDX-License-Identifier: Apache-2.0
//! BMv2's runtime interface over Thrift (its `standard.thrift`, `simple_pre_lag.thrift` and `simple_switch.thrift`), for
//! `simple_switch_CLI` and whatever else speaks it, on top of the switch's control API.
//!
//! | module | contents |
//! | --- | --- |
//! | [`message`] | Thrift's binary protocol, bounded |
//! | `connection` | a client's connection, on which a message has its time |
//! | `call` | arguments of a call, and its refusal |
//! | `handles` | handles of entries, of nodes of multicast groups, and mirroring sessions |
//! | `tables`, `profiles`, `arrays`, `copies`, `target` | the methods |
//! | `keys` | keys and actions, from and to Thrift |
//! | [`notifications`] | digests, as BMv2 publishes them over nanomsg |
//!
//! Thrift has no authentication: every process that reaches the port controls the switch. It is for loopback alone.

mod arrays;
mod call;
mod code;
mod connection;
mod copies;
mod handles;
mod keys;
pub mod message;
pub mod notifications;
mod profiles;
mod tables;
mod target;

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use apswitch_dataplane::client_log::log_address;
use apswitch_dataplane::control::{Dataplane, Program, Update, UpdateError};

use call::{Answered, Call, Codes, Refusal, application};
use connection::Connection;
use handles::State;
use message::{Answer, Calls, Message, reason, reply};

/// Clients at once; more are closed as soon as they are there.
const MAX_CLIENTS: usize = 64;
/// Updates in one write.
const BATCH: usize = 4096;
/// Time from the first byte of a call to its last one.
const MAX_CALL_TIME: Duration = Duration::from_secs(10);
/// Time in which a client has to take an answer.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(60);
/// Time for which a client that sent no call is listened to until it is cut off.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(2);
/// Time to the next try when the kernel has no more descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// The switch as `bm_mgmt_get_info` names it.
#[derive(Clone, Debug)]
pub struct Device {
    pub device_id: u64,
    pub port: u16,
    /// Address of the notifications, if there are any.
    pub notifications: Option<String>,
}

/// The runtime interface of one switch.
pub struct Server {
    dataplane: Dataplane,
    device: Device,
    state: Mutex<State>,
    clients: AtomicUsize,
}

/// The methods, for one call: all of it is about one program, and one client is served at a time.
pub struct Handler<'a> {
    device: &'a Device,
    /// Refuses once another program runs.
    dataplane: Dataplane,
    state: &'a mut State,
}

/// A client's place among those that there may be.
struct Place(Arc<Server>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Relaxed);
    }
}

impl Server {
    pub fn new(dataplane: Dataplane, device: Device) -> Arc<Server> {
        let server = Server { dataplane, device, state: Mutex::default(), clients: AtomicUsize::new(0) };
        // Digests of a program that runs already are published from now on.
        server.handle(|_| ());
        Arc::new(server)
    }

    /// Answers clients until the process ends, each on a thread of its own.
    pub fn serve(self: Arc<Server>, listener: TcpListener) -> io::Result<()> {
        thread::Builder::new().name("thrift".into()).spawn(move || {
            loop {
                match listener.accept() {
                    Ok((stream, peer)) => self.clone().accepted(stream, peer),
                    Err(error) => {
                        tracing::debug!("Thrift: {error}");
                        thread::sleep(RETRY);
                    }
                }
            }
        })?;
        Ok(())
    }

    fn accepted(self: Arc<Server>, stream: TcpStream, peer: SocketAddr) {
        let before = self.clients.fetch_add(1, Relaxed);
        let place = Place(self);
        if before >= MAX_CLIENTS {
            log_address(peer, format_args!("Thrift: closed: {MAX_CLIENTS} clients are there already"));
            return;
        }
        log_address(peer, format_args!("Thrift: connected"));
        let answering = move || {
            let ended = place.0.answer(stream, peer).err().unwrap_or_else(|| "closed by the client".into());
            log_address(peer, format_args!("Thrift: disconnected: {ended}"));
        };
        if let Err(error) = thread::Builder::new().name("thrift client".into()).spawn(answering) {
            log_address(peer, format_args!("Thrift: closed: {error}"));
        }
    }

    /// Answers a client until it ends the connection, or sends what is no call.
    fn answer(&self, stream: TcpStream, peer: SocketAddr) -> Result<(), String> {
        let say = |error: io::Error| error.to_string();
        stream.set_nodelay(true).map_err(say)?;
        let mut output = Connection::new(stream.try_clone().map_err(say)?);
        let mut send = |bytes: &[u8]| {
            output.allow(MAX_ANSWER_TIME, "an answer was not taken within 60 s");
            output.write_all(bytes).map_err(say)
        };
        let mut calls = Calls::new(BufReader::new(Connection::new(stream.try_clone().map_err(say)?)));
        loop {
            // Between two calls a client may be silent for as long as it likes.
            calls.input().get_mut().wait();
            if !calls.begins().map_err(say)? {
                return Ok(());
            }
            calls.input().get_mut().allow(MAX_CALL_TIME, "a call did not end within 10 s");
            match calls.next_call() {
                Ok(message) => {
                    let answer = self.call(&message, peer);
                    let bytes = reply(method(&message.name), message.sequence, answer);
                    send(&bytes.map_err(|error| reason(&error))?)?;
                }
                Err((from, error)) => {
                    if let Some((name, sequence)) = from
                        && let Ok(bytes) = reply(method(&name), sequence, Answer::Refused(reason(&error)))
                    {
                        send(&bytes)?;
                        drain(stream);
                    }
                    return Err(reason(&error));
                }
            }
        }
    }

    /// Answers a call, and logs why one is refused: a code is all that the client gets.
    fn call(&self, message: &Message, peer: SocketAddr) -> Answer {
        let call = Call { arguments: &message.arguments };
        let answered = self.handle(|handler| match message.name.split_once(':') {
            Some(("standard", method)) => handler.standard(method, &call),
            Some(("simple_pre_lag", method)) => handler.copies(method, &call),
            Some(("simple_switch", method)) => handler.target(method, &call),
            _ => None,
        });
        match answered {
            None => Answer::Unknown(format!("there is no method {:.80?} here", message.name)),
            Some(Ok(value)) => Answer::Value(value),
            Some(Err(Refusal { code, text })) => {
                let method = method(&message.name);
                log_address(peer, format_args!("Thrift: {method:.80} is refused: {text:.400}"));
                code.map_or(Answer::Refused(text), Answer::Declared)
            }
        }
    }

    /// Handles a call with the state of the running program; that of another one is dropped.
    fn handle<T>(&self, work: impl FnOnce(&mut Handler) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (dataplane, program) = match self.dataplane.bound() {
            Ok((dataplane, program)) => (dataplane, Some(program)),
            Err(_) => (self.dataplane.clone(), None),
        };
        let mut handler = Handler { device: &self.device, dataplane, state: &mut state };
        if !handler.state.is_of(program.as_ref()) {
            handler.begin(program);
        }
        work(&mut handler)
    }
}

impl Handler<'_> {
    /// `None`: there is no such method, as in the functions that this calls.
    fn standard(&mut self, method: &str, call: &Call) -> Option<Answered> {
        self.tables(method, call)
            .or_else(|| self.profiles(method, call))
            .or_else(|| self.arrays(method, call))
            .or_else(|| self.management(method, call))
    }

    /// Replaces the state by an empty one for this program.
    fn begin(&mut self, program: Option<Arc<Program>>) {
        *self.state = State::new(program, &self.dataplane);
        if self.device.notifications.is_some() {
            notifications::enable(&self.dataplane);
        }
    }

    /// The running program.
    fn program(&self) -> Result<Arc<Program>, Refusal> {
        self.state.program.clone().map_or_else(|| application("no program is loaded"), Ok)
    }

    /// Writes the update, or refuses it by these codes.
    fn write(&self, update: Update, codes: Codes) -> Result<(), Refusal> {
        codes.check(self.dataplane.write_blocking(vec![update]).into_iter().collect())
    }

    /// Writes each update, in batches. Whatever is refused, all are tried; the first refusal is returned, but for what
    /// is not there.
    fn write_each(&self, updates: impl Iterator<Item = Update>, codes: Codes) -> Result<(), Refusal> {
        let (mut updates, mut refusal) = (updates.peekable(), Ok(()));
        while updates.peek().is_some() {
            let results = self.dataplane.write_blocking(updates.by_ref().take(BATCH).collect());
            let refused = results.into_iter().filter_map(Result::err);
            for error in refused.filter(|error| !matches!(error, UpdateError::NotFound(_))) {
                refusal = refusal.and_then(|()| Err(codes.refusal(&error)));
            }
        }
        refusal
    }
}

/// The method's name without that of its service.
fn method(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, method)| method)
}

/// Reads on for a while: a client that is cut off while it sends sees no answer.
fn drain(stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut input = Connection::new(stream);
    input.allow(MAX_DRAIN_TIME, "");
    let _ = io::copy(&mut input.take(64 << 20), &mut io::sink());
}
