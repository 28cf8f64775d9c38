// SPDX-License-Identifier: Apache-2.0
//! Compiles the messages of P4Runtime, whose protos `switch/protos` holds.

use std::path::PathBuf;

use prost::Message;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../protos");

/// The parts of batches stay bytes, which is the same on the wire: thousands of messages within messages are read and
/// written one by one, in memory that the cache still holds.
fn one_by_one(descriptors: &mut FileDescriptorSet) {
    let parts = [
        ("WriteRequest", "updates"),
        ("ReadRequest", "entities"),
        ("ReadResponse", "entities"),
        // Checked and kept as it came, on a thread of its own.
        ("ForwardingPipelineConfig", "p4info"),
    ];
    let files = descriptors.file.iter_mut().filter(|file| file.package() == "p4.v1");
    for message in files.flat_map(|file| &mut file.message_type) {
        let name = message.name().to_owned();
        for field in message.field.iter_mut().filter(|field| parts.contains(&(&name, field.name()))) {
            field.set_type(Type::Bytes);
            field.type_name = None;
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo:rerun-if-changed={PROTOS}");
    let mut descriptors = protox::compile(["p4/v1/p4runtime.proto"], [PROTOS]).map_err(|e| format!("{PROTOS}: {e}"))?;
    // What reflection tells, which is what the protos say.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("there is no OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec()).map_err(|e| e.to_string())?;
    one_by_one(&mut descriptors);
    let files = descriptors.file.iter().filter(|file| file.package() == "p4.v1");
    let names: Vec<_> = files.flat_map(|file| &file.message_type).map(|message| message.name().to_owned()).collect();
    let mut config = prost_build::Config::new();
    // What is written once and never shared is a plain vector: prost counts references to `Bytes` that it writes.
    let shared = names.iter().filter(|name| *name != "ReadResponse").map(|name| format!(".p4.v1.{name}"));
    config.bytes(shared);
    config.compile_fds(descriptors).map_err(|e| format!("protos: {e}"))
}

fn main() {
    if let Err(reason) = build() {
        println!("cargo::error={reason}");
    }
}
