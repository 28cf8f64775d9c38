// SPDX-License-Identifier: Apache-2.0
//! CWND control by the RTT ratio (paper 002): a middleware that bounds this terminal's congestion windows when ACKs queue up
//! at the access point. Congestion controls stay what they are.

pub mod announce;
mod bounds;
mod broadcast;
pub mod calibrate;
mod daemon;
pub mod model;
pub mod sockets;
pub mod status;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use self::calibrate::{Fit, Measured};
use self::model::Capacity;
use hosts_base::output::Format;
use hosts_base::{About, Error};

#[derive(Subcommand)]
pub enum Command {
    /// Run the middleware of this terminal on one interface, until it is interrupted
    Run(RunOptions),
    /// Show the state of the running middleware
    Status {
        /// Show only this interface
        #[arg(long)]
        interface: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// Fit BW_max and the exponent of f(n) to plain throughput
    Calibrate(CalibrateOptions),
}

#[derive(Args)]
pub struct RunOptions {
    /// Interface to the access point
    #[arg(long)]
    interface: String,
    /// File with the key that all terminals share, at least 16 bytes; for its owner's eyes only
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// BW_max: the highest throughput of this access point, Mb/s
    #[arg(long, value_name = "MBIT", required_unless_present_any = ["calibration", "observe"])]
    bandwidth: Option<f64>,
    /// f(n) = n^EXPONENT: fall of the total throughput with the number of terminals
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    exponent: f64,
    /// Take both from the output of `hosts cwnd calibrate --json`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bandwidth", "exponent"])]
    calibration: Option<PathBuf>,
    /// Announce, count and read, but bound nothing: for plain measurements
    #[arg(long, conflicts_with_all = ["bandwidth", "exponent", "calibration"])]
    observe: bool,
    /// UDP port of the announcements
    #[arg(long, default_value_t = 24530)]
    port: u16,
}

#[derive(Args)]
pub struct CalibrateOptions {
    /// JSON list of measurements without control: [{"terminals": 1, "mbit_per_s": 19.0}, ...]
    #[arg(long, value_name = "FILE", required_unless_present = "interface", conflicts_with = "interface")]
    measured: Option<PathBuf>,
    /// Measure live: every terminal runs `hosts cwnd run --observe`, and one after another they begin to send
    #[arg(long)]
    interface: Option<String>,
    /// Seconds of the live measurement
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    #[command(flatten)]
    format: Format,
}

pub fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Run(options) => run_daemon(options),
        Command::Status { interface, format } => show_status(interface, format),
        Command::Calibrate(options) => run_calibrate(&options),
    }
}

fn run_daemon(options: RunOptions) -> Result<(), Error> {
    let key = announce::Key::new(&hosts_base::key::read(&options.key_file)?);
    let capacity = match (&options.calibration, options.bandwidth) {
        (Some(path), _) => Some(read_json(path)?),
        (None, Some(mbit_per_s)) => Some(Capacity { mbit_per_s, exponent: options.exponent }),
        (None, None) => None,
    };
    if let Some(Capacity { mbit_per_s, exponent }) = capacity {
        if !(mbit_per_s > 0.0 && mbit_per_s.is_finite()) {
            return Err(Error::new(format!("bandwidth {mbit_per_s}: it must be above 0 Mb/s")));
        }
        if !(-10.0..=0.0).contains(&exponent) {
            return Err(Error::new(format!("exponent {exponent}: throughput falls with n, so it is -10 to 0")));
        }
    }
    daemon::run(daemon::Settings { interface: options.interface, port: options.port, key, capacity })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let file = File::open(path).about(path.display())?;
    serde_json::from_reader(std::io::BufReader::new(file)).about(path.display())
}

fn show_status(interface: Option<String>, format: Format) -> Result<(), Error> {
    let all = status::ask(interface.as_deref())?;
    if all.is_empty() {
        return Err(Error::new("no middleware runs here: start it with `hosts cwnd run`"));
    }
    status::print(format, &all);
    Ok(())
}

fn run_calibrate(options: &CalibrateOptions) -> Result<(), Error> {
    let measured: Vec<Measured> = match (&options.measured, &options.interface) {
        (Some(path), _) => read_json(path)?,
        (None, Some(interface)) => measure(interface, options.seconds)?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let fit = calibrate::fit(&measured)?;
    options.format.print(&[fit], &["BW_max Mb/s", "exponent", "points", "worst deviation"], |fit: &Fit| {
        vec![
            format!("{:.3}", fit.capacity.mbit_per_s),
            format!("{:.3}", fit.capacity.exponent),
            fit.points.to_string(),
            format!("{:.1} %", fit.worst * 100.0),
        ]
    });
    Ok(())
}

/// Sample the middleware on an interface every half second. Errors: it does not run, or it bounds windows.
fn measure(interface: &str, seconds: u32) -> Result<Vec<Measured>, Error> {
    /// Minimum samples of a number of terminals: two seconds in which it was the same.
    const ENOUGH: usize = 4;
    let mut samples = Vec::new();
    for _ in 0..seconds * 2 {
        std::thread::sleep(Duration::from_millis(500));
        let mut found = status::ask(Some(interface))?;
        let status = found
            .pop()
            .ok_or_else(|| Error::new(format!("no middleware runs on {interface}: `hosts cwnd run --observe`")))?;
        if status.capacity.is_some() {
            return Err(Error::new(format!("the middleware on {interface} controls: run it with --observe")));
        }
        samples.push(Measured { terminals: status.sending, mbit_per_s: status.kbit_per_s as f64 / 1e3 });
    }
    Ok(calibrate::settle(&samples, ENOUGH))
}
