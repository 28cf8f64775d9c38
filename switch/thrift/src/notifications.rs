// SPDX-License-Identifier: Apache-2.0
//! Digests for programs that learn from BMv2: published over nanomsg's SUB sockets, on a socket of the file system
//! (`ipc://PATH`), a sample in each message.
//!
//! nanomsg's protocol (its RFCs `sp-ipc-mapping` and `sp-pubsub`): both ends greet, then each message of the publisher
//! is a byte 1, its length in 64 bits, and the message; subscribers choose what they want by themselves.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use apswitch_dataplane::control::{Dataplane, Digest, DigestConfig, DigestId, Program, Update};
use async_channel::{Receiver, Sender};
use serde_json::Value as Json;

/// Greetings of the two ends of a connection.
const PUBLISHER: [u8; 8] = [0, b'S', b'P', 0, 0, 0x20, 0, 0];
const SUBSCRIBER: [u8; 8] = [0, b'S', b'P', 0, 0, 0x21, 0, 0];
/// Time for a greeting, and to the next try when the kernel has no more descriptors.
const MAX_GREETING_TIME: Duration = Duration::from_secs(1);
const MAX_SUBSCRIBERS: usize = 16;
/// BMv2 sends a value again only when it was acknowledged.
const ACK_TIMEOUT_NS: u64 = 365 * 24 * 3_600_000_000_000;

/// The socket, which is removed at the end.
pub struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

type Subscribers = Arc<Mutex<Vec<UnixStream>>>;

/// Publishes digests at `address`, and hands each on. Returns an error when there can be no such socket.
pub fn publish(
    dataplane: Dataplane,
    device_id: u64,
    address: &str,
    digests: Receiver<Digest>,
    onward: Sender<Digest>,
) -> io::Result<Socket> {
    let Some(path) = address.strip_prefix("ipc://").map(PathBuf::from) else {
        return Err(io::Error::other("an address has to be ipc://PATH"));
    };
    let listener = bind(&path)?;
    let socket = Socket(path);
    let subscribers = Subscribers::default();
    let accepting = subscribers.clone();
    thread::Builder::new().name("subscribers".into()).spawn(move || accept(&listener, &accepting))?;
    thread::Builder::new().name("digests".into()).spawn(move || {
        let mut known: Option<(Arc<Program>, Vec<i32>)> = None;
        while let Ok(digest) = digests.recv_blocking() {
            if let Some(program) = dataplane.program() {
                if known.as_ref().is_none_or(|(own, _)| !Arc::ptr_eq(own, &program)) {
                    known = Some((program.clone(), lists(&program)));
                }
                if let Some((program, lists)) = &known
                    && let Some(message) = message(program, lists, device_id, &digest)
                {
                    send(&subscribers, &message);
                }
            }
            // A client of P4Runtime that is behind loses it.
            let _ = onward.try_send(digest);
        }
    })?;
    Ok(socket)
}

/// Takes the path, also from a socket without a listener.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let is_left = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_left {
        fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

fn accept(listener: &UnixListener, subscribers: &Subscribers) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = greet(&stream) {
                    tracing::debug!("a subscriber of notifications: {error}");
                    continue;
                }
                let mut subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
                // Drops closed subscribers: otherwise only the next message finds them.
                subscribers.retain_mut(|old| !matches!(old.read(&mut [0]), Ok(0)));
                if subscribers.len() < MAX_SUBSCRIBERS {
                    tracing::info!("a client subscribed to notifications");
                    subscribers.push(stream);
                } else {
                    tracing::warn!("a subscriber is closed: {MAX_SUBSCRIBERS} are there already");
                }
            }
            Err(error) => {
                tracing::debug!("notifications: {error}");
                thread::sleep(MAX_GREETING_TIME);
            }
        }
    }
}

fn greet(mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(MAX_GREETING_TIME))?;
    stream.write_all(&PUBLISHER)?;
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting)?;
    if greeting != SUBSCRIBER {
        return Err(io::Error::other("it is no SUB socket of nanomsg"));
    }
    stream.set_nonblocking(true)
}

