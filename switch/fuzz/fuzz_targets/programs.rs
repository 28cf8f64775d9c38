// SPDX-License-Identifier: Apache-2.0
//! See `common::programs::programs`.
#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|input: &[u8]| common::programs::programs(input));
