// SPDX-License-Identifier: Apache-2.0
//! The client at the other end of a connection, and its rights.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Rights of a client. A client with any right may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    reads: bool,
    any_role: bool,
    /// The default role is "".
    roles: BTreeSet<String>,
    sets: bool,
}

impl Rights {
    /// Rights of every client, unless certificates restrict them.
    pub fn all() -> Rights {
        Rights { reads: true, any_role: true, roles: BTreeSet::new(), sets: true }
    }

    fn join(&mut self, other: &Rights) {
        self.reads |= other.reads;
        self.any_role |= other.any_role;
        self.roles.extend(other.roles.iter().cloned());
        self.sets |= other.sets;
    }
}

/// Rights of the certificates with a name: `NAME=RIGHT[,RIGHT...]`, or `NAME=` for nothing; the name `*` is that of
/// every certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    name: String,
    rights: Rights,
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Allowed, String> {
        let known = "read, default-role, role:NAME, any-role and gnmi-set";
        let Some((name, list)) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(format!("`{text}` is not NAME=RIGHT[,RIGHT...]; rights are {known}"));
        };
        let mut rights = Rights { reads: !list.is_empty(), ..Rights::default() };
        for right in list.split(',').filter(|_| !list.is_empty()) {
            match right.split_once(':') {
                None if right == "read" => {}
                None if right == "any-role" => rights.any_role = true,
                None if right == "gnmi-set" => rights.sets = true,
                None if right == "default-role" => drop(rights.roles.insert(String::new())),
                Some(("role", role)) if !role.is_empty() => drop(rights.roles.insert(role.to_string())),
                _ => return Err(format!("`{right}` is no right: there are {known}")),
            }
        }
        Ok(Allowed { name: name.to_string(), rights })
    }
}

/// Returns the rights of a certificate with these names; all rights, where nothing is said of any.
pub fn rights(allowed: &[Allowed], names: &[String]) -> Rights {
    if allowed.is_empty() {
        return Rights::all();
    }
    let mut rights = Rights::default();
    let own = allowed.iter().filter(|allowed| allowed.name == "*" || names.contains(&allowed.name));
    own.for_each(|allowed| rights.join(&allowed.rights));
    rights
}

/// The client of a connection, which each of its requests carries.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// Names that its certificate shows.
    pub names: Arc<[String]>,
    pub rights: Arc<Rights>,
    /// Bytes of its requests that are under way.
    pub under_way: Arc<AtomicUsize>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.names.first() {
            Some(name) => write!(f, "{name} ({})", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// `peer`: `None` is a client in this process, which may do everything, here and below. The error says what it may not.
fn check(peer: Option<&Peer>, may: impl FnOnce(&Rights) -> bool, what: &str) -> Result<(), String> {
    match peer {
        Some(peer) if !may(&peer.rights) => {
            Err(format!("{peer} may not {what}: --allow says what its certificate allows"))
        }
        _ => Ok(()),
    }
}

pub fn check_reads(peer: Option<&Peer>) -> Result<(), String> {
    check(peer, |rights| rights.reads, "read")
}

pub fn check_role(peer: Option<&Peer>, role: &str) -> Result<(), String> {
    let what = if role.is_empty() { "have the default role".into() } else { format!("have the role {role:?}") };
    check(peer, |rights| rights.any_role || rights.roles.contains(role), &what)
}

pub fn check_sets(peer: Option<&Peer>) -> Result<(), String> {
    check(peer, |rights| rights.sets, "set anything over gNMI")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(rules: &[&str]) -> Vec<Allowed> {
        rules.iter().map(|rule| rule.parse().unwrap()).collect()
    }

    #[test]
    fn a_name_has_what_is_allowed_to_it_and_to_all() {
        let rules = allowed(&["ap=default-role,role:qos", "ops=gnmi-set", "a=b=any-role", "nobody=", "*=read"]);
        let of = |names: &[&str]| rights(&rules, &names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        let both = of(&["ap", "ops"]);
        assert!(both.reads && both.sets && !both.any_role && both.roles.len() == 2);
        assert!(of(&["a=b"]).any_role);
        assert_eq!(of(&["stranger"]), Rights { reads: true, ..Rights::default() });
        assert_eq!(rights(&rules[..4], &["nobody".into()]), Rights::default());
        assert_eq!(rights(&rules[..4], &[]), Rights::default());
        assert_eq!(rights(&[], &[]), Rights::all());
    }

    #[test]
    fn a_rule_that_says_nothing_known_is_refused() {
        for rule in ["ap", "=read", "ap=write", "ap=role:", "ap=read,", "ap=gnmi-set:x"] {
            assert!(rule.parse::<Allowed>().is_err(), "{rule}");
        }
    }
}
