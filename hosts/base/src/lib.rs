// SPDX-License-Identifier: Apache-2.0
//! Shared parts of the end hosts' programs: exit codes, output, keys, and connection slots for unproven clients.

use std::process::ExitCode;

mod error;
pub mod key;
pub mod log;
pub mod output;
pub mod slots;
pub mod status;
pub mod tcp;
pub mod units;

pub use error::{About, Error};

/// Report an error and return the exit code: 0 after success, 2 after an error.
pub fn ended(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
