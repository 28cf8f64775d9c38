// SPDX-License-Identifier: Apache-2.0
//! The control API: everything that the control plane may ask of the data plane.
//!
//! A [`Dataplane`] is a cheap handle (`Clone + Send + Sync`). It holds the canonical copy of what was written; writes
//! are checked here, applied by the packet thread between two batches, and acknowledged once they are in effect.
//! Reads never reach the packet thread: counters, registers and last-hit times are shared relaxed atomics.

mod links;
mod writes;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Semaphore, mpsc};

use self::links::Recent;
pub use self::links::{LinkView, WINDOW, Window};
use crate::change::Outbox;
pub use crate::change::{
    CloneSession, ColourCounts, CounterValue, Digest, DigestConfig, MeterConfig, PacketIn, Replica,
};
use crate::command::{self, Command};
use crate::engine::{Clock, Engine, Line};
pub use crate::link::{LinkConfig, QueueConfig};
use crate::machine::frame::Pool;
use crate::port::{Capture, FilePort, Interfaces, LanedPort, MemoryPort, PacketPort, PortCells, PortIo, mtu};
pub use crate::port::{MemoryEnd, PortConfig, PortNumber, PortStats, QueueStats};
pub use crate::program::{
    ActionCall, ActionId, CounterId, DigestId, EntryKey, KeyField, LoadError, MatchKind, MeterId, MeterUnit, ProfileId,
    Program, RegisterId, TableId, Value, ValueSetId,
};
use crate::store::Store;
pub use crate::update::{
    EntryAction, EntryView, GroupMember, ProfileGroup, Replicated, TableEntry, Update, UpdateError, WeightedCall,
};
use crate::v1model::{MIN_PACKETS, Port, Switch, SwitchCells};
use writes::Stage;

/// Events of a kind, or packet-outs, that may wait to be fetched.
const MAX_EVENTS: usize = 4096;
/// Frames beyond an interface's MTU: Ethernet header and one VLAN tag.
const FRAME_OVERHEAD: usize = 18;
const MIN_FRAME_BUFFER: usize = 2048;
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Entries looked at for idleness at a time.
const AGE_STEP: usize = 4096;

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

/// What the data plane tells, each stream bounded: what does not fit is dropped and counted.
pub struct Events {
    pub packet_ins: mpsc::Receiver<PacketIn>,
    pub digests: mpsc::Receiver<Digest>,
    pub notices: mpsc::Receiver<Notice>,
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

/// What a data plane is made of.
#[derive(Clone, Debug)]
pub struct DataplaneConfig {
    pub ports: Vec<PortConfig>,
    pub cpu_port: Option<PortNumber>,
    /// Queues per port, at most 8.
    pub priority_queues: usize,
    /// Seeds loss, jitter and P4's `random`.
    pub seed: u64,
    /// Where each port's frames are written, in `INTERFACE_in.pcap` and `INTERFACE_out.pcap`.
    pub capture: Option<PathBuf>,
    /// Threads that receive and send at each interface; 0: the packet thread does.
    pub io_threads: usize,
}

/// Why the data plane could not start: one line that names the thing and the mend.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// Packets that left the switch without a port's doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchStats {
    /// As many packets were in flight as memory is set aside for.
    pub no_buffer: u64,
    /// The egress port is none of the switch's, or the queue none of the port's.
    pub no_port: u64,
    /// Packet-ins and digests that were not fetched in time.
    pub not_fetched: u64,
}

struct PortHandle {
    number: PortNumber,
    interface: String,
    cells: Arc<PortCells>,
    up: AtomicBool,
    enabled: AtomicBool,
    failed: Arc<AtomicBool>,
    /// What the packet thread was told last.
    link: Mutex<Option<LinkConfig>>,
    recent: Mutex<Recent>,
}

