// SPDX-License-Identifier: Apache-2.0
//! Command line options: those of simple_switch_grpc that have a meaning here; what the device is made of is in
//! `apswitch_dataplane::device`.

use std::ffi::OsString;
use std::path::PathBuf;

use apswitch_dataplane::device::DeviceOptions;
use apswitch_dataplane::peer::Allowed;
use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tracing_subscriber::filter::LevelFilter;

use crate::explain;
use crate::server::Tls;
use crate::trace;

const AFTER_HELP: &str = "\
Options may be before or after `--`, where simple_switch_grpc wants its target's.

Link model, one --link for each port that has one; a port without one sends at once and has no queue:
  PORT:rate=1mbit        bit/s over all queues (bit, kbit, mbit, gbit); unlimited if missing
       burst=0           bytes that may leave at once beyond the rate after a pause
       trace=FILE        in place of a rate: when packets can be delivered, as Mahimahi records it, over and over: a
                         time in ms on each line, each for 1514 bytes
       limit=1000        packets in all queues of the port; what would leave last is dropped
       limit-bytes=N     bytes in all queues of the port; unlimited if missing
       delay=2ms         propagation delay (us, ms, s)
       jitter=0ms        added to the delay, uniform from 0 to this; packets keep their order
       loss=0.0          probability that a frame is lost
       overhead=0        bytes that a frame takes on the wire beyond its own
Queues are standard_metadata.priority, 7 is served first. Repeat --queue for each queue that needs more than strict priority:
  PORT/QUEUE:weight=1    no strict priority, but a share, by weight, of what the queues with strict priority leave
       limit=N           packets, in addition to the port's limit; unlimited if missing, as are the others
       limit-bytes=N     bytes, in addition to the port's limit
       rate=1mbit        bit/s that the queue takes at most
       burst=0           bytes that it may send at once beyond its rate after a pause
Lanes are parts of queue 0 that share by weight; a program chooses them, with weight and rate, by its metadata.

Example: two interfaces, an uplink of 1 Mbit/s with 1000 packets of buffer behind port 2
  apswitch -i 1@veth1 -i 2@veth2 --link 2:rate=1mbit,limit=1000 --no-p4 -- --cpu-port 510";

/// A software switch that runs P4 programs compiled for v1model (BMv2 JSON) and speaks P4Runtime.
#[derive(Parser)]
#[command(name = "apswitch", version, after_help = AFTER_HELP, group(ArgGroup::new("start").required(true)))]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Program to start with (BMv2 JSON as p4c-bm2-ss writes it)
    #[arg(value_name = "FILE.json", group = "start")]
    pub program: Option<PathBuf>,

    /// Start without a program and wait for a controller's
    #[arg(long, group = "start")]
    pub no_p4: bool,

    #[command(flatten)]
    pub device: DeviceOptions,

    /// Address that the P4Runtime server listens on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9559")]
    pub grpc_server_addr: String,

    /// Certificate of the P4Runtime server (PEM): TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Authority of the clients' certificates (PEM): mutual TLS, without which every client is let in
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,

    /// Rights of clients whose certificate has the name (CN, or DNS, e-mail or URI among the alternative names): read,
    /// default-role, role:NAME, any-role, gnmi-set, or nothing; `*` is every certificate's name. Repeated; without it
    /// every client may do everything
    #[arg(long, value_name = "NAME=RIGHT[,RIGHT...]", requires = "tls_client_ca")]
    pub allow: Vec<Allowed>,

    /// Listen also beyond loopback without TLS
    #[arg(long, conflicts_with = "tls_cert")]
    pub insecure: bool,

    /// Write the log to this file instead of standard error
    #[arg(long, value_name = "FILE", conflicts_with = "log_console")]
    pub log_file: Option<PathBuf>,

    /// Write the log to standard error, as is the default
    #[arg(long)]
    pub log_console: bool,

    #[arg(short = 'L', long, value_enum, default_value = "info")]
    pub log_level: LogLevel,

    /// Log in lines of text, or of JSON with time, level, message and fields
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,

    /// Ports are files: each receives IFACE_in.pcap, SECONDS after the start, when a program runs, and sends to
    /// IFACE_out.pcap
    #[arg(long, value_name = "SECONDS")]
    pub use_files: Option<u64>,

    /// Write what each port carries to IFACE_in.pcap and IFACE_out.pcap in this directory
    #[arg(long, value_name = "DIR")]
    pub pcap: Option<PathBuf>,

    /// Serve BMv2's runtime interface (Thrift, as simple_switch_CLI speaks it) at this port of loopback: every user of
    /// this machine controls the switch by it
    #[arg(long, value_name = "PORT", conflicts_with = "tls_cert")]
    pub thrift_port: Option<u16>,

    /// Ignored; accepted for compatibility with simple_switch_grpc scripts
    #[arg(long, value_name = "ADDRESS")]
    pub nanolog: Option<String>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Explain a packet's path through a program
    Explain(explain::Options),

    /// Explain packets of a running switch as they come
    Trace(trace::Options),

    /// Print what a shell completes after `apswitch`
    Completions {
        #[arg(value_enum)]
        shell: Shell,
    },

    /// Print a manual page, for man(1)
    Man {
        /// Manual page of this subcommand
        #[arg(value_name = "SUBCOMMAND")]
        page: Option<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Off,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> LevelFilter {
        match level {
            LogLevel::Trace => LevelFilter::TRACE,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Off => LevelFilter::OFF,
        }
    }
}

