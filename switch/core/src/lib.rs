// SPDX-License-Identifier: Apache-2.0
//! P4 programs compiled for v1model, and packets through them: no threads, no sockets, no clock. Time is an argument.
//!
//! Each module uses only those that stand before it in this table, in the order of reading:
//!
//! | layer | modules | what it knows |
//! | --- | --- | --- |
//! | state | `value`, [`throttle`], [`state`] | a program's instructions and what they work on: tables, registers, meters, headers |
//! | native code | `jit` | the instructions for this processor; `unsafe`, each block with its reason |
//! | program | [`program`], [`machine`] | what the control plane may ask about a loaded program; the program with the state it runs on: one packet at a time |
//! | loader | `loader` | BMv2 JSON to instructions, or the name and place of what is not supported |
//! | traffic manager | `scheduler`, [`link_trace`], [`link`] | rate or recorded rate, queues and their scheduling, delay, jitter and loss of one port |
//! | counts | [`port`], [`drops`] | what a port and its queues carried; why packets went nowhere |
//! | trace | [`tap`] | received frames for clients that trace, by port and header fields |
//! | architecture | [`dataplane_ops`], `digest`, [`v1model`] | between the ports: queues, multicast, clones, resubmission, digests |
//! | what was written | [`write_api`], `key_codec`, `value_sets`, `profiles`, [`store`] | checks of updates, and the canonical copy of what they wrote |
//!
//! The crates of the switch, each of which uses only those before it:
//!
//! | crate | what it is |
//! | --- | --- |
//! | `apswitch-core` | this one |
//! | `apswitch-reference` | the same programs once more, interpreted plainly, which the machine is tested against |
//! | `apswitch-dataplane` | ports, the packet thread, and the handle through which everybody else reads and writes |
//! | `apswitch-p4runtime` | P4Runtime on top of the handle, without a network |
//! | `apswitch-c` | the switch in virtual time, as a C library |
//! | `apswitch-gnmi` | gNMI on top of the handle: ports and queues |
//! | `apswitch-thrift` | BMv2's runtime interface on top of the handle |
//! | `apswitch` | the program, with the gRPC server of both |
//!
//! Nothing here knows a particular P4 program.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
// Packets are handed around by pointer.
#![allow(clippy::vec_box)]

pub mod dataplane_ops;
mod digest;
pub mod drops;
mod flow_queues;
mod jit;
mod key_codec;
pub mod link;
pub mod link_trace;
mod loader;
pub mod machine;
pub mod port;
mod profiles;
pub mod program;
mod queue;
mod scheduler;
pub mod state;
pub mod store;
pub mod tap;
pub mod throttle;
pub mod v1model;
mod value;
mod value_sets;
pub mod write_api;
