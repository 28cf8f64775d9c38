// SPDX-License-Identifier: Apache-2.0
//! SOCKS5's first messages (RFC 1928, RFC 1929): the client's credentials and its destination.
//!
//! CONNECT only; methods "no authentication" and "user name and password". GSSAPI, which RFC 1928 demands, is not
//! offered.

use std::io;
use std::net::SocketAddr;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::destination::{Destination, Reply};
use super::pair::PATIENCE;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;

/// The one user that may connect (RFC 1929), kept as a digest so that comparing takes the same time for every guess.
pub struct Credentials([u8; 32]);

impl Credentials {
    /// Make credentials of 1 to 255 bytes each (RFC 1929, section 2); `None` otherwise.
    pub fn new(user: &[u8], password: &[u8]) -> Option<Self> {
        let fits = |text: &[u8]| (1..=255).contains(&text.len());
        (fits(user) && fits(password)).then(|| Self(Self::digest(user, password)))
    }

    fn digest(user: &[u8], password: &[u8]) -> [u8; 32] {
        // The length keeps "ab", "c" and "a", "bc" apart.
        Sha256::new().chain_update([user.len() as u8]).chain_update(user).chain_update(password).finalize().into()
    }
}

/// Run the handshake with a client until it has named its destination (RFC 1928, sections 3 and 4; RFC 1929, section
/// 2). Errors: the client's mistake; the client was informed as far as the protocol allows.
pub async fn accept<S>(stream: &mut S, credentials: Option<&Credentials>) -> io::Result<Destination>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    timeout(PATIENCE, async {
        authenticate(stream, credentials).await?;
        let mut head = [0; 3];
        stream.read_exact(&mut head).await?;
        if head[0] != VERSION {
            return Err(invalid("the request is not SOCKS5"));
        }
        let destination = match Destination::read(stream).await {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                refuse(stream, Reply::AddressNotSupported).await?;
                return Err(error);
            }
            other => other?,
        };
        if head[1] != CONNECT {
            refuse(stream, Reply::CommandNotSupported).await?;
            return Err(invalid("only the command CONNECT is supported"));
        }
        Ok(destination)
    })
    .await?
}

async fn authenticate<S>(stream: &mut S, credentials: Option<&Credentials>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if stream.read_u8().await? != VERSION {
        return Err(invalid("the client does not speak SOCKS5"));
    }
    let mut methods = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut methods).await?;
    let method = if credentials.is_some() { PASSWORD } else { NO_AUTHENTICATION };
    if !methods.contains(&method) {
        stream.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(invalid("the client offers no method of authentication that is allowed here"));
    }
    stream.write_all(&[VERSION, method]).await?;
    let Some(Credentials(expected)) = credentials else { return Ok(()) };
    if stream.read_u8().await? != PASSWORD_VERSION {
        return Err(invalid("the client's user name and password are not RFC 1929's"));
    }
    let mut texts = [Vec::new(), Vec::new()];
    for text in &mut texts {
        text.resize(stream.read_u8().await?.into(), 0);
        stream.read_exact(text).await?;
    }
    let right = Credentials::digest(&texts[0], &texts[1]) == *expected;
    stream.write_all(&[PASSWORD_VERSION, u8::from(!right)]).await?;
    if right { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, "wrong user name or password")) }
}

/// Confirm the connection to the client; `bound` is this end's address of it (RFC 1928, section 6).
pub async fn confirm<S: AsyncWrite + Unpin>(stream: &mut S, bound: SocketAddr) -> io::Result<()> {
    reply(stream, Reply::Succeeded, bound).await
}

/// Send the client the reason why there is no connection (RFC 1928, section 6).
pub async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, why: Reply) -> io::Result<()> {
    reply(stream, why, ([0, 0, 0, 0], 0).into()).await
}

async fn reply<S: AsyncWrite + Unpin>(stream: &mut S, reply: Reply, bound: SocketAddr) -> io::Result<()> {
    let message = [&[VERSION, reply as u8, 0][..], &Destination::Address(bound).encode()].concat();
    stream.write_all(&message).await?;
    stream.flush().await
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Return the proxy's answer and its result when a client sends `bytes` and ends.
    async fn speak(bytes: &[u8], credentials: Option<&Credentials>) -> (Vec<u8>, io::Result<Destination>) {
        let (mut client, mut server) = tokio::io::duplex(4096);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let result = accept(&mut server, credentials).await;
        drop(server);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        (read, result)
    }

    const TO_10_0_0_1: [u8; 7] = [1, 10, 0, 0, 1, 0, 80];

    #[tokio::test]
    async fn a_client_names_its_destination() {
        let bytes = [&[5, 2, 1, 0, 5, 1, 0][..], &TO_10_0_0_1].concat();
        let (read, result) = speak(&bytes, None).await;
        assert_eq!((read, result.unwrap()), (vec![5, 0], Destination::Address(([10, 0, 0, 1], 80).into())));
    }

    #[tokio::test]
    async fn a_password_is_asked_for_and_compared() {
        let user = Credentials::new(b"ann", b"secret").unwrap();
        for (password, right) in [(&b"secret"[..], true), (b"secreT", false), (b"", false)] {
            let login = [&[1, 3][..], b"ann", &[password.len() as u8], password].concat();
            let bytes = [&[5, 1, 2][..], &login, &[5, 1, 0], &TO_10_0_0_1].concat();
            let (read, result) = speak(&bytes, Some(&user)).await;
            assert_eq!((read, result.is_ok()), (vec![5, 2, 1, u8::from(!right)], right));
        }
        let (read, result) = speak(&[5, 1, 0], Some(&user)).await;
        assert_eq!((read, result.is_ok()), (vec![5, 0xff], false));
    }

    #[tokio::test]
    async fn other_commands_and_addresses_are_refused_by_their_codes() {
        for (request, code) in [
            ([5, 2, 0, 1, 10, 0, 0, 1, 0, 80], 7),
            ([5, 3, 0, 1, 10, 0, 0, 1, 0, 80], 7),
            ([5, 1, 0, 9, 0, 0, 0, 0, 0, 0], 8),
        ] {
            let (read, result) = speak(&[&[5, 1, 0][..], &request].concat(), None).await;
            assert_eq!((&read[..4], result.is_ok()), (&[5, 0, 5, code][..], false));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_destination_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let with_head = [&[5, 1, 0, 5, 1, 0][..], &bytes].concat();
            for bytes in [&bytes, &with_head] {
                let _ = runtime.block_on(speak(bytes, None));
                let _ = runtime.block_on(speak(bytes, Credentials::new(b"a", b"b").as_ref()));
            }
        }
    }
}
