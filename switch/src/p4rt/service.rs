// SPDX-License-Identifier: Apache-2.0
//! The gRPC service: checks who asks and in what order things happen, and hands the work to its modules.

use std::sync::{Arc, PoisonError, RwLock};

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::clients::{Clients, Outgoing};
use super::error::{Checked, Refusal, batch_status, refuse};
use super::pipeline::Pipeline;
use super::portions::{Portions, Reads};
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use super::read::{Answer, Reader};
use super::role::Access;
use super::stream::{self, Digests};
use super::write::{Notes, Writer};
use crate::control::{Dataplane, TableId, UpdateError};

/// The version of the API that the protos and this server follow.
const API_VERSION: &str = "1.5.0";

/// What a write changes besides the data plane.
#[derive(Default)]
pub struct State {
    saved: Option<Saved>,
    pub notes: Notes,
}

/// A pipeline that waits for COMMIT. Reads and writes are about it.
struct Saved {
    pipeline: Arc<Pipeline>,
    dataplane: Dataplane,
    digests: Digests,
    notes: Notes,
}

pub struct Shared {
    device_id: u64,
    pub dataplane: Dataplane,
    pub clients: Clients,
    pub digests: Digests,
    /// Writes exclude each other and reads.
    pub state: tokio::sync::RwLock<State>,
    /// The running pipeline; replaced only by who holds `state` for writing.
    pipeline: RwLock<Option<Arc<Pipeline>>>,
    reads: Arc<Reads>,
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
        }
    }

    pub fn pipeline(&self) -> Checked<Arc<Pipeline>> {
        match &*self.pipeline.read().unwrap_or_else(PoisonError::into_inner) {
            Some(pipeline) => Ok(pipeline.clone()),
            None => refuse!(FailedPrecondition, "no forwarding pipeline config is set for this device"),
        }
    }

    fn check_device(&self, device_id: u64) -> Result<(), Status> {
        match device_id == self.device_id {
            true => Ok(()),
            false => {
                Err(Status::not_found(format!("device {device_id} is not here: this is device {}", self.device_id)))
            }
        }
    }

    /// What the client may do whose request changes something, if it is the primary of its role.
    fn check_primary(&self, role: &str, election_id: Option<&p4::Uint128>) -> Result<Access, Status> {
        self.clients.with_arbiter(|arbiter| match arbiter.is_primary_request(role, election_id) {
            true => Ok(arbiter.access(role)),
            false if !arbiter.knows_role(role) => Err(Status::not_found(format!("no client has the role {role:?}"))),
            false => {
                Err(Status::permission_denied("only the primary may do this: the election id is not the primary's"))
            }
        })
    }

    async fn write(&self, request: p4::WriteRequest) -> Result<(), Status> {
        use p4::write_request::Atomicity;
        self.check_device(request.device_id)?;
        let mut state = self.state.write().await;
        // Under the lock: a former primary whose request waited here is refused.
        let access = self.check_primary(&request.role, request.election_id.as_ref())?;
        let State { saved, notes } = &mut *state;
        let pipeline;
        let writer = match saved {
            Some(Saved { pipeline, dataplane, digests, notes }) => {
                Writer::new(&pipeline.schema, dataplane, digests, notes, access)
            }
            None => {
                pipeline = self.pipeline()?;
                Writer::new(&pipeline.schema, &self.dataplane, &self.digests, notes, access)
            }
        };
        let outcomes = match Atomicity::try_from(request.atomicity) {
            Ok(Atomicity::ContinueOnError) => writer.run(request.updates).await,
            Ok(Atomicity::RollbackOnError) => writer.run_all(request.updates, false).await?,
            Ok(Atomicity::DataplaneAtomic) => writer.run_all(request.updates, true).await?,
            Err(_) => return Err(Status::invalid_argument(format!("there is no atomicity {}", request.atomicity))),
        };
        drop(state);
        batch_status("Write", &outcomes)
    }

    /// The answers to a batch, in its order.
    async fn read(&self, request: p4::ReadRequest) -> Result<Vec<Checked<Answer>>, Status> {
        self.check_device(request.device_id)?;
        let state = self.state.read().await;
        let access = match request.role.is_empty() {
            true => Access::default(),
            false => self.clients.with_arbiter(|arbiter| arbiter.access(&request.role)),
        };
        let pipeline;
        let reader = match &state.saved {
            Some(Saved { pipeline, dataplane, digests, notes }) => {
                Reader { pipeline, dataplane, digests, notes, access }
            }
            None => {
                pipeline = self.pipeline()?;
                let (dataplane, digests, notes) = (&self.dataplane, &self.digests, &state.notes);
                Reader { pipeline: &pipeline, dataplane, digests, notes, access }
            }
        };
        Ok(request.entities.into_iter().map(|entity| reader.read(entity)).collect())
    }

    async fn set_config(&self, request: p4::SetForwardingPipelineConfigRequest) -> Result<(), Status> {
        self.check_device(request.device_id)?;
        let mut state = self.state.write().await;
        let access = self.check_primary(&request.role, request.election_id.as_ref())?;
        if !access.can_push_pipeline() {
            return Err(Status::permission_denied("the role may not set the pipeline"));
        }
        match Action::try_from(request.action).unwrap_or_default() {
            Action::Unspecified => return Err(Status::invalid_argument("the request has no action")),
            Action::Verify => drop(Pipeline::verify(request.config)?),
            Action::VerifyAndSave => {
                let (pipeline, program) = Pipeline::verify(request.config)?;
                let dataplane = self.dataplane.stage(program).map_err(Refusal::from)?;
                let (digests, notes) = Default::default();
                state.saved = Some(Saved { pipeline: Arc::new(pipeline), dataplane, digests, notes });
            }
            Action::VerifyAndCommit => {
                let (pipeline, program) = Pipeline::verify(request.config)?;
                self.dataplane.commit(program).await.map_err(Refusal::from)?;
                self.digests.replace(Digests::default());
                self.run(&mut state, Arc::new(pipeline), Notes::default());
            }
            Action::Commit if request.config.is_some() => {
                return Err(Status::invalid_argument("COMMIT takes no config: it commits the saved one"));
            }
            Action::Commit => {
                let Some(Saved { pipeline, digests, notes, .. }) = state.saved.take() else {
                    return Err(Status::not_found("no saved forwarding pipeline config: VERIFY_AND_SAVE comes first"));
                };
                self.dataplane.commit_staged().await.map_err(Refusal::from)?;
                self.digests.replace(digests);
                self.run(&mut state, pipeline, notes);
            }
            Action::ReconcileAndCommit => {
                let (pipeline, program) = Pipeline::verify(request.config)?;
                self.dataplane.reconcile(program).await.map_err(|error| match error {
                    UpdateError::Stopped => Refusal::from(error).into(),
                    error => Status::invalid_argument(error.to_string()),
                })?;
                self.dataplane.unstage();
                let notes = self.keep(&pipeline, std::mem::take(&mut state.notes));
                self.run(&mut state, Arc::new(pipeline), notes);
            }
        }
        Ok(())
    }

    /// What was noted under the running pipeline, and its digests, under the next one.
    fn keep(&self, next: &Pipeline, mut notes: Notes) -> Notes {
        let Ok(running) = self.pipeline() else { return notes };
        let (before, after) = (&running.schema, &next.schema);
        let target = |table: TableId| {
            let name = &before.table_of(table)?.name;
            after.tables.values().find(|table| table.name == *name).map(|table| table.target)
        };
        let cookies = std::mem::take(&mut notes.default_cookies).into_iter();
        notes.default_cookies = cookies.filter_map(|(table, cookie)| Some((target(table)?, cookie))).collect();
        self.digests.restart(|id| {
            let name = &before.digests.get(&id)?.name;
            after.digests.iter().find(|(_, digest)| digest.name == *name).map(|(&id, _)| id)
        });
        notes
    }

    /// The data plane runs this pipeline.
    pub fn run(&self, state: &mut State, pipeline: Arc<Pipeline>, notes: Notes) {
        *state = State { saved: None, notes };
        *self.pipeline.write().unwrap_or_else(PoisonError::into_inner) = Some(pipeline);
        tracing::info!("a new forwarding pipeline runs");
    }
}

