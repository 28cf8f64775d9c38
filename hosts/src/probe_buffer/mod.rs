// SPDX-License-Identifier: Apache-2.0
//! Buffer of an access point, from outside ("QoS-guaranteed TCP on real mobile terminals", section III): packets are
//! sent faster than it drains, and packets in are compared with packets out.
//!
//! ```text
//! send.rs: trials over UDP --> trace.rs: what one says --> estimate.rs: what all say
//! serve.rs: the far end, records arrivals             wire.rs: what both say to each other
//! ```
//!
//! Nothing is known about the path but sequence numbers and times of the two ends, whose clocks need not agree.

mod estimate;
mod send;
mod serve;
#[cfg(test)]
mod simulate;
mod trace;
mod wire;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;

use self::estimate::{Batch, Estimate, Limit, limit};
use self::send::{Limits, Outcome, Sender};
use self::wire::{Key, PORT};
use crate::bootstrap::Interval;
use hosts_base::Error;
use hosts_base::output::Format;
use hosts_base::units::{rate, show_rate};

#[derive(Subcommand)]
pub enum Command {
    /// Measure the path from here to a responder
    ///
    /// Sends UDP packets 6 to 10 times as fast as the slowest link on the path drains them, in short trials with pauses.
    /// It loads that link fully meanwhile: a few seconds at 14 Mbit/s. Put the responder where the buffer is on the way:
    /// behind an access point to measure its downlink, before it to measure the uplink.
    Run(RunOptions),
    /// Run the responder: record arrivals, and report them to senders that know the key
    Serve(ServeOptions),
}

#[derive(Args)]
pub struct RunOptions {
    /// Address or name of the responder, port if not 8630
    host: String,
    /// File with the key that the responder has too, 16 bytes or more
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Trials with each packet size; up to three times as many with the first while the result is unsure
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    trials: u64,
    /// Bytes of the IP packets, the first for the result, the second to distinguish a limit of packets from one of
    /// bytes [default: the path's maximum, and half of it]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(100..=9000))]
    sizes: Vec<u32>,
    /// Never send faster
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = rate)]
    max_rate: u64,
    /// Send no more than so many megabytes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    megabytes: u64,
    /// Begin no trial that would take longer than this
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    #[command(flatten)]
    format: Format,
}

#[derive(Args)]
pub struct ServeOptions {
    /// TCP and UDP address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT))]
    listen: SocketAddr,
    /// File with the key that senders have too, 16 bytes or more
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Let senders send no faster
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = rate)]
    max_rate: u64,
}

/// Findings of `run`.
#[derive(Serialize)]
struct Findings {
    host: String,
    verdict: Verdict,
    /// Rate in bit/s of IP packets: through the bottleneck, or of the sender if there was none.
    rate: f64,
    /// Packets waiting when the buffer is full, of the first size; with `not-full`: at least so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<Interval>,
    /// Bytes of IP packets waiting then.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Interval>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Limit>,
    batches: Vec<Batch>,
    sizes: Vec<Estimate>,
    packets_sent: u64,
    bytes_sent: u64,
    seconds: f64,
    /// Packets of strangers that came to the responder meanwhile.
    ignored: u64,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Buffer,
    Unsteady,
    Policer,
    NotFull,
    NoBottleneck,
}

pub fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Run(options) => measure(options),
        Command::Serve(options) => serve::serve(options.listen, Key::read(&options.key_file)?, options.max_rate),
    }
}

