// SPDX-License-Identifier: Apache-2.0
//! Ports that are files, captures and structured logs, by running the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apswitch_core::state::Shared;
use apswitch_core::store::Store;
use apswitch_dataplane::control::Program;
use apswitch_dataplane::port::read_pcap;
use apswitch_reference::{Output, Reference, Setup};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SOON: Duration = Duration::from_secs(120);

/// A directory that is gone when the test is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("apswitch-files-{}", std::process::id()));
        std::fs::create_dir_all(path.join("captures")).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Frames at these times (s).
fn write(path: &Path, records: &[(u32, Vec<u8>)]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65535, 1] {
        file.extend(u32::to_le_bytes(word));
    }
    for (time, frame) in records {
        for word in [*time, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    // Nothing yet, or half of a frame: looked at again.
    read_pcap(path).map(|records| records.into_iter().map(|record| record.frame).collect()).unwrap_or_default()
}

#[test]
fn frames_enter_in_the_order_of_their_times_and_leave_to_files() {
    let scratch = Scratch::new();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/stacks.json");
    // The program answers everything on port 2; the last byte tells the packets apart.
    let packet = |number: u8| [vec![number % 20; 70], vec![number]].concat();
    let (even, odd): (Vec<u8>, Vec<u8>) = (0..100).partition(|number| number % 2 == 0);
    let records = |numbers: &[u8]| numbers.iter().map(|&n| (u32::from(n), packet(n))).collect::<Vec<_>>();
    write(&scratch.0.join("a_in.pcap"), &records(&even));
    write(&scratch.0.join("b_in.pcap"), &records(&odd));

    let options = ["--use-files", "0", "--pcap", "captures", "--log-format", "json", "-i", "1@a", "-i", "2@b"];
    let switch = Command::new(env!("CARGO_BIN_EXE_apswitch"))
        .current_dir(&scratch.0)
        .arg(program)
        .args(options)
        .args(["--grpc-server-addr", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while frames(&scratch.0.join("b_out.pcap")).len() < 100 && begin.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Asked to end it has said everything, and its captures are whole.
    kill(Pid::from_raw(switch.id() as i32), Signal::SIGTERM).unwrap();
    let output = switch.wait_with_output().unwrap();
    assert!(output.status.success());
    let log = String::from_utf8(output.stderr).unwrap();

    let setup = Setup { ports: vec![1, 2], cpu_port: None, queues: 8, seed: 1 };
    let json = std::fs::read(program).unwrap();
    let mut reference = Reference::load(&json, setup).unwrap();
    let program = Arc::new(Program::load(&json).unwrap());
    let shared = Arc::new(Shared::new(&program));
    reference.sync(&Store::new(program, shared).unwrap().0, 0);
    let expected = (0..100).flat_map(|number| reference.receive(1, &packet(number), 0)).map(|output| match output {
        Output::Frame { port: 2, frame } => frame,
        other => panic!("{other:?}"),
    });
    assert_eq!(frames(&scratch.0.join("b_out.pcap")), expected.collect::<Vec<_>>(), "{log}");
    assert!(frames(&scratch.0.join("a_out.pcap")).is_empty());
    let captured = |name: &str| frames(&scratch.0.join("captures").join(name));
    assert_eq!(captured("a_in.pcap"), even.iter().map(|&number| packet(number)).collect::<Vec<_>>());
    assert_eq!(captured("b_in.pcap").len(), 50);
    assert_eq!(captured("b_out.pcap"), frames(&scratch.0.join("b_out.pcap")));
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(log.contains("2 ports"), "{log}");
}
