// SPDX-License-Identifier: Apache-2.0
//! The server without a network: requests, answers and the messages of streams are bytes, as protobuf writes them.

use std::collections::BTreeMap;
use std::time::Duration;

use apswitch_dataplane::control::{Dataplane, Events};
use async_channel::Receiver;
use prost::Message;

use super::arbitration::ClientId;
use super::clients::{Opened, Outgoing};
use super::device::{API_VERSION, Device, State};
use super::error::{Code, Status, batch_status};
use super::proto::google::rpc;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::stream_message_request::Update;
use super::{MAX_REQUEST_BYTES, stream};

/// The RPCs that are one request and one answer; `Read`'s answers are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Write,
    Read,
    SetForwardingPipelineConfig,
    GetForwardingPipelineConfig,
    Capabilities,
}

/// A server whose clients are in this process, one request at a time.
pub struct Local {
    device: Device,
    state: State,
    streams: BTreeMap<ClientId, (Opened, Receiver<Outgoing>)>,
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Status> {
    if bytes.len() > MAX_REQUEST_BYTES {
        let reason = format!("a message of {} bytes: {MAX_REQUEST_BYTES} are the most", bytes.len());
        return Err(Status::new(Code::OutOfRange, reason));
    }
    M::decode(bytes).map_err(|error| Status::new(Code::InvalidArgument, format!("not a message: {error}")))
}

/// Encodes a `google.rpc.Status`, with the details of a batch.
pub fn status_bytes(status: &Status) -> Vec<u8> {
    match &status.details[..] {
        [] => rpc::Status { code: status.code as i32, message: status.message.clone(), ..Default::default() }
            .encode_to_vec(),
        details => details.to_vec(),
    }
}

impl Local {
    pub fn new(device_id: u64, dataplane: Dataplane) -> Local {
        Local { device: Device::new(device_id, dataplane), state: State::default(), streams: BTreeMap::new() }
    }

    pub async fn call(&mut self, method: Method, request: &[u8]) -> Result<Vec<u8>, Status> {
        let Local { device, state, .. } = self;
        Ok(match method {
            Method::Write => {
                batch_status("Write", &device.write(state, decode(request)?).await?)?;
                p4::WriteResponse {}.encode_to_vec()
            }
            Method::Read => {
                let mut bytes = Vec::new();
                // Messages behind each other are one with the entities of all.
                for answer in device.read_at_once(state, decode(request)?)? {
                    bytes.extend(answer?.encode_to_vec());
                }
                bytes
            }
            Method::SetForwardingPipelineConfig => {
                let mut request = decode(request)?;
                device.check_push(&request)?;
                let ready = device.make_ready(&mut request).await?;
                device.set_config(state, &request, ready).await?;
                p4::SetForwardingPipelineConfigResponse {}.encode_to_vec()
            }
            Method::GetForwardingPipelineConfig => {
                let config = device.config(&decode(request)?)?;
                p4::GetForwardingPipelineConfigResponse { config }.encode_to_vec()
            }
            Method::Capabilities => {
                decode::<p4::CapabilitiesRequest>(request)?;
                let p4runtime_api_version = API_VERSION.to_owned();
                p4::CapabilitiesResponse { p4runtime_api_version, experimental: None }.encode_to_vec()
            }
        })
    }

    /// Opens a `StreamChannel`.
    pub fn open(&mut self) -> Result<ClientId, Status> {
        let (opened, outgoing) = self.device.clients.open(None)?;
        let id = opened.id;
        self.streams.insert(id, (opened, outgoing));
        Ok(id)
    }

    fn stream(&mut self, id: ClientId) -> Result<&mut (Opened, Receiver<Outgoing>), Status> {
        self.streams
            .get_mut(&id)
            .ok_or_else(|| Status::new(Code::NotFound, format!("stream {id} is not open: open one")))
    }

    /// A `StreamMessageRequest`; an error ends the stream.
    pub async fn send(&mut self, id: ClientId, message: &[u8]) -> Result<(), Status> {
        let queue = self.stream(id)?.0.queue.clone();
        let update = decode::<p4::StreamMessageRequest>(message).map(|request| request.update);
        let arbitrated = match update {
            Ok(Some(Update::Arbitration(update))) => stream::arbitrate(&self.device, id, &update),
            Ok(update) => {
                stream::handle(&self.device, id, &queue, update).await;
                return Ok(());
            }
            Err(status) => Err(status),
        };
        match arbitrated {
            Ok(Some(primary)) => stream::welcome(&self.device, primary).await,
            Ok(None) => {}
            Err(status) => {
                self.close(id);
                return Err(status);
            }
        }
        Ok(())
    }

    /// The next `StreamMessageResponse`, if there is one; an error: the stream has ended.
    pub fn take(&mut self, id: ClientId) -> Result<Option<Vec<u8>>, Status> {
        let (opened, outgoing) = self.stream(id)?;
        match outgoing.try_recv() {
            Ok(message) => Ok(Some(message?.encode_to_vec())),
            Err(_) if opened.stalled.try_recv() == Ok(None) => Ok(None),
            Err(_) => {
                self.close(id);
                let reason = format!("stream {id} was closed: its messages were not taken");
                Err(Status::new(Code::ResourceExhausted, reason))
            }
        }
    }

    pub fn close(&mut self, id: ClientId) {
        if self.streams.remove(&id).is_some() {
            self.device.clients.close(id);
        }
    }

    /// Delivers the data plane's events so far to the primaries.
    pub async fn deliver(&self, events: &mut Events) {
        stream::deliver_now(&self.device, events).await;
    }

    /// Returns when a list of digests is due, or overdue, since the start of the switch.
    pub fn deadline(&self) -> Option<Duration> {
        self.device.digests.deadline()
    }
}
