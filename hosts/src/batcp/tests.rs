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

use super::hello::{ANSWER, Answer, HELLO, Hello, Keys, PROOF};
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

/// Opens a connection by hand: the socket behind the handshake, the connection's keys and token.
async fn by_hand(address: SocketAddr) -> (TcpStream, Keys, u64) {
    let shared = Key::default();
    let (mut stream, hello, welcome) = greeted(address).await;
    let Answer::Welcome { nonce, token, .. } = welcome else { panic!("not welcome") };
    let keys = Keys::new(&shared, [1; 16], nonce);
    assert!(welcome.is_authentic(&hello, &shared, &keys));
    stream.write_all(&keys.proof(&hello, &welcome)).await.unwrap();
    (stream, keys, token)
}

/// Says hello by hand, and hears the answer: what is open then to everybody.
async fn greeted(address: SocketAddr) -> (TcpStream, Hello, Answer) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mark = Mark { interface: 0, connection: 1234 };
    let hello = Hello::open(mark, &Interface::new("lo"), [1; 16], 100_000, false);
    stream.write_all(&hello.encode()).await.unwrap();
    let answer = answer(&mut stream).await;
    (stream, hello, answer)
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
    let (open, wrong) = (Key::default(), Keys::new(&Key::default(), [0; 16], [0; 16]));
    for (hello, welcome) in [
        (Hello::join(mark(1234), &lo, token, 1, &wrong, false), false),
        (Hello::join(mark(1234), &lo, token ^ 1, 1, &keys, false), false),
        (Hello::join(mark(1235), &lo, token, 1, &keys, false), false),
        (Hello::join(mark(1234), &lo, token, 1, &keys, false), true),
        (Hello::join(mark(1234), &lo, token, 1, &keys, false), false),
        (Hello::join(mark(1234), &lo, token, 2, &keys, false), true),
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

fn with_key(key: &[u8]) -> Options {
    Options { key: Key(key.into()), ..options() }
}

/// A way to `to` on which somebody listens, and changes one octet of what the first connection's opener sends after `at`.
async fn listened_to(to: SocketAddr, at: usize) -> (SocketAddr, Arc<std::sync::Mutex<Vec<u8>>>) {
    let way = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heard) = (way.local_addr().unwrap(), Arc::new(std::sync::Mutex::new(Vec::new())));
    let all = heard.clone();
    tokio::spawn(async move {
        for number in 0.. {
            let (here, _) = way.accept().await.unwrap();
            let (mut from, mut back) = here.into_split();
            let (mut from_there, mut there) = TcpStream::connect(to).await.unwrap().into_split();
            let heard = all.clone();
            tokio::spawn(async move { tokio::io::copy(&mut from_there, &mut back).await });
            tokio::spawn(async move {
                let (mut octets, mut passed) = (vec![0; 4096], 0);
                while let Ok(length @ 1..) = from.read(&mut octets).await {
                    heard.lock().unwrap().extend_from_slice(&octets[..length]);
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
    (address, heard)
}

#[tokio::test]
async fn who_listens_on_the_way_sees_nothing_and_changes_nothing() {
    let (mut listener, address) = listen(with_key(b"the key of both"));
    let (way, heard) = listened_to(address, 50_000).await;
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
    let heard = heard.lock().unwrap();
    assert!(heard.len() > text.len());
    assert!(!heard.windows(14).any(|part| part == b"nobody else is"));
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

/// Who has not the key costs the listener a socket and a task: no connection is made, no window given, no segment kept.
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
    assert_eq!(listener.arrivals(), Arrivals { opened: 0, plain: 0, joined: 0, refused: 3 });
}

/// Another interface's join may come before the opener's proof: it waits for it.
#[tokio::test]
async fn a_join_that_is_quicker_than_the_proof_waits() {
    let (mut listener, address) = listen(options());
    let (mut stream, hello, welcome) = greeted(address).await;
    let Answer::Welcome { nonce, token, .. } = welcome else { panic!("not welcome") };
    let keys = Keys::new(&Key::default(), [1; 16], nonce);
    let join = Hello::join(Mark { interface: 1, connection: 1234 }, &Interface::new("lo"), token, 1, &keys, false);
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
    let join = Hello::join(Mark { interface: 1, connection: 1234 }, &Interface::new("lo"), token, 1, &keys, false);
    let mut later = TcpStream::connect(address).await.unwrap();
    later.write_all(&join.encode()).await.unwrap();
    drop(stream);
    assert_eq!(answer(&mut later).await, Answer::unknown(&join, &Key::default()));
}

/// Those that say nothing are cut off, and a flood of them makes room for who speaks.
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
async fn as_many_connections_as_may_be() {
    let (mut listener, address) = listen(Options { connections: 2, ..options() });
    let mut kept = Vec::new();
    for _ in 0..2 {
        kept.push((connect(&[address], &interfaces(), &options()).await.unwrap(), listener.accept().await.unwrap()));
    }
    let error = connect(&[address], &interfaces(), &options()).await.err().unwrap();
    assert!(error.to_string().contains("serves as many connections as it may"), "{error}");
    kept.clear();
    let started = std::time::Instant::now();
    while connect(&[address], &interfaces(), &options()).await.is_err() {
        assert!(started.elapsed() < PATIENCE, "places come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
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

#[tokio::test]
async fn a_connection_has_a_bounded_number_of_subflows() {
    let (mut listener, address) = listen(options());
    let (_stream, keys, token) = by_hand(address).await;
    let connection = listener.accept().await.unwrap();
    let mut streams = Vec::new();
    for number in 1..=99 {
        let mark = Mark { interface: number, connection: 1234 };
        let hello = Hello::join(mark, &Interface::new("lo"), token, number.into(), &keys, false);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&hello.encode()).await.unwrap();
        let expected =
            if usize::from(number) < transport::MAX_SUBFLOWS { Answer::joined(&hello, &keys) } else { Answer::Refused };
        assert_eq!(answer(&mut stream).await, expected);
        streams.push(stream);
    }
    assert_eq!(connection.status().subflows.len(), transport::MAX_SUBFLOWS);
}

/// The shortest and the longest price of the wire beside each other; before there were bounds, this ended the listener.
#[tokio::test]
async fn prices_far_apart_hurt_nobody() {
    let (mut listener, address) = listen(options());
    let (_stream, keys, token) = by_hand(address).await;
    let mut server = listener.accept().await.unwrap();
    let mut streams = Vec::new();
    for (number, price) in [(1, "1e-6"), (2, "1e6")] {
        let interface: Interface = format!("lo:0:1:{price}").parse().unwrap();
        let hello =
            Hello::join(Mark { interface: number, connection: 1234 }, &interface, token, number.into(), &keys, false);
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
    let mut hello =
        Hello::open(Mark { interface: 0, connection: 1 }, &Interface::new("lo"), [1; 16], 1, false).encode();
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

/// A connection to a fake listener, which opens it with `key` and then answers joins as told, with all subflows dead.
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
                if hello.sealed {
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
        assert!(started.elapsed() < PATIENCE, "its place comes back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
