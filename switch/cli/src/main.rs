// SPDX-License-Identifier: Apache-2.0
//! The program `apswitch`: options, logs, start and stop.

#![forbid(unsafe_code)]

mod bmv2;
mod entries;
mod explain;
mod options;
mod package;
mod server;
mod trace;

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use apswitch_dataplane::control::{Dataplane, DataplaneConfig, Events, Program};
use apswitch_thrift::notifications;
use clap::Parser;
use options::{Command, LogFormat, Options};
use rustix::process::{getpriority_process, setpriority_process};
use server::{P4RuntimeListener, ServerConfig};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Packets go before what else wants the same core, if this process may say so (setpriority(2)): a packet thread that
/// waits for a few ms loses what has arrived meanwhile. Both are relative to the niceness that the switch starts with.
const PACKET_NICE: i32 = -10;
/// Requests go behind packets in any case.
const CONTROL_NICE: i32 = 5;
/// Lines of the log that may wait to be written; what comes then is lost.
const LOG_LINES: usize = 4096;
/// Digests that may wait for P4Runtime's clients where they are published, too.
const MAX_DIGESTS: usize = 4096;
/// Niceness of long work, behind requests: large reads, pipelines that are made ready, gNMI's walks of the tree.
const ASIDE_NICE: i32 = 19;
/// Connections that have their turn before the runtime polls for new events: who asks for little waits
/// for few of those that ask for much.
const TURNS: u32 = 4;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let bmv2 = match bmv2::is_called(&program).then(|| bmv2::translate(&program, words)) {
        None => None,
        Some(Ok(bmv2::Line::Start(start))) => Some(start),
        Some(Ok(bmv2::Line::Text(text))) => return package::print_line(&text),
        Some(Err(message)) => {
            eprintln!("{}: {message}", program.display());
            return ExitCode::from(2);
        }
    };
    let options = match &bmv2 {
        Some(start) => Options::parse_from(std::iter::once(&program).chain(&start.words)),
        None => Options::parse_from(options::without_separator(std::env::args_os())),
    };
    let bmv2 = bmv2.unwrap_or_default();
    if let Some(command) = &options.command {
        let done = match command {
            Command::Explain(options) => explain::run(options).map_err(|e| format!("explain: {e}")),
            Command::Trace(options) => trace::run(options).map_err(|e| format!("trace: {e}")),
            Command::Completions { shell } => package::completions(*shell),
            Command::Man { page } => package::man(page.as_deref()).map_err(|e| format!("man: {e}")),
        };
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("apswitch {message}");
                ExitCode::from(2)
            }
        };
    }
    let niceness = getpriority_process(None).unwrap_or(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(TURNS)
        .thread_name("aside")
        .on_thread_start(move || {
            if let Err(e) = setpriority_process(None, niceness + ASIDE_NICE) {
                tracing::debug!("setpriority: {e}");
            }
        })
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(options, bmv2)),
        Err(e) => Err(format!("cannot start threads: {e}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("apswitch: {message}");
            ExitCode::from(2)
        }
    }
}

/// `bmv2`: what is told to someone who calls the switch as BMv2's.
async fn run(options: Options, bmv2: bmv2::Start) -> Result<(), String> {
    // Until it is dropped: what is still to be written then has a second.
    let _log = start_log(&options, bmv2.log_to_stdout)?;
    bmv2.notes.iter().for_each(|note| tracing::warn!("{note}"));
    let program = match &options.program {
        Some(path) => {
            let name = path.display();
            let json = std::fs::read(path).map_err(|e| format!("{name}: {e}: give a BMv2 JSON file, or --no-p4"))?;
            let mut program = Program::load(&json).map_err(|e| format!("{name}: {e}"))?;
            program.source = json.into();
            Some(program)
        }
        None => None,
    };
    let device = &options.device;
    let ports = device.ports()?;
    if let Some(value) = &options.nanolog {
        tracing::info!("--nanolog {value} is not used: `apswitch trace` shows the steps of packets");
    }

    let server = P4RuntimeListener::bind(&ServerConfig {
        device_id: device.device_id,
        address: options.grpc_server_addr.clone(),
        tls: options.tls(),
        allow: options.allow.clone(),
        insecure: options.insecure,
    })
    .await?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut asked = signal(SignalKind::user_defined1()).map_err(|e| e.to_string())?;
    if let Some(secured) = server.secured() {
        let mut hangup = signal(SignalKind::hangup()).map_err(|e| e.to_string())?;
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                secured.reload();
            }
        });
    }

    // Nobody can tell which keys collide, or which packets are lost.
    let seed = device.seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    tracing::debug!("seed {seed}");
    let config = DataplaneConfig {
        ports,
        cpu_port: device.cpu_port,
        priority_queues: device.priority_queues,
        seed,
        capture: options.pcap.clone(),
        aside,
    };
    // Niceness of this thread alone, and of those that it starts here: the data plane's.
    let niceness = getpriority_process(None).unwrap_or(0);
    if let Err(e) = setpriority_process(None, niceness + PACKET_NICE) {
        tracing::debug!("cannot raise scheduling priority: {e}");
    }
    let started = match options.use_files {
        Some(seconds) => Dataplane::start_on_files(config, Duration::from_secs(seconds)),
        None => Dataplane::start(config),
    };
    let (dataplane, mut events) = started.map_err(|e| e.to_string())?;
    // This thread serves requests.
    if let Err(e) = setpriority_process(None, niceness + CONTROL_NICE) {
        tracing::warn!("setpriority: {e}");
    }
    if let Some(program) = program {
        dataplane.commit(program).await.map_err(|e| e.to_string())?;
    }
    let thrift = bmv2.thrift.or(options.thrift_port.map(|port| (port, true)));
    let _notifications = match thrift {
        Some(thrift) => serve_thrift(thrift, &bmv2, device.device_id, &dataplane, &mut events)?,
        None => None,
    };
    if let Ok(address) = server.local_addr() {
        tracing::info!("device {}: {} ports, P4Runtime on {address}", device.device_id, dataplane.ports().len());
    }
    let counted = dataplane.clone();
    let stop = async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => return,
                _ = terminate.recv() => return,
                _ = asked.recv() => log_counts(&counted),
            }
        }
    };
    let result = server.serve(dataplane.clone(), events, stop).await;
    dataplane.stop();
    log_counts(&dataplane);
    result
}

