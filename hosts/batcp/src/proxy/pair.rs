// SPDX-License-Identifier: Apache-2.0
//! Handshake of two proxies at the start of a connection, before they relay bytes.
//!
//! ```text
//! remote: version (1 byte), challenge (32)
//! local:  nonce (32), tag (32), destination (RFC 1928: type, address, port)
//! remote: reply (1, REP of RFC 1928), tag (32)
//! ```
//!
//! The tags are HMAC-SHA-256 (RFC 2104) under the shared key over a word for the direction, challenge, nonce and what
//! the message says. They prove that both know the key, now and for this destination; a replay fails, as the challenge
//! is new. Without a key the key is empty. A connection over BATCP has proved the key before,
//! and is sealed; over plain TCP this is the only proof, and the bytes that follow are the application's affair (TLS).

use std::io;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use rand::RngExt;
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::destination::{Destination, Reply};
use crate::Key;

const VERSION: u8 = 1;
const RANDOM: usize = 32;
/// Time that a client has to send its request.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Time that the remote proxy has to connect.
const CONNECT: Duration = Duration::from_secs(30);

/// Challenge, nonce and key that authenticate the messages of one connection.
struct Session<'k> {
    key: &'k Key,
    challenge: [u8; RANDOM],
    nonce: [u8; RANDOM],
}

impl Session<'_> {
    fn mac(&self, direction: &[u8], says: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::new_from_slice(&self.key.0).expect("HMAC takes keys of any length");
        for part in [direction, &self.challenge, &self.nonce, says] {
            mac.update(part);
        }
        mac
    }

    fn tag(&self, direction: &[u8], says: &[u8]) -> Vec<u8> {
        self.mac(direction, says).finalize().into_bytes().to_vec()
    }

    fn verify(&self, direction: &[u8], says: &[u8], tag: &[u8]) -> bool {
        self.mac(direction, says).verify_slice(tag).is_ok()
    }

    async fn reply<S: AsyncWrite + Unpin>(&self, stream: &mut S, reply: Reply) -> io::Result<()> {
        let says = [reply as u8];
        stream.write_all(&[&says[..], &self.tag(REPLY, &says)].concat()).await?;
        stream.flush().await
    }
}

const REQUEST: &[u8] = b"BATCP proxy request";
const REPLY: &[u8] = b"BATCP proxy reply";

/// Challenge of the remote proxy.
pub struct Greeting([u8; RANDOM]);

/// Receive the greeting of the remote proxy at the other end of `stream`. Errors: a peer that is no proxy
/// (`InvalidData`), a silent one (`TimedOut`).
pub async fn receive_greeting<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Greeting> {
    let mut challenge = [0; RANDOM];
    let version = timeout(PATIENCE, async {
        let version = stream.read_u8().await?;
        stream.read_exact(&mut challenge).await?;
        io::Result::Ok(version)
    })
    .await??;
    if version != VERSION {
        return Err(invalid("the peer is no remote proxy of this version"));
    }
    Ok(Greeting(challenge))
}

/// Request a connection from a remote proxy after its greeting and return its reply (RFC 1928, section 6),
/// authenticated by HMAC (RFC 2104). Errors: a peer that has another key (`InvalidData`), a silent one (`TimedOut`).
pub async fn request<S>(stream: &mut S, key: &Key, greeting: Greeting, destination: &Destination) -> io::Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let session = Session { key, challenge: greeting.0, nonce: rand::rng().random() };
    let says = destination.encode();
    let message = [&session.nonce[..], &session.tag(REQUEST, &says), &says].concat();
    stream.write_all(&message).await?;
    stream.flush().await?;
    let mut reply = [0; 1 + RANDOM];
    timeout(CONNECT, stream.read_exact(&mut reply)).await??;
    if !session.verify(REPLY, &reply[..1], &reply[1..]) {
        return Err(invalid("the remote proxy has another key"));
    }
    Ok(Reply::from_byte(reply[0]))
}

