// SPDX-License-Identifier: Apache-2.0
//! The state of the service that its RPCs share, and the work of Get and Set.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use apswitch_dataplane::control::{
    Dataplane, LinkConfig, LinkView, NewPort, PortConfig, PortNumber, PortStats, PortView, QueueStats, UpdateError,
    Window,
};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::config::{self, Leaves, Port};
use super::path::{Path, Pattern};
use super::proto::gnmi;
use super::proto::gnmi::get_request::DataType;
use super::set::{self, Edit};
use super::tree::MAX_LEAVES;
use super::value::Value;
use super::{render, tree};

/// Streams that may be open at once.
pub const MAX_SUBSCRIBERS: usize = 64;
/// Ports that a Set may add and remove: each is an interface to be opened or closed, for which other Sets wait.
const MAX_PORT_CHANGES: usize = 64;
/// Paths of a Get.
const MAX_PATHS: usize = 64;
/// Leaves in the answers to Gets that are under way, and those that streams remember.
const MAX_ANSWERED_LEAVES: usize = 2 * MAX_LEAVES;
const MAX_WATCHED_LEAVES: usize = 2 * MAX_LEAVES;

pub struct Shared {
    dataplane: Dataplane,
    config: RwLock<Arc<Leaves>>,
    /// Held while something is set.
    setting: Mutex<()>,
    pub subscribers: Arc<Semaphore>,
    /// Lock of whoever walks the tree.
    turn: Arc<Mutex<()>>,
    answered: Arc<Semaphore>,
    watched: Arc<Semaphore>,
}

/// Leaves that somebody holds, out of those that all may hold.
pub type Held = Arc<OwnedSemaphorePermit>;

impl Shared {
    pub fn new(dataplane: Dataplane) -> Shared {
        let config = config::of_start(&ports_of(&dataplane.views()));
        Shared {
            dataplane,
            config: RwLock::new(Arc::new(config)),
            setting: Mutex::new(()),
            subscribers: Arc::new(Semaphore::new(MAX_SUBSCRIBERS)),
            turn: Arc::default(),
            answered: Arc::new(Semaphore::new(MAX_ANSWERED_LEAVES)),
            watched: Arc::new(Semaphore::new(MAX_WATCHED_LEAVES)),
        }
    }

    fn config(&self) -> Arc<Leaves> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Work that looks at the whole tree has a thread of its own, so that it holds up no other request; one at a time.
    pub async fn aside<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Shared) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let turn = self.turn.clone().lock_owned().await;
        let shared = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&shared)
        });
        done.await.unwrap_or_else(|_| Err(Status::internal("the request could not be completed")))
    }

    /// The leaves that a pattern wants.
    pub fn leaves(&self, wanted: &Pattern) -> Result<BTreeMap<Path, Value>, Status> {
        tree::leaves(&self.dataplane, &self.dataplane.views(), &self.config(), wanted)
    }

    /// Room for leaves that a stream remembers.
    pub fn watch(&self, leaves: usize) -> Result<OwnedSemaphorePermit, Status> {
        hold(&self.watched, leaves)
            .ok_or_else(|| Status::resource_exhausted(format!("{MAX_WATCHED_LEAVES} leaves are watched already")))
    }

    pub fn get(&self, request: &gnmi::GetRequest) -> Result<(gnmi::GetResponse, Held), Status> {
        no_extensions(&request.extension)?;
        let encoding = render::encoding(request.encoding)?;
        let kind = DataType::try_from(request.r#type)
            .map_err(|_| Status::invalid_argument("type: ALL, CONFIG, STATE or OPERATIONAL"))?;
        let whole = [gnmi::Path::default()];
        let paths = if request.path.is_empty() { &whole[..] } else { &request.path };
        let patterns = paths.iter().map(|path| Pattern::parse(request.prefix.as_ref(), path));
        let patterns = patterns.collect::<Result<Vec<_>, _>>()?;
        let prefix = request.prefix.as_ref().filter(|prefix| !prefix.target.is_empty());
        let prefix = prefix.map(|prefix| gnmi::Path { target: prefix.target.clone(), ..Default::default() });
        let (mut notification, mut number) = (Vec::new(), 0);
        let mut held = self.hold_answer(0)?;
        for pattern in patterns {
            let mut leaves = self.leaves(&pattern)?;
            leaves.retain(|path, _| is_of(kind, path));
            number += leaves.len();
            if number > MAX_LEAVES {
                let reason = format!("{pattern}: more than {MAX_LEAVES} leaves with the paths before it");
                return Err(Status::resource_exhausted(reason));
            }
            held.merge(self.hold_answer(leaves.len())?);
            let update = render::updates(&pattern, &leaves, encoding);
            // Wildcards may match nothing, as on a switch that has no port yet.
            if update.is_empty() && pattern.exact().is_ok() {
                return Err(Status::not_found(format!("{pattern}: does not exist")));
            }
            let (timestamp, prefix) = (render::timestamp(), prefix.clone());
            notification.push(gnmi::Notification { timestamp, prefix, update, ..Default::default() });
        }
        Ok((gnmi::GetResponse { notification, ..Default::default() }, Arc::new(held)))
    }

    fn hold_answer(&self, leaves: usize) -> Result<OwnedSemaphorePermit, Status> {
        hold(&self.answered, leaves).ok_or_else(|| {
            Status::resource_exhausted(format!("answers with {MAX_ANSWERED_LEAVES} leaves are under way"))
        })
    }

    pub async fn set(self: Arc<Self>, request: gnmi::SetRequest) -> Result<gnmi::SetResponse, Status> {
        no_extensions(&request.extension)?;
        let _setting = self.setting.lock().await;
        let (prefix, work) = (request.prefix.clone(), move |shared: &Shared| shared.plan(&request));
        let Plan { leaves, results, leaving, coming, enabled, links } = self.aside(work).await?;
        // First, as it is what may fail.
        if !leaving.is_empty() || !coming.is_empty() {
            self.dataplane.change_ports(&leaving, coming).await.map_err(refusal)?;
        }
        for (port, enabled) in enabled {
            self.dataplane.set_enabled(port, enabled);
        }
        self.dataplane.set_links(links).await.map_err(refusal)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(leaves);
        let timestamp = render::timestamp();
        Ok(gnmi::SetResponse { prefix, response: results, timestamp, ..Default::default() })
    }

    /// Plans the changes of the configuration and of the ports that a request asks for.
    fn plan(&self, request: &gnmi::SetRequest) -> Result<Plan, Status> {
        let mut views = self.dataplane.views();
        let ports = views.iter().map(|(port, _)| (port.interface.clone(), port.number.into()));
        let mut edit = Edit::new((*self.config()).clone(), ports.collect());
        edit.run(request)?;
        let Edit { leaves, mut ports, fixed, results, .. } = edit;

        let mut leaving = Vec::new();
        views.retain(|(port, _)| {
            let stays = ports.remove(&port.interface).is_some();
            if !stays {
                leaving.push(port.number);
            }
            stays
        });
        let there = views.len();
        for (interface, number) in ports {
            views.push(coming(&views, interface, number)?);
        }
        let changes = leaving.len() + views.len() - there;
        if changes > MAX_PORT_CHANGES {
            let reason = format!("{changes} ports that come and go: {MAX_PORT_CHANGES} in a request are the most");
            return Err(Status::resource_exhausted(reason));
        }
        let meanings = config::meaning(&leaves, &ports_of(&views), self.dataplane.queues())?;
        let (mut enabled, mut links, mut coming) = (Vec::new(), Vec::new(), Vec::new());
        for (index, ((port, view), meaning)) in views.iter_mut().zip(meanings).enumerate() {
            if index >= there {
                let (number, interface) = (port.number, port.interface.clone());
                let config = PortConfig { number, interface, link: meaning.link.clone() };
                coming.push(NewPort { config, enabled: meaning.enabled });
                view.queues = vec![QueueStats::default(); meaning.link.map_or(0, |_| self.dataplane.queues())];
                continue;
            }
            if view.enabled != meaning.enabled {
                enabled.push((port.number, meaning.enabled));
            }
            if let Some(link) = meaning.link.filter(|link| view.link.as_ref() != Some(link)) {
                links.push((port.number, link));
            }
        }
        if !fixed.is_empty() {
            let config = Pattern::parse(None, &every_config())?;
            set::check_fixed(fixed, &tree::leaves(&self.dataplane, &views, &leaves, &config)?)?;
        }
        Ok(Plan { leaves, results, leaving, coming, enabled, links })
    }
}

