// SPDX-License-Identifier: Apache-2.0
//! Announcements of terminals: their bytes, and their verification. Pure: datagrams and clocks in, neighbours out.
//!
//! A datagram is 58 bytes in network order: `HCW1`, terminal (8), time in microseconds since 1970 (8), kbit/s sent (4),
//! connections that send (2), and HMAC-SHA256 (RFC 2104) by the shared key over all before it (32).

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Interval of a terminal's announcements (paper 002, "CWND-Controlling Middleware").
pub const INTERVAL: Duration = Duration::from_millis(300);
/// Silence after which a terminal is gone: five announcements.
pub const PRESENT: Duration = Duration::from_millis(1500);
/// Maximum difference of two terminals' clocks.
pub const CLOCKS: Duration = Duration::from_secs(10);
/// Time after its last announcement for which a terminal's newest time is kept. Older ones are outside of `CLOCKS` by
/// then, so forgetting a terminal lets no replayed datagram in.
const REMEMBERED: Duration = Duration::from_secs(2 * CLOCKS.as_secs() + 1);
/// Terminals that are kept at the same time, and those of one address: a sender that has the key and takes many names
/// is counted once, and leaves room for others.
pub const TERMINALS: usize = 1024;
const NAMES: usize = 8;
/// Bytes of a datagram.
pub const LENGTH: usize = SIGNED + 32;

const MAGIC: &[u8; 4] = b"HCW1";
const SIGNED: usize = 26;

/// Announcement of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    pub terminal: u64,
    /// Microseconds since 1970; grows with every announcement
    pub time: u64,
    /// Throughput acknowledged by the peers of its uplink connections since the last reading, kbit/s
    pub kbit_per_s: u32,
    /// Uplink connections that send
    pub sending: u16,
}

/// Reason why a datagram was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No announcement
    Malformed,
    /// Authenticated with another key
    Forged,
    /// Time outside of `CLOCKS`: old, or the clocks differ
    Stale,
    /// Older than the newest of this terminal
    Replayed,
    /// Beyond `TERMINALS`, or `NAMES` of one address
    Full,
}

/// Key that all terminals share.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl Key {
    /// Make a key of any bytes; a guessed one lets an attacker shrink all windows.
    pub fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    /// Encode `announcement` and authenticate it (RFC 2104).
    pub fn sign(&self, announcement: &Announcement) -> [u8; LENGTH] {
        let mut datagram = [0; LENGTH];
        datagram[..4].copy_from_slice(MAGIC);
        datagram[4..12].copy_from_slice(&announcement.terminal.to_be_bytes());
        datagram[12..20].copy_from_slice(&announcement.time.to_be_bytes());
        datagram[20..24].copy_from_slice(&announcement.kbit_per_s.to_be_bytes());
        datagram[24..SIGNED].copy_from_slice(&announcement.sending.to_be_bytes());
        let mac = self.0.clone().chain_update(&datagram[..SIGNED]).finalize().into_bytes();
        datagram[SIGNED..].copy_from_slice(&mac);
        datagram
    }

    /// Decode an announcement that was made with this key. Errors: `Malformed`, `Forged`.
    pub fn open(&self, datagram: &[u8]) -> Result<Announcement, Refusal> {
        let datagram: &[u8; LENGTH] = datagram.try_into().map_err(|_| Refusal::Malformed)?;
        if &datagram[..4] != MAGIC {
            return Err(Refusal::Malformed);
        }
        let mac = self.0.clone().chain_update(&datagram[..SIGNED]);
        mac.verify_slice(&datagram[SIGNED..]).map_err(|_| Refusal::Forged)?;
        Ok(Announcement {
            terminal: u64::from_be_bytes(datagram[4..12].try_into().expect("8 bytes")),
            time: u64::from_be_bytes(datagram[12..20].try_into().expect("8 bytes")),
            kbit_per_s: u32::from_be_bytes(datagram[20..24].try_into().expect("4 bytes")),
            sending: u16::from_be_bytes(datagram[24..SIGNED].try_into().expect("2 bytes")),
        })
    }
}

/// Counters of datagrams by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub accepted: u64,
    /// Own announcements, and copies by the other IP version
    pub duplicate: u64,
    pub malformed: u64,
    pub forged: u64,
    pub stale: u64,
    pub replayed: u64,
    pub full: u64,
}

