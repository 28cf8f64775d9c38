// SPDX-License-Identifier: Apache-2.0
//! TCP_INFO: the kernel's measures of a TCP socket.

use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};

/// Read TCP_INFO of a socket. Fields that an older kernel lacks are zero. Errors: `socket` is no TCP socket.
pub fn info(socket: &impl AsFd) -> io::Result<libc::tcp_info> {
    // SAFETY: all of its fields are integers.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let (fd, into) = (socket.as_fd().as_raw_fd(), (&raw mut info).cast());
    // SAFETY: the kernel writes at most `length` octets.
    match unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, into, &mut length) } {
        0 => Ok(info),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Read TCP_INFO from sock_diag's attribute; None if it ends before the minimum round-trip time (before Linux 4.6).
pub fn info_from(octets: &[u8]) -> Option<libc::tcp_info> {
    if octets.len() < offset_of!(libc::tcp_info, tcpi_min_rtt) + size_of::<u32>() {
        return None;
    }
    // SAFETY: all of its fields are integers; no more octets are copied than there are, and than it has.
    unsafe {
        let mut info: libc::tcp_info = zeroed();
        let length = octets.len().min(size_of::<libc::tcp_info>());
        std::ptr::copy_nonoverlapping(octets.as_ptr(), (&raw mut info).cast(), length);
        Some(info)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn fields_are_where_the_kernel_puts_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        let seen = info(&near).unwrap();
        assert_eq!((seen.tcpi_state, seen.tcpi_bytes_sent), (1, 1000));
        assert!(seen.tcpi_snd_cwnd >= 10 && seen.tcpi_snd_mss > 500);
        assert!(info(&std::fs::File::open("/dev/null").unwrap()).is_err());
        assert!(info_from(&[0; 151]).is_none());
        assert_eq!(info_from(&[1; 152]).unwrap().tcpi_min_rtt, 0x0101_0101);
    }
}
