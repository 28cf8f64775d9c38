// SPDX-License-Identifier: Apache-2.0
//! The control API: everything that the control plane may ask of the data plane.
//!
//! A [`Dataplane`] is a cheap handle (`Clone + Send + Sync`). It holds the canonical copy of what was written; writes
//! are checked here, applied by the packet thread between two batches, and acknowledged once they are in effect.
//! Reads never reach the packet thread: counters, registers and last-hit times are shared relaxed atomics.

mod links;
mod ports;
mod reads;
mod taps;
mod watch;
mod writes;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use apswitch_core::dataplane_ops::Outbox;
pub use apswitch_core::dataplane_ops::{
    CloneSession, ColourCounts, CounterValue, Digest, DigestConfig, MeterConfig, PacketIn, Replica,
};
use apswitch_core::drops::DropCells;
pub use apswitch_core::drops::Drops;
pub use apswitch_core::link::{LinkConfig, QueueConfig};
use apswitch_core::port::PortCells;
pub use apswitch_core::port::{PortNumber, PortStats, QueueStats};
pub use apswitch_core::program::{
    ActionCall, ActionId, CounterId, DigestId, EntryKey, KeyField, LoadError, MatchKind, MeterId, MeterUnit, ProfileId,
    Program, RegisterId, TableId, Value, ValueSetId,
};
use apswitch_core::state::frame::Pool;
use apswitch_core::store::Store;
use apswitch_core::v1model::{MIN_PACKETS, Port, Switch};
pub use apswitch_core::write_api::{
    EntryAction, EntryView, GroupMember, ProfileGroup, Replicated, TableEntry, Update, UpdateError, WeightedCall,
};
use async_channel::{Receiver, Sender, bounded};
use futures_channel::oneshot;
use nix::sys::eventfd::{EfdFlags, EventFd};
use thiserror::Error;

pub use self::links::{LinkView, WINDOW, Window};
use self::links::{OperStatus, Recent};
pub use self::ports::NewPort;
pub use self::watch::WATCH_INTERVAL;
pub use self::writes::Prepared;
use self::writes::Stage;
use crate::engine::BlockingTask;
pub use crate::engine::{Clock, Engine};
use crate::engine_messages::{self, Command, Line, Place};
use crate::port::{Capture, Discipline, FilePort, MemoryPort, PacketPort, PortIo, mtu};
pub use crate::port::{MemoryEnd, PortConfig};

/// Events of a kind, or packet-outs, that may wait to be fetched.
const MAX_EVENTS: usize = 4096;
/// Frames beyond an interface's MTU: Ethernet header and one VLAN tag.
const FRAME_OVERHEAD: usize = 18;
const MIN_FRAME_BUFFER: usize = 2048;

/// Backups of each replica of a group or session.
pub type Backups = Vec<Vec<Replica>>;

/// Rare events.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The entry was not hit for its idle timeout; told again after each further timeout.
    IdleTimeout(Box<TableEntry>),
    PortState {
        port: PortNumber,
        up: bool,
    },
}

/// Events of the data plane, each stream bounded: what does not fit is dropped and counted.
pub struct Events {
    pub packet_ins: Receiver<PacketIn>,
    pub digests: Receiver<Digest>,
    pub notices: Receiver<Notice>,
}

/// A port as it is now.
#[derive(Clone, Debug)]
pub struct PortView {
    pub number: PortNumber,
    /// Interface name, or what stands for one.
    pub interface: String,
    pub up: bool,
    pub stats: PortStats,
}

/// Configuration of a data plane.
#[derive(Clone, Debug)]
pub struct DataplaneConfig {
    pub ports: Vec<PortConfig>,
    pub cpu_port: Option<PortNumber>,
    /// Queues per port, at most 8.
    pub priority_queues: usize,
    /// Seeds loss, jitter, P4's `random` and the tables' hashes. Who knows it can find keys that collide.
    pub seed: u64,
    /// Directory for each port's frames, in `INTERFACE_in.pcap` and `INTERFACE_out.pcap`.
    pub capture: Option<PathBuf>,
    pub aside: Aside,
}

