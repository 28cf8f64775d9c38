// SPDX-License-Identifier: Apache-2.0
//! Shared link of an interface: its addresses, and datagrams to all terminals on it by IPv4 broadcast and IPv6
//! multicast.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Multicast group: link-local scope, for experiments (RFC 4727, 4.2: FF0X::114).
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x114);
/// Bytes for some hundreds of waiting datagrams.
const RECEIVE_BUFFER: usize = 1 << 20;
/// Datagrams per IP version that are processed between two announcements; more wait, then the kernel drops them. It
/// bounds the work that a flood of forged ones causes.
const BUDGET: usize = 1024;
/// DSCP CS6 (RFC 4594, network control): in a full cell announcements must not wait behind the traffic that they are
/// about, nor be lost with it.
const PRIORITY: u32 = 48 << 2;

/// Sockets for announcements over one interface. Either IP version may be missing, also temporarily.
pub struct BroadcastSockets {
    sockets: Vec<(Socket, SockAddr)>,
}

impl BroadcastSockets {
    /// Open both IP versions. Errors: neither can be opened: the reason of the first.
    pub fn open(interface: &str, index: u32, port: u16) -> io::Result<Self> {
        let (v4, v6) = (open_v4(interface, port), open_v6(interface, index, port));
        match (v4, v6) {
            (Err(error), Err(_)) => Err(error),
            (v4, v6) => Ok(Self { sockets: v4.into_iter().chain(v6).collect() }),
        }
    }

    /// Send a datagram to all terminals; false when no IP version could.
    pub fn send(&self, datagram: &[u8]) -> bool {
        self.sockets.iter().filter(|(socket, to)| socket.send_to(datagram, to).is_ok()).count() > 0
    }

    /// Pass each datagram that has arrived, with its sender, to `each`; longer ones than `MAX_DATAGRAM` are cut. The IP
    /// versions take turns, so that a terminal's announcements come in the order in which it sent them.
    pub fn receive(&self, mut each: impl FnMut(&[u8], IpAddr)) {
        const MAX_DATAGRAM: usize = 256;
        let mut buffer = [MaybeUninit::<u8>::uninit(); MAX_DATAGRAM];
        for _ in 0..BUDGET {
            let mut empty = true;
            for (socket, _) in &self.sockets {
                match socket.recv_from(&mut buffer) {
                    Ok((length, from)) => {
                        // SAFETY: recvfrom has initialised that many bytes.
                        let datagram = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast(), length) };
                        if let Some(from) = from.as_socket() {
                            each(datagram, from.ip());
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    // An error of an earlier send, reported here.
                    Err(_) => {}
                }
                empty = false;
            }
            if empty {
                break;
            }
        }
    }
}

fn open_v4(interface: &str, port: u16) -> io::Result<(Socket, SockAddr)> {
    let socket = open_udp(Domain::IPV4, interface)?;
    socket.set_broadcast(true)?;
    socket.set_tos_v4(PRIORITY)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    Ok((socket, SocketAddr::from((Ipv4Addr::BROADCAST, port)).into()))
}

fn open_v6(interface: &str, index: u32, port: u16) -> io::Result<(Socket, SockAddr)> {
    let socket = open_udp(Domain::IPV6, interface)?;
    socket.set_only_v6(true)?;
    socket.set_multicast_if_v6(index)?;
    socket.set_tclass_v6(PRIORITY)?;
    socket.join_multicast_v6(&GROUP, index)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    Ok((socket, SocketAddr::from((GROUP, port)).into()))
}

fn open_udp(domain: Domain, interface: &str) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    Ok(socket)
}

/// Return the index of an interface of this network namespace, or None.
pub fn index(interface: &str) -> Option<u32> {
    let name = CString::new(interface).ok()?;
    // SAFETY: a valid C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => Some(index),
    }
}

/// Return all addresses of an interface. Errors: those of the system.
pub fn addresses(interface: &str) -> io::Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: getifaddrs(3): a list of valid entries until it is freed; sockaddr's family says what it points to.
    unsafe {
        if libc::getifaddrs(&mut list) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut found = Vec::new();
        let mut entry = list;
        while let Some(now) = entry.as_ref() {
            entry = now.ifa_next;
            if now.ifa_addr.is_null() || CStr::from_ptr(now.ifa_name).to_bytes() != interface.as_bytes() {
                continue;
            }
            match i32::from((*now.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = &*now.ifa_addr.cast::<libc::sockaddr_in>();
                    found.push(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()));
                }
                libc::AF_INET6 => {
                    let address = &*now.ifa_addr.cast::<libc::sockaddr_in6>();
                    found.push(IpAddr::from(address.sin6_addr.s6_addr));
                }
                _ => {}
            }
        }
        libc::freeifaddrs(list);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        assert_eq!(index("lo"), Some(1));
        assert!(addresses("lo").unwrap().contains(&"127.0.0.1".parse().unwrap()));
        assert_eq!((index("no-such"), index("a\0b"), addresses("no-such").unwrap().len()), (None, None, 0));
    }
}
