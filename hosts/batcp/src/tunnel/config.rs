// SPDX-License-Identifier: Apache-2.0
//! Configuration file of an end, in TOML, and `init`, which makes a matching pair.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::core::MAX_PACKET;
use super::noise::{Identity, MAX_LINKS, key_pair};
use crate::proxy::destination::Prefix;
use hosts_base::{About, Error};

/// Configuration of one end. Times are seconds, sizes bytes.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The tunnel's network device.
    pub device: String,
    /// This end's addresses in the tunnel, as ADDRESS/BITS.
    pub addresses: Vec<String>,
    /// Addresses to listen on, each with its own socket, so that answers leave from the address that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<SocketAddr>,
    /// Addresses of the peer: link i tries address i first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<SocketAddr>,
    /// Destinations routed through the tunnel, forwarded packets too.
    #[serde(default)]
    pub routes: Vec<Prefix>,
    /// Exceptions from `routes`; private networks and those of this host's interfaces are excepted in any case, unless
    /// routes name them.
    #[serde(default)]
    pub except: Vec<Prefix>,
    /// Maximum octets of a packet.
    #[serde(default = "mtu")]
    pub mtu: u32,
    /// Send every packet over two links.
    #[serde(default)]
    pub double: bool,
    /// Number of the routing table, and of the rule before it.
    #[serde(default = "table")]
    pub table: u32,
    /// This end's private key, the peer's public key, and their shared secret: 64 hexadecimal digits each.
    private_key: String,
    peer_key: String,
    secret: String,
    /// The links; none: every interface that has a route to the peer.
    #[serde(default, rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkConfig>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    pub interface: String,
    /// Price of a byte; the cheapest link that lives carries all.
    #[serde(default = "cost")]
    pub cost: f32,
    /// Bytes in both directions until the tunnel is restarted; afterwards the link carries none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
}

/// Return the default MTU: every link of IPv6 carries 1280 octets and the tunnel's overhead, where 1400 pass.
fn mtu() -> u32 {
    1280
}

fn table() -> u32 {
    7254
}

fn cost() -> f32 {
    1.0
}

impl Config {
    /// Read the file. Errors: unreadable, open to others than its owner, no TOML, an invalid value; each names the
    /// remedy.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let octets = hosts_base::key::secret(path)?;
        let text = String::from_utf8(octets).about(path.display())?;
        let config: Self = toml::from_str(&text)
            .map_err(|error: toml::de::Error| Error::new(format!("{}: {}", path.display(), error.message())))?;
        let wrong = |what: &str| Err(Error::new(format!("{}: {what}", path.display())));
        config.identity().about(path.display())?;
        if config.listen.is_empty() == config.peers.is_empty() {
            return wrong("one end has `listen`, the other `peers`");
        }
        let name = &config.device;
        if name.is_empty() || name.len() > 15 || !name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c))
        {
            return wrong("`device` has 1 to 15 letters, digits, - or _");
        }
        if config.addresses.is_empty() || config.addresses.iter().any(|text| text.parse::<Prefix>().is_err()) {
            return wrong("`addresses` holds this end's in the tunnel, as \"10.77.0.1/30\"");
        }
        if !(1280..=MAX_PACKET as u32).contains(&config.mtu) {
            return wrong("`mtu` lies between 1280 and 9000");
        }
        if !(256..32_000).contains(&config.table) {
            return wrong("`table` lies between 256 and 31999");
        }
        if config.links.len() > MAX_LINKS {
            return wrong("a tunnel has 8 links at most");
        }
        if config.links.iter().any(|link| !(0.0..=1e6).contains(&link.cost)) {
            return wrong("`cost` lies between 0 and 1000000");
        }
        Ok(config)
    }

    /// Decode the keys. Errors: an invalid key.
    pub fn identity(&self) -> Result<Identity, Error> {
        let key = |name, text| {
            from_hex(text).ok_or_else(|| Error::new(format!("`{name}` has 64 hexadecimal digits: make it by `init`")))
        };
        Ok(Identity {
            private: key("private_key", &self.private_key)?,
            peer: key("peer_key", &self.peer_key)?,
            shared: key("secret", &self.secret)?,
        })
    }
}

