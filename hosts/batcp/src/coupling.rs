// SPDX-License-Identifier: Apache-2.0
//! Coupled congestion control: the subflows of a connection that share a bottleneck take the share of one TCP there,
//! and not one each (RFC 6356). A BPF program is their congestion control (`bpf/batcp_coupled.bpf.c`); this module
//! loads it, and assigns sockets to connections.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use socket2::SockRef;

use hosts_base::log::report;
use hosts_base::{About, Error};

mod skeleton {
    #![allow(clippy::all, clippy::pedantic, dead_code, unused)]
    include!(concat!(env!("OUT_DIR"), "/batcp_coupled.skel.rs"));
}

/// Subflows of a connection at a time, and bytes that the program keeps of each: `struct group`.
const PARTS: usize = 32;
const PART: usize = 16;

/// Coupled congestion control, registered by this process alone: it ends with the process, and no other can select it.
pub struct Coupling {
    name: String,
    members: MapHandle,
    groups: MapHandle,
    next: AtomicU64,
    _link: Link,
}

impl Coupling {
    /// Load and register the congestion control. Errors: no right to load BPF programs, or a kernel without congestion
    /// controls in BPF (before 6.4, or without BTF).
    pub fn load() -> Result<Self, Error> {
        const WHAT: &str = "load BATCP's coupled congestion control (--coupled needs root and Linux 6.4 with BTF)";
        libbpf_rs::set_print(None);
        let mut object = MaybeUninit::uninit();
        let mut open = skeleton::BatcpCoupledSkelBuilder::default().open(&mut object).about(WHAT)?;
        // Names are unique on the whole machine, 15 octets long.
        let name = format!("batcp{:08x}", rand::random::<u32>());
        let place = &mut open.struct_ops.coupled_mut().name;
        place.fill(0);
        for (octet, letter) in place[..15].iter_mut().zip(name.bytes()) {
            *octet = letter as _;
        }
        let mut skeleton = open.load().about(WHAT)?;
        Ok(Self {
            name,
            members: MapHandle::try_from(&skeleton.maps.members).about(WHAT)?,
            groups: MapHandle::try_from(&skeleton.maps.groups).about(WHAT)?,
            next: AtomicU64::new(0),
            _link: skeleton.maps.coupled.attach_struct_ops().about(WHAT)?,
        })
    }
}

/// Coupled subflows of one connection.
pub struct Group {
    coupling: Arc<Coupling>,
    number: u64,
}

impl Group {
    /// Register a connection. Errors: there are 65536 already.
    pub fn new(coupling: &Arc<Coupling>) -> io::Result<Self> {
        let number = coupling.next.fetch_add(1, Ordering::Relaxed);
        let none = [0; PARTS * PART];
        coupling.groups.update(&number.to_ne_bytes(), &none, MapFlags::NO_EXIST).map_err(io::Error::other)?;
        Ok(Self { coupling: coupling.clone(), number })
    }

    /// Return the first part that is not `taken`.
    pub fn free(mut taken: impl FnMut(usize) -> bool) -> usize {
        (0..PARTS).find(|&part| !taken(part)).unwrap_or(PARTS)
    }

    /// Add a connected socket as the connection's part `part`; one without a part stays uncoupled.
    pub fn join(&self, socket: &impl AsFd, part: usize) -> io::Result<()> {
        let member = [self.number.to_ne_bytes(), (part as u64).to_ne_bytes()].concat();
        let key = socket.as_fd().as_raw_fd().to_ne_bytes();
        self.coupling.members.update(&key, &member, MapFlags::ANY).map_err(io::Error::other)?;
        SockRef::from(socket).set_tcp_congestion(self.coupling.name.as_bytes())
    }
}

/// Report that a subflow or a connection is not coupled, and continue without.
pub fn uncoupled<T: Default>(error: io::Error) -> T {
    report(format_args!("coupled congestion control: {error}"));
    T::default()
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.coupling.groups.delete(&self.number.to_ne_bytes());
    }
}
