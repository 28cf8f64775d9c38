// SPDX-License-Identifier: Apache-2.0
//! Status of daemons: each answers on a socket of its network namespace that has a name and no file, so nothing is left
//! behind. A name belongs to the first who takes it, so every daemon has a random one, and both ends look at the other's user.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{About, Error};

/// Maximum bytes of an answer, and time that one may take.
const MAX_ANSWER: u64 = 64 << 20;
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Listen for those who ask for the status of `what`, without blocking.
pub fn listen(what: &str) -> io::Result<UnixListener> {
    let mut random = [0; 8];
    // SAFETY: the kernel writes at most as many bytes; short of them the name is less random.
    unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    let name = format!("{what}/{:016x}", u64::from_ne_bytes(random));
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// True if the other end is a process of root or of this user.
pub fn is_trusted(stream: &impl AsFd) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (fd, into) = (stream.as_fd().as_raw_fd(), (&raw mut peer).cast());
    // SAFETY: the kernel writes at most `length` octets; geteuid(2) cannot fail.
    let (done, own) =
        unsafe { (libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &mut length), libc::geteuid()) };
    done == 0 && [0, own].contains(&peer.uid)
}

/// Connect to the daemons of root and of this user that answer for `what`, or for something in it.
pub fn connect(what: &str) -> Result<Vec<UnixStream>, Error> {
    let sockets = std::fs::read_to_string("/proc/self/net/unix").about("list sockets")?;
    let prefix = format!("{what}/");
    let mut names: Vec<_> = sockets
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.strip_prefix('@'))
        .filter(|name| name.starts_with(&prefix))
        .collect();
    names.sort_unstable();
    names.dedup(); // a connection that waits has the name, too
    let open = |name: &&str| UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).ok()?).ok();
    Ok(names.iter().filter_map(open).filter(is_trusted).collect())
}

/// Ask them for their JSON. Those that end meanwhile, or do not talk to this user, are left out.
pub fn ask<T: DeserializeOwned>(what: &str) -> Result<Vec<T>, Error> {
    let read = |stream: UnixStream| {
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut text = String::new();
        stream.take(MAX_ANSWER).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    };
    Ok(connect(what)?.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn those_who_answer_are_found_by_what_they_answer_for() {
        let what = format!("hosts-test-{}", std::process::id());
        let _listeners: Vec<_> = ["/a", "/a", "/ab"].map(|part| listen(&format!("{what}{part}")).unwrap()).into();
        assert_eq!(connect(&format!("{what}/a")).unwrap().len(), 2);
        assert_eq!(connect(&what).unwrap().len(), 3);
        assert!(connect("hosts-test").unwrap().is_empty());
    }

    #[test]
    fn an_answer_is_json() {
        let what = format!("hosts-test-json-{}", std::process::id());
        let listener = listen(&what).unwrap();
        listener.set_nonblocking(false).unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(is_trusted(&stream));
            stream.write_all(b"7").unwrap();
        });
        assert_eq!(ask::<u8>(&what).unwrap(), [7]);
        answering.join().unwrap();
    }
}
