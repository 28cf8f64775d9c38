// SPDX-License-Identifier: Apache-2.0
//! Connections on loopback: what programs rely on, and what strangers and broken peers can do.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::hello::{ANSWER, Answer, Hello, Keys};
use super::segment::{Frame, encode};
use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

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

async fn pair() -> (Connection, Connection, Listener) {
    let (mut listener, address) = listen(options());
    let client = connect(&[address], &interfaces(), &options()).await.unwrap();
    let server = listener.accept().await.unwrap();
    (client, server, listener)
}

#[tokio::test]
async fn each_direction_closes_by_itself() {
    let (mut client, mut server, _listener) = pair().await;
    client.write_all(b"question").await.unwrap();
    let ask = tokio::spawn(async move {
        client.shutdown().await.unwrap();
        assert_eq!(client.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        client.closed().await;
        answer
    });
    let mut question = Vec::new();
    server.read_to_end(&mut question).await.unwrap();
    assert_eq!(question, b"question");
    server.write_all(b"answer").await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(timeout(PATIENCE, ask).await.unwrap().unwrap(), b"answer");
}

#[tokio::test]
async fn both_directions_at_once_over_both_interfaces() {
    let (client, server, listener) = pair().await;
    let watch = client.watch();
    let bytes: Vec<u8> = (0..5_000_000u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut tasks = Vec::new();
    for connection in [client, server] {
        let (mut from, mut to) = split(connection);
        let (sent, expected) = (bytes.clone(), bytes.clone());
        tasks.push(tokio::spawn(async move {
            to.write_all(&sent).await.unwrap();
            to.shutdown().await.unwrap();
        }));
        tasks.push(tokio::spawn(async move {
            let mut got = Vec::new();
            from.read_to_end(&mut got).await.unwrap();
            assert!(got == expected, "{} bytes", got.len());
        }));
    }
    for task in tasks {
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
    let status = watch();
    assert_eq!((status.bytes_acknowledged, status.bytes_read), (5_000_000, 5_000_000));
    assert_eq!(status.totals.len(), 2);
    assert!(status.totals.iter().all(|total| total.bytes_sent > 0 && total.bytes_received > 0), "{status:?}");
    assert_eq!((listener.arrivals().opened, listener.arrivals().joined), (1, 1));
}

#[tokio::test]
async fn a_connection_that_is_dropped_is_reset() {
    let (client, mut server, _listener) = pair().await;
    let mut client = client;
    client.write_all(b"half of it").await.unwrap();
    let mut got = [0; 10];
    server.read_exact(&mut got).await.unwrap();
    drop(client);
    let error = timeout(PATIENCE, server.read(&mut got)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.write(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn what_nobody_reads_stays_within_the_windows() {
    let (mut client, mut server, _listener) = pair().await;
    let mut written = 0;
    while let Ok(length) = timeout(Duration::from_millis(500), client.write(&[7; 10_000])).await {
        written += length.unwrap();
    }
    assert_eq!(written, 200_000, "a window at either end");
    let mut left = vec![0; written];
    timeout(PATIENCE, server.read_exact(&mut left)).await.unwrap().unwrap();
    timeout(PATIENCE, client.write_all(&[8; 50_000])).await.unwrap().unwrap();
    timeout(PATIENCE, server.read_exact(&mut left[..50_000])).await.unwrap().unwrap();
}

/// Opens a connection by hand: the socket behind the hello, the listener's keys and token.
async fn by_hand(address: SocketAddr) -> (TcpStream, Keys, u64) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mark = Mark { interface: 0, connection: 1234 };
    stream.write_all(&Hello::open(mark, &Interface::new("lo"), [1; 16], 100_000).encode()).await.unwrap();
    let Answer::Welcome { key, token, .. } = answer(&mut stream).await else { panic!("not welcome") };
    (stream, Keys::new([1; 16], key), token)
}

async fn answer(stream: &mut TcpStream) -> Answer {
    let mut octets = [0; ANSWER];
    timeout(PATIENCE, stream.read_exact(&mut octets)).await.unwrap().unwrap();
    Answer::decode(&octets).unwrap()
}

#[tokio::test]
async fn only_who_knows_the_keys_joins_and_only_once() {
    let (mut listener, address) = listen(options());
    let (_stream, keys, token) = by_hand(address).await;
    let _connection = listener.accept().await.unwrap();
    let lo = Interface::new("lo");
    let mark = |connection| Mark { interface: 1, connection };
    let wrong = Keys::new([0; 16], [0; 16]);
    for (hello, welcome) in [
        (Hello::join(mark(1234), &lo, token, 1, &wrong), false),
        (Hello::join(mark(1234), &lo, token ^ 1, 1, &keys), false),
        (Hello::join(mark(1235), &lo, token, 1, &keys), false),
        (Hello::join(mark(1234), &lo, token, 1, &keys), true),
        (Hello::join(mark(1234), &lo, token, 1, &keys), false),
        (Hello::join(mark(1234), &lo, token, 2, &keys), true),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&hello.encode()).await.unwrap();
        let expected = if welcome { Answer::joined(&hello, &keys) } else { Answer::Refused };
        assert_eq!(answer(&mut stream).await, expected, "{hello:?}");
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(listener.arrivals(), Arrivals { opened: 1, plain: 0, joined: 2, refused: 4 });
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_gets_a_reset() {
    let end = |number| Frame::End { number };
    let segment = |number, length| Frame::Segment { number, payload: vec![0; length].into() };
    for (frames, complaint) in [
        (vec![segment(20_000, 1)], "a segment too far ahead"),
        (vec![segment(1, 60_000), segment(2, 60_000)], "more bytes than the window holds"),
        (vec![Frame::Acknowledgement { expected: 1, limit: 0 }], "an acknowledgement of what was never sent"),
        (vec![end(5), end(6)], "two different ends"),
        (vec![end(5), segment(5, 1)], "a segment after the end"),
    ] {
        let (mut listener, address) = listen(options());
        let (mut stream, ..) = by_hand(address).await;
        let mut connection = listener.accept().await.unwrap();
        for frame in &frames {
            stream.write_all(&encode(frame)).await.unwrap();
        }
        let error = timeout(PATIENCE, connection.read(&mut [0; 1])).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains(complaint), "{error}");
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.windows(8).any(|frame| frame == [4, 0, 1, 0, 0, 0, 0, 0]), "{rest:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Whatever octets follow a hello, the connection ends in an error, or waits for more and gives the program nothing
    /// but what stood in its segments.
    #[test]
    fn any_octets_end_in_an_error_or_nothing(
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            (1u8..5, 0u8..3, any::<u8>(), 0u64..5, 0usize..300).prop_map(|(kind, high, low, number, length)| {
                let mut octets = vec![kind, high, low, 0];
                octets.extend_from_slice(&(number as u32).to_be_bytes());
                octets.resize(8 + length, 0xaa);
                octets
            }),
        ], 0..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut listener, address) = listen(options());
            let (mut stream, ..) = by_hand(address).await;
            let mut connection = listener.accept().await.unwrap();
            let _ = stream.write_all(&pieces.concat()).await;
            drop(stream);
            let mut got = Vec::new();
            let _ = timeout(Duration::from_millis(20), connection.read_to_end(&mut got)).await;
            assert!(got.len() <= pieces.concat().len());
            let status = connection.status();
            assert!(status.bytes_early <= 100_000);
        });
    }
}

#[tokio::test]
async fn an_idle_connection_keeps_its_subflows() {
    let (mut client, mut server, _listener) = pair().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    for end in [&client, &server] {
        let status = end.status();
        assert_eq!(
            status.totals.iter().map(|total| (total.subflows, total.lost)).collect::<Vec<_>>(),
            [(1, 0), (1, 0)]
        );
        assert!(status.subflows.iter().all(|subflow| !subflow.stalled));
    }
    client.write_all(b"still there").await.unwrap();
    server.read_exact(&mut [0; 11]).await.unwrap();
}

#[tokio::test]
async fn a_vanished_client_is_noticed_in_time() {
    let (mut listener, address) = listen(options());
    let (stream, ..) = by_hand(address).await;
    let mut connection = listener.accept().await.unwrap();
    drop(stream);
    let started = std::time::Instant::now();
    let error = timeout(PATIENCE, connection.read(&mut [0; 1])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!((2.0..3.0).contains(&started.elapsed().as_secs_f64()), "{:?}", started.elapsed());
}

/// A negotiation whose peer never answers.
struct Silent;

impl Negotiation for Silent {
    fn prepare(&self, _: BorrowedFd<'_>, mark: Mark) -> std::io::Result<()> {
        assert!(mark.connection < 10_000);
        Ok(())
    }
    fn answered(&self, _: BorrowedFd<'_>) -> std::io::Result<bool> {
        Ok(false)
    }
    fn listen(&self, _: BorrowedFd<'_>) -> std::io::Result<()> {
        Ok(())
    }
    fn received(&self, _: BorrowedFd<'_>) -> std::io::Result<bool> {
        Ok(false)
    }
}

#[tokio::test]
async fn without_an_answer_both_ends_are_plain_tcp() {
    let silent = Options { negotiation: Arc::new(Silent), ..options() };
    let (mut listener, address) = listen(silent.clone());
    let mut client = connect(&[address], &interfaces(), &silent).await.unwrap();
    let mut server = listener.accept().await.unwrap();
    assert!(client.is_plain() && server.is_plain() && client.status().plain);
    client.write_all(b"as ever").await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"as ever");
    assert_eq!(listener.arrivals().plain, 1);
}

#[tokio::test]
async fn who_does_not_speak_the_protocol_is_named() {
    let stranger = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = stranger.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = stranger.accept().await.unwrap();
        stream.write_all(&[b'x'; 100]).await.unwrap();
        tokio::time::sleep(PATIENCE).await;
    });
    let error = connect(&[address], &[Interface::new("lo")], &options()).await.err().unwrap();
    assert!(error.to_string().contains("lo: no answer of this protocol"), "{error}");
    let nobody = connect(&[], &interfaces(), &options()).await.err().unwrap();
    assert_eq!(nobody.kind(), ErrorKind::InvalidInput);
}
