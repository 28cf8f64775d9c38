// SPDX-License-Identifier: Apache-2.0
//! P4Runtime on top of [`Dataplane`](apswitch_dataplane::control::Dataplane), without a network, threads or a runtime:
//! a server brings these, and the locks of [`device::State`].
//!
//! | module | what it does |
//! | --- | --- |
//! | [`proto`] | the generated messages |
//! | [`device`] | the RPCs: who may do what, and what they do |
//! | `arbitration`, `role`, [`clients`] | primary and backups; what roles may do; the open streams |
//! | [`stream`], `packet_io`, `digest` | packets, digests and idle entries on the streams |
//! | `pipeline`, `schema`, `header` | the pipeline config, checked against the program |
//! | `write`, `read`, `cost`, `direct`, [`read_stream`] | updates and queries; what these take; thousands of counters; long answers |
//! | `entry`, `matching`, `profile`, `replication`, `data`, `translation`, `names`, `value` | table entries, action profiles and value sets, replicas, P4 data and binary strings between messages and the control API |
//! | [`local`] | a server for clients of this process |
//! | [`in_process`] | the same with one client, for tests |
//! | [`simulation`] | all of it with the data plane in one thread and in virtual time, for simulators |
//! | [`error`] | canonical codes, for a whole RPC and for each part of a batch |
//!
//! What P4Runtime leaves to the target, and this one answers `UNIMPLEMENTED`: docs/switch/p4runtime.md.

#![forbid(unsafe_code)]

mod arbitration;
pub mod clients;
mod cost;
mod data;
pub mod device;
mod digest;
mod entry;
pub mod error;
mod fast_read;
mod header;
pub mod in_process;
pub mod local;
mod matching;
mod names;
mod packet_io;
mod pipeline;
mod profile;
pub mod proto;
mod read;
pub mod read_stream;
mod replication;
mod role;
mod schema;
pub mod simulation;
pub mod stream;
mod translation;
mod value;
mod write;

pub use arbitration::ClientId;

/// The largest request: a pipeline config or a batch of updates.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;
