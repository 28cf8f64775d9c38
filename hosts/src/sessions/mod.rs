// SPDX-License-Identifier: Apache-2.0
//! TCP sessions from a traffic model, and their fairness ("Instantaneous fairness of TCP in heterogeneous traffic wireless LAN
//! environments", sections 3 and 4).
//!
//! ```text
//! model.rs: who sends what when --> run.rs <--protocol.rs--> serve.rs      socket.rs: what TCP tells them
//!                                      |
//!                                  results.rs --> report.rs --> fairness
//! ```

mod model;
mod protocol;
mod report;
mod results;
mod run;
mod serve;
mod socket;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::model::{Direction, Model};
use self::report::{Effective, fairness};
use self::results::{Line, Outcome, Session};
use crate::bootstrap::Interval;
use hosts_base::output::Format;
use hosts_base::units::{rate, show_rate};
use hosts_base::{About, Error};

#[derive(Subcommand)]
pub enum Command {
    /// Run the server: receive the data that users send up, send the data that they request
    Serve(ServeOptions),
    /// Run a model's users against a server and print a result for each session
    Run(RunOptions),
    /// Print the paper's model: half of the nodes send persistently, the others intermittently
    Model(ModelOptions),
    /// Compute the instantaneous fairness index and Jain's index from results
    ///
    /// The ideal finish time of a session is its length over the fair share, the effective bandwidth (--down, --up) over the
    /// number of all users, whether they send or pause. The index is the mean of ideal over measured finish time of all
    /// sessions that finished; unfinished and endless ones are left out, and "at most" says what the unfinished could change.
    Fairness(FairnessOptions),
}

#[derive(Args)]
pub struct ServeOptions {
    /// TCP address to listen on
    #[arg(long, value_name = "ADDRESS:PORT",
        default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), protocol::PORT))]
    listen: SocketAddr,
    /// Serve every client that reaches the address: needed elsewhere than on loopback
    #[arg(long)]
    open: bool,
    /// Connections at a time; then the address that has the most loses its oldest
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    connections: u32,
    /// Congestion control that clients may ask for; repeatable [default: net.ipv4.tcp_allowed_congestion_control]
    #[arg(long = "congestion", value_name = "NAME")]
    controls: Vec<String>,
}

#[derive(Args)]
pub struct RunOptions {
    /// File with the model, as `hosts sessions model` prints it; - is standard input
    model: PathBuf,
    /// Address or name of the server, port if not 8640
    #[arg(long, value_name = "HOST")]
    to: String,
    /// Run only this user, as one station does; repeatable
    #[arg(long = "user", value_name = "NAME")]
    users: Vec<String>,
    /// Begin at this time, seconds since the epoch, with other stations
    #[arg(long, value_name = "TIME")]
    at: Option<f64>,
    /// Congestion control of the sending side, for users whose model names none
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Interface to use, for users whose model names none
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Address to connect from, for users whose model names none
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    #[command(flatten)]
    format: Format,
}

#[derive(Args)]
pub struct ModelOptions {
    /// Nodes, an even number
    #[arg(long, default_value_t = 4, value_parser = even)]
    nodes: usize,
    /// Bytes of a session
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1 << 50))]
    length: u64,
    /// Seconds from one session of a node to its next
    #[arg(long, default_value_t = 10.0)]
    period: f64,
    /// Direction of all nodes' data
    #[arg(long, value_enum, default_value_t = DirectionArg::Down)]
    direction: DirectionArg,
    /// Length of the run
    #[arg(long, default_value_t = 100.0)]
    seconds: f64,
}

#[derive(Args)]
pub struct FairnessOptions {
    /// Files that `hosts sessions run --json` wrote: parts of one run (with the same --at), or runs
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Effective bandwidth of sessions to the client, such as 4.96mbit: the maximum total throughput of TCP
    #[arg(long, value_name = "RATE", value_parser = rate)]
    down: Option<u64>,
    /// Effective bandwidth of sessions to the server
    #[arg(long, value_name = "RATE", value_parser = rate)]
    up: Option<u64>,
    #[command(flatten)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum DirectionArg {
    Down,
    Up,
}

fn even(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(nodes) if nodes % 2 == 0 && (2..=1000).contains(&nodes) => Ok(nodes),
        _ => Err(format!("'{text}' is no even number from 2 to 1000: half of the nodes send persistently")),
    }
}

pub fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Serve(options) => run_server(options),
        Command::Run(options) => runtime()?.block_on(run_model(options)),
        Command::Model(options) => print_model(&options),
        Command::Fairness(options) => print_fairness(options),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().about("threads")
}

