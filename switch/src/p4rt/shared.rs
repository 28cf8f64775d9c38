// SPDX-License-Identifier: Apache-2.0
//! The state of the server that its RPCs and streams share.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Semaphore;
use tonic::Status;

use super::clients::Clients;
use super::digest::Digests;
use super::error::{Checked, refuse};
use super::pipeline::Pipeline;
use super::proto::p4::v1 as p4;
use super::read_stream::Reads;
use super::role::Access;
use super::write::ClientMetadata;
use crate::control::Dataplane;

/// KiB of pipelines that are being sent to clients.
pub const MAX_ANSWER_KIB: usize = 64 << 10;

/// State that a write changes besides the data plane.
#[derive(Default)]
pub struct State {
    pub saved: Option<Saved>,
    pub client_metadata: ClientMetadata,
}

/// A pipeline that waits for COMMIT. Reads and writes are about it.
pub struct Saved {
    pub pipeline: Arc<Pipeline>,
    pub dataplane: Dataplane,
    pub digests: Digests,
    pub client_metadata: ClientMetadata,
}

pub struct Shared {
    device_id: u64,
    pub dataplane: Dataplane,
    pub clients: Clients,
    pub digests: Digests,
    /// Writes exclude each other and reads.
    pub state: Arc<tokio::sync::RwLock<State>>,
    /// The running pipeline; replaced only by who holds `state` for writing.
    pipeline: RwLock<Option<Arc<Pipeline>>>,
    pub reads: Arc<Reads>,
    /// Held while a pipeline is made ready: one at a time, and in the order in which they came.
    pub pipelines: tokio::sync::Mutex<()>,
    pub answers: Arc<Semaphore>,
}

impl Shared {
    pub fn new(device_id: u64, dataplane: Dataplane) -> Self {
        Shared {
            device_id,
            dataplane,
            clients: Clients::new(device_id),
            digests: Digests::default(),
            state: Default::default(),
            pipeline: RwLock::new(None),
            reads: Arc::default(),
            pipelines: tokio::sync::Mutex::default(),
            answers: Arc::new(Semaphore::new(MAX_ANSWER_KIB)),
        }
    }

    pub fn pipeline(&self) -> Checked<Arc<Pipeline>> {
        match &*self.pipeline.read().unwrap_or_else(PoisonError::into_inner) {
            Some(pipeline) => Ok(pipeline.clone()),
            None => refuse!(FailedPrecondition, "no forwarding pipeline config is set for this device"),
        }
    }

    pub fn check_device(&self, device_id: u64) -> Result<(), Status> {
        match device_id == self.device_id {
            true => Ok(()),
            false => {
                Err(Status::not_found(format!("device {device_id} is not here: this is device {}", self.device_id)))
            }
        }
    }

    /// Returns the rights of the client that sends a write, or an error if it is not the primary of its role.
    pub fn check_primary(&self, role: &str, election_id: Option<&p4::Uint128>) -> Result<Access, Status> {
        self.clients.with_arbiter(|arbiter| match arbiter.is_primary_request(role, election_id) {
            true => Ok(arbiter.access(role)),
            false if !arbiter.knows_role(role) => Err(Status::not_found(format!("no client has the role {role:?}"))),
            false => {
                Err(Status::permission_denied("only the primary may do this: the election id is not the primary's"))
            }
        })
    }

    /// The data plane runs this pipeline.
    pub fn run(&self, state: &mut State, pipeline: Arc<Pipeline>, client_metadata: ClientMetadata) {
        *state = State { saved: None, client_metadata };
        *self.pipeline.write().unwrap_or_else(PoisonError::into_inner) = Some(pipeline);
        tracing::info!("a new forwarding pipeline runs");
    }
}
