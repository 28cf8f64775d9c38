// SPDX-License-Identifier: Apache-2.0
//! Treatment of each packet and datagram of a tunnel: the link that carries it, and retransmission when a link dies.
//!
//! A packet goes over the cheapest link that lives, of several the nearest, as a datagram with a number; nothing waits for
//! another, so TCP inside sees the link's losses and delays and nothing else. While there is doubt (no answer for a while, or a
//! link that is asked to) it goes over a second link too, and the receiver takes it once. Packets are kept for `DEADLINE`: those that a
//! link got after the last probe that it answered go over another one when it dies.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use snow::HandshakeState;
use tokio::net::UdpSocket;

use super::link::Link;
use super::noise::{ANSWER, DATA, Identity, MAX_LINKS, OPENING, ReplayWindow, SEALING, Session};

/// Maximum age of a packet: an older one is useless.
const DEADLINE: Duration = Duration::from_millis(250);
/// Maximum packets and bytes kept for `DEADLINE`: beyond 128 Mbit/s a part of them.
const KEPT: (usize, usize) = (4096, 4 << 20);
/// Interval of probes while packets flow on the link in use (`PROBE`) and on the others, and while none flow; a tunnel
/// is quiet after some time without.
const PROBE: Duration = Duration::from_millis(25);
const PROBE_OTHERS: Duration = Duration::from_millis(100);
const PROBE_QUIET: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_secs(2);
/// Time that a link has, in addition to a round-trip time, to answer a probe before it is doubted.
const DOUBT: Duration = Duration::from_millis(200);
/// Lifetime of a session, after which the opener begins the next, and pause between attempts.
const REKEY: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_millis(500);
/// Time without an answer on any link, after which the peer's program may have been restarted.
const LOST: Duration = Duration::from_secs(2);
/// Time after which the answering end no longer probes a silent link.
const GONE: Duration = Duration::from_secs(60);
/// Authentic openings that are processed in a second.
const OPENINGS: u32 = 20;
/// Sessions: the current one, the one before, and one that the opener has not used yet.
const SESSIONS: usize = 3;
/// Octets before the packet in a frame: its kind and number.
pub const HEAD: usize = 9;
/// Maximum octets of a packet.
pub const MAX_PACKET: usize = 9000;
const PACKET: u8 = 1;
const PROBING: u8 = 2;
const PROBED: u8 = 3;

struct SentFrame {
    frame: Vec<u8>,
    sent: Instant,
    link: usize,
}

/// Counters of a tunnel, in addition to its links'.
#[derive(Clone, Copy, Default)]
pub struct Counters {
    /// Packets from the device, and to it.
    pub sent: u64,
    pub received: u64,
    /// Packets sent over a second link in doubt or by request; sent again as their link died; taken by no link.
    pub doubled: u64,
    pub repeated: u64,
    pub dropped: u64,
    /// Rejected datagrams: not the peer's, or duplicates.
    pub refused: u64,
    pub sessions: u64,
}

/// One end of a tunnel: its sessions, links and kept packets, without tasks.
pub struct Core {
    identity: Identity,
    /// This end begins sessions, and knows where the peer is.
    opens: bool,
    double: bool,
    device: OwnedFd,
    pub links: Vec<Link>,
    pub counters: Counters,
    sessions: Vec<Session>,
    /// Session in use for sending: the peer has used it.
    current: Option<(u32, Instant)>,
    opening: Option<(Box<HandshakeState>, u32)>,
    tried: Option<Instant>,
    /// Last opening of the peer: its time, its octets and their answer.
    opened: (u64, Vec<u8>, Vec<u8>),
    bucket: (Instant, u32),
    preferred: usize,
    number: u64,
    seen: ReplayWindow<64>,
    kept: VecDeque<SentFrame>,
    kept_bytes: usize,
    busy: Option<Instant>,
    born: Instant,
    buffer: Vec<u8>,
}

