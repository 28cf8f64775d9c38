// SPDX-License-Identifier: Apache-2.0
//! The first octets of every subflow: who opens a connection, who joins one, and the answer (paper 003, section 3.1).
//!
//! The connection id of section 3 has four digits, so anyone could guess one and join. Here the first subflow's two hellos each
//! carry a random key of 128 bits; a join names the connection by a random 64-bit token and carries an HMAC-SHA256 of itself
//! under both keys, with a sequence number that serves once. Who sees the first subflow can join, as with MPTCP (RFC 8684,
//! section 10); who sees only others, or nothing, cannot. The answer to a join is authenticated too.
//!
//! Both are of fixed length: hellos 64 octets, answers 48, numbers in network byte order.

use bytes::{Buf, BufMut};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::segment::Malformed;
use super::{Interface, Mark};

pub const HELLO: usize = 64;
pub const ANSWER: usize = 48;
const MAGIC: &[u8; 8] = b"BATCP\r\n\x01";
/// Octets of a hello that a join's authentication covers.
const SIGNED: usize = 48;
type Code = [u8; 16];

/// Both ends' random keys: who knows them may join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys(pub [u8; 32]);

impl Keys {
    pub fn new(client: [u8; 16], server: [u8; 16]) -> Self {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&client);
        both[16..].copy_from_slice(&server);
        Self(both)
    }

    fn mac(&self, purpose: &[u8], text: &[u8]) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.0)
            .expect("any length serves as key")
            .chain_update(purpose)
            .chain_update(text)
    }

    fn code(&self, purpose: &[u8], text: &[u8]) -> Code {
        let mut code = [0; 16];
        code.copy_from_slice(&self.mac(purpose, text).finalize().into_bytes()[..16]);
        code
    }
}

/// What the opener of a subflow says.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    pub mark: Mark,
    /// The interface's weights and cost, for the segments of the other direction; its name stays at home.
    pub interface: Interface,
    pub purpose: Purpose,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Purpose {
    /// The opener's key, and how many bytes it takes.
    Open { key: [u8; 16], window: u64 },
    /// `code` authenticates all of the hello; `sequence` differs in each join of a connection.
    Join { token: u64, sequence: u32, code: Code },
}

impl Hello {
    pub fn open(mark: Mark, interface: &Interface, key: [u8; 16], window: u64) -> Self {
        Self { mark, interface: interface.clone(), purpose: Purpose::Open { key, window } }
    }

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

    /// Whether a join comes from who knows the keys. Compared in constant time.
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
            Purpose::Open { key, window } => {
                into.put_u64(*window);
                into.put_slice(key);
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

    /// Errors: this is no hello, or weights and cost that no interface has.
    pub fn decode(octets: &[u8; HELLO]) -> Result<Self, Malformed> {
        let mut from = &octets[..];
        if from.copy_to_bytes(MAGIC.len()) != MAGIC[..] {
            return Err(Malformed("no hello of this protocol and version"));
        }
        let kind = from.get_u8();
        let mark = Mark { interface: from.get_u8(), connection: from.get_u16() };
        let [weight_throughput, weight_cost, cost] = [from.get_f32(), from.get_f32(), from.get_f32()].map(f64::from);
        let weights = [weight_throughput, weight_cost];
        if !(weights.iter().all(|weight| (0.0..=1.0).contains(weight)) && cost > 0.0 && cost.is_finite()) {
            return Err(Malformed("weights outside 0..1 or a cost not above 0"));
        }
        let Mark { interface: number, connection } = mark;
        if number > 99 || connection > 9999 {
            return Err(Malformed("an interface number of more than two digits or an id of more than four"));
        }
        let number = from.get_u64();
        let purpose = match kind {
            1 => Purpose::Open { window: number, key: take(&mut from) },
            2 => {
                let sequence = from.get_u32();
                from.advance(12);
                Purpose::Join { token: number, sequence, code: take(&mut from) }
            }
            _ => return Err(Malformed("a hello of unknown kind")),
        };
        let name = format!("interface {}", mark.interface);
        Ok(Self { mark, interface: Interface { name, weight_throughput, weight_cost, cost }, purpose })
    }
}

/// What the listener says to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To an open: the listener's key, the token for joins, how many bytes it takes.
    Welcome { key: [u8; 16], token: u64, window: u64 },
    /// To a join: proof that the listener knows the keys.
    Joined { code: Code },
    /// To a join of a connection that the listener does not know.
    Refused,
}

