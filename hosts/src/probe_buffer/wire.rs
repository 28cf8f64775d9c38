// SPDX-License-Identifier: Apache-2.0
//! Protocol of sender and responder.
//!
//! Control goes over TCP, one JSON object a line: reports arrive whole or not at all, and the responder talks only to an
//! address that completed a handshake. Both ends prove that they know the key (HMAC-SHA256 over both nonces) before
//! anything else happens. Measuring packets go over UDP with a random token, one way only: the responder never answers
//! them, so it amplifies nothing.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use hosts_base::Error;

pub const PORT: u16 = 8630;
/// Maximum bytes of a line from a client that has not proved the key.
pub const MAX_UNPROVEN_LINE: usize = 1000;
/// Maximum bytes of a line: a report of `MAX_PACKETS`.
pub const MAX_LINE: usize = 64 << 20;
/// Maximum packets in one trial.
pub const MAX_PACKETS: usize = 1 << 20;

const VERSION: u32 = 1;

/// First line of the responder.
#[derive(Serialize, Deserialize)]
pub struct Hello {
    pub probe_buffer: u32,
    pub nonce: String,
}

/// Answer of the sender.
#[derive(Serialize, Deserialize)]
pub struct Proof {
    pub nonce: String,
    pub proof: String,
}

/// Second line of the responder: its own proof, and the parameters of sending to it.
#[derive(Serialize, Deserialize)]
pub struct Welcome {
    pub proof: String,
    pub token: u64,
    /// bit/s that the responder permits.
    pub max_rate: u64,
}

/// Request of the sender.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Forget the trial before, record this one.
    Begin(u32),
    /// All packets are sent; report once none has come for so many ms.
    End { quiet: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Ready(u32),
    Report(Report),
}

/// Report of the arrivals of a trial.
#[derive(Default, Serialize, Deserialize)]
pub struct Report {
    pub trial: u32,
    /// (sequence number, ns), as they arrived.
    pub arrivals: Vec<(u32, i64)>,
    /// Packets that this host lost because it was too slow.
    pub overrun: u64,
    /// Packets that were no part of the trial.
    pub ignored: u64,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl Hello {
    pub fn new() -> Hello {
        Hello { probe_buffer: VERSION, nonce: nonce() }
    }
}

/// The first bytes of each UDP packet; the rest is zeros.
pub struct Header {
    pub token: u64,
    pub trial: u32,
    pub number: u32,
}

impl Header {
    pub const BYTES: usize = 16;

    pub fn write(&self, packet: &mut [u8]) {
        packet[..8].copy_from_slice(&self.token.to_be_bytes());
        packet[8..12].copy_from_slice(&self.trial.to_be_bytes());
        packet[12..16].copy_from_slice(&self.number.to_be_bytes());
    }

    pub fn read(packet: &[u8]) -> Option<Header> {
        Some(Header {
            token: u64::from_be_bytes(packet.get(..8)?.try_into().ok()?),
            trial: u32::from_be_bytes(packet.get(8..12)?.try_into().ok()?),
            number: u32::from_be_bytes(packet.get(12..16)?.try_into().ok()?),
        })
    }
}

/// Key that both ends share.
pub struct Key(Vec<u8>);

impl Key {
    /// Read a key file. Errors: unreadable, readable by others, or too short to be a secret.
    pub fn read(path: &Path) -> Result<Key, Error> {
        hosts_base::key::read(path).map(Key)
    }

    /// Compute the proof of a holder of the key in the role `who` over these nonces.
    pub fn proof(&self, who: &str, responder: &str, sender: &str) -> String {
        hex(&self.mac(who, responder, sender).finalize().into_bytes())
    }

    /// Return true if the proof is right. Compared in constant time.
    pub fn proves(&self, proof: &str, who: &str, responder: &str, sender: &str) -> bool {
        unhex(proof).is_some_and(|proof| self.mac(who, responder, sender).verify_slice(&proof).is_ok())
    }

    fn mac(&self, who: &str, responder: &str, sender: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        // Lengths first: no two sets of fields give the same bytes.
        for field in ["hosts probe-buffer", who, responder, sender] {
            mac.update(&(field.len() as u64).to_be_bytes());
            mac.update(field.as_bytes());
        }
        mac
    }
}

pub fn nonce() -> String {
    hex(&rand::random::<[u8; 16]>())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    Some(digits?.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)).collect())
}

/// TCP connection that carries JSON lines.
pub struct Control {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Control {
    pub fn new(stream: TcpStream) -> io::Result<Control> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        Ok(Control { stream, buffer: Vec::new() })
    }

    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Receive the next line, of at most `max` bytes, within `patience`. Errors: `TimedOut`, `UnexpectedEof`,
    /// `InvalidData`.
    pub fn receive<T: DeserializeOwned>(&mut self, max: usize, patience: Duration) -> io::Result<T> {
        let deadline = Instant::now() + patience;
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=searched + end).collect();
                return match serde_json::from_slice(&line) {
                    Ok(message) => Ok(message),
                    Err(e) => Err(match serde_json::from_slice(&line) {
                        Ok(Refusal { error }) => io::Error::new(io::ErrorKind::PermissionDenied, error),
                        Err(_) => io::Error::new(io::ErrorKind::InvalidData, format!("not this protocol: {e}")),
                    }),
                };
            }
            searched = self.buffer.len();
            if searched > max {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "not this protocol: a line without end"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut chunk = [0; 16384];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// True if bytes of a line are here that `receive` has not returned.
    pub fn has_buffered(&self) -> bool {
        !self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_role_and_nonces_only() {
        let key = Key(b"0123456789abcdef".to_vec());
        let proof = key.proof("sender", "a", "b");
        assert!(key.proves(&proof, "sender", "a", "b"));
        assert!(!key.proves(&proof, "responder", "a", "b"));
        assert!(!key.proves(&proof, "sender", "ab", ""));
        assert!(!key.proves(&proof, "sender", "b", "a"));
        assert!(!key.proves(&proof[2..], "sender", "a", "b"));
        assert!(!key.proves("no hex", "sender", "a", "b"));
        assert!(!Key(b"0123456789abcdeF".to_vec()).proves(&proof, "sender", "a", "b"));
    }

    #[test]
    fn headers_survive_the_wire_and_short_ones_do_not() {
        let mut packet = [0; 20];
        Header { token: 1 << 60, trial: 7, number: 9 }.write(&mut packet);
        let header = Header::read(&packet).unwrap();
        assert_eq!((header.token, header.trial, header.number), (1 << 60, 7, 9));
        assert!(Header::read(&packet[..15]).is_none());
    }
}
