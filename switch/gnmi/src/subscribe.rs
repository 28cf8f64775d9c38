// SPDX-License-Identifier: Apache-2.0
//! Subscribe: what is sent when, over one stream. Changes are found by looking: the data plane keeps no list of them,
//! so that it has no more to do when somebody watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};

use super::path::{Path, Pattern};
use super::proto::gnmi;
use super::proto::gnmi::subscribe_request::Request;
use super::proto::gnmi::subscribe_response::Response;
use super::proto::gnmi::subscription_list::Mode;
use super::proto::gnmi::{Encoding, SubscriptionMode};
use super::render;
use super::shared::{Shared, no_extensions};
use super::value::Value;

/// The shortest interval between samples; also how soon a change is seen.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(50);
/// Sample interval of a target-defined subscription.
const USUAL: Duration = Duration::from_secs(1);
/// A client that takes nothing for so long loses its stream.
const STALL: Duration = Duration::from_secs(30);
const MAX_SUBSCRIPTIONS: usize = 64;
/// Leaves in a message.
const PORTION: usize = 512;

pub type Outgoing = mpsc::Sender<Result<gnmi::SubscribeResponse, Status>>;

/// One subscription of a stream.
struct Watch {
    pattern: Pattern,
    interval: Duration,
    /// Only what has changed is sent.
    changes: bool,
    heartbeat: Option<Duration>,
    due: Instant,
    heartbeat_due: Option<Instant>,
    last: BTreeMap<Path, Value>,
    /// The place of `last` among what all streams remember.
    held: Option<OwnedSemaphorePermit>,
}

struct Stream<'a> {
    shared: &'a Arc<Shared>,
    outgoing: &'a Outgoing,
    encoding: Encoding,
    /// Echoed, as the specification (2.2.2.1) demands.
    prefix: Option<gnmi::Path>,
}

/// Serves a stream to its end.
pub async fn serve(
    shared: &Arc<Shared>,
    mut incoming: Streaming<gnmi::SubscribeRequest>,
    outgoing: &Outgoing,
) -> Result<(), Status> {
    let Some(first) = incoming.message().await? else { return Ok(()) };
    no_extensions(&first.extension)?;
    let Some(Request::Subscribe(list)) = first.request else {
        return Err(Status::invalid_argument("the first message of a stream has to be `subscribe`"));
    };
    let encoding = render::encoding(list.encoding)?;
    let target = list.prefix.as_ref().map(|prefix| prefix.target.clone()).filter(|target| !target.is_empty());
    let prefix = target.map(|target| gnmi::Path { target, ..Default::default() });
    let stream = Stream { shared, outgoing, encoding, prefix };
    let mut watches = watches(&list)?;
    if list.updates_only {
        for watch in &mut watches {
            stream.look(watch).await?;
        }
    } else {
        stream.all(&mut watches).await?;
    }
    stream.send(Response::SyncResponse(true)).await?;
    match list.mode() {
        Mode::Once => Ok(()),
        Mode::Poll => {
            while let Some(message) = incoming.message().await? {
                match message.request {
                    Some(Request::Poll(_)) if list.updates_only => {}
                    Some(Request::Poll(_)) => stream.all(&mut watches).await?,
                    _ => return Err(Status::invalid_argument("only `poll` may follow a `subscribe` with mode POLL")),
                }
                stream.send(Response::SyncResponse(true)).await?;
            }
            Ok(())
        }
        Mode::Stream => {
            // A client that has nothing more to say may still listen.
            let mut says = true;
            loop {
                let due = watches.iter().map(|watch| watch.due).min().unwrap_or_else(|| Instant::now() + USUAL);
                tokio::select! {
                    message = incoming.message(), if says => match message? {
                        None => says = false,
                        Some(_) => {
                            return Err(Status::invalid_argument("nothing may follow a `subscribe` with mode STREAM"));
                        }
                    },
                    () = outgoing.closed() => return Ok(()),
                    () = sleep_until(due) => stream.due(&mut watches).await?,
                }
            }
        }
    }
}

/// Ends a stream with its reason, behind what waits for the client. Who has gone needs none.
pub async fn refuse(outgoing: &Outgoing, status: Status) {
    let _ = timeout(STALL, outgoing.send(Err(status))).await;
}

