// SPDX-License-Identifier: Apache-2.0
//! Output of `hosts sessions run --json`, one line at a time, which `hosts sessions fairness` reads.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::model::Direction;
use hosts_base::{About, Error};

const MAX_LINE: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    Run(Run),
    Session(Session),
}

/// First line of the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Start in s since the epoch: files with the same start are parts of one run.
    pub started: f64,
    pub seconds: f64,
    /// Users of the whole model, the N of the fair share.
    pub nodes: usize,
    pub server: String,
}

/// Result of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub user: String,
    /// Number of the session, from 1 for each user.
    pub session: usize,
    pub direction: Direction,
    /// Time in s since the run began, at which the first byte was to be sent.
    pub start: f64,
    /// Length in bytes; None: endless.
    pub length: Option<u64>,
    /// m: seconds from `start` to the acknowledgement of the last byte at the sender; None: it did not finish.
    pub finish: Option<f64>,
    /// Seconds from `start` to its end, finished or not.
    pub elapsed: f64,
    /// Bytes acknowledged (up) or received (down).
    pub bytes: u64,
    /// Segments that the sender retransmitted.
    pub retransmits: u64,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Finished,
    /// Endless session that lasted to the end of the run.
    Endless,
    /// Session that had not finished at the end of the run.
    Unfinished,
    /// Session whose connection was lost, or could not be made: see `error`.
    Failed,
}

/// Read a file that `run --json` wrote. Errors name the file and the line.
pub fn read(path: &Path) -> Result<(Run, Vec<Session>), Error> {
    let file = File::open(path).about(path.display())?;
    let mut reader = BufReader::new(file);
    let (mut run, mut sessions) = (None, Vec::new());
    let mut text = String::new();
    for number in 1.. {
        text.clear();
        let about = format!("{} line {number}", path.display());
        if std::io::Read::take(&mut reader, MAX_LINE).read_line(&mut text).about(&about)? == 0 {
            break;
        }
        if text.trim().is_empty() {
            continue;
        }
        // The last line of a run that was killed may be cut off.
        match serde_json::from_str(&text) {
            Ok(Line::Run(line)) if run.is_none() => run = Some(line),
            Ok(Line::Run(_)) => return Err(Error::new(format!("{about}: a second run, give each a file of its own"))),
            Ok(Line::Session(line)) => sessions.push(line),
            Err(_) if !text.ends_with('\n') => break,
            Err(e) => return Err(Error::new(format!("{about}: no result of `hosts sessions run --json`: {e}"))),
        }
    }
    let run = run.ok_or_else(|| Error::new(format!("{}: no run in it", path.display())))?;
    if run.nodes == 0 {
        return Err(Error::new(format!("{}: nodes: 0 is no number of nodes", path.display())));
    }
    Ok((run, sessions))
}