/// Runs work that may take long, on a thread of its own where requests should not wait for it.
pub type Aside = fn(Box<dyn FnOnce() + Send>);

/// Runs the work before it returns: an [`Aside`] for whoever has nothing else to do.
pub fn at_once(work: Box<dyn FnOnce() + Send>) {
    work();
}

/// Error at the start of the data plane: one line that names the thing and the fix.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct StartError(pub String);

struct PortHandle {
    number: PortNumber,
    interface: String,
    cells: Arc<PortCells>,
    /// As `oper_status` says.
    up: AtomicBool,
    /// The last state that was reported to the store.
    up_in_store: AtomicBool,
    oper_status: Mutex<OperStatus>,
    failed: Arc<AtomicBool>,
    /// Index of the interface that it is open on; 0: none yet, or it is gone.
    interface_index: AtomicI32,
    /// Bytes of payload in the longest frame; 0: nobody knows.
    mtu: AtomicUsize,
    /// Link model that the packet thread has, or will have by its next command.
    link: Mutex<Option<LinkConfig>>,
    /// Queue discipline that the interface had last, and the link model that the port got from one.
    discipline: Mutex<(Discipline, Option<LinkConfig>)>,
    recent: Mutex<Recent>,
}

struct Inner {
    commands: engine_messages::Sender,
    /// Bytes that a frame's buffer holds, or will by the packet thread's next command.
    max_frame_len: AtomicUsize,
    /// Packet-outs that wait.
    packet_outs: Arc<AtomicUsize>,
    store: Mutex<Option<Store>>,
    stage: Mutex<Option<Stage>>,
    /// Requests that may have changed the store.
    writes: AtomicU64,
    ports: RwLock<Vec<Arc<PortHandle>>>,
    cpu_port: Option<PortNumber>,
    capture: Option<PathBuf>,
    /// Per port.
    queues: usize,
    /// The ports are network interfaces.
    interfaces: bool,
    drops: Arc<DropCells>,
    clock: Clock,
    seed: u64,
    aside: Aside,
    notices: Sender<Notice>,
    blocking_tasks: std::sync::mpsc::Sender<BlockingTask>,
    stopping: AtomicBool,
    /// Readable when it is.
    stop: EventFd,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The handle.
#[derive(Clone)]
pub struct Dataplane {
    inner: Arc<Inner>,
    /// Reads and writes are about the program that waits to be committed.
    staged: bool,
    /// They are refused when another program than this runs.
    bound: Option<Arc<Program>>,
}

/// Refuses when another program runs than the one that is asked for, if one is.
fn check_program(asked: Option<&Arc<Program>>, store: Option<&Store>) -> Result<(), UpdateError> {
    match asked {
        Some(own) if !store.is_some_and(|store| Arc::ptr_eq(&store.program, own)) => {
            Err(UpdateError::FailedPrecondition(
                "the program was replaced meanwhile: read the new one and repeat the call".into(),
            ))
        }
        _ => Ok(()),
    }
}

impl Dataplane {
    /// Opens the interfaces and starts the packet thread; without a program it drops every packet.
    pub fn start(config: DataplaneConfig) -> Result<(Dataplane, Events), StartError> {
        let fail =
            |port: &PortConfig, e| StartError(format!("port {}: {}", port.number, open_error(&port.interface, &e)));
        let mut longest = MIN_FRAME_BUFFER;
        for port in &config.ports {
            longest = longest.max(mtu(&port.interface).map_err(|e| fail(port, e))? + FRAME_OVERHEAD);
        }
        let open = |port: &PortConfig| open_interface(&port.interface).map_err(|e| fail(port, e));
        let lines = config.ports.iter().map(open).collect::<Result<_, _>>()?;
        Dataplane::start_on(config, lines, longest, true)
    }