/// `/.../config`
fn every_config() -> gnmi::Path {
    let elem = |name: &str| gnmi::PathElem { name: name.into(), ..Default::default() };
    gnmi::Path { elem: vec![elem("..."), elem("config")], ..Default::default() }
}

/// A port that is to come behind the others.
fn coming(others: &[(PortView, LinkView)], interface: String, number: u64) -> Result<(PortView, LinkView), Status> {
    let at = format!("/interfaces/interface[name={interface}]/config/id");
    if let Some((other, _)) = others.iter().find(|(other, _)| u64::from(other.number) == number) {
        let other = &other.interface;
        let text = format!("{at}: {number} is the port of {other}: give another number, or delete {other} first");
        return Err(Status::already_exists(text));
    }
    let Ok(number) = PortNumber::try_from(number) else {
        return Err(Status::invalid_argument(format!("{at}: {number} is no port's number: they have 9 bits")));
    };
    let mtu = apswitch_dataplane::port::mtu(&interface).ok();
    let link =
        LinkView { enabled: true, mtu, link: None, queues: Vec::new(), lanes: Vec::new(), window: Window::default() };
    Ok((PortView { number, interface, up: true, stats: PortStats::default() }, link))
}

fn refusal(error: UpdateError) -> Status {
    let text = error.to_string();
    match error {
        UpdateError::AlreadyExists(_) => Status::already_exists(text),
        UpdateError::NotFound(_) => Status::not_found(text),
        UpdateError::InvalidArgument(_) => Status::invalid_argument(text),
        UpdateError::FailedPrecondition(_) | UpdateError::PermissionDenied(_) => Status::failed_precondition(text),
        _ => Status::unavailable(text),
    }
}

/// Checks the number of paths, before the request waits for its turn.
pub fn check_paths(number: usize) -> Result<(), Status> {
    match number {
        ..=MAX_PATHS => Ok(()),
        _ => Err(Status::resource_exhausted(format!("{number} paths: {MAX_PATHS} are the most"))),
    }
}

/// Changes that a Set asks for.
struct Plan {
    leaves: Leaves,
    results: Vec<gnmi::UpdateResult>,
    leaving: Vec<PortNumber>,
    coming: Vec<NewPort>,
    /// Ports that stay, as in `links`.
    enabled: Vec<(PortNumber, bool)>,
    links: Vec<(PortNumber, LinkConfig)>,
}

/// Takes so many permits, if they are free.
fn hold(all: &Arc<Semaphore>, number: usize) -> Option<OwnedSemaphorePermit> {
    all.clone().try_acquire_many_owned(u32::try_from(number).ok()?).ok()
}

fn ports_of(views: &[(PortView, LinkView)]) -> Vec<Port> {
    views.iter().map(|(port, view)| Port { interface: port.interface.clone(), link: view.link.clone() }).collect()
}

/// Returns true if a Get of this kind has the leaf. OPERATIONAL: state that is not also configured.
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
