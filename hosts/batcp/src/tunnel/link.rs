// SPDX-License-Identifier: Apache-2.0
//! A link of a tunnel as one end sees it: how far away the peer is, and whether what is sent there arrives.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;

/// Probes that may be unanswered at a time.
const PROBES: usize = 256;
/// Minimum time that an answer may take beyond the round-trip time: the peer's program may be late by so much.
const LATE: Duration = Duration::from_millis(50);

/// Link of a tunnel: the two ends' measures and agreements.
pub struct Link {
    pub name: String,
    pub socket: Option<Arc<UdpSocket>>,
    /// Address from which the peer was last received on this link, or that is to be tried.
    pub peer: Option<SocketAddr>,
    /// Price of a byte, in a unit that is the same for all links: the cheapest live one is used.
    pub cost: f32,
    /// Bytes that the link may carry in both directions, until the tunnel is restarted.
    pub quota: u64,
    /// The peer says that its quota is used up.
    pub closed_by_peer: bool,
    pub alive: bool,
    /// Smoothed round-trip time and its mean deviation (RFC 6298), once measured.
    pub rtt: Option<(Duration, Duration)>,
    probes: VecDeque<Instant>,
    /// Sending time of the newest probe that was answered: earlier packets have passed, if any has.
    pub answered: Option<Instant>,
    pub probed: Option<Instant>,
    /// Time of the last authentic datagram.
    pub last_received: Option<Instant>,
    pub packets_sent: u64,
    pub packets_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Number of times that the link died.
    pub deaths: u64,
}

impl Link {
    pub fn new(name: String, cost: f32, quota: u64) -> Self {
        Self {
            name,
            socket: None,
            peer: None,
            cost,
            quota,
            closed_by_peer: false,
            alive: false,
            rtt: None,
            probes: VecDeque::new(),
            answered: None,
            probed: None,
            last_received: None,
            packets_sent: 0,
            packets_received: 0,
            bytes_sent: 0,
            bytes_received: 0,
            deaths: 0,
        }
    }

    /// True if this end's quota is used up.
    pub fn is_spent(&self) -> bool {
        self.bytes_sent + self.bytes_received >= self.quota
    }

    /// True if packets may be sent there at all.
    pub fn is_open(&self) -> bool {
        self.socket.is_some() && self.peer.is_some() && !self.is_spent() && !self.closed_by_peer
    }

    pub fn probe_sent(&mut self, now: Instant) {
        self.probed = Some(now);
        if self.probes.len() == PROBES {
            self.probes.pop_front();
        }
        self.probes.push_back(now);
    }

    /// Record the answer to the probe of `sent`.
    pub fn probe_answered(&mut self, sent: Instant, now: Instant) {
        if !self.probes.contains(&sent) {
            return; // answered already
        }
        while self.probes.front().is_some_and(|probe| *probe <= sent) {
            self.probes.pop_front();
        }
        let sample = now - sent;
        self.rtt = Some(match self.rtt {
            None => (sample, sample / 2),
            // Answers that waited in an outage came late, and do not measure the present path.
            Some((rtt, _)) if 2 * sample < rtt => (sample, sample / 2),
            Some((rtt, deviation)) => ((7 * rtt + sample) / 8, (3 * deviation + rtt.abs_diff(sample)) / 4),
        });
        self.answered = Some(sent);
        self.alive = true;
    }

    /// True if an answer is overdue.
    pub fn is_silent(&self, now: Instant) -> bool {
        let patience = self.rtt.map_or(Duration::from_secs(1), |(rtt, deviation)| rtt + LATE.max(4 * deviation));
        self.probes.front().is_some_and(|probe| now.saturating_duration_since(*probe) > patience)
    }

    /// Mark the link dead until a probe is answered; return true if it was alive.
    pub fn die(&mut self) -> bool {
        self.deaths += u64::from(self.alive);
        std::mem::take(&mut self.alive)
    }

    /// Forget the probes of an earlier socket or session, which get no answers.
    pub fn forget_probes(&mut self) {
        self.probes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_lives_as_long_as_it_answers() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut link = Link::new("eth0".into(), 1.0, u64::MAX);
        for k in 0..10 {
            link.probe_sent(at(100 * k));
            link.probe_answered(at(100 * k), at(100 * k + 20));
        }
        assert!(link.alive && !link.is_silent(at(5000)), "nothing was asked since");
        let rtt = link.rtt.unwrap().0;
        assert!(rtt.abs_diff(Duration::from_millis(20)) < Duration::from_millis(1), "{rtt:?}");
        link.probe_sent(at(2000));
        link.probe_sent(at(2025));
        assert!(!link.is_silent(at(2060)) && link.is_silent(at(2080)));
        assert!(link.die() && !link.die());
        link.probe_answered(at(2025), at(2100));
        assert!(link.alive && !link.is_silent(at(9000)), "a later answer counts for those before");
        assert_eq!((link.deaths, link.answered), (1, Some(at(2025))));
        let late = link.rtt.unwrap().0;
        link.probe_sent(at(9000));
        link.probe_answered(at(9000), at(9010));
        assert!(late > Duration::from_millis(25) && link.rtt.unwrap().0 == Duration::from_millis(10));
        link.probe_answered(at(2000), at(2101));
        assert_eq!(link.answered, Some(at(9000)), "an answer to what was answered says nothing");
    }

    #[test]
    fn a_quota_closes_a_link() {
        let mut link = Link::new("wwan0".into(), 4.0, 1000);
        assert!(!link.is_spent());
        (link.bytes_sent, link.bytes_received) = (400, 600);
        assert!(link.is_spent() && !link.is_open());
    }
}
