// SPDX-License-Identifier: Apache-2.0
//! Request of a local proxy at the start of a connection, before the proxies relay bytes.
//!
//! ```text
//! local:  version (1 byte), DSCP of the program's connection (1), destination (RFC 1928: type, address, port)
//! remote: reply (1, REP of RFC 1928)
//! ```
//!
//! With a key the connection is sealed, and both ends have proved the key. Without one nothing is proved.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::destination::{Destination, Reply};
use crate::dscp::Dscp;

const VERSION: u8 = 3;
/// Time that a client has to send its request, and to take the reply.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Time that the remote proxy has to connect.
const CONNECT: Duration = Duration::from_secs(30);

/// Request a connection from the remote proxy at the other end of `stream`, and return its reply (RFC 1928, section
/// 6). Errors: a silent peer (`TimedOut`).
pub async fn request<S>(stream: &mut S, dscp: Dscp, destination: &Destination) -> io::Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&[&[VERSION, dscp.codepoint()], &destination.encode()[..]].concat()).await?;
    stream.flush().await?;
    timeout(CONNECT, stream.read_u8()).await?.map(Reply::from_byte)
}

/// Receive a request on `stream` at the remote proxy. Errors: a client that breaks off, sends no request
/// (`InvalidData`), or takes longer than `patience`.
pub async fn receive_request<S>(stream: &mut S, patience: Duration) -> io::Result<(Dscp, Destination)>
where
    S: AsyncRead + Unpin,
{
    let received = async {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        if stream.read_u8().await? != VERSION {
            return Err(invalid("the client is no local proxy of this version"));
        }
        let dscp = Dscp::new(stream.read_u8().await?).ok_or_else(|| invalid("a DSCP has six bits"))?;
        Ok((dscp, Destination::read(stream).await?))
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
            let dscp = Dscp::new(46).unwrap();
            let (got, asked) = tokio::join!(request(&mut a, dscp, &to), serve);
            assert_eq!((got.unwrap(), asked), (expected, (dscp, to)));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_request_or_an_error(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                for bytes in [bytes.clone(), [&[VERSION], &bytes[..]].concat(), [&[VERSION, 0], &bytes[..]].concat()] {
                    let asked = receive_request(&mut &bytes[..], PATIENCE).await;
                    assert!(asked.is_err() || bytes[0] == VERSION && bytes[1] < 64);
                }
            });
        }
    }
}