    /// Starts on files: a port receives `INTERFACE_in.pcap` after `wait`, in the order of all files' times, and sends
    /// to `INTERFACE_out.pcap`.
    pub fn start_on_files(config: DataplaneConfig, wait: Duration) -> Result<(Dataplane, Events), StartError> {
        let names: Vec<&str> = config.ports.iter().map(|port| port.interface.as_str()).collect();
        let (ports, longest) = FilePort::open(&names, wait).map_err(StartError)?;
        let lines = ports.into_iter().map(|port| Box::new(port) as Box<dyn PortIo>).collect();
        Dataplane::start_on(config, lines, longest.max(MIN_FRAME_BUFFER), false)
    }

    /// Starts on ports whose other ends are in this process; the interfaces are only names.
    pub fn start_in_memory(config: DataplaneConfig) -> Result<(Dataplane, Events, Vec<MemoryEnd>), StartError> {
        let (lines, ends) = in_memory(&config)?;
        let (dataplane, events) = Dataplane::start_on(config, lines, MIN_FRAME_BUFFER, false)?;
        Ok((dataplane, events, ends))
    }

    /// Starts in memory and in virtual time: without threads; the caller does the packet thread's work.
    pub fn start_in_virtual_time(
        config: DataplaneConfig,
        max_frame_len: usize,
        now: Arc<AtomicU64>,
    ) -> Result<(Dataplane, Events, Engine, Vec<MemoryEnd>), StartError> {
        let (lines, ends) = in_memory(&config)?;
        let (dataplane, events, engine, _) = Dataplane::new(config, lines, max_frame_len, false, Clock::Set(now))?;
        Ok((dataplane, events, engine, ends))
    }

    /// Does the watcher thread's work, due at every [`watch::WATCH_INTERVAL`].
    pub fn look(&self) {
        watch::look(&self.inner);
    }

