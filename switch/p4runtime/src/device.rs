// SPDX-License-Identifier: Apache-2.0
//! A device: checks who asks and in what order things happen, and hands the work to its modules.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use apswitch_dataplane::control::{Dataplane, Prepared, TableId, UpdateError};

use super::clients::Clients;
use super::digest::Digests;
use super::error::{Checked, Code, Refusal, Status, refuse};
use super::pipeline::Pipeline;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use super::read::{Asked, Reader};
use super::read_stream::{Chunks, LongRead, Messages, Read, Reads};
use super::role::Access;
use super::write::{ClientMetadata, Writer};

/// The version of the API that the protos and this server follow.
pub const API_VERSION: &str = "1.5.0";

/// A pipeline config that was checked, and its program made ready; `None`: the saved one.
pub type Ready = Option<(Arc<Pipeline>, Prepared)>;

/// State that a write changes besides the data plane. A server with several requests at a time keeps it in a lock:
/// writes exclude each other and reads.
#[derive(Default)]
pub struct State {
    saved: Option<Saved>,
    client_metadata: ClientMetadata,
}

/// A pipeline that waits for COMMIT. Reads and writes are about it.
struct Saved {
    pipeline: Arc<Pipeline>,
    dataplane: Dataplane,
    digests: Digests,
    client_metadata: ClientMetadata,
}

pub struct Device {
    device_id: u64,
    pub dataplane: Dataplane,
    pub clients: Clients,
    pub digests: Digests,
    /// The running pipeline; replaced only by who holds the [`State`] for writing.
    pipeline: RwLock<Option<Arc<Pipeline>>>,
    reads: Arc<Reads>,
}

impl Device {
    pub fn new(device_id: u64, dataplane: Dataplane) -> Self {
        Device {
            device_id,
            dataplane,
            clients: Clients::new(device_id),
            digests: Digests::default(),
            pipeline: RwLock::new(None),
            reads: Arc::default(),
        }
    }

    pub(crate) fn pipeline(&self) -> Checked<Arc<Pipeline>> {
        match &*self.pipeline.read().unwrap_or_else(PoisonError::into_inner) {
            Some(pipeline) => Ok(pipeline.clone()),
            None => refuse!(FailedPrecondition, "no forwarding pipeline config is set for this device"),
        }
    }

    pub fn check_device(&self, device_id: u64) -> Result<(), Status> {
        match device_id == self.device_id {
            true => Ok(()),
            false => Err(Status::new(
                Code::NotFound,
                format!("device {device_id} is not here: this is device {}", self.device_id),
            )),
        }
    }

    /// Returns the rights of the client that sends a write, or an error if it is not the primary of its role.
    fn check_primary(&self, role: &str, election_id: Option<&p4::Uint128>) -> Result<Access, Status> {
        self.clients.with_arbiter(|arbiter| match arbiter.is_primary_request(role, election_id) {
            true => Ok(arbiter.access(role)),
            false if !arbiter.knows_role(role) => {
                Err(Status::new(Code::NotFound, format!("no client has the role {role:?}")))
            }
            false => Err(Status::new(
                Code::PermissionDenied,
                "only the primary may do this: the election id is not the primary's",
            )),
        })
    }

    /// The data plane runs this pipeline.
    pub(crate) fn run(&self, state: &mut State, pipeline: Arc<Pipeline>, client_metadata: ClientMetadata) {
        *state = State { saved: None, client_metadata };
        *self.pipeline.write().unwrap_or_else(PoisonError::into_inner) = Some(pipeline);
        tracing::info!("a new forwarding pipeline runs");
    }
}

impl Device {
    /// Checks that the client of a write is the primary of its role, and returns its rights. Ask also before the write
    /// waits for its turn, so that nobody else's request waits and takes memory.
    pub fn check_write(&self, request: &p4::WriteRequest) -> Result<Access, Status> {
        self.check_device(request.device_id)?;
        self.check_primary(&request.role, request.election_id.as_ref())
    }

