// SPDX-License-Identifier: Apache-2.0
//! The first octets of every subflow: who opens a connection, who joins one, and the answer (paper 003, section 3.1).
//!
//! The connection id of section 3 has four digits, so anyone could guess one and join. Here the first subflow's two hellos each
//! carry a random nonce of 128 bits; of both and of the key that the two ends share (empty at an open listener) HKDF
//! (RFC 5869) makes the connection's keys. With them each end proves that it has the shared key before anything is kept for
//! the other: the listener in its answer, the opener by the proof that follows. A join names the connection by a random
//! 64-bit token and carries an HMAC-SHA256 of itself, with a sequence number that serves once; the answer to it is
//! authenticated too, also when it says that the connection is not known.
//!
//! Who sees the first subflow of an open listener can join, as with MPTCP (RFC 8684, section 10); with a shared key nobody else
//! can.
//!
//! All are of fixed length: hellos 64 octets, answers 64, the opener's proof 16, numbers in network byte order.

use std::time::Duration;

use bytes::{Buf, BufMut};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::segment::Malformed;
use super::{Interface, Key, Mark};

/// Time for TCP's handshake, and then for the hello's answer.
pub const HANDSHAKE: Duration = Duration::from_secs(3);
/// Octets of a hello.
pub const HELLO: usize = 64;
/// Octets of an answer.
pub const ANSWER: usize = 64;
/// Octets of the opener's proof that it has the shared key; it follows the answer to an open.
pub const PROOF: usize = 16;
/// The protocol's name and its version. Version 1 had no shared key; in version 2 the opener said if it seals.
const MAGIC: &[u8; 8] = b"BATCP\r\n\x03";
/// Octets of a hello or an answer that its authentication covers.
const SIGNED: usize = 48;
/// A peer of another version.
pub const OTHER_VERSION: Malformed =
    Malformed("the peer speaks another version of BATCP: use one release of `hosts` at both ends");
/// Truncated HMAC-SHA256 that authenticates a message.
pub type Code = [u8; PROOF];

/// Keys of a connection: a client that knows them may join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys([u8; 32]);

impl Keys {
    /// Derive the keys from the shared key and both ends' nonces.
    pub fn new(shared: &Key, client: [u8; 16], server: [u8; 16]) -> Self {
        Self::derive(shared, &[client, server].concat(), b"BATCP 3 connection")
    }

    /// Derive the keys that authenticate a listener's answers about unknown connections.
    fn of_none(shared: &Key) -> Self {
        Self::derive(shared, &[], b"BATCP 3 no connection")
    }

    fn derive(shared: &Key, salt: &[u8], purpose: &[u8]) -> Self {
        let mut key = [0; 32];
        Hkdf::<Sha256>::new(Some(salt), &shared.0).expand(purpose, &mut key).expect("HKDF gives up to 8160 octets");
        Self(key)
    }

    fn mac(&self, purpose: &[u8], text: &[u8]) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.0)
            .expect("any length serves as key")
            .chain_update(purpose)
            .chain_update(text)
    }

    fn code(&self, purpose: &[u8], text: &[u8]) -> Code {
        let mut code = [0; PROOF];
        code.copy_from_slice(&self.mac(purpose, text).finalize().into_bytes()[..PROOF]);
        code
    }

    /// Return the opener's proof: an HMAC over hello and answer.
    pub fn proof(&self, open: &Hello, answer: &Answer) -> Code {
        self.code(b"proof", &[open.encode(), answer.encode()].concat())
    }

    /// Return the secret for sealing the subflow that began with `hello`.
    pub fn secret(&self, hello: &Hello) -> [u8; 32] {
        self.mac(b"seal", &hello.encode()).finalize().into_bytes().into()
    }

    /// Return true if `proof` is the opener's. Compared in constant time.
    pub fn proves(&self, proof: &Code, open: &Hello, answer: &Answer) -> bool {
        self.mac(b"proof", &[open.encode(), answer.encode()].concat()).verify_truncated_left(proof).is_ok()
    }
}

/// First message of a subflow's opener.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    pub mark: Mark,
    /// The interface's weights and cost, for the segments of the other direction; its name stays at home.
    pub interface: Interface,
    pub purpose: Purpose,
}

/// Purpose of a hello: to open a connection or to join one.
#[derive(Clone, Debug, PartialEq)]
pub enum Purpose {
    /// The opener's nonce, and the bytes that it takes at first.
    Open { nonce: [u8; 16], window: u64 },
    /// `code` authenticates all of the hello; `sequence` differs in each join of a connection.
    Join { token: u64, sequence: u32, code: Code },
}