    fn start_on(
        config: DataplaneConfig,
        lines: Lines,
        max_frame_len: usize,
        watch_interfaces: bool,
    ) -> Result<(Dataplane, Events), StartError> {
        let fail = |what: &str, e: io::Error| StartError(format!("{what}: {e}"));
        let (dataplane, events, engine, to_do) =
            Dataplane::new(config, lines, max_frame_len, watch_interfaces, Clock::start())?;
        let inner = &dataplane.inner;
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_string()).spawn(body).map_err(|e| fail("thread", e))
        };
        let packet_thread = spawn("packets", Box::new(move || engine.run()))?;
        let watched = inner.clone();
        let watcher = spawn("watch", Box::new(move || watch::watch(&watched)))?;
        let sockets = spawn("sockets", Box::new(move || ports::run_blocking_tasks(&to_do)))?;
        inner.threads.lock().unwrap().extend([packet_thread, watcher, sockets]);
        if watch_interfaces {
            let interfaces = watch::Follower::new().map_err(|e| fail("socket", e))?;
            let followed = inner.clone();
            let follower = spawn("interfaces", Box::new(move || interfaces.follow(&followed)))?;
            inner.threads.lock().unwrap().push(follower);
        }
        Ok((dataplane, events))
    }

    fn new(
        config: DataplaneConfig,
        lines: Lines,
        max_frame_len: usize,
        watch_interfaces: bool,
        clock: Clock,
    ) -> Result<(Dataplane, Events, Engine, std::sync::mpsc::Receiver<BlockingTask>), StartError> {
        let fail = |what: &str, e: io::Error| StartError(format!("{what}: {e}"));
        let (packet_ins, packet_in_events) = bounded(MAX_EVENTS);
        let (digests, digest_events) = bounded(MAX_EVENTS);
        let (notices, notice_events) = bounded(MAX_EVENTS);
        let (commands, received) = engine_messages::channel().map_err(|e| fail("eventfd", e.into()))?;

        let ports = config.ports.iter().map(|port| Port::new(port.number, port.link.clone(), config.seed));
        let ports: Vec<Port> = ports.collect();
        let handles = config.ports.iter().zip(&ports).map(|(config, port)| Arc::new(PortHandle::new(config, port)));
        let handles: Vec<Arc<PortHandle>> = handles.collect();
        let in_flight =
            config.ports.iter().filter_map(|port| port.link.as_ref()).map(|link| link.max_in_flight()).sum::<usize>();
        let pool = Pool::new(max_frame_len, MIN_PACKETS + in_flight);
        let outbox = Outbox { packet_ins, digests };
        let switch = Switch::new(ports, pool, config.cpu_port, config.priority_queues, outbox, config.seed);
        let drops = switch.drops.clone();
        let capture = config.capture.as_deref();
        let lines = lines.into_iter().zip(&handles).map(|(io, handle)| handle.line(io, capture).map_err(StartError));
        let lines = lines.collect::<Result<_, StartError>>()?;
        let (blocking_tasks, to_do) = std::sync::mpsc::channel();
        let engine = Engine::new(switch, lines, received, clock.clone(), blocking_tasks.clone());
        let inner = Arc::new(Inner {
            commands,
            max_frame_len: AtomicUsize::new(max_frame_len),
            packet_outs: Arc::default(),
            store: Mutex::new(None),
            stage: Mutex::new(None),
            writes: AtomicU64::new(0),
            ports: RwLock::new(handles),
            cpu_port: config.cpu_port,
            capture: config.capture,
            queues: config.priority_queues,
            interfaces: watch_interfaces,
            drops,
            clock,
            seed: config.seed,
            aside: config.aside,
            notices,
            blocking_tasks,
            stopping: AtomicBool::new(false),
            stop: EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map_err(|e| fail("eventfd", e.into()))?,
            threads: Mutex::new(Vec::new()),
        });
        let events = Events { packet_ins: packet_in_events, digests: digest_events, notices: notice_events };
        Ok((Dataplane { inner, staged: false, bound: None }, events, engine, to_do))
    }

    /// Stops the packet thread and closes the ports; idempotent.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Relaxed);
        // Fails only when it is readable already, 2^64 times.
        let _ = self.inner.stop.write(1);
        self.inner.commands.send(Command::Stop);
        let _ = self.inner.blocking_tasks.send(BlockingTask::End);
        let threads = std::mem::take(&mut *self.inner.threads.lock().unwrap());
        for thread in threads {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a thread of the data plane has panicked");
            }
        }
    }

    /// The running program.
    pub fn program(&self) -> Option<Arc<Program>> {
        self.read(|store| Ok(store.program.clone())).ok()
    }

    /// Returns a handle whose reads, writes and commits are refused once another program runs than the one that it
    /// returns: ids keep their meaning.
    pub fn bound(&self) -> Result<(Dataplane, Arc<Program>), UpdateError> {
        let unbound = Dataplane { bound: None, ..self.clone() };
        let program = unbound.read(|store| Ok(store.program.clone()))?;
        Ok((Dataplane { bound: Some(program.clone()), ..unbound }, program))
    }

    fn check_bound(&self, store: Option<&Store>) -> Result<(), UpdateError> {
        check_program(self.bound.as_ref(), store)
    }

    /// A packet-out: the frame enters ingress on the CPU port.
    pub fn inject(&self, frame: Vec<u8>) -> Result<(), UpdateError> {
        if self.inner.cpu_port.is_none() {
            let reason = "this switch has no CPU port, which packet-outs enter by: start it with --cpu-port";
            return Err(UpdateError::FailedPrecondition(reason.into()));
        }
        let most = self.inner.max_frame_len.load(Relaxed);
        if frame.len() > most {
            let length = frame.len();
            return Err(UpdateError::InvalidArgument(format!("a frame of {length} bytes: {most} are the most")));
        }
        let Some(place) = Place::take(&self.inner.packet_outs, MAX_EVENTS) else {
            return Err(UpdateError::ResourceExhausted(format!("{MAX_EVENTS} packet-outs wait already")));
        };
        if self.inner.commands.send(Command::Inject { frame, place }) { Ok(()) } else { Err(UpdateError::Stopped) }
    }

    pub fn ports(&self) -> Vec<PortView> {
        self.inner.ports().iter().map(|port| port.view()).collect()
    }

    pub fn port_numbers(&self) -> Vec<PortNumber> {
        self.inner.ports().iter().map(|port| port.number).collect()
    }

    /// Runs work aside; an error when it did not come to its end.
    pub async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, UpdateError> {
        let (done, result) = oneshot::channel();
        // A caller that has gone meanwhile wants nothing.
        (self.inner.aside)(Box::new(move || drop(done.send(work()))));
        result.await.map_err(|_| UpdateError::Stopped)
    }

    /// Packets that went nowhere, by reason.
    pub fn drops(&self) -> Drops {
        self.inner.drops.read()
    }

    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }
}

