// SPDX-License-Identifier: Apache-2.0
//! Compiles the protos of P4Runtime and gNMI. They are not copied into this repository: the pinned finsy Python package brings them,
//! so that the switch, the controller and the tests speak the same version.

use std::path::{Path, PathBuf};
use std::process::Command;

use prost::Message;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

const ROOT_PROTO: &str = "p4/v1/p4runtime.proto";
const GNMI_PROTO: &str = "gnmi1/gnmi.proto";

/// The folder that holds `p4/v1/p4runtime.proto`: `FINSY_PROTO_DIR`, else finsy of the project's venv, else of python3.
fn proto_dir() -> Result<PathBuf, String> {
    if let Some(dir) = std::env::var_os("FINSY_PROTO_DIR") {
        let dir = PathBuf::from(dir);
        return match dir.join(ROOT_PROTO).is_file() {
            true => Ok(dir),
            false => Err(format!("FINSY_PROTO_DIR={} has no {ROOT_PROTO}", dir.display())),
        };
    }
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    println!("cargo:rerun-if-changed={}", venv.display());
    // find_spec does not import finsy, so its dependencies need not be there.
    let ask = "import importlib.util as u; print(u.find_spec('finsy').submodule_search_locations[0])";
    for python in [venv.as_path(), Path::new("python3")] {
        let Ok(answer) = Command::new(python).args(["-c", ask]).output() else {
            continue;
        };
        let dir = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim()).join("proto");
        if answer.status.success() && dir.join(ROOT_PROTO).is_file() {
            return Ok(dir);
        }
    }
    Err("the Python package finsy, which brings the P4Runtime protos, is not installed: \
         run `make python`, or set FINSY_PROTO_DIR to the folder of p4/v1/p4runtime.proto"
        .into())
}

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
    println!("cargo:rerun-if-env-changed=FINSY_PROTO_DIR");
    let dir = proto_dir()?;
    println!("cargo:rerun-if-changed={}", dir.join("p4").display());
    println!("cargo:rerun-if-changed={}", dir.join("gnmi1").display());
    let mut descriptors =
        protox::compile([ROOT_PROTO, GNMI_PROTO], [&dir]).map_err(|e| format!("{}: {e}", dir.display()))?;
    // What reflection tells, which is what the protos say.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("there is no OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec()).map_err(|e| e.to_string())?;
    one_by_one(&mut descriptors);
    let files = descriptors.file.iter().filter(|file| file.package() == "p4.v1");
    let names: Vec<_> = files.flat_map(|file| &file.message_type).map(|message| message.name().to_owned()).collect();
    let mut builder = tonic_prost_build::configure().build_client(false);
    // What is written once and never shared is a plain vector: prost counts references to `Bytes` that it writes.
    for name in names.iter().filter(|name| *name != "ReadResponse") {
        builder = builder.bytes(format!(".p4.v1.{name}"));
    }
    builder.compile_fds(descriptors).map_err(|e| format!("protos: {e}"))
}

fn main() {
    if let Err(reason) = build() {
        println!("cargo::error={reason}");
    }
}
