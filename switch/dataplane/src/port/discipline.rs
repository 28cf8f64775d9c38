// SPDX-License-Identifier: Apache-2.0
//! An interface's queue discipline (tc(8)), read as a link model: frames of a port go past the kernel's queues, so that
//! what `tc` was given for them holds in the switch's own queue.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

use apswitch_core::link::LinkConfig;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};

/// ns of a tick of the packet scheduler (`PSCHED_SHIFT` of 6).
const TICK_NS: u64 = 64;
/// No message of a dump is longer (netlink(7): the kernel takes what the reader has room for, at most this).
const MESSAGE: usize = 32 << 10;
const NLMSG_HEADER: usize = 16;
const TCMSG: usize = 20;
const TC_H_ROOT: u32 = 0xffff_ffff;
/// Disciplines below one another.
const MAX_DEPTH: usize = 8;
/// Packets that a port keeps memory for, however long a queue `tc` allows.
const MAX_PACKETS: u32 = 1 << 14;
/// Bytes of a frame without a payload.
const MIN_FRAME: u32 = 14;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `TCA_TBF_PARMS` and `TCA_HTB_PARMS`.
const PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;
/// Reordering, corruption and loss in bursts, and slots, of netem: the link model has none of them.
const TCA_NETEM_OTHERS: [(u16, &str); 4] = [(3, "reorder"), (4, "corrupt"), (5, "loss"), (12, "slot")];
/// `struct tc_netem_qopt`, after which come attributes.
const NETEM_OPTIONS: usize = 24;

/// The queue discipline at an interface's root.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Discipline {
    /// The kernel's default.
    #[default]
    Default,
    /// One that a link model says.
    Model(String, Box<LinkConfig>),
    /// Another one, in words.
    Other(String),
}

impl Discipline {
    /// Reads that of an interface. Returns the kernel's error.
    pub fn read(interface_index: i32) -> io::Result<Discipline> {
        let disciplines = dump(libc::RTM_GETQDISC, interface_index)?;
        let Some(root) = disciplines.iter().find(|found| found.parent == TC_H_ROOT && found.handle != 0) else {
            return Ok(Discipline::Default);
        };
        let classes = if root.kind == "htb" { dump(libc::RTM_GETTCLASS, interface_index)? } else { Vec::new() };
        Ok(Discipline::from_entries(root, &disciplines, &classes))
    }

    fn from_entries(root: &Entry, disciplines: &[Entry], classes: &[Entry]) -> Discipline {
        let (mut kinds, mut link, mut next) = (String::new(), LinkConfig::default(), Some(root));
        for _ in 0..MAX_DEPTH {
            let Some(found) = next else {
                // Without one of these nothing ever waits.
                let waits = link.rate.is_some() || link.delay_ns + link.jitter_ns > 0 || link.loss > 0.0;
                return if waits { Discipline::Model(kinds, Box::new(link)) } else { Discipline::Default };
            };
            if !kinds.is_empty() {
                kinds.push_str(" with ");
            }
            kinds.push_str(&found.kind);
            let below = match found.take(classes, &mut link) {
                Ok(below) => below,
                Err(Unlike(what)) => {
                    return Discipline::Other(if what.is_empty() { kinds } else { kinds + " " + what });
                }
            };
            next = disciplines.iter().find(|other| other.parent == below && other.handle != found.handle);
        }
        Discipline::Other(kinds)
    }

    /// Returns the link model that it is.
    pub fn model(&self) -> Option<&LinkConfig> {
        match self {
            Discipline::Model(_, link) => Some(link),
            _ => None,
        }
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Discipline::Default => f.write_str("the kernel's default"),
            Discipline::Model(kinds, _) | Discipline::Other(kinds) => f.write_str(kinds),
        }
    }
}

