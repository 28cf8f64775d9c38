// SPDX-License-Identifier: Apache-2.0
//! Addresses of a peer, as the command line names it.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use hosts_base::Error;

/// Peer by name or address, with all addresses that a name has now.
#[derive(Clone, Debug)]
pub struct Peer {
    text: String,
    addresses: Vec<SocketAddr>,
}

impl Peer {
    /// Return the addresses of all `peers`, in their order.
    pub fn addresses(peers: &[Self]) -> Vec<SocketAddr> {
        peers.iter().flat_map(|peer| peer.addresses.clone()).collect()
    }

    /// List peers as they were written.
    pub fn list(peers: &[Self]) -> String {
        peers.iter().map(|peer| peer.text.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for Peer {
    type Err = Error;

    /// Resolve `HOST:PORT`. Errors: no port, an unknown name, an address that no peer has.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: &dyn fmt::Display| Error::new(format!("{what}; write HOST:PORT, IPv6 as [ADDRESS]:PORT"));
        let addresses: Vec<_> = text.to_socket_addrs().map_err(|error| wrong(&error))?.collect();
        match addresses.iter().find(|address| address.ip().is_unspecified() || address.port() == 0) {
            Some(address) => Err(wrong(&format_args!("{address} is an address to listen on, not that of a peer"))),
            None => Ok(Self { text: text.to_owned(), addresses }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_names_or_addresses() {
        let peers: Vec<Peer> = ["127.0.0.1:7000", "[::1]:7001"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(Peer::addresses(&peers), ["127.0.0.1:7000".parse().unwrap(), "[::1]:7001".parse().unwrap()]);
        assert_eq!(Peer::list(&peers), "127.0.0.1:7000, [::1]:7001");
        assert!("localhost:7000".parse::<Peer>().unwrap().addresses.iter().all(|address| address.ip().is_loopback()));
        for (wrong, what) in [
            ("0.0.0.0:7000", "an address to listen on"),
            ("[::]:7000", "an address to listen on"),
            ("127.0.0.1:0", "an address to listen on"),
            ("127.0.0.1", "HOST:PORT"),
            ("localhost:", "HOST:PORT"),
            ("::1", "HOST:PORT"),
        ] {
            let error = wrong.parse::<Peer>().unwrap_err().to_string();
            assert!(error.contains(what), "{wrong}: {error}");
        }
    }
}
