// SPDX-License-Identifier: Apache-2.0
//! Seals what a subflow carries: Noise_NNpsk0_25519_AESGCM_SHA256 (noiseprotocol.org, revision 34) through `snow`.
//!
//! The two ends that have a key in common have proved it when this begins, so that the secret of each subflow comes of the
//! connection's keys and its hello; the ephemeral keys of both ends make what was recorded worthless to who gets the key
//! later. Then come records: a length (2 octets, network byte order) and one sealed frame with its tag of 16.

use std::io;

use bytes::{Buf, BytesMut};
use snow::{Builder, HandshakeState, StatelessTransportState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::keeper::HANDSHAKE;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const TAG: usize = 16;
/// Octets of Noise's messages: an ephemeral key, and nothing sealed.
pub const MESSAGE: usize = 32 + TAG;
/// Octets that a frame becomes longer.
pub const OVERHEAD: usize = 2 + TAG;
/// The longest frame: Noise's messages have 65535 octets at most.
pub const LONGEST: usize = 65_535 - TAG;

/// A subflow's keys in both directions; whoever uses them counts the records.
pub type Seal = StatelessTransportState;

fn handshake(secret: &[u8; 32], opens: bool) -> HandshakeState {
    let keys = Builder::new(PATTERN.parse().expect("a pattern of Noise")).psk(0, secret);
    let made = keys.and_then(|keys| if opens { keys.build_initiator() } else { keys.build_responder() });
    made.expect("a secret of 32 octets")
}

async fn say<S: AsyncWrite + Unpin>(noise: &mut HandshakeState, stream: &mut S) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    let length = noise.write_message(&[], &mut message).map_err(io::Error::other)?;
    stream.write_all(&message[..length]).await
}

async fn hear<S: AsyncRead + Unpin>(noise: &mut HandshakeState, stream: &mut S) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    timeout(HANDSHAKE, stream.read_exact(&mut message)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    noise.read_message(&message, &mut [0; MESSAGE]).map_err(|_| invalid("who answers is not the peer"))?;
    Ok(())
}

/// The opener's part. Errors: the peer is silent, or another one.
pub async fn open<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, secret: &[u8; 32]) -> io::Result<Seal> {
    let mut noise = handshake(secret, true);
    say(&mut noise, stream).await?;
    hear(&mut noise, stream).await?;
    noise.into_stateless_transport_mode().map_err(io::Error::other)
}

/// The listener's part. Errors: the same.
pub async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, secret: &[u8; 32]) -> io::Result<Seal> {
    let mut noise = handshake(secret, false);
    hear(&mut noise, stream).await?;
    say(&mut noise, stream).await?;
    noise.into_stateless_transport_mode().map_err(io::Error::other)
}

/// Records that are written together. What they hold is overwritten by the next ones, which costs less than to clear it.
#[derive(Default)]
pub struct Records {
    octets: Vec<u8>,
    length: usize,
    /// Of the records so far in this direction.
    count: u64,
}

impl Records {
    pub fn clear(&mut self) {
        self.length = 0;
    }

    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }

    /// Appends a record.
    pub fn push(&mut self, seal: &Seal, frame: &[u8]) {
        let (start, end) = (self.length, self.length + OVERHEAD + frame.len());
        if self.octets.len() < end {
            self.octets.resize(end, 0);
        }
        let into = &mut self.octets[start..end];
        into[..2].copy_from_slice(&((frame.len() + TAG) as u16).to_be_bytes());
        seal.write_message(self.count, frame, &mut into[2..]).expect("frames are at most LONGEST long");
        (self.length, self.count) = (end, self.count + 1);
    }
}

/// Moves the frames of the whole records in `from` to `into`. Errors: one that the peer has not sealed, or not as the next.
pub fn unseal(seal: &Seal, count: &mut u64, from: &mut BytesMut, into: &mut BytesMut) -> io::Result<()> {
    while let Some(head) = from.first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*head));
        if from.len() < 2 + length {
            break;
        }
        let start = into.len();
        into.resize(start + length, 0);
        let opened = seal.read_message(*count, &from[2..2 + length], &mut into[start..]);
        into.truncate(start + *opened.as_ref().unwrap_or(&0));
        opened.map_err(|_| invalid("a record that the peer has not sealed"))?;
        from.advance(2 + length);
        *count += 1;
    }
    Ok(())
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meet(ours: [u8; 32], theirs: [u8; 32]) -> (io::Result<Seal>, io::Result<Seal>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut a, mut b) = tokio::io::duplex(4096);
            let there = async move { answer(&mut b, &theirs).await };
            tokio::join!(async { open(&mut a, &ours).await }, there)
        })
    }

    #[test]
    fn another_secret_makes_no_subflow() {
        let (here, there) = meet([1; 32], [2; 32]);
        assert!(here.is_err() && there.is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn frames_pass_sealed_in_any_pieces(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 8..3000), 1..6),
            cut in 1usize..700,
            flip in any::<prop::sample::Index>(),
        ) {
            let (here, there) = meet([1; 32], [1; 32]);
            let (here, there) = (here.unwrap(), there.unwrap());
            let mut records = Records::default();
            frames.iter().for_each(|frame| records.push(&here, frame));
            let mut octets = records.octets().to_vec();
            prop_assert_eq!(octets.len(), frames.iter().map(|frame| frame.len() + OVERHEAD).sum::<usize>());
            prop_assert!(!octets.windows(8).any(|part| part == &frames[0][..8]));
            let (mut from, mut got, mut count) = (BytesMut::new(), BytesMut::new(), 0);
            for piece in octets.chunks(cut) {
                from.extend_from_slice(piece);
                unseal(&there, &mut count, &mut from, &mut got).unwrap();
            }
            prop_assert_eq!(&got[..], &frames.concat()[..]);
            // Changed in any octet, or again: nothing of it passes.
            let at = flip.index(octets.len());
            prop_assert!(unseal(&there, &mut count, &mut BytesMut::from(&octets[..]), &mut got).is_err());
            octets[at] ^= 1;
            let (mut from, mut got, mut count) = (BytesMut::from(&octets[..]), BytesMut::new(), 0);
            let done = unseal(&there, &mut count, &mut from, &mut got);
            prop_assert!(done.is_err() || got.len() < frames.concat().len());
            prop_assert!(frames.concat().starts_with(&got[..]));
        }
    }

    #[test]
    fn the_longest_frame_fits() {
        let (here, there) = meet([1; 32], [1; 32]);
        let (mut records, mut got) = (Records::default(), BytesMut::new());
        records.push(&here.unwrap(), &[7; LONGEST]);
        unseal(&there.unwrap(), &mut 0, &mut BytesMut::from(records.octets()), &mut got).unwrap();
        assert_eq!(got.len(), LONGEST);
    }
}
