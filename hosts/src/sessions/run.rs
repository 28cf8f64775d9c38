// SPDX-License-Identifier: Apache-2.0
//! Client: every user of the model at its time, and a result for each session as soon as it is over.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Socket, Type};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::model::{Connection, Direction, Length, Model, User};
use super::protocol::{self, Answer, Hello, Order, PATIENCE, Request, Sent};
use super::raised;
use super::results::{Line, Outcome, Run, Session};
use super::socket::{Sender, congestion, discard, info};
use hosts_base::{About, Error};

/// Time to connect every user before the run begins, if no start is given.
const PREPARATION: Duration = Duration::from_millis(100);
/// Connections that are made at once.
const AT_ONCE: usize = 64;
/// Results that wait for a slow reader; then sessions wait with theirs, and not in memory.
const RESULTS: usize = 1024;

/// Sessions that wait for the server's report, by (user, session).
type Waiting = HashMap<(u32, u32), oneshot::Sender<Sent>>;

/// Context that all users of a run share.
struct RunContext {
    server: SocketAddr,
    run: String,
    /// Start, by the clock of the timers.
    origin: tokio::time::Instant,
    /// True when the run is over.
    over: watch::Receiver<bool>,
    /// Waiting sessions; `None`: the control connection is closed.
    waiting: Mutex<Option<Waiting>>,
    results: mpsc::Sender<Session>,
}

/// Run the model's users, numbers in `chosen`, against `server` and pass each line of the results to `print`.
///
/// `at`: start in s since the epoch. `interrupted` ends the run early. Errors: those before it begins; results report
/// later ones.
pub async fn run(
    model: &Model,
    chosen: &[usize],
    server: SocketAddr,
    at: Option<f64>,
    interrupted: impl Future<Output = ()>,
    mut print: impl FnMut(Line),
) -> Result<(), Error> {
    let about = || format!("server {server} (start it there: hosts sessions serve)");
    let connected = timeout(PATIENCE, TcpStream::connect(server)).await.map_err(|_| io::ErrorKind::TimedOut.into());
    let mut control = connected.and_then(|done| done).about(about())?;
    control.set_nodelay(true).about(about())?;
    protocol::write(&mut control, &Hello::control()).await.about(about())?;
    let name = match protocol::read(&mut control).await.about(about())? {
        Answer::Run(name) => name,
        Answer::Refused(why) => return Err(Error::new(format!("{} refuses: {why}", about()))),
        _ => return Err(Error::new(format!("{}: {}", about(), protocol::foreign("no name of a run")))),
    };
    let mut connections = prepare(model, chosen, server, &name).await?;
    let (origin, started) = beginning(at)?;
    let (over, is_over) = watch::channel(false);
    let (results, mut lines) = mpsc::channel(RESULTS);
    let shared = Arc::new(RunContext {
        server,
        run: name,
        origin,
        over: is_over,
        waiting: Mutex::new(Some(HashMap::new())),
        results,
    });
    print(Line::Run(Run { started, seconds: model.seconds, nodes: model.users.len(), server: server.to_string() }));
    let mut users = JoinSet::new();
    for &number in chosen {
        let user = model.users[number].clone();
        let first = connections.remove(&number);
        let each = model.connection == Connection::Session;
        users.spawn(user_sessions(shared.clone(), number as u32, user, model.seconds, each, first));
    }
    let (from_server, to_server) = control.into_split();
    let reports = tokio::spawn(take_reports(from_server, shared.clone()));
    let order = tokio::spawn(order_stop(to_server, over.subscribe()));
    let end = sleep_until(origin + Duration::from_secs_f64(model.seconds));
    tokio::pin!(end, interrupted);
    loop {
        tokio::select! {
            Some(line) = lines.recv() => print(Line::Session(line)),
            () = &mut end, if !*over.borrow() => { let _ = over.send(true); }
            () = &mut interrupted, if !*over.borrow() => { let _ = over.send(true); }
            ended = users.join_next() => if ended.is_none() {
                break;
            },
        }
    }
    while let Ok(line) = lines.try_recv() {
        print(Line::Session(line));
    }
    // All sessions that waited for reports have ended: later reports are not needed.
    reports.abort();
    order.abort();
    Ok(())
}

