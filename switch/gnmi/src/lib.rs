// SPDX-License-Identifier: Apache-2.0
//! gNMI (specification 0.10): ports and queues read, watched and set at run time, over paths of OpenConfig.
//!
//! | module | what it does |
//! | --- | --- |
//! | `proto` | the generated messages |
//! | `schema`, `value`, `path` | which nodes there are, their values in every encoding, and the ways to them |
//! | `tree` | the leaves that there are now |
//! | `config` | what was set, and what it means for the ports |
//! | `render` | leaves as answers, one by one or as JSON |
//! | `set`, `shared`, `subscribe`, `service` | the RPCs, and the state that they share |
//!
//! docs/switch/queues.md says which paths there are.

#![forbid(unsafe_code)]

mod config;
mod path;
mod proto;
mod render;
mod schema;
mod service;
mod set;
mod shared;
mod subscribe;
#[cfg(test)]
mod tests;
mod tree;
mod value;

use std::sync::Arc;

use apswitch_dataplane::control::Dataplane;
pub use proto::DESCRIPTORS;
use proto::gnmi::g_nmi_server::GNmiServer;

/// The largest request.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Name of the service in gRPC's paths.
pub const NAME: &str = "gnmi.gNMI";

/// The service of a data plane; its configuration starts as the data plane's.
pub fn server(dataplane: Dataplane) -> GNmiServer<service::Service> {
    GNmiServer::new(service::Service(Arc::new(shared::Shared::new(dataplane))))
        .max_decoding_message_size(MAX_REQUEST_BYTES)
        .max_encoding_message_size(usize::MAX)
}
