// SPDX-License-Identifier: Apache-2.0
//! Interfaces that a connection uses: their names, the user's weights, sockets bound to them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::Error;

/// One interface and what it is worth (paper 003, section 3.5). Read from `NAME[:THROUGHPUT:COST[:PRICE]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// A device (`eth0`) or one of this host's addresses.
    pub name: String,
    /// Weight of the throughput, 0..=1; with `weight_cost` it makes 1.
    pub weight_throughput: f64,
    /// Weight of the cost, 0..=1.
    pub weight_cost: f64,
    /// Monetary cost, above 0, in a unit that is the same for all interfaces.
    pub cost: f64,
}

impl Interface {
    /// An interface of which only the throughput counts. `name`: a device or a source address.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), weight_throughput: 1.0, weight_cost: 0.0, cost: 1.0 }
    }

    /// A wired device or a source address; section 3.1 opens a connection on those first.
    pub fn is_wired(&self) -> bool {
        let device = Path::new("/sys/class/net").join(&self.name);
        !device.join("wireless").exists() && !device.join("phy80211").exists() && !self.name.starts_with("ww")
    }

    /// A TCP socket of the family of `peer` that leaves through this interface only.
    ///
    /// Devices are bound by SO_BINDTODEVICE, which since Linux 5.7 needs no privilege. Errors: the device does not exist, the
    /// address is not this host's or not of the family of `peer`.
    pub fn socket(&self, peer: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(peer), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        match self.name.parse::<IpAddr>() {
            Ok(address) => socket.bind(&SockAddr::from(SocketAddr::new(address, 0)))?,
            Err(_) => socket.bind_device(Some(self.name.as_bytes()))?,
        }
        Ok(socket)
    }
}

impl FromStr for Interface {
    type Err = Error;

    /// Reads `eth0`, `eth0:0.9:0.1` or `wwan0:0.1:0.9:4`: device or address, both weights, cost. An IPv6 address stands in
    /// brackets. Errors: a weight outside 0..=1, weights whose sum is not 1, a cost that is not above 0.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong =
            |what: &str| Error::new(format!("interface '{text}': {what}; write NAME[:THROUGHPUT:COST[:PRICE]]"));
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
            .map_err(|_| wrong("the weights are no numbers"))?;
        let (throughput, cost) = match numbers[..] {
            [throughput, cost] | [throughput, cost, _] => (throughput, cost),
            _ => return Err(wrong("two weights and perhaps a price follow the name")),
        };
        if !(0.0..=1.0).contains(&throughput) || !(0.0..=1.0).contains(&cost) || (throughput + cost - 1.0).abs() > 1e-6
        {
            return Err(wrong("weights lie in 0..1 and their sum is 1"));
        }
        (interface.weight_throughput, interface.weight_cost) = (throughput, cost);
        if let Some(&price) = numbers.get(2) {
            if !(price > 0.0 && price.is_finite()) {
                return Err(wrong("a price is above 0"));
            }
            interface.cost = price;
        }
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
    fn interfaces_are_read() {
        assert_eq!("eth0".parse::<Interface>().unwrap(), Interface::new("eth0"));
        let mobile: Interface = "wwan0:0.1:0.9:4".parse().unwrap();
        assert_eq!((mobile.weight_throughput, mobile.weight_cost, mobile.cost), (0.1, 0.9, 4.0));
        assert!(!mobile.is_wired());
        assert_eq!("[2001:db8::1]:0.5:0.5".parse::<Interface>().unwrap().name, "2001:db8::1");
        for wrong in
            ["", ":1:0", "eth0:1", "eth0:0.9:0.2", "eth0:2:-1", "eth0:1:0:0", "eth0:1:0:nan", "eth0:x:y", "a/b"]
        {
            let error = wrong.parse::<Interface>().unwrap_err().to_string();
            assert!(error.contains("NAME[:THROUGHPUT:COST[:PRICE]]"), "{error}");
        }
    }
}