/// Another terminal on the link.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    pub newest: Announcement,
    pub received: Instant,
    /// Source address of its newest announcement
    from: IpAddr,
}

/// Announcements of this terminal and of the others (paper 002, "CWND-Controlling Middleware").
pub struct Neighbours {
    key: Key,
    own: Announcement,
    known: HashMap<u64, Neighbour>,
    pub counters: Counters,
}

impl Neighbours {
    pub fn new(key: Key) -> Self {
        let own = Announcement { terminal: rand::random(), time: 0, kbit_per_s: 0, sending: 0 };
        Self { key, own, known: HashMap::new(), counters: Counters::default() }
    }

    pub fn terminal(&self) -> u64 {
        self.own.terminal
    }

    /// Make the next datagram to send; `wall` in microseconds since 1970. Its time grows even if the clock does not. A
    /// clock that was set far back makes a new terminal of this one, as the others would reject the old one as stale.
    pub fn announce(&mut self, wall: u64, kbit_per_s: u32, sending: u16) -> [u8; LENGTH] {
        if self.own.time > wall.saturating_add(CLOCKS.as_micros() as u64 / 2) {
            self.own = Announcement { terminal: rand::random(), time: 0, ..self.own };
        }
        self.own = Announcement { time: wall.max(self.own.time + 1), kbit_per_s, sending, ..self.own };
        self.key.sign(&self.own)
    }

    /// Count a datagram that came from an address; `wall` in microseconds since 1970. Errors: every `Refusal`; it is
    /// counted as such.
    pub fn receive(&mut self, datagram: &[u8], from: IpAddr, wall: u64, now: Instant) -> Result<(), Refusal> {
        let result = self.check(datagram, from, wall, now);
        let counters = &mut self.counters;
        *match result {
            Ok(true) => &mut counters.accepted,
            Ok(false) => &mut counters.duplicate,
            Err(Refusal::Malformed) => &mut counters.malformed,
            Err(Refusal::Forged) => &mut counters.forged,
            Err(Refusal::Stale) => &mut counters.stale,
            Err(Refusal::Replayed) => &mut counters.replayed,
            Err(Refusal::Full) => &mut counters.full,
        } += 1;
        result.map(|_| ())
    }

    /// Return true for a new announcement, false for a duplicate. Errors: every `Refusal`.
    fn check(&mut self, datagram: &[u8], from: IpAddr, wall: u64, now: Instant) -> Result<bool, Refusal> {
        let announcement = self.key.open(datagram)?;
        if announcement.terminal == self.own.terminal {
            return Ok(false);
        }
        if announcement.time.abs_diff(wall) > CLOCKS.as_micros() as u64 {
            return Err(Refusal::Stale);
        }
        match self.known.get_mut(&announcement.terminal) {
            Some(known) if announcement.time == known.newest.time => Ok(false),
            Some(known) if announcement.time < known.newest.time => Err(Refusal::Replayed),
            Some(known) => {
                *known = Neighbour { newest: announcement, received: now, from };
                Ok(true)
            }
            None => {
                let full = |known: &HashMap<u64, Neighbour>| {
                    known.len() >= TERMINALS || known.values().filter(|known| known.from == from).count() >= NAMES
                };
                if full(&self.known) {
                    self.known.retain(|_, known| now.duration_since(known.received) < REMEMBERED);
                }
                if full(&self.known) {
                    return Err(Refusal::Full);
                }
                self.known.insert(announcement.terminal, Neighbour { newest: announcement, received: now, from });
                Ok(true)
            }
        }
    }

