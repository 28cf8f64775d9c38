// SPDX-License-Identifier: Apache-2.0
//! The port where clients of BMv2 expect its Thrift server: each gets an exception that names P4Runtime, so that
//! scripts which wait for the port go on, and the others say why they do not.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Time that a client has for its call, and for taking the answer.
const MAX_CALL_TIME: Duration = Duration::from_secs(2);
const MAX_NAME_LEN: usize = 256;
/// Thrift's binary protocol: the version with the type of a message, types of fields.
const CALL: [u8; 4] = [0x80, 1, 0, 1];
const EXCEPTION: [u8; 4] = [0x80, 1, 0, 3];
const STRING: u8 = 11;
const I32: u8 = 8;
const UNKNOWN_METHOD: u32 = 1;

/// Takes the port on loopback. `is_asked_for`: otherwise a port that is taken is not worth a line.
pub async fn bind(port: u16, is_asked_for: bool) -> Option<TcpListener> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Ok(listener) => return Some(listener),
        Err(error) if is_asked_for => tracing::warn!("Thrift port {port}: {error}: clients of Thrift get no answer"),
        Err(error) => tracing::debug!("Thrift port {port}: {error}"),
    }
    None
}

/// Answers until the process ends.
pub async fn serve(listener: TcpListener, p4runtime: String) {
    let text = format!("this is apswitch, which has no Thrift server: control it over P4Runtime on {p4runtime}");
    let mut is_said = false;
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(MAX_CALL_TIME).await;
            continue;
        };
        // One after the other, each with an end: nobody holds more than one connection.
        let _ = tokio::time::timeout(MAX_CALL_TIME, answer(stream, &text)).await;
        if !std::mem::replace(&mut is_said, true) {
            tracing::warn!("client {peer} looks for Thrift: {text}");
        }
    }
}

/// Takes a call, and answers with a TApplicationException.
async fn answer(mut stream: TcpStream, text: &str) -> io::Result<()> {
    let mut start = [0; 8];
    stream.read_exact(&mut start).await?;
    let (version, length) = start.split_at(4);
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if version != CALL || length > MAX_NAME_LEN {
        return Ok(());
    }
    let mut rest = vec![0; length + 4];
    stream.read_exact(&mut rest).await?;
    stream.write_all(&exception(&rest[..length], &rest[length..], text)).await?;
    stream.shutdown().await?;
    // The rest of the call is read: a client that is cut off while it sends sees no answer.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
}

/// The exception for a call of this name and number.
fn exception(name: &[u8], number: &[u8], text: &str) -> Vec<u8> {
    let length = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes();
    let field = |kind: u8, id: u8| [kind, 0, id];
    [
        &EXCEPTION[..],
        &length(name),
        name,
        number,
        &field(STRING, 1),
        &length(text.as_bytes()),
        text.as_bytes(),
        &field(I32, 2),
        &UNKNOWN_METHOD.to_be_bytes(),
        &[0],
    ]
    .concat()
}