fn measure(options: RunOptions) -> Result<(), Error> {
    let key = Key::read(&options.key_file)?;
    let limits = Limits {
        trials: options.trials as usize,
        rate: options.max_rate,
        bytes: options.megabytes * 1_000_000,
        time: Duration::from_secs(options.seconds),
    };
    let started = Instant::now();
    let mut sender = Sender::connect(&options.host, &key, limits)?;
    let mtu = sender.path_mtu();
    let sizes = if options.sizes.is_empty() { vec![mtu, mtu / 2] } else { options.sizes };
    let outcome = sender.measure(&sizes)?;
    let mut result = Findings {
        host: options.host,
        verdict: Verdict::NoBottleneck,
        rate: 0.0,
        packets: None,
        bytes: None,
        limit: None,
        batches: Vec::new(),
        sizes: Vec::new(),
        packets_sent: sender.packets_sent,
        bytes_sent: sender.bytes_sent,
        seconds: started.elapsed().as_secs_f64(),
        ignored: sender.ignored,
    };
    match outcome {
        Outcome::NoBottleneck { rate } => result.rate = rate,
        Outcome::NotFull { drain, packets } => {
            result.verdict = Verdict::NotFull;
            result.rate = drain;
            result.packets = Some(Interval { value: packets, low: packets, high: f64::INFINITY });
        }
        Outcome::Buffer(sizes) => {
            let first = &sizes[0];
            result.verdict = match first {
                found if found.policer => Verdict::Policer,
                found if found.unsteady => Verdict::Unsteady,
                _ => Verdict::Buffer,
            };
            let size = f64::from(first.size);
            result.rate = 8.0 * size * first.drain;
            let Interval { value, low, high } = first.packets;
            result.packets = Some(first.packets);
            result.bytes = Some(Interval { value: value * size, low: low * size, high: high * size });
            result.limit = sizes.get(1).map(|second| limit(first, second));
            result.batches = first.batches.clone();
            result.sizes = sizes;
        }
    }
    if options.format.is_json() {
        options.format.print(&[result], &[], |_| Vec::new());
    } else {
        show(&result, options.format);
    }
    Ok(())
}

fn show(result: &Findings, format: Format) {
    if !result.sizes.is_empty() {
        let columns = ["packet", "trials", "waiting packets (95 %)", "bytes", "batches (share)", "drains", "path loss"];
        format.print(&result.sizes, &columns, |found| {
            let Interval { value, low, high } = found.packets;
            let batches = found.batches.iter().map(|b| format!("{} ({:.0} %)", b.packets, 100.0 * b.share));
            vec![
                format!("{} B", found.size),
                found.trials.to_string(),
                format!("{value:.1} ({low:.1} to {high:.1})"),
                format!("{:.0}", value * f64::from(found.size)),
                batches.collect::<Vec<_>>().join(", "),
                show_rate(8.0 * f64::from(found.size) * found.drain),
                format!("{:.2} %", 100.0 * found.path_loss),
            ]
        });
    }
    println!("{}", sentence(result));
}

/// Format the result in words.
fn sentence(result: &Findings) -> String {
    let rate = show_rate(result.rate);
    let packets = result.packets.map_or(0.0, |packets| packets.value);
    match result.verdict {
        Verdict::NoBottleneck => format!("No bottleneck: packets arrive as fast as they are sent, at {rate}."),
        Verdict::NotFull => format!(
            "The buffer holds more than {packets:.0} packets: it never ran full, drained at {rate}. \
             Send more with --megabytes or --seconds."
        ),
        Verdict::Policer => format!("No buffer: what exceeds {rate} is dropped without waiting, as by a policer."),
        Verdict::Unsteady => format!(
            "No fixed buffer: drops begin at {:.0} to {:.0} waiting packets. Active queue management or other traffic does that.",
            result.packets.map_or(0.0, |p| p.low),
            result.packets.map_or(0.0, |p| p.high)
        ),
        Verdict::Buffer => {
            let limit = match (result.limit, result.bytes) {
                (Some(Limit::Packets), _) => format!("{packets:.0} packets, of whatever size"),
                (Some(Limit::Bytes), Some(bytes)) => format!("about {:.0} bytes, in packets of any size", bytes.value),
                _ => format!("{packets:.0} packets of {} bytes", result.sizes[0].size),
            };
            let batch = match result.batches.as_slice() {
                [] => "how it admits packets once full could not be seen".into(),
                [only] if only.packets == 1 => {
                    "once full, it takes a packet for each that leaves (an ideal FIFO)".into()
                }
                batches => {
                    let sizes: Vec<String> = batches.iter().map(|b| b.packets.to_string()).collect();
                    let sure = 100.0 * batches[0].confidence;
                    format!("once full, it takes batches of {} packets ({sure:.0} % sure)", sizes.join(", "))
                }
            };
            format!("The buffer holds {limit}; {batch}.")
        }
    }
}
