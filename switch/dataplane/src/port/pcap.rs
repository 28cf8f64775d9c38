// SPDX-License-Identifier: Apache-2.0
//! Frames in pcap files (libpcap's classic format): as ports, and of what ports carry.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::pcap_format::{ETHERNET, FILE_HEADER, FRAME_HEADER, Format, MAX_FRAME, MAX_PIPED_FRAME_LEN, NANOSECONDS};
use super::pipe::Pipe;
use super::{PortIo, Received};
use apswitch_core::state::frame::Packet;

/// A frame and its time, ns since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub time: u64,
    pub frame: Vec<u8>,
}

/// All frames of a file of either byte order; the error is one line with the mend.
pub fn read_pcap(path: &Path) -> Result<Vec<Record>, String> {
    let name = path.display();
    let file = std::fs::read(path).map_err(|e| format!("{name}: {e}"))?;
    let format = Format::of(&file, name)?;
    let mut records = Vec::new();
    let mut rest = &file[FILE_HEADER..];
    while !rest.is_empty() {
        let Some((time, len)) = format.frame(rest).filter(|_| rest.len() >= FRAME_HEADER) else {
            return Err(format!("{}: ends within the header of frame {}", path.display(), records.len() + 1));
        };
        let Some(frame) = rest.get(FRAME_HEADER..FRAME_HEADER + len).filter(|frame| frame.len() <= MAX_FRAME) else {
            return Err(format!("{}: ends within frame {}", path.display(), records.len() + 1));
        };
        records.push(Record { time, frame: frame.to_vec() });
        rest = &rest[FRAME_HEADER + len..];
    }
    Ok(records)
}

/// A file that frames are appended to.
pub struct PcapWriter {
    file: BufWriter<File>,
}

impl PcapWriter {
    pub fn create(path: &Path) -> io::Result<PcapWriter> {
        let mut file = BufWriter::new(File::create(path)?);
        for word in [NANOSECONDS, 2 | 4 << 16, 0, 0, MAX_FRAME as u32, ETHERNET] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.flush()?;
        Ok(PcapWriter { file })
    }

    /// Appends frames with the present time; they are in the file when this returns.
    pub fn append<'f>(&mut self, frames: impl Iterator<Item = &'f [u8]>) -> io::Result<()> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for frame in frames {
            let len = frame.len() as u32;
            for word in [time.as_secs() as u32, time.subsec_nanos(), len, len] {
                self.file.write_all(&word.to_le_bytes())?;
            }
            self.file.write_all(frame)?;
        }
        self.file.flush()
    }
}

/// Every frame that a port carries, in `DIR/INTERFACE_in.pcap` and `DIR/INTERFACE_out.pcap`.
pub struct Capture {
    pub received: PcapWriter,
    pub sent: PcapWriter,
}