impl Options {
    pub fn tls(&self) -> Option<Tls> {
        let (cert, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(Tls { cert, key, client_ca: self.tls_client_ca.clone() })
    }
}

/// The arguments without the first `--`.
pub fn without_separator(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--") {
        arguments.remove(at);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use apswitch_dataplane::control::{LinkConfig, QueueConfig};

    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let arguments = line.split_whitespace().map(OsString::from);
        Options::try_parse_from(without_separator(arguments)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_line_as_for_simple_switch_grpc_with_links_on_both_sides() {
        let line = "apswitch --device-id 7 -i 1@a -i 2@b --no-p4 --thrift-port 9090 --log-level warn \
                    --link 1:delay=1.5ms -- --grpc-server-addr 0.0.0.0:50051 --cpu-port 510 --priority-queues 8 \
                    --link 2:rate=600kbit,burst=3000,limit=50,limit-bytes=70000,delay=2ms,jitter=10us,loss=0.01,overhead=24";
        let options = parse(line).unwrap();
        let device = &options.device;
        assert_eq!((device.device_id, device.cpu_port, device.priority_queues), (7, Some(510), 8));
        assert_eq!(options.grpc_server_addr, "0.0.0.0:50051");
        let ports = device.ports().unwrap();
        assert_eq!(ports[0].link, Some(LinkConfig { delay_ns: 1_500_000, ..Default::default() }));
        let second = LinkConfig {
            rate: Some(600_000),
            burst: 3000,
            trace: None,
            limit_packets: 50,
            limit_bytes: Some(70_000),
            delay_ns: 2_000_000,
            jitter_ns: 10_000,
            loss: 0.01,
            overhead: 24,
            queues: Default::default(),
        };
        assert_eq!((ports[1].number, &ports[1].interface[..], ports[1].link.clone()), (2, "b", Some(second)));
    }

    #[test]
    fn queues_have_weights_limits_and_rates() {
        let line = "apswitch --no-p4 -i 1@a -i 2@b --link 2:rate=1mbit --queue 2/3:weight=4,limit=10 \
                    --queue 1/0:limit-bytes=9000,rate=64kbit,burst=1514";
        let ports = parse(line).unwrap().device.ports().unwrap();
        let queue = |port: usize, queue: usize| ports[port].link.clone().unwrap().queues[queue].clone();
        let weighted = QueueConfig { weight: Some(4), limit_packets: Some(10), ..Default::default() };
        assert_eq!((queue(1, 3), queue(1, 2)), (weighted, QueueConfig::default()));
        let limited = QueueConfig { limit_bytes: Some(9000), rate: Some(64_000), burst: 1514, ..Default::default() };
        assert_eq!(queue(0, 0), limited);
        assert_eq!(ports[1].link.as_ref().unwrap().rate, Some(1_000_000));
    }

    #[test]
    fn bad_input_is_named_with_its_mend() {
        for (line, message) in [
            ("apswitch", "--no-p4"),
            ("apswitch --no-p4 a.json", "cannot be used with"),
            ("apswitch --no-p4 -i veth0", "PORT@INTERFACE"),
            ("apswitch --no-p4 -i 511@veth0", "from 0 to 510"),
            ("apswitch --no-p4 --link 1:rate=5", "such as 600kbit"),
            ("apswitch --no-p4 --link 1:rate=0bit", "such as 600kbit"),
            ("apswitch --no-p4 --link 1:delay=61s", "at most 60 s"),
            ("apswitch --no-p4 --link 1:loss=1.5", "from 0 to 1"),
            ("apswitch --no-p4 --link 1:speed=1", "no setting of a link"),
            ("apswitch --no-p4 --link 1:trace=/nowhere", "/nowhere: No such file"),
            ("apswitch --no-p4 --link rate=1mbit", "PORT:KEY=VALUE"),
            ("apswitch --no-p4 --link 1:burst=1500", "burst: give a rate too"),
            ("apswitch --no-p4 --queue 1:weight=2", "PORT/QUEUE:KEY=VALUE"),
            ("apswitch --no-p4 --queue 1/2:weight=0", "weight from 1 to 10000"),
            ("apswitch --no-p4 --queue 1/2:delay=1ms", "no setting of a queue"),
            ("apswitch --no-p4 --queue 1/x:weight=1", "`x` is not a whole number"),
            ("apswitch --no-p4 --priority-queues 9", "from 1 to 8"),
            ("apswitch --no-p4 --tls-cert a.pem", "--tls-key"),
            ("apswitch --no-p4 --tls-client-ca a.pem", "--tls-cert"),
            ("apswitch --no-p4 --tls-cert a.pem --tls-key a.key --insecure", "cannot be used with"),
            ("apswitch --no-p4 --allow ap=read", "--tls-client-ca"),
            ("apswitch --no-p4 --tls-cert a --tls-key b --tls-client-ca c --allow ap=write", "`write` is no right"),
        ] {
            let Err(error) = parse(line) else { panic!("accepted: {line}") };
            assert!(error.contains(message), "{line}: {error}");
        }
        for (line, message) in [
            ("apswitch --no-p4 -i 1@a -i 1@b", "port 1 is a already"),
            ("apswitch --no-p4 -i 510@a --cpu-port 510", "CPU port"),
            ("apswitch --no-p4 -i 1@a --link 2:rate=1mbit", "no such port"),
            ("apswitch --no-p4 -i 1@a --link 1:rate=1mbit --link 1:delay=1ms", "given twice"),
            ("apswitch --no-p4 -i 1@a --queue 2/0:weight=1", "--queue 2/0: there is no such port"),
            ("apswitch --no-p4 -i 1@a --queue 1/8:weight=1", "there are 8 queues"),
            ("apswitch --no-p4 -i 1@a --queue 1/0:weight=1 --queue 1/0:limit=1", "given twice"),
        ] {
            let error = parse(line).unwrap().device.ports().unwrap_err();
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