    /// Return the other terminals that are present, by terminal; of those with one address the one that was received
    /// last.
    pub fn present(&self, now: Instant) -> Vec<Neighbour> {
        let recent = |neighbour: &&Neighbour| now.duration_since(neighbour.received) <= PRESENT;
        let mut present: Vec<_> = self.known.values().filter(recent).copied().collect();
        present.sort_unstable_by_key(|neighbour| (std::cmp::Reverse(neighbour.received), neighbour.newest.terminal));
        let mut addresses = HashSet::new();
        present.retain(|neighbour| addresses.insert(neighbour.from));
        present.sort_unstable_by_key(|neighbour| neighbour.newest.terminal);
        present
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WALL: u64 = 1_700_000_000_000_000;
    const SECOND: u64 = 1_000_000;
    const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// Return a terminal's address for tests.
    fn of(terminal: u64) -> IpAddr {
        std::net::Ipv6Addr::from_bits(terminal.into()).into()
    }

    fn neighbours() -> Neighbours {
        Neighbours::new(Key::new(b"a key that all terminals share"))
    }

    fn count(neighbours: &Neighbours, now: Instant) -> usize {
        neighbours.present(now).len()
    }

    #[test]
    fn hmac_is_the_rfcs() {
        // RFC 4231, test case 2, over this module's choice of hash and keying.
        let mac = Key::new(b"Jefe").0.chain_update(b"what do ya want for nothing?").finalize().into_bytes();
        assert_eq!(mac[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
    }

    #[test]
    fn a_neighbour_is_counted_while_it_announces() {
        let (mut a, mut b, now) = (neighbours(), neighbours(), Instant::now());
        assert_eq!(a.receive(&b.announce(WALL, 700, 2), FROM, WALL, now), Ok(()));
        let present = a.present(now)[0].newest;
        assert_eq!((present.terminal, present.kbit_per_s, present.sending), (b.terminal(), 700, 2));
        assert_eq!(count(&a, now + PRESENT), 1);
        assert_eq!(count(&a, now + PRESENT + Duration::from_millis(1)), 0);
    }

    #[test]
    fn own_and_doubled_announcements_are_duplicates() {
        let (mut a, mut b, now) = (neighbours(), neighbours(), Instant::now());
        let own = a.announce(WALL, 0, 0);
        let other = b.announce(WALL, 0, 0);
        for datagram in [own, other, other] {
            assert_eq!(a.receive(&datagram, FROM, WALL, now), Ok(()));
        }
        assert_eq!((a.counters.accepted, a.counters.duplicate, count(&a, now)), (1, 2, 1));
    }

    #[test]
    fn a_stranger_is_refused() {
        let (mut a, now) = (neighbours(), Instant::now());
        let mut stranger = Neighbours::new(Key::new(b"another key"));
        assert_eq!(a.receive(&stranger.announce(WALL, 0, 1), FROM, WALL, now), Err(Refusal::Forged));
        assert_eq!((a.counters.forged, count(&a, now)), (1, 0));
    }

    #[test]
    fn a_replay_neither_counts_nor_keeps_a_terminal() {
        let (mut a, mut b, start) = (neighbours(), neighbours(), Instant::now());
        let (old, new) = (b.announce(WALL, 0, 1), b.announce(WALL + SECOND, 0, 1));
        for datagram in [old, new] {
            a.receive(&datagram, FROM, WALL + SECOND, start).unwrap();
        }
        // The terminal has left; an attacker replays its datagrams for as long as it likes.
        for second in 2..100 {
            let (wall, now) = (WALL + second * SECOND, start + Duration::from_secs(second - 1));
            let _ = a.receive(&old, FROM, wall, now);
            let _ = a.receive(&new, FROM, wall, now);
            if second > 2 {
                assert_eq!(count(&a, now), 0, "after {second} s");
            }
        }
        assert_eq!(a.counters.accepted, 2);
        assert!(a.counters.replayed > 0 && a.counters.stale > 0);
    }

    #[test]
    fn forgetting_a_terminal_lets_no_replay_in() {
        let (mut a, mut b, start) = (neighbours(), neighbours(), Instant::now());
        // The sender's clock is as far ahead as is allowed: the longest that a datagram stays fresh.
        let last = b.announce(WALL + CLOCKS.as_micros() as u64, 0, 1);
        a.receive(&last, FROM, WALL, start).unwrap();
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            a.known.retain(|_, known| now.duration_since(known.received) < REMEMBERED);
            let _ = a.receive(&last, FROM, WALL + second * SECOND, now);
        }
        assert_eq!((a.counters.accepted, a.known.len()), (1, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let (mut a, now) = (neighbours(), Instant::now());
        for terminal in 0..TERMINALS as u64 + 10 {
            let announcement = Announcement { terminal, time: WALL, kbit_per_s: 0, sending: 0 };
            let _ = a.receive(&a.key.sign(&announcement), of(terminal), WALL, now);
        }
        assert_eq!((a.known.len(), a.counters.full), (TERMINALS, 10));
        let announcement = Announcement { terminal: 99_999, time: WALL, kbit_per_s: 0, sending: 0 };
        assert_eq!(a.receive(&a.key.sign(&announcement), of(99_999), WALL, now + REMEMBERED), Ok(()));
        assert_eq!(a.known.len(), 1);
    }

    #[test]
    fn one_address_is_one_terminal_whatever_it_calls_itself() {
        let (mut a, now) = (neighbours(), Instant::now());
        for terminal in 0..100 {
            let announcement = Announcement { terminal, time: WALL, kbit_per_s: 1 << 20, sending: 9 };
            let _ = a.receive(&a.key.sign(&announcement), FROM, WALL, now);
        }
        assert_eq!((count(&a, now), a.known.len(), a.counters.full), (1, NAMES, 100 - NAMES as u64));
        let mut b = neighbours();
        assert_eq!(a.receive(&b.announce(WALL, 0, 1), of(1), WALL, now), Ok(()), "there is room for another one");
        assert_eq!(count(&a, now), 2);
        // The name that was received last counts: a restarted terminal is present at once.
        let later = now + PRESENT;
        let announcement = Announcement { terminal: 3, time: WALL + 1, kbit_per_s: 7, sending: 1 };
        a.receive(&a.key.sign(&announcement), FROM, WALL, later).unwrap();
        assert!(a.present(later).iter().any(|neighbour| neighbour.newest == announcement));
        assert_eq!(count(&a, later), 2);
    }

    #[test]
    fn a_clock_set_back_does_not_silence_the_terminal() {
        let (mut a, mut b, now) = (neighbours(), neighbours(), Instant::now());
        a.receive(&b.announce(WALL, 0, 0), FROM, WALL, now).unwrap();
        a.receive(&b.announce(WALL - 2 * SECOND, 0, 0), FROM, WALL, now).unwrap();
        let (before, wall) = (b.terminal(), WALL - 3600 * SECOND);
        a.receive(&b.announce(wall, 0, 0), FROM, wall, now).unwrap();
        assert_ne!(b.terminal(), before);
    }

    proptest! {
        #[test]
        fn what_is_signed_is_opened(terminal: u64, time: u64, kbit_per_s: u32, sending: u16, key: [u8; 32]) {
            let (key, announcement) = (Key::new(&key), Announcement { terminal, time, kbit_per_s, sending });
            prop_assert_eq!(key.open(&key.sign(&announcement)), Ok(announcement));
        }

        #[test]
        fn any_other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut a = neighbours();
            prop_assert!(a.receive(&bytes, FROM, WALL, Instant::now()).is_err());
            prop_assert_eq!(a.known.len(), 0);
        }

        #[test]
        fn a_flipped_bit_or_a_cut_is_refused(bit in 0..LENGTH * 8, length in 0..LENGTH) {
            let (mut a, mut b, now) = (neighbours(), neighbours(), Instant::now());
            let mut datagram = b.announce(WALL, 1, 1);
            prop_assert_eq!(a.receive(&datagram[..length], FROM, WALL, now), Err(Refusal::Malformed));
            datagram[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 32 { Refusal::Malformed } else { Refusal::Forged };
            prop_assert_eq!(a.receive(&datagram, FROM, WALL, now), Err(expected));
        }

        #[test]
        fn times_out_of_order_never_raise_the_count(times in prop::collection::vec(0u64..20, 1..60)) {
            let (mut a, now, mut newest) = (neighbours(), Instant::now(), None);
            for time in times {
                let announcement = Announcement { terminal: 7, time: WALL + time, kbit_per_s: 0, sending: 0 };
                let fresh = newest.is_none_or(|newest| time > newest);
                let before = a.counters.accepted;
                let _ = a.receive(&a.key.sign(&announcement), FROM, WALL, now);
                prop_assert_eq!(a.counters.accepted - before, u64::from(fresh));
                newest = newest.max(Some(time));
            }
            prop_assert_eq!(count(&a, now), 1);
        }
    }
}
