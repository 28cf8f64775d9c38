// SPDX-License-Identifier: Apache-2.0
//! The gRPC service: brings the requests to the device, each when its turn has come.

use std::pin::Pin;
use std::sync::Arc;

use apswitch_dataplane::client_log;
use apswitch_dataplane::peer::{self, Peer};
use apswitch_p4runtime::device::API_VERSION;
use apswitch_p4runtime::error;
use apswitch_p4runtime::proto::p4::v1 as p4;
use apswitch_p4runtime::read_stream::Read;
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::budget::{Held, UnderWay};
use super::proto::p4_runtime_server::P4Runtime;
use super::read_stream::{self, ReadStream};
use super::shared::{MAX_ANSWER_KIB, Shared, grpc_status};
use super::stream;

/// `None`: a client in this process.
fn peer<T>(request: &Request<T>) -> Option<&Peer> {
    request.extensions().get()
}

type StreamOfMessages = Pin<Box<dyn Stream<Item = Result<p4::StreamMessageResponse, Status>> + Send>>;

pub struct Service(pub Arc<Shared>);

impl Service {
    /// Carries out a request that changes the switch, if the client may have its role, and logs its refusal. It runs to
    /// its end even when the client goes away.
    async fn change<T, F>(
        &self,
        name: &str,
        request: Request<T>,
        role: fn(&T) -> &str,
        work: impl FnOnce(Arc<Shared>, T) -> F,
    ) -> Result<(), Status>
    where
        F: Future<Output = Result<(), error::Status>> + Send + 'static,
    {
        let client = peer(&request).cloned();
        let done = match peer::check_role(client.as_ref(), role(request.get_ref())) {
            Err(reason) => Err(Status::permission_denied(reason)),
            Ok(()) => {
                let under_way = request.extensions().get::<UnderWay>().cloned();
                let work = work(self.0.clone(), request.into_inner());
                let to_its_end = async move {
                    let _under_way = under_way;
                    work.await
                };
                match tokio::spawn(to_its_end).await {
                    Ok(result) => result.map_err(grpc_status),
                    Err(_) => Err(Status::internal("the request could not be completed")),
                }
            }
        };
        done.inspect_err(|status| {
            let message = status.message();
            let reason = message.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message);
            client_log::log(client.as_ref(), format_args!("{name} refused: {reason}"));
        })
    }
}

#[tonic::async_trait]
impl P4Runtime for Service {
    async fn write(&self, request: Request<p4::WriteRequest>) -> Result<Response<p4::WriteResponse>, Status> {
        self.change(
            "Write",
            request,
            |request| &request.role,
            |shared, request| async move { shared.write(request).await },
        )
        .await?;
        Ok(Response::new(p4::WriteResponse {}))
    }

    type ReadStream = ReadStream;

    async fn read(&self, request: Request<p4::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let peer = peer(&request);
        peer::check_reads(peer).map_err(Status::permission_denied)?;
        let (peer, request) = (peer.map(|peer| peer.address), request.into_inner());
        let shared = self.0.clone();
        shared.device.check_device(request.device_id).map_err(grpc_status)?;
        let state = shared.state.clone().read_owned().await;
        Ok(Response::new(match shared.device.read(&state, request, peer).map_err(grpc_status)? {
            Read::Short(message) => read_stream::short(message),
            Read::Many(permit, messages) => read_stream::long(permit, move || Ok(messages)),
            Read::Long(permit, long) => read_stream::long(permit, move || shared.device.look_up(&state, long)),
        }))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<p4::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::SetForwardingPipelineConfigResponse>, Status> {
        let set = |shared: Arc<Shared>, request| async move { shared.set_config(request).await };
        self.change("SetForwardingPipelineConfig", request, |request| &request.role, set).await?;
        Ok(Response::new(p4::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<p4::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::GetForwardingPipelineConfigResponse>, Status> {
        peer::check_reads(peer(&request)).map_err(Status::permission_denied)?;
        let config = self.0.device.config(request.get_ref()).map_err(grpc_status)?;
        let kib = config.as_ref().map_or(0, Message::encoded_len) >> 10;
        let Ok(held) = self.0.answers.clone().try_acquire_many_owned(kib as u32) else {
            return Err(Status::resource_exhausted(format!("pipelines of {} MiB are under way", MAX_ANSWER_KIB >> 10)));
        };
        let mut answer = Response::new(p4::GetForwardingPipelineConfigResponse { config });
        answer.extensions_mut().insert(Held::new(held));
        Ok(answer)
    }

    type StreamChannelStream = StreamOfMessages;

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let peer = peer(&request).cloned();
        peer::check_reads(peer.as_ref()).map_err(Status::permission_denied)?;
        let opened = self.0.device.clients.open(peer.as_ref().map(|peer| peer.address));
        let (opened, outgoing) = opened.map_err(grpc_status)?;
        tokio::spawn(stream::serve(self.0.clone(), opened, peer, request.into_inner()));
        Ok(Response::new(Box::pin(outgoing.map(|message| message.map_err(grpc_status)))))
    }

    async fn capabilities(
        &self,
        _request: Request<p4::CapabilitiesRequest>,
    ) -> Result<Response<p4::CapabilitiesResponse>, Status> {
        let p4runtime_api_version = API_VERSION.to_owned();
        Ok(Response::new(p4::CapabilitiesResponse { p4runtime_api_version, experimental: None }))
    }
}
