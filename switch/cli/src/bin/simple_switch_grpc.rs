// SPDX-License-Identifier: Apache-2.0
//! BMv2's name for a switch with P4Runtime: starts the `apswitch` beside it, with BMv2's command line.

#[path = "../bmv2_name.rs"]
mod bmv2_name;

fn main() -> std::process::ExitCode {
    bmv2_name::start("simple_switch_grpc")
}