/// The subscriptions of a list.
fn watches(list: &gnmi::SubscriptionList) -> Result<Vec<Watch>, Status> {
    if list.subscription.len() > MAX_SUBSCRIPTIONS {
        return Err(Status::resource_exhausted(format!("at most {MAX_SUBSCRIPTIONS} subscriptions in a stream")));
    }
    if Mode::try_from(list.mode).is_err() {
        return Err(Status::invalid_argument("mode: STREAM, ONCE or POLL"));
    }
    let now = Instant::now();
    let mut watches = Vec::new();
    for subscription in &list.subscription {
        let path = subscription.path.clone().unwrap_or_default();
        let pattern = Pattern::parse(list.prefix.as_ref(), &path)?;
        let asked = Duration::from_nanos(subscription.sample_interval);
        let heartbeat = Some(Duration::from_nanos(subscription.heartbeat_interval)).filter(|beat| !beat.is_zero());
        if heartbeat.is_some_and(|beat| beat < MIN_INTERVAL) {
            return Err(Status::invalid_argument(format!(
                "{pattern}: heartbeat_interval: at least {} ms",
                MIN_INTERVAL.as_millis()
            )));
        }
        let watch = |interval, changes| Watch {
            pattern: pattern.clone(),
            interval,
            changes,
            heartbeat,
            due: now + interval,
            heartbeat_due: heartbeat.map(|beat| now + beat),
            last: BTreeMap::new(),
            held: None,
        };
        let mode = if list.mode() == Mode::Stream { subscription.mode() } else { SubscriptionMode::OnChange };
        watches.push(match mode {
            SubscriptionMode::OnChange => watch(LOOK, true),
            SubscriptionMode::Sample if asked.is_zero() => watch(MIN_INTERVAL, subscription.suppress_redundant),
            SubscriptionMode::Sample if asked < MIN_INTERVAL => {
                return Err(Status::invalid_argument(format!(
                    "{pattern}: sample_interval: at least {} ms",
                    MIN_INTERVAL.as_millis()
                )));
            }
            SubscriptionMode::Sample => watch(asked, subscription.suppress_redundant),
            // Counters change all the time, so that both of its meanings are this.
            SubscriptionMode::TargetDefined if asked.is_zero() => watch(USUAL, true),
            SubscriptionMode::TargetDefined => {
                return Err(Status::invalid_argument(format!("{pattern}: TARGET_DEFINED has no sample_interval")));
            }
        });
    }
    Ok(watches)
}

impl Stream<'_> {
    /// Looks again; answers what there was before.
    async fn look(&self, watch: &mut Watch) -> Result<BTreeMap<Path, Value>, Status> {
        let pattern = watch.pattern.clone();
        let leaves = self.shared.aside(move |shared| shared.leaves(&pattern)).await?;
        watch.held = None;
        watch.held = Some(self.shared.watch(leaves.len())?);
        Ok(std::mem::replace(&mut watch.last, leaves))
    }

    /// Sends everything of every subscription.
    async fn all(&self, watches: &mut [Watch]) -> Result<(), Status> {
        for watch in watches {
            self.look(watch).await?;
            self.notify(watch.last.iter().collect(), Vec::new()).await?;
        }
        Ok(())
    }

    async fn due(&self, watches: &mut [Watch]) -> Result<(), Status> {
        let now = Instant::now();
        for watch in watches.iter_mut().filter(|watch| watch.due <= now) {
            // Samples that were missed are not made up for.
            while watch.due <= now {
                watch.due += watch.interval.max(MIN_INTERVAL);
            }
            let mut beats = false;
            if let (Some(due), Some(beat)) = (&mut watch.heartbeat_due, watch.heartbeat) {
                beats = *due <= now;
                while *due <= now {
                    *due += beat;
                }
            }
            let before = self.look(watch).await?;
            let (leaves, changes) = (&watch.last, watch.changes);
            let is_sent = |(path, value): &(&Path, &Value)| beats || !changes || before.get(*path) != Some(*value);
            let gone = before.keys().filter(|path| !leaves.contains_key(*path));
            self.notify(leaves.iter().filter(is_sent).collect(), gone.collect()).await?;
        }
        Ok(())
    }

    /// Sends leaves, and which are gone, some at a time.
    async fn notify(&self, leaves: Vec<(&Path, &Value)>, gone: Vec<&Path>) -> Result<(), Status> {
        let timestamp = render::timestamp();
        let message = |update, delete| {
            let prefix = self.prefix.clone();
            Response::Update(gnmi::Notification { timestamp, prefix, update, delete, ..Default::default() })
        };
        for portion in leaves.chunks(PORTION) {
            let update = portion.iter().filter_map(|(path, value)| render::leaf(path, value, self.encoding));
            self.send(message(update.collect(), Vec::new())).await?;
        }
        for portion in gone.chunks(PORTION) {
            self.send(message(Vec::new(), portion.iter().map(|path| path.message()).collect())).await?;
        }
        Ok(())
    }

    async fn send(&self, response: Response) -> Result<(), Status> {
        let message = gnmi::SubscribeResponse { response: Some(response), ..Default::default() };
        match timeout(STALL, self.outgoing.send(Ok(message))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Status::cancelled("the client is gone")),
            Err(_) => Err(Status::resource_exhausted("the client takes no updates")),
        }
    }
}
