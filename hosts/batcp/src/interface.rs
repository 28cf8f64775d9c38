// SPDX-License-Identifier: Apache-2.0
//! Interfaces of a connection: their names, the user's weights, sockets bound to them.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::uplink::Uplink;
use hosts_base::Error;

/// Prices that an interface may have: wide enough for any unit, and so narrow that the ratio of two is a time to wait.
const PRICES: RangeInclusive<f32> = 1e-6..=1e6;

/// One interface and what it is worth (paper 003, section 3.5). Read from `NAME[:PRICE]` or
/// `NAME:THROUGHPUT:COST[:PRICE]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// A device (`eth0`) or one of this host's addresses.
    pub name: String,
    /// Weight of the throughput, 0..=1; with `weight_cost` it makes 1.
    pub weight_throughput: f64,
    /// Weight of the cost, 0..=1.
    pub weight_cost: f64,
    /// Monetary cost, 0.000001 to 1000000, in a unit that is the same for all interfaces.
    pub cost: f64,
}

impl Interface {
    /// An interface of which only the throughput counts. `name`: a device or a source address.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), weight_throughput: 1.0, weight_cost: 0.0, cost: 1.0 }
    }

    /// Return the price to the power of its weight: interfaces whose price does not count cost 1.
    pub(super) fn price(&self) -> f64 {
        self.cost.powf(self.weight_cost)
    }

    /// Check the weights and the price, also in single precision, as the peer receives them. Errors: the reason.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let weights = [self.weight_throughput, self.weight_cost];
        if !weights.iter().all(|weight| (0.0..=1.0).contains(weight)) || (weights[0] + weights[1] - 1.0).abs() > 1e-6 {
            return Err("weights lie in 0..1 and their sum is 1");
        }
        if !PRICES.contains(&(self.cost as f32)) {
            return Err("a price lies between 0.000001 and 1000000");
        }
        Ok(())
    }

    /// The devices that are up and have a route to `peer`, their addresses left to the kernel; the loopback device for this host.
    pub fn towards(peer: IpAddr) -> Vec<Self> {
        if peer.is_loopback() {
            return vec![Self::new("lo")];
        }
        let table = match peer {
            IpAddr::V4(_) => "/proc/net/route",
            IpAddr::V6(_) => "/proc/net/ipv6_route",
        };
        let routes = fs::read_to_string(table).unwrap_or_default();
        let mut names: Vec<&str> = routes.lines().filter_map(|line| device_of_route(line, peer)).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| *name != "lo");
        names.into_iter().map(Self::new).collect()
    }

    /// A wired device or a source address; section 3.1 opens a connection on those first.
    pub fn is_wired(&self) -> bool {
        let device = Path::new("/sys/class/net").join(&self.name);
        !device.join("wireless").exists() && !device.join("phy80211").exists() && !self.name.starts_with("ww")
    }

    /// Make a TCP socket of the family of `peer` that leaves through this interface only. `uplink`: its limits.
    ///
    /// Devices are bound by SO_BINDTODEVICE, which since Linux 5.7 needs no privilege. Errors: the device does not exist, the
    /// address is not this host's or not of the family of `peer`.
    pub(super) fn socket(&self, peer: SocketAddr, uplink: &Uplink) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(peer), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        match self.name.parse::<IpAddr>() {
            Ok(address) => socket.bind(&SockAddr::from(SocketAddr::new(address, 0)))?,
            Err(_) => socket.bind_device(Some(self.name.as_bytes()))?,
        }
        if let Some(bytes) = uplink.segment(Instant::now()) {
            socket.set_tcp_mss(bytes)?;
        }
        Ok(socket)
    }
}

/// The device of a line of /proc/net/route or /proc/net/ipv6_route, if the route is up and covers `peer`.
fn device_of_route(line: &str, peer: IpAddr) -> Option<&str> {
    const UP: u32 = 1;
    const REJECT: u32 = 0x200;
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let hex = |at: usize| fields.get(at).and_then(|field| u32::from_str_radix(field, 16).ok());
    let (name, flags, covers) = match peer {
        // Iface Destination Gateway Flags RefCnt Use Metric Mask ...: addresses as the machine stores them.
        IpAddr::V4(peer) => (fields.first()?, hex(3)?, u32::from_ne_bytes(peer.octets()) & hex(7)? == hex(1)?),
        // destination length source length gateway metric refs use flags device
        IpAddr::V6(peer) => {
            let (destination, length) = (u128::from_str_radix(fields.first()?, 16).ok()?, hex(1)?);
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            (fields.get(9)?, hex(8)?, u128::from(peer) & mask == destination & mask)
        }
    };
    (covers && flags & UP != 0 && flags & REJECT == 0).then_some(*name)
}

