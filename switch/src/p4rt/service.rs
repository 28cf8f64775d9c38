// SPDX-License-Identifier: Apache-2.0
//! The gRPC service: checks who asks and in what order things happen, and hands the work to its modules.

use std::net::SocketAddr;
use std::sync::Arc;

use prost::Message;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::budget::Held;
use super::clients::Outgoing;
use super::digest::Digests;
use super::error::{Checked, Refusal, batch_status};
use super::pipeline::Pipeline;
use super::proto::p4::v1 as p4;
use super::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use super::read::{Asked, Reader};
use super::read_stream::{self, ReadStream};
use super::role::Access;
use super::shared::{MAX_ANSWER_KIB, Saved, Shared, State};
use super::stream;
use super::write::{ClientMetadata, Writer};
use crate::control::{Prepared, TableId, UpdateError};
use crate::peer::{self, Peer};

/// The version of the API that the protos and this server follow.
const API_VERSION: &str = "1.5.0";

impl Shared {
    async fn write(&self, request: p4::WriteRequest) -> Result<(), Status> {
        use p4::write_request::Atomicity;
        self.check_device(request.device_id)?;
        // Nobody else's request waits here, and takes memory.
        self.check_primary(&request.role, request.election_id.as_ref())?;
        let mut state = self.state.write().await;
        // Under the lock: a former primary whose request waited here is refused.
        let access = self.check_primary(&request.role, request.election_id.as_ref())?;
        let State { saved, client_metadata } = &mut *state;
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
        let outcomes = match Atomicity::try_from(request.atomicity) {
            Ok(Atomicity::ContinueOnError) => writer.run(request.updates).await,
            Ok(Atomicity::RollbackOnError) => writer.run_all(request.updates, false).await?,
            Ok(Atomicity::DataplaneAtomic) => writer.run_all(request.updates, true).await?,
            Err(_) => return Err(Status::invalid_argument(format!("there is no atomicity {}", request.atomicity))),
        };
        drop(state);
        batch_status("Write", &outcomes)
    }

