// SPDX-License-Identifier: Apache-2.0
//! Guarantees of the byte stream to programs.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::timeout;

use super::*;

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
    while let Ok(length) = timeout(Duration::from_secs(3), client.write(&[7; 10_000])).await {
        written += length.unwrap();
    }
    assert_eq!(written, 200_000, "a window at either end");
    let mut left = vec![0; written];
    timeout(PATIENCE, server.read_exact(&mut left)).await.unwrap().unwrap();
    timeout(PATIENCE, client.write_all(&[8; 50_000])).await.unwrap().unwrap();
    timeout(PATIENCE, server.read_exact(&mut left[..50_000])).await.unwrap().unwrap();
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
        assert!(started.elapsed() < PATIENCE, "slots come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Both ends refuse a connection without the option when they have a key, and the listener counts it.
#[tokio::test]
async fn without_an_answer_a_key_makes_no_plain_connection() {
    let silent = |key: &[u8]| Options { negotiation: Arc::new(Silent), ..with_key(key) };
    let (mut listener, address) = listen(silent(b"the key of both"));
    let error = connect(&[address], &interfaces()[..1], &silent(b"the key of both")).await.err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("with a key plain TCP is refused"), "{error}");
    let plain = connect(&[address], &interfaces()[..1], &silent(b"")).await.unwrap();
    assert!(plain.is_plain());
    assert!(timeout(Duration::from_millis(100), listener.accept()).await.is_err(), "nothing was opened");
    assert_eq!(listener.arrivals(), Arrivals { downgraded: 2, ..Arrivals::default() });
}

/// Subflows that follow a reset keep long segments, as the program ended the connection, and no path did.
#[tokio::test]
async fn a_reset_is_no_failure_of_an_uplink() {
    let (mut listener, address) = listen(options());
    let options = options();
    let mut client = connect(&[address], &interfaces(), &options).await.unwrap();
    drop(listener.accept().await.unwrap());
    let error = timeout(PATIENCE, client.read(&mut [0; 1])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    timeout(PATIENCE, client.closed()).await.unwrap();
    for interface in interfaces() {
        assert_eq!(options.uplinks.of(&interface.name).segment(Instant::now()), None, "{}", interface.name);
    }
}