    /// `Write`: the outcome of each update. A former primary whose request waited for its turn is refused.
    pub async fn write(&self, state: &mut State, request: p4::WriteRequest) -> Result<Vec<Checked<()>>, Status> {
        use p4::write_request::Atomicity;
        let access = self.check_write(&request)?;
        let State { saved, client_metadata } = state;
        let pipeline;
        let writer = match saved {
            Some(Saved { pipeline, dataplane, digests, client_metadata }) => {
                Writer::new(&pipeline.schema, dataplane, digests, client_metadata, access)
            }
            None => {
                pipeline = self.pipeline()?;
                Writer::new(&pipeline.schema, &self.dataplane, &self.digests, client_metadata, access)
            }
        };
        match Atomicity::try_from(request.atomicity) {
            Ok(Atomicity::ContinueOnError) => Ok(writer.run(request.updates).await),
            Ok(Atomicity::RollbackOnError) => writer.run_all(request.updates, false).await,
            Ok(Atomicity::DataplaneAtomic) => writer.run_all(request.updates, true).await,
            Err(_) => Err(Status::new(Code::InvalidArgument, format!("there is no atomicity {}", request.atomicity))),
        }
    }

    /// `Read`: the answers to a batch, in its order. `peer`: its connection.
    pub fn read(&self, state: &State, request: p4::ReadRequest, peer: Option<SocketAddr>) -> Result<Read, Status> {
        self.check_device(request.device_id)?;
        let access = match request.role.is_empty() {
            true => Access::default(),
            false => self.clients.with_arbiter(|arbiter| arbiter.access(&request.role)),
        };
        let running = self.running(state)?;
        let reader = self.reader(state, running.as_ref(), access.clone())?;
        let asked: Vec<Asked> = request.entities.into_iter().map(|entity| reader.asked(entity)).collect();
        let cost = reader.cost(&asked)?;
        if cost.is_small() {
            let answers = asked.into_iter().map(|asked| reader.answer(asked)).collect();
            return self.reads.messages(answers, peer);
        }
        let permit = self.reads.permit(peer, cost.bytes)?;
        Ok(Read::Long(permit, LongRead { asked, access }))
    }

    /// The messages of a long read, of the same state.
    pub fn look_up(&self, state: &State, LongRead { asked, access }: LongRead) -> Result<Messages, Status> {
        let running = self.running(state)?;
        let reader = self.reader(state, running.as_ref(), access)?;
        let answers = asked.into_iter().map(|asked| reader.answer(asked)).collect();
        Ok(Box::new(Chunks::new(answers)))
    }

    /// `Read`, for a caller that takes the messages at once.
    pub fn read_at_once(&self, state: &State, request: p4::ReadRequest) -> Result<Messages, Status> {
        Ok(match self.read(state, request, None)? {
            Read::Short(message) => Box::new(message.into_iter()),
            Read::Many(_, messages) => messages,
            Read::Long(_, long) => self.look_up(state, long)?,
        })
    }

    /// The running pipeline, unless another one waits for COMMIT.
    fn running(&self, state: &State) -> Checked<Option<Arc<Pipeline>>> {
        if state.saved.is_none() { self.pipeline().map(Some) } else { Ok(None) }
    }