#[derive(Args)]
pub struct InitOptions {
    /// Address of the server for the client; repeat for each of its addresses
    #[arg(long, value_name = "ADDRESS:PORT", required = true)]
    listen: Vec<SocketAddr>,
    /// Interface of the client, the cheapest first; repeat for each. Without it: all that have a route to the server
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// File for the server
    #[arg(long, value_name = "FILE", default_value = "server.toml")]
    server: PathBuf,
    /// File for the client; copy it there by a private way, such as scp
    #[arg(long, value_name = "FILE", default_value = "client.toml")]
    client: PathBuf,
}

/// Run `hosts batcp tunnel init`. Errors: a file is there already, or cannot be written.
pub fn init(options: &InitOptions) -> Result<(), Error> {
    let ((server, server_public), (client, client_public)) = (key_pair(), key_pair());
    let secret = hex(&rand::random());
    let addresses = |end| vec![format!("10.77.0.{end}/30"), format!("fd77::{end}/126")];
    let config = |device: &str, end, private: &[u8; 32], peer: &[u8; 32]| Config {
        device: device.into(),
        addresses: addresses(end),
        listen: Vec::new(),
        peers: Vec::new(),
        routes: Vec::new(),
        except: Vec::new(),
        mtu: mtu(),
        double: false,
        table: table(),
        private_key: hex(private),
        peer_key: hex(peer),
        secret: secret.clone(),
        links: Vec::new(),
    };
    let everything = || ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a prefix")).to_vec();
    let links = |name: &String| LinkConfig { interface: name.clone(), cost: cost(), quota: None };
    let server = Config { listen: options.listen.clone(), ..config("batcps0", 1, &server, &client_public) };
    let client = Config {
        peers: options.listen.clone(),
        routes: everything(),
        links: options.interface.iter().map(links).collect(),
        ..config("batcp0", 2, &client, &server_public)
    };
    for (path, config) in [(&options.server, server), (&options.client, client)] {
        let text = toml::to_string(&config).about(path.display())?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).about(path.display())?;
        file.write_all(text.as_bytes()).about(path.display())?;
    }
    Ok(())
}

fn hex(key: &[u8; 32]) -> String {
    key.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (k, octet) in key.iter_mut().enumerate() {
        *octet = u8::from_str_radix(&text[2 * k..2 * k + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_makes_two_ends_that_know_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let [server, client] = ["s.toml", "c.toml"].map(|name| folder.path().join(name));
        let options = InitOptions {
            listen: vec!["192.0.2.1:7000".parse().unwrap(), "[2001:db8::1]:7000".parse().unwrap()],
            interface: vec!["eth0".into(), "wwan0".into()],
            server: server.clone(),
            client: client.clone(),
        };
        init(&options).unwrap();
        let (here, there) = (Config::read(&client).unwrap(), Config::read(&server).unwrap());
        assert_eq!((&here.peers, here.links.len(), here.mtu), (&there.listen, 2, 1280));
        let (opening, _) = here.identity().unwrap().open(1, 2);
        assert!(there.identity().unwrap().read_opening(&opening).is_some());
        assert!(init(&options).unwrap_err().to_string().contains("exists"), "keys are not overwritten");
    }

    #[test]
    fn wrong_files_are_named_with_the_mend() {
        let folder = tempfile::tempdir().unwrap();
        let [server, client] = ["s.toml", "c.toml"].map(|name| folder.path().join(name));
        let listen = vec!["192.0.2.1:7000".parse().unwrap()];
        init(&InitOptions { listen, interface: vec![], server, client: client.clone() }).unwrap();
        let good = std::fs::read_to_string(&client).unwrap();
        for (from, to, said) in [
            ("mtu = 1280", "mtu = 100", "`mtu` lies between 1280 and 9000"),
            ("device = \"batcp0\"", "device = \"../x\"", "`device` has 1 to 15"),
            ("table = 7254", "table = 254", "`table` lies between"),
            ("10.77.0.2/30", "10.77.0/30", "`addresses` holds"),
            ("private_key = \"", "private_key = \"g", "`private_key` has 64 hexadecimal digits"),
            ("double = false", "tripled = true", "unknown field `tripled`"),
            ("0.0.0.0/0", "0.0.0.0/33", "no prefix"),
        ] {
            assert!(good.contains(from), "{from}: {good}");
            std::fs::write(&client, good.replacen(from, to, 1)).unwrap();
            let error = Config::read(&client).err().unwrap().to_string();
            assert!(error.contains(said) && error.contains("c.toml"), "{error}");
        }
    }
}
