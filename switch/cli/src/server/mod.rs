// SPDX-License-Identifier: Apache-2.0
//! The gRPC server: P4Runtime and gNMI, with TLS and bounds for what clients may take.
//!
//! | module | what it does |
//! | --- | --- |
//! | `proto` | the generated service |
//! | `listen`, `tls` | where the server listens, with or without TLS |
//! | `fast_path`, `message_size`, `budget`, `fields` | the way to the service; requests that are too long; memory of requests and answers |
//! | `shared`, `service`, `read_stream`, `stream` | whose turn it is; the RPCs; long answers; streams and what they are told |
//! | `follow`, `trace` | received packets, explained; their service |

mod budget;
mod fast_path;
mod fields;
mod follow;
mod listen;
mod message_size;
pub mod proto;
mod read_stream;
mod service;
mod shared;
mod stream;
mod tls;
mod trace;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apswitch_dataplane::control::{Dataplane, Events};
use apswitch_dataplane::peer::Allowed;
use apswitch_p4runtime::MAX_REQUEST_BYTES;
use apswitch_p4runtime::device::Device;
use apswitch_p4runtime::proto::DESCRIPTORS;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use budget::Bounded;
use fast_path::First;
use listen::Connections;
use message_size::LongMessages;
use proto::p4_runtime_server::P4RuntimeServer;
use proto::trace::trace_server::{self, TraceServer};
use service::Service;
use shared::Shared;
pub use tls::{Secured, Tls};

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
    /// Takes the port. The error is one line that names the address and the fix.
    pub async fn bind(config: &ServerConfig) -> Result<Self, String> {
        let address = &config.address;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let fix = match error.kind() {
                std::io::ErrorKind::AddrInUse => "another program has the port; choose one with --grpc-server-addr",
                _ => "give --grpc-server-addr an address of this machine, such as 127.0.0.1:9559",
            };
            format!("P4Runtime server on {address}: {error}: {fix}")
        })?;
        let is_loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let secured = match &config.tls {
            Some(tls) => Some(Arc::new(Secured::new(tls.clone())?)),
            None if is_loopback || config.insecure => None,
            None => {
                return Err(format!(
                    "P4Runtime server on {address}: any client could control the switch: give --tls-cert, --tls-key and \
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
        let gnmi = apswitch_gnmi::server(dataplane.clone());
        let traces = TraceServer::new(trace::Service::new(dataplane.clone()))
            .max_decoding_message_size(trace::MAX_REQUEST_BYTES);
        let log = trace::log(dataplane.clone());
        let shared = Arc::new(Shared::new(Device::new(self.device_id, dataplane)));
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
        health.set_service_status(apswitch_gnmi::NAME, ServingStatus::Serving).await;
        health.set_service_status(trace_server::SERVICE_NAME, ServingStatus::Serving).await;
        let reflection = || {
            let all = [
                DESCRIPTORS,
                apswitch_gnmi::DESCRIPTORS,
                proto::trace::DESCRIPTORS,
                tonic_health::pb::FILE_DESCRIPTOR_SET,
            ];
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
            .add_service(traces)
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
            () = log => Ok(()),
            () = stop => Ok(()),
        };
        tracing::info!("{} messages to P4Runtime clients were not taken in time", shared.device.clients.lost());
        result
    }
}

const STOPPED: &str = "the data plane has stopped";
