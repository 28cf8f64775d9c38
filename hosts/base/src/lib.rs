// SPDX-License-Identifier: Apache-2.0
//! What the end hosts' programs share: how they end and what they print, keys, and how servers bear strangers.

use std::process::ExitCode;

mod error;
pub mod key;
pub mod log;
pub mod output;
pub mod slots;
pub mod tcp;
pub mod units;

pub use error::{About, Error};

/// How a program ends: after an error with its line, and 2.
pub fn ended(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
