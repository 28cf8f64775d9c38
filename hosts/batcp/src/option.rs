// SPDX-License-Identifier: Apache-2.0
//! BATCP's TCP option (paper 003, section 3 and 3.1): kind 254 on SYN and SYN-ACK, with six digits.
//!
//! The kernel writes and reads it in a BPF program on this process' own cgroup, for the sockets that are given to an
//! [`Announcer`] and for no others. All of it ends with the process, however that ends.
//!
//! - A SYN carries a [`Mark`], and the SYN-ACK repeats it if the listener answers.
//! - It protects nothing: who is on the way reads, removes and adds it. With a key a socket whose peer has not announced
//!   itself is refused.
//! - A peer that knows nothing of it answers without, or with something else: [`Announcer::peer_mark`] is `None`, and the
//!   socket is plain TCP. The second retransmitted SYN goes without, as a box on the path may drop what it does not know.
//! - Under a SYN flood Linux answers with SYN cookies, which keep no options: plain TCP at both ends.
//! - Beside TCP Fast Open's option it is answered as alone. The transport sends no data on a SYN, as it could not yet know
//!   what the peer supports.
//! - An option 254 of another length, with other characters than digits, or more than one: ignored and counted.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

use super::{Mark, Negotiation, cgroup};
use hosts_base::{About, Error};

mod skeleton {
    #![allow(clippy::all, clippy::pedantic, dead_code, unused)]
    include!(concat!(env!("OUT_DIR"), "/batcp_option.skel.rs"));
}

/// Counters of the option's program since it was loaded. SYNs and SYN-ACKs count each time they are sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// SYNs sent with the option
    pub announced: u64,
    /// Connections whose peer answered
    pub accepted: u64,
    /// Connections whose peer did not, in either direction
    pub plain: u64,
    /// SYN-ACKs sent with the option
    pub answered: u64,
    /// SYN-ACKs sent without, as they are SYN cookies
    pub cookies: u64,
    /// Segments whose option 254 is not six digits
    pub malformed: u64,
    /// Segments with more than one
    pub duplicate: u64,
    /// SYN-ACKs with other digits than those sent
    pub mismatched: u64,
}

// `enum role` and `struct handshake` of the BPF program.
const ANNOUNCES: u8 = 1;
const ANSWERS: u8 = 2;
const HANDSHAKE: usize = 9;

/// The loaded and attached program.
#[derive(Debug)]
pub struct Announcer {
    sockets: MapHandle,
    counts: MapHandle,
    _link: Link,
}

impl Announcer {
    /// Load the program for sockets that this process makes (paper 003, section 3). Errors: no right (CAP_BPF and
    /// CAP_NET_ADMIN, without a mounted cgroup2 also CAP_SYS_ADMIN), or a kernel without BPF header options and loops
    /// (before 5.17).
    pub fn load() -> Result<Self, Error> {
        const WHAT: &str = "load BATCP's TCP option (needs root and Linux 5.17; without it connections are plain TCP)";
        libbpf_rs::set_print(None);
        let cgroup = cgroup::open(&cgroup::own_path()?)?;
        let mut object = MaybeUninit::uninit();
        let skeleton = skeleton::BatcpOptionSkelBuilder::default().open(&mut object).about(WHAT)?.load().about(WHAT)?;
        Ok(Self {
            sockets: MapHandle::try_from(&skeleton.maps.sockets).about(WHAT)?,
            counts: MapHandle::try_from(&skeleton.maps.batcp_counts).about(WHAT)?,
            _link: skeleton.progs.batcp_option.attach_cgroup(cgroup.as_raw_fd()).about(WHAT)?,
        })
    }

    /// Return the mark that a socket's peer sent (paper 003, section 3.1): on an accepted socket that of its SYN, on a
    /// connected one that of its SYN-ACK, which is the socket's own. `None`: no mark, so it is plain TCP.
    pub fn peer_mark(&self, socket: BorrowedFd) -> io::Result<Option<Mark>> {
        let value = self.sockets.lookup(&key(socket), MapFlags::ANY).map_err(failed)?;
        Ok(value.filter(|v| v.len() == HANDSHAKE && v[1] == 1).and_then(|v| mark_of(&v[3..])))
    }