impl Capture {
    /// The error is one line that names the file.
    pub fn create(directory: &Path, interface: &str) -> Result<Capture, String> {
        let create = |way: &str| {
            let path = directory.join(format!("{interface}_{way}.pcap"));
            PcapWriter::create(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        Ok(Capture { received: create("in")?, sent: create("out")? })
    }
}

/// Frames of all files in the order of their times, with the index of their port.
type Feed = Arc<Mutex<VecDeque<(usize, Vec<u8>)>>>;

/// A port that receives `INTERFACE_in.pcap` and sends to `INTERFACE_out.pcap`.
pub struct FilePort {
    source: Source,
    sent: PcapWriter,
}

enum Source {
    File {
        feed: Feed,
        index: usize,
        begin: Instant,
        /// Readable from the beginning until all frames of all files are received.
        ready: TimerFd,
    },
    Pipe(Pipe),
}

impl FilePort {
    /// A port for each name, and the bytes of the longest frame. The first frame is received after `wait`, the others
    /// as fast as they are taken; what is written to a named pipe is received when it is written. A port without an
    /// input file receives nothing.
    pub fn open(interfaces: &[&str], wait: Duration) -> Result<(Vec<FilePort>, usize), String> {
        let mut records = Vec::new();
        let mut pipes = Vec::new();
        let mut longest = 0;
        for (index, interface) in interfaces.iter().enumerate() {
            let path = format!("{interface}_in.pcap");
            let mut pipe = None;
            match std::fs::metadata(&path) {
                Ok(file) if file.file_type().is_fifo() => {
                    pipe = Some(Pipe::open(Path::new(&path)).map_err(|e| format!("{path}: {e}"))?);
                    longest = MAX_PIPED_FRAME_LEN;
                }
                Ok(_) => records
                    .extend(read_pcap(Path::new(&path))?.into_iter().map(|record| (record.time, index, record.frame))),
                Err(_) => tracing::warn!("there is no {path}: {interface} receives nothing"),
            }
            pipes.push(pipe);
        }
        // Stable: frames of one time stay in the order of ports and files.
        records.sort_by_key(|(time, _, _)| *time);
        longest = records.iter().map(|(_, _, frame)| frame.len()).fold(longest, usize::max);
        let feed: Feed = Arc::new(Mutex::new(records.into_iter().map(|(_, index, frame)| (index, frame)).collect()));
        let begin = Instant::now() + wait;
        let open = |((index, interface), pipe): ((usize, &&str), Option<Pipe>)| {
            let path = format!("{interface}_out.pcap");
            let sent = PcapWriter::create(Path::new(&path)).map_err(|e| format!("{path}: {e}"))?;
            let source = match pipe {
                Some(pipe) => Source::Pipe(pipe),
                None => {
                    let ready = timer(wait).map_err(|e| format!("timer: {e}"))?;
                    Source::File { feed: feed.clone(), index, begin, ready }
                }
            };
            Ok(FilePort { source, sent })
        };
        Ok((interfaces.iter().enumerate().zip(pipes).map(open).collect::<Result<_, String>>()?, longest))
    }
}

/// Readable once and for all after `wait`.
fn timer(wait: Duration) -> nix::Result<TimerFd> {
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
    // 0 would stop it.
    let wait = TimeSpec::from_duration(wait.max(Duration::from_nanos(1)));
    timer.set(Expiration::OneShot(wait), TimerSetTimeFlags::empty())?;
    Ok(timer)
}

impl PortIo for FilePort {
    fn receive(&mut self, packets: &mut [Box<Packet>]) -> io::Result<Received> {
        let mut received = Received::default();
        let (feed, index, ready) = match &mut self.source {
            Source::Pipe(pipe) => return pipe.receive(packets),
            Source::File { begin, .. } if Instant::now() < *begin => return Ok(received),
            Source::File { feed, index, ready, .. } => (feed, *index, ready),
        };
        let mut feed = feed.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in packets.iter_mut() {
            // An earlier frame of another port is received there first.
            if feed.front().is_none_or(|(port, _)| *port != index) {
                break;
            }
            let Some((_, frame)) = feed.pop_front() else { break };
            received.add(packet, &frame);
        }
        if feed.is_empty() && received.packets == 0 {
            ready.unset()?;
        }
        Ok(received)
    }

    fn send(&mut self, packets: &mut [Box<Packet>]) -> io::Result<usize> {
        self.sent.append(packets.iter().map(|packet| packet.frame.bytes()))?;
        Ok(packets.len())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::File { ready, .. } => ready.as_fd(),
            Source::Pipe(pipe) => pipe.as_fd(),
        }
    }

    fn waits_for_program(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::pcap_format::{MICROSECONDS, NEWER_FORMAT};

    fn scratch(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("apswitch-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_read() {
        let path = scratch("written.pcap");
        let frames: [&[u8]; 3] = [&[1; 60], &[2; 1514], &[]];
        let mut writer = PcapWriter::create(&path).unwrap();
        writer.append(frames[..2].iter().copied()).unwrap();
        writer.append(frames[2..].iter().copied()).unwrap();
        let records = read_pcap(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(records.iter().map(|record| &record.frame[..]).collect::<Vec<_>>(), frames);
        assert!(records[0].time > 1_700_000_000_000_000_000 && records[0].time <= records[2].time);
    }

    #[test]
    fn both_byte_orders_and_units_are_read_and_all_else_is_refused() {
        let path = scratch("made.pcap");
        let file = |magic: u32, order: fn(u32) -> [u8; 4], link: u32, frame: &[u8]| {
            let words = [magic, 2 | 4 << 16, 0, 0, 65535, link, 5, 7, frame.len() as u32, frame.len() as u32];
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| order(*word)).collect();
            bytes.extend_from_slice(frame);
            bytes
        };
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_pcap(&path)
        };
        for (magic, unit) in [(MICROSECONDS, 1000), (NANOSECONDS, 1)] {
            for order in [u32::to_be_bytes as fn(u32) -> [u8; 4], u32::to_le_bytes] {
                let time = 5_000_000_000 + 7 * unit;
                assert_eq!(read(&file(magic, order, 1, &[9; 3])), Ok(vec![Record { time, frame: vec![9; 3] }]));
            }
        }
        let whole = file(MICROSECONDS, u32::to_le_bytes, 1, &[9; 3]);
        for (bytes, message) in [
            (&whole[..whole.len() - 1], "ends within frame 1"),
            (&whole[..30], "ends within the header"),
            (&file(MICROSECONDS, u32::to_le_bytes, 101, &[]), "no Ethernet"),
            (&file(NEWER_FORMAT, u32::to_le_bytes, 1, &[]), "pcapng"),
            (b"text", "not a pcap file"),
            (b"", "not a pcap file"),
        ] {
            let error = read(bytes).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