pub struct Service(pub Arc<Shared>);

impl Service {
    /// Runs `work` to its end even when the client that asked for it goes away.
    async fn to_the_end<F>(&self, work: impl FnOnce(Arc<Shared>) -> F) -> Result<(), Status>
    where
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        match tokio::spawn(work(self.0.clone())).await {
            Ok(result) => result,
            Err(_) => Err(Status::internal("the request could not be completed")),
        }
    }
}

#[tonic::async_trait]
impl p4::p4_runtime_server::P4Runtime for Service {
    async fn write(&self, request: Request<p4::WriteRequest>) -> Result<Response<p4::WriteResponse>, Status> {
        let request = request.into_inner();
        self.to_the_end(|shared| async move { shared.write(request).await }).await?;
        Ok(Response::new(p4::WriteResponse {}))
    }

    type ReadStream = Portions;

    async fn read(&self, request: Request<p4::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let peer = request.remote_addr();
        let answers = self.0.read(request.into_inner()).await?;
        Ok(Response::new(self.0.reads.portions(answers, peer)?))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<p4::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        self.to_the_end(|shared| async move { shared.set_config(request).await }).await?;
        Ok(Response::new(p4::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<p4::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::GetForwardingPipelineConfigResponse>, Status> {
        let request = request.get_ref();
        self.0.check_device(request.device_id)?;
        let config = self.0.pipeline().ok().map(|pipeline| pipeline.config(request.response_type()));
        Ok(Response::new(p4::GetForwardingPipelineConfigResponse { config }))
    }

    type StreamChannelStream = ReceiverStream<Outgoing>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (opened, outgoing) = self.0.clients.open()?;
        tokio::spawn(stream::serve(self.0.clone(), opened, request.into_inner()));
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    async fn capabilities(
        &self,
        _request: Request<p4::CapabilitiesRequest>,
    ) -> Result<Response<p4::CapabilitiesResponse>, Status> {
        let p4runtime_api_version = API_VERSION.to_owned();
        Ok(Response::new(p4::CapabilitiesResponse { p4runtime_api_version, experimental: None }))
    }
}
