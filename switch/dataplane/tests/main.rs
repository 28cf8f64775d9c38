// SPDX-License-Identifier: Apache-2.0
//! Tests of the switch without a server, in one program: each program of tests holds the whole switch, and is compiled
//! and linked for itself.

mod common;
mod crafted;
mod features;
mod features_tables;
mod fuzz;
mod generated;
mod interfaces;
mod lanes;
mod profiles;
mod queues;
mod reference;
mod returning;
mod store;
mod structures;
mod tables;
mod taps;
