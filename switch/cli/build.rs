// SPDX-License-Identifier: Apache-2.0
//! Compiles the service of P4Runtime, for the messages of `apswitch-p4runtime`, and the service of traces.

use std::path::PathBuf;

use prost::Message;

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../protos");
const OWN_PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");

fn build() -> Result<(), String> {
    println!("cargo:rerun-if-changed={PROTOS}");
    println!("cargo:rerun-if-changed={OWN_PROTOS}");
    let descriptors = protox::compile(["p4/v1/p4runtime.proto"], [PROTOS]).map_err(|e| format!("{PROTOS}: {e}"))?;
    let service = tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".p4", "::apswitch_p4runtime::proto::p4")
        .extern_path(".google.rpc", "::apswitch_p4runtime::proto::google::rpc");
    service.compile_fds(descriptors).map_err(|e| format!("protos: {e}"))?;
    let descriptors = protox::compile(["trace.proto"], [OWN_PROTOS]).map_err(|e| format!("{OWN_PROTOS}: {e}"))?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("there is no OUT_DIR")?);
    std::fs::write(out.join("trace.bin"), descriptors.encode_to_vec()).map_err(|e| e.to_string())?;
    tonic_prost_build::configure().compile_fds(descriptors).map_err(|e| format!("trace.proto: {e}"))
}

fn main() {
    if let Err(reason) = build() {
        println!("cargo::error={reason}");
    }
}
