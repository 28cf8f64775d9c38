// SPDX-License-Identifier: Apache-2.0
//! Compiles the service of P4Runtime, for the messages of `apswitch-p4runtime`.

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../protos");

fn build() -> Result<(), String> {
    println!("cargo:rerun-if-changed={PROTOS}");
    let descriptors = protox::compile(["p4/v1/p4runtime.proto"], [PROTOS]).map_err(|e| format!("{PROTOS}: {e}"))?;
    let service = tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".p4", "::apswitch_p4runtime::proto::p4")
        .extern_path(".google.rpc", "::apswitch_p4runtime::proto::google::rpc");
    service.compile_fds(descriptors).map_err(|e| format!("protos: {e}"))
}

fn main() {
    if let Err(reason) = build() {
        println!("cargo::error={reason}");
    }
}
