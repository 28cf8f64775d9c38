// SPDX-License-Identifier: Apache-2.0
//! The real BMv2 (`simple_switch_grpc`) as a reference, with files for ports, so that it needs no privilege.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A machine may be slow; what comes at all comes long before.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the process and its files, also when a test fails.
struct Running {
    process: Child,
    directory: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Its queues hold 64 packets, and files are read faster than they empty.
pub const MAX_FRAMES: usize = 60;

/// Returns the frames that BMv2 sends from port 2 for at most [`MAX_FRAMES`] frames that come to port 1, in their
/// order; each has to cause one frame. `None`: BMv2 is not on PATH.
pub fn outputs(program: &str, frames: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let found = std::env::split_paths(&std::env::var_os("PATH")?).any(|dir| dir.join("simple_switch_grpc").exists());
    if !found {
        eprintln!("not compared with BMv2: simple_switch_grpc is not on PATH");
        return None;
    }
    let directory = std::env::temp_dir().join(format!("apswitch-{program}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("p1_in.pcap"), pcap(frames)).unwrap();
    fs::write(directory.join("p2_in.pcap"), pcap(&[])).unwrap();
    let process = Command::new("simple_switch_grpc")
        .args(["--use-files", "0", "-i", "1@p1", "-i", "2@p2"])
        .arg(format!("{}/../testdata/programs/{program}.json", env!("CARGO_MANIFEST_DIR")))
        .args(["--", "--grpc-server-addr", "127.0.0.1:0"])
        .current_dir(&directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut running = Running { process, directory };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let received = read_pcap(&running.directory.join("p2_out.pcap"));
        if received.len() >= frames.len() {
            return Some(received);
        }
        if let Some(status) = running.process.try_wait().unwrap() {
            panic!("BMv2 has ended: {status}");
        }
        assert!(Instant::now() < deadline, "BMv2 has sent {} of {} frames", received.len(), frames.len());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 0xffff, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// The frames that are whole already.
fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap_or_default();
    let mut rest = file.get(24..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        let Some((frame, behind)) = behind.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}
