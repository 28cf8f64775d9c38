// SPDX-License-Identifier: Apache-2.0
//! Datagrams on the links: Noise_KKpsk0_25519_ChaChaPoly_BLAKE2s (noiseprotocol.org, revision 34) through `snow`. Both
//! ends have pinned each other's public key, so that no other peer gets an answer, and nothing of a packet is visible
//! but its length.
//!
//! | datagram | octets |
//! | --- | --- |
//! | opening | 1, version, code (16), Noise's first message: e, and sealed: the opener's time in ns (8), its session id (4) |
//! | answer | 2, version, code (16), Noise's second message: e, and sealed: the answerer's session id (4) |
//! | data | 4, link, session id of who gets it (4), counter (8), sealed: one frame |
//!
//! In network byte order. The code is an HMAC-SHA256 under the tunnel's shared secret of all that follows: a stranger's datagram
//! costs one hash and no Diffie-Hellman. The nonce of a data datagram is its link, 8 bits, and its counter there, 56 bits.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use snow::{Builder, HandshakeState, StatelessTransportState};

pub const OPENING: u8 = 1;
pub const ANSWER: u8 = 2;
pub const DATA: u8 = 4;
const VERSION: u8 = 1;
const CODE: usize = 16;
const HEADER: usize = 14;
const TAG: usize = 16;
/// Octets of a data datagram in addition to its frame.
pub const SEALING: usize = HEADER + TAG;
/// Links of a tunnel.
pub const MAX_LINKS: usize = 8;
const PATTERN: &str = "Noise_KKpsk0_25519_ChaChaPoly_BLAKE2s";
/// Octets of Noise's messages: an ephemeral key and a sealed payload.
const FIRST: usize = 32 + 12 + TAG;
const SECOND: usize = 32 + 4 + TAG;

/// Keys of an end, 32 octets each: its own, the pinned one of the peer, and the shared secret.
#[derive(Clone)]
pub struct Identity {
    pub private: [u8; 32],
    pub peer: [u8; 32],
    pub shared: [u8; 32],
}

/// Make a key pair for one end: private and public.
pub fn key_pair() -> ([u8; 32], [u8; 32]) {
    let pair = Builder::new(PATTERN.parse().expect("a pattern of Noise")).generate_keypair().expect("there is chance");
    (pair.private.try_into().expect("32 octets"), pair.public.try_into().expect("32 octets"))
}

impl Identity {
    fn handshake(&self, opens: bool) -> HandshakeState {
        let keys = Builder::new(PATTERN.parse().expect("a pattern of Noise"))
            .psk(0, &self.shared)
            .and_then(|keys| keys.local_private_key(&self.private))
            .and_then(|keys| keys.remote_public_key(&self.peer));
        let made = keys.and_then(|keys| if opens { keys.build_initiator() } else { keys.build_responder() });
        made.expect("keys of 32 octets")
    }

