// SPDX-License-Identifier: Apache-2.0
//! Server: receives the data that users send up, sends the data that they request, and reports the result.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::model::{Direction, Length};
use super::protocol::{self, Answer, Hello, Order, PATIENCE, Request, Sent};
use super::raised;
use super::socket::{Sender, congestion, discard, info};
use hosts_base::log::report;
use hosts_base::slots::{self, ConnectionSlots, raise_descriptor_limit};
use hosts_base::{About, Error};

/// Reports that wait for a slow control connection; more wait in their sessions.
const REPORTS: usize = 256;
/// Time after which a vanished client is detected.
const SILENCE: Duration = Duration::from_secs(10);

/// File with the congestion controls that the kernel lets every program choose.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// Maximum bytes of a congestion control's name (TCP_CA_NAME_MAX).
const MAX_NAME: usize = 15;

/// Active runs by name.
type Runs = Arc<Mutex<HashMap<String, Run>>>;

#[derive(Clone)]
struct Run {
    reports: mpsc::Sender<Sent>,
    stop: watch::Receiver<bool>,
}

/// Congestion controls that clients may request.
#[derive(Clone)]
pub enum Controls {
    /// Congestion controls that the kernel lets every program choose
    Allowed,
    These(Arc<[String]>),
}

impl Controls {
    /// Check a client's congestion control. Errors: the reason, for the client.
    fn permit(&self, name: &str) -> Result<(), String> {
        if name.len() > MAX_NAME {
            return Err("a congestion control of more than 15 bytes".into());
        }
        let permitted = match self {
            Self::Allowed => {
                std::fs::read_to_string(ALLOWED).is_ok_and(|names| names.split_whitespace().any(|n| n == name))
            }
            Self::These(names) => names.iter().any(|n| n == name),
        };
        if permitted {
            Ok(())
        } else {
            Err(format!("congestion control '{name}': start the server with --congestion {name}"))
        }
    }
}

/// Serve on `listen` until the process ends. `connections`: maximum at a time; then the address that has the most loses
/// its oldest. `controls`: congestion controls that clients may request.
pub async fn serve(listen: SocketAddr, connections: usize, controls: Controls) -> Result<(), Error> {
    raise_descriptor_limit();
    let listener = slots::listen(listen).about(format_args!("listen on TCP {listen}"))?;
    // The process that started this waits for the line.
    println!("listening on {}", listener.local_addr().about("the listening address")?);
    let runs = Runs::default();
    let slots = ConnectionSlots::new(connections);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                // Out of descriptors, for example: not for ever.
                report(format_args!("accept: {e}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (runs, slots, controls) = (runs.clone(), slots.clone(), controls.clone());
        tokio::spawn(async move {
            match slots.hold(peer.ip(), converse(stream, runs, &controls)).await {
                Some(Err(e)) if e.kind() == io::ErrorKind::InvalidData => report(format_args!("{peer}: {e}")),
                None => report(format_args!("{peer}: it was evicted for others")),
                Some(_) => {}
            }
        });
    }
}

async fn converse(mut stream: TcpStream, runs: Runs, controls: &Controls) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(SILENCE / 2).with_interval(SILENCE / 4).with_retries(2);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let hello: Hello = timeout(PATIENCE, protocol::read(&mut stream)).await??;
    if !hello.is_known() {
        return refuse(&mut stream, "it has another version").await;
    }
    match &hello.run {
        None => control(stream, runs).await,
        Some(name) => {
            let run = runs.lock().expect("no holder panics").get(name).cloned();
            match run {
                Some(run) => data(stream, &hello, run, controls).await,
                None => refuse(&mut stream, "the run is over").await,
            }
        }
    }
}

async fn refuse(stream: &mut TcpStream, why: impl ToString) -> io::Result<()> {
    protocol::write(stream, &Answer::Refused(why.to_string())).await
}

