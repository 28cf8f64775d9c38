// SPDX-License-Identifier: Apache-2.0
//! Seals what a subflow carries: Noise_NNpsk0_25519_AESGCM_SHA256 (noiseprotocol.org, revision 34) through `snow`.
//!
//! The two ends that have a key in common have proved it when this begins, so that the secret of each subflow comes of the
//! connection's keys and its hello; the ephemeral keys of both ends make what was recorded worthless to who gets the key
//! later. Then come records: a length (2 octets, network byte order) and one sealed frame with its tag of 16. The handshake is
//! `snow`'s; records are sealed and opened where they lie, by `ring`, with the keys and the nonces that Noise gives them.

use std::io;

use bytes::{Buf, BytesMut};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use snow::{Builder, HandshakeState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::hello::HANDSHAKE;
use super::segment::MAX_FRAME;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const TAG: usize = 16;
/// Octets of Noise's messages: an ephemeral key, and nothing sealed.
pub const MESSAGE: usize = 32 + TAG;
/// Octets that a frame becomes longer.
pub const OVERHEAD: usize = 2 + TAG;
/// Noise's messages have 65535 octets at most.
const _: () = assert!(MAX_FRAME + TAG == 65_535);

/// Keys of a subflow in both directions; the caller counts the records.
pub struct Seal {
    send: LessSafeKey,
    receive: LessSafeKey,
}

impl Seal {
    /// Take the keys from a finished handshake; `opens`: this end began it.
    fn new(mut noise: HandshakeState, opens: bool) -> Self {
        let key = |octets| LessSafeKey::new(UnboundKey::new(&AES_256_GCM, octets).expect("a key of 32 octets"));
        let (opener, listener) = noise.dangerously_get_raw_split();
        let (send, receive) = if opens { (opener, listener) } else { (listener, opener) };
        Self { send: key(&send), receive: key(&receive) }
    }
}

/// Noise's nonce of AES-GCM: four octets of zero, and the record's number.
fn nonce(count: u64) -> Nonce {
    let mut octets = [0; 12];
    octets[4..].copy_from_slice(&count.to_be_bytes());
    Nonce::assume_unique_for_key(octets)
}

fn handshake(secret: &[u8; 32], opens: bool) -> HandshakeState {
    let keys = Builder::new(PATTERN.parse().expect("a pattern of Noise")).psk(0, secret);
    let made = keys.and_then(|keys| if opens { keys.build_initiator() } else { keys.build_responder() });
    made.expect("a secret of 32 octets")
}

async fn send_message<S: AsyncWrite + Unpin>(noise: &mut HandshakeState, stream: &mut S) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    let length = noise.write_message(&[], &mut message).map_err(io::Error::other)?;
    stream.write_all(&message[..length]).await
}

async fn receive_message<S: AsyncRead + Unpin>(noise: &mut HandshakeState, stream: &mut S) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    timeout(HANDSHAKE, stream.read_exact(&mut message)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    noise.read_message(&message, &mut [0; MESSAGE]).map_err(|_| invalid("who answers is not the peer"))?;
    Ok(())
}

/// Run the opener's part of the handshake. Errors: the peer is silent, or another one.
pub async fn open<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, secret: &[u8; 32]) -> io::Result<Seal> {
    let mut noise = handshake(secret, true);
    send_message(&mut noise, stream).await?;
    receive_message(&mut noise, stream).await?;
    Ok(Seal::new(noise, true))
}

/// Run the listener's part of the handshake. Errors: the peer is silent, or another one.
pub async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, secret: &[u8; 32]) -> io::Result<Seal> {
    let mut noise = handshake(secret, false);
    receive_message(&mut noise, stream).await?;
    send_message(&mut noise, stream).await?;
    Ok(Seal::new(noise, false))
}

/// Records that are written together. The next ones overwrite them, which costs less than clearing.
#[derive(Default)]
pub struct Records {
    octets: Vec<u8>,
    length: usize,
    /// Number of records so far in this direction.
    count: u64,
}

impl Records {
    pub fn clear(&mut self) {
        self.length = 0;
    }

    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }

    /// Append a record of a frame, given as its head and the rest.
    pub fn push(&mut self, seal: &Seal, head: &[u8], rest: &[u8]) {
        let length = head.len() + rest.len();
        let (start, end) = (self.length, self.length + OVERHEAD + length);
        if self.octets.len() < end {
            self.octets.resize(end, 0);
        }
        let (size, sealed) = self.octets[start..end].split_at_mut(2);
        size.copy_from_slice(&((length + TAG) as u16).to_be_bytes());
        let (frame, tag) = sealed.split_at_mut(length);
        frame[..head.len()].copy_from_slice(head);
        frame[head.len()..].copy_from_slice(rest);
        let made = seal.send.seal_in_place_separate_tag(nonce(self.count), Aad::empty(), frame);
        tag.copy_from_slice(made.expect("frames are at most MAX_FRAME long").as_ref());
        (self.length, self.count) = (end, self.count + 1);
    }
}

/// Take the frame of the first whole record out of `from`, opened in place; None while it is incomplete. Errors: a
/// record that the peer has not sealed, or not as the next.
pub fn unseal(seal: &Seal, count: &mut u64, from: &mut BytesMut) -> io::Result<Option<BytesMut>> {
    let Some(head) = from.first_chunk::<2>() else { return Ok(None) };
    let whole = 2 + usize::from(u16::from_be_bytes(*head));
    if from.len() < whole {
        from.reserve(whole - from.len());
        return Ok(None);
    }
    let mut record = from.split_to(whole);
    record.advance(2);
    let opened = seal.receive.open_in_place(nonce(*count), Aad::empty(), &mut record);
    let length = opened.map_err(|_| invalid("a record that the peer has not sealed"))?.len();
    record.truncate(length);
    *count += 1;
    Ok(Some(record))
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
            frames.iter().for_each(|frame| records.push(&here, &frame[..3], &frame[3..]));
            let mut octets = records.octets().to_vec();
            prop_assert_eq!(octets.len(), frames.iter().map(|frame| frame.len() + OVERHEAD).sum::<usize>());
            prop_assert!(!octets.windows(8).any(|part| part == &frames[0][..8]));
            let (mut from, mut got, mut count) = (BytesMut::new(), Vec::new(), 0);
            for piece in octets.chunks(cut) {
                from.extend_from_slice(piece);
                while let Some(frame) = unseal(&there, &mut count, &mut from).unwrap() {
                    got.push(frame.to_vec());
                }
            }
            prop_assert_eq!(&got, &frames);
            // Changed in any octet, or again: nothing of it passes.
            let at = flip.index(octets.len());
            prop_assert!(unseal(&there, &mut count, &mut BytesMut::from(&octets[..])).is_err());
            octets[at] ^= 1;
            let (mut from, mut got, mut count) = (BytesMut::from(&octets[..]), Vec::new(), 0);
            while let Ok(Some(frame)) = unseal(&there, &mut count, &mut from) {
                got.push(frame.to_vec());
            }
            prop_assert!(got.len() < frames.len() && frames.starts_with(&got));
        }
    }

    #[test]
    fn the_longest_frame_fits() {
        let (here, there) = meet([1; 32], [1; 32]);
        let mut records = Records::default();
        records.push(&here.unwrap(), &[], &[7; MAX_FRAME]);
        let got = unseal(&there.unwrap(), &mut 0, &mut BytesMut::from(records.octets())).unwrap().unwrap();
        assert_eq!(got, [7; MAX_FRAME][..]);
    }
}
