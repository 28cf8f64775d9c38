// SPDX-License-Identifier: Apache-2.0
//! Congestion controls as BPF struct_ops: load, inspect and set them.
//!
//! The controls are `bpf/{vegas,vegas_fair,westwood,reno_maxwin,tcp_av}.bpf.c`; the papers' sections stand there and in
//! [`controls`].

pub mod controls;
pub mod load;
pub mod loaded;
pub mod record;
pub mod status;
pub mod targets;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use controls::{Control, Settings};
use hosts_base::Error;
use hosts_base::output::Format;

#[derive(Subcommand)]
pub enum Command {
    /// List the congestion controls, whether they are loaded, and their options
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Load a congestion control; it stays until `unload`, also after this command
    Load {
        #[command(flatten)]
        control: ControlArgs,
        #[command(flatten)]
        pins: Pins,
    },
    /// Load a congestion control for as long as this command runs
    Run {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Change options of a loaded congestion control; sockets use them at once
    Set {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Unload a congestion control; sockets that use it keep it until they close
    Unload {
        /// One of `hosts cc list`
        name: String,
        #[command(flatten)]
        pins: Pins,
    },
    /// Show this network namespace's sockets that use one of these congestion controls, and their state
    Status {
        #[command(flatten)]
        format: Format,
    },
    /// Show, set or remove target rates of tcp_av
    Target {
        /// Rate of payload, such as 5mbit or 633kbit; `none` removes the target; nothing: show all
        #[arg(requires = "selector")]
        rate: Option<String>,
        #[command(flatten)]
        selector: Option<TargetArgs>,
        #[command(flatten)]
        format: Format,
    },
    /// Load a congestion control for as long as this command runs, and record its callbacks, an event a line in JSON
    Record {
        #[command(flatten)]
        control: ControlArgs,
        /// End after this many seconds
        #[arg(long)]
        seconds: Option<f64>,
    },
}

#[derive(clap::Args)]
pub struct ControlArgs {
    /// One of `hosts cc list`
    name: String,
    /// Options of the control, such as alpha=2 beta=4; `hosts cc list` shows all of them
    #[arg(value_name = "OPTION=VALUE")]
    options: Vec<String>,
}

impl ControlArgs {
    fn parse(&self) -> Result<(&'static Control, Settings), Error> {
        let control = controls::find(&self.name)?;
        Ok((control, control.parse(&self.options)?))
    }
}

#[derive(clap::Args)]
pub struct Pins {
    /// BPF file system for the pins of loaded controls
    #[arg(long, default_value = "/sys/fs/bpf")]
    bpffs: PathBuf,
}

#[derive(clap::Args)]
#[group(id = "selector", multiple = false)]
pub struct TargetArgs {
    /// Sockets connected to this address or network, such as 10.0.0.7 or 10.0.0.0/24; the longest prefix counts
    #[arg(long, value_name = "NETWORK")]
    to: Option<String>,
    /// Socket with this cookie (`hosts cc status`, `ss -e`, SO_COOKIE); it takes precedence over --to
    #[arg(long, value_name = "COOKIE")]
    socket: Option<u64>,
}

/// Run one subcommand. Errors name the missing kernel feature, right or option.
pub fn run(command: Command) -> Result<(), Error> {
    libbpf_rs::set_print(None); // its errors come back as values
    match command {
        Command::List { format } => {
            status::list(format);
            Ok(())
        }
        Command::Load { control, pins } => {
            let (control, settings) = control.parse()?;
            load::load(control, &settings, &pins.bpffs)
        }
        Command::Run { control } => {
            let (control, settings) = control.parse()?;
            load::run(control, &settings)
        }
        Command::Set { control } => {
            let (control, settings) = control.parse()?;
            if settings.is_empty() {
                return Err(Error::new(format!("nothing to set: {}", control.usage())));
            }
            loaded::expect(control)?.set(&settings)
        }
        Command::Unload { name, pins } => load::unload(controls::find(&name)?, &pins.bpffs),
        Command::Status { format } => status::status(format),
        Command::Target { rate: None, format, .. } => targets::show(format),
        Command::Target { rate: Some(rate), selector, .. } => {
            let selector = selector.expect("clap demands it with a rate");
            let selector = targets::TargetSelector::parse(selector.to.as_deref(), selector.socket)?;
            targets::change(selector, targets::parse_rate(&rate)?)
        }
        Command::Record { control, seconds } => {
            let (control, settings) = control.parse()?;
            let limit = seconds.map(Duration::try_from_secs_f64).transpose();
            let limit = limit.map_err(|_| Error::new("--seconds must be a length of time: 0 or more"))?;
            record::record(control, &settings, limit)
        }
    }
}