/// Name a run, pass reports on, and end it with the connection or by order.
async fn control(mut stream: TcpStream, runs: Runs) -> io::Result<()> {
    let name = format!("{:016x}", rand::random::<u64>());
    let (reports, mut reported) = mpsc::channel(REPORTS);
    let (stop, stopped) = watch::channel(false);
    runs.lock().expect("no holder panics").insert(name.clone(), Run { reports, stop: stopped });
    let active = ActiveRun { runs, name: name.clone(), _stop: stop };
    let named = protocol::write(&mut stream, &Answer::Run(name)).await;
    let (mut from_client, mut to_client) = stream.into_split();
    // A set ends its task when it is dropped.
    let mut ordered = JoinSet::new();
    ordered.spawn(async move {
        // Any message ends the run, the end of the connection included.
        let _active = active;
        protocol::read(&mut from_client).await.map(|Order::Stop| ())
    });
    let mut passed_on = named;
    while let Some(sent) = reported.recv().await {
        if passed_on.is_ok() {
            passed_on = protocol::write(&mut to_client, &Answer::Sent(sent)).await;
        }
    }
    ordered.join_next().await.expect("there is one").map_err(io::Error::other)??;
    passed_on?;
    protocol::write(&mut to_client, &Answer::End).await
}

/// Run with a live control connection. When dropped, there are no new data connections; the existing ones are notified,
/// and the last one closes the channel.
struct ActiveRun {
    runs: Runs,
    name: String,
    _stop: watch::Sender<bool>,
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.runs.lock().expect("no holder panics").remove(&self.name);
    }
}

async fn data(mut stream: TcpStream, hello: &Hello, mut run: Run, controls: &Controls) -> io::Result<()> {
    if let Some(name) = &hello.congestion {
        if let Err(why) = controls.permit(name) {
            return refuse(&mut stream, why).await;
        }
        if let Err(e) = SockRef::from(&stream).set_tcp_congestion(name.as_bytes()) {
            return refuse(&mut stream, format!("congestion control '{name}': {e}")).await;
        }
    }
    let mut sender = Sender::new(stream)?;
    sender.write(&protocol::line(&Answer::Ready)).await?;
    let mut stop = run.stop.clone();
    loop {
        let mut bytes = [0; Request::BYTES];
        tokio::select! {
            read = sender.stream.read_exact(&mut bytes) => read?,
            _ = raised(&mut stop) => break,
        };
        let request = Request::from_bytes(bytes).ok_or_else(|| protocol::foreign("no request"))?;
        let continues = match request.direction {
            Direction::Up => tokio::select! {
                taken = take(&sender.stream, request.length) => { taken?; true }
                _ = raised(&mut stop) => false,
            },
            Direction::Down => give(&mut sender, hello.user, request, &mut run).await?,
        };
        if !continues {
            break;
        }
    }
    sender.abort();
    Ok(())
}

async fn take(stream: &TcpStream, length: Length) -> io::Result<()> {
    let mut left = match length {
        Length::Bytes(bytes) => bytes,
        Length::Endless => u64::MAX,
    };
    while left > 0 {
        match discard(stream, left).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => left -= count,
        }
    }
    Ok(())
}

/// Send a session and report it. False: the run is over.
async fn give(sender: &mut Sender, user: u32, request: Request, run: &mut Run) -> io::Result<bool> {
    let start = SystemTime::now();
    let before = info(&sender.stream)?.retransmits;
    let acknowledged = tokio::select! {
        acknowledged = transmit(sender, request.length) => Some(acknowledged),
        _ = raised(&mut run.stop) => None,
    };
    let finish = match &acknowledged {
        Some(Ok(time)) => Some(time.duration_since(start).unwrap_or_default().as_secs_f64()),
        _ => None,
    };
    let retransmits = info(&sender.stream).map_or(0, |info| info.retransmits.saturating_sub(before));
    let congestion = congestion(&sender.stream);
    // A closed control connection needs no report.
    let _ = run.reports.send(Sent { user, session: request.session, finish, retransmits, congestion }).await;
    match acknowledged {
        Some(Ok(_)) => Ok(true),
        Some(Err(error)) => Err(error),
        None => Ok(false),
    }
}

async fn transmit(sender: &mut Sender, length: Length) -> io::Result<SystemTime> {
    match length {
        Length::Bytes(bytes) => sender.transmit(bytes).await,
        Length::Endless => Err(sender.transmit_endlessly().await),
    }
}