impl Hello {
    /// Make a hello that opens a connection.
    pub fn open(mark: Mark, interface: &Interface, nonce: [u8; 16], window: u64) -> Self {
        Self { mark, interface: interface.clone(), purpose: Purpose::Open { nonce, window } }
    }

    /// Make a hello that joins a connection, authenticated by `keys`.
    pub fn join(mark: Mark, interface: &Interface, token: u64, sequence: u32, keys: &Keys) -> Self {
        let purpose = Purpose::Join { token, sequence, code: [0; 16] };
        let mut hello = Self { mark, interface: interface.clone(), purpose };
        let code = hello.code(keys);
        hello.purpose = Purpose::Join { token, sequence, code };
        hello
    }

    fn code(&self, keys: &Keys) -> Code {
        keys.code(b"join", &self.encode()[..SIGNED])
    }

    /// Return true if the join's sender knows the keys. Compared in constant time.
    pub fn is_authentic(&self, keys: &Keys) -> bool {
        let Purpose::Join { code, .. } = &self.purpose else { return false };
        keys.mac(b"join", &self.encode()[..SIGNED]).verify_truncated_left(code).is_ok()
    }

    pub fn encode(&self) -> [u8; HELLO] {
        let mut octets = [0; HELLO];
        let mut into = &mut octets[..];
        into.put_slice(MAGIC);
        into.put_u8(if matches!(self.purpose, Purpose::Open { .. }) { 1 } else { 2 });
        into.put_u8(self.mark.interface);
        into.put_u16(self.mark.connection);
        for number in [self.interface.weight_throughput, self.interface.weight_cost, self.interface.cost] {
            into.put_f32(number as f32);
        }
        match &self.purpose {
            Purpose::Open { nonce, window } => {
                into.put_u64(*window);
                into.put_slice(nonce);
            }
            Purpose::Join { token, sequence, code } => {
                into.put_u64(*token);
                into.put_u32(*sequence);
                into.put_bytes(0, 12);
                into.put_slice(code);
            }
        }
        octets
    }

    /// Decode a hello. Errors: no hello, one of another version, or weights and a price that no interface has.
    pub fn decode(octets: &[u8; HELLO]) -> Result<Self, Malformed> {
        let mut from = version(octets, "no hello of this protocol")?;
        let kind = from.get_u8();
        let mark = Mark { interface: from.get_u8(), connection: from.get_u16() };
        let [weight_throughput, weight_cost, cost] = [from.get_f32(), from.get_f32(), from.get_f32()].map(f64::from);
        let Mark { interface: number, connection } = mark;
        let interface = Interface { name: format!("interface {number}"), weight_throughput, weight_cost, cost };
        interface.check().map_err(Malformed)?;
        if number > 99 || connection > 9999 {
            return Err(Malformed("an interface number of more than two digits or an id of more than four"));
        }
        let number = from.get_u64();
        let (purpose, rest) = match kind {
            1 => (Purpose::Open { window: number, nonce: take(&mut from) }, from),
            2 => {
                let sequence = from.get_u32();
                let rest = from.split_off(..12).expect("it is 28 octets long");
                (Purpose::Join { token: number, sequence, code: take(&mut from) }, rest)
            }
            _ => return Err(Malformed("a hello of unknown kind")),
        };
        if rest.iter().any(|&octet| octet != 0) {
            return Err(Malformed("a hello with something in octets that are zero"));
        }
        Ok(Self { mark, interface, purpose })
    }
}

/// Answer of a listener to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accepts an open: the listener's nonce, the token for joins, the bytes that it takes at first; proof that it has
    /// the shared key.
    Welcome { nonce: [u8; 16], token: u64, window: u64, code: Code },
    /// Accepts a join: proof that the listener knows the keys.
    Joined { code: Code },
    /// Rejects a join of an unknown connection: proof that the listener has the shared key.
    Unknown { code: Code },
    /// Rejects a hello that proves nothing or is of another version.
    Refused,
    /// Rejects an open: the listener has as many connections as it may have.
    Busy,
}

impl Answer {
    /// Make the answer to an open, by a listener whose nonce has gone into `keys`.
    pub fn welcome(open: &Hello, nonce: [u8; 16], token: u64, window: u64, keys: &Keys) -> Self {
        let answer = Self::Welcome { nonce, token, window, code: [0; PROOF] };
        let code = keys.code(b"welcome", &answer.signed(open));
        Self::Welcome { nonce, token, window, code }
    }

