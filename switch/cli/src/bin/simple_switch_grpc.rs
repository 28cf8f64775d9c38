// SPDX-License-Identifier: Apache-2.0
//! BMv2's name for a switch with P4Runtime: starts the `apswitch` beside it, with BMv2's command line.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let name = "simple_switch_grpc";
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name("apswitch"),
        Err(error) => {
            eprintln!("{name}: {error}");
            return ExitCode::from(2);
        }
    };
    let error = Command::new(&program).arg0(name).args(std::env::args_os().skip(1)).exec();
    eprintln!("{name}: {}: {error}: install apswitch in the same folder", program.display());
    ExitCode::from(2)
}