    /// Reads of the pipeline that waits for COMMIT, or of the running one.
    fn reader<'a>(
        &'a self,
        state: &'a State,
        running: Option<&'a Arc<Pipeline>>,
        access: Access,
    ) -> Result<Reader<'a>, Status> {
        match (&state.saved, running) {
            (Some(Saved { pipeline, dataplane, digests, client_metadata }), _) => {
                Ok(Reader { pipeline, dataplane, digests, client_metadata, access })
            }
            (None, Some(pipeline)) => {
                let (dataplane, digests, client_metadata) = (&self.dataplane, &self.digests, &state.client_metadata);
                Ok(Reader { pipeline, dataplane, digests, client_metadata, access })
            }
            (None, None) => Err(Status::new(Code::Internal, "there is no pipeline to read")),
        }
    }

    /// Checks that the client is the primary of its role, and that the role may set the pipeline. Ask also before the
    /// request waits for its turn.
    pub fn check_push(&self, request: &p4::SetForwardingPipelineConfigRequest) -> Result<(), Status> {
        self.check_device(request.device_id)?;
        let access = self.check_primary(&request.role, request.election_id.as_ref())?;
        match access.can_push_pipeline() {
            true => Ok(()),
            false => Err(Status::new(Code::PermissionDenied, "the role may not set the pipeline")),
        }
    }

    /// A config is checked and its program made ready aside, so that others are answered meanwhile.
    async fn prepare(
        &self,
        config: Option<p4::ForwardingPipelineConfig>,
        to_reconcile: bool,
    ) -> Result<(Arc<Pipeline>, Prepared), Status> {
        let dataplane = self.dataplane.clone();
        let prepare = move || -> Checked<_> {
            let (pipeline, program) = Pipeline::verify(config)?;
            let prepared = match to_reconcile {
                true => dataplane.prepare_to_reconcile(program)?,
                false => dataplane.prepare(program)?,
            };
            Ok((Arc::new(pipeline), prepared))
        };
        match self.dataplane.aside(prepare).await {
            Ok(prepared) => Ok(prepared?),
            Err(_) => Err(Status::new(Code::Internal, "the pipeline could not be made ready")),
        }
    }

    /// Makes the config of a request ready. To be called for one at a time, in the order in which they came.
    pub async fn make_ready(&self, request: &mut p4::SetForwardingPipelineConfigRequest) -> Result<Ready, Status> {
        let config = request.config.take();
        match action(request) {
            Action::Unspecified => Err(Status::new(Code::InvalidArgument, "the request has no action")),
            Action::Commit if config.is_some() => {
                Err(Status::new(Code::InvalidArgument, "COMMIT takes no config: it commits the saved one"))
            }
            Action::Commit => Ok(None),
            action => self.prepare(config, action == Action::ReconcileAndCommit).await.map(Some),
        }
    }

    /// `SetForwardingPipelineConfig`, whose config is ready. A former primary whose request waited for its turn is
    /// refused.
    pub async fn set_config(
        &self,
        state: &mut State,
        request: &p4::SetForwardingPipelineConfigRequest,
        ready: Ready,
    ) -> Result<(), Status> {
        self.check_push(request)?;
        let Some((pipeline, prepared)) = ready else {
            let Some(Saved { pipeline, digests, client_metadata, .. }) = state.saved.take() else {
                return Err(Status::new(
                    Code::NotFound,
                    "no saved forwarding pipeline config: VERIFY_AND_SAVE comes first",
                ));
            };
            self.dataplane.commit_staged().await.map_err(Refusal::from)?;
            self.digests.replace(digests);
            self.run(state, pipeline, client_metadata);
            return Ok(());
        };
        match action(request) {
            Action::VerifyAndSave => {
                let dataplane = self.dataplane.stage_prepared(prepared);
                let (digests, client_metadata) = Default::default();
                state.saved = Some(Saved { pipeline, dataplane, digests, client_metadata });
            }
            Action::VerifyAndCommit => {
                self.dataplane.commit_prepared(prepared).await.map_err(Refusal::from)?;
                self.dataplane.unstage();
                self.digests.replace(Digests::default());
                self.run(state, pipeline, ClientMetadata::default());
            }
            Action::ReconcileAndCommit => {
                self.dataplane.reconcile_prepared(prepared).await.map_err(|error| match error {
                    UpdateError::Stopped => Refusal::from(error).into(),
                    error => Status::new(Code::InvalidArgument, error.to_string()),
                })?;
                self.dataplane.unstage();
                let client_metadata = self.keep(&pipeline, std::mem::take(&mut state.client_metadata));
                self.run(state, pipeline, client_metadata);
            }
            // VERIFY asks for no more than that everything needed to run is there.
            Action::Verify | Action::Commit | Action::Unspecified => self.dataplane.discard(prepared),
        }
        Ok(())
    }

    /// Carries the client metadata, the names of values and the digests of the running pipeline over to the next one.
    fn keep(&self, next: &Pipeline, mut client_metadata: ClientMetadata) -> ClientMetadata {
        let Ok(running) = self.pipeline() else { return client_metadata };
        let (before, after) = (&running.schema, &next.schema);
        for (name, names) in &after.names {
            if let Some(before) = before.names.get(name) {
                names.take_over(before);
            }
        }
        let target = |table: TableId| {
            let name = &before.table_of(table)?.name;
            after.tables.values().find(|table| table.name == *name).map(|table| table.target)
        };
        let cookies = std::mem::take(&mut client_metadata.default_cookies).into_iter();
        client_metadata.default_cookies =
            cookies.filter_map(|(table, cookie)| Some((target(table)?, cookie))).collect();
        self.digests.restart(|id| {
            let name = &before.digests.get(&id)?.name;
            after.digests.iter().find(|(_, digest)| digest.name == *name).map(|(&id, _)| id)
        });
        client_metadata
    }

    /// `GetForwardingPipelineConfig`.
    pub fn config(
        &self,
        request: &p4::GetForwardingPipelineConfigRequest,
    ) -> Result<Option<p4::ForwardingPipelineConfig>, Status> {
        self.check_device(request.device_id)?;
        Ok(self.pipeline().ok().map(|pipeline| pipeline.config(request.response_type())))
    }
}

fn action(request: &p4::SetForwardingPipelineConfigRequest) -> Action {
    Action::try_from(request.action).unwrap_or_default()
}