/// Return the start of the run: by the clock of the timers, and in s since the epoch.
fn beginning(at: Option<f64>) -> Result<(tokio::time::Instant, f64), Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let started = at.unwrap_or(now + PREPARATION.as_secs_f64());
    match Duration::try_from_secs_f64(started - now) {
        Ok(left) if left < Duration::from_secs(86_400) => Ok((tokio::time::Instant::now() + left, started)),
        _ => Err(Error::new(format!(
            "--at {started} is no time within the next day: it is {now:.3} now, and all users are connected"
        ))),
    }
}

/// Make the connections that last for the whole run, by user, so that no handshake counts.
async fn prepare(
    model: &Model,
    chosen: &[usize],
    server: SocketAddr,
    run: &str,
) -> Result<HashMap<usize, Sender>, Error> {
    let mut connections = HashMap::new();
    if model.connection == Connection::Session {
        return Ok(connections);
    }
    for some in chosen.chunks(AT_ONCE) {
        let mut connecting = JoinSet::new();
        for &number in some {
            let (user, run) = (model.users[number].clone(), run.to_owned());
            connecting.spawn(async move {
                let connection = timeout(PATIENCE, connect(server, &run, number as u32, &user)).await;
                (number, connection.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())))
            });
        }
        while let Some(connected) = connecting.join_next().await {
            let (number, connection) = connected.about("connect")?;
            let name = &model.users[number].name;
            connections.insert(number, connection.about(format_args!("users[{number}] ({name}): {server}"))?);
        }
    }
    Ok(connections)
}

async fn connect(server: SocketAddr, run: &str, number: u32, user: &User) -> io::Result<Sender> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM.nonblocking().cloexec(), None)?;
    let named = |what: &str, e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
    if let Some(interface) = &user.interface {
        let bound = socket.bind_device(Some(interface.as_bytes()));
        bound.map_err(|e| named(&format!("interface '{interface}'"), e))?;
    }
    if let Some(source) = user.source {
        let bound = socket.bind(&SocketAddr::new(source, 0).into());
        bound.map_err(|e| named(&format!("source {source}"), e))?;
    }
    let mut requested = None;
    match (&user.congestion, user.direction) {
        (Some(name), Direction::Up) => {
            socket
                .set_tcp_congestion(name.as_bytes())
                .map_err(|e| named(&format!("congestion control '{name}'"), e))?;
        }
        (Some(name), Direction::Down) => requested = Some(name.clone()),
        (None, _) => {}
    }
    let mut sender = Sender::new(TcpSocket::from_std_stream(socket.into()).connect(server).await?)?;
    sender.write(&protocol::line(&Hello::data(run, number, requested))).await?;
    match protocol::read(&mut sender.stream).await? {
        Answer::Ready => Ok(sender),
        Answer::Refused(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("the server: {why}"))),
        _ => Err(protocol::foreign("no answer to a user")),
    }
}

/// Pass the server's reports to the sessions that wait for them.
async fn take_reports(mut control: OwnedReadHalf, shared: Arc<RunContext>) {
    while let Ok(Answer::Sent(sent)) = protocol::read(&mut control).await {
        let mut waiting = shared.waiting.lock().expect("no holder panics");
        let waiter = waiting.as_mut().and_then(|waiting| waiting.remove(&(sent.user, sent.session)));
        // A session that failed meanwhile does not wait any more.
        let _ = waiter.map(|waiter| waiter.send(sent));
    }
    // Sessions that still wait see the closed channel.
    shared.waiting.lock().expect("no holder panics").take();
}