    fn code(&self, kind: u8, body: &[u8]) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.shared)
            .expect("any length serves as key")
            .chain_update(b"BATCP tunnel")
            .chain_update([kind, VERSION])
            .chain_update(body)
    }

    fn frame(&self, kind: u8, body: &[u8]) -> Vec<u8> {
        let code = self.code(kind, body).finalize().into_bytes();
        [&[kind, VERSION], &code[..CODE], body].concat()
    }

    /// Return Noise's message in a handshake datagram; None: the sender lacks the secret.
    fn unframe<'d>(&self, kind: u8, datagram: &'d [u8], length: usize) -> Option<&'d [u8]> {
        if datagram.len() != 2 + CODE + length || datagram[..2] != [kind, VERSION] {
            return None;
        }
        let (code, body) = datagram[2..].split_at(CODE);
        self.code(kind, body).verify_truncated_left(code).is_ok().then_some(body)
    }

    /// Begin a session: return the datagram to send, and the state that reads its answer. `time`: in ns, later than any
    /// before.
    pub fn open(&self, time: u64, ours: u32) -> (Vec<u8>, Box<HandshakeState>) {
        let mut handshake = Box::new(self.handshake(true));
        let payload = [&time.to_be_bytes()[..], &ours.to_be_bytes()].concat();
        let mut body = [0; FIRST];
        let length = handshake.write_message(&payload, &mut body).expect("it is as long as that");
        (self.frame(OPENING, &body[..length]), handshake)
    }

    /// Make a session from an answer to `open`. Errors: an invalid one; the right one may still come.
    pub fn opened(
        &self,
        mut handshake: Box<HandshakeState>,
        ours: u32,
        datagram: &[u8],
    ) -> Result<Session, Box<HandshakeState>> {
        let mut payload = [0; SECOND];
        let Some(body) = self.unframe(ANSWER, datagram, SECOND) else { return Err(handshake) };
        match handshake.read_message(body, &mut payload) {
            Ok(4) => {
                Ok(Session::new(*handshake, ours, u32::from_be_bytes(payload[..4].try_into().expect("four octets"))))
            }
            _ => Err(handshake),
        }
    }

    /// Read an opening: the opener's time and id, and the handshake to be answered; None: the datagram is not the
    /// peer's.
    pub fn read_opening(&self, datagram: &[u8]) -> Option<(u64, u32, HandshakeState)> {
        let body = self.unframe(OPENING, datagram, FIRST)?;
        let (mut handshake, mut payload) = (self.handshake(false), [0; FIRST]);
        if handshake.read_message(body, &mut payload).ok()? != 12 {
            return None;
        }
        let (time, id) = payload[..12].split_at(8);
        let id = u32::from_be_bytes(id.try_into().expect("four octets"));
        Some((u64::from_be_bytes(time.try_into().expect("eight octets")), id, handshake))
    }

    /// Answer an opening; return the datagram and the session.
    pub fn answer(&self, mut handshake: HandshakeState, ours: u32, theirs: u32) -> (Vec<u8>, Session) {
        let mut body = [0; SECOND];
        let length = handshake.write_message(&ours.to_be_bytes(), &mut body).expect("it is as long as that");
        (self.frame(ANSWER, &body[..length]), Session::new(handshake, ours, theirs))
    }
}

/// Keys of a session, and the numbers that were used.
pub struct Session {
    keys: StatelessTransportState,
    pub ours: u32,
    theirs: u32,
    sent: [u64; MAX_LINKS],
    seen: [ReplayWindow<16>; MAX_LINKS],
}

impl Session {
    fn new(handshake: HandshakeState, ours: u32, theirs: u32) -> Self {
        let keys = handshake.into_stateless_transport_mode().expect("both messages have passed");
        Self { keys, ours, theirs, sent: [0; MAX_LINKS], seen: [ReplayWindow::default(); MAX_LINKS] }
    }

    /// Return the session id of a data datagram; None: it is none.
    pub fn of(datagram: &[u8]) -> Option<u32> {
        let long = datagram.len() > SEALING && datagram[0] == DATA;
        long.then(|| u32::from_be_bytes(datagram[2..6].try_into().expect("four octets")))
    }

    /// Seal `frame` for `link` into `into`, which has `SEALING` octets more; return the datagram's length.
    pub fn seal(&mut self, link: u8, frame: &[u8], into: &mut [u8]) -> usize {
        let counter = &mut self.sent[usize::from(link)];
        *counter += 1;
        into[..2].copy_from_slice(&[DATA, link]);
        into[2..6].copy_from_slice(&self.theirs.to_be_bytes());
        into[6..HEADER].copy_from_slice(&counter.to_be_bytes());
        let nonce = u64::from(link) << 56 | *counter;
        HEADER + self.keys.write_message(nonce, frame, &mut into[HEADER..]).expect("there is space")
    }

    /// Open a data datagram of this session; return its link and the length of its frame, once; None: forged, repeated,
    /// or too old.
    pub fn open(&mut self, datagram: &[u8], into: &mut [u8]) -> Option<(u8, usize)> {
        let link = datagram[1];
        let counter = u64::from_be_bytes(datagram[6..HEADER].try_into().expect("eight octets"));
        let seen = self.seen.get_mut(usize::from(link))?;
        if counter >> 56 != 0 || !seen.is_new(counter) {
            return None;
        }
        let length = self.keys.read_message(u64::from(link) << 56 | counter, &datagram[HEADER..], into).ok()?;
        seen.mark(counter);
        Some((link, length))
    }
}

/// Replay window: the newest number received, and a bit for each of the 64 (N - 1) before it (as RFC 6479 does).
#[derive(Clone, Copy)]
pub struct ReplayWindow<const N: usize> {
    newest: u64,
    seen: [u64; N],
}

