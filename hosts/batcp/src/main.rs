// SPDX-License-Identifier: Apache-2.0
//! The program `batcp`: what `hosts batcp` does, by itself.

use std::process::ExitCode;

use clap::Parser;

/// One connection over several interfaces
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: batcp::Command,
}

fn main() -> ExitCode {
    hosts_base::ended(batcp::run(Options::parse().command))
}
