// SPDX-License-Identifier: Apache-2.0
//! Destinations of connections, in SOCKS5's format (RFC 1928, sections 4 to 6), and rules that allow them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::io::{AsyncRead, AsyncReadExt};

use hosts_base::Error;

/// Destination that a client requests: `DST.ADDR` and `DST.PORT` of RFC 1928.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    Address(SocketAddr),
    /// A name of 1 to 255 bytes, resolved by the proxy that makes the connection
    Name(String, u16),
}

impl Destination {
    /// Read address type, address and port (RFC 1928, sections 4 and 5). Errors: `Unsupported` for an unknown type,
    /// `InvalidData` for an empty name or one that is not text.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the name is not text");
        let address: IpAddr = match from.read_u8().await? {
            1 => from.read_u32().await.map(|bits| IpAddr::V4(bits.into()))?,
            4 => from.read_u128().await.map(|bits| IpAddr::V6(bits.into()))?,
            3 => {
                let mut name = vec![0; from.read_u8().await?.into()];
                from.read_exact(&mut name).await?;
                let name = String::from_utf8(name).map_err(|_| invalid())?;
                let port = from.read_u16().await?;
                // Some clients send addresses as names.
                if let Ok(address) = name.parse::<IpAddr>() {
                    return Ok(Self::Address((address, port).into()));
                }
                if name.is_empty() || name.contains(|c: char| c.is_control() || c.is_whitespace()) {
                    return Err(invalid());
                }
                return Ok(Self::Name(name, port));
            }
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "unknown type of address")),
        };
        Ok(Self::Address((address, from.read_u16().await?).into()))
    }

    /// Encode the destination as RFC 1928 does (sections 4 and 5).
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let port = match self {
            Self::Address(address) => {
                match address.ip() {
                    IpAddr::V4(ip) => bytes.extend([1].iter().chain(&ip.octets())),
                    IpAddr::V6(ip) => bytes.extend([4].iter().chain(&ip.octets())),
                }
                address.port()
            }
            Self::Name(name, port) => {
                bytes.extend([3, u8::try_from(name.len()).expect("names are read with a length of one byte")]);
                bytes.extend(name.as_bytes());
                *port
            }
        };
        bytes.extend(port.to_be_bytes());
        bytes
    }

    /// Resolve the destination to the addresses that `rules` allow. Errors: RFC 1928's replies `NotAllowed` when none
    /// is, and `HostUnreachable` when the name has none (section 6).
    pub async fn resolve(&self, rules: &Rules) -> Result<Vec<SocketAddr>, Reply> {
        let addresses = match self {
            Self::Address(address) => vec![*address],
            Self::Name(name, port) => {
                tokio::net::lookup_host((name.as_str(), *port)).await.map_err(|_| Reply::HostUnreachable)?.collect()
            }
        };
        let allowed: Vec<_> = addresses.into_iter().filter(|address| rules.allow(*address)).collect();
        if allowed.is_empty() { Err(Reply::NotAllowed) } else { Ok(allowed) }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// `REP` of a SOCKS5 reply (RFC 1928, section 6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Reply {
    Succeeded = 0,
    Failed = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

impl Reply {
    /// Decode a reply (RFC 1928, section 6); an unknown one is a failure.
    pub fn from_byte(byte: u8) -> Self {
        use Reply::*;
        [
            Succeeded,
            Failed,
            NotAllowed,
            NetworkUnreachable,
            HostUnreachable,
            Refused,
            TimedOut,
            CommandNotSupported,
            AddressNotSupported,
        ]
        .get(usize::from(byte))
        .copied()
        .unwrap_or(Failed)
    }
}

impl From<&io::Error> for Reply {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::NetworkUnreachable => Self::NetworkUnreachable,
            io::ErrorKind::HostUnreachable => Self::HostUnreachable,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::PermissionDenied => Self::NotAllowed,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::NotAllowed => "not allowed",
            Self::NetworkUnreachable => "network unreachable",
            Self::HostUnreachable => "host unreachable",
            Self::Refused => "connection refused",
            Self::TimedOut => "timed out",
            Self::CommandNotSupported => "command not supported",
            Self::AddressNotSupported => "type of address not supported",
        })
    }
}

/// Addresses with common leading bits, IPv4 as ::ffff:a.b.c.d.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Prefix {
    pub address: Ipv6Addr,
    /// 0 to 128 bits of the mapped address
    pub bits: u8,
}

impl Prefix {
    pub const ALL: Self = Self { address: Ipv6Addr::UNSPECIFIED, bits: 0 };

    /// Return the private networks (RFC 1918, RFC 6598, RFC 4193), multicast and broadcast: no remote proxy is a way to
    /// these.
    pub fn private() -> Vec<Self> {
        const PRIVATE: [&str; 8] = [
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "100.64.0.0/10",
            "fc00::/7",
            "224.0.0.0/4",
            "ff00::/8",
            "255.255.255.255",
        ];
        PRIVATE.iter().map(|text| text.parse().expect("a constant prefix")).collect()
    }

    /// Return the network of an interface's address.
    pub fn network(address: IpAddr, mask: IpAddr) -> Self {
        let bits = mapped(mask).to_bits().count_ones() as u8;
        // A mapped mask has 16 ones before its own.
        let bits = if address.is_ipv4() { bits - 16 + 96 } else { bits };
        Self { address: mapped(address), bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        let difference = self.address.to_bits() ^ mapped(address).to_bits();
        difference.leading_zeros() >= self.bits.into()
    }
}

impl FromStr for Prefix {
    type Err = Error;

