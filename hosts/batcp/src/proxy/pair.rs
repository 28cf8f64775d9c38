// SPDX-License-Identifier: Apache-2.0
//! Request of a local proxy at the start of a connection, before the proxies relay bytes.
//!
//! ```text
//! local:  version (1 byte), destination (RFC 1928: type, address, port)
//! remote: reply (1, REP of RFC 1928)
//! ```
//!
//! With a key the connection is sealed, and both ends have proved the key. Without one nothing is proved.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::destination::{Destination, Reply};

const VERSION: u8 = 2;
/// Time that a client has to send its request, and to take the reply.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Time that the remote proxy has to connect.
const CONNECT: Duration = Duration::from_secs(30);

/// Request a connection from the remote proxy at the other end of `stream`, and return its reply (RFC 1928, section
/// 6). Errors: a silent peer (`TimedOut`).
pub async fn request<S>(stream: &mut S, destination: &Destination) -> io::Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&[&[VERSION], &destination.encode()[..]].concat()).await?;
    stream.flush().await?;
    timeout(CONNECT, stream.read_u8()).await?.map(Reply::from_byte)
}

/// Receive a request on `stream` at the remote proxy. Errors: a client that breaks off, sends no request
/// (`InvalidData`), or takes longer than `patience`.
pub async fn receive_request<S: AsyncRead + Unpin>(stream: &mut S, patience: Duration) -> io::Result<Destination> {
    let received = async {
        if stream.read_u8().await? != VERSION {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client is no local proxy of this version"));
        }
        Destination::read(stream).await
    };
    timeout(patience, received).await?
}

/// Send the reply to the client (RFC 1928, section 6). Errors: it does not take that within `PATIENCE`.
pub async fn reply<S: AsyncWrite + Unpin>(stream: &mut S, reply: Reply) -> io::Result<()> {
    let sent = async {
        stream.write_u8(reply as u8).await?;
        stream.flush().await
    };
    timeout(PATIENCE, sent).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_names_its_destination_and_gets_a_reply() {
        for expected in [Reply::Succeeded, Reply::Refused] {
            let (mut a, mut b) = tokio::io::duplex(4096);
            let to = Destination::Name("example.org".into(), 80);
            let serve = async {
                let asked = receive_request(&mut b, PATIENCE).await.unwrap();
                reply(&mut b, expected).await.unwrap();
                asked
            };
            let (got, asked) = tokio::join!(request(&mut a, &to), serve);
            assert_eq!((got.unwrap(), &asked), (expected, &to));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_request_or_an_error(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                for bytes in [bytes.clone(), [&[VERSION], &bytes[..]].concat()] {
                    let asked = receive_request(&mut &bytes[..], PATIENCE).await;
                    assert!(asked.is_err() || bytes[0] == VERSION);
                }
            });
        }
    }
}
