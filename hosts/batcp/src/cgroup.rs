// SPDX-License-Identifier: Apache-2.0
//! The cgroup that a BPF program on sockets is attached to. A socket belongs to the cgroup of the process that made it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use socket2::{Domain, Socket, Type};

use hosts_base::{About, Error};

/// asm-generic/socket.h
const SO_NETNS_COOKIE: i32 = 71;

/// Open the cgroup (version 2, cgroups(7)) that is called `path` in /proc/PID/cgroup. Where no mounted hierarchy can be
/// reached, as below `ip netns exec` and in Mininet's hosts, whose own /sys lies over it, one is opened that is mounted
/// nowhere, so nothing can be left behind. Errors: no such cgroup; no cgroup2 in this kernel; no right to it
/// (CAP_SYS_ADMIN).
pub fn open(path: &str) -> Result<OwnedFd, Error> {
    let relative = Path::new(path.strip_prefix('/').unwrap_or(path));
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let root = match mounted()? {
        Some(root) => root,
        None => unmounted().about("open the cgroup2 hierarchy (needs root)")?,
    };
    let name = std::ffi::CString::new(relative.as_os_str().as_encoded_bytes()).about(format!("open cgroup {path}"))?;
    // SAFETY: plain system call; the result is checked, and owned only here.
    let fd = unsafe { libc::openat(root.as_raw_fd(), name.as_ptr(), libc::O_DIRECTORY | libc::O_CLOEXEC) };
    owned(i64::from(fd)).about(format!("open cgroup {path}"))
}

/// Return the kernel's number of this process' network namespace (SO_NETNS_COOKIE), which is never reused.
pub fn netns_cookie() -> io::Result<u64> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: getsockopt(2) writes at most `length` bytes to `cookie`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// Return the path of this process' cgroup from the root of the hierarchy, "/" at least (cgroups(7)).
pub fn own_path() -> Result<String, Error> {
    let text = std::fs::read_to_string("/proc/self/cgroup").about("read /proc/self/cgroup")?;
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(str::to_owned)
        .ok_or_else(|| Error::new("this kernel has no cgroup2: build it with CONFIG_CGROUPS and CONFIG_CGROUP_BPF"))
}

/// Open the root of the first hierarchy that is mounted and can be reached: what is mounted may lie under another mount.
fn mounted() -> Result<Option<OwnedFd>, Error> {
    let text = std::fs::read_to_string("/proc/self/mounts").about("read /proc/self/mounts")?;
    Ok(text.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        let root = (kind == "cgroup2").then(|| File::open(path).ok())??;
        is_cgroup2(root.as_raw_fd()).then(|| root.into())
    }))
}

fn is_cgroup2(fd: RawFd) -> bool {
    // SAFETY: all zeros are a valid statfs, which fstatfs(2) writes.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `about` lives until the call returns.
    unsafe { libc::fstatfs(fd, &raw mut about) == 0 && about.f_type == libc::CGROUP2_SUPER_MAGIC }
}

fn unmounted() -> io::Result<OwnedFd> {
    const FSCONFIG_CMD_CREATE: u32 = 6;
    // SAFETY: fsopen(2), fsconfig(2), fsmount(2) with constant strings and checked results.
    unsafe {
        let fs = owned(libc::syscall(libc::SYS_fsopen, c"cgroup2".as_ptr(), 1))?;
        let none = std::ptr::null::<libc::c_char>();
        if libc::syscall(libc::SYS_fsconfig, fs.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        owned(libc::syscall(libc::SYS_fsmount, fs.as_raw_fd(), 1, 0))
    }
}

fn owned(fd: i64) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a file descriptor that the kernel just gave to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).expect("file descriptors are small")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mnexec of Mininet does so for each host: the hierarchy is in /proc/self/mounts, and its path is gone.
    #[test]
    fn a_hierarchy_under_another_mount_is_opened() {
        // SAFETY: geteuid(2) cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("skipped: mounting needs root");
        }
        let own = own_path().unwrap();
        let opened = std::thread::spawn(move || {
            let mount = |kind: *const libc::c_char, at: *const libc::c_char, flags| {
                // SAFETY: constant strings; this thread has a mount namespace of its own, that ends with it.
                assert_eq!(unsafe { libc::mount(c"none".as_ptr(), at, kind, flags, std::ptr::null()) }, 0);
            };
            // SAFETY: only this thread's namespace changes.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
            mount(std::ptr::null(), c"/".as_ptr(), libc::MS_REC | libc::MS_PRIVATE);
            mount(c"tmpfs".as_ptr(), c"/sys".as_ptr(), 0);
            open(&own).map(|cgroup| is_cgroup2(cgroup.as_raw_fd()))
        });
        assert!(opened.join().unwrap().unwrap());
    }
}
