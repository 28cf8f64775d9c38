// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime server: gRPC on top of [`Dataplane`].
//!
//! | module | what it does |
//! | --- | --- |
//! | `proto` | the generated messages |
//! | `listen`, `tls`, `first`, `lengths`, `budget` | where the server listens, with or without TLS; the way to the service; requests that are too long; memory of requests and answers |
//! | `service` | the RPCs: who may do what, and in which order |
//! | `arbitration`, `role`, `clients` | primary and backups; what roles may do; the open streams |
//! | `stream`, `packet_io`, `digest` | packets, digests and idle entries on the streams |
//! | `pipeline`, `schema`, `header` | the pipeline config, checked against the program |
//! | `write`, `read`, `cost`, `direct`, `read_stream` | updates and queries; what these take; thousands of counters; long answers |
//! | `entry`, `matching`, `profile`, `replication`, `data`, `translation`, `value` | table entries, action profiles and value sets, replicas, P4 data and binary strings between messages and the control API |
//! | `local` | the server without a network, for simulations |
//! | [`in_process`] | the same with one client, for tests |
//! | `error` | canonical codes, for a whole RPC and for each part of a batch |
//!
//! What P4Runtime leaves to the target, and this one answers `UNIMPLEMENTED`: docs/switch/p4runtime.md.

mod arbitration;
mod budget;
mod clients;
mod cost;
mod data;
mod digest;
mod entry;
mod error;
mod fast_path;
mod fast_read;
mod fields;
mod header;
pub mod in_process;
mod listen;
pub(crate) mod local;
mod matching;
mod message_size;
mod packet_io;
mod pipeline;
mod profile;
mod proto;
mod read;
mod read_stream;
mod replication;
mod role;
mod schema;
mod service;
mod shared;
mod stream;
mod tls;
mod translation;
mod value;
mod write;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use crate::control::{Dataplane, Events};
pub use crate::peer::Allowed;
use budget::Bounded;
use fast_path::First;
use listen::Connections;
use message_size::LongMessages;
use proto::p4::v1::p4_runtime_server::P4RuntimeServer;
use service::Service;
use shared::Shared;
pub use tls::{Secured, Tls};

/// Descriptors of the protos, for server reflection.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
/// The largest request: a pipeline config or a batch of updates.
const MAX_REQUEST_BYTES: usize = 64 << 20;
/// Requests and streams of one connection at once, and how many of them are read and answered at a time.
const MAX_STREAMS: u32 = 128;
const MAX_REQUESTS: usize = 16;
/// Bytes of a request, and of all requests of a connection, that a client may send ahead: a usual batch never waits for
/// the server to ask for more.
const STREAM_WINDOW: u32 = 512 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// A request that has not come and been answered by then never will.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(120);
/// A connection whose peer has vanished is found out by pings, so that another controller may take over.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Address that the server listens on, the device that it is, and its security.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub device_id: u64,
    /// Such as `127.0.0.1:9559`; port 0 takes a free one.
    pub address: String,
    /// `None`: in the clear, which is for loopback only.
    pub tls: Option<Tls>,
    /// Rights of clients by their certificates; empty: every client may do everything.
    pub allow: Vec<Allowed>,
    /// In the clear beyond loopback, too.
    pub insecure: bool,
}

/// A server that has its port but does not serve yet.
pub struct P4RuntimeListener {
    connections: Connections,
    secured: Option<Arc<Secured>>,
    device_id: u64,
}

impl P4RuntimeListener {
    /// Takes the port. The error is one line that names the address and the mend.
    pub async fn bind(config: &ServerConfig) -> Result<Self, String> {
        let address = &config.address;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let mend = match error.kind() {
                std::io::ErrorKind::AddrInUse => "another program has the port; choose one with --grpc-server-addr",
                _ => "give --grpc-server-addr an address of this machine, such as 127.0.0.1:9559",
            };
            format!("P4Runtime server on {address}: {error}: {mend}")
        })?;
        let is_loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let secured = match &config.tls {
            Some(tls) => Some(Arc::new(Secured::new(tls.clone())?)),
            None if is_loopback || config.insecure => None,
            None => {
                return Err(format!(
                    "P4Runtime server on {address}: everybody could control the switch: give --tls-cert, --tls-key and \
                     --tls-client-ca, an address of loopback, or --insecure where that is meant"
                ));
            }
        };
        let connections = Connections::new(listener, secured.clone(), &config.allow);
        Ok(P4RuntimeListener { connections, secured, device_id: config.device_id })
    }

    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.connections.local_addr()
    }

    /// Returns the TLS configuration that is reloaded when its files change.
    pub fn secured(&self) -> Option<Arc<Secured>> {
        self.secured.clone()
    }

    /// Serves until `stop` resolves.
    pub async fn serve(
        self,
        dataplane: Dataplane,
        events: Events,
        stop: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let gnmi = crate::gnmi::server(dataplane.clone());
        let shared = Arc::new(Shared::new(self.device_id, dataplane));
        let service = P4RuntimeServer::new(Service(shared.clone()))
            .max_decoding_message_size(MAX_REQUEST_BYTES)
            .max_encoding_message_size(usize::MAX);
        let secured = self.secured;
        let watch = async {
            match &secured {
                Some(secured) => secured.watch().await,
                None => std::future::pending().await,
            }
        };
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<P4RuntimeServer<Service>>().await;
        health.set_service_status(crate::gnmi::NAME, ServingStatus::Serving).await;
        let reflection = || {
            let all = [DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET];
            let builder = tonic_reflection::server::Builder::configure();
            all.into_iter().fold(builder, |builder, set| builder.register_encoded_file_descriptor_set(set))
        };
        let describe = |error| format!("reflection: {error}");
        let server = Server::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .concurrency_limit_per_connection(MAX_REQUESTS)
            .timeout(MAX_REQUEST_TIME)
            .http2_keepalive_interval(Some(PING_INTERVAL))
            .http2_keepalive_timeout(Some(PING_TIMEOUT))
            .layer(Bounded::new(First(LongMessages(service))))
            .add_service(gnmi)
            .add_service(health_service)
            .add_service(reflection().build_v1().map_err(describe)?)
            .add_service(reflection().build_v1alpha().map_err(describe)?)
            .serve_with_incoming(self.connections);
        // Streams live as long as their clients, so there is no waiting for them.
        let result = tokio::select! {
            result = server => result.map_err(|error| format!("P4Runtime server: {error}")),
            () = stream::deliver_packets(shared.clone(), events.packet_ins) => Err(STOPPED.into()),
            () = stream::deliver_digests(shared.clone(), events.digests) => Err(STOPPED.into()),
            () = stream::deliver_notices(shared.clone(), events.notices) => Err(STOPPED.into()),
            () = watch => Ok(()),
            () = stop => Ok(()),
        };
        tracing::info!("{} messages to P4Runtime clients were not taken in time", shared.clients.lost());
        result
    }
}

const STOPPED: &str = "the data plane has stopped";
