// SPDX-License-Identifier: Apache-2.0
//! The server without a network, for tests: its one client is the primary, and its requests are bytes.

use std::sync::Arc;

use apswitch_dataplane::control::{Dataplane, Program};
use async_channel::Receiver;
use prost::Message;

use super::clients::{Opened, Outgoing};
use super::device::{Device, State};
use super::error::{Code, Status, batch_status};
use super::pipeline::Pipeline;
use super::proto::p4::v1 as p4;
use super::write::ClientMetadata;

const DEVICE: u64 = 1;
const ELECTION: p4::Uint128 = p4::Uint128 { high: 0, low: 1 };

/// A pipeline config that was checked.
pub struct Loaded {
    pipeline: Arc<Pipeline>,
    program: Program,
}

impl Loaded {
    /// `p4info`: as protobuf writes it.
    pub fn new(p4info: &[u8], json: &[u8]) -> Result<Loaded, Status> {
        let (p4info, p4_device_config) = (p4info.to_vec().into(), json.to_vec().into());
        let config = p4::ForwardingPipelineConfig { p4info, p4_device_config, cookie: None };
        let (pipeline, program) = Pipeline::verify(Some(config))?;
        Ok(Loaded { pipeline: Arc::new(pipeline), program })
    }
}

pub struct InProcess {
    device: Device,
    state: State,
    /// Open as long as the client is there.
    _stream: (Opened, Receiver<Outgoing>),
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
}

impl InProcess {
    pub fn new(dataplane: Dataplane) -> Result<InProcess, Status> {
        let device = Device::new(DEVICE, dataplane);
        let stream = device.clients.open(None)?;
        let arbitration =
            p4::MasterArbitrationUpdate { device_id: DEVICE, election_id: Some(ELECTION), ..Default::default() };
        device.clients.arbitrate(stream.0.id, &arbitration)?;
        device.clients.welcome_primary(stream.0.id);
        Ok(InProcess { device, state: State::default(), _stream: stream })
    }

    /// Runs the pipeline with nothing written to it.
    pub async fn start(&mut self, loaded: &Loaded) -> Result<(), Status> {
        let InProcess { device, state, .. } = self;
        let committed = device.dataplane.commit(loaded.program.clone()).await;
        committed.map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        device.digests.replace(Default::default());
        device.run(state, loaded.pipeline.clone(), ClientMetadata::default());
        Ok(())
    }

    /// A `WriteRequest`; device and election are put in.
    pub async fn write(&mut self, request: &[u8]) -> Result<(), Status> {
        let request: p4::WriteRequest = decode(request)?;
        self.send(p4::WriteRequest { role: String::new(), ..request }).await
    }

    async fn send(&mut self, request: p4::WriteRequest) -> Result<(), Status> {
        let request = p4::WriteRequest { device_id: DEVICE, election_id: Some(ELECTION), ..request };
        batch_status("Write", &self.device.write(&mut self.state, request).await?)
    }

    /// Modifies every table entry to what the server says that it is; their number, or the server's contradiction.
    pub async fn write_back(&mut self) -> Result<usize, Status> {
        let all = p4::Entity { entity: Some(p4::entity::Entity::TableEntry(Default::default())) };
        let entities = vec![all.encode_to_vec().into()];
        let request = p4::ReadRequest { device_id: DEVICE, entities, ..Default::default() };
        let mut updates = Vec::new();
        for answer in self.device.read_at_once(&self.state, request)? {
            for entity in answer?.entities {
                let entity: p4::Entity = decode(&entity)?;
                if matches!(&entity.entity, Some(p4::entity::Entity::TableEntry(entry)) if !entry.is_const) {
                    let update = p4::Update { r#type: p4::update::Type::Modify as i32, entity: Some(entity) };
                    updates.push(update.encode_to_vec().into());
                }
            }
        }
        let count = updates.len();
        self.send(p4::WriteRequest { updates, ..Default::default() }).await?;
        Ok(count)
    }
}