struct Inner {
    commands: command::Sender,
    /// Bytes that a frame's buffer holds.
    longest_frame: usize,
    packet_outs: Arc<Semaphore>,
    store: Mutex<Option<Store>>,
    stage: Mutex<Option<Stage>>,
    ports: Vec<PortHandle>,
    /// Per port.
    queues: usize,
    /// The ports are network interfaces.
    interfaces: bool,
    /// Of each interface.
    io_threads: usize,
    cells: Arc<SwitchCells>,
    clock: Clock,
    seed: u64,
    notices: mpsc::Sender<Notice>,
    stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The handle.
#[derive(Clone)]
pub struct Dataplane {
    inner: Arc<Inner>,
    /// Reads and writes are about the program that waits to be committed.
    staged: bool,
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
        let open = |port: &PortConfig| {
            let cells = Arc::default();
            let io = open_interface(&port.interface, config.io_threads, longest, &cells).map_err(|e| fail(port, e))?;
            Ok((io, cells))
        };
        let lines = config.ports.iter().map(open).collect::<Result<_, _>>()?;
        Dataplane::start_on(config, lines, longest, true)
    }

    /// The same on files: a port receives `INTERFACE_in.pcap` after `wait`, in the order of all files' times, and sends
    /// to `INTERFACE_out.pcap`.
    pub fn start_on_files(config: DataplaneConfig, wait: Duration) -> Result<(Dataplane, Events), StartError> {
        let names: Vec<&str> = config.ports.iter().map(|port| port.interface.as_str()).collect();
        let (ports, longest) = FilePort::open(&names, wait).map_err(StartError)?;
        let lines = ports.into_iter().map(|port| (Box::new(port) as Box<dyn PortIo>, Arc::default())).collect();
        Dataplane::start_on(config, lines, longest.max(MIN_FRAME_BUFFER), false)
    }

    /// The same on ports whose other ends are in this process; the interfaces are only names.
    pub fn start_in_memory(config: DataplaneConfig) -> Result<(Dataplane, Events, Vec<MemoryEnd>), StartError> {
        let mut lines: Lines = Vec::new();
        let mut ends = Vec::new();
        for port in &config.ports {
            let (line, end) = MemoryPort::pair().map_err(|e| StartError(format!("port {}: {e}", port.number)))?;
            lines.push((Box::new(line), Arc::default()));
            ends.push(end);
        }
        let (dataplane, events) = Dataplane::start_on(config, lines, MIN_FRAME_BUFFER, false)?;
        Ok((dataplane, events, ends))
    }

