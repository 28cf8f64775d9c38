// SPDX-License-Identifier: Apache-2.0
//! A software switch for P4 programs compiled for v1model.
//!
//! The modules are layers; each one uses only those above it in this list:
//!
//! | layer | modules | what it knows |
//! | --- | --- | --- |
//! | description | [`program`], `value` | what the control plane may ask about a loaded program |
//! | loader | `compile` | BMv2 JSON to instructions, or the name and place of what is not supported |
//! | machine | `machine`, `throttle` | how one packet is processed: parser, instructions, tables, meters, checksums, deparser |
//! | native code | `jit` | the machine's instructions for this processor; `unsafe`, each block with its reason |
//! | link | [`link`], `queue`, [`trace`] | rate or recorded rate, queues and their scheduling, delay, jitter and loss of one port |
//! | port | [`port`] | frames in and out of an interface, in batches; `unsafe` as well, and nothing else is |
//! | architecture | `v1model`, `digest`, [`drops`] | between the ports: queues, multicast, clones, resubmission, digests |
//! | packet thread | `engine` | the one thread that owns all of the above; the only place that reads the clock |
//! | control | [`control`], [`update`], `store`, `profiles`, `rows`, `value_sets`, `change` | the handle through which everybody else reads and writes |
//! | options | [`device`] | what a switch is made of, in words |
//! | clients | `peer` | who is at the other end of a connection, and what it may do |
//! | gNMI | [`gnmi`] | ports and queues over gRPC, on top of the handle |
//! | P4Runtime | [`p4rt`] | the gRPC server on top of the handle |
//! | simulation | [`simulation`] | all of the above in one thread and in virtual time, for simulators |
//! | reference | [`reference`] | the same programs once more, interpreted plainly: what the machine is tested against |
//!
//! Nothing here knows a particular P4 program.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
// Packets are handed around by pointer.
#![allow(clippy::vec_box)]

pub mod change;
mod command;
mod compile;
pub mod control;
pub mod device;
mod digest;
pub mod drops;
mod engine;
pub mod gnmi;
mod jit;
pub mod link;
pub mod machine;
pub mod p4rt;
mod peer;
pub mod port;
mod profiles;
pub mod program;
mod queue;
pub mod reference;
mod rows;
pub mod simulation;
pub mod store;
mod throttle;
pub mod trace;
pub mod update;
pub mod v1model;
mod value;
mod value_sets;