    /// Make the answer to an authentic join.
    pub fn joined(join: &Hello, keys: &Keys) -> Self {
        let answer = Self::Joined { code: [0; PROOF] };
        Self::Joined { code: keys.code(b"joined", &answer.signed(join)) }
    }

    /// Make the answer to a join of a connection that is not known (any more).
    pub fn unknown(join: &Hello, shared: &Key) -> Self {
        let answer = Self::Unknown { code: [0; PROOF] };
        Self::Unknown { code: Keys::of_none(shared).code(b"unknown", &answer.signed(join)) }
    }

    /// Return true if the sender of the answer to `hello` has the shared key, and so the connection's keys. Compared in
    /// constant time.
    pub fn is_authentic(&self, hello: &Hello, shared: &Key, keys: &Keys) -> bool {
        let (keys, purpose, code) = match self {
            Self::Welcome { code, .. } => (*keys, &b"welcome"[..], code),
            Self::Joined { code } => (*keys, &b"joined"[..], code),
            Self::Unknown { code } => (Keys::of_none(shared), &b"unknown"[..], code),
            Self::Refused | Self::Busy => return false,
        };
        keys.mac(purpose, &self.signed(hello)).verify_truncated_left(code).is_ok()
    }

    fn signed(&self, hello: &Hello) -> Vec<u8> {
        [&hello.encode()[..], &self.encode()[..SIGNED]].concat()
    }

    pub fn encode(&self) -> [u8; ANSWER] {
        let mut octets = [0; ANSWER];
        let mut into = &mut octets[..];
        into.put_slice(MAGIC);
        let (kind, code) = match self {
            Self::Welcome { code, .. } => (1, code),
            Self::Joined { code } => (2, code),
            Self::Refused => (3, &[0; PROOF]),
            Self::Unknown { code } => (4, code),
            Self::Busy => (5, &[0; PROOF]),
        };
        into.put_u64(kind);
        if let Self::Welcome { nonce, token, window, .. } = self {
            into.put_u64(*token);
            into.put_u64(*window);
            into.put_slice(nonce);
        }
        octets[SIGNED..].copy_from_slice(code);
        octets
    }

    /// Decode an answer. Errors: no answer of this protocol and version.
    pub fn decode(octets: &[u8; ANSWER]) -> Result<Self, Malformed> {
        let mut from = version(octets, "no answer of this protocol")?;
        let kind = from.get_u64();
        let (token, window, nonce, code) = (from.get_u64(), from.get_u64(), take(&mut from), take(&mut from));
        Ok(match kind {
            1 => Self::Welcome { nonce, token, window, code },
            2 => Self::Joined { code },
            3 => Self::Refused,
            4 => Self::Unknown { code },
            5 => Self::Busy,
            _ => return Err(Malformed("an answer of unknown kind")),
        })
    }
}

/// Return the octets after the magic. Errors: it is missing, or of another version.
fn version<'o>(octets: &'o [u8], foreign: &'static str) -> Result<&'o [u8], Malformed> {
    let (name, number) = MAGIC.split_at(MAGIC.len() - 1);
    match octets.strip_prefix(name) {
        Some(rest) if rest.starts_with(number) => Ok(&rest[1..]),
        Some(_) => Err(OTHER_VERSION),
        None => Err(Malformed(foreign)),
    }
}

