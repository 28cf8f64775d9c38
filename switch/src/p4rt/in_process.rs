// SPDX-License-Identifier: Apache-2.0
//! The server without a network, for tests: its one client is the primary, and its requests are bytes.

use std::sync::Arc;

use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::{Request, Status};

use super::clients::{Opened, Outgoing};
use super::pipeline::Pipeline;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::p4_runtime_server::P4Runtime;
use super::service::Service;
use super::shared::Shared;
use super::write::ClientMetadata;
use crate::control::{Dataplane, Program};

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
    service: Service,
    /// Open as long as the client is there.
    _stream: (Opened, mpsc::Receiver<Outgoing>),
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

impl InProcess {
    pub fn new(dataplane: Dataplane) -> Result<InProcess, Status> {
        let shared = Arc::new(Shared::new(DEVICE, dataplane));
        let stream = shared.clients.open(None)?;
        let arbitration =
            p4::MasterArbitrationUpdate { device_id: DEVICE, election_id: Some(ELECTION), ..Default::default() };
        shared.clients.arbitrate(stream.0.id, &arbitration)?;
        shared.clients.welcome_primary(stream.0.id);
        Ok(InProcess { service: Service(shared), _stream: stream })
    }

    /// Runs the pipeline with nothing written to it.
    pub async fn start(&self, loaded: &Loaded) -> Result<(), Status> {
        let shared = &self.service.0;
        let mut state = shared.state.write().await;
        let committed = shared.dataplane.commit(loaded.program.clone()).await;
        committed.map_err(|error| Status::internal(error.to_string()))?;
        shared.digests.replace(Default::default());
        shared.run(&mut state, loaded.pipeline.clone(), ClientMetadata::default());
        Ok(())
    }

    /// A `WriteRequest`; device and election are put in.
    pub async fn write(&self, request: &[u8]) -> Result<(), Status> {
        let request: p4::WriteRequest = decode(request)?;
        self.send(p4::WriteRequest { role: String::new(), ..request }).await
    }

    async fn send(&self, request: p4::WriteRequest) -> Result<(), Status> {
        let request = p4::WriteRequest { device_id: DEVICE, election_id: Some(ELECTION), ..request };
        self.service.write(Request::new(request)).await.map(drop)
    }

    /// Modifies every table entry to what the server says that it is; their number, or the server's contradiction.
    pub async fn write_back(&self) -> Result<usize, Status> {
        let all = p4::Entity { entity: Some(p4::entity::Entity::TableEntry(Default::default())) };
        let entities = vec![all.encode_to_vec().into()];
        let request = p4::ReadRequest { device_id: DEVICE, entities, ..Default::default() };
        let mut answers = self.service.read(Request::new(request)).await?.into_inner();
        let mut updates = Vec::new();
        while let Some(answer) = answers.next().await {
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