    /// Parse `10.0.0.0/8`, `2001:db8::/32` or a single address. Errors: no address, or more bits than it has.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::new(format!("'{text}' is no prefix: write ADDRESS or ADDRESS/BITS, as 10.0.0.0/8"));
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(longest), str::parse).ok().filter(|bits| *bits <= longest).ok_or_else(wrong)?;
        Ok(Self { address: mapped(address), bits: 128 - longest + bits })
    }
}

/// Map the address to IPv6 (RFC 4291, section 2.5.5.2).
pub fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Destinations that a proxy may connect to: a prefix, on one port or on all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    prefix: Prefix,
    port: Option<u16>,
}

impl FromStr for Rule {
    type Err = Error;

    /// Parse `10.0.0.0/8`, `10.0.0.1:443`, `[2001:db8::/32]:443`. Errors: as of `Prefix`, or no port number.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::new(format!("'{text}': write PREFIX or PREFIX:PORT, IPv6 as [PREFIX]:PORT"));
        let (prefix, port) = match text.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((prefix, "")) => (prefix, None),
            Some((prefix, rest)) => (prefix, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            None if text.matches(':').count() == 1 => text.split_once(':').map(|(a, b)| (a, Some(b))).expect("counted"),
            None => (text, None),
        };
        Ok(Self { prefix: prefix.parse()?, port: port.map(str::parse).transpose().map_err(|_| wrong())? })
    }
}

/// Allow-list of destinations. Without rules everything is allowed but the proxy's own host and links: loopback,
/// unspecified, link-local and multicast addresses.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// Return true if a proxy may connect to `to`: the ruleset of RFC 1928, section 6.
    pub fn allow(&self, to: SocketAddr) -> bool {
        if self.0.is_empty() {
            return !is_local(to.ip());
        }
        self.0.iter().any(|rule| rule.prefix.contains(to.ip()) && rule.port.is_none_or(|port| port == to.port()))
    }
}

fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.octets()[0] == 0 || ip.is_link_local() || ip.is_multicast(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Destination> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Destination::read(&mut &*bytes))
    }

    proptest! {
        #[test]
        fn destinations_survive_their_bytes(address: SocketAddr, name in "[a-z][a-z0-9.-]{0,200}", port: u16) {
            let address = SocketAddr::new(address.ip(), address.port());
            for destination in [Destination::Address(address), Destination::Name(name, port)] {
                let bytes = destination.encode();
                prop_assert_eq!(read(&bytes).unwrap(), destination);
                prop_assert!(read(&bytes[..bytes.len() - 1]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
        }

        #[test]
        fn a_prefix_contains_what_shares_its_bits(bits in 0u8..=32, a: u32, b: u32) {
            let prefix: Prefix = format!("{}/{bits}", std::net::Ipv4Addr::from(a)).parse().unwrap();
            let expected = bits == 0 || (a ^ b) >> (32 - bits) == 0;
            prop_assert_eq!(prefix.contains(IpAddr::V4(b.into())), expected);
        }
    }

    #[test]
    fn networks_of_interfaces() {
        let network = |address: &str, mask: &str| Prefix::network(address.parse().unwrap(), mask.parse().unwrap());
        for (net, inside, outside) in [
            (network("192.0.2.77", "255.255.255.0"), "192.0.2.1", "192.0.3.1"),
            (network("192.0.2.77", "255.255.255.255"), "192.0.2.77", "192.0.2.76"),
            (network("2001:db8::1", "ffff:ffff:ffff:ffff::"), "2001:db8::2", "2001:db8:0:1::2"),
        ] {
            assert!(net.contains(inside.parse().unwrap()) && !net.contains(outside.parse().unwrap()), "{net:?}");
        }
        assert!(Prefix::private().iter().any(|prefix| prefix.contains("172.31.255.255".parse().unwrap())));
        assert!(!Prefix::private().iter().any(|prefix| prefix.contains("172.32.0.1".parse().unwrap())));
    }

    #[test]
    fn rules_decide() {
        let rules = |texts: &[&str]| Rules(texts.iter().map(|t| t.parse().unwrap()).collect());
        let to = |text: &str| text.parse::<SocketAddr>().unwrap();
        for local in [
            "127.0.0.1:80",
            "0.0.0.0:80",
            "[::1]:80",
            "[::]:80",
            "[::ffff:127.0.0.1]:80",
            "169.254.169.254:80",
            "[fe80::1]:80",
        ] {
            assert!(!rules(&[]).allow(to(local)), "{local}");
        }
        assert!(rules(&[]).allow(to("10.0.0.1:80")));
        assert!(rules(&["127.0.0.0/8"]).allow(to("127.0.0.1:80")));
        let some = rules(&["10.1.0.0/16:443", "[2001:db8::/32]:80", "10.2.0.1"]);
        for (address, allowed) in [
            ("10.1.2.3:443", true),
            ("10.1.2.3:80", false),
            ("10.2.0.1:9", true),
            ("10.2.0.2:9", false),
            ("[2001:db8::1]:80", true),
            ("[2001:db8::1]:81", false),
            ("[::ffff:10.2.0.1]:9", true),
        ] {
            assert_eq!(some.allow(to(address)), allowed, "{address}");
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0.1:x", "[::1", "[::1]80", "example.org", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }
}
