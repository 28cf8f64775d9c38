// SPDX-License-Identifier: Apache-2.0
//! A software switch for P4 programs compiled for v1model.
//!
//! The modules are layers: each one uses only those that stand before it in this table, in the order of reading, which
//! `tests/layers.rs` keeps.
//!
//! | layer | modules | what it knows |
//! | --- | --- | --- |
//! | state | `value`, `throttle`, [`state`] | a program's instructions and what they work on: tables, registers, meters, headers |
//! | native code | `jit` | the instructions for this processor; `unsafe`, each block with its reason |
//! | program | [`program`], [`machine`] | what the control plane may ask about a loaded program; the program with the state it runs on: one packet at a time |
//! | loader | `loader` | BMv2 JSON to instructions, or the name and place of what is not supported |
//! | traffic manager | `scheduler`, [`link_trace`], [`link`] | rate or recorded rate, queues and their scheduling, delay, jitter and loss of one port |
//! | ports | [`port`], [`drops`] | frames in and out of an interface, in batches; `unsafe` as well, and nothing else is |
//! | architecture | [`dataplane_ops`], `digest`, [`v1model`] | between the ports: queues, multicast, clones, resubmission, digests |
//! | what was written | [`write_api`], `key_codec`, `value_sets`, `profiles`, [`store`] | checks of updates, and the canonical copy of what they wrote |
//! | packet thread | `engine_messages`, `engine` | the one thread that owns all of the above; the only place that reads the clock |
//! | control | [`control`], [`device`] | the handle through which everybody else reads and writes; what a switch is made of, in words |
//! | clients | `peer` | who is at the other end of a connection, and what it may do |
//! | gNMI | [`gnmi`] | ports and queues over gRPC, on top of the handle |
//! | P4Runtime | [`p4rt`] | the gRPC server on top of the handle |
//! | simulation | [`simulation`] | all of the above in one thread and in virtual time, for simulators |
//!
//! Beside it in this workspace: `reference/`, the same programs once more, interpreted plainly, which the machine is
//! tested against; `cli/`, the program `apswitch`; `c/`, the simulation as a C library.
//!
//! Nothing here knows a particular P4 program.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
// Packets are handed around by pointer.
#![allow(clippy::vec_box)]

pub mod control;
pub mod dataplane_ops;
pub mod device;
mod digest;
pub mod drops;
mod engine;
mod engine_messages;
pub mod gnmi;
mod jit;
mod key_codec;
pub mod link;
pub mod link_trace;
mod loader;
pub mod machine;
pub mod p4rt;
mod peer;
pub mod port;
mod profiles;
pub mod program;
mod scheduler;
pub mod simulation;
pub mod state;
pub mod store;
mod throttle;
pub mod v1model;
mod value;
mod value_sets;
pub mod write_api;