impl Core {
    /// Make one end of a tunnel. `links`: those of the end that opens; the other one learns them. `double`: send every
    /// packet over two links.
    pub fn new(identity: Identity, opens: bool, double: bool, device: OwnedFd, links: Vec<Link>) -> Self {
        let now = Instant::now();
        Self {
            identity,
            opens,
            double,
            device,
            links,
            counters: Counters::default(),
            sessions: Vec::new(),
            current: None,
            opening: None,
            tried: None,
            opened: Default::default(),
            bucket: (now, 0),
            preferred: 0,
            // Later than any of an earlier run: the peer takes no number twice.
            number: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64),
            seen: ReplayWindow::default(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            busy: None,
            born: now,
            buffer: vec![0; HEAD + MAX_PACKET + SEALING],
        }
    }

    /// True if packets flowed recently, so that links are probed often.
    pub fn is_busy(&self, now: Instant) -> bool {
        self.busy.is_some_and(|busy| now.saturating_duration_since(busy) < QUIET)
    }

    /// Return the link for the next packet, if one is alive.
    pub fn chosen(&self) -> Option<usize> {
        self.choice().0
    }

    /// Choose the cheapest live link, of several the nearest, and the next one; the current link stays unless another
    /// is clearly nearer.
    fn choice(&self) -> (Option<usize>, Option<usize>) {
        let far = |link: &Link| link.rtt.map_or(Duration::MAX, |(rtt, _)| rtt);
        let mut live: Vec<usize> =
            (0..self.links.len()).filter(|&k| self.links[k].alive && self.links[k].is_open()).collect();
        live.sort_by(|&a, &b| {
            let (a, b) = (&self.links[a], &self.links[b]);
            a.cost.total_cmp(&b.cost).then(far(a).cmp(&far(b)))
        });
        let Some(&best) = live.first() else { return (None, None) };
        let stays = live.contains(&self.preferred)
            && self.links[self.preferred].cost <= self.links[best].cost
            && far(&self.links[self.preferred]) < far(&self.links[best]) * 13 / 10 + Duration::from_millis(5);
        let chosen = if stays { self.preferred } else { best };
        (Some(chosen), live.into_iter().find(|&k| k != chosen))
    }

    /// Update the chosen link as `choice` says, and return it and the next.
    fn choose(&mut self) -> (Option<usize>, Option<usize>) {
        let (chosen, next) = self.choice();
        self.preferred = chosen.unwrap_or(self.preferred);
        (chosen, next)
    }

    /// Send a packet of the device. `frame`: `HEAD` octets of room, and the packet.
    pub fn send(&mut self, frame: &mut [u8], now: Instant) {
        let was_busy = self.is_busy(now);
        self.busy = Some(now);
        if !was_busy {
            self.probe(now); // whatever happened meanwhile is to be known soon
        }
        self.number += 1;
        frame[0] = PACKET;
        frame[1..HEAD].copy_from_slice(&self.number.to_be_bytes());
        self.counters.sent += 1;
        let (best, next) = self.choose();
        let Some(best) = best else {
            // None is known to be alive: try all.
            let open: Vec<usize> = (0..self.links.len()).filter(|&k| self.links[k].is_open()).collect();
            let sent = open.into_iter().filter(|&k| self.transmit(k, frame, now)).count();
            self.counters.dropped += u64::from(sent == 0);
            return;
        };
        let Link { answered, rtt, .. } = self.links[best];
        let patience = DOUBT + rtt.map_or(Duration::ZERO, |(rtt, _)| rtt);
        let doubted = answered.is_none_or(|answered| now.saturating_duration_since(answered) > patience);
        let mut sent = self.transmit(best, frame, now);
        let mut carrier = best;
        if let Some(next) = next
            && (self.double || doubted || !sent)
            && self.transmit(next, frame, now)
        {
            self.counters.doubled += u64::from(sent);
            carrier = if sent { best } else { next };
            sent = true;
        }
        self.counters.dropped += u64::from(!sent);
        self.keep(frame, carrier, now);
    }

