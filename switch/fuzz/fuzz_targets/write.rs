// SPDX-License-Identifier: Apache-2.0
//! See `targets::write`.
#![no_main]

#[path = "../../dataplane/tests/common/mod.rs"]
mod common;
#[path = "../../p4runtime/tests/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| targets::write(input));
