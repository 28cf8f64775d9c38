// SPDX-License-Identifier: Apache-2.0
//! DSCP of TCP connections (RFC 2474): of one that was accepted, as its program set it before the handshake ended, and of the
//! sockets that carry it on. ECN's two bits of the same byte are TCP's.

use std::io;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use socket2::SockRef;

/// Codepoint, 0 to 63.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Dscp(u8);

/// Options that make a socket tell the byte of what it received, that read it, and the kind of the answer.
const OF_IPV4: [libc::c_int; 4] = [libc::IPPROTO_IP, libc::IP_RECVTOS, IP_PKTOPTIONS, libc::IP_TOS];
const OF_IPV6: [libc::c_int; 4] = [libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, IPV6_2292PKTOPTIONS, libc::IPV6_TCLASS];
// linux/in.h and linux/in6.h: for TCP, what the handshake's last segment had.
const IP_PKTOPTIONS: libc::c_int = 9;
const IPV6_2292PKTOPTIONS: libc::c_int = 6;

impl Dscp {
    /// Check a codepoint. None: it has more than six bits.
    pub fn new(codepoint: u8) -> Option<Self> {
        (codepoint < 64).then_some(Self(codepoint))
    }

    pub fn codepoint(self) -> u8 {
        self.0
    }

    /// Return that of an accepted connection; 0 where the kernel does not tell.
    pub fn of(stream: &impl AsFd, peer: IpAddr) -> Self {
        let options = if is_ipv4(peer) { OF_IPV4 } else { OF_IPV6 };
        Self(received(stream.as_fd().as_raw_fd(), options).unwrap_or(0) >> 2)
    }

    /// Send with it from now on. Errors: the socket's.
    pub fn set(self, socket: &impl AsFd, peer: IpAddr) -> io::Result<()> {
        let (socket, byte) = (SockRef::from(socket), u32::from(self.0) << 2);
        if is_ipv4(peer) { socket.set_tos_v4(byte) } else { socket.set_tclass_v6(byte) }
    }
}

fn is_ipv4(address: IpAddr) -> bool {
    address.to_canonical().is_ipv4()
}

/// Read the byte of the type of service or traffic class.
fn received(fd: RawFd, [level, tell, read, kind]: [libc::c_int; 4]) -> Option<u8> {
    const INT: libc::socklen_t = size_of::<libc::c_int>() as libc::socklen_t;
    let (on, mut answer) = (1 as libc::c_int, [0u64; 8]);
    let mut length = size_of_val(&answer) as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel reads one int, and writes at most `length` bytes of control messages.
    let done = unsafe {
        libc::setsockopt(fd, level, tell, (&raw const on).cast(), INT) == 0
            && libc::getsockopt(fd, level, read, answer.as_mut_ptr().cast(), &mut length) == 0
    };
    if !done {
        return None;
    }
    // SAFETY: all zeros are a message header without control messages.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_control, message.msg_controllen) = (answer.as_mut_ptr().cast(), length as _);
    // SAFETY: the kernel has filled `length` bytes of the aligned buffer with control messages; that of this kind is an int.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&message);
        while let Some(found) = next.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (level, kind) {
                return u8::try_from(libc::CMSG_DATA(found).cast::<libc::c_int>().read_unaligned()).ok();
            }
            next = libc::CMSG_NXTHDR(&message, found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn an_accepted_connection_has_what_its_program_set() {
        for (listens, connects) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            let listener = TcpListener::bind(listens).unwrap();
            let to = SocketAddr::new(connects.parse().unwrap(), listener.local_addr().unwrap().port());
            for codepoint in [0, 8, 46, 63] {
                let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
                Dscp::new(codepoint).unwrap().set(&socket, to.ip()).unwrap();
                socket.connect(&to.into()).unwrap();
                let _client = TcpStream::from(socket);
                let (accepted, peer) = listener.accept().unwrap();
                assert_eq!(Dscp::of(&accepted, peer.ip()).codepoint(), codepoint, "{listens}");
            }
        }
        assert_eq!(Dscp::new(64), None);
    }
}