/// Sends to each subscriber; one that does not keep up is closed, and connects again.
fn send(subscribers: &Subscribers, message: &[u8]) {
    let mut subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
    subscribers.retain_mut(|subscriber| {
        let sent = subscriber.write_all(message);
        if let Err(error) = &sent {
            tracing::info!("a subscriber of notifications is closed: {error}");
        }
        sent.is_ok()
    });
}

/// Returns a sample as BMv2's `LearnEngine` sends it; `None`: the program that it came from is gone.
fn message(program: &Program, lists: &[i32], device_id: u64, digest: &Digest) -> Option<Vec<u8>> {
    let fields = &program.digests.get(digest.digest.0)?.fields;
    let mut body = Vec::with_capacity(32);
    body.extend(b"LEA|");
    body.extend(device_id.to_le_bytes());
    body.extend(0i32.to_le_bytes());
    body.extend(lists.get(digest.digest.0)?.to_le_bytes());
    // The number of the buffer, by which it is acknowledged, and that of its samples.
    body.extend(digest.sequence.to_le_bytes());
    body.extend(1u32.to_le_bytes());
    for (field, value) in fields.iter().zip(&digest.values) {
        body.extend(value.to_bytes(usize::from(field.width).div_ceil(8)));
    }
    let mut message = vec![1];
    message.extend((body.len() as u64).to_be_bytes());
    message.extend(body);
    Some(message)
}

/// Lets the program's digests be sent.
pub fn enable(dataplane: &Dataplane) {
    let digests = dataplane.program().map_or(0, |program| program.digests.len());
    let config = Some(DigestConfig { ack_timeout_ns: ACK_TIMEOUT_NS });
    let updates = (0..digests).map(|digest| Update::SetDigest { digest: DigestId(digest), config }).collect();
    for error in dataplane.write_blocking(updates).into_iter().filter_map(Result::err) {
        tracing::warn!("notifications: {error}");
    }
}

/// The ids of the program's learn lists, by the places of the digests.
pub fn lists(program: &Program) -> Vec<i32> {
    let json: Json = serde_json::from_slice(&program.source).unwrap_or_default();
    let ids: Vec<i32> = json["learn_lists"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|list| i32::try_from(list["id"].as_i64()?).ok())
        .collect();
    if ids.len() == program.digests.len() { ids } else { (1..).take(program.digests.len()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apswitch_dataplane::control::Value;

    fn program() -> Program {
        let json = include_bytes!("../../testdata/programs/features.json");
        let mut program = Program::load(json).unwrap();
        program.source = json.to_vec().into();
        program
    }

    #[test]
    fn a_sample_is_a_message_of_bmv2() {
        let program = program();
        let values = program.digests[0].fields.iter().map(|_| Value::from(1u8)).collect();
        let digest = Digest { digest: DigestId(0), sequence: 258, values, timestamp_us: 0 };
        let message = message(&program, &lists(&program), 7, &digest).unwrap();
        let (length, body) = message[1..].split_at(8);
        assert_eq!((message[0], u64::from_be_bytes(length.try_into().unwrap())), (1, body.len() as u64));
        assert_eq!(&body[..4], b"LEA|");
        assert_eq!(body[4..12], 7u64.to_le_bytes());
        assert_eq!(body[20..28], 258u64.to_le_bytes());
        assert_eq!(body[28..32], 1u32.to_le_bytes());
        let bytes: usize = program.digests[0].fields.iter().map(|own| usize::from(own.width).div_ceil(8)).sum();
        assert_eq!(body.len(), 32 + bytes);
    }

    #[test]
    fn lists_are_those_of_the_file() {
        let mut program = program();
        assert_eq!(lists(&program), [1]);
        // A program without its file has numbers from 1.
        program.source = Default::default();
        assert_eq!(lists(&program), [1]);
    }
}
