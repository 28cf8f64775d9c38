// SPDX-License-Identifier: Apache-2.0
//! The server without a network: requests, answers and the messages of streams are bytes, as protobuf writes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use tokio::sync::oneshot::error::TryRecvError;
use tokio_stream::StreamExt;
use tonic::{Request, Status};

use super::arbitration::ClientId;
use super::clients::{Opened, Outgoing};
use super::proto::google::rpc;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::p4_runtime_server::P4Runtime;
use super::service::Service;
use super::shared::Shared;
use super::{MAX_REQUEST_BYTES, stream};
use crate::control::{Dataplane, Events};

/// The RPCs that are one request and one answer; `Read`'s answers are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Write,
    Read,
    SetForwardingPipelineConfig,
    GetForwardingPipelineConfig,
    Capabilities,
}

/// A server whose clients are in this process.
pub struct Local {
    service: Service,
    streams: BTreeMap<ClientId, (Opened, mpsc::Receiver<Outgoing>)>,
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<Request<M>, Status> {
    if bytes.len() > MAX_REQUEST_BYTES {
        let length = bytes.len();
        return Err(Status::out_of_range(format!("a message of {length} bytes: {MAX_REQUEST_BYTES} are the most")));
    }
    let message = M::decode(bytes).map_err(|error| Status::invalid_argument(format!("not a message: {error}")))?;
    Ok(Request::new(message))
}

/// Encodes a `google.rpc.Status`, with the details of a batch.
pub fn status_bytes(status: &Status) -> Vec<u8> {
    match status.details() {
        [] => rpc::Status { code: status.code() as i32, message: status.message().into(), ..Default::default() }
            .encode_to_vec(),
        details => details.to_vec(),
    }
}

impl Local {
    pub fn new(device_id: u64, dataplane: Dataplane) -> Local {
        Local { service: Service(Arc::new(Shared::new(device_id, dataplane))), streams: BTreeMap::new() }
    }

    pub async fn call(&self, method: Method, request: &[u8]) -> Result<Vec<u8>, Status> {
        let service = &self.service;
        Ok(match method {
            Method::Write => service.write(decode(request)?).await?.into_inner().encode_to_vec(),
            Method::Read => {
                let mut answers = service.read(decode(request)?).await?.into_inner();
                let mut bytes = Vec::new();
                // Messages behind each other are one with the entities of all.
                while let Some(answer) = answers.next().await {
                    bytes.extend(answer?.encode_to_vec());
                }
                bytes
            }
            Method::SetForwardingPipelineConfig => {
                service.set_forwarding_pipeline_config(decode(request)?).await?.into_inner().encode_to_vec()
            }
            Method::GetForwardingPipelineConfig => {
                service.get_forwarding_pipeline_config(decode(request)?).await?.into_inner().encode_to_vec()
            }
            Method::Capabilities => service.capabilities(decode(request)?).await?.into_inner().encode_to_vec(),
        })
    }

    /// Opens a `StreamChannel`.
    pub fn open(&mut self) -> Result<ClientId, Status> {
        let (opened, outgoing) = self.service.0.clients.open(None)?;
        let id = opened.id;
        self.streams.insert(id, (opened, outgoing));
        Ok(id)
    }

    fn stream(&mut self, id: ClientId) -> Result<&mut (Opened, mpsc::Receiver<Outgoing>), Status> {
        self.streams.get_mut(&id).ok_or_else(|| Status::not_found(format!("stream {id} is not open: open one")))
    }

    /// A `StreamMessageRequest`; an error ends the stream.
    pub async fn send(&mut self, id: ClientId, message: &[u8]) -> Result<(), Status> {
        let queue = self.stream(id)?.0.queue.clone();
        let handled = match decode::<p4::StreamMessageRequest>(message) {
            Ok(request) => stream::handle(&self.service.0, id, &queue, None, request.into_inner().update).await,
            Err(status) => Err(status),
        };
        handled.inspect_err(|_| self.close(id))
    }

    /// The next `StreamMessageResponse`, if there is one; an error: the stream has ended.
    pub fn take(&mut self, id: ClientId) -> Result<Option<Vec<u8>>, Status> {
        let (opened, outgoing) = self.stream(id)?;
        match outgoing.try_recv() {
            Ok(message) => Ok(Some(message?.encode_to_vec())),
            Err(_) if opened.stalled.try_recv() == Err(TryRecvError::Empty) => Ok(None),
            Err(_) => {
                self.close(id);
                Err(Status::resource_exhausted(format!("stream {id} was closed: its messages were not taken")))
            }
        }
    }

    pub fn close(&mut self, id: ClientId) {
        if self.streams.remove(&id).is_some() {
            self.service.0.clients.close(id);
        }
    }

    /// Delivers the data plane's events so far to the primaries.
    pub async fn deliver(&self, events: &mut Events) {
        stream::deliver_now(&self.service.0, events).await;
    }

    /// Returns when a list of digests is due, or overdue, since the start of the switch.
    pub fn deadline(&self) -> Option<Duration> {
        self.service.0.digests.deadline()
    }
}