async fn run_model(options: RunOptions) -> Result<(), Error> {
    let name = options.model.display().to_string();
    let text = if name == "-" {
        std::io::read_to_string(std::io::stdin()).about("standard input")?
    } else {
        std::fs::read_to_string(&options.model).about(format_args!("model {name}"))?
    };
    let mut model = Model::parse(&text).about(format_args!("model {name}"))?;
    for user in &mut model.users {
        user.congestion = user.congestion.take().or_else(|| options.congestion.clone());
        user.interface = user.interface.take().or_else(|| options.interface.clone());
        user.source = user.source.or(options.source);
    }
    let chosen = chosen(&model, &options.users)?;
    let server = run::resolve(&options.to).await?;
    hosts_base::slots::raise_descriptor_limit();
    let mut interrupt = signal(SignalKind::interrupt()).about("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).about("SIGTERM")?;
    let interrupted = async {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    };
    let (mut shown, mut sessions, mut failed, mut first) = (Vec::new(), 0, 0, None);
    let print = |line: Line| {
        if let Line::Session(session) = &line {
            sessions += 1;
            if session.outcome == Outcome::Failed {
                failed += 1;
                first.get_or_insert_with(|| {
                    let why = session.error.clone().unwrap_or_default();
                    format!("{} session {}: {why}", session.user, session.session)
                });
            }
        }
        match line {
            line if options.format.is_json() => {
                // A reader of a run that is killed has all earlier results.
                let mut out = std::io::stdout().lock();
                let _ = writeln!(out, "{}", serde_json::to_string(&line).expect("lines are plain data"));
                let _ = out.flush();
            }
            Line::Session(session) => shown.push(session),
            Line::Run(_) => {}
        }
    };
    run::run(&model, &chosen, server, options.at, interrupted, print).await?;
    if !options.format.is_json() {
        show_sessions(&shown, options.format);
    }
    match first {
        None => Ok(()),
        Some(first) => Err(Error::new(format!("{failed} of {sessions} sessions failed, first {first}"))),
    }
}

/// Wait until the flag is true, or its sender is gone.
async fn raised(flag: &mut watch::Receiver<bool>) {
    // The guard of the value must not be held while others wait.
    drop(flag.wait_for(|&raised| raised).await);
}

fn run_server(options: ServeOptions) -> Result<(), Error> {
    if !options.open && !options.listen.ip().is_loopback() {
        return Err(Error::new(format!(
            "{} is not loopback, and every host could have this one send: say --open, or listen on 127.0.0.1",
            options.listen
        )));
    }
    let controls = match options.controls.is_empty() {
        true => serve::Controls::Allowed,
        false => serve::Controls::These(options.controls.into()),
    };
    runtime()?.block_on(serve::serve(options.listen, options.connections as usize, controls))
}

/// Return the numbers of the users to run: all, or those named.
fn chosen(model: &Model, names: &[String]) -> Result<Vec<usize>, Error> {
    if names.is_empty() {
        return Ok((0..model.users.len()).collect());
    }
    let find = |name: &String| {
        let found = model.users.iter().position(|user| user.name == *name);
        found.ok_or_else(|| Error::new(format!("--user {name}: the model has no user of that name")))
    };
    let mut found: Vec<usize> = names.iter().map(find).collect::<Result<_, _>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn show_sessions(sessions: &[Session], format: Format) {
    let columns = ["user", "session", "direction", "start", "length", "finish", "bytes", "sent again", "outcome"];
    format.print(sessions, &columns, |session| {
        vec![
            session.user.clone(),
            session.session.to_string(),
            match session.direction {
                Direction::Down => "down".into(),
                Direction::Up => "up".into(),
            },
            format!("{:.3} s", session.start),
            session.length.map_or("endless".into(), |length| length.to_string()),
            session.finish.map_or("-".into(), |finish| format!("{finish:.4} s")),
            session.bytes.to_string(),
            session.retransmits.to_string(),
            match (session.outcome, &session.error) {
                (Outcome::Finished, _) => "finished".into(),
                (Outcome::Endless, _) => "endless".into(),
                (Outcome::Unfinished, _) => "unfinished".into(),
                (Outcome::Failed, error) => format!("failed: {}", error.as_deref().unwrap_or("")),
            },
        ]
    });
}

fn print_model(options: &ModelOptions) -> Result<(), Error> {
    let direction = match options.direction {
        DirectionArg::Down => Direction::Down,
        DirectionArg::Up => Direction::Up,
    };
    let model = Model::of_paper(options.nodes, options.length, options.period, direction, options.seconds);
    let text = serde_json::to_string_pretty(&model).about("the model")?;
    // A model that cannot be run is not printed: a period of 0, or one that is longer than the run.
    Model::parse(&text)?;
    println!("{text}");
    Ok(())
}

fn print_fairness(options: FairnessOptions) -> Result<(), Error> {
    let parts = options.results.iter().map(|path| results::read(path)).collect::<Result<Vec<_>, _>>()?;
    let bytes = |rate: Option<u64>| rate.map(|rate| rate as f64 / 8.0);
    let found = fairness(&parts, Effective { down: bytes(options.down), up: bytes(options.up) })?;
    let columns = ["runs", "nodes", "finished", "unfinished", "IF (95 %)", "IF at most", "Jain (95 %)", "throughput"];
    let interval = |interval: Option<Interval>| match interval {
        Some(Interval { value, low, high }) => format!("{value:.3} ({low:.3} to {high:.3})"),
        None => "-".into(),
    };
    options.format.print(&[found], &columns, |found| {
        vec![
            found.runs.to_string(),
            found.nodes.to_string(),
            found.finished.to_string(),
            found.unfinished.to_string(),
            interval(found.instantaneous_fairness),
            found.at_most.map_or("-".into(), |index| format!("{index:.3}")),
            interval(found.jain),
            show_rate(found.throughput),
        ]
    });
    Ok(())
}
