// SPDX-License-Identifier: Apache-2.0
//! TCP sockets of the sessions: their congestion control, retransmissions, and the time when the last byte was
//! acknowledged, by the kernel's own clock (SO_TIMESTAMPING, Documentation/networking/timestamping.rst).

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use hosts_base::tcp;

static ZEROS: [u8; 65536] = [0; 65536];

/// Maximum bytes that wait unsent in the kernel: a thousand endless sessions must not fill its memory.
const UNSENT: u32 = 128 * 1024;
/// Interval at which a connection that waits for an acknowledgement is polled, in case it has died silently.
const LOOK: Duration = Duration::from_millis(200);
/// linux/net_tstamp.h, linux/errqueue.h, net/tcp_states.h
const TX_ACK: u32 = 1 << 9;
const SOFTWARE: u32 = 1 << 4;
const OPT_ID: u32 = 1 << 7;
const OPT_TSONLY: u32 = 1 << 11;
const ORIGIN_TIMESTAMPING: u8 = 4;
const TCP_CLOSE: u8 = 7;

/// Values of TCP_INFO.
#[derive(Clone, Copy)]
pub struct Info {
    state: u8,
    /// Segments retransmitted since the connection began.
    pub retransmits: u64,
    /// Bytes acknowledged since the connection began.
    pub acked: u64,
}

/// Connection that sends sessions.
pub struct Sender {
    pub stream: TcpStream,
    /// Bytes written so far.
    written: u64,
}

