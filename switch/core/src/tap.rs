// SPDX-License-Identifier: Apache-2.0
//! Copies of received frames for a client that traces: chosen by port and header fields, limited by rate and number.
//!
//! The packet thread never waits for the other end: a frame beyond a limit is lost, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_channel::{Receiver, Sender, bounded};

use crate::port::PortNumber;
use crate::program::{HeaderField, Program, Value};
use crate::state::hash::read;
use crate::state::op::{REGISTERS, Registers};
use crate::throttle::{LINES, Throttle};

/// Frames of a tap that may wait to be explained.
pub const MAX_WAITING: usize = 64;
/// Frames that a tap takes in a second.
pub const MAX_FRAMES_PER_SECOND: u32 = LINES;

/// Short names of fields that are no beginning of the long ones.
const SHORT_NAMES: [(&str, &str); 2] = [("sport", "srcport"), ("dport", "dstport")];

/// Frames of a port, or of all, whose headers have these values.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    port: Option<PortNumber>,
    conditions: Vec<(HeaderField, Value)>,
}

impl Filter {
    /// `conditions`: names such as `ipv4.dst_addr`, or short ones such as `ipv4.dst`, and values. The error lists the
    /// names that there are.
    pub fn new(program: &Program, port: Option<PortNumber>, conditions: &[(String, Value)]) -> Result<Filter, String> {
        if conditions.is_empty() {
            return Ok(Filter { port, conditions: Vec::new() });
        }
        let fields = program.header_fields().map_err(|e| e.to_string())?;
        let condition = |(name, value): &(String, Value)| {
            let field = find(&fields, name)?;
            match value.bits() > u32::from(field.place.width) {
                true => Err(format!("{name}={value:#x} does not fit in {} bits", field.place.width)),
                false => Ok((field.clone(), value.clone())),
            }
        };
        Ok(Filter { port, conditions: conditions.iter().map(condition).collect::<Result<_, _>>()? })
    }

    /// Returns true if headers decide about a frame of this port.
    fn reads_headers(&self, port: PortNumber) -> bool {
        !self.conditions.is_empty() && self.is_of(port)
    }

    fn is_of(&self, port: PortNumber) -> bool {
        self.port.is_none_or(|wanted| wanted == port)
    }

    /// `regs`: as the parser left them.
    fn matches(&self, port: PortNumber, regs: &Registers) -> bool {
        self.is_of(port)
            && self
                .conditions
                .iter()
                .all(|(field, value)| regs[field.valid as usize % REGISTERS] != 0 && read(field.place, regs) == *value)
    }
}

/// Lower case without `_`: `dstAddr` is `dst_addr`.
fn plain(name: &str) -> String {
    name.chars().filter(|&c| c != '_').flat_map(char::to_lowercase).collect()
}

fn find<'a>(fields: &'a [HeaderField], name: &str) -> Result<&'a HeaderField, String> {
    let (header, short) = name.strip_prefix("hdr.").unwrap_or(name).rsplit_once('.').unwrap_or((name, ""));
    let own: Vec<&HeaderField> = fields.iter().filter(|field| field.header == header).collect();
    if own.is_empty() {
        let mut headers: Vec<&str> = fields.iter().map(|field| &*field.header).collect();
        headers.dedup();
        return Err(format!("there is no header `{header}`: the program has {}", headers.join(", ")));
    }
    let wanted = plain(short);
    let wanted = SHORT_NAMES.iter().find(|(short, _)| *short == wanted).map_or(&*wanted, |(_, long)| long);
    if let Some(field) = own.iter().find(|field| plain(&field.name) == wanted) {
        return Ok(field);
    }
    let begin: Vec<_> =
        own.iter().filter(|field| !wanted.is_empty() && plain(&field.name).starts_with(wanted)).collect();
    match begin[..] {
        [field] => Ok(field),
        _ => {
            let names = own.iter().map(|field| &*field.name).collect::<Vec<_>>().join(", ");
            Err(format!("`{header}` has no field `{short}`: it has {names}"))
        }
    }
}

/// A frame as a port received it.
#[derive(Clone, Debug)]
pub struct TappedFrame {
    pub port: PortNumber,
    /// ns since the start of the switch.
    pub time: u64,
    pub frame: Vec<u8>,
}

/// The packet thread's end; it is removed once the other end is gone.
pub struct Tap {
    filter: Filter,
    frames: Sender<TappedFrame>,
    lost: Arc<AtomicU64>,
    throttle: Throttle,
}

