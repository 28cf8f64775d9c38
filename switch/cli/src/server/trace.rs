// SPDX-License-Identifier: Apache-2.0
//! Traces: the service, and the log at level trace.

use std::sync::Arc;
use std::time::Duration;

use apswitch_dataplane::client_log;
use apswitch_dataplane::control::{Dataplane, UpdateError, Value};
use apswitch_dataplane::peer::{self, Peer};
use apswitch_p4runtime::error::Refusal;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::follow::Follower;
use super::proto::trace::trace_server::Trace;
use super::proto::trace::{FollowRequest, TracedPacket};
use super::shared::grpc_status;
use crate::entries;

/// Clients that trace at once.
const MAX_CLIENTS: usize = 4;
const MAX_CONDITIONS: usize = 16;
/// A number of one is read in a time that grows with the square of its digits.
pub const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Explained packets that may wait for a client; more are lost, and counted.
const MAX_WAITING: usize = 64;
/// Interval at which the log waits for a first program.
const PROGRAM_INTERVAL: Duration = Duration::from_secs(1);

pub struct Service {
    dataplane: Dataplane,
    places: Arc<Semaphore>,
}

impl Service {
    pub fn new(dataplane: Dataplane) -> Service {
        Service { dataplane, places: Arc::new(Semaphore::new(MAX_CLIENTS)) }
    }
}

fn refusal(error: UpdateError) -> Status {
    grpc_status(Refusal::from(error).into())
}

/// The names and values of a request.
fn conditions(request: &FollowRequest) -> Result<Vec<(String, Value)>, String> {
    if request.conditions.len() > MAX_CONDITIONS {
        return Err(format!("{} conditions: {MAX_CONDITIONS} are the most", request.conditions.len()));
    }
    let one = |condition: &super::proto::trace::Condition| {
        let value = entries::value(&condition.value).map_err(|e| format!("{}: {e}", condition.field))?;
        Ok((condition.field.clone(), value))
    };
    request.conditions.iter().map(one).collect()
}

#[tonic::async_trait]
impl Trace for Service {
    type FollowStream = ReceiverStream<Result<TracedPacket, Status>>;

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let client = request.extensions().get::<Peer>().cloned();
        peer::check_reads(client.as_ref()).map_err(Status::permission_denied)?;
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("{MAX_CLIENTS} clients trace already")));
        };
        let request = request.into_inner();
        let port = request.port.map(|port| u16::try_from(port).unwrap_or(u16::MAX));
        if let Some(port) = port
            && !self.dataplane.port_numbers().contains(&port)
            && self.dataplane.cpu_port() != Some(port)
        {
            let ports = self.dataplane.port_numbers().iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
            return Err(Status::invalid_argument(format!("there is no port {port}: the switch has {ports}")));
        }
        let conditions = conditions(&request).map_err(Status::invalid_argument)?;
        let follower = Follower::start(self.dataplane.clone(), port, conditions, Some(Arc::new(place))).await;
        let follower = follower.map_err(refusal)?;
        client_log::log(client.as_ref(), format_args!("traces packets"));
        let (queue, messages) = mpsc::channel(MAX_WAITING);
        tokio::spawn(async move {
            let (reason, lost) = send(follower, request.json, &queue).await;
            client_log::log(client.as_ref(), format_args!("trace ended: {reason}; {lost} packets lost"));
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

/// Sends packets until either side ends; returns the reason, and the number of lost packets.
async fn send(mut follower: Follower, json: bool, queue: &mpsc::Sender<Result<TracedPacket, Status>>) -> (String, u64) {
    let (mut lost, mut all_lost) = (0, 0);
    loop {
        let next = tokio::select! {
            next = follower.next() => next,
            () = queue.closed() => return ("closed by the client".into(), all_lost),
        };
        let (packet, unexplained) = match next {
            Ok(next) => next,
            Err(error) => {
                let status = refusal(error);
                let reason = status.message().to_owned();
                // A client that does not read its packets does not read this either.
                let _ = queue.try_send(Err(status));
                return (reason, all_lost);
            }
        };
        (lost, all_lost) = (lost + unexplained, all_lost + unexplained);
        match queue.try_send(Ok(TracedPacket { text: packet.render(json), lost })) {
            Ok(()) => lost = 0,
            Err(_) => (lost, all_lost) = (lost + 1, all_lost + 1),
        }
    }
}

/// Logs each step of packets, as many a second as a client gets, if the log has the level trace.
pub async fn log(dataplane: Dataplane) {
    if !tracing::enabled!(tracing::Level::TRACE) {
        return std::future::pending().await;
    }
    loop {
        match Follower::start(dataplane.clone(), None, Vec::new(), None).await {
            Ok(mut follower) => {
                while let Ok((packet, lost)) = follower.next().await {
                    if lost > 0 {
                        tracing::trace!("{lost} packets were not explained");
                    }
                    packet.events.iter().for_each(|event| tracing::trace!("packet {}: {event}", packet.packet));
                }
            }
            Err(_) => tokio::time::sleep(PROGRAM_INTERVAL).await,
        }
    }
}