impl Sender {
    /// Wrap a connection on which nothing was sent yet: the kernel numbers the bytes that follow.
    pub fn new(stream: TcpStream) -> io::Result<Sender> {
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT)?;
        let stamps = SOFTWARE | OPT_ID | OPT_TSONLY;
        let (fd, from, length) = (stream.as_raw_fd(), (&raw const stamps).cast(), size_of_val(&stamps));
        // SAFETY: the kernel reads the bytes of `stamps` during the call.
        check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, from, length as u32) as isize })?;
        Ok(Sender { stream, written: 0 })
    }

    /// Send a request or an answer.
    pub async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let fd = self.stream.as_raw_fd();
            let count = self.stream.async_io(Interest::WRITABLE, || send(fd, bytes, 0, false)).await?;
            self.written += count as u64;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Send `length` bytes and return when the last was acknowledged. Not to be called again after it was cancelled.
    pub async fn transmit(&mut self, length: u64) -> io::Result<SystemTime> {
        let fd = self.stream.as_raw_fd();
        // A call that asks for a timestamp may take only some of its bytes, and then the timestamp would come while others
        // wait to be sent (see `renew`). So the last byte goes by itself, in the segment of those before it.
        let mut left = length - 1;
        while left > 0 {
            let count = left.min(ZEROS.len() as u64) as usize;
            let how = if count as u64 == left { libc::MSG_MORE } else { 0 };
            left -= self.stream.async_io(Interest::WRITABLE, || send(fd, &ZEROS[..count], how, false)).await? as u64;
        }
        self.stream.async_io(Interest::WRITABLE, || send(fd, &ZEROS[..1], 0, true)).await?;
        self.written += length;
        let acknowledged = self.acknowledged((self.written - 1) as u32).await?;
        self.renew()?;
        Ok(acknowledged)
    }

    /// Clear the runtime's readiness after a timestamp. It comes as EPOLLERR, which the runtime takes for the end of
    /// all writing: it would never again wait for room, but try all the time.
    fn renew(&mut self) -> io::Result<()> {
        let same = self.stream.as_fd().try_clone_to_owned()?;
        self.stream = TcpStream::from_std(same.into())?;
        Ok(())
    }

    /// Send until it is cancelled or the connection is lost.
    pub async fn transmit_endlessly(&mut self) -> io::Error {
        let fd = self.stream.as_raw_fd();
        loop {
            match self.stream.async_io(Interest::WRITABLE, || send(fd, &ZEROS, 0, false)).await {
                Ok(count) => self.written += count as u64,
                Err(error) => return error,
            }
        }
    }

    /// Wait for the acknowledgement of the byte with this number.
    async fn acknowledged(&self, number: u32) -> io::Result<SystemTime> {
        let fd = self.stream.as_raw_fd();
        loop {
            match tokio::time::timeout(LOOK, self.stream.async_io(Interest::ERROR, || timestamp(fd))).await {
                Ok(Ok((of, time))) if of == number => return Ok(time),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    if let Some(error) = self.stream.take_error()? {
                        return Err(error);
                    }
                    if info(&self.stream)?.state == TCP_CLOSE {
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                }
            }
        }
    }

    /// Reset the connection, and discard unsent bytes.
    pub fn abort(self) {
        // The socket is closed in any case.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// Receive up to `max` bytes and discard them. 0: the peer has ended.
pub async fn discard(stream: &TcpStream, max: u64) -> io::Result<u64> {
    let fd = stream.as_raw_fd();
    let max = max.min(1 << 20) as usize;
    // TCP with MSG_TRUNC counts the bytes and copies none (tcp(7)).
    // SAFETY: no buffer is needed then.
    let receive = || check(unsafe { libc::recv(fd, std::ptr::null_mut(), max, libc::MSG_TRUNC | libc::MSG_DONTWAIT) });
    Ok(stream.async_io(Interest::READABLE, receive).await? as u64)
}

/// Read TCP_INFO.
pub fn info(stream: &TcpStream) -> io::Result<Info> {
    let info = tcp::info(stream)?;
    Ok(Info { state: info.tcpi_state, retransmits: info.tcpi_total_retrans.into(), acked: info.tcpi_bytes_acked })
}

/// Return the congestion control of a socket.
pub fn congestion(stream: &TcpStream) -> Option<String> {
    let name = SockRef::from(stream).tcp_congestion().ok()?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\0').into())
}

#[repr(C, align(8))]
struct Ancillary<const N: usize>(MaybeUninit<[u8; N]>);

/// Send as many bytes as the socket takes now. `how`: flags of sendmsg(2). `stamp`: with a timestamp when its last byte
/// is acknowledged.
fn send(fd: RawFd, bytes: &[u8], how: libc::c_int, stamp: bool) -> io::Result<usize> {
    const SPACE: usize = unsafe { libc::CMSG_SPACE(4) } as usize;
    let mut ancillary = Ancillary::<SPACE>(MaybeUninit::zeroed());
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid msghdr; its pointers are to locals and to `bytes`, which the kernel only reads; the one
    // control message fits into the space.
    check(unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if stamp {
            message.msg_control = ancillary.0.as_mut_ptr().cast();
            message.msg_controllen = SPACE as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SO_TIMESTAMPING;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header).cast::<u32>().write_unaligned(TX_ACK);
        }
        libc::sendmsg(fd, &raw const message, how | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    })
}

/// Receive the next timestamp of an acknowledgement: number of the byte, and its time.
fn timestamp(fd: RawFd) -> io::Result<(u32, SystemTime)> {
    const SPACE: usize = 256;
    let mut ancillary = Ancillary::<SPACE>(MaybeUninit::uninit());
    let (mut number, mut time) = (None, None);
    // SAFETY: all zeros is a valid msghdr; the kernel writes control messages into the space given; the CMSG macros stay within
    // them, and each value is read as the type that its option has.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_control = ancillary.0.as_mut_ptr().cast();
        message.msg_controllen = SPACE as _;
        check(libc::recvmsg(fd, &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT))?;
        let mut next = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(header) = next.as_ref() {
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => {
                    let stamp = libc::CMSG_DATA(next).cast::<libc::timespec>().read_unaligned();
                    time = Some(UNIX_EPOCH + Duration::new(stamp.tv_sec as u64, stamp.tv_nsec as u32));
                }
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    let error = libc::CMSG_DATA(next).cast::<libc::sock_extended_err>().read_unaligned();
                    if error.ee_origin == ORIGIN_TIMESTAMPING {
                        number = Some(error.ee_data);
                    }
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(&raw const message, next);
        }
    }
    number.zip(time).ok_or_else(|| io::Error::other("the kernel gave no timestamp"))
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