impl Answer {
    /// The answer to an authentic join.
    pub fn joined(join: &Hello, keys: &Keys) -> Self {
        Self::Joined { code: keys.code(b"joined", &join.encode()) }
    }

    pub fn encode(&self) -> [u8; ANSWER] {
        let mut octets = [0; ANSWER];
        let mut into = &mut octets[..];
        into.put_slice(MAGIC);
        match self {
            Self::Welcome { key, token, window } => {
                into.put_u64(1);
                into.put_u64(*token);
                into.put_u64(*window);
                into.put_slice(key);
            }
            Self::Joined { code } => {
                into.put_u64(2);
                into.put_slice(code);
            }
            Self::Refused => into.put_u64(3),
        }
        octets
    }

    /// Errors: this is no answer of this protocol.
    pub fn decode(octets: &[u8; ANSWER]) -> Result<Self, Malformed> {
        let mut from = &octets[..];
        if from.copy_to_bytes(MAGIC.len()) != MAGIC[..] {
            return Err(Malformed("no answer of this protocol and version"));
        }
        Ok(match from.get_u64() {
            1 => Self::Welcome { token: from.get_u64(), window: from.get_u64(), key: take(&mut from) },
            2 => Self::Joined { code: take(&mut from) },
            3 => Self::Refused,
            _ => return Err(Malformed("an answer of unknown kind")),
        })
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

    fn join(keys: &Keys) -> Hello {
        let interface = "a:0.25:0.75:2".parse().unwrap();
        Hello::join(Mark { interface: 7, connection: 1234 }, &interface, 99, 3, keys)
    }

    #[test]
    fn a_join_proves_that_it_knows_both_keys() {
        let keys = Keys::new([1; 16], [2; 16]);
        let sent = join(&keys);
        let got = Hello::decode(&sent.encode()).unwrap();
        assert_eq!((got.mark, &got.purpose), (sent.mark, &sent.purpose));
        assert_eq!((got.interface.weight_cost, got.interface.cost), (0.75, 2.0));
        assert!(got.is_authentic(&keys));
        assert!(!got.is_authentic(&Keys::new([1; 16], [3; 16])));
        assert!(!got.is_authentic(&Keys::new([2; 16], [1; 16])));
        let answer = Answer::joined(&sent, &keys);
        assert_eq!(Answer::decode(&answer.encode()).unwrap(), Answer::joined(&got, &keys));
    }

    proptest! {
        #[test]
        fn a_join_with_any_octet_changed_is_not_authentic(at in 8usize..HELLO, change in 1u8..) {
            let keys = Keys::new([1; 16], [2; 16]);
            let mut octets = join(&keys).encode();
            octets[at] ^= change;
            // Octets 36..48 are padding: a receiver never reads them, so they change nothing.
            prop_assume!(!(36..SIGNED).contains(&at));
            prop_assert!(!Hello::decode(&octets).is_ok_and(|hello| hello.is_authentic(&keys)));
        }

        #[test]
        fn any_octets_are_decoded_or_refused(octets in prop::array::uniform32(any::<u8>()), kind in 0u8..4) {
            let mut hello = [0; HELLO];
            hello[..8].copy_from_slice(MAGIC);
            hello[8] = kind;
            hello[9..41].copy_from_slice(&octets);
            if let Ok(hello) = Hello::decode(&hello) {
                prop_assert!(hello.mark.connection <= 9999);
                prop_assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
            }
            let mut answer = [0; ANSWER];
            answer[..8].copy_from_slice(MAGIC);
            answer[15] = kind;
            answer[16..].copy_from_slice(&octets);
            let _ = Answer::decode(&answer);
        }
    }

    #[test]
    fn answers_survive() {
        for answer in
            [Answer::Welcome { key: [7; 16], token: 5, window: 6 }, Answer::Joined { code: [8; 16] }, Answer::Refused]
        {
            assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
        }
        assert!(Hello::decode(b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n..............").is_err());
    }
}
