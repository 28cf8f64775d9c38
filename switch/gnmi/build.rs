// SPDX-License-Identifier: Apache-2.0
//! Compiles the protos of gNMI, which `switch/protos` holds.

use std::path::PathBuf;

use prost::Message;

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../protos");

fn build() -> Result<(), String> {
    println!("cargo:rerun-if-changed={PROTOS}");
    let descriptors = protox::compile(["gnmi1/gnmi.proto"], [PROTOS]).map_err(|e| format!("{PROTOS}: {e}"))?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("there is no OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec()).map_err(|e| e.to_string())?;
    tonic_prost_build::configure().build_client(false).compile_fds(descriptors).map_err(|e| format!("protos: {e}"))
}

fn main() {
    if let Err(reason) = build() {
        println!("cargo::error={reason}");
    }
}
