// SPDX-License-Identifier: Apache-2.0
//! The gRPC service.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::config::{self, Leaves, Port};
use super::path::{Path, Pattern};
use super::proto::gnmi;
use super::proto::gnmi::Encoding;
use super::proto::gnmi::get_request::DataType;
use super::schema::MODELS;
use super::set::Edit;
use super::value::Value;
use super::{render, subscribe, tree};
use crate::control::Dataplane;

/// The version of the protos.
const VERSION: &str = "0.10.0";
/// Streams that may be open at once, and messages that may wait for each client.
const MOST_SUBSCRIBERS: usize = 64;
const BACKLOG: usize = 16;

pub struct Shared {
    dataplane: Dataplane,
    config: RwLock<Arc<Leaves>>,
    /// Held while something is set.
    setting: Mutex<()>,
    subscribers: Arc<Semaphore>,
}

impl Shared {
    pub fn new(dataplane: Dataplane) -> Shared {
        let config = config::of_start(&ports(&dataplane));
        Shared {
            dataplane,
            config: RwLock::new(Arc::new(config)),
            setting: Mutex::new(()),
            subscribers: Arc::new(Semaphore::new(MOST_SUBSCRIBERS)),
        }
    }

    fn config(&self) -> Arc<Leaves> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The leaves that patterns may want.
    pub fn leaves(&self, wanted: &[Pattern]) -> BTreeMap<Path, Value> {
        tree::leaves(&self.dataplane, &self.config(), wanted)
    }

    fn get(&self, request: &gnmi::GetRequest) -> Result<gnmi::GetResponse, Status> {
        no_extensions(&request.extension)?;
        let encoding = render::encoding(request.encoding)?;
        let kind = DataType::try_from(request.r#type)
            .map_err(|_| Status::invalid_argument("type: ALL, CONFIG, STATE or OPERATIONAL"))?;
        let whole = [gnmi::Path::default()];
        let paths = if request.path.is_empty() { &whole[..] } else { &request.path };
        let mut notification = Vec::new();
        for path in paths {
            let pattern = Pattern::parse(request.prefix.as_ref(), path)?;
            let mut leaves = self.leaves(std::slice::from_ref(&pattern));
            leaves.retain(|path, _| is_of(kind, path));
            let update = render::updates(&pattern, &leaves, encoding);
            // Wildcards may match nothing, as on a switch that has no port yet.
            if update.is_empty() && pattern.exact().is_ok() {
                return Err(Status::not_found(format!("{pattern}: there is none")));
            }
            let prefix = request.prefix.as_ref().filter(|prefix| !prefix.target.is_empty());
            let prefix = prefix.map(|prefix| gnmi::Path { target: prefix.target.clone(), ..Default::default() });
            notification.push(gnmi::Notification {
                timestamp: render::timestamp(),
                prefix,
                update,
                ..Default::default()
            });
        }
        Ok(gnmi::GetResponse { notification, ..Default::default() })
    }

    async fn set(&self, request: gnmi::SetRequest) -> Result<gnmi::SetResponse, Status> {
        no_extensions(&request.extension)?;
        let _setting = self.setting.lock().await;
        let everything = Pattern::parse(None, &gnmi::Path::default())?;
        let tree = self.leaves(std::slice::from_ref(&everything));
        let mut edit = Edit { leaves: (*self.config()).clone(), tree: &tree, results: Vec::new() };
        edit.run(&request)?;
        let Edit { leaves, results, .. } = edit;

        let ports = ports(&self.dataplane);
        let meanings = config::meaning(&leaves, &ports, self.dataplane.queues())?;
        let mut links = Vec::new();
        for (index, (port, meaning)) in ports.into_iter().zip(meanings).enumerate() {
            if self.dataplane.links()[index].enabled != meaning.enabled {
                self.dataplane.set_enabled(index, meaning.enabled);
            }
            if let Some(link) = meaning.link.filter(|link| port.link.as_ref() != Some(link)) {
                links.push((index, link));
            }
        }
        self.dataplane.set_links(links).await.map_err(|error| Status::unavailable(error.to_string()))?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(leaves);
        let timestamp = render::timestamp();
        Ok(gnmi::SetResponse { prefix: request.prefix, response: results, timestamp, ..Default::default() })
    }
}

fn ports(dataplane: &Dataplane) -> Vec<Port> {
    let links = dataplane.links().into_iter().map(|link| link.link);
    dataplane.ports().into_iter().zip(links).map(|(port, link)| Port { interface: port.interface, link }).collect()
}

/// Whether a Get of this kind has the leaf. OPERATIONAL: state that is not also configured.
fn is_of(kind: DataType, path: &Path) -> bool {
    let at = path.0.iter().position(|step| matches!(step.name, "config" | "state"));
    let name = at.map(|at| path.0[at].name);
    match kind {
        DataType::All => true,
        DataType::Config => name == Some("config"),
        DataType::State => name == Some("state"),
        DataType::Operational => at.is_some_and(|at| {
            let mut twin = path.clone();
            twin.0[at].name = "config";
            name == Some("state") && twin.node().is_none()
        }),
    }
}

/// Extensions change what a request means, so none is passed over.
pub fn no_extensions<T>(extensions: &[T]) -> Result<(), Status> {
    match extensions {
        [] => Ok(()),
        _ => Err(Status::unimplemented("extensions: this target has none")),
    }
}

pub struct Service(pub Arc<Shared>);

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
        self.0.get(request.get_ref()).map(Response::new)
    }

    async fn set(&self, request: Request<gnmi::SetRequest>) -> Result<Response<gnmi::SetResponse>, Status> {
        let (shared, request) = (self.0.clone(), request.into_inner());
        // To its end, even when the client goes away.
        match tokio::spawn(async move { shared.set(request).await }).await {
            Ok(result) => result.map(Response::new),
            Err(_) => Err(Status::internal("the request could not be completed")),
        }
    }

    type SubscribeStream = ReceiverStream<Result<gnmi::SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<Streaming<gnmi::SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let Ok(place) = self.0.subscribers.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("{MOST_SUBSCRIBERS} subscribers are here already")));
        };
        let (outgoing, messages) = mpsc::channel(BACKLOG);
        let shared = self.0.clone();
        tokio::spawn(async move {
            if let Err(status) = subscribe::serve(&shared, request.into_inner(), &outgoing).await {
                // Who has gone needs no reason.
                let _ = outgoing.try_send(Err(status));
            }
            drop(place);
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}