/// Serves BMv2's runtime interface at a port of loopback, and publishes digests at the address of BMv2's line. Returns
/// their socket, which lives as long as the value. A port that is taken is an error, as in BMv2, if an option names it.
fn serve_thrift(
    (port, is_asked_for): (u16, bool),
    bmv2: &bmv2::Start,
    device_id: u64,
    dataplane: &Dataplane,
    events: &mut Events,
) -> Result<Option<notifications::Socket>, String> {
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(listener) => listener,
        Err(error) if is_asked_for => return Err(format!("Thrift port {port}: {error}: give another --thrift-port")),
        Err(error) => {
            tracing::info!("Thrift port {port}: {error}: nothing is served there without --thrift-port");
            return Ok(None);
        }
    };
    let mut socket = None;
    if let Some(address) = &bmv2.notifications {
        let (onward, digests) = async_channel::bounded(MAX_DIGESTS);
        match notifications::publish(dataplane.clone(), device_id, address, events.digests.clone(), onward) {
            Ok(published) => {
                socket = Some(published);
                events.digests = digests;
            }
            Err(error) => tracing::warn!("notifications at {address}: {error}: digests are not published"),
        }
    }
    let notifications = socket.as_ref().and(bmv2.notifications.clone());
    let port = listener.local_addr().map_or(port, |address| address.port());
    let device = apswitch_thrift::Device { device_id, port, notifications };
    let served = apswitch_thrift::Server::new(dataplane.clone(), device).serve(listener);
    served.map_err(|error| format!("Thrift: {error}"))?;
    tracing::info!("Thrift on 127.0.0.1:{port}: every user of this machine controls the switch by it");
    Ok(socket)
}

/// Long work has a thread of the runtime's own; that of a thread outside of it, a client's of Thrift, is done there.
fn aside(work: Box<dyn FnOnce() + Send>) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// Logs the counts since the start: at the end, and on SIGUSR1.
fn log_counts(dataplane: &Dataplane) {
    for port in dataplane.ports() {
        tracing::info!("port {} ({}): {}", port.number, port.interface, port.stats);
    }
    tracing::info!("dropped packets by reason: {}", dataplane.drops());
}

/// Lines go through a thread of their own, and are lost when it does not get rid of them: a terminal that is stopped,
/// or a pipe that nobody reads, stops nothing else.
fn start_log(options: &Options, to_stdout: bool) -> Result<WorkerGuard, String> {
    let level: LevelFilter = options.log_level.into();
    let (target, coloured): (Box<dyn Write + Send>, bool) = match &options.log_file {
        Some(path) => {
            let file = File::create(path).map_err(|e| format!("--log-file {}: {e}", path.display()))?;
            (Box::new(file), false)
        }
        None if to_stdout => (Box::new(std::io::stdout()), std::io::stdout().is_terminal() && wants_colours()),
        None => (Box::new(std::io::stderr()), std::io::stderr().is_terminal() && wants_colours()),
    };
    let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(LOG_LINES).finish(target);
    let log = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_writer(writer);
    // Frames of HTTP/2 say nothing of what a client asks for, and hide the lines that do.
    let frames = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::WARN) };
    let targets =
        Targets::new().with_default(level).with_targets([("h2", frames), ("hyper", frames), ("tower", frames)]);
    match options.log_format {
        LogFormat::Text => log.with_ansi(coloured).finish().with(targets).init(),
        LogFormat::Json => log.json().flatten_event(true).finish().with(targets).init(),
    }
    Ok(guard)
}

/// Returns true unless the environment has NO_COLOR with a value (https://no-color.org).
fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