impl FromStr for Interface {
    type Err = Error;

    /// Parse `eth0`, `wwan0:4`, `eth0:0.9:0.1` or `wwan0:0.1:0.9:4`: device or address, both weights, cost. With a price
    /// alone only the cost counts. An IPv6 address stands in brackets. Errors: a weight outside 0..=1, weights whose sum is not 1, a price outside 0.000001..=1000000.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: &str| {
            Error::new(format!("interface '{text}': {what}; write NAME[:PRICE] or NAME:THROUGHPUT:COST[:PRICE]"))
        };
        let (name, rest) = match text.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((address, rest)) => (address, rest.strip_prefix(':').unwrap_or(rest)),
            None => text.split_once(':').unwrap_or((text, "")),
        };
        if name.is_empty() || name.len() > 45 || name.contains(['/', ' ']) {
            return Err(wrong("this is no name of a device"));
        }
        let mut interface = Self::new(name);
        if rest.is_empty() {
            return Ok(interface);
        }
        let numbers: Vec<f64> = rest
            .split(':')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| wrong("weights and prices are numbers"))?;
        (interface.weight_throughput, interface.weight_cost, interface.cost) = match numbers[..] {
            [price] => (0.0, 1.0, price),
            [throughput, cost] => (throughput, cost, interface.cost),
            [throughput, cost, price] => (throughput, cost, price),
            _ => return Err(wrong("a price, or two weights and perhaps a price, follow the name")),
        };
        interface.check().map_err(wrong)?;
        Ok(interface)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_name_their_devices() {
        let v4 = |line, peer: &str| device_of_route(line, peer.parse().unwrap());
        let subnet =
            format!("eth1\t{:08X}\t00000000\t0001\t0\t0\t0\t{:08X}\t0\t0\t0", u32::from_ne_bytes([10, 0, 1, 0]), {
                u32::from_ne_bytes([255, 255, 255, 0])
            });
        assert_eq!(v4(&subnet, "10.0.1.7"), Some("eth1"));
        assert_eq!(v4(&subnet, "10.0.2.7"), None);
        assert_eq!(v4("eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0", "10.0.2.7"), Some("eth0"));
        assert_eq!(v4("Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT", "10.0.2.7"), None);
        let zero = "0".repeat(32);
        let net = "20010db8000000000000000000000000";
        let v6 = |net: &str, length: &str, flags: &str| {
            let line = format!("{net} {length} {zero} 00 {zero} 00000100 00000001 00000000 {flags} eth2");
            device_of_route(&line, "2001:db8::1".parse().unwrap()).map(str::to_owned)
        };
        assert_eq!(v6(net, "40", "00000001").as_deref(), Some("eth2"));
        assert_eq!(v6(&zero, "00", "00000003").as_deref(), Some("eth2"));
        assert_eq!(v6(&zero, "00", "00200200"), None, "the unreachable default route");
        assert_eq!(Interface::towards("127.0.0.1".parse().unwrap()), [Interface::new("lo")]);
    }

    #[test]
    fn interfaces_are_read() {
        assert_eq!("eth0".parse::<Interface>().unwrap(), Interface::new("eth0"));
        let mobile: Interface = "wwan0:0.1:0.9:4".parse().unwrap();
        assert_eq!((mobile.weight_throughput, mobile.weight_cost, mobile.cost), (0.1, 0.9, 4.0));
        assert!(!mobile.is_wired());
        let dear: Interface = "wwan0:100".parse().unwrap();
        assert_eq!((dear.weight_throughput, dear.price(), Interface::new("a").price()), (0.0, 100.0, 1.0));
        assert_eq!("[2001:db8::1]:0.5:0.5".parse::<Interface>().unwrap().name, "2001:db8::1");
        for wrong in [
            "",
            ":1:0",
            "eth0:0",
            "eth0:1:0:1:1",
            "eth0:0.9:0.2",
            "eth0:2:-1",
            "eth0:1:0:0",
            "eth0:1:0:nan",
            "eth0:0:1:1e-300",
            "eth0:0:1:1e300",
            "eth0:x:y",
            "a/b",
        ] {
            let error = wrong.parse::<Interface>().unwrap_err().to_string();
            assert!(error.contains("NAME:THROUGHPUT:COST[:PRICE]"), "{error}");
        }
    }
}
