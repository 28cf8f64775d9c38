// SPDX-License-Identifier: Apache-2.0
//! Responder: records when packets arrive and reports it. It measures with one sender at a time.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::wire::{
    Answer, Control, Header, Hello, Key, MAX_PACKETS, MAX_UNPROVEN_LINE, Proof, Report, Request, Welcome,
};
use hosts_base::log::report;
use hosts_base::slots::{ConnectionSlot, ConnectionSlots};
use hosts_base::{About, Error};

/// Time that a client has to prove the key, and (`IDLE`) a sender to send the next request.
const PATIENCE: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);
/// Connections at a time that have not proved the key, or are only rejected because another one is measuring; then the
/// address that has the most loses its oldest.
const MAX_CONNECTIONS: usize = 16;
const RECEIVE_BUFFER: usize = 8 << 20;
/// Packets that are processed before the sender's line and the time are checked: a flood ends no loop.
const TURN: usize = 1024;
/// Packets that are discarded before a trial: more than the buffer holds of the shortest. Later ones carry another
/// trial's number.
const STALE: usize = 65_536;
/// Maximum wait for the last packets of a trial, in ms.
const MAX_QUIET: u64 = 5000;

/// Serve on `listen` until the process ends. `max_rate`: bit/s that senders are permitted.
pub fn serve(listen: SocketAddr, key: Key, max_rate: u64) -> Result<(), Error> {
    let listener = TcpListener::bind(listen).about(format_args!("listen on TCP {listen}"))?;
    let listen = listener.local_addr().about("the listening address")?;
    let packets = Packets::bind(listen).about(format_args!("listen on UDP {listen}"))?;
    // The process that started this waits for the line.
    println!("listening on {listen}");
    let shared = Arc::new((key, Mutex::new(packets)));
    let strangers = ConnectionSlots::new(MAX_CONNECTIONS);
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(e) => {
                // Out of descriptors, for example: not for ever.
                report(format_args!("accept: {e}"));
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let (Ok(peer), Ok(same)) = (stream.peer_addr(), stream.try_clone()) else { continue };
        let slot = strangers.take(peer.ip(), move || drop(same.shutdown(Shutdown::Both)));
        let shared = shared.clone();
        let serving =
            std::thread::Builder::new().spawn(move || match converse(stream, slot, &shared.0, &shared.1, max_rate) {
                Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => report(format_args!("{peer}: {e}")),
                _ => {}
            });
        if let Err(e) = serving {
            report(format_args!("{peer}: start a thread: {e}"));
        }
    }
    Ok(())
}

/// Serve a sender, which gives its slot back to unproven clients once it has proved the key and measures.
fn converse(
    stream: TcpStream,
    slot: ConnectionSlot,
    key: &Key,
    packets: &Mutex<Packets>,
    max_rate: u64,
) -> io::Result<()> {
    let mut control = Control::new(stream)?;
    let hello = Hello::new();
    control.send(&hello)?;
    let proof: Proof = control.receive(MAX_UNPROVEN_LINE, PATIENCE)?;
    if !key.proves(&proof.proof, "sender", &hello.nonce, &proof.nonce) {
        return refuse(&mut control, "it has another key");
    }
    let Ok(mut packets) = packets.try_lock() else {
        return refuse(&mut control, "it is measuring with another sender, try again later");
    };
    drop(slot);
    let token = rand::random();
    let own = key.proof("responder", &hello.nonce, &proof.nonce);
    control.send(&Welcome { proof: own, token, max_rate })?;
    let mut trial = 0;
    loop {
        match control.receive(MAX_UNPROVEN_LINE, IDLE)? {
            Request::Begin(next) => {
                trial = next;
                packets.drain()?;
                control.send(&Answer::Ready(trial))?;
                let report = packets.record(&mut control, token, trial)?;
                control.send(&Answer::Report(report))?;
            }
            Request::End { .. } => return refuse(&mut control, &format!("trial {trial} is over already")),
        }
    }
}

fn refuse(control: &mut Control, why: &str) -> io::Result<()> {
    control.send(&serde_json::json!({ "error": why }))?;
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("refused: {why}")))
}

/// Socket for measuring packets.
struct Packets {
    socket: UdpSocket,
    /// Packets that the kernel dropped at this socket so far.
    overrun: u32,
}