/// The client's end. Closed when the program is replaced, or the switch ends.
pub struct Tapped {
    pub frames: Receiver<TappedFrame>,
    lost: Arc<AtomicU64>,
}

impl Tapped {
    /// Returns the frames since the last call that were chosen and exceeded a limit.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Relaxed)
    }
}

impl Tap {
    pub fn new(filter: Filter) -> (Tap, Tapped) {
        let (frames, tapped) = bounded(MAX_WAITING);
        let lost = Arc::<AtomicU64>::default();
        (Tap { filter, frames, lost: lost.clone(), throttle: Throttle::default() }, Tapped { frames: tapped, lost })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.frames.is_closed()
    }

    pub(crate) fn reads_headers(&self, port: PortNumber) -> bool {
        self.filter.reads_headers(port)
    }

    /// Takes a frame that the filter chooses. `regs`: see [`Tap::reads_headers`].
    pub(crate) fn offer(&mut self, port: PortNumber, frame: &[u8], time: u64, regs: &Registers) {
        if !self.filter.matches(port, regs) {
            return;
        }
        let passes = self.throttle.pass(time).is_some() && !self.frames.is_full();
        if !passes || self.frames.try_send(TappedFrame { port, time, frame: frame.to_vec() }).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn ap() -> Program {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4src/compiled/ap.json");
        let json = std::fs::read(path).unwrap();
        let mut program = Program::load(&json).unwrap();
        program.source = Bytes::from(json);
        program
    }

    #[test]
    fn field_is_found_by_its_name_and_by_a_short_one() {
        let fields = ap().header_fields().unwrap();
        for (name, header, field) in [
            ("ipv4.dst_addr", "ipv4", "dst_addr"),
            ("hdr.ipv4.dstAddr", "ipv4", "dst_addr"),
            ("ipv4.dst", "ipv4", "dst_addr"),
            ("tcp.dport", "tcp", "dst_port"),
            ("udp.sport", "udp", "src_port"),
            ("ipv4.proto", "ipv4", "protocol"),
        ] {
            let found = find(&fields, name).unwrap();
            assert_eq!((&*found.header, &*found.name), (header, field), "{name}");
        }
    }

    #[test]
    fn field_that_does_not_exist_lists_those_that_do() {
        let program = ap();
        let error = |name: &str, value: u64| Filter::new(&program, None, &[(name.into(), value.into())]).unwrap_err();
        for (name, words) in [
            ("ipv5.dst", "there is no header `ipv5`: the program has packet_out, packet_in, ethernet, "),
            ("ipv4", "`ipv4` has no field ``: it has version, ihl, dscp, "),
            ("ipv4.color", "`ipv4` has no field `color`: it has version, ihl, dscp, "),
            ("tcp.s", "`tcp` has no field `s`: it has src_port, dst_port, sequence, "),
        ] {
            assert!(error(name, 1).contains(words), "{name}: {}", error(name, 1));
        }
        assert_eq!(error("tcp.dport", 65536), "tcp.dport=0x10000 does not fit in 16 bits");
        let unknown = Program { source: Bytes::new(), ..program };
        assert!(Filter::new(&unknown, None, &[("ipv4.dst".into(), 1u64.into())]).unwrap_err().contains("not kept"));
    }

    #[test]
    fn tap_beyond_its_rate_or_its_queue_loses_frames_and_counts_them() {
        let regs = [0; REGISTERS];
        let (mut tap, tapped) = Tap::new(Filter { port: Some(1), conditions: Vec::new() });
        let mut offer = |number: u64, time| (0..number).for_each(|_| tap.offer(1, &[0; 60], time, &regs));
        offer(MAX_WAITING as u64 + 5, 0);
        assert_eq!((tapped.frames.len(), tapped.take_lost(), tapped.take_lost()), (MAX_WAITING, 5, 0));
        while tapped.frames.try_recv().is_ok() {}
        let rest = u64::from(MAX_FRAMES_PER_SECOND) - MAX_WAITING as u64 - 5;
        offer(rest + 7, 999_999_999);
        assert_eq!((tapped.frames.len() as u64, tapped.take_lost()), (rest, 7));
        tap.offer(2, &[0; 60], 1_000_000_000, &regs);
        assert_eq!((tapped.frames.len() as u64, tapped.take_lost()), (rest, 0), "of another port");
    }
}
