// SPDX-License-Identifier: Apache-2.0
//! Bounds on the congestion windows of live sockets, set by a BPF iterator, and their undoing whatever happens.
//!
//! A bound is a socket's clamp; it outlives the program that set it. So a guardian, forked from the daemon into a process
//! group of its own, holds the iterator too. It undoes every bound when the daemon ends in any way, and also when the lease in the
//! BPF program is over because the daemon hangs. A guardian that ends is replaced.

use std::collections::HashMap;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, OpenObject};

use hosts_base::{About, Error};

mod skeleton {
    #![allow(clippy::all, clippy::pedantic, dead_code, unused)]
    include!(concat!(env!("OUT_DIR"), "/cwnd.skel.rs"));
}

/// Lifetime of bounds without a renewal: four readings.
pub const LEASE: Duration = Duration::from_secs(2);
/// Sockets that can be bounded at the same time (the size of the BPF maps).
pub const SOCKETS: usize = 4096;
/// Minimum relative change of a bound that is worth a pass: one over all TCP sockets costs milliseconds on a machine
/// with a large socket table.
const WORTH_A_PASS: f64 = 0.1;

/// Bounds in force. Dropping them undoes them.
pub struct Bounds {
    skel: skeleton::CwndSkel<'static>,
    link: Link,
    wanted: HashMap<u64, u32>,
    daemon: OwnedFd,
    /// A child that has not been waited for
    guardian: Option<libc::pid_t>,
}

impl Bounds {
    /// Load the program and start the guardian; call it from a process with one thread. Errors: the missing privilege
    /// or feature of the kernel, in one line.
    pub fn load() -> Result<Self, Error> {
        libbpf_rs::set_print(None);
        // The skeleton borrows it for as long as the process runs.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let skel = skeleton::CwndSkelBuilder::default()
            .open(object)
            .and_then(|open| open.load())
            .map_err(|error| missing(&error))?;
        let link = skel.progs.bound.attach().map_err(|error| missing(&error))?;
        // SAFETY: plain system call; the descriptor is new and owned from here on.
        let daemon = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as RawFd;
            if fd < 0 {
                return Err(io::Error::last_os_error()).about("pidfd_open (Linux 5.3)");
            }
            OwnedFd::from_raw_fd(fd)
        };
        let mut bounds = Self { skel, link, wanted: HashMap::new(), daemon, guardian: None };
        bounds.keep_guardian()?;
        Ok(bounds)
    }

    /// Bound the sockets with these cookies to so many segments, undo all other bounds and renew the lease. At most
    /// `SOCKETS`, the oldest (lowest cookies) first; others stay unbounded. `restore`: slow-start thresholds have
    /// fallen below their bounds. Errors: those of the system.
    pub fn set(&mut self, restore: bool, wanted: impl IntoIterator<Item = (u64, u32)>) -> Result<(), Error> {
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        if wanted.len() > SOCKETS {
            wanted.select_nth_unstable(SOCKETS);
        }
        let next: HashMap<u64, u32> = wanted.into_iter().take(SOCKETS).collect();
        let ended: Vec<u64> = self.wanted.keys().filter(|cookie| !next.contains_key(cookie)).copied().collect();
        for cookie in &ended {
            self.wanted.remove(cookie);
            delete(&self.skel.maps.wanted, *cookie)?;
        }
        let mut changed = restore;
        for (cookie, bound) in next {
            if self.get(cookie).is_none_or(|old| is_worth_a_pass(old, bound)) {
                let map = &self.skel.maps.wanted;
                map.update(&cookie.to_ne_bytes(), &bound.to_ne_bytes(), MapFlags::ANY).about("bound of a socket")?;
                self.wanted.insert(cookie, bound);
                changed = true;
            }
        }
        // The guardian has seen a lease that ran out: the sockets that it released are bounded again.
        changed |= !self.wanted.is_empty() && self.lease() < monotonic_ns();
        let data = self.skel.maps.bss_data.as_deref_mut().expect("the program has variables");
        changed |= std::mem::take(&mut data.waiting) > 0;
        self.set_lease(if self.wanted.is_empty() { 0 } else { monotonic_ns() + LEASE.as_nanos() as u64 });
        if changed || !ended.is_empty() {
            run_pass(&self.link).about("bounding the sockets")?;
        }
        // The pass has undone those that live; of those that are closed only the entry is left.
        ended.into_iter().try_for_each(|cookie| delete(&self.skel.maps.applied, cookie))
    }

    /// The bound of a socket, segments.
    pub fn get(&self, cookie: u64) -> Option<u32> {
        self.wanted.get(&cookie).copied()
    }

    /// Return how often a socket refused a bound.
    pub fn refused(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |data| data.refused)
    }

    /// Replaces a guardian that has ended. Errors: no process can be made.
    pub fn keep_guardian(&mut self) -> Result<(), Error> {
        // SAFETY: plain system calls; the process has one thread, so the child may go on as usual.
        unsafe {
            if let Some(guardian) = self.guardian
                && libc::waitpid(guardian, &mut 0, libc::WNOHANG) == 0
            {
                return Ok(());
            }
            self.guardian = None;
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()).about("start of the guardian"),
                0 => self.guard(),
                guardian => {
                    // Before anything is bounded: a signal that kills the daemon's process group must not reach the
                    // guardian.
                    libc::setpgid(guardian, guardian);
                    self.guardian = Some(guardian);
                }
            }
        }
        Ok(())
    }

    fn lease(&self) -> u64 {
        let data = self.skel.maps.bss_data.as_deref().expect("the program has variables");
        // SAFETY: a valid reference; the other process changes it.
        unsafe { std::ptr::read_volatile(&data.lease_until) }
    }

    fn set_lease(&mut self, until: u64) {
        let data = self.skel.maps.bss_data.as_deref_mut().expect("the program has variables");
        // SAFETY: a valid reference; the program and the other process read it.
        unsafe { std::ptr::write_volatile(&mut data.lease_until, until) }
    }

    /// The guardian's life. The lease is in memory that both processes and the program share.
    fn guard(&mut self) -> ! {
        let keep = [self.link.as_fd().as_raw_fd(), self.daemon.as_raw_fd()];
        close_all_but(&keep);
        // SAFETY: plain system calls.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, c"cwnd-guardian".as_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        let mut undone = 0;
        loop {
            let mut daemon = libc::pollfd { fd: self.daemon.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            if unsafe { libc::poll(&mut daemon, 1, LEASE.as_millis() as i32 / 2) } > 0 {
                self.set_lease(0);
                let done = run_pass(&self.link).is_ok();
                // SAFETY: nothing of the daemon's is to be torn down twice.
                unsafe { libc::_exit(i32::from(!done)) };
            }
            let lease = self.lease();
            if lease != undone && lease < monotonic_ns() && run_pass(&self.link).is_ok() {
                undone = lease;
            }
        }
    }
}

