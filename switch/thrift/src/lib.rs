// SPDX-License-Identifier: Apache-2.0
//! BMv2's runtime interface over Thrift (its `standard.thrift`, `simple_pre_lag.thrift` and `simple_switch.thrift`), for
//! `simple_switch_CLI` and whatever else speaks it, on top of the switch's control API.
//!
//! | module | contents |
//! | --- | --- |
//! | [`message`] | Thrift's binary protocol, bounded |
//! | `call` | arguments of a call, and what refuses it |
//! | `handles` | handles of entries, of nodes of multicast groups, and mirroring sessions |
//! | `tables`, `profiles`, `arrays`, `copies`, `target` | the methods |
//! | `keys` | fields of keys and actions, from and to Thrift |
//! | [`notifications`] | digests, as BMv2 publishes them over nanomsg |
//!
//! Thrift has no authentication: whoever reaches the port controls the switch. It is for loopback alone.

mod arrays;
mod call;
mod copies;
mod handles;
mod keys;
pub mod message;
pub mod notifications;
mod profiles;
mod tables;
mod target;

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use apswitch_dataplane::control::Dataplane;

use call::{Answered, Call, Refusal, application};
use handles::State;
use message::{Answer, Calls, Message, reason, reply};

/// Clients at once; more are closed as soon as they are there.
const MAX_CLIENTS: usize = 64;
/// Time in which a client has to take an answer.
const MAX_WRITE_TIME: Duration = Duration::from_secs(10);
/// Time after an error in which a client may send what nobody reads.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(2);
/// Time to the next try when the kernel has no more descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// What the switch tells of itself, as `bm_mgmt_get_info` does.
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

impl Server {
    pub fn new(dataplane: Dataplane, device: Device) -> Arc<Server> {
        let state = Mutex::new(State::default());
        let server = Server { dataplane, device, state, clients: AtomicUsize::new(0) };
        // Of a program that is there already, digests are told from now on.
        drop(server.state());
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
        if self.clients.fetch_add(1, Relaxed) >= MAX_CLIENTS {
            self.clients.fetch_sub(1, Relaxed);
            tracing::warn!("Thrift client {peer} is closed: {MAX_CLIENTS} are there already");
            return;
        }
        tracing::info!("Thrift client {peer} connected");
        let server = self.clone();
        let answering = move || {
            let ended = server.answer(stream, peer);
            server.clients.fetch_sub(1, Relaxed);
            match ended {
                Ok(()) => tracing::info!("Thrift client {peer} disconnected"),
                Err(error) => tracing::warn!("Thrift client {peer} disconnected: {error}"),
            }
        };
        if let Err(error) = thread::Builder::new().name("thrift client".into()).spawn(answering) {
            self.clients.fetch_sub(1, Relaxed);
            tracing::warn!("Thrift client {peer} is closed: {error}");
        }
    }

    /// Answers a client until it ends the connection, or sends what is no call.
    fn answer(&self, stream: TcpStream, peer: SocketAddr) -> Result<(), String> {
        let say = |error: io::Error| error.to_string();
        stream.set_nodelay(true).map_err(say)?;
        stream.set_write_timeout(Some(MAX_WRITE_TIME)).map_err(say)?;
        let mut output = stream.try_clone().map_err(say)?;
        let mut calls = Calls::new(BufReader::new(stream.try_clone().map_err(say)?));
        loop {
            // Between two calls a client may be silent for as long as it likes.
            match calls.next_call() {
                Ok(None) => return Ok(()),
                Ok(Some(message)) => {
                    let method = method(&message.name);
                    let answer = self.call(&message, peer);
                    let bytes = reply(method, message.sequence, &answer).map_err(|error| error.to_string())?;
                    output.write_all(&bytes).map_err(say)?;
                }
                Err((from, error)) => {
                    if let Some((name, sequence)) = from
                        && let Ok(bytes) = reply(method(&name), sequence, &Answer::Application(reason(&error)))
                    {
                        output.write_all(&bytes).map_err(say)?;
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
        let answered = match message.name.split_once(':') {
            Some(("standard", method)) => self.standard(method, &call),
            Some(("simple_pre_lag", method)) => self.copies(method, &call),
            Some(("simple_switch", method)) => self.target(method, &call),
            _ => None,
        };
        match answered.unwrap_or_else(|| application(format!("there is no method {:?} here", message.name))) {
            Ok(value) => Answer::Value(value),
            Err(Refusal { code, text }) => {
                tracing::info!("Thrift client {peer}: {} is refused: {text}", method(&message.name));
                code.map_or(Answer::Application(text), Answer::Declared)
            }
        }
    }

    /// `None`: there is no such method, as in the functions that this calls.
    fn standard(&self, method: &str, call: &Call) -> Option<Answered> {
        self.tables(method, call)
            .or_else(|| self.profiles(method, call))
            .or_else(|| self.arrays(method, call))
            .or_else(|| self.management(method, call))
    }

    /// Handles of the program that runs now; of another one they begin anew.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let program = self.dataplane.program();
        let is_same = match (&program, &state.program) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, before),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            *state = State::new(program, &self.dataplane);
            if self.device.notifications.is_some() {
                notifications::enable(&self.dataplane);
            }
        }
        state
    }
}

/// The method's name without that of its service.
fn method(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, method)| method)
}

/// Reads on for a while: a client that is cut off while it sends sees no answer.
fn drain(mut stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(MAX_DRAIN_TIME));
    let mut rest = io::Read::take(&mut stream, 64 << 20);
    let _ = io::copy(&mut rest, &mut io::sink());
}