impl Packets {
    fn bind(address: SocketAddr) -> io::Result<Packets> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        if set(&socket, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER as libc::c_int).is_err() {
            socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        }
        set(&socket, libc::SO_TIMESTAMPNS, 1)?;
        set(&socket, libc::SO_RXQ_OVFL, 1)?;
        socket.bind(&address.into())?;
        socket.set_nonblocking(true)?;
        Ok(Packets { socket: socket.into(), overrun: 0 })
    }

    /// Discard the packets of an earlier trial.
    fn drain(&mut self) -> io::Result<()> {
        for _ in 0..STALE {
            if self.receive()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Record a trial until the sender has ended it and no packet has come for as long as it asks.
    fn record(&mut self, control: &mut Control, token: u64, trial: u32) -> io::Result<Report> {
        let mut report = Report { trial, ..Report::default() };
        let before = self.overrun;
        let mut quiet = None;
        let mut last = Instant::now();
        loop {
            let left = quiet.unwrap_or(IDLE).saturating_sub(last.elapsed());
            if left.is_zero() {
                break;
            }
            let (data, asked) = self.wait(control, quiet.is_none(), left)?;
            for _ in 0..if data { TURN } else { 0 } {
                let Some((header, time)) = self.receive()? else { break };
                match header {
                    Some(h) if h.token == token && h.trial == trial && report.arrivals.len() < MAX_PACKETS => {
                        report.arrivals.push((h.number, time));
                        last = Instant::now();
                    }
                    _ => report.ignored += 1,
                }
            }
            if asked {
                match control.receive(MAX_UNPROVEN_LINE, PATIENCE)? {
                    Request::End { quiet: ms } => quiet = Some(Duration::from_millis(ms.min(MAX_QUIET))),
                    Request::Begin(_) => return Err(io::Error::other("a new trial before the end of the last")),
                }
                last = Instant::now();
            }
        }
        if quiet.is_none() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the sender went silent"));
        }
        report.overrun = u64::from(self.overrun.wrapping_sub(before));
        Ok(report)
    }

    /// Wait for packets and, if `listen`, for the sender's next line: (packets, line).
    fn wait(&self, control: &Control, listen: bool, timeout: Duration) -> io::Result<(bool, bool)> {
        if listen && control.has_buffered() {
            return Ok((true, true));
        }
        let watch = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut fds = [
            watch(self.socket.as_raw_fd(), libc::POLLIN),
            watch(if listen { control.stream.as_raw_fd() } else { -1 }, libc::POLLIN),
        ];
        let timeout = timeout.as_millis().clamp(1, 60_000) as libc::c_int;
        // SAFETY: two initialised pollfds that live during the call.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout) };
        match ready {
            -1 if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => Err(io::Error::last_os_error()),
            _ => Ok((fds[0].revents != 0, fds[1].revents != 0)),
        }
    }

    /// Receive the next packet: its header, if it has one, and the kernel's time of arrival in ns. `None`: no more for
    /// now.
    fn receive(&mut self) -> io::Result<Option<(Option<Header>, i64)>> {
        const CONTROL: usize = 128;
        #[repr(align(8))]
        struct Ancillary(MaybeUninit<[u8; CONTROL]>);
        let mut bytes = [0u8; Header::BYTES];
        let mut ancillary = Ancillary(MaybeUninit::uninit());
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: all zeros is a valid msghdr; every pointer in it is to a local that outlives the call.
        let (count, message) = unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = ancillary.0.as_mut_ptr().cast();
            message.msg_controllen = CONTROL as _;
            (libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0), message)
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        let mut time = 0;
        // SAFETY: the kernel wrote `msg_controllen` bytes of control messages; the CMSG macros stay within them, and each
        // value is read as the type that its option has.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(header) = next.as_ref() {
                match (header.cmsg_level, header.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                        let stamp = libc::CMSG_DATA(next).cast::<libc::timespec>().read_unaligned();
                        time = stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec;
                    }
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        self.overrun = libc::CMSG_DATA(next).cast::<u32>().read_unaligned();
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(&raw const message, next);
            }
        }
        Ok(Some((Header::read(&bytes[..count]), time)))
    }
}

fn set(socket: &Socket, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one int during the call.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, size_of::<libc::c_int>() as u32)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
