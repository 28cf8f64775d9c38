// SPDX-License-Identifier: Apache-2.0
//! Network device of the tunnel (Documentation/networking/tuntap.rst) and the routes that lead into it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use super::config::Config;
use crate::proxy::destination::Prefix;
use hosts_base::{About, Error};

/// Open /dev/net/tun and make the device; it goes with the descriptor. Errors: no right (CAP_NET_ADMIN), no such name.
pub fn open(name: &str) -> Result<OwnedFd, Error> {
    let about = || format!("make the network device {name} (needs root)");
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let file = file.about(about())?;
    // SAFETY: plain integers and octets.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (into, octet) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *into = octet as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } != 0 {
        return Err(io::Error::last_os_error()).about(about());
    }
    Ok(file.into())
}

/// Addresses and routes of the device, removed when this is dropped.
pub struct Routes {
    table: u32,
    families: Vec<&'static str>,
}

impl Routes {
    /// Set the device's addresses, and route to it the destinations of `config`. Routes of the main table that are more
    /// specific than its default route go first, so that the networks of this host's interfaces are never caught;
    /// excepted destinations are looked up there too. Errors: those of `ip`.
    pub fn set(config: &Config, except: &[Prefix]) -> Result<Self, Error> {
        let (device, table) = (&config.device, &config.table.to_string());
        ip(&["link", "set", device, "mtu", &config.mtu.to_string(), "up"])?;
        for address in &config.addresses {
            ip(&["address", "replace", address, "dev", device])?;
        }
        let has = |v4: bool| config.routes.iter().any(|route| is_v4(route) == v4);
        let families = [("-4", has(true)), ("-6", has(false))];
        let families: Vec<_> = families.into_iter().filter(|(_, used)| *used).map(|(family, _)| family).collect();
        let routes = Self { table: config.table, families };
        routes.remove(); // what a run has left that was killed
        for prefix in &config.routes {
            ip(&["route", "replace", &prefix.to_string(), "dev", device, "table", table])?;
        }
        for prefix in Prefix::private().iter().chain(except).chain(&config.except) {
            let used = routes.families.contains(&if is_v4(prefix) { "-4" } else { "-6" });
            if used && !config.routes.contains(prefix) {
                ip(&["route", "replace", "throw", &prefix.to_string(), "table", table])?;
            }
        }
        for rule in routes.rules() {
            Self::change(&rule, "add")?;
        }
        Ok(routes)
    }

    /// Return the two rules of each family: the main table without its default route, then the tunnel's table.
    fn rules(&self) -> Vec<Vec<String>> {
        let (first, second) = (self.table, self.table + 1);
        let of = |family: &&str| {
            [
                format!("{family} rule WHAT pref {first} lookup main suppress_prefixlength 0"),
                format!("{family} rule WHAT pref {second} lookup {first}"),
            ]
        };
        self.families.iter().flat_map(of).map(|rule| rule.split(' ').map(str::to_owned).collect()).collect()
    }

    fn change(rule: &[String], what: &str) -> Result<(), Error> {
        let words: Vec<&str> = rule.iter().map(|word| if word == "WHAT" { what } else { word }).collect();
        ip(&words)
    }

    fn remove(&self) {
        for rule in self.rules() {
            while Self::change(&rule, "delete").is_ok() {}
        }
        for family in &self.families {
            let _ = ip(&[family, "route", "flush", "table", &self.table.to_string()]);
        }
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.remove();
    }
}

fn is_v4(prefix: &Prefix) -> bool {
    prefix.address.to_ipv4_mapped().is_some()
}

fn ip(words: &[&str]) -> Result<(), Error> {
    let command = || format!("ip {}", words.join(" "));
    let done = Command::new("ip").args(words).output().about(format!("{} (is iproute2 installed?)", command()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::new(format!("`{}`: {}", command(), String::from_utf8_lossy(&done.stderr).trim())))
}
