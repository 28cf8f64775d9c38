// SPDX-License-Identifier: Apache-2.0
//! Catches the TCP connects of unmodified programs, without netfilter: BPF programs on a cgroup's connect(2) and
//! getpeername(2).

use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::destination::{Prefix, mapped};
use crate::batcp::cgroup;
use crate::{About, Error};

mod skeleton {
    #![allow(clippy::all, clippy::pedantic, dead_code, unused)]
    include!(concat!(env!("OUT_DIR"), "/batcp_catch.skel.rs"));
}

/// What is caught, and where it is sent.
pub struct Net<'n> {
    /// The cgroup as /proc/PID/cgroup names it; "/" for all processes
    pub cgroup: &'n str,
    /// The proxy's listening addresses on loopback
    pub ipv4: SocketAddr,
    pub ipv6: Option<SocketAddr>,
    /// Destinations that are caught
    pub only: &'n [Prefix],
    /// The remote proxy's addresses, which are not
    pub except: &'n [SocketAddr],
}

/// The attached programs; dropped, or when the process ends, connects go their own way again.
pub struct Catcher {
    originals: MapHandle,
    _links: Vec<Link>,
}

impl Catcher {
    /// Catches from now on, in this process' network namespace: "transparent to users and applications" (paper 003,
    /// section 1). Errors: no right (CAP_BPF, CAP_NET_ADMIN,
    /// CAP_SYS_ADMIN), no such cgroup, a kernel before 5.17.
    pub fn start(net: &Net) -> Result<Self, Error> {
        const WHAT: &str = "catch connects (needs root and Linux 5.17; 'hosts batcp socks' works without)";
        libbpf_rs::set_print(None);
        let cgroup = cgroup::open(net.cgroup)?;
        let mut object = MaybeUninit::uninit();
        let mut skeleton = skeleton::BatcpCatchSkelBuilder::default().open(&mut object).about(WHAT)?;
        let constants = skeleton.maps.rodata_data.as_deref_mut().expect("the program has constants");
        constants.netns =
            cgroup::netns_cookie().about("read the cookie of the network namespace (needs Linux 5.14)")?;
        constants.port_ipv4 = net.ipv4.port();
        constants.port_ipv6 = net.ipv6.map_or(0, |address| address.port());
        let skeleton = skeleton.load().about(WHAT)?;
        for prefix in net.only {
            let key = [&u32::from(prefix.bits).to_ne_bytes()[..], &prefix.address.octets()].concat();
            skeleton.maps.only.update(&key, &[1], MapFlags::ANY).about(WHAT)?;
        }
        for address in net.except {
            skeleton.maps.except.update(&endpoint(*address), &[1], MapFlags::ANY).about(WHAT)?;
        }
        let programs = &skeleton.progs;
        let links = [
            // The notes before the catching, so that nothing is caught of which they do not know.
            &programs.batcp_originals,
            &programs.batcp_getpeername4,
            &programs.batcp_getpeername6,
            &programs.batcp_connect4,
            &programs.batcp_connect6,
        ]
        .into_iter()
        .map(|program| program.attach_cgroup(cgroup.as_raw_fd()).about(WHAT))
        .collect::<Result<_, _>>()?;
        Ok(Self { originals: MapHandle::try_from(&skeleton.maps.originals).about(WHAT)?, _links: links })
    }

    /// Where the program with the address `peer` wanted to go; `None` if it was not caught, but came by itself. To be
    /// asked once. In place of netfilter's SO_ORIGINAL_DST.
    pub fn original(&self, peer: SocketAddr) -> Option<SocketAddr> {
        let value = self.originals.lookup_and_delete(&endpoint(peer)).ok()??;
        let (address, port) = value.split_at_checked(16)?;
        let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).to_canonical();
        let port = u32::from_ne_bytes(port.try_into().ok()?);
        Some((address, u16::try_from(port).ok()?).into())
    }
}

/// `struct endpoint` of the BPF program.
fn endpoint(address: SocketAddr) -> Vec<u8> {
    [&mapped(address.ip()).octets()[..], &u32::from(address.port()).to_ne_bytes()].concat()
}