    fn start_on(
        config: DataplaneConfig,
        lines: Lines,
        longest_frame: usize,
        watch_interfaces: bool,
    ) -> Result<(Dataplane, Events), StartError> {
        let fail = |what: &str, e: io::Error| StartError(format!("{what}: {e}"));
        let (packet_ins, packet_in_events) = mpsc::channel(MAX_EVENTS);
        let (digests, digest_events) = mpsc::channel(MAX_EVENTS);
        let (notices, notice_events) = mpsc::channel(MAX_EVENTS);
        let (commands, received) = command::channel().map_err(|e| fail("eventfd", e.into()))?;
        let clock = Clock::start();

        let ports = config.ports.iter().zip(&lines).map(|(port_config, (_, cells))| {
            let mut port = Port::new(port_config.number, port_config.link.clone(), config.seed);
            port.cells = cells.clone();
            port
        });
        let ports: Vec<Port> = ports.collect();
        let handles = config.ports.iter().zip(&ports).map(|(port_config, port)| PortHandle {
            number: port.number,
            interface: port_config.interface.clone(),
            cells: port.cells.clone(),
            up: AtomicBool::new(true),
            enabled: AtomicBool::new(true),
            failed: Arc::default(),
            link: Mutex::new(port_config.link.clone()),
            recent: Mutex::default(),
        });
        let handles: Vec<PortHandle> = handles.collect();
        let in_flight =
            config.ports.iter().filter_map(|port| port.link.as_ref()).map(|link| link.most_in_flight()).sum::<usize>();
        let pool = Pool::new(longest_frame, MIN_PACKETS + in_flight);
        let outbox = Outbox { packet_ins, digests };
        let switch = Switch::new(ports, pool, config.cpu_port, config.priority_queues, outbox, config.seed);
        let cells = switch.cells.clone();
        let lines = lines.into_iter().zip(&handles).map(|((io, _), handle)| {
            let create = |directory: &PathBuf| Capture::create(directory, &handle.interface).map_err(StartError);
            Ok(Line {
                io: Some(io),
                capture: config.capture.as_ref().map(create).transpose()?,
                failed: handle.failed.clone(),
                interface: handle.interface.clone(),
                enabled: true,
            })
        });
        let lines = lines.collect::<Result<_, StartError>>()?;
        let engine = Engine { switch, lines, commands: received, clock };
        let inner = Arc::new(Inner {
            commands,
            longest_frame,
            packet_outs: Arc::new(Semaphore::new(MAX_EVENTS)),
            store: Mutex::new(None),
            stage: Mutex::new(None),
            ports: handles,
            queues: config.priority_queues,
            interfaces: watch_interfaces,
            io_threads: config.io_threads,
            cells,
            clock,
            seed: config.seed,
            notices,
            stopping: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
        });
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_string()).spawn(body).map_err(|e| fail("thread", e))
        };
        let packet_thread = spawn("packets", Box::new(move || engine.run()))?;
        let watched = inner.clone();
        let interfaces = watch_interfaces.then(Interfaces::new).transpose().map_err(|e| fail("socket", e))?;
        let watcher = spawn("watch", Box::new(move || watch(&watched, interfaces.as_ref())))?;
        inner.threads.lock().unwrap().extend([packet_thread, watcher]);
        let events = Events { packet_ins: packet_in_events, digests: digest_events, notices: notice_events };
        Ok((Dataplane { inner, staged: false }, events))
    }

    /// Stops the packet thread and closes the ports; idempotent.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Relaxed);
        self.inner.commands.send(Command::Stop);
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
        self.read(|store, _| Ok(store.program.clone())).ok()
    }

    /// A packet-out: the frame enters ingress on the CPU port.
    pub fn inject(&self, frame: Vec<u8>) -> Result<(), UpdateError> {
        if frame.len() > self.inner.longest_frame {
            let (length, most) = (frame.len(), self.inner.longest_frame);
            return Err(UpdateError::InvalidArgument(format!("a frame of {length} bytes: {most} are the most")));
        }
        let Ok(place) = self.inner.packet_outs.clone().try_acquire_owned() else {
            return Err(UpdateError::ResourceExhausted(format!("{MAX_EVENTS} packet-outs wait already")));
        };
        if self.inner.commands.send(Command::Inject { frame, place }) { Ok(()) } else { Err(UpdateError::Stopped) }
    }

    pub fn entry(&self, table: TableId, key: &EntryKey) -> Result<EntryView, UpdateError> {
        self.read(|store, now| store.entry(table, key, now))
    }

    /// The direct counter of an entry, without the rest of it.
    /// Without a key: of the default entry, as also the next.
    pub fn direct_counter(&self, table: TableId, key: Option<&EntryKey>) -> Result<CounterValue, UpdateError> {
        self.read(|store, _| store.direct_counter(table, key))
    }

    /// What a direct meter has coloured.
    pub fn direct_colours(&self, table: TableId, key: Option<&EntryKey>) -> Result<ColourCounts, UpdateError> {
        self.read(|store, _| store.direct_colours(table, key))
    }

    /// The configuration of the meter of the table's default entry.
    pub fn default_meter(&self, table: TableId) -> Result<Option<MeterConfig>, UpdateError> {
        self.read(|store, _| store.default_meter(table))
    }

    /// All entries of the table, const ones too, in no order.
    pub fn entries(&self, table: TableId) -> Result<Vec<EntryView>, UpdateError> {
        self.read(|store, now| store.entries(table, now))
    }

    /// The default action in effect; `None`: the table has none.
    pub fn default_action(&self, table: TableId) -> Result<Option<ActionCall>, UpdateError> {
        self.read(|store, _| store.default_action(table))
    }

    /// The cells `range` of an indirect counter.
    pub fn counters(&self, counter: CounterId, range: Range<usize>) -> Result<Vec<CounterValue>, UpdateError> {
        self.read(|store, _| store.counters(counter.0, range))
    }

    /// The configurations of the cells `range` of an indirect meter.
    pub fn meters(&self, meter: MeterId, range: Range<usize>) -> Result<Vec<Option<MeterConfig>>, UpdateError> {
        self.read(|store, _| store.meters(meter.0, range))
    }

    /// What the cells `range` of an indirect meter have coloured.
    pub fn colours(&self, meter: MeterId, range: Range<usize>) -> Result<Vec<ColourCounts>, UpdateError> {
        self.read(|store, _| store.colours(meter.0, range))
    }

    pub fn registers(&self, register: RegisterId, range: Range<usize>) -> Result<Vec<Value>, UpdateError> {
        self.read(|store, _| store.registers(register.0, range))
    }

    pub fn digest_config(&self, digest: DigestId) -> Result<Option<DigestConfig>, UpdateError> {
        self.read(|store, _| store.digest_config(digest.0))
    }

    /// The members of an action profile, by id.
    pub fn profile_members(&self, profile: ProfileId) -> Result<Vec<(u32, ActionCall)>, UpdateError> {
        self.read(|store, _| Ok(store.profile(profile)?.members().map(|(id, action)| (id, action.clone())).collect()))
    }

    /// The groups of an action profile, by id; one-shot groups have none.
    pub fn profile_groups(&self, profile: ProfileId) -> Result<Vec<(u32, ProfileGroup)>, UpdateError> {
        self.read(|store, _| Ok(store.profile(profile)?.groups().map(|(id, group)| (id, group.clone())).collect()))
    }

    /// The members of a value set, as written.
    pub fn value_set(&self, set: ValueSetId) -> Result<Vec<Vec<KeyField>>, UpdateError> {
        self.read(|store, _| store.value_set(set))
    }

    pub fn multicast_groups(&self) -> BTreeMap<u32, Vec<Replica>> {
        self.read(|store, _| Ok(store.groups().clone())).unwrap_or_default()
    }

    pub fn clone_sessions(&self) -> BTreeMap<u32, CloneSession> {
        self.read(|store, _| Ok(store.sessions().clone())).unwrap_or_default()
    }

    /// What [`Update::SetBackups`] has set.
    pub fn backups(&self) -> BTreeMap<Replicated, Vec<Vec<Replica>>> {
        self.read(|store, _| Ok(store.backups().clone())).unwrap_or_default()
    }

    /// A cell of an indirect counter.
    pub fn counter(&self, counter: CounterId, index: usize) -> Result<CounterValue, UpdateError> {
        self.read(|store, _| store.counter(counter.0, index))
    }

    fn read<T>(&self, read: impl FnOnce(&Store, u64) -> Result<T, UpdateError>) -> Result<T, UpdateError> {
        let now = self.inner.clock.now();
        if self.staged {
            let stage = self.inner.stage();
            return read(&stage.as_ref().ok_or(UpdateError::NoProgram)?.store, now);
        }
        let store = self.inner.store();
        read(store.as_ref().ok_or(UpdateError::NoProgram)?, now)
    }

    pub fn ports(&self) -> Vec<PortView> {
        let view = |port: &PortHandle| PortView {
            number: port.number,
            interface: port.interface.clone(),
            up: port.up.load(Relaxed),
            stats: port.cells.read(),
        };
        self.inner.ports.iter().map(view).collect()
    }

    pub fn port_numbers(&self) -> Vec<PortNumber> {
        self.inner.ports.iter().map(|port| port.number).collect()
    }

    pub fn stats(&self) -> SwitchStats {
        SwitchStats {
            no_buffer: self.inner.cells.no_buffer.load(Relaxed),
            no_port: self.inner.cells.no_port.load(Relaxed),
            not_fetched: self.inner.cells.not_fetched.load(Relaxed),
        }
    }

    /// µs since the start of the switch, the clock of every timestamp that P4 sees.
    pub fn now_us(&self) -> u64 {
        self.inner.clock.now() / 1000
    }
}

