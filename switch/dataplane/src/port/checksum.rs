// SPDX-License-Identifier: Apache-2.0
//! The checksum that a host has left to its interface (CHECKSUM_PARTIAL, in the kernel's words): a frame that never
//! went through hardware arrives without, and whatever it leaves by does not know.

use std::ops::Range;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// IEEE 802.1Q and 802.1ad.
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const TCP: u8 = 6;
const UDP: u8 = 17;
/// IPv6 headers before another one: hop-by-hop, routing, destination options.
const OPTIONS: [u8; 3] = [0, 43, 60];

/// Puts the checksum into the TCP or UDP header of an Ethernet frame (RFC 9293 section 3.1, RFC 768, RFC 8200 section
/// 8.1). Fragments and anything else stay as they are, as they cannot be completed: `None`.
pub fn complete(frame: &mut [u8]) -> Option<()> {
    let (mut kind, mut at) = (word(frame, 12)?, 14);
    while TAGS.contains(&kind) {
        (kind, at) = (word(frame, at + 2)?, at + 4);
    }
    let (protocol, addresses, segment) = match kind {
        IPV4 => ipv4(frame, at)?,
        IPV6 => ipv6(frame, at)?,
        _ => return None,
    };
    let place = segment.start
        + match protocol {
            TCP => 16,
            UDP => 6,
            _ => return None,
        };
    let length = segment.len() as u64;
    if segment.end > frame.len() || place + 2 > segment.end {
        return None;
    }
    frame[place..place + 2].fill(0);
    let mut sum = sum(&frame[addresses]) + sum(&frame[segment]) + protocol as u64 + length;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // 0 says that there is none.
    let checksum = match !(sum as u16) {
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    };
    frame[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// Protocol, place of the addresses, and of what the datagram carries.
type Datagram = (u8, Range<usize>, Range<usize>);

fn ipv4(frame: &[u8], at: usize) -> Option<Datagram> {
    let header = 4 * (frame.get(at)? & 15) as usize;
    let is_fragment = word(frame, at + 6)? & 0x3fff != 0;
    let end = at + word(frame, at + 2)? as usize;
    let start = at + header;
    (header >= 20 && !is_fragment && start <= end).then_some((*frame.get(at + 9)?, at + 12..at + 20, start..end))
}

fn ipv6(frame: &[u8], at: usize) -> Option<Datagram> {
    let end = at + 40 + word(frame, at + 4)? as usize;
    let (mut next, mut start) = (*frame.get(at + 6)?, at + 40);
    while OPTIONS.contains(&next) {
        let length = 8 + 8 * *frame.get(start + 1)? as usize;
        (next, start) = (frame[start], start + length);
    }
    (start <= end).then_some((next, at + 8..at + 40, start..end))
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

/// Sums 16-bit words (RFC 1071), to be folded; an odd byte is the first of its word.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u32::from_be_bytes(*word) as u64).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u32::from_be_bytes(last) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, word by word.
    fn folded(parts: &[&[u8]]) -> u16 {
        let mut sum = 0u32;
        for part in parts {
            sum += part
                .chunks(2)
                .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| low as u32))
                .sum::<u32>();
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn ethernet(tags: usize, kind: u16, datagram: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
        frame.extend(kind.to_be_bytes());
        frame.extend(datagram);
        // Padding is no part of the datagram.
        frame.extend([0xff; 5]);
        frame
    }

    fn ipv4_datagram(protocol: u8, fragment: u16, segment: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0x46, 0, 0, 0, 0, 9, 0, 0, 64, protocol, 1, 2];
        datagram[2..4].copy_from_slice(&(24 + segment.len() as u16).to_be_bytes());
        datagram[6..8].copy_from_slice(&fragment.to_be_bytes());
        datagram.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0]);
        datagram.extend(segment);
        datagram
    }

    fn ipv6_datagram(protocol: u8, segment: &[u8]) -> Vec<u8> {
        let options = [60, 0, 1, 2, 3, 4, 5, 6, protocol, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut datagram = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        datagram[4..6].copy_from_slice(&((options.len() + segment.len()) as u16).to_be_bytes());
        datagram.extend((0..32).map(|byte| byte * 7));
        datagram.extend(options);
        datagram.extend(segment);
        datagram
    }

    #[test]
    fn segments_sum_up_to_all_ones() {
        for length in [20, 21, 22, 23, 1461] {
            // The value before is a part of the sum that does not count.
            let segment: Vec<u8> = (0..length).map(|byte| (byte * 31 + 5) as u8).collect();
            for (protocol, tags) in [(TCP, 0), (UDP, 1), (TCP, 2)] {
                let rest = [0, protocol, 0, 0, (length >> 8) as u8, length as u8];
                let mut frame = ethernet(tags, IPV4, &ipv4_datagram(protocol, 0x4000, &segment));
                let (size, ip) = (frame.len(), 14 + 4 * tags);
                complete(&mut frame).unwrap();
                assert_eq!(folded(&[&frame[ip + 12..ip + 20], &rest, &frame[ip + 24..size - 5]]), 0xffff);
                let mut frame = ethernet(tags, IPV6, &ipv6_datagram(protocol, &segment));
                let size = frame.len();
                complete(&mut frame).unwrap();
                assert_eq!(folded(&[&frame[ip + 8..ip + 40], &rest, &frame[ip + 64..size - 5]]), 0xffff);
            }
        }
    }

    #[test]
    fn what_cannot_be_completed_stays_as_it_is() {
        let whole = ethernet(1, IPV4, &ipv4_datagram(UDP, 0, &[3; 8]));
        let kept = |mut frame: Vec<u8>| {
            let before = frame.clone();
            complete(&mut frame).is_none() && frame == before
        };
        for length in 0..whole.len() - 5 {
            assert!(kept(whole[..length].to_vec()), "{length} bytes");
        }
        let long = ipv6_datagram(TCP, &[0; 15]);
        assert!(kept(ethernet(0, IPV6, &long)), "no room for the checksum");
        for fragment in [0x2000, 1] {
            assert!(kept(ethernet(0, IPV4, &ipv4_datagram(UDP, fragment, &[3; 8]))));
        }
        assert!(kept(ethernet(0, IPV4, &ipv4_datagram(1, 0, &[3; 8]))) && kept(ethernet(0, 0x0806, &[3; 60])));
    }
}
