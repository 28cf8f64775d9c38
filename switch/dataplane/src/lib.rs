// SPDX-License-Identifier: Apache-2.0
//! The switch that runs: interfaces, the packet thread, and the handle through which everybody else reads and writes.
//!
//! Each module uses only those that stand before it in this table, in the order of reading:
//!
//! | layer | modules | what it knows |
//! | --- | --- | --- |
//! | ports | [`port`] | frames in and out of an interface, in batches; `unsafe`, and nothing else here is |
//! | packet thread | `wait`, `engine_messages`, `engine` | the one thread that owns the switch and its ports; the only place that reads the clock of packets |
//! | control | [`control`], [`device`] | the handle; what a switch is made of, in words |
//! | clients | [`peer`], [`client_log`] | who is at the other end of a connection, and what it may do; lines of the log about it |
//!
//! Answers of the packet thread are futures of no runtime: [`block_on`] waits for them where there is none.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
// Packets are handed around by pointer.
#![allow(clippy::vec_box)]

pub mod client_log;
pub mod control;
pub mod device;
mod engine;
mod engine_messages;
pub mod peer;
pub mod port;
mod wait;

pub use wait::block_on;