/// Request of a local proxy that has the key.
pub struct Request<'k> {
    session: Session<'k>,
    pub destination: Destination,
}

/// Receive a request on `stream` at the remote proxy and check the client's HMAC (RFC 2104); a client with another key
/// is informed, and gives `None`. Errors: a client that breaks off, sends no request, or takes longer than `patience`.
pub async fn receive_request<'k, S>(stream: &mut S, key: &'k Key, patience: Duration) -> io::Result<Option<Request<'k>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut session = Session { key, challenge: rand::rng().random(), nonce: [0; RANDOM] };
    timeout(patience, async {
        stream.write_all(&[&[VERSION], &session.challenge[..]].concat()).await?;
        stream.flush().await?;
        let mut tag = [0; RANDOM];
        stream.read_exact(&mut session.nonce).await?;
        stream.read_exact(&mut tag).await?;
        let destination = Destination::read(stream).await?;
        if session.verify(REQUEST, &destination.encode(), &tag) {
            return Ok(Some(Request { session, destination }));
        }
        session.reply(stream, Reply::NotAllowed).await?;
        Ok(None)
    })
    .await?
}

impl Request<'_> {
    /// Send the reply to the client (RFC 1928, section 6). Errors: it does not take that within `PATIENCE`.
    pub async fn reply<S: AsyncWrite + Unpin>(&self, stream: &mut S, reply: Reply) -> io::Result<()> {
        timeout(PATIENCE, self.session.reply(stream, reply)).await?
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn meet(local: &[u8], remote: &[u8], reply: Result<(), Reply>) -> (io::Result<Reply>, Option<Destination>) {
        let (mut a, mut b) = tokio::io::duplex(4096);
        let (local, remote) = (Key(local.into()), Key(remote.into()));
        let to = Destination::Name("example.org".into(), 80);
        let serve = async {
            let request = receive_request(&mut b, &remote, PATIENCE).await.unwrap()?;
            request.reply(&mut b, reply.err().unwrap_or(Reply::Succeeded)).await.unwrap();
            Some(request.destination)
        };
        let asking = async {
            let greeting = receive_greeting(&mut a).await?;
            request(&mut a, &local, greeting, &to).await
        };
        tokio::join!(asking, serve)
    }

    #[tokio::test]
    async fn proxies_with_one_key_agree() {
        let to = Some(Destination::Name("example.org".into(), 80));
        for key in [&b"a key of sixteen"[..], b""] {
            assert!(matches!(meet(key, key, Ok(())).await, (Ok(Reply::Succeeded), asked) if asked == to));
            assert!(matches!(meet(key, key, Err(Reply::Refused)).await, (Ok(Reply::Refused), asked) if asked == to));
        }
    }

    #[tokio::test]
    async fn another_key_connects_nowhere() {
        for (local, remote) in [(&b"one"[..], &b"other"[..]), (b"", b"other"), (b"one", b"")] {
            let (reply, asked) = meet(local, remote, Ok(())).await;
            assert_eq!((reply.unwrap_err().kind(), asked), (io::ErrorKind::InvalidData, None));
        }
    }

    #[tokio::test]
    async fn a_replayed_request_is_refused() {
        let key = Key(b"key".into());
        let (mut a, mut b) = tokio::io::duplex(4096);
        let session = Session { key: &key, challenge: [1; RANDOM], nonce: [2; RANDOM] };
        let says = Destination::Address(([10, 0, 0, 1], 80).into()).encode();
        let replayed = [&session.nonce[..], &session.tag(REQUEST, &says), &says].concat();
        a.write_all(&replayed).await.unwrap();
        assert!(receive_request(&mut b, &key, PATIENCE).await.unwrap().is_none());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_connect_nowhere(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let (mut a, mut b) = tokio::io::duplex(4096);
                a.write_all(&bytes).await.unwrap();
                a.shutdown().await.unwrap();
                assert!(matches!(receive_request(&mut b, &Key(b"key".into()), PATIENCE).await, Err(_) | Ok(None)));
            });
        }
    }
}
