// SPDX-License-Identifier: Apache-2.0
//! Trace of a packet, step by step, as data and in words.

use std::fmt;

use num_bigint::{BigInt, Sign};
use serde::Serialize;

/// A name and its value as text.
pub type Named = (String, String);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Received {
        port: u16,
        bytes: usize,
    },
    /// Out of one of the queues of copies and returning packets. `kind`: what it is.
    Continued {
        kind: &'static str,
        port: Option<u16>,
    },
    State {
        name: String,
    },
    Extracted {
        header: String,
        fields: Vec<Named>,
    },
    Advanced {
        bits: u64,
    },
    Selected {
        key: Vec<Named>,
        next: String,
    },
    ParserError {
        error: String,
        state: String,
    },
    Checksum {
        name: String,
        correct: bool,
    },
    Control {
        name: &'static str,
    },
    Condition {
        text: String,
        place: String,
        holds: bool,
    },
    Table {
        name: String,
        place: String,
        key: Vec<Named>,
        entry: Option<String>,
        action: Option<String>,
        params: Vec<Named>,
    },
    /// `text`: as in the source, if the compiler told.
    Step {
        text: String,
        place: String,
        result: Vec<Named>,
    },
    Colour {
        of: String,
        colour: &'static str,
    },
    Digest {
        name: String,
        values: Vec<Named>,
        sent: bool,
    },
    Log {
        text: String,
    },
    ClonedTo {
        session: u32,
        ports: Vec<u16>,
    },
    Multicast {
        group: u32,
        ports: Vec<u16>,
    },
    Resubmitted,
    Recirculated,
    Queued {
        port: u16,
        queue: u64,
    },
    Deparsed {
        headers: Vec<String>,
        payload: usize,
    },
    ChecksumUpdated {
        field: String,
        value: String,
    },
    Sent {
        port: u16,
        bytes: usize,
    },
    PacketIn {
        bytes: usize,
    },
    Dropped {
        why: String,
    },
}

pub fn show(value: &BigInt, width: u32) -> String {
    match u64::try_from(value) {
        Ok(small @ 0..10) => small.to_string(),
        Ok(address) if width == 48 => {
            let bytes = address.to_be_bytes()[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
            bytes.join(":")
        }
        _ if value.sign() == Sign::Minus => value.to_string(),
        _ => format!("{value:#x}"),
    }
}

fn pairs(pairs: &[Named]) -> String {
    pairs.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

fn numbers(ports: &[u16]) -> String {
    match ports {
        [] => "no port".into(),
        [port] => format!("port {port}"),
        _ => format!("ports {}", ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// `(place)`, or nothing.
struct At<'a>(&'a str);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Received { port, bytes } => write!(f, "{bytes} bytes from port {port}"),
            Event::Continued { kind, port: None } => write!(f, "the {kind} packet"),
            Event::Continued { kind, port: Some(port) } => write!(f, "the {kind} copy for port {port}"),
            Event::State { name } => write!(f, "  parser state {name}"),
            Event::Extracted { header, fields } => write!(f, "    {header}: {}", pairs(fields)),
            Event::Advanced { bits } => write!(f, "    skips {bits} bits"),
            Event::Selected { key, next } if key.is_empty() => write!(f, "    goes to {next}"),
            Event::Selected { key, next } => write!(f, "    {}: goes to {next}", pairs(key)),
            Event::ParserError { error, state } => write!(f, "    error {error} in state {state}: parsing ends here"),
            Event::Checksum { name, correct } => {
                write!(f, "  checksum {name} is {}", if *correct { "correct" } else { "wrong" })
            }
            Event::Control { name } => write!(f, "  {name}"),
            Event::Condition { text, place, holds } => {
                write!(f, "    if {text}: {}{}", if *holds { "yes" } else { "no" }, At(place))
            }
            Event::Table { name, place, key, entry, action, params } => {
                write!(f, "    table {name}{}: ", At(place))?;
                if !key.is_empty() {
                    write!(f, "{}: ", pairs(key))?;
                }
                match entry {
                    Some(entry) => write!(f, "hits {entry}: ")?,
                    None if key.is_empty() => {}
                    None => write!(f, "no entry: default ")?,
                }
                match action {
                    Some(action) => write!(f, "{action}({})", pairs(params)),
                    None => write!(f, "no action"),
                }
            }
            Event::Step { text, place, result } if result.is_empty() => write!(f, "      {text}{}", At(place)),
            Event::Step { text, place, result } => write!(f, "      {text}: {}{}", pairs(result), At(place)),
            Event::Colour { of, colour } => write!(f, "      meter {of} is {colour}"),
            Event::Digest { name, values, sent: true } => write!(f, "  digest {name}: {}", pairs(values)),
            Event::Digest { name, .. } => write!(f, "  digest {name} is not sent: no controller has enabled it"),
            Event::Log { text } => write!(f, "      logs: {text}"),
            Event::ClonedTo { session, ports } if ports.is_empty() => {
                write!(f, "  not cloned: session {session} does not exist or has no port")
            }
            Event::ClonedTo { session, ports } => write!(f, "  cloned by session {session} to {}", numbers(ports)),
            Event::Multicast { group, ports } => write!(f, "  multicast group {group}: copies to {}", numbers(ports)),
            Event::Resubmitted => write!(f, "  resubmitted: as it came, to the parser again"),
            Event::Recirculated => write!(f, "  recirculated: as it would leave, to the parser again"),
            Event::Queued { port, queue } => write!(f, "  to port {port}, queue {queue}"),
            Event::Deparsed { headers, payload } => {
                write!(f, "  deparser: {}", headers.join(", "))?;
                write!(f, "{}{payload} bytes of payload", if headers.is_empty() { "" } else { ", " })
            }
            Event::ChecksumUpdated { field, value } => write!(f, "  checksum {field} = {value}"),
            Event::Sent { port, bytes } => write!(f, "  {bytes} bytes leave through port {port}"),
            Event::PacketIn { bytes } => write!(f, "  {bytes} bytes to the controller"),
            Event::Dropped { why } => write!(f, "  dropped: {why}"),
        }
    }
}