fn take(from: &mut &[u8]) -> [u8; 16] {
    let mut octets = [0; 16];
    from.copy_to_slice(&mut octets);
    octets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENT: [u8; 16] = [1; 16];
    const SERVER: [u8; 16] = [2; 16];

    fn shared(key: &[u8]) -> Key {
        Key(key.into())
    }

    fn keys() -> Keys {
        Keys::new(&shared(b"shared"), CLIENT, SERVER)
    }

    fn join(keys: &Keys) -> Hello {
        let interface = "a:0.25:0.75:2".parse().unwrap();
        Hello::join(Mark { interface: 7, connection: 1234 }, &interface, 99, 3, keys)
    }

    #[test]
    fn a_join_proves_that_it_knows_the_shared_key_and_both_nonces() {
        let sent = join(&keys());
        let got = Hello::decode(&sent.encode()).unwrap();
        assert_eq!((got.mark, &got.purpose), (sent.mark, &sent.purpose));
        assert_eq!((got.interface.weight_cost, got.interface.cost), (0.75, 2.0));
        assert!(got.is_authentic(&keys()));
        for (key, client, server) in [
            (&b"shared"[..], CLIENT, [3; 16]),
            (b"shared", SERVER, CLIENT),
            (b"other", CLIENT, SERVER),
            (b"", CLIENT, SERVER),
        ] {
            assert!(!got.is_authentic(&Keys::new(&shared(key), client, server)), "who saw the nonces may not join");
        }
    }

    #[test]
    fn answers_and_the_openers_proof_show_who_has_the_shared_key() {
        let (open, join) =
            (Hello::open(Mark { interface: 0, connection: 1 }, &Interface::new("a"), CLIENT, 5), join(&keys()));
        let ours = shared(b"shared");
        for (hello, answer) in [
            (&open, Answer::welcome(&open, SERVER, 9, 8, &keys())),
            (&join, Answer::joined(&join, &keys())),
            (&join, Answer::unknown(&join, &ours)),
        ] {
            let got = Answer::decode(&answer.encode()).unwrap();
            assert_eq!(got, answer);
            assert!(got.is_authentic(hello, &ours, &keys()));
            let other = Keys::new(&shared(b"other"), CLIENT, SERVER);
            assert!(!got.is_authentic(hello, &shared(b"other"), &other), "another key");
            let elsewhere = if hello == &open { &join } else { &open };
            assert!(!got.is_authentic(elsewhere, &ours, &keys()), "the answer to something else");
        }
        for answer in [Answer::Refused, Answer::Busy] {
            assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
            assert!(!answer.is_authentic(&join, &ours, &keys()));
        }
        let welcome = Answer::welcome(&open, SERVER, 9, 8, &keys());
        let proof = keys().proof(&open, &welcome);
        assert!(keys().proves(&proof, &open, &welcome));
        assert!(!keys().proves(&[0; PROOF], &open, &welcome));
        assert!(!keys().proves(&proof, &open, &Answer::welcome(&open, SERVER, 9, 7, &keys())));
    }

    #[test]
    fn weights_and_prices_that_no_interface_has_are_refused() {
        let hello = |cost: f32, weights: [f32; 2]| {
            let mut octets =
                Hello::open(Mark { interface: 0, connection: 1 }, &Interface::new("a"), CLIENT, 5).encode();
            for (at, number) in [(12, weights[0]), (16, weights[1]), (20, cost)] {
                octets[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            Hello::decode(&octets)
        };
        for cost in [1e-45, 3e38, 0.0, -1.0, f32::NAN, f32::INFINITY, 1e-7, 2e6] {
            assert!(hello(cost, [0.5, 0.5]).is_err(), "{cost}");
        }
        for weights in [[1.0, 1.0], [0.0, 0.0], [f32::NAN, 1.0], [2.0, -1.0]] {
            assert!(hello(1.0, weights).is_err(), "{weights:?}");
        }
        for cost in [1e-6, 1e6] {
            assert_eq!(hello(cost, [0.9, 0.1]).unwrap().interface.cost, f64::from(cost));
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut hello = join(&keys()).encode();
        hello[7] = 1;
        assert_eq!(Hello::decode(&hello), Err(OTHER_VERSION));
        assert!(Hello::decode(b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n..............").is_err());
    }

    proptest! {
        #[test]
        fn a_join_with_any_octet_changed_is_not_authentic(at in 0usize..HELLO, change in 1u8..) {
            let mut octets = join(&keys()).encode();
            octets[at] ^= change;
            prop_assert!(!Hello::decode(&octets).is_ok_and(|hello| hello.is_authentic(&keys())));
        }

        #[test]
        fn any_octets_are_decoded_or_refused(octets in prop::collection::vec(any::<u8>(), 55), kind in 0u8..6) {
            let mut hello = [0; HELLO];
            hello[..8].copy_from_slice(MAGIC);
            hello[8] = kind;
            hello[9..].copy_from_slice(&octets);
            if let Ok(hello) = Hello::decode(&hello) {
                prop_assert!(hello.mark.connection <= 9999);
                prop_assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
            }
            let mut answer = [0; ANSWER];
            answer[..8].copy_from_slice(MAGIC);
            answer[15] = kind;
            answer[16..].copy_from_slice(&octets[..48]);
            let _ = Answer::decode(&answer);
        }
    }
}