    fn set(&self, socket: BorrowedFd, role: u8, digits: [u8; 6]) -> io::Result<()> {
        let mut value = [0; HANDSHAKE];
        value[0] = role;
        value[3..].copy_from_slice(&digits);
        self.sockets.update(&key(socket), &value, MapFlags::ANY).map_err(failed)
    }
}

impl Negotiation for Announcer {
    fn prepare(&self, socket: BorrowedFd<'_>, mark: Mark) -> io::Result<()> {
        self.set(socket, ANNOUNCES, digits_of(mark).ok_or(io::ErrorKind::InvalidInput)?)
    }

    fn answered(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(self.peer_mark(socket)?.is_some())
    }

    fn listen(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.set(socket, ANSWERS, [0; 6])
    }

    fn received(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(self.peer_mark(socket)?.is_some())
    }

    /// Read the program's counters (paper 003, section 3.1), in the order of its `enum count`.
    fn counts(&self) -> Option<Counts> {
        let counter = |index: u32| -> Option<u64> {
            let octets = self.counts.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok()??;
            Some(u64::from_ne_bytes(octets.try_into().ok()?))
        };
        Some(Counts {
            announced: counter(0)?,
            accepted: counter(1)?,
            plain: counter(2)?,
            answered: counter(3)?,
            cookies: counter(4)?,
            malformed: counter(5)?,
            duplicate: counter(6)?,
            mismatched: counter(7)?,
        })
    }
}

/// A socket's key in a map of BPF_MAP_TYPE_SK_STORAGE.
fn key(socket: BorrowedFd) -> [u8; 4] {
    socket.as_raw_fd().to_ne_bytes()
}

fn failed(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(format!("BATCP's state of a socket: {error}"))
}

/// Two digits of the interface, four of the connection (section 3); `None`: a number has more.
fn digits_of(mark: Mark) -> Option<[u8; 6]> {
    format!("{:02}{:04}", mark.interface, mark.connection).into_bytes().try_into().ok()
}

fn mark_of(digits: &[u8]) -> Option<Mark> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    let interface: u16 = number(digits.get(..2)?)?;
    Some(Mark { interface: u8::try_from(interface).ok()?, connection: number(digits.get(2..6)?)? })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::fd::AsFd;

    use proptest::prelude::*;
    use socket2::{Domain, Socket, Type};

    use super::*;

    proptest! {
        #[test]
        fn six_digits_are_the_numbers(interface: u8, connection: u16) {
            let mark = Mark { interface, connection };
            let digits = digits_of(mark);
            prop_assert_eq!(digits.is_some(), interface <= 99 && connection <= 9999);
            if let Some(digits) = digits {
                prop_assert_eq!(mark_of(&digits), Some(mark));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..10)) {
            mark_of(&bytes);
        }
    }

    /// Over loopback: both ends agree with a listener that answers, and with one that does not both are plain.
    #[test]
    fn the_kernel_carries_the_mark() {
        // SAFETY: geteuid(2) cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("skipped: loading BPF programs needs root");
        }
        let announcer = Announcer::load().unwrap();
        let mark = Mark { interface: 7, connection: 1234 };
        for answers in [true, false] {
            let before = announcer.counts().unwrap();
            let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
            if answers {
                announcer.listen(listener.as_fd()).unwrap();
            }
            listener.listen(1).unwrap();
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            announcer.prepare(client.as_fd(), mark).unwrap();
            client.connect(&listener.local_addr().unwrap()).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            let expected = answers.then_some(mark);
            assert_eq!(announcer.peer_mark(client.as_fd()).unwrap(), expected);
            assert_eq!(announcer.peer_mark(accepted.as_fd()).unwrap(), expected);
            let (counts, yes) = (announcer.counts().unwrap(), u64::from(answers));
            assert_eq!(counts.announced, before.announced + 1);
            assert_eq!((counts.accepted, counts.answered), (before.accepted + yes, before.answered + yes));
            assert_eq!(counts.plain, before.plain + 1 - yes);
        }
    }
}
