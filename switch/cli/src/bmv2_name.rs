// SPDX-License-Identifier: Apache-2.0
//! Programs that have a name of BMv2's: each starts the `apswitch` beside it under this name.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Becomes the `apswitch` in the own folder, called by this name.
pub fn start(name: &str) -> ExitCode {
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
