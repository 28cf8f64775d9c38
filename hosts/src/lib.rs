// SPDX-License-Identifier: Apache-2.0
//! End hosts' side of the access point: the transports of the papers as software for unmodified Linux.

pub mod batcp;
mod bootstrap;
pub mod cc;
pub mod cwnd;
mod error;
pub mod fairness;
mod key;
mod log;
pub mod output;
mod places;
pub mod probe_buffer;
pub mod sessions;
mod units;

pub use error::{About, Error};