/// Order the server to stop when the run is over. End the run too when this connection ends.
async fn order_stop(mut control: OwnedWriteHalf, mut over: watch::Receiver<bool>) {
    raised(&mut over).await;
    // A server that is gone needs no order.
    let _ = protocol::write(&mut control, &Order::Stop).await;
    std::future::pending::<()>().await;
}

/// Run all sessions of a user: one after the other on one connection, or each on its own.
async fn user_sessions(
    shared: Arc<RunContext>,
    number: u32,
    user: User,
    seconds: f64,
    each: bool,
    mut connection: Option<Sender>,
) {
    let mut over = shared.over.clone();
    let mut side_by_side = JoinSet::new();
    for (index, (start, length)) in user.schedule(seconds).into_iter().enumerate() {
        let due = shared.origin + Duration::from_secs_f64(start);
        let waited = tokio::time::Instant::now() > due;
        tokio::select! {
            biased;
            _ = raised(&mut over) => {
                if !waited {
                    break;
                }
            }
            () = sleep_until(due) => {}
        }
        // A session that had to wait for the one before it began when it should have: the wait belongs to the user. A
        // late timer's does not.
        let begun = if waited { due } else { tokio::time::Instant::now() };
        let task = Task { shared: shared.clone(), number, user: user.clone(), index, length, begun };
        if each {
            side_by_side.spawn(async move { drop(task.run(None).await) });
            while side_by_side.try_join_next().is_some() {}
        } else {
            connection = task.run(connection).await;
        }
    }
    side_by_side.join_all().await;
}

/// Session that runs or waits.
struct Task {
    shared: Arc<RunContext>,
    number: u32,
    user: User,
    index: usize,
    length: Length,
    begun: tokio::time::Instant,
}

/// Outcome of a session; `finish`: seconds from its start, None if it did not finish. `bytes`: payload.
struct SessionResult {
    finish: Option<f64>,
    bytes: u64,
    retransmits: u64,
    congestion: Option<String>,
    error: Option<io::Error>,
}

impl Task {
    /// Run the session and return the connection if that can carry another one.
    async fn run(self, connection: Option<Sender>) -> Option<Sender> {
        let mut over = self.shared.over.clone();
        let connected = match connection {
            Some(connection) => Ok(connection),
            None => tokio::select! {
                connected = connect(self.shared.server, &self.shared.run, self.number, &self.user) => connected,
                _ = raised(&mut over) => Err(io::ErrorKind::TimedOut.into()),
            },
        };
        match connected {
            Err(error) => {
                self.report(SessionResult {
                    finish: None,
                    bytes: 0,
                    retransmits: 0,
                    congestion: None,
                    error: Some(error),
                })
                .await;
                None
            }
            Ok(mut connection) => {
                let result = match self.user.direction {
                    Direction::Up => self.up(&mut connection).await,
                    Direction::Down => self.down(&mut connection).await,
                };
                let usable = result.finish.is_some();
                self.report(result).await;
                if usable {
                    return Some(connection);
                }
                connection.abort();
                None
            }
        }
    }

    fn request(&self) -> Request {
        Request { direction: self.user.direction, session: self.index as u32, length: self.length }
    }

    async fn up(&self, connection: &mut Sender) -> SessionResult {
        let mut over = self.shared.over.clone();
        // The request's own bytes, and those of the last one whose acknowledgement was not awaited.
        let before = info(&connection.stream).ok();
        let wall = SystemTime::now();
        let waited = self.begun.elapsed();
        let sent = tokio::select! {
            sent = async {
                connection.write(&self.request().to_bytes()).await?;
                match self.length {
                    Length::Bytes(bytes) => connection.transmit(bytes).await,
                    Length::Endless => Err(connection.transmit_endlessly().await),
                }
            } => Some(sent),
            _ = raised(&mut over) => None,
        };
        let after = info(&connection.stream).ok();
        let acked = before.zip(after).map_or(0, |(before, after)| after.acked.saturating_sub(before.acked));
        let mut result = SessionResult {
            finish: None,
            bytes: acked.saturating_sub(Request::BYTES as u64),
            retransmits: before.zip(after).map_or(0, |(b, a)| a.retransmits.saturating_sub(b.retransmits)),
            congestion: congestion(&connection.stream),
            error: None,
        };
        match (sent, self.length) {
            (Some(Ok(acknowledged)), Length::Bytes(bytes)) => {
                let took = acknowledged.duration_since(wall).unwrap_or_default();
                result.finish = Some((waited + took).as_secs_f64());
                result.bytes = bytes;
            }
            (Some(Err(error)), _) => result.error = Some(error),
            _ => {}
        }
        result
    }

