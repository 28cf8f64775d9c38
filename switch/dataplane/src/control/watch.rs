// SPDX-License-Identifier: Apache-2.0
//! Work that nobody asks for: ageing of entries, and interfaces that go and come.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

use super::{Inner, Notice, PortHandle, links, open_error, open_interface};
use crate::engine_messages::Command;
use crate::port::{Discipline, Interfaces};

/// Interval at which [`look`] is due.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Entries looked at for idleness at a time.
const AGE_STEP: usize = 4096;
/// Interval at which interfaces are polled when the kernel reports nothing, in ms: an interface that failed is
/// reopened.
const LOOK_INTERVAL: u16 = 100;

/// Looks after what has time.
pub fn watch(inner: &Inner) {
    while !inner.stopping.load(Relaxed) {
        look(inner);
        thread::park_timeout(WATCH_INTERVAL);
    }
}

pub fn look(inner: &Inner) {
    links::report_to_store(inner, &mut inner.store());
    age(inner);
    links::sample(inner);
}

fn age(inner: &Inner) {
    let tables = inner.store().as_ref().map_or(0, |store| store.program.tables.len());
    for table in 0..tables {
        let mut at = 0;
        loop {
            // Short, so that writers never wait long.
            let idle = match &mut *inner.store() {
                Some(store) if table < store.program.tables.len() && at < store.ageing_slots(table) => {
                    store.idle(table, at..at + AGE_STEP, inner.clock.now())
                }
                _ => break,
            };
            at += AGE_STEP;
            for entry in idle {
                if inner.notices.try_send(Notice::IdleTimeout(Box::new(entry))).is_err() {
                    // Told again after its next timeout.
                    tracing::debug!("an idle timeout was not fetched in time");
                }
            }
        }
    }
}

/// `RTMGRP_TC`: queue disciplines and classes.
const TC_GROUP: u32 = 1 << (libc::RTNLGRP_TC - 1);

/// Follows the interfaces of ports: the kernel tells when one or its queue discipline changes (rtnetlink(7)), and then
/// all are looked at, as what it tells may also be lost.
pub struct Follower {
    interfaces: Interfaces,
    changes: OwnedFd,
}

impl Follower {
    /// Follows the interfaces of the caller's network namespace.
    pub fn new() -> io::Result<Follower> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let changes = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(changes.as_raw_fd(), &NetlinkAddr::new(0, libc::RTMGRP_LINK as u32 | TC_GROUP))?;
        Ok(Follower { interfaces: Interfaces::new()?, changes })
    }

    /// Follows the interfaces until the switch stops.
    pub fn follow(&self, inner: &Inner) {
        let mut changed = true;
        while !inner.stopping.load(Relaxed) {
            inner.ports().iter().for_each(|port| self.look(inner, port, changed));
            let mut fds = [self.changes.as_fd(), inner.stop.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            if let Err(e) = poll(&mut fds, PollTimeout::from(LOOK_INTERVAL))
                && e != Errno::EINTR
            {
                tracing::error!("poll: {e}");
                thread::sleep(WATCH_INTERVAL);
            }
            changed = self.forget();
        }
    }

    /// Takes what the kernel tells: that it tells is enough. Returns whether it did.
    fn forget(&self) -> bool {
        let mut message = [0; 8192];
        let mut told = false;
        loop {
            match recv(self.changes.as_raw_fd(), &mut message, MsgFlags::MSG_DONTWAIT) {
                // ENOBUFS: more was told than there is room for.
                Ok(_) | Err(Errno::ENOBUFS) => told = true,
                Err(Errno::EINTR) => {}
                Err(_) => return told,
            }
        }
    }

    /// A port is up when its interface is, and has a carrier.
    fn look(&self, inner: &Inner, port: &PortHandle, changed: bool) {
        let (now, up) = match self.interfaces.flags(&port.interface) {
            Ok((index, flags)) if flags & libc::IFF_UP != 0 => (index, flags & libc::IFF_RUNNING != 0),
            _ => (0, false),
        };
        let mtu = self.interfaces.mtu(&port.interface).unwrap_or(0);
        if port.mtu.swap(mtu, Relaxed) != mtu {
            inner.make_room(mtu);
        }
        let known = port.interface_index.load(Relaxed);
        let failed = port.failed.load(Relaxed);
        let first = known == 0 && port.up.load(Relaxed) && !failed;
        if now != 0 && (known != now && !first || failed) {
            // Opened once for each failure: what the new socket has received would be lost with it.
            port.failed.store(false, Relaxed);
            match open_interface(&port.interface) {
                Ok(io) => {
                    inner.commands.send(Command::Open { failed: port.failed.clone(), io });
                }
                Err(e) => {
                    tracing::warn!("port {}: {}", port.number, open_error(&port.interface, &e));
                    port.failed.store(true, Relaxed);
                    return;
                }
            }
        }
        port.interface_index.store(now, Relaxed);
        if now != 0 && (changed || known != now) {
            match Discipline::read(now) {
                Ok(found) => links::set_discipline(inner, port, found),
                Err(e) => tracing::debug!("port {} ({}): queue discipline: {e}", port.number, port.interface),
            }
        }
        links::set_running(inner, port, up);
    }
}