    fn keep(&mut self, frame: &[u8], link: usize, now: Instant) {
        if self.links.len() < 2 {
            return;
        }
        self.kept_bytes += frame.len();
        self.kept.push_back(SentFrame { frame: frame.to_vec(), sent: now, link });
        while let Some(oldest) = self.kept.front() {
            let full = self.kept.len() > KEPT.0 || self.kept_bytes > KEPT.1;
            if !full && now.saturating_duration_since(oldest.sent) <= DEADLINE {
                break;
            }
            self.kept_bytes -= oldest.frame.len();
            self.kept.pop_front();
        }
    }

    /// Send a frame over a link; return true if the kernel took it.
    fn transmit(&mut self, link: usize, frame: &[u8], now: Instant) -> bool {
        let Self { links, sessions, current, buffer, .. } = self;
        let to = &mut links[link];
        let session = current.and_then(|(id, _)| sessions.iter_mut().find(|session| session.ours == id));
        let (Some(session), Some(socket), Some(peer)) = (session, &to.socket, to.peer) else { return false };
        let length = session.seal(link as u8, frame, buffer);
        match socket.try_send_to(&buffer[..length], peer) {
            Ok(_) => {
                to.packets_sent += u64::from(frame[0] == PACKET);
                to.bytes_sent += length as u64;
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::EMSGSIZE) => {
                false
            }
            // The interface is down or has lost its address or route.
            Err(_) => {
                self.fail_over(link, now);
                false
            }
        }
    }

    /// Send the undelivered packets of a dead link over another one; the receiver drops duplicates.
    fn fail_over(&mut self, link: usize, now: Instant) {
        if !self.links[link].die() {
            return;
        }
        // None is alive: use the same link, as the peer may have moved and be reachable there again.
        let other = self.choose().0.unwrap_or(link);
        let since = self.links[link].answered;
        let missed: Vec<usize> = (0..self.kept.len())
            .filter(|&k| {
                let kept = &self.kept[k];
                let in_time = now.saturating_duration_since(kept.sent) <= DEADLINE;
                kept.link == link && in_time && since.is_none_or(|since| kept.sent >= since)
            })
            .collect();
        for k in missed {
            self.kept[k].link = other;
            let frame = std::mem::take(&mut self.kept[k].frame);
            self.counters.repeated += u64::from(self.transmit(other, &frame, now));
            if let Some(kept) = self.kept.get_mut(k) {
                kept.frame = frame;
            }
        }
    }

    fn probe(&mut self, now: Instant) {
        let busy = self.is_busy(now);
        for k in 0..self.links.len() {
            let pause = match (busy, k == self.preferred || self.double) {
                (false, _) => PROBE_QUIET,
                (true, true) => PROBE,
                (true, false) => PROBE_OTHERS,
            };
            let link = &mut self.links[k];
            let due = link.probed.is_none_or(|probed| now.saturating_duration_since(probed) >= pause);
            let gone = link.last_received.is_some_and(|last| now.saturating_duration_since(last) > GONE);
            if !due || gone && !self.opens || link.socket.is_none() || link.peer.is_none() || self.current.is_none() {
                continue;
            }
            // A link whose quota is used up is asked once a second, so that the peer knows it.
            if link.is_spent() && link.probed.is_some_and(|probed| now.saturating_duration_since(probed) < PROBE_QUIET)
            {
                continue;
            }
            link.probe_sent(now);
            let mut frame = [PROBING; HEAD + 5];
            frame[1..HEAD].copy_from_slice(&self.stamp(now).to_be_bytes());
            frame[HEAD..HEAD + 4].copy_from_slice(&self.links[k].cost.to_be_bytes());
            frame[HEAD + 4] = u8::from(self.links[k].is_spent());
            self.transmit(k, &frame, now);
        }
    }

    /// Encode a time for a probe, in ns.
    fn stamp(&self, at: Instant) -> u64 {
        (at - self.born).as_nanos() as u64
    }

    /// Run the timers. Called every few milliseconds while packets flow. Return the links that need a new socket.
    pub fn tick(&mut self, now: Instant) -> Vec<usize> {
        for k in 0..self.links.len() {
            if self.links[k].alive && self.links[k].is_silent(now) {
                self.fail_over(k, now);
            }
        }
        if self.opens {
            self.open_session(now);
        }
        self.probe(now);
        self.choose();
        let lost = |link: &Link| {
            let since = link.answered.unwrap_or(self.born);
            !link.alive && now.saturating_duration_since(since) > LOST
        };
        if self.opens { (0..self.links.len()).filter(|&k| lost(&self.links[k])).collect() } else { Vec::new() }
    }

