// SPDX-License-Identifier: Apache-2.0
//! A port's frames from a named pipe (fifo(7)) that carries libpcap's classic format: whoever writes decides when each
//! is received, and how short it is.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::Received;
use super::pcap_format::{FILE_HEADER, FRAME_HEADER, Format, MAX_FRAME, MAX_PIPED_FRAME_LEN};
use apswitch_core::state::frame::Packet;

pub(super) struct Pipe {
    file: File,
    name: String,
    format: Option<Format>,
    /// The file's header or a frame with its own, as much as has come. What follows stays in the pipe, which therefore
    /// is readable as long as there is something.
    bytes: Vec<u8>,
    frames: u64,
}

impl Pipe {
    pub(super) fn open(path: &Path) -> io::Result<Pipe> {
        // Also for writing, which nobody does: a pipe without any writer would always be readable.
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let name = path.display().to_string();
        Ok(Pipe { file, name, format: None, bytes: Vec::with_capacity(MAX_PIPED_FRAME_LEN), frames: 0 })
    }

    /// Receives all that is there. The error names the frame that is none; nothing can be received behind it.
    pub(super) fn receive(&mut self, packets: &mut [Box<Packet>]) -> io::Result<Received> {
        let mut received = Received::default();
        for packet in packets {
            if !self.frame()? {
                break;
            }
            received.add(packet, &self.bytes[FRAME_HEADER..]);
            self.bytes.clear();
            self.frames += 1;
        }
        Ok(received)
    }

    /// Returns true once the next frame is there, behind its header.
    fn frame(&mut self) -> io::Result<bool> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let format = match self.format {
            Some(format) => format,
            None => {
                if !self.fill(FILE_HEADER)? {
                    return Ok(false);
                }
                let format = Format::of(&self.bytes, &self.name).map_err(invalid)?;
                self.bytes.clear();
                *self.format.insert(format)
            }
        };
        if !self.fill(FRAME_HEADER)? {
            return Ok(false);
        }
        let length = format.frame(&self.bytes).map_or(0, |(_, length)| length);
        if length > MAX_FRAME {
            let number = self.frames + 1;
            return Err(invalid(format!(
                "{}: frame {number} has {length} bytes, at most {MAX_FRAME} can be",
                self.name
            )));
        }
        self.fill(FRAME_HEADER + length)
    }

    /// Reads until so many bytes are there; false: there are fewer.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        let missing = wanted.saturating_sub(self.bytes.len());
        match (&self.file).take(missing as u64).read_to_end(&mut self.bytes) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
            Ok(_) => Ok(self.bytes.len() >= wanted),
        }
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use apswitch_core::state::frame::Pool;

    /// The reading end, and the end that a test writes to.
    fn pipe(name: &str) -> (Pipe, File) {
        let path = std::env::temp_dir().join(format!("apswitch-{}-{name}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = Pipe::open(&path).unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (reader, writer)
    }

    fn packets(number: usize) -> Vec<Box<Packet>> {
        let mut pool = Pool::new(MAX_PIPED_FRAME_LEN, number);
        (0..number).map(|_| pool.take().unwrap()).collect()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const HEADER: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65535, 1];

    #[test]
    fn a_frame_is_received_when_its_last_byte_is_written() {
        let (mut pipe, mut writer) = pipe("bytewise");
        let frames: [&[u8]; 3] = [&[7], &[], &[9; 1500]];
        let mut packets = packets(4);
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut file = words(&HEADER);
        for frame in frames {
            file.extend(words(&[1, 2, frame.len() as u32, frame.len() as u32]));
            file.extend(frame);
        }
        for byte in file {
            writer.write_all(&[byte]).unwrap();
            let received = pipe.receive(&mut packets).unwrap();
            assert_eq!(received.too_long, 0);
            seen.extend(packets[..received.packets].iter().map(|packet| packet.frame.bytes().to_vec()));
        }
        assert_eq!(seen, frames);
        assert_eq!(pipe.receive(&mut packets).unwrap(), Received::default());
    }

    #[test]
    fn no_more_than_asked_for_is_taken_and_long_frames_are_counted() {
        let (mut pipe, mut writer) = pipe("batches");
        writer.write_all(&words(&HEADER)).unwrap();
        for length in [1_u32, 2, MAX_PIPED_FRAME_LEN as u32 + 1, 3] {
            writer.write_all(&words(&[0, 0, length, length])).unwrap();
            writer.write_all(&vec![5; length as usize]).unwrap();
        }
        let mut packets = packets(2);
        assert_eq!(pipe.receive(&mut packets).unwrap(), Received { packets: 2, too_long: 0 });
        assert_eq!(pipe.receive(&mut packets).unwrap(), Received { packets: 2, too_long: 1 });
        assert_eq!(packets[1].frame.bytes(), [5; 3]);
    }

    #[test]
    fn what_is_no_frame_is_named() {
        for (bytes, message) in [
            (vec![1; FILE_HEADER], "is not a pcap file"),
            ([words(&HEADER), words(&[0, 0, 0xffff_ffff, 0])].concat(), "frame 1 has 4294967295 bytes"),
        ] {
            let (mut pipe, mut writer) = pipe("broken");
            writer.write_all(&bytes).unwrap();
            let error = pipe.receive(&mut packets(1)).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