    /// The answers to a batch, in its order. What takes long is done on a thread of its own.
    async fn read(self: &Arc<Self>, request: p4::ReadRequest, peer: Option<SocketAddr>) -> Result<ReadStream, Status> {
        self.check_device(request.device_id)?;
        let state = self.state.clone().read_owned().await;
        let access = match request.role.is_empty() {
            true => Access::default(),
            false => self.clients.with_arbiter(|arbiter| arbiter.access(&request.role)),
        };
        let running;
        let reader = match &state.saved {
            Some(_) => self.reader(&state, None, access.clone())?,
            None => {
                running = self.pipeline()?;
                self.reader(&state, Some(&running), access.clone())?
            }
        };
        let asked: Vec<Asked> = request.entities.into_iter().map(|entity| reader.asked(entity)).collect();
        let cost = reader.cost(&asked)?;
        if cost.is_small() {
            let answers = asked.into_iter().map(|asked| reader.answer(asked)).collect();
            return self.reads.portions(answers, peer);
        }
        let permit = self.reads.permit(peer, cost.bytes)?;
        let shared = self.clone();
        Ok(read_stream::long(permit, move || {
            let running = if state.saved.is_none() { Some(shared.pipeline()?) } else { None };
            let reader = shared.reader(&state, running.as_ref(), access)?;
            Ok(asked.into_iter().map(|asked| reader.answer(asked)).collect())
        }))
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
            (None, None) => Err(Status::internal("there is no pipeline to read")),
        }
    }

    /// Checks that the client is the primary of its role, and that the role may set the pipeline.
    fn check_may_push(&self, request: &p4::SetForwardingPipelineConfigRequest) -> Result<(), Status> {
        let access = self.check_primary(&request.role, request.election_id.as_ref())?;
        match access.can_push_pipeline() {
            true => Ok(()),
            false => Err(Status::permission_denied("the role may not set the pipeline")),
        }
    }

    /// A config is checked and its program made ready on a thread of its own, so that others are answered meanwhile.
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
        match tokio::task::spawn_blocking(prepare).await {
            Ok(prepared) => Ok(prepared?),
            Err(_) => Err(Status::internal("the pipeline could not be made ready")),
        }
    }

    async fn set_config(&self, mut request: p4::SetForwardingPipelineConfigRequest) -> Result<(), Status> {
        self.check_device(request.device_id)?;
        self.check_may_push(&request)?;
        let _turn = self.pipelines.lock().await;
        let action = Action::try_from(request.action).unwrap_or_default();
        let config = request.config.take();
        let prepared = match action {
            Action::Unspecified => return Err(Status::invalid_argument("the request has no action")),
            Action::Commit if config.is_some() => {
                return Err(Status::invalid_argument("COMMIT takes no config: it commits the saved one"));
            }
            Action::Commit => None,
            _ => Some(self.prepare(config, action == Action::ReconcileAndCommit).await?),
        };
        let mut state = self.state.write().await;
        // Under the lock: a former primary whose request waited here is refused.
        self.check_may_push(&request)?;
        let Some((pipeline, prepared)) = prepared else {
            let Some(Saved { pipeline, digests, client_metadata, .. }) = state.saved.take() else {
                return Err(Status::not_found("no saved forwarding pipeline config: VERIFY_AND_SAVE comes first"));
            };
            self.dataplane.commit_staged().await.map_err(Refusal::from)?;
            self.digests.replace(digests);
            self.run(&mut state, pipeline, client_metadata);
            return Ok(());
        };
        match action {
            Action::VerifyAndSave => {
                let dataplane = self.dataplane.stage_prepared(prepared);
                let (digests, client_metadata) = Default::default();
                state.saved = Some(Saved { pipeline, dataplane, digests, client_metadata });
            }
            Action::VerifyAndCommit => {
                self.dataplane.commit_prepared(prepared).await.map_err(Refusal::from)?;
                self.dataplane.unstage();
                self.digests.replace(Digests::default());
                self.run(&mut state, pipeline, ClientMetadata::default());
            }
            Action::ReconcileAndCommit => {
                self.dataplane.reconcile_prepared(prepared).await.map_err(|error| match error {
                    UpdateError::Stopped => Refusal::from(error).into(),
                    error => Status::invalid_argument(error.to_string()),
                })?;
                self.dataplane.unstage();
                let client_metadata = self.keep(&pipeline, std::mem::take(&mut state.client_metadata));
                self.run(&mut state, pipeline, client_metadata);
            }
            // VERIFY asks for no more than that everything needed to run is there.
            Action::Verify | Action::Commit | Action::Unspecified => {
                drop(tokio::task::spawn_blocking(|| drop(prepared)))
            }
        }
        Ok(())
    }

    /// Carries the client metadata and the digests of the running pipeline over to the next one.
    fn keep(&self, next: &Pipeline, mut client_metadata: ClientMetadata) -> ClientMetadata {
        let Ok(running) = self.pipeline() else { return client_metadata };
        let (before, after) = (&running.schema, &next.schema);
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
        peer::check_role(Peer::of(request.extensions()), &request.get_ref().role)?;
        let request = request.into_inner();
        self.to_the_end(|shared| async move { shared.write(request).await }).await?;
        Ok(Response::new(p4::WriteResponse {}))
    }

    type ReadStream = ReadStream;

    async fn read(&self, request: Request<p4::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let peer = Peer::of(request.extensions());
        peer::check_reads(peer)?;
        let peer = peer.map(|peer| peer.address);
        Ok(Response::new(self.0.read(request.into_inner(), peer).await?))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<p4::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::SetForwardingPipelineConfigResponse>, Status> {
        peer::check_role(Peer::of(request.extensions()), &request.get_ref().role)?;
        let request = request.into_inner();
        self.to_the_end(|shared| async move { shared.set_config(request).await }).await?;
        Ok(Response::new(p4::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<p4::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::GetForwardingPipelineConfigResponse>, Status> {
        peer::check_reads(Peer::of(request.extensions()))?;
        let request = request.get_ref();
        self.0.check_device(request.device_id)?;
        let config = self.0.pipeline().ok().map(|pipeline| pipeline.config(request.response_type()));
        let kib = config.as_ref().map_or(0, Message::encoded_len) >> 10;
        let Ok(held) = self.0.answers.clone().try_acquire_many_owned(kib as u32) else {
            return Err(Status::resource_exhausted(format!("pipelines of {} MiB are under way", MAX_ANSWER_KIB >> 10)));
        };
        let mut answer = Response::new(p4::GetForwardingPipelineConfigResponse { config });
        answer.extensions_mut().insert(Held::new(held));
        Ok(answer)
    }

    type StreamChannelStream = ReceiverStream<Outgoing>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let peer = Peer::of(request.extensions()).cloned();
        peer::check_reads(peer.as_ref())?;
        let (opened, outgoing) = self.0.clients.open(peer.as_ref().map(|peer| peer.address))?;
        tokio::spawn(stream::serve(self.0.clone(), opened, peer, request.into_inner()));
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