    /// Open a session where there is none, where it is old, or where the peer does not answer.
    fn open_session(&mut self, now: Instant) {
        let newest = self.links.iter().filter_map(|link| link.answered).max();
        let needed = self.current.is_none_or(|(_, since)| {
            let silent = now.saturating_duration_since(newest.unwrap_or(since).max(since)) > LOST;
            silent || now.saturating_duration_since(since) > REKEY
        });
        if !needed || self.tried.is_some_and(|tried| now.saturating_duration_since(tried) < RETRY) {
            return;
        }
        self.tried = Some(now);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let id = rand::random();
        let (datagram, handshake) = self.identity.open(time, id);
        for link in &self.links {
            if let (Some(socket), Some(peer)) = (&link.socket, link.peer) {
                let _ = socket.try_send_to(&datagram, peer);
            }
        }
        self.opening = Some((handshake, id));
    }

    /// Process a datagram that came to `socket`.
    pub fn receive(&mut self, socket: &Arc<UdpSocket>, from: SocketAddr, datagram: &[u8], frame: &mut [u8]) {
        let now = Instant::now();
        let known = match datagram.first() {
            Some(&OPENING) if !self.opens => self.opening_came(socket, from, datagram, now),
            Some(&ANSWER) if self.opens => self.answer_came(datagram, now),
            Some(&DATA) => self.data_came(socket, from, datagram, frame, now),
            _ => None,
        };
        self.counters.refused += u64::from(known.is_none());
    }

    fn opening_came(&mut self, socket: &UdpSocket, from: SocketAddr, datagram: &[u8], now: Instant) -> Option<()> {
        // The same opening over another link, or its answer was lost: nothing new is made of it.
        if !self.opened.1.is_empty() && self.opened.1 == datagram {
            let _ = socket.try_send_to(&self.opened.2, from);
            return Some(());
        }
        if now.saturating_duration_since(self.bucket.0) >= Duration::from_secs(1) {
            self.bucket = (now, 0);
        }
        self.bucket.1 += 1;
        if self.bucket.1 > OPENINGS {
            return None;
        }
        let (time, theirs, handshake) = self.identity.read_opening(datagram)?;
        if time <= self.opened.0 {
            return None; // recorded and sent again
        }
        let (answer, session) = self.identity.answer(handshake, self.new_id(), theirs);
        let _ = socket.try_send_to(&answer, from);
        self.opened = (time, datagram.to_vec(), answer);
        self.admit(session);
        Some(())
    }

    fn new_id(&self) -> u32 {
        loop {
            let id = rand::random();
            if self.sessions.iter().all(|session| session.ours != id) {
                return id;
            }
        }
    }

    fn admit(&mut self, session: Session) {
        // The current session stays, as the peer may continue to use it.
        let current = self.current.map(|(id, _)| id);
        while self.sessions.len() >= SESSIONS {
            let oldest = self.sessions.iter().position(|session| Some(session.ours) != current).unwrap_or(0);
            self.sessions.remove(oldest);
        }
        self.sessions.push(session);
        self.counters.sessions += 1;
    }

    fn answer_came(&mut self, datagram: &[u8], now: Instant) -> Option<()> {
        let (handshake, id) = self.opening.take()?;
        match self.identity.opened(handshake, id, datagram) {
            Ok(session) => {
                self.admit(session);
                self.switch(id, now);
                Some(())
            }
            // A forged answer ends no opening; Noise's state is made anew with the next one.
            Err(handshake) => {
                self.opening = Some((handshake, id));
                None
            }
        }
    }

    /// Use this session for sending from now on.
    fn switch(&mut self, id: u32, now: Instant) {
        self.current = Some((id, now));
        for link in &mut self.links {
            link.forget_probes();
            link.probed = None;
        }
        self.probe(now);
    }