/// Part of a discipline that the link model does not have.
#[derive(Debug)]
struct Unlike(&'static str);

/// Refusal of what the kernel does not tell: it may be anything.
const UNTOLD: Unlike = Unlike("");

/// A discipline or a class.
#[derive(Debug, Default)]
struct Entry {
    kind: String,
    handle: u32,
    parent: u32,
    options: Vec<u8>,
}

impl Entry {
    /// Reads `struct tcmsg` and its attributes.
    fn parse(message: &[u8], interface_index: i32) -> Option<Entry> {
        if u32_at(message, 4)? as i32 != interface_index {
            return None;
        }
        let kind = attribute(message.get(TCMSG..)?, TCA_KIND)?;
        let kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_string();
        let options = attribute(&message[TCMSG..], TCA_OPTIONS).unwrap_or_default().to_vec();
        Some(Entry { kind, handle: u32_at(message, 8)?, parent: u32_at(message, 12)?, options })
    }

    /// Adds it to the link model. Returns the parent of the discipline below it.
    fn take(&self, classes: &[Entry], link: &mut LinkConfig) -> Result<u32, Unlike> {
        let below = self.handle | 1;
        match self.kind.as_str() {
            "htb" => self.take_htb(classes, link),
            "tbf" => {
                let parameters = attribute(&self.options, PARMS).ok_or(UNTOLD)?;
                let rate = Rate::parse(parameters, 0, attribute(&self.options, TCA_TBF_RATE64)).ok_or(UNTOLD)?;
                if u32_at(parameters, 20).ok_or(UNTOLD)? != 0 {
                    return Err(Unlike("with a peak rate"));
                }
                let (limit, buffer) = (u32_at(parameters, 24), u32_at(parameters, 28));
                rate.limit(link, buffer.ok_or(UNTOLD)?);
                let limit = limit.ok_or(UNTOLD)?;
                link.limit_bytes = Some(u64::from(limit));
                link.limit_packets = (limit / MIN_FRAME).clamp(1, MAX_PACKETS);
                Ok(below)
            }
            "netem" => self.take_netem(link).map(|()| below),
            "pfifo" => {
                link.limit_packets = u32_at(&self.options, 0).ok_or(UNTOLD)?.min(MAX_PACKETS);
                Ok(below)
            }
            "bfifo" => {
                link.limit_bytes = Some(u64::from(u32_at(&self.options, 0).ok_or(UNTOLD)?));
                Ok(below)
            }
            _ => Err(UNTOLD),
        }
    }

    /// Takes a single class, of which the root is the parent, as what all packets pass.
    fn take_htb(&self, classes: &[Entry], link: &mut LinkConfig) -> Result<u32, Unlike> {
        let init = attribute(&self.options, TCA_HTB_INIT).ok_or(UNTOLD)?;
        let class = (self.handle & 0xffff_0000) | u32_at(init, 8).ok_or(UNTOLD)?;
        let [only] = classes else { return Err(Unlike("with several classes")) };
        if only.handle != class {
            return Err(Unlike("without a default class"));
        }
        let parameters = attribute(&only.options, PARMS).ok_or(UNTOLD)?;
        let rate = Rate::parse(parameters, 12, attribute(&only.options, TCA_HTB_CEIL64)).ok_or(UNTOLD)?;
        rate.limit(link, u32_at(parameters, 28).ok_or(UNTOLD)?);
        Ok(class)
    }

    fn take_netem(&self, link: &mut LinkConfig) -> Result<(), Unlike> {
        let word = |at| u32_at(&self.options, at).ok_or(UNTOLD);
        let attributes = self.options.get(NETEM_OPTIONS..).ok_or(UNTOLD)?;
        let ns = |at, kind| match attribute(attributes, kind).and_then(|value| u64_at(value, 0)) {
            Some(ns) => Ok(ns),
            None => Ok(u64::from(word(at)?) * TICK_NS),
        };
        let (delay, jitter) = (ns(0, TCA_NETEM_LATENCY64)?, ns(20, TCA_NETEM_JITTER64)?);
        for (kind, name) in TCA_NETEM_OTHERS {
            if attribute(attributes, kind).is_some_and(|value| value.iter().any(|&byte| byte != 0)) {
                return Err(Unlike(name));
            }
        }
        if word(12)? != 0 || word(16)? != 0 {
            return Err(Unlike("gap or duplicate"));
        }
        // netem: from delay - jitter to delay + jitter.
        link.delay_ns += delay.saturating_sub(jitter);
        link.jitter_ns += delay.min(jitter) + jitter;
        link.limit_packets = word(4)?.min(MAX_PACKETS);
        link.loss = f64::from(word(8)?) / f64::from(u32::MAX);
        if let Some(value) = attribute(attributes, TCA_NETEM_RATE) {
            let rate = attribute(attributes, TCA_NETEM_RATE64).and_then(|value| u64_at(value, 0));
            let rate = rate.or_else(|| u32_at(value, 0).map(u64::from)).ok_or(UNTOLD)?;
            if rate > 0 {
                // Signed, in bytes; those of a cell of ATM follow.
                let [overhead, cell] = [u32_at(value, 4).ok_or(UNTOLD)?, u32_at(value, 8).ok_or(UNTOLD)?];
                if overhead.cast_signed() < 0 || cell != 0 {
                    return Err(Unlike("overhead below 0, or cells"));
                }
                link.rate = Some(rate.saturating_mul(8).min(link.rate.unwrap_or(u64::MAX)));
                link.overhead = overhead;
            }
        }
        Ok(())
    }
}

/// Rate of `struct tc_ratespec`.
struct Rate {
    bytes_per_second: u64,
    overhead: u16,
}

impl Rate {
    const MAX: u64 = u64::MAX / 8;

    fn parse(parameters: &[u8], at: usize, long: Option<&[u8]>) -> Option<Rate> {
        let rate = u64::from(u32_at(parameters, at + 8)?);
        let bytes_per_second = long.and_then(|value| u64_at(value, 0)).unwrap_or(rate).clamp(1, Rate::MAX);
        let overhead = u16::from_ne_bytes(parameters.get(at + 2..at + 4)?.try_into().ok()?);
        Some(Rate { bytes_per_second, overhead })
    }

    /// buffer: ticks in which the bucket's bytes pass at the rate.
    fn limit(&self, link: &mut LinkConfig, buffer: u32) {
        link.rate = Some(self.bytes_per_second * 8);
        let burst = u128::from(buffer) * u128::from(TICK_NS) * u128::from(self.bytes_per_second) / 1_000_000_000;
        link.burst = burst.min(u128::from(u32::MAX)) as u32;
        link.overhead = u32::from(self.overhead);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Value of the first attribute of this type (rtnetlink(7)).
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header = u32_at(bytes, 0)?.to_ne_bytes();
        let length = u16::from_ne_bytes([header[0], header[1]]) as usize;
        let kind = u16::from_ne_bytes([header[2], header[3]]) & libc::NLA_TYPE_MASK as u16;
        let value = bytes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

/// Asks the kernel for all disciplines or classes of an interface.
fn dump(request: u16, interface_index: i32) -> io::Result<Vec<Entry>> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    let mut message = [0u8; NLMSG_HEADER + TCMSG];
    message[0..4].copy_from_slice(&((NLMSG_HEADER + TCMSG) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&request.to_ne_bytes());
    message[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    message[NLMSG_HEADER + 4..NLMSG_HEADER + 8].copy_from_slice(&interface_index.to_ne_bytes());
    sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = vec![0u8; MESSAGE];
    let mut entries = Vec::new();
    loop {
        let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let mut bytes = &answer[..length];
        while let Some(length) = u32_at(bytes, 0).map(|length| length as usize) {
            let Some(message) = bytes.get(NLMSG_HEADER..length) else { return Err(io::ErrorKind::InvalidData.into()) };
            match i32::from(u16::from_ne_bytes([bytes[4], bytes[5]])) {
                libc::NLMSG_DONE => return Ok(entries),
                libc::NLMSG_ERROR => {
                    return Err(io::Error::from_raw_os_error(-(u32_at(message, 0).unwrap_or(0) as i32)));
                }
                _ => entries.extend(Entry::parse(message, interface_index)),
            }
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// netem with a rate in bytes/s (`struct tc_netem_rate`).
    fn netem(overhead: i32, cell_size: u32) -> Discipline {
        let mut options = vec![0; NETEM_OPTIONS];
        options[4..8].copy_from_slice(&1000u32.to_ne_bytes());
        options.extend([20, 0, TCA_NETEM_RATE as u8, 0]);
        options.extend([125_000u32.to_ne_bytes(), overhead.to_ne_bytes(), cell_size.to_ne_bytes(), [0; 4]].concat());
        let root = Entry { kind: "netem".into(), handle: 0x1_0000, parent: TC_H_ROOT, options };
        Discipline::from_entries(&root, &[], &[])
    }

    #[test]
    fn a_rate_of_netem_has_an_overhead_that_adds() {
        let link = netem(14, 0).model().cloned().expect("a link model");
        assert_eq!((link.rate, link.overhead, link.limit_packets), (Some(1_000_000), 14, 1000));
        for (overhead, cell_size) in [(-4, 0), (0, 48)] {
            let found = netem(overhead, cell_size);
            assert_eq!(found.to_string(), "netem overhead below 0, or cells", "{overhead} {cell_size}: {found:?}");
        }
    }
}
