// SPDX-License-Identifier: Apache-2.0
//! A software switch for P4 programs compiled for v1model.
//!
//! The modules are layers; each one uses only those above it in this list:
//!
//! | layer | modules | what it knows |
//! | --- | --- | --- |
//! | description | [`program`] | what the control plane may ask about a loaded program; the loader that compiles BMv2 JSON |
//! | packet | `vm`, `table`, `meter`, `checksum` | how one packet is processed; time is an argument |
//! | link | [`link`] | rate, queues, delay, jitter and loss of one port; time is an argument |
//! | port | [`port`] | frames in and out of an interface, in batches; the only `unsafe` code |
//! | data plane | `engine` | the one thread that owns tables, queues and ports |
//! | control | [`control`] | the handle through which everybody else reads and writes |
//! | P4Runtime | `p4rt` | the gRPC server on top of the handle |
//!
//! Nothing here knows a particular P4 program.

mod compile;
pub mod control;
mod engine;
pub mod link;
mod machine;
pub mod p4rt;
pub mod port;
pub mod program;
