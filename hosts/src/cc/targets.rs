// SPDX-License-Identifier: Apache-2.0
//! Target rates of tcp_av: per socket, per destination, and for all others its option `target`.

use std::net::{IpAddr, Ipv6Addr};

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use super::{controls, loaded};
use hosts_base::output::Format;
use hosts_base::{About, Error};

/// Sockets that a target rate is for.
#[derive(Debug, PartialEq)]
pub enum TargetSelector {
    /// The socket with this cookie.
    Socket(u64),
    /// Sockets connected into this network: address (IPv4 as ::ffff:a.b.c.d) and bits of the prefix.
    Network(Ipv6Addr, u32),
}

impl TargetSelector {
    /// Parse the options of `hosts cc target`.
    pub fn parse(to: Option<&str>, socket: Option<u64>) -> Result<Self, Error> {
        match (to, socket) {
            (Some(to), _) => Self::network(to).ok_or_else(|| {
                Error::new(format!("'{to}' is no address or network: write 10.0.0.7, 10.0.0.0/24 or fd00::/64"))
            }),
            (None, Some(cookie)) => Ok(Self::Socket(cookie)),
            (None, None) => Err(Error::new("whose target? --to NETWORK or --socket COOKIE")),
        }
    }

    fn network(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().ok()?;
        let (mapped, longest) = match address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 32),
            IpAddr::V6(v6) => (v6, 128),
        };
        let bits = bits.map_or(Some(longest), |b| b.parse().ok())?;
        (bits <= longest).then_some(Self::Network(mapped, 128 - longest + bits))
    }

    fn map(&self) -> &'static str {
        match self {
            Self::Socket(_) => "socket_targets",
            Self::Network(..) => "network_targets",
        }
    }

    fn key(&self) -> Vec<u8> {
        match self {
            Self::Socket(cookie) => cookie.to_ne_bytes().to_vec(),
            Self::Network(address, bits) => [&bits.to_ne_bytes()[..], &address.octets()].concat(),
        }
    }

    fn of_key(map: &str, key: &[u8]) -> Option<Self> {
        if map == "socket_targets" {
            return Some(Self::Socket(u64::from_ne_bytes(key.try_into().ok()?)));
        }
        let (bits, address) = key.split_first_chunk::<4>()?;
        let address: [u8; 16] = address.try_into().ok()?;
        Some(Self::Network(address.into(), u32::from_ne_bytes(*bits)))
    }
}

impl std::fmt::Display for TargetSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(cookie) => write!(f, "socket {cookie}"),
            Self::Network(address, bits) => match address.to_ipv4_mapped() {
                Some(v4) if *bits >= 96 => write!(f, "to {v4}/{}", bits - 96),
                _ => write!(f, "to {address}/{bits}"),
            },
        }
    }
}

/// Parse a rate in tc's style into kbit/s; `none` is None.
pub fn parse_rate(text: &str) -> Result<Option<u32>, Error> {
    if text == "none" {
        return Ok(None);
    }
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let factor = match text[digits..].to_ascii_lowercase().as_str() {
        "kbit" => 1.0,
        "mbit" => 1e3,
        "gbit" => 1e6,
        _ => 0.0,
    };
    let kbit = text[..digits].parse().unwrap_or(0.0) * factor;
    if (1.0..=f64::from(u32::MAX)).contains(&kbit) {
        return Ok(Some(kbit.round() as u32));
    }
    Err(Error::new(format!("'{text}' is no rate: write 633kbit, 5mbit or 1.5gbit, or none")))
}

/// Set or remove a target. Sockets use it within a round trip.
pub fn change(selector: TargetSelector, kbit: Option<u32>) -> Result<(), Error> {
    let av = loaded::expect(controls::find("tcp_av")?)?;
    let map = av.map(selector.map()).ok_or_else(|| Error::new("tcp_av has lost its targets: load it again"))?;
    match kbit {
        Some(kbit) => {
            map.update(&selector.key(), &kbit.to_ne_bytes(), MapFlags::ANY).about(format!("target of {selector}"))
        }
        None => map.delete(&selector.key()).map_err(|e| match e.kind() {
            libbpf_rs::ErrorKind::NotFound => Error::new(format!("there is no target of {selector}: hosts cc target")),
            _ => Error::new(format!("target of {selector}: {e}")),
        }),
    }
}

#[derive(Serialize)]
struct Row {
    whose: String,
    target_kbit: u32,
}

/// Print all targets.
pub fn show(format: Format) -> Result<(), Error> {
    let av = loaded::expect(controls::find("tcp_av")?)?;
    let mut rows = Vec::new();
    for name in ["socket_targets", "network_targets"] {
        let Some(map) = av.map(name) else { continue };
        for key in map.keys() {
            let value = map.lookup(&key, MapFlags::ANY).about("read targets")?; // none: removed just now
            if let (Some(selector), Some(value)) = (TargetSelector::of_key(name, &key), value) {
                let target_kbit = value.try_into().map_or(0, u32::from_ne_bytes);
                rows.push(Row { whose: selector.to_string(), target_kbit });
            }
        }
    }
    let default = av.options()?.first().copied().unwrap_or_default();
    rows.push(Row { whose: "all others".into(), target_kbit: default });
    format.print(&rows, &["whose", "target kbit/s"], |r| vec![r.whose.clone(), r.target_kbit.to_string()]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn networks_and_rates() {
        let parse = |t| TargetSelector::parse(Some(t), None).map(|w| w.to_string());
        assert_eq!(parse("10.0.0.7").unwrap(), "to 10.0.0.7/32");
        assert_eq!(parse("10.0.0.0/24").unwrap(), "to 10.0.0.0/24");
        assert_eq!(parse("fd00::/64").unwrap(), "to fd00::/64");
        for bad in ["10.0.0.0/33", "fd00::/129", "host", "10.0.0.0/", "/8", "10.0.0.0/-1"] {
            assert!(parse(bad).unwrap_err().to_string().contains(bad));
        }
        assert_eq!(parse_rate("633kbit").unwrap(), Some(633));
        assert_eq!(parse_rate("1.5Mbit").unwrap(), Some(1500));
        assert_eq!(parse_rate("none").unwrap(), None);
        for bad in ["", "5", "0mbit", "-1mbit", "5mbps", "9999gbit", "..mbit"] {
            assert!(parse_rate(bad).unwrap_err().to_string().contains("633kbit"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn keys_come_back(address: u128, bits in 0u32..=128, cookie: u64) {
            for selector in [TargetSelector::Socket(cookie), TargetSelector::Network(address.into(), bits)] {
                prop_assert_eq!(TargetSelector::of_key(selector.map(), &selector.key()), Some(selector));
            }
        }
    }
}
