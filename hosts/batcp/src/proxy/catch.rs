// SPDX-License-Identifier: Apache-2.0
//! Catches the TCP connects of unmodified programs, without netfilter: BPF programs on a cgroup's connect(2) and
//! getpeername(2).

use std::collections::HashSet;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::destination::{Prefix, mapped};
use crate::cgroup;
use hosts_base::{About, Error};

mod skeleton {
    #![allow(clippy::all, clippy::pedantic, dead_code, unused)]
    include!(concat!(env!("OUT_DIR"), "/batcp_catch.skel.rs"));
}

/// Connects to catch, and the proxy that they are redirected to.
pub struct CatchConfig<'n> {
    /// The cgroup as /proc/PID/cgroup names it; "/" for all processes
    pub cgroup: &'n str,
    /// The proxy's listening addresses on loopback
    pub ipv4: SocketAddr,
    pub ipv6: Option<SocketAddr>,
    /// Destinations that are caught
    pub only: &'n [Prefix],
    /// Destinations among `only` that are not caught
    pub except: &'n [Prefix],
    /// The remote proxy's addresses, which are not caught
    pub via: &'n [SocketAddr],
}

const WHAT: &str = "catch connects (needs root and Linux 5.17; 'hosts batcp socks' works without)";

/// Attached programs; when dropped, or when the process ends, connects are no longer redirected.
pub struct Catcher {
    originals: MapHandle,
    spared: MapHandle,
    _links: Vec<Link>,
}

impl Catcher {
    /// Attach the programs in this process' network namespace: "transparent to users and applications" (paper 003,
    /// section 1). Errors: no right (CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN), no such cgroup, a kernel before 5.17.
    pub fn start(config: &CatchConfig) -> Result<Self, Error> {
        libbpf_rs::set_print(None);
        let cgroup = cgroup::open(config.cgroup)?;
        let mut object = MaybeUninit::uninit();
        let mut skeleton = skeleton::BatcpCatchSkelBuilder::default().open(&mut object).about(WHAT)?;
        let constants = skeleton.maps.rodata_data.as_deref_mut().expect("the program has constants");
        constants.netns =
            cgroup::netns_cookie().about("read the cookie of the network namespace (needs Linux 5.14)")?;
        constants.port_ipv4 = config.ipv4.port();
        constants.port_ipv6 = config.ipv6.map_or(0, |address| address.port());
        let skeleton = skeleton.load().about(WHAT)?;
        for prefix in config.only {
            skeleton.maps.only.update(&key(prefix), &[1], MapFlags::ANY).about(WHAT)?;
        }
        for prefix in config.except {
            skeleton.maps.spared.update(&key(prefix), &[1], MapFlags::ANY).about(WHAT)?;
        }
        for address in config.via {
            skeleton.maps.except.update(&endpoint(*address), &[1], MapFlags::ANY).about(WHAT)?;
        }
        let programs = &skeleton.progs;
        let links = [
            // The program that records before the one that redirects, so that nothing is caught without a record.
            &programs.batcp_originals,
            &programs.batcp_getpeername4,
            &programs.batcp_getpeername6,
            &programs.batcp_connect4,
            &programs.batcp_connect6,
        ]
        .into_iter()
        .map(|program| program.attach_cgroup(cgroup.as_raw_fd()).about(WHAT))
        .collect::<Result<_, _>>()?;
        let map = |map: &libbpf_rs::MapMut<'_>| MapHandle::try_from(map).about(WHAT);
        Ok(Self { originals: map(&skeleton.maps.originals)?, spared: map(&skeleton.maps.spared)?, _links: links })
    }

    /// Stop catching the destinations in `now`, and catch again those that are only in `before`.
    pub fn spare(&self, before: &HashSet<Prefix>, now: &HashSet<Prefix>) -> Result<(), Error> {
        for prefix in now.difference(before) {
            self.spared.update(&key(prefix), &[1], MapFlags::ANY).about(WHAT)?;
        }
        for prefix in before.difference(now) {
            self.spared.delete(&key(prefix)).about(WHAT)?;
        }
        Ok(())
    }

    /// Return the original destination of the program with the address `peer`; `None` if it was not caught, but
    /// connected by itself. To be called once. Replaces netfilter's SO_ORIGINAL_DST.
    pub fn original(&self, peer: SocketAddr) -> Option<SocketAddr> {
        let value = self.originals.lookup_and_delete(&endpoint(peer)).ok()??;
        let (address, port) = value.split_at_checked(16)?;
        let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).to_canonical();
        let port = u32::from_ne_bytes(port.try_into().ok()?);
        Some((address, u16::try_from(port).ok()?).into())
    }
}

/// Return the networks that this host's interfaces are in (getifaddrs(3)).
pub fn connected() -> io::Result<HashSet<Prefix>> {
    let mut found = HashSet::new();
    let mut list = std::ptr::null_mut();
    // SAFETY: a list that the kernel's answer is made into, read until its end and then freed; `sockaddr` are read as what their
    // family says.
    unsafe {
        if libc::getifaddrs(&raw mut list) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut next = list;
        while let Some(entry) = next.as_ref() {
            if let (Some(address), Some(mask)) = (ip(entry.ifa_addr), ip(entry.ifa_netmask)) {
                found.insert(Prefix::network(address, mask));
            }
            next = entry.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    Ok(found)
}

/// SAFETY: null, or a socket address as its family says.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// Encode `struct prefix` of the BPF program.
fn key(prefix: &Prefix) -> Vec<u8> {
    [&u32::from(prefix.bits).to_ne_bytes()[..], &prefix.address.octets()].concat()
}

/// Encode `struct endpoint` of the BPF program.
fn endpoint(address: SocketAddr) -> Vec<u8> {
    [&mapped(address.ip()).octets()[..], &u32::from(address.port()).to_ne_bytes()].concat()
}
