// SPDX-License-Identifier: Apache-2.0
//! The gRPC service.

use std::sync::Arc;

use apswitch_dataplane::client_log;
use apswitch_dataplane::peer::{self, Peer};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::proto::gnmi;
use super::proto::gnmi::Encoding;
use super::schema::MODELS;
use super::set;
use super::shared::{MAX_SUBSCRIBERS, Shared, check_paths};
use super::subscribe;

/// The version of the protos.
const VERSION: &str = "0.10.0";
/// Messages that may wait for each client.
const BACKLOG: usize = 2;

pub struct Service(pub Arc<Shared>);

impl Service {
    async fn checked_set(
        &self,
        client: Option<&Peer>,
        request: gnmi::SetRequest,
    ) -> Result<Response<gnmi::SetResponse>, Status> {
        peer::check_sets(client).map_err(Status::permission_denied)?;
        set::check_operations(&request)?;
        // To its end, even when the client goes away.
        match tokio::spawn(self.0.clone().set(request)).await {
            Ok(result) => result.map(Response::new),
            Err(_) => Err(Status::internal("the request could not be completed")),
        }
    }
}

#[tonic::async_trait]
impl gnmi::g_nmi_server::GNmi for Service {
    async fn capabilities(
        &self,
        _: Request<gnmi::CapabilityRequest>,
    ) -> Result<Response<gnmi::CapabilityResponse>, Status> {
        let model = |(name, organization, version): (&str, &str, &str)| gnmi::ModelData {
            name: name.into(),
            organization: organization.into(),
            version: version.into(),
        };
        let encodings = [Encoding::Json, Encoding::JsonIetf, Encoding::Proto, Encoding::Ascii];
        Ok(Response::new(gnmi::CapabilityResponse {
            supported_models: MODELS.into_iter().map(model).collect(),
            supported_encodings: encodings.map(i32::from).to_vec(),
            g_nmi_version: VERSION.into(),
            ..Default::default()
        }))
    }

    async fn get(&self, request: Request<gnmi::GetRequest>) -> Result<Response<gnmi::GetResponse>, Status> {
        peer::check_reads(request.extensions().get::<Peer>()).map_err(Status::permission_denied)?;
        let request = request.into_inner();
        check_paths(request.path.len())?;
        let (answer, held) = self.0.aside(move |shared| shared.get(&request)).await?;
        let mut answer = Response::new(answer);
        answer.extensions_mut().insert(held);
        Ok(answer)
    }

    async fn set(&self, request: Request<gnmi::SetRequest>) -> Result<Response<gnmi::SetResponse>, Status> {
        let client = request.extensions().get::<Peer>().cloned();
        self.checked_set(client.as_ref(), request.into_inner()).await.inspect_err(|status| {
            client_log::log(client.as_ref(), format_args!("gNMI Set refused: {}", status.message()));
        })
    }

    type SubscribeStream = ReceiverStream<Result<gnmi::SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<Streaming<gnmi::SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        peer::check_reads(request.extensions().get::<Peer>()).map_err(Status::permission_denied)?;
        let Ok(place) = self.0.subscribers.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("{MAX_SUBSCRIBERS} subscribers are here already")));
        };
        let (outgoing, messages) = mpsc::channel(BACKLOG);
        let shared = self.0.clone();
        tokio::spawn(async move {
            if let Err(status) = subscribe::serve(&shared, request.into_inner(), &outgoing).await {
                subscribe::refuse(&outgoing, status).await;
            }
            drop(place);
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}
