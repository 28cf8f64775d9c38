// SPDX-License-Identifier: Apache-2.0
//! Broken and vanished peers.

use std::io::ErrorKind;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;
use crate::connection_state::MAX_SUBFLOWS;
use crate::hello::{ANSWER, Answer, HELLO, Hello, Keys, PROOF};
use crate::segment::{Frame, encode};

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
async fn a_vanished_client_is_noticed_in_time() {
    let (mut listener, address) = listen(options());
    let started = std::time::Instant::now();
    let (stream, ..) = by_hand(address).await;
    let mut connection = listener.accept().await.unwrap();
    drop(stream);
    let error = timeout(PATIENCE, connection.read(&mut [0; 1])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!((2.0..3.0).contains(&started.elapsed().as_secs_f64()), "{:?}", started.elapsed());
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

#[tokio::test]
async fn a_connection_has_a_bounded_number_of_subflows() {
    let (mut listener, address) = listen(options());
    let (_stream, keys, token) = by_hand(address).await;
    let connection = listener.accept().await.unwrap();
    let mut streams = Vec::new();
    for number in 1..=99 {
        let mark = Mark { interface: number, connection: 1234 };
        let hello = Hello::join(mark, &Interface::new("lo"), token, number.into(), &keys);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&hello.encode()).await.unwrap();
        let expected = if usize::from(number) < MAX_SUBFLOWS { Answer::joined(&hello, &keys) } else { Answer::Refused };
        assert_eq!(answer(&mut stream).await, expected);
        streams.push(stream);
    }
    assert_eq!(connection.status().subflows.len(), MAX_SUBFLOWS);
}

/// Minimum and maximum price of the wire next to each other; before there were bounds, this ended the listener.
#[tokio::test]
async fn prices_far_apart_hurt_nobody() {
    let (mut listener, address) = listen(options());
    let (_stream, keys, token) = by_hand(address).await;
    let mut server = listener.accept().await.unwrap();
    let mut streams = Vec::new();
    for (number, price) in [(1, "1e-6"), (2, "1e6")] {
        let interface: Interface = format!("lo:0:1:{price}").parse().unwrap();
        let hello = Hello::join(Mark { interface: number, connection: 1234 }, &interface, token, number.into(), &keys);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&hello.encode()).await.unwrap();
        assert_eq!(answer(&mut stream).await, Answer::joined(&hello, &keys));
        streams.push(stream);
    }
    server.write_all(&[0; 50_000]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(server.status().subflows.len() == 3);
    let wrong = Interface { cost: 1e-300, ..Interface::new("lo") };
    let error = connect(&[address], &[wrong], &options()).await.err().unwrap();
    assert!(error.to_string().contains("a price lies between"), "{error}");
}

#[tokio::test]
async fn another_version_is_answered_and_named() {
    let (_listener, address) = listen(options());
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut hello = Hello::open(Mark { interface: 0, connection: 1 }, &Interface::new("lo"), [1; 16], 1).encode();
    hello[7] = 1;
    stream.write_all(&hello).await.unwrap();
    assert_eq!(answer(&mut stream).await, Answer::Refused);
    let old = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = old.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = old.accept().await.unwrap();
        stream.read_exact(&mut [0; HELLO]).await.unwrap();
        stream.write_all(&[&b"BATCP\r\n\x01"[..], &[0; ANSWER - 8]].concat()).await.unwrap();
        tokio::time::sleep(PATIENCE).await;
    });
    let error = connect(&[there], &interfaces()[..1], &options()).await.err().unwrap();
    assert!(error.to_string().contains("another version of BATCP"), "{error}");
}

/// Connect to a fake listener, which opens the connection with `key` and then answers joins as `told` says, with all
/// subflows dead.
async fn forsaken(key: &[u8], told: impl Fn(&Hello) -> Option<Answer> + Send + 'static) -> (ErrorKind, f64) {
    let fake = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = fake.local_addr().unwrap();
    let shared = Key(key.into());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = fake.accept().await.unwrap();
            let mut octets = [0; HELLO];
            stream.read_exact(&mut octets).await.unwrap();
            let hello = Hello::decode(&octets).unwrap();
            let answer = match hello.purpose {
                hello::Purpose::Open { nonce, .. } => {
                    let keys = Keys::new(&shared, nonce, [2; 16]);
                    Some(Answer::welcome(&hello, [2; 16], 7, 100_000, &keys))
                }
                hello::Purpose::Join { .. } => told(&hello),
            };
            let Some(answer) = answer else {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                continue; // a reset
            };
            stream.write_all(&answer.encode()).await.unwrap();
            if let hello::Purpose::Open { nonce, .. } = hello.purpose {
                let _ = stream.read_exact(&mut [0; PROOF]).await;
                if !shared.is_open() {
                    let secret = Keys::new(&shared, nonce, [2; 16]).secret(&hello);
                    seal::answer(&mut stream, &secret).await.unwrap();
                }
            }
            let _ = stream.read_exact(&mut [0; PROOF]).await;
        }
    });
    let mut client = connect(&[address], &interfaces()[..1], &with_key(key)).await.unwrap();
    let started = std::time::Instant::now();
    let error = timeout(PATIENCE, client.read(&mut [0; 1])).await.unwrap().unwrap_err();
    (error.kind(), started.elapsed().as_secs_f64())
}

#[tokio::test]
async fn only_an_authenticated_refusal_ends_a_connection() {
    let key = b"the key of both";
    let shared = Key(key[..].into());
    let (kind, seconds) = forsaken(key, move |join| Some(Answer::unknown(join, &shared))).await;
    assert_eq!(kind, ErrorKind::ConnectionReset);
    assert!(seconds < 1.5, "at once: {seconds} s");
    let words: [fn(&Hello) -> Option<Answer>; 4] = [
        |_| None,
        |_| Some(Answer::Refused),
        |join| Some(Answer::unknown(join, &Key::default())),
        |_| Some(Answer::Busy),
    ];
    let waits = words.map(|told| tokio::spawn(forsaken(key, told)));
    let open = tokio::spawn(forsaken(b"", |join| Some(Answer::unknown(join, &Key::default()))));
    for wait in waits.into_iter().chain([open]) {
        let (kind, seconds) = wait.await.unwrap();
        assert_eq!(kind, ErrorKind::TimedOut, "what anybody can say ends nothing before its time");
        assert!(seconds > 1.5, "{seconds}");
    }
}

/// A program that let go of a connection after its end is not kept by a peer whose kernel answers and that reads nothing.
#[tokio::test]
async fn a_peer_that_never_acknowledges_is_not_waited_for() {
    let (mut listener, address) = listen(Options { connections: 1, ..options() });
    let (_stream, ..) = by_hand(address).await;
    let mut server = listener.accept().await.unwrap();
    server.write_all(b"no").await.unwrap();
    assert!(timeout(Duration::from_millis(100), server.shutdown()).await.is_err());
    drop(server);
    let started = std::time::Instant::now();
    while matches!(greeted(address).await.2, Answer::Busy) {
        assert!(started.elapsed() < PATIENCE, "its slot comes back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
