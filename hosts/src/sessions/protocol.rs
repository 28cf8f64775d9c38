// SPDX-License-Identifier: Apache-2.0
//! Protocol of client and server.
//!
//! A control connection for each run, JSON lines: the server names the run, then reports what it has sent. Data connections
//! begin with a JSON line that names run and user and its answer; then come requests of 16 bytes, each before the bytes of
//! its session: the client's after the request (up) or the server's in return (down).

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::model::{Direction, Length};

pub const PORT: u16 = 8640;
pub const PATIENCE: Duration = Duration::from_secs(5);

const VERSION: u32 = 1;
const MAX_LINE: usize = 4096;

/// First line of the client on any connection.
#[derive(Serialize, Deserialize)]
pub struct Hello {
    pub hosts_sessions: u32,
    /// Run of a data connection; None: this is a control connection.
    pub run: Option<String>,
    #[serde(default)]
    pub user: u32,
    /// Congestion control of the server's sending.
    #[serde(default)]
    pub congestion: Option<String>,
}

impl Hello {
    pub fn control() -> Hello {
        Hello { hosts_sessions: VERSION, run: None, user: 0, congestion: None }
    }

    pub fn data(run: &str, user: u32, congestion: Option<String>) -> Hello {
        Hello { hosts_sessions: VERSION, run: Some(run.to_owned()), user, congestion }
    }

    pub fn is_known(&self) -> bool {
        self.hosts_sessions == VERSION
    }
}

/// Lines of the server.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The name of the run.
    Run(String),
    /// A data connection may begin.
    Ready,
    Sent(Sent),
    /// All has been reported.
    End,
    Refused(String),
}

/// Later lines of the client on the control connection.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Send no more.
    Stop,
}

/// Report of a session that the server has sent, or stopped sending.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sent {
    pub user: u32,
    pub session: u32,
    /// Seconds from the request to the acknowledgement of the last byte.
    pub finish: Option<f64>,
    pub retransmits: u64,
    pub congestion: Option<String>,
}

/// Request on a data connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    pub direction: Direction,
    pub session: u32,
    pub length: Length,
}

impl Request {
    pub const BYTES: usize = 16;

    pub fn to_bytes(self) -> [u8; Request::BYTES] {
        let mut bytes = [0; Request::BYTES];
        bytes[0] = match self.direction {
            Direction::Up => 1,
            Direction::Down => 2,
        };
        bytes[4..8].copy_from_slice(&self.session.to_be_bytes());
        let length = match self.length {
            Length::Bytes(length) => length,
            Length::Endless => u64::MAX,
        };
        bytes[8..].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// Decode a request; `None`: these bytes are none.
    pub fn from_bytes(bytes: [u8; Request::BYTES]) -> Option<Request> {
        let direction = match bytes[..4] {
            [1, 0, 0, 0] => Direction::Up,
            [2, 0, 0, 0] => Direction::Down,
            _ => return None,
        };
        let length = match u64::from_be_bytes(bytes[8..].try_into().expect("8 bytes")) {
            0 => return None,
            u64::MAX => Length::Endless,
            length => Length::Bytes(length),
        };
        Some(Request { direction, session: u32::from_be_bytes(bytes[4..8].try_into().expect("4 bytes")), length })
    }
}

pub async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&line(message)).await
}

pub fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages are plain data");
    line.push(b'\n');
    line
}

/// Read the next line, and no byte after it, as those may be no lines. Not to be called again after it was cancelled.
pub async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => break,
            _ if line.len() == MAX_LINE => return Err(foreign("a line without end")),
            byte => line.push(byte),
        }
    }
    serde_json::from_slice(&line).map_err(foreign)
}

/// Return the error for a peer of another protocol.
pub fn foreign(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not the protocol of this version of hosts: {why}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_survive_the_wire(up: bool, session: u32, length in prop::option::of(1u64..u64::MAX)) {
            let direction = if up { Direction::Up } else { Direction::Down };
            let request = Request { direction, session, length: length.map_or(Length::Endless, Length::Bytes) };
            prop_assert_eq!(Request::from_bytes(request.to_bytes()), Some(request));
        }

        #[test]
        fn any_bytes_are_a_request_or_none(bytes: [u8; 16]) {
            if let Some(request) = Request::from_bytes(bytes) {
                prop_assert_eq!(request.to_bytes(), bytes);
            }
        }
    }
}