impl<const N: usize> Default for ReplayWindow<N> {
    fn default() -> Self {
        Self { newest: 0, seen: [0; N] }
    }
}

impl<const N: usize> ReplayWindow<N> {
    /// Return true if `number` was not received. Numbers older than the window count as received.
    pub fn is_new(&self, number: u64) -> bool {
        let (word, bit) = (number / 64, 1 << (number % 64));
        number > self.newest || self.newest / 64 - word < N as u64 && self.seen[(word % N as u64) as usize] & bit == 0
    }

    /// Mark `number` as received.
    pub fn mark(&mut self, number: u64) {
        let (old, word) = (self.newest / 64, number / 64);
        for fresh in old + 1..=word.min(old + N as u64) {
            self.seen[(fresh % N as u64) as usize] = 0;
        }
        if word > old + N as u64 {
            self.seen = [0; N];
        }
        self.newest = self.newest.max(number);
        self.seen[(word % N as u64) as usize] |= 1 << (number % 64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn identities() -> (Identity, Identity) {
        let ((a, a_public), (b, b_public), shared) = (key_pair(), key_pair(), [7; 32]);
        (Identity { private: a, peer: b_public, shared }, Identity { private: b, peer: a_public, shared })
    }

    fn sessions() -> (Session, Session) {
        let (client, server) = identities();
        let (opening, handshake) = client.open(5, 11);
        let (time, theirs, received) = server.read_opening(&opening).unwrap();
        assert_eq!((time, theirs), (5, 11));
        let (answer, there) = server.answer(received, 22, theirs);
        (client.opened(handshake, 11, &answer).ok().unwrap(), there)
    }

    #[test]
    fn a_frame_crosses_once_and_unseen() {
        let (mut here, mut there) = sessions();
        let (mut datagram, mut frame) = ([0; 100], [0; 100]);
        let length = here.seal(3, b"a packet", &mut datagram);
        let datagram = &mut datagram[..length];
        assert_eq!((length, Session::of(datagram)), (8 + SEALING, Some(there.ours)));
        assert!(!datagram.windows(8).any(|part| part == b"a packet"));
        for k in 0..length {
            if k == 0 || (2..6).contains(&k) {
                continue; // not this session's any more
            }
            datagram[k] ^= 1;
            assert_eq!(there.open(datagram, &mut frame), None, "octet {k}");
            datagram[k] ^= 1;
        }
        assert_eq!(there.open(datagram, &mut frame), Some((3, 8)));
        assert_eq!(&frame[..8], b"a packet");
        assert_eq!(there.open(datagram, &mut frame), None, "it came already");
        let back = there.seal(0, b"yes", datagram);
        assert_eq!(here.open(&datagram[..back], &mut frame), Some((0, 3)));
    }

    #[test]
    fn other_keys_get_no_answer() {
        let (client, server) = identities();
        let (stranger, _) = identities();
        let other_secret = Identity { shared: [8; 32], ..client.clone() };
        for other in [stranger, other_secret] {
            assert!(server.read_opening(&other.open(5, 11).0).is_none());
        }
        let (mut opening, handshake) = client.open(5, 11);
        let (_, theirs, received) = server.read_opening(&opening).unwrap();
        let (mut answer, _) = server.answer(received, 22, theirs);
        opening[40] ^= 1;
        assert!(server.read_opening(&opening).is_none());
        answer[40] ^= 1;
        assert!(client.opened(handshake, 11, &answer).is_err());
    }

    proptest! {
        #[test]
        fn any_octets_are_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let (identity, _) = identities();
            prop_assert!(identity.read_opening(&octets).is_none());
            let (mut session, _) = sessions();
            if Session::of(&octets).is_some() {
                prop_assert!(session.open(&octets, &mut [0; 200]).is_none());
            }
        }

        #[test]
        fn each_number_counts_once(numbers in prop::collection::vec(0u64..2000, 0..500)) {
            let (mut window, mut seen, mut newest) = (ReplayWindow::<4>::default(), HashSet::new(), 0);
            for number in numbers {
                let known = newest < number + 64 * 3;
                let fresh = window.is_new(number);
                if known {
                    prop_assert_eq!(fresh, !seen.contains(&number));
                } else {
                    prop_assert!(!(fresh && seen.contains(&number)));
                }
                if fresh {
                    window.mark(number);
                    seen.insert(number);
                    newest = newest.max(number);
                }
            }
        }
    }
}