    async fn down(&self, connection: &mut Sender) -> SessionResult {
        let mut over = self.shared.over.clone();
        let (report, reported) = oneshot::channel();
        if let Some(waiting) = self.shared.waiting.lock().expect("no holder panics").as_mut() {
            waiting.insert((self.number, self.index as u32), report);
        }
        let waited = self.begun.elapsed();
        let mut bytes = 0;
        let received = tokio::select! {
            received = async {
                connection.write(&self.request().to_bytes()).await?;
                let length = match self.length {
                    Length::Bytes(length) => length,
                    Length::Endless => u64::MAX,
                };
                while bytes < length {
                    match discard(&connection.stream, length - bytes).await? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        count => bytes += count,
                    }
                }
                Ok(())
            } => Some(received),
            _ = raised(&mut over) => None,
        };
        // The server reports the bytes that it sent; a connection that was lost may have no report.
        let sent = match received {
            Some(Err(_)) => None,
            _ => timeout(PATIENCE, reported).await.ok().and_then(Result::ok),
        };
        let finish = match (&received, &sent) {
            (Some(Ok(())), Some(sent)) => sent.finish.map(|finish| waited.as_secs_f64() + finish),
            _ => None,
        };
        let error = match received {
            Some(Err(error)) => Some(error),
            Some(Ok(())) if finish.is_none() => Some(io::Error::other("the server did not say when it finished")),
            _ => None,
        };
        SessionResult {
            finish,
            bytes,
            retransmits: sent.as_ref().map_or(0, |sent| sent.retransmits),
            congestion: sent.and_then(|sent| sent.congestion),
            error,
        }
    }

    async fn report(&self, result: SessionResult) {
        let over = *self.shared.over.borrow();
        let outcome = match (&result, self.length) {
            (SessionResult { finish: Some(_), .. }, _) => Outcome::Finished,
            // An error after the end is the end.
            (SessionResult { error: Some(_), .. }, _) if !over => Outcome::Failed,
            (_, Length::Endless) => Outcome::Endless,
            (_, Length::Bytes(_)) => Outcome::Unfinished,
        };
        let error = result.error.filter(|_| outcome == Outcome::Failed).map(|error| error_text(&error));
        let session = Session {
            user: self.user.name.clone(),
            session: self.index + 1,
            direction: self.user.direction,
            start: rounded(self.begun.duration_since(self.shared.origin).as_secs_f64()),
            length: match self.length {
                Length::Bytes(bytes) => Some(bytes),
                Length::Endless => None,
            },
            finish: result.finish.map(rounded),
            elapsed: rounded(result.finish.unwrap_or_else(|| self.begun.elapsed().as_secs_f64())),
            bytes: result.bytes,
            retransmits: result.retransmits,
            congestion: result.congestion,
            outcome,
            error,
        };
        // Results have no reader when the program ends.
        let _ = self.shared.results.send(session).await;
    }
}

fn error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the server closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Round to the microsecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// Resolve the address of `host`, with or without a port. Errors: a name without an address.
pub async fn resolve(host: &str) -> Result<SocketAddr, Error> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, protocol::PORT));
    }
    let with_port = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:{}", protocol::PORT)
    };
    let mut found = tokio::net::lookup_host(&with_port).await.about(format_args!("--to '{host}'"))?;
    found.next().ok_or_else(|| Error::new(format!("--to '{host}' has no address")))
}
