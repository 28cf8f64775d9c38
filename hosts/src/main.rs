// SPDX-License-Identifier: Apache-2.0
//! The program `hosts`: its subcommands and how it ends.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hosts::{batcp, cc, cwnd, probe_buffer, sessions};

/// Transports of end hosts, on unmodified Linux
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Congestion controls in BPF: list, load, unload
    #[command(subcommand)]
    Cc(cc::Command),
    /// Control of congestion windows by the ratio of round-trip times
    #[command(subcommand)]
    Cwnd(cwnd::Command),
    /// One connection over several interfaces
    #[command(subcommand)]
    Batcp(batcp::Command),
    /// Estimate the buffer of the access point on a path
    #[command(subcommand)]
    ProbeBuffer(probe_buffer::Command),
    /// Run TCP sessions from a traffic model and compute their fairness
    #[command(subcommand)]
    Sessions(sessions::Command),
}

fn main() -> ExitCode {
    let result = match Options::parse().command {
        Command::Cc(command) => cc::run(command),
        Command::Cwnd(command) => cwnd::run(command),
        Command::Batcp(command) => batcp::run(command),
        Command::ProbeBuffer(command) => probe_buffer::run(command),
        Command::Sessions(command) => sessions::run(command),
    };
    hosts_base::ended(result)
}
