// SPDX-License-Identifier: Apache-2.0
//! A client's TCP connection, on which a message has a time to pass, however slowly its bytes do.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// One direction of a connection.
pub struct Connection {
    stream: TcpStream,
    end: Option<(Instant, &'static str)>,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Connection {
        Connection { stream, end: None }
    }

    /// Bounds the time of all that is read or written from now on; after it, each of these fails with the text.
    pub fn allow(&mut self, time: Duration, text: &'static str) {
        self.end = Some((Instant::now() + time, text));
    }

    /// Lets it wait without end.
    pub fn wait(&mut self) {
        self.end = None;
    }

    /// Returns the time that is left, or `None` without a bound.
    fn left(&self) -> io::Result<Option<Duration>> {
        let Some((end, text)) = self.end else { return Ok(None) };
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::Error::new(io::ErrorKind::TimedOut, text)),
            left => Ok(Some(left)),
        }
    }

    /// Returns the error, with the text if the kernel says that the time is over.
    fn said(&self, error: io::Error) -> io::Error {
        match (error.kind(), self.end) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, Some((_, text))) => {
                io::Error::new(io::ErrorKind::TimedOut, text)
            }
            _ => error,
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer).map_err(|error| self.said(error))
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(|error| self.said(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);

    fn pair() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Connection::new(listener.accept().unwrap().0), client)
    }

    /// Bytes that come one by one, each in time for itself, are too slow all the same.
    #[test]
    fn slow_reads_end() {
        let (mut connection, mut client) = pair();
        thread::spawn(move || {
            while client.write_all(b"x").is_ok() {
                thread::sleep(SHORT / 10);
            }
        });
        connection.allow(SHORT, "too slow");
        let error = io::copy(&mut connection, &mut io::sink()).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::TimedOut, "too slow"));
    }

    #[test]
    fn silence_ends_a_read() {
        let (mut connection, _client) = pair();
        connection.allow(SHORT, "too slow");
        assert_eq!(connection.read(&mut [0; 8]).unwrap_err().to_string(), "too slow");
    }

    #[test]
    fn slow_writes_end() {
        let (mut connection, mut client) = pair();
        thread::spawn(move || {
            while client.read(&mut [0]).is_ok_and(|read| read == 1) {
                thread::sleep(SHORT / 10);
            }
        });
        connection.allow(SHORT, "too slow");
        assert_eq!(connection.write_all(&vec![0; 64 << 20]).unwrap_err().to_string(), "too slow");
    }

    #[test]
    fn without_a_bound_it_waits() {
        let (mut connection, mut client) = pair();
        connection.allow(SHORT, "too slow");
        connection.wait();
        thread::spawn(move || {
            thread::sleep(2 * SHORT);
            client.write_all(b"late").unwrap();
        });
        let mut buffer = [0; 4];
        connection.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"late");
    }
}