impl Drop for Bounds {
    fn drop(&mut self) {
        self.set_lease(0);
        // A guardian that stays after a pass that failed tries again.
        if run_pass(&self.link).is_ok()
            && let Some(guardian) = self.guardian
        {
            // SAFETY: a child that has not been waited for: the id is its own.
            unsafe {
                libc::kill(guardian, libc::SIGKILL);
                libc::waitpid(guardian, &mut 0, 0);
            }
        }
    }
}

/// Return true if a change is worth a pass: any to or from 1, when the ratio crosses its limit, and large ones.
fn is_worth_a_pass(old: u32, new: u32) -> bool {
    old != new && (old == 1 || new == 1 || f64::from(old.abs_diff(new)) > WORTH_A_PASS * f64::from(old))
}

fn delete(map: &impl MapCore, cookie: u64) -> Result<(), Error> {
    match map.delete(&cookie.to_ne_bytes()) {
        Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => Err(error).about("end of a bound"),
        _ => Ok(()),
    }
}

/// Run the program over every TCP socket of this network namespace.
fn run_pass(link: &Link) -> io::Result<()> {
    let mut iterator = Iter::new(link).map_err(io::Error::other)?;
    // The program writes nothing: the first read runs it over all sockets.
    while iterator.read(&mut [0; 64])? > 0 {}
    Ok(())
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer; this clock always exists. It is the one of bpf_ktime_get_ns.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Close all other descriptors, so that the guardian holds none of the daemon's pipes and sockets open.
fn close_all_but(keep: &[RawFd]) {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| !keep.contains(fd)) {
        // SAFETY: whatever used it belongs to the daemon and is never touched here.
        unsafe { libc::close(fd) };
    }
}

fn missing(error: &libbpf_rs::Error) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => {
            Error::new("BPF is not permitted: it needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN")
        }
        _ => Error::new(format!("the kernel refuses the TCP iterator ({error}): it needs Linux 5.16 with BPF and BTF")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_moves_of_a_bound_wait() {
        assert!(!is_worth_a_pass(100, 100) && !is_worth_a_pass(100, 110) && !is_worth_a_pass(100, 90));
        assert!(is_worth_a_pass(100, 111) && is_worth_a_pass(100, 89) && is_worth_a_pass(5, 4));
        assert!(is_worth_a_pass(2, 1) && is_worth_a_pass(1, 2) && !is_worth_a_pass(1, 1));
    }
}