    fn data_came(
        &mut self,
        socket: &Arc<UdpSocket>,
        from: SocketAddr,
        datagram: &[u8],
        frame: &mut [u8],
        now: Instant,
    ) -> Option<()> {
        let id = Session::of(datagram)?;
        let newest = self.sessions.last().map(|session| session.ours);
        let session = self.sessions.iter_mut().find(|session| session.ours == id)?;
        let (link, length) = session.open(datagram, frame)?;
        let link = usize::from(link);
        let frame = &frame[..length];
        if !self.opens {
            while self.links.len() <= link.min(MAX_LINKS - 1) {
                self.links.push(Link::new(format!("link {}", self.links.len()), 1.0, u64::MAX));
            }
        }
        let from_link = self.links.get_mut(link)?;
        from_link.bytes_received += datagram.len() as u64;
        from_link.last_received = Some(now);
        // The peer has the address of its newest datagram. Datagrams to its earlier address may be lost.
        let moved = !self.opens && from_link.peer != Some(from);
        if moved || from_link.socket.is_none() {
            (from_link.peer, from_link.socket) = (Some(from), Some(socket.clone()));
            from_link.forget_probes();
            self.fail_over(link, now);
        }
        if newest == Some(id) && self.current.is_none_or(|(current, _)| current != id) && !self.opens {
            self.switch(id, now);
        }
        let number = u64::from_be_bytes(frame.get(1..HEAD)?.try_into().expect("eight octets"));
        match (frame[0], frame.len()) {
            (PACKET, HEAD..) => self.packet_came(link, number, &frame[HEAD..], now),
            (PROBING, length) if length == HEAD + 5 => {
                let cost = f32::from_be_bytes(frame[HEAD..HEAD + 4].try_into().expect("four octets"));
                let from_link = &mut self.links[link];
                from_link.closed_by_peer = frame[HEAD + 4] != 0;
                if !self.opens && (0.0..=1e6).contains(&cost) {
                    from_link.cost = cost;
                }
                let mut answer = [PROBED; HEAD];
                answer[1..].copy_from_slice(&number.to_be_bytes());
                self.transmit(link, &answer, now);
            }
            (PROBED, HEAD) => {
                // Only what was sent is answered, see `probe_answered`.
                let sent = self.born.checked_add(Duration::from_nanos(number)).filter(|sent| *sent <= now)?;
                self.links[link].probe_answered(sent, now);
            }
            _ => return None,
        }
        Some(())
    }

    fn packet_came(&mut self, link: usize, number: u64, packet: &[u8], now: Instant) {
        self.links[link].packets_received += 1;
        let was_busy = self.is_busy(now);
        self.busy = Some(now);
        if !was_busy {
            self.probe(now);
        }
        if !self.seen.is_new(number) {
            return;
        }
        self.seen.mark(number);
        self.counters.received += 1;
        // SAFETY: the octets live during the call. What is no packet the kernel refuses.
        unsafe { libc::write(self.device.as_raw_fd(), packet.as_ptr().cast(), packet.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::key_pair;
    use super::*;

    #[tokio::test]
    async fn what_is_told_is_where_the_next_packet_goes() {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let links = [("eth0", 4.0, u64::MAX), ("eth1", 1.0, 1000)].map(|(name, cost, quota)| {
            let mut link = Link::new(name.into(), cost, quota);
            (link.socket, link.peer) = (Some(socket.clone()), socket.local_addr().ok());
            link
        });
        let identity = Identity { private: key_pair().0, peer: key_pair().1, shared: [7; 32] };
        let device = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut core = Core::new(identity, true, false, device, links.into());
        let answer = |link: &mut Link| {
            let now = Instant::now();
            link.probe_sent(now);
            link.probe_answered(now, now);
        };
        assert_eq!(core.chosen(), None, "none has answered");
        answer(&mut core.links[0]);
        assert_eq!(core.chosen(), Some(0));
        answer(&mut core.links[1]);
        assert_eq!(core.chosen(), Some(1), "it has just answered, and is cheaper");
        core.links[1].bytes_sent = 1000;
        assert_eq!(core.chosen(), Some(0), "the quota of the cheaper one is used up");
    }
}
