// SPDX-License-Identifier: Apache-2.0
//! Log lines of servers on standard error. Clients cause them, so they are bounded: a thread of its own writes them, no
//! more than some in a second, and a caller never waits for the reader of the log.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait to be written, and maximum lines in a second.
const WAITING: usize = 256;
const PER_SECOND: u32 = 50;

static LOG: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Log a line, or count it as left out.
pub fn report(line: impl std::fmt::Display) {
    let start = || {
        let (log, lines) = sync_channel(WAITING);
        std::thread::Builder::new().name("log".into()).spawn(move || write(&lines, std::io::stderr())).ok().map(|_| log)
    };
    if LOG.get_or_init(start).as_ref().is_none_or(|log| log.try_send(line.to_string()).is_err()) {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

fn write(lines: &Receiver<String>, mut to: impl Write) {
    let (mut second, mut written) = (Instant::now(), 0);
    while let Ok(line) = lines.recv() {
        if second.elapsed() >= Duration::from_secs(1) {
            (second, written) = (Instant::now(), 0);
            let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
            if left_out > 0 {
                let _ = writeln!(to, "{left_out} further lines were left out");
            }
        }
        if written == PER_SECOND {
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        written += 1;
        // A closed log is no error.
        let _ = writeln!(to, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_counted_and_not_written() {
        let (log, lines) = sync_channel(1000);
        for number in 0..500 {
            log.send(format!("line {number}")).unwrap();
        }
        let writing = std::thread::spawn(move || {
            let mut text = Vec::new();
            write(&lines, &mut text);
            String::from_utf8(text).unwrap()
        });
        std::thread::sleep(Duration::from_secs(5));
        log.send("later".into()).unwrap();
        drop(log);
        let text = writing.join().unwrap();
        assert_eq!(text.lines().count() as u32, PER_SECOND + 2, "{text}");
        assert!(text.ends_with("450 further lines were left out\nlater\n"), "{text}");
    }
}