impl PortHandle {
    fn new(config: &PortConfig, port: &Port) -> PortHandle {
        PortHandle {
            number: port.number,
            interface: config.interface.clone(),
            cells: port.cells.clone(),
            up: AtomicBool::new(true),
            up_in_store: AtomicBool::new(true),
            oper_status: Mutex::default(),
            mtu: AtomicUsize::new(mtu(&config.interface).unwrap_or(0)),
            failed: Arc::default(),
            interface_index: AtomicI32::new(0),
            link: Mutex::new(config.link.clone()),
            discipline: Mutex::default(),
            recent: Mutex::default(),
        }
    }

    fn view(&self) -> PortView {
        PortView {
            number: self.number,
            interface: self.interface.clone(),
            up: self.up.load(Relaxed),
            stats: self.cells.read(),
        }
    }

    /// Returns the packet thread's part of the port.
    fn line(&self, io: Box<dyn PortIo>, capture: Option<&Path>) -> Result<Line, String> {
        let create = |directory| Capture::create(directory, &self.interface);
        Ok(Line {
            io: Some(io),
            capture: capture.map(create).transpose()?,
            failed: self.failed.clone(),
            interface: self.interface.clone(),
            enabled: true,
        })
    }
}

impl Inner {
    /// The ports there are now, in their order.
    fn ports(&self) -> Vec<Arc<PortHandle>> {
        self.ports.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes room for the frames of an interface with this MTU.
    fn make_room(&self, mtu: usize) {
        let max_frame_len = mtu + FRAME_OVERHEAD;
        if self.max_frame_len.fetch_max(max_frame_len, Relaxed) < max_frame_len {
            self.commands.send(Command::Grow { max_frame_len });
        }
    }

    fn store(&self) -> MutexGuard<'_, Option<Store>> {
        locked(&self.store)
    }

    fn stage(&self) -> MutexGuard<'_, Option<Stage>> {
        locked(&self.stage)
    }

    /// Frees what holds much memory aside, so that nobody waits.
    fn free<T: Send + 'static>(&self, old: Option<T>) {
        if old.is_some() {
            (self.aside)(Box::new(move || drop(old)));
        }
    }
}

/// Locks a mutex, also a poisoned one: its holders check before they change anything, so a panic leaves all whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// I/O of each port.
type Lines = Vec<Box<dyn PortIo>>;

/// Ports whose other ends are in this process.
fn in_memory(config: &DataplaneConfig) -> Result<(Lines, Vec<MemoryEnd>), StartError> {
    let mut lines: Lines = Vec::new();
    let mut ends = Vec::new();
    for port in &config.ports {
        let (line, end) = MemoryPort::pair().map_err(|e| StartError(format!("port {}: {e}", port.number)))?;
        lines.push(Box::new(line));
        ends.push(end);
    }
    Ok((lines, ends))
}

/// Opens an interface for a port.
fn open_interface(interface: &str) -> io::Result<Box<dyn PortIo>> {
    Ok(Box::new(PacketPort::open(interface)?))
}

/// Names the mend for what goes wrong when an interface is opened.
fn open_error(interface: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENODEV) => format!("there is no interface `{interface}`: create it or correct the -i option"),
        Some(libc::EPERM | libc::EACCES) => format!(
            "opening `{interface}` needs the privilege CAP_NET_RAW: run as root, or give the binary the capability \
             (setcap cap_net_raw,cap_net_admin+ep)"
        ),
        _ => format!("cannot open `{interface}`: {error}"),
    }
}
