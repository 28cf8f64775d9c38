// SPDX-License-Identifier: Apache-2.0
//! Ports on network interfaces: AF_PACKET sockets (packet(7)) with recvmmsg and sendmmsg.
//!
//! The `unsafe` code hands the kernel pointers to frames that outlive the call and are not touched during it; every
//! array below is built anew, on the stack, for each call.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{BATCH, PortIo, Received, checksum};
use apswitch_core::state::frame::Packet;

/// Bytes of frames that may wait in the kernel: a few ms at the rates that the switch can do, and no more than the
/// cache holds, so that being overloaded does not slow it down.
const RECEIVE_BUFFER: libc::c_int = 2 << 20;
const SEND_BUFFER: libc::c_int = 4 << 20;
/// Space for so many frames is offered to the kernel at first even when fewer came last time.
const MIN_EXPECTED: usize = 4;

/// Space for the control message of a received frame (packet(7), PACKET_AUXDATA).
// SAFETY: CMSG_SPACE only computes.
const CONTROL_SIZE: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::tpacket_auxdata>() as u32) } as usize;

#[repr(C, align(8))]
struct Control([u8; CONTROL_SIZE]);

pub struct PacketPort {
    socket: OwnedFd,
    /// Space for so many frames is offered first: twice what came last. Where packets come one by one, nobody then
    /// fetches the memory of a whole batch into the cache for each.
    expected: usize,
}

impl PacketPort {
    /// Opens the interface for every frame that it receives.
    pub fn open(interface: &str) -> io::Result<PacketPort> {
        let index = interface_index(interface)?;
        // Protocol 0: nothing is received before the socket is bound.
        // SAFETY: no pointers; the descriptor is owned from here on.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
            OwnedFd::from_raw_fd(check(fd)?)
        };
        // Frames that this process sends on the interface are not received by it.
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        // Frames go to the driver, not through a queueing discipline: no hidden buffer.
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)?;
        // The kernel takes a frame's outer VLAN tag out; this is where it says so.
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1i32)?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)
            .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER))?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)
            .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER))?;
        let member = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address is a sockaddr_ll of the length given and lives during the call.
        check(unsafe {
            let address = (&raw const address).cast::<libc::sockaddr>();
            libc::bind(socket.as_raw_fd(), address, size_of::<libc::sockaddr_ll>() as u32)
        })?;
        Ok(PacketPort { socket, expected: MIN_EXPECTED })
    }
}

impl PortIo for PacketPort {
    fn receive(&mut self, packets: &mut [Box<Packet>]) -> io::Result<Received> {
        let (first, others) = packets.split_at_mut(self.expected.min(packets.len()));
        let mut received = self.receive_some(first)?;
        if received.packets == first.len() && !others.is_empty() {
            // An error now is one at the next call, too.
            let more = self.receive_some(others).unwrap_or_default();
            received.packets += more.packets;
            received.too_long += more.too_long;
        }
        self.expected = (2 * received.packets).clamp(MIN_EXPECTED, BATCH);
        Ok(received)
    }

    fn send(&mut self, packets: &mut [Box<Packet>]) -> io::Result<usize> {
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        let count = packets.len().min(BATCH);
        for ((packet, part), message) in packets.iter().zip(&mut parts).zip(&mut messages) {
            let bytes = packet.frame.bytes();
            let part = part.write(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
            let message = zeroed(message);
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: as in `receive_some`; the kernel only reads the frames.
        let sent = unsafe {
            let messages = messages.as_mut_ptr().cast::<libc::mmsghdr>();
            libc::sendmmsg(self.socket.as_raw_fd(), messages, count as u32, libc::MSG_DONTWAIT)
        };
        Ok(check(sent)? as usize)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn missed(&mut self) -> u64 {
        let stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        option(&self.socket, libc::PACKET_STATISTICS, stats).map_or(0, |stats| stats.tp_drops as u64)
    }
}

impl PacketPort {
    /// Receives with one system call.
    fn receive_some(&self, packets: &mut [Box<Packet>]) -> io::Result<Received> {
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        let count = packets.len().min(BATCH);
        let buffers = packets[..count].iter_mut().zip(&mut parts).zip(&mut controls);
        for (((packet, part), control), message) in buffers.zip(&mut messages) {
            let space = packet.frame.space();
            let part = part.write(libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: space.len() });
            let message = zeroed(message);
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL_SIZE as _;
        }
        // SAFETY: the first `count` messages are initialised; each points to a control buffer and an iovec above, and
        // the iovec to the space of a packet borrowed mutably for the whole call.
        let received = unsafe {
            let messages = messages.as_mut_ptr().cast::<libc::mmsghdr>();
            libc::recvmmsg(self.socket.as_raw_fd(), messages, count as u32, libc::MSG_DONTWAIT, std::ptr::null_mut())
        };
        let received = match check(received) {
            Ok(received) => received as usize,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Received::default()),
            Err(e) => return Err(e),
        };
        let mut too_long = 0;
        for (packet, message) in packets.iter_mut().zip(&messages).take(received) {
            // SAFETY: as above, and filled in by the kernel.
            let message = unsafe { message.assume_init_ref() };
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0 {
                packet.frame.received(message.msg_len as usize);
                // SAFETY: the kernel has written the control messages into a buffer that is still alive.
                let auxiliary = unsafe { auxiliary(&message.msg_hdr) };
                let status = auxiliary.map_or(0, |auxiliary| auxiliary.tp_status);
                if status & (libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_VLAN_VALID) != 0 {
                    if status & libc::TP_STATUS_CSUMNOTREADY != 0 {
                        checksum::complete(packet.frame.bytes_mut());
                    }
                    if let Some(tag) = auxiliary.and_then(vlan_tag) {
                        packet.frame.insert_tag(tag);
                    }
                }
            } else {
                packet.frame.received(0);
                too_long += 1;
            }
        }
        Ok(Received { packets: received, too_long })
    }
}

/// Returns the kernel's auxiliary data of a frame.
///
/// # Safety
/// The control messages of the header are those of a received message.
unsafe fn auxiliary(header: &libc::msghdr) -> Option<libc::tpacket_auxdata> {
    // SAFETY: as the caller promises; the data may be unaligned.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header).as_ref()?;
        if (message.cmsg_level, message.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            return None;
        }
        Some(libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>().read_unaligned())
    }
}

