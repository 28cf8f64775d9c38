// SPDX-License-Identifier: Apache-2.0
//! libpcap's classic file format: its constants and headers.

use std::fmt::Display;

pub(super) const MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const NANOSECONDS: u32 = 0xa1b2_3c4d;
pub(super) const NEWER_FORMAT: u32 = 0x0a0d_0d0a;
pub(super) const ETHERNET: u32 = 1;
/// Bytes before the first frame, and before each.
pub(super) const FILE_HEADER: usize = 24;
pub(super) const FRAME_HEADER: usize = 16;
/// The longest frame that a file may hold.
pub(super) const MAX_FRAME: usize = 1 << 18;
/// Bytes of the longest frame that is forwarded: a jumbo frame.
pub(super) const MAX_PIPED_FRAME_LEN: usize = 9216;

/// Byte order and time unit of a file.
#[derive(Clone, Copy)]
pub(super) struct Format {
    swapped: bool,
    /// ns.
    unit: u64,
}

impl Format {
    /// Reads the format of the file that begins with these bytes; the error is one line with the fix.
    pub(super) fn of(header: &[u8], name: impl Display) -> Result<Format, String> {
        let magic = word(header, 0, false);
        let (swapped, unit) = match (magic, magic.map(u32::swap_bytes)) {
            (Some(MICROSECONDS), _) => (false, 1000),
            (Some(NANOSECONDS), _) => (false, 1),
            (_, Some(MICROSECONDS)) => (true, 1000),
            (_, Some(NANOSECONDS)) => (true, 1),
            (Some(NEWER_FORMAT), _) => {
                return Err(format!("{name}: is pcapng: convert it with: tcpdump -r {name} -w other.pcap"));
            }
            _ => return Err(format!("{name}: is not a pcap file: write it with tcpdump -w or scapy's wrpcap")),
        };
        if word(header, 20, swapped).map(|kind| kind & 0x0fff_ffff) != Some(ETHERNET) {
            return Err(format!("{name}: holds no Ethernet frames: capture on an Ethernet interface"));
        }
        Ok(Format { swapped, unit })
    }

    /// Time (ns since 1970) and length of a frame whose header these bytes begin with, if it is all there.
    pub(super) fn frame(self, header: &[u8]) -> Option<(u64, usize)> {
        let word = |at| word(header, at, self.swapped);
        let (seconds, fraction, length) = (word(0)?, word(4)?, word(8)?);
        Some((u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit, length as usize))
    }
}

fn word(bytes: &[u8], at: usize, swapped: bool) -> Option<u32> {
    let word = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
    Some(if swapped { word.swap_bytes() } else { word })
}
