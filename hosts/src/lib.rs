// SPDX-License-Identifier: Apache-2.0
//! End hosts' side of the access point: the transports of the papers as software for unmodified Linux.

mod bootstrap;
pub mod cc;
pub mod cwnd;
pub mod fairness;
pub mod probe_buffer;
pub mod sessions;

pub use batcp;
pub use hosts_base::{About, Error, output};
