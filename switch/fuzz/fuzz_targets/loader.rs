// SPDX-License-Identifier: Apache-2.0
//! See `common::targets::loader`.
#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|input: &[u8]| common::targets::loader(input));
