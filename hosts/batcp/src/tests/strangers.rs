// SPDX-License-Identifier: Apache-2.0
//! Strangers, and eavesdroppers on the way.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;
use crate::hello::{Answer, Hello, Keys, PROOF};
use crate::segment::{Frame, encode};

#[tokio::test]
async fn only_who_knows_the_keys_joins_and_only_once() {
    let (mut listener, address) = listen(options());
    let (_stream, keys, token) = by_hand(address).await;
    let _connection = listener.accept().await.unwrap();
    let lo = Interface::new("lo");
    let mark = |connection| Mark { interface: 1, connection };
    let (open, wrong) = (Key::default(), Keys::new(&Key::default(), [0; 16], [0; 16]));
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
        let expected = match &hello.purpose {
            _ if welcome => Answer::joined(&hello, &keys),
            hello::Purpose::Join { token: other, .. } if *other != token => Answer::unknown(&hello, &open),
            _ => Answer::Refused,
        };
        assert_eq!(answer(&mut stream).await, expected, "{hello:?}");
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(listener.arrivals(), Arrivals { opened: 1, plain: 0, joined: 2, refused: 4, downgraded: 0 });
}

/// Relay to `to` that records, and changes one octet of the first connection opener's bytes after `at`.
async fn eavesdropped(to: SocketAddr, at: usize) -> (SocketAddr, Arc<std::sync::Mutex<Vec<u8>>>) {
    let way = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, recorded) = (way.local_addr().unwrap(), Arc::new(std::sync::Mutex::new(Vec::new())));
    let all = recorded.clone();
    tokio::spawn(async move {
        for number in 0.. {
            let (here, _) = way.accept().await.unwrap();
            let (mut from, mut back) = here.into_split();
            let (mut from_there, mut there) = TcpStream::connect(to).await.unwrap().into_split();
            let recorded = all.clone();
            tokio::spawn(async move { tokio::io::copy(&mut from_there, &mut back).await });
            tokio::spawn(async move {
                let (mut octets, mut passed) = (vec![0; 4096], 0);
                while let Ok(length @ 1..) = from.read(&mut octets).await {
                    recorded.lock().unwrap().extend_from_slice(&octets[..length]);
                    if number == 0 && (passed..passed + length).contains(&at) {
                        octets[at - passed] ^= 1;
                    }
                    passed += length;
                    if there.write_all(&octets[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, recorded)
}

#[tokio::test]
async fn who_listens_on_the_way_sees_nothing_and_changes_nothing() {
    let (mut listener, address) = listen(with_key(b"the key of both"));
    let (way, recorded) = eavesdropped(address, 50_000).await;
    let mut client = connect(&[way], &interfaces(), &with_key(b"the key of both")).await.unwrap();
    let mut server = listener.accept().await.unwrap();
    let text = b"what nobody else is to read. ".repeat(10_000);
    let reading = async {
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        got
    };
    let writing = async {
        client.write_all(&text).await.unwrap();
        client.shutdown().await.unwrap();
    };
    let (got, ()) = timeout(PATIENCE, async { tokio::join!(reading, writing) }).await.unwrap();
    assert!(got == text, "the changed octet cost a subflow, and nothing else");
    let recorded = recorded.lock().unwrap();
    assert!(recorded.len() > text.len());
    assert!(!recorded.windows(14).any(|part| part == b"nobody else is"));
}

#[tokio::test]
async fn only_one_key_connects() {
    let (mut listener, address) = listen(with_key(b"the key of both"));
    for (key, what) in
        [(&b"another"[..], "the peer has another key, or none"), (b"", "the peer has a key: give it here")]
    {
        let error = connect(&[address], &interfaces(), &with_key(key)).await.err().unwrap();
        assert!(error.to_string().contains(what), "{error}");
    }
    let (open, there) = listen(options());
    let error = connect(&[there], &interfaces(), &with_key(b"the key of both")).await.err().unwrap();
    assert!(error.to_string().contains("the peer has another key, or none"), "{error}");
    let mut client = connect(&[address], &interfaces(), &with_key(b"the key of both")).await.unwrap();
    let mut server = listener.accept().await.unwrap();
    client.write_all(b"hello").await.unwrap();
    server.read_exact(&mut [0; 5]).await.unwrap();
    assert_eq!((listener.arrivals().opened, open.arrivals().opened), (1, 0));
}

/// A client without the key costs the listener a socket and a task: no connection is made, no window given, no segment
/// kept.
#[tokio::test]
async fn who_proves_nothing_gets_nothing() {
    let (mut listener, address) = listen(with_key(b"the key of both"));
    let mut strangers = Vec::new();
    for _ in 0..3 {
        let (mut stream, ..) = greeted(address).await;
        stream.write_all(&[7; PROOF]).await.unwrap();
        stream.write_all(&encode(&Frame::Segment { number: 0, payload: vec![0; 60_000].into() })).await.ok();
        strangers.push(stream);
    }
    for stream in &mut strangers {
        let end = timeout(Duration::from_secs(1), stream.read(&mut [0; 1])).await.expect("it is cut off at once");
        assert!(matches!(end, Ok(0) | Err(_)));
    }
    assert!(timeout(Duration::from_millis(100), listener.accept()).await.is_err(), "nothing was opened");
    assert_eq!(listener.arrivals(), Arrivals { opened: 0, plain: 0, joined: 0, refused: 3, downgraded: 0 });
}

/// Another interface's join may come before the opener's proof: it waits for it.
#[tokio::test]
async fn a_join_that_is_quicker_than_the_proof_waits() {
    let (mut listener, address) = listen(options());
    let (mut stream, hello, welcome) = greeted(address).await;
    let Answer::Welcome { nonce, token, .. } = welcome else { panic!("not welcome") };
    let keys = Keys::new(&Key::default(), [1; 16], nonce);
    let join = Hello::join(Mark { interface: 1, connection: 1234 }, &Interface::new("lo"), token, 1, &keys);
    let mut quicker = TcpStream::connect(address).await.unwrap();
    quicker.write_all(&join.encode()).await.unwrap();
    assert!(timeout(Duration::from_millis(100), quicker.peek(&mut [0])).await.is_err(), "not refused");
    stream.write_all(&keys.proof(&hello, &welcome)).await.unwrap();
    assert_eq!(answer(&mut quicker).await, Answer::joined(&join, &keys));
    let connection = listener.accept().await.unwrap();
    let started = std::time::Instant::now();
    while connection.status().totals.len() < 2 || listener.arrivals().joined < 1 {
        assert!(started.elapsed() < PATIENCE, "it has joined");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It waits for nobody who is gone.
    let (stream, _, welcome) = greeted(address).await;
    let Answer::Welcome { token, .. } = welcome else { panic!("not welcome") };
    let join = Hello::join(Mark { interface: 1, connection: 1234 }, &Interface::new("lo"), token, 1, &keys);
    let mut later = TcpStream::connect(address).await.unwrap();
    later.write_all(&join.encode()).await.unwrap();
    drop(stream);
    assert_eq!(answer(&mut later).await, Answer::unknown(&join, &Key::default()));
}

/// Silent clients are disconnected, and a flood of them makes room for one that speaks.
#[tokio::test]
async fn silent_strangers_keep_nobody_out() {
    let (mut listener, address) = listen(with_key(b"the key of both"));
    let mut strangers = Vec::new();
    for number in 0..400 {
        if number % 2 == 0 {
            strangers.push(TcpStream::connect(address).await.unwrap());
        } else {
            strangers.push(greeted(address).await.0);
        }
    }
    let started = std::time::Instant::now();
    let mut client = connect(&[address], &interfaces(), &with_key(b"the key of both")).await.unwrap();
    let mut server = listener.accept().await.unwrap();
    client.write_all(b"hello").await.unwrap();
    server.read_exact(&mut [0; 5]).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    for stream in &mut strangers {
        let end = timeout(PATIENCE, stream.read(&mut [0; 1])).await.expect("every handshake has an end");
        assert!(matches!(end, Ok(0) | Err(_)));
    }
}

#[tokio::test]
async fn an_open_listeners_connections_share_their_memory() {
    let large = Options { window: 1 << 30, connections: 4, ..options() };
    for (options, window) in [(large.clone(), 16 << 20), (Options { key: Key(vec![1; 16]), ..large }, 1 << 30)] {
        let (_listener, address) = listen(options);
        let (_, _, welcome) = greeted(address).await;
        assert!(matches!(welcome, Answer::Welcome { window: w, .. } if w == window), "{welcome:?}");
    }
}
