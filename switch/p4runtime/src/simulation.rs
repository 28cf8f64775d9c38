// SPDX-License-Identifier: Apache-2.0
//! The switch in virtual time, for simulators: the same ports, queues, program and P4Runtime server, in the thread of
//! whoever calls, who also says what time it is.
//!
//! Time stands unless [`Simulation::advance`] moves it, and what was asked for is done when the call returns. So the
//! same calls give the same bytes on whatever machine: loss, jitter, P4's `random` and the tables' hashes follow from
//! the seed. Messages of P4Runtime go in and out as protobuf writes them.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use apswitch_dataplane::control::{
    Dataplane, DataplaneConfig, Engine, Events, MemoryEnd, PortNumber, WATCH_INTERVAL, at_once,
};
use apswitch_dataplane::device::DeviceOptions;

use super::error::Status;
pub use super::local::Method;
use super::local::{Local, status_bytes};

/// Bytes of the longest frame.
pub const MAX_FRAME_LEN: usize = 9216;
/// Interval at which entries are checked for their age.
const LOOK_NS: u64 = WATCH_INTERVAL.as_nanos() as u64;

/// A frame that a port sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub port: PortNumber,
    /// ns: when it had left the port's link.
    pub at: u64,
    pub frame: Vec<u8>,
}

/// P4Runtime has refused something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// One line.
    pub message: String,
    /// A `google.rpc.Status`, with the details of a batch.
    pub status: Vec<u8>,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Refused {
        Refused { message: format!("{}: {}", status.code, status.message), status: status_bytes(&status) }
    }
}

/// A switch of its own; drop it to end it.
pub struct Simulation {
    now: Arc<AtomicU64>,
    engine: Engine,
    dataplane: Dataplane,
    events: Events,
    server: Local,
    /// The far ends of the ports.
    ends: Vec<(PortNumber, MemoryEnd)>,
    sent: VecDeque<Sent>,
    /// Time of the next check for idle entries.
    look_at: u64,
}

impl Simulation {
    /// A switch without a program, at time 0. The interfaces are only names. Without a seed it is 1. The error is one
    /// line that names the thing and the mend.
    pub fn new(options: &DeviceOptions) -> Result<Simulation, String> {
        let config = DataplaneConfig {
            ports: options.ports()?,
            cpu_port: options.cpu_port,
            priority_queues: options.priority_queues,
            seed: options.seed.unwrap_or(1),
            capture: None,
            aside: at_once,
        };
        let numbers: Vec<PortNumber> = config.ports.iter().map(|port| port.number).collect();
        let now = Arc::new(AtomicU64::new(0));
        let started = Dataplane::start_in_virtual_time(config, MAX_FRAME_LEN, now.clone());
        let (dataplane, events, engine, ends) = started.map_err(|e| e.to_string())?;
        let server = Local::new(options.device_id, dataplane.clone());
        let ends = numbers.into_iter().zip(ends).collect();
        let (sent, look_at) = (VecDeque::new(), LOOK_NS);
        Ok(Simulation { now, engine, dataplane, events, server, ends, sent, look_at })
    }

    /// ns since the start.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Returns when it has something to do next, in ns: to be advanced to by then. Now, if that is already over.
    pub fn deadline(&self) -> u64 {
        let lists = self.server.deadline().map(|at| at.as_nanos() as u64);
        let next = [self.engine.deadline(), lists].into_iter().flatten().fold(self.look_at, u64::min);
        next.max(self.now())
    }

    /// Does all that is due until then, each at its time.
    pub fn advance(&mut self, to: u64) -> Result<(), String> {
        let now = self.now();
        if to < now {
            return Err(format!("time cannot go back from {now} to {to} ns"));
        }
        loop {
            // Everything due by now is done.
            let at = self.deadline().max(self.now() + 1);
            if at >= to {
                break;
            }
            self.step(at);
        }
        self.step(to);
        Ok(())
    }

    fn step(&mut self, at: u64) {
        self.now.store(at, Relaxed);
        if at >= self.look_at {
            self.look_at = at + LOOK_NS;
            self.dataplane.look();
        }
        self.engine.settle();
        self.collect();
    }

    /// Frames and messages go where they are fetched.
    fn collect(&mut self) {
        let at = self.now();
        for (port, end) in &self.ends {
            let frames = std::iter::from_fn(|| end.receive(Duration::ZERO));
            self.sent.extend(frames.map(|frame| Sent { port: *port, at, frame }));
        }
        let Events { packet_ins, digests, notices } = &self.events;
        let told = !(packet_ins.is_empty() && digests.is_empty() && notices.is_empty());
        if told || self.server.deadline().is_some_and(|due| due.as_nanos() as u64 <= at) {
            let (server, events) = (&self.server, &mut self.events);
            drive(&mut self.engine, server.deliver(events));
        }
    }

    /// A frame arrives at a port, now.
    pub fn receive(&mut self, port: PortNumber, frame: &[u8]) -> Result<(), String> {
        let end = self.end(port)?;
        if frame.len() > MAX_FRAME_LEN {
            return Err(format!("a frame of {} bytes: {MAX_FRAME_LEN} are the most", frame.len()));
        }
        end.send(frame);
        self.engine.settle();
        self.collect();
        Ok(())
    }

    fn end(&self, port: PortNumber) -> Result<&MemoryEnd, String> {
        match self.ends.iter().find(|(number, _)| *number == port) {
            Some((_, end)) => Ok(end),
            None => {
                let numbers: Vec<String> = self.ends.iter().map(|(number, _)| number.to_string()).collect();
                Err(format!("there is no port {port}: there are {}", numbers.join(", ")))
            }
        }
    }

    /// Lets the device behind a port, with a short queue of its own, take so many frames more from now on. Frames that
    /// it does not take wait in the port's queues, which a link holds. A port of which this was never said sends what
    /// it can.
    pub fn allow(&mut self, port: PortNumber, frames: u32) -> Result<(), String> {
        self.end(port)?;
        if !self.engine.allow(port, frames) {
            return Err(format!("port {port} has no queue: give it one, as --link {port}:limit=1000"));
        }
        self.engine.settle();
        self.collect();
        Ok(())
    }

    /// The next frame that was sent, in the order of time.
    pub fn sent(&mut self) -> Option<Sent> {
        self.sent.pop_front()
    }

    /// An RPC of P4Runtime but `StreamChannel`; the answers of `Read` are one message.
    pub fn call(&mut self, method: Method, request: &[u8]) -> Result<Vec<u8>, Refused> {
        let answer = drive(&mut self.engine, self.server.call(method, request));
        self.collect();
        Ok(answer?)
    }

    /// Opens a `StreamChannel`; the answer names it.
    pub fn open_stream(&mut self) -> Result<u64, Refused> {
        Ok(self.server.open()?)
    }

    /// A `StreamMessageRequest` of this stream. An error ends the stream.
    pub fn send_to(&mut self, stream: u64, message: &[u8]) -> Result<(), Refused> {
        let sent = drive(&mut self.engine, self.server.send(stream, message));
        self.engine.settle();
        self.collect();
        Ok(sent?)
    }

    /// The next `StreamMessageResponse` of this stream, if there is one. An error: it has ended.
    pub fn take_from(&mut self, stream: u64) -> Result<Option<Vec<u8>>, Refused> {
        Ok(self.server.take(stream)?)
    }

    pub fn close_stream(&mut self, stream: u64) {
        self.server.close(stream);
    }
}

/// Does the work to its end, and what it asks of the packet thread: it waits for nothing else.
fn drive<T>(engine: &mut Engine, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => engine.settle(),
        }
    }
}