/// The VLAN tag that the kernel has taken out of the frame.
fn vlan_tag(auxiliary: libc::tpacket_auxdata) -> Option<[u8; 4]> {
    if auxiliary.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let ([tpid0, tpid1], [tci0, tci1]) = (auxiliary.tp_vlan_tpid.to_be_bytes(), auxiliary.tp_vlan_tci.to_be_bytes());
    Some([tpid0, tpid1, tci0, tci1])
}

fn zeroed(message: &mut MaybeUninit<libc::mmsghdr>) -> &mut libc::mmsghdr {
    *message = MaybeUninit::zeroed();
    // SAFETY: all zeros is a valid mmsghdr.
    unsafe { message.assume_init_mut() }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set_option<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads the bytes of `value`, which is plain data, during the call.
    check(unsafe {
        let length = size_of_val(value) as u32;
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), length)
    })?;
    Ok(())
}

/// Asks for an option of a packet socket; the kernel fills `value`, integers only.
fn option<T: Copy>(socket: &OwnedFd, option: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as u32;
    // SAFETY: the kernel writes at most `length` bytes into `value`, where every pattern of bits is a value.
    check(unsafe {
        let place = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, place, &raw mut length)
    })?;
    Ok(value)
}

fn interface_index(interface: &str) -> io::Result<libc::c_int> {
    let name = CString::new(interface).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a string that ends with a zero byte.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as libc::c_int),
    }
}

/// A socket to ask about interfaces with, of the network namespace that it was made in.
pub struct Interfaces(OwnedFd);

impl Interfaces {
    pub fn new() -> io::Result<Interfaces> {
        // SAFETY: the socket is owned at once.
        unsafe {
            let fd = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
            Ok(Interfaces(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Index and flags (IFF_*) of the interface; an error if it is gone.
    pub fn flags(&self, interface: &str) -> io::Result<(i32, i32)> {
        let index = self.ask(interface, libc::SIOCGIFINDEX)?;
        let request = self.ask(interface, libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFINDEX has written the index, SIOCGIFFLAGS the flags.
        unsafe { Ok((index.ifr_ifru.ifru_ifindex, request.ifr_ifru.ifru_flags as i32)) }
    }

    /// Bytes of payload in the longest frame of the interface.
    pub fn mtu(&self, interface: &str) -> io::Result<usize> {
        let request = self.ask(interface, libc::SIOCGIFMTU)?;
        // SAFETY: SIOCGIFMTU has written the MTU.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as usize)
    }

    fn ask(&self, interface: &str, code: libc::c_ulong) -> io::Result<libc::ifreq> {
        // SAFETY: all zeros is a valid ifreq; the kernel reads the name, which fits with its zero byte, and writes into
        // the request only.
        unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            if interface.len() >= request.ifr_name.len() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
                *to = from as libc::c_char;
            }
            check(libc::ioctl(self.0.as_raw_fd(), code as _, &raw mut request))?;
            Ok(request)
        }
    }
}

/// Bytes of payload in the longest frame of the interface.
pub fn mtu(interface: &str) -> io::Result<usize> {
    Interfaces::new()?.mtu(interface)
}