impl Inner {
    fn store(&self) -> MutexGuard<'_, Option<Store>> {
        locked(&self.store)
    }

    fn stage(&self) -> MutexGuard<'_, Option<Stage>> {
        locked(&self.stage)
    }
}

/// Who holds one of our locks checks before it changes anything: a panic leaves all whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What carries a port's frames, and where it is counted.
type Lines = Vec<(Box<dyn PortIo>, Arc<PortCells>)>;

/// Opens an interface for a port, with as many threads of its own.
fn open_interface(
    interface: &str,
    threads: usize,
    longest_frame: usize,
    cells: &Arc<PortCells>,
) -> io::Result<Box<dyn PortIo>> {
    match threads {
        0 => Ok(Box::new(PacketPort::open(interface)?)),
        _ => Ok(Box::new(LanedPort::open(interface, threads, longest_frame, cells)?)),
    }
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

/// Looks after what has time: idle entries, and interfaces that go and come.
fn watch(inner: &Inner, interfaces: Option<&Interfaces>) {
    let mut known: Vec<Option<i32>> = vec![None; inner.ports.len()];
    while !inner.stopping.load(Relaxed) {
        age(inner);
        links::sample(inner);
        if let Some(interfaces) = interfaces {
            for (index, (port, known)) in inner.ports.iter().zip(&mut known).enumerate() {
                watch_interface(inner, interfaces, index, port, known);
            }
        }
        thread::park_timeout(WATCH_INTERVAL);
    }
}

fn age(inner: &Inner) {
    let tables = inner.store().as_ref().map_or(0, |store| store.program.tables.len());
    for table in 0..tables {
        let mut at = 0;
        loop {
            // Short, so that writers never wait long.
            let idle = match &mut *inner.store() {
                Some(store) if table < store.program.tables.len() && at < store.ageing_slots(table) => {
                    store.idle(table, at..at + AGE_STEP, inner.clock.now())
                }
                _ => break,
            };
            at += AGE_STEP;
            for entry in idle {
                if inner.notices.try_send(Notice::IdleTimeout(Box::new(entry))).is_err() {
                    // Told again after its next timeout.
                    tracing::debug!("an idle timeout was not fetched in time");
                }
            }
        }
    }
}

/// `known`: index of the interface that the port is open on. A port is up when its interface is, and has a carrier.
fn watch_interface(inner: &Inner, interfaces: &Interfaces, index: usize, port: &PortHandle, known: &mut Option<i32>) {
    let (now, up) = match interfaces.flags(&port.interface) {
        Ok((index, flags)) if flags & libc::IFF_UP != 0 => (Some(index), flags & libc::IFF_RUNNING != 0),
        _ => (None, false),
    };
    let failed = port.failed.load(Relaxed);
    let first = known.is_none() && port.up.load(Relaxed) && !failed;
    if now.is_some() && (*known != now && !first || failed) {
        match open_interface(&port.interface, inner.io_threads, inner.longest_frame, &port.cells) {
            Ok(io) => {
                inner.commands.send(Command::Open { port: index, io });
            }
            Err(e) => {
                tracing::warn!("port {}: {}", port.number, open_error(&port.interface, &e));
                return;
            }
        }
    }
    *known = now;
    links::set_up(inner, port, up && port.enabled.load(Relaxed));
}
