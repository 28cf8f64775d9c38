// SPDX-License-Identifier: Apache-2.0
//! `apswitch explain`: what a program does to the packets of a file, explained step by step.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apswitch_core::state::Shared;
use apswitch_core::store::Store;
use apswitch_dataplane::control::{DigestConfig, DigestId, PortNumber, Program, Update};
use apswitch_dataplane::port::read_pcap;
use apswitch_reference::packet_trace::Event;
use apswitch_reference::{Reference, Setup};
use clap::Args;
use serde::Serialize;

use crate::entries;

const AFTER_HELP: &str = "\
Without --entries the tables hold what the program itself puts there. The file is that of the P4 tutorials:
  {\"table_entries\": [{\"table\": \"MyIngress.ipv4_lpm\", \"match\": {\"hdr.ipv4.dstAddr\": [\"10.0.1.1\", 32]},
                      \"action_name\": \"MyIngress.forward\", \"action_params\": {\"port\": 2}}],
   \"multicast_group_entries\": [{\"multicast_group_id\": 1, \"replicas\": [{\"egress_port\": 1, \"instance\": 1}]}],
   \"clone_session_entries\": [{\"clone_session_id\": 5, \"replicas\": [{\"egress_port\": 510, \"instance\": 1}]}]}
A match is a value for exact, [value, prefix length] for lpm, [value, mask] for ternary, [low, high] for range fields;
what is left out matches everything. Entries of a table with ternary, range or optional fields need a \"priority\", the
larger wins. \"default_action\": true sets the default.";

/// Every port exists, none has a queue. Registers, counters and meters live from packet to packet.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Options {
    /// Program (BMv2 JSON as p4c-bm2-ss writes it)
    #[arg(value_name = "FILE.json")]
    program: PathBuf,

    /// Packets (pcap)
    #[arg(value_name = "FILE.pcap")]
    packets: PathBuf,

    /// Entries that the controller has written
    #[arg(long, value_name = "FILE.json")]
    entries: Option<PathBuf>,

    /// The port that the packets come from
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..511))]
    port: PortNumber,

    /// Port number of packet-in and packet-out
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(0..511))]
    cpu_port: Option<PortNumber>,

    /// Print only this packet, counted from 1; those before it are processed silently
    #[arg(long, value_name = "N")]
    packet: Option<u64>,

    /// One JSON object for each packet instead of words
    #[arg(long)]
    json: bool,
}

/// A packet and its steps; shown in words.
#[derive(Serialize)]
pub struct ExplainedPacket {
    /// Counted from 1.
    pub packet: u64,
    /// ns since the Unix epoch, of a packet that a running switch received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<i64>,
    pub events: Vec<Event>,
}

impl ExplainedPacket {
    /// Returns the words, or an object of JSON in one line; both with the end of the line.
    pub fn render(&self, json: bool) -> String {
        match json {
            true => serde_json::to_string(self).expect("events have names as keys") + "\n",
            false => format!("{self}\n"),
        }
    }
}

impl fmt::Display for ExplainedPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packet {}: ", self.packet)?;
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

pub fn run(options: &Options) -> Result<(), String> {
    let place = options.program.display();
    let json = read(&options.program)?;
    let program = Arc::new(Program::load(&json).map_err(|e| format!("{place}: {e}"))?);
    let setup = Setup { ports: (0..511).collect(), cpu_port: options.cpu_port, queues: 8, seed: 1 };
    let mut reference = Reference::load(&json, setup).map_err(|e| format!("{place}: {e}"))?;
    let shared = Arc::new(Shared::new(&program));
    let (mut store, mut changes) = Store::new(program.clone(), shared).map_err(|e| format!("{place}: {e}"))?;
    let mut updates = match &options.entries {
        Some(path) => entries::parse(&read(path)?, &program).map_err(|e| format!("{}: {e}", path.display()))?,
        None => Vec::new(),
    };
    // Somebody listens.
    updates.extend((0..program.digests.len()).map(|digest| {
        let what = Update::SetDigest { digest: DigestId(digest), config: Some(DigestConfig { ack_timeout_ns: 0 }) };
        (format!("digest {digest}"), what)
    }));
    for (what, update) in updates {
        store.update(update, 0, &mut changes).map_err(|e| format!("{what}: {e}"))?;
    }
    reference.sync(&store, 0);
    reference.start_trace();

    let records = read_pcap(&options.packets)?;
    let count = records.len() as u64;
    if let Some(wanted) = options.packet.filter(|wanted| !(1..=count).contains(wanted)) {
        return Err(format!("--packet {wanted}: {} holds {count} packets", options.packets.display()));
    }
    let first = records.first().map_or(0, |record| record.time);
    let mut out = io::stdout().lock();
    for (packet, record) in (1..).zip(records) {
        reference.receive(options.port, &record.frame, record.time.saturating_sub(first));
        let explained = ExplainedPacket { packet, time_ns: None, events: reference.take_trace() };
        if options.packet.is_some_and(|wanted| wanted != packet) {
            continue;
        }
        match out.write_all(explained.render(options.json).as_bytes()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(|e| e.to_string())?,
        }
    }
    Ok(())
}
