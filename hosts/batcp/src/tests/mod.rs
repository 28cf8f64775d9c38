// SPDX-License-Identifier: Apache-2.0
//! Connections on loopback.

mod peers;
mod strangers;
mod stream;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;
use crate::hello::{ANSWER, Answer, Hello, Keys};

const PATIENCE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options { window: 100_000, timeout: Duration::from_secs(2), ..Options::default() }
}

fn interfaces() -> Vec<Interface> {
    vec![Interface::new("lo"), Interface::new("127.0.0.1")]
}

fn listen(options: Options) -> (Listener, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let address = listener.local_address().unwrap();
    (listener, address)
}

/// Open a connection by hand: return the socket after the handshake, the connection's keys and token.
async fn by_hand(address: SocketAddr) -> (TcpStream, Keys, u64) {
    let shared = Key::default();
    let (mut stream, hello, welcome) = greeted(address).await;
    let Answer::Welcome { nonce, token, .. } = welcome else { panic!("not welcome") };
    let keys = Keys::new(&shared, [1; 16], nonce);
    assert!(welcome.is_authentic(&hello, &shared, &keys));
    stream.write_all(&keys.proof(&hello, &welcome)).await.unwrap();
    (stream, keys, token)
}

/// Send a hello by hand, and receive the answer, which is readable by everybody.
async fn greeted(address: SocketAddr) -> (TcpStream, Hello, Answer) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mark = Mark { interface: 0, connection: 1234 };
    let hello = Hello::open(mark, &Interface::new("lo"), [1; 16], 100_000);
    stream.write_all(&hello.encode()).await.unwrap();
    let answer = answer(&mut stream).await;
    (stream, hello, answer)
}

async fn answer(stream: &mut TcpStream) -> Answer {
    let mut octets = [0; ANSWER];
    timeout(PATIENCE, stream.read_exact(&mut octets)).await.unwrap().unwrap();
    Answer::decode(&octets).unwrap()
}

fn with_key(key: &[u8]) -> Options {
    Options { key: Key(key.into()), ..options() }
}
