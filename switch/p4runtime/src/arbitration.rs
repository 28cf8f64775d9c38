// SPDX-License-Identifier: Apache-2.0
//! Client arbitration: decides which clients may write (P4Runtime 1.4, "Client Arbitration and Controller
//! Replication").
//!
//! Pure bookkeeping of one device. Each role has its own election; the client with the highest election id ever seen
//! for a role is its primary, all others are backups. The caller delivers the notices.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::error::{Code, Status};
use super::proto::google::rpc;
use super::proto::p4::v1::{MasterArbitrationUpdate, Role, Uint128};
use super::role::{Access, RoleConfig};

/// Names one stream for the life of the process.
pub type ClientId = u64;

/// Role names are chosen by clients and outlive them (the highest election id must), so their number is bounded.
const MAX_ROLES: usize = 64;
const MAX_CLIENTS_PER_ROLE: usize = 64;
const MAX_ROLE_NAME_LEN: usize = 256;

#[derive(Default)]
struct Election {
    highest: Option<u128>,
    primary: Option<ClientId>,
    clients: BTreeMap<ClientId, Option<u128>>,
    /// Access of the latest primary.
    access: Access,
}

/// Notices to clients after a change.
#[derive(Debug, Default)]
pub struct Notices {
    /// To send at once.
    pub now: Vec<(ClientId, MasterArbitrationUpdate)>,
    /// The new primary; it gets its notice once the writes of its predecessor have ended.
    pub after_writes: Option<ClientId>,
}

pub struct Arbiter {
    device_id: u64,
    elections: HashMap<String, Election>,
    role_of: HashMap<ClientId, String>,
}

impl Arbiter {
    pub fn new(device_id: u64) -> Self {
        Arbiter { device_id, elections: HashMap::new(), role_of: HashMap::new() }
    }

    /// Handles an arbitration message of `client`. An error ends the client's stream.
    pub fn update(&mut self, client: ClientId, update: &MasterArbitrationUpdate) -> Result<Notices, Status> {
        let live_role = self.role_of.get(&client);
        if update.device_id != self.device_id {
            let code = if live_role.is_none() { Code::NotFound } else { Code::FailedPrecondition };
            return Err(Status::new(
                code,
                format!("device {} is not here: this is device {}", update.device_id, self.device_id),
            ));
        }
        let (name, config) = role(update.role.as_ref())?;
        if live_role.is_some_and(|role| role != name) {
            return Err(Status::new(
                Code::FailedPrecondition,
                "the role of a stream is fixed: open a new stream for another role",
            ));
        }
        let id = update.election_id.as_ref().map(election_id);
        let others = self.elections.iter().filter(|(other, election)| *other != name && !election.clients.is_empty());
        for (other, election) in others {
            if let (Some(config), Some(theirs)) = (&config, &election.access.0)
                && let Some(id) = config.conflict(theirs)
            {
                return Err(Status::new(
                    Code::InvalidArgument,
                    format!("role.config: id {id:#x} is also role {other}'s"),
                ));
            }
        }
        if !self.elections.contains_key(name) && self.elections.len() == MAX_ROLES {
            return Err(Status::new(Code::ResourceExhausted, format!("more than {MAX_ROLES} role names")));
        }
        let election = self.elections.entry(name.to_owned()).or_default();
        if id.is_some() && election.clients.iter().any(|(&other, &used)| other != client && used == id) {
            return Err(Status::new(
                Code::InvalidArgument,
                "the election id is already used by another client of this role",
            ));
        }
        if live_role.is_none() && election.clients.len() == MAX_CLIENTS_PER_ROLE {
            return Err(Status::new(
                Code::ResourceExhausted,
                format!("more than {MAX_CLIENTS_PER_ROLE} streams for this role"),
            ));
        }
        election.clients.insert(client, id);
        self.role_of.insert(client, name.to_owned());

        let was_primary = election.primary == Some(client);
        if id.is_some() && id >= election.highest {
            election.highest = id;
            election.primary = Some(client);
            election.access = Access(config.map(Arc::new));
            let mut notices = notices_to_all(self.device_id, name, election);
            notices.now.retain(|(to, _)| *to != client);
            notices.after_writes = Some(client);
            return Ok(notices);
        }
        if was_primary {
            election.primary = None;
            return Ok(notices_to_all(self.device_id, name, election));
        }
        Ok(Notices { now: vec![(client, notice(self.device_id, name, election, client))], after_writes: None })
    }

    /// Forgets a client whose stream has ended.
    pub fn disconnect(&mut self, client: ClientId) -> Notices {
        let Some(name) = self.role_of.remove(&client) else {
            return Notices::default();
        };
        let Some(election) = self.elections.get_mut(&name) else {
            return Notices::default();
        };
        election.clients.remove(&client);
        if election.primary != Some(client) {
            return Notices::default();
        }
        election.primary = None;
        notices_to_all(self.device_id, &name, election)
    }

    /// The notice of a client, as things stand now.
    pub fn notice(&self, client: ClientId) -> Option<MasterArbitrationUpdate> {
        let name = self.role_of.get(&client)?;
        Some(notice(self.device_id, name, self.elections.get(name)?, client))
    }

    /// Describes a client's part in the election of its role, for the log; `None`: it has not arbitrated.
    pub fn describe(&self, client: ClientId) -> Option<String> {
        let name = self.role_of.get(&client)?;
        let election = self.elections.get(name)?;
        let part = if election.primary == Some(client) { "primary" } else { "backup" };
        let role = if name.is_empty() { "the default role".to_owned() } else { format!("role {name:?}") };
        Some(match election.clients.get(&client)? {
            Some(id) => format!("{part} of {role} with election id {id}"),
            None => format!("{part} of {role} without an election id"),
        })
    }

    /// Returns true if some client has ever used this role; the default role always exists.
    pub fn knows_role(&self, role: &str) -> bool {
        role.is_empty() || self.elections.contains_key(role)
    }

    /// Returns true if a request with this role and election id comes from the role's primary.
    pub fn is_primary_request(&self, role: &str, id: Option<&Uint128>) -> bool {
        self.elections
            .get(role)
            .is_some_and(|election| election.primary.is_some() && id.map(election_id) == election.highest)
    }

    /// Returns true if this stream belongs to the primary of its role.
    pub fn is_primary(&self, client: ClientId) -> bool {
        let election = self.role_of.get(&client).and_then(|role| self.elections.get(role));
        election.is_some_and(|election| election.primary == Some(client))
    }

    /// The primaries of all roles, and what they may do.
    pub fn primaries(&self) -> impl Iterator<Item = (ClientId, &Access)> {
        self.elections.values().filter_map(|election| Some((election.primary?, &election.access)))
    }

    /// Returns the rights of the role.
    pub fn access(&self, role: &str) -> Access {
        self.elections.get(role).map(|election| election.access.clone()).unwrap_or_default()
    }
}

/// Name and configuration of the role that a message means.
fn role(role: Option<&Role>) -> Result<(&str, Option<RoleConfig>), Status> {
    let Some(role) = role else { return Ok(("", None)) };
    #[allow(deprecated)]
    if role.id != 0 && role.name.is_empty() {
        return Err(Status::new(Code::InvalidArgument, "role.id is deprecated: name the role in role.name"));
    }
    if role.name.len() > MAX_ROLE_NAME_LEN {
        return Err(Status::new(Code::InvalidArgument, format!("role.name is longer than {MAX_ROLE_NAME_LEN} bytes")));
    }
    match &role.config {
        Some(_) if role.name.is_empty() => {
            Err(Status::new(Code::InvalidArgument, "role.config: the default role has full access"))
        }
        config => Ok((&role.name, config.as_ref().map(RoleConfig::new).transpose()?)),
    }
}

fn election_id(id: &Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

fn notices_to_all(device_id: u64, name: &str, election: &Election) -> Notices {
    let now = election.clients.keys().map(|&client| (client, notice(device_id, name, election, client))).collect();
    Notices { now, after_writes: None }
}

fn notice(device_id: u64, name: &str, election: &Election, to: ClientId) -> MasterArbitrationUpdate {
    let (code, message) = match election.primary {
        Some(primary) if primary == to => (Code::Ok, "you are the primary"),
        Some(_) => (Code::AlreadyExists, "you are a backup: another client is the primary"),
        None => (Code::NotFound, "you are a backup: there is no primary"),
    };
    MasterArbitrationUpdate {
        device_id,
        // The default role is the absence of a role message.
        role: (!name.is_empty()).then(|| Role {
            name: name.to_owned(),
            config: election.access.0.as_ref().map(|config| config.message.clone()),
            ..Default::default()
        }),
        election_id: election.highest.map(|id| Uint128 { high: (id >> 64) as u64, low: id as u64 }),
        status: Some(rpc::Status { code: code as i32, message: message.to_owned(), details: Vec::new() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: u64 = 1;

    fn hello(election: Option<u128>, role: &str) -> MasterArbitrationUpdate {
        MasterArbitrationUpdate {
            device_id: DEVICE,
            role: (!role.is_empty()).then(|| Role { name: role.into(), ..Default::default() }),
            election_id: election.map(|id| Uint128 { high: (id >> 64) as u64, low: id as u64 }),
            status: None,
        }
    }

    fn join(
        arbiter: &mut Arbiter,
        client: ClientId,
        id: Option<u128>,
        role: &str,
    ) -> Vec<(ClientId, Code, Option<u128>)> {
        let notices = arbiter.update(client, &hello(id, role)).unwrap();
        let delayed = notices.after_writes.map(|to| (to, arbiter.notice(to).unwrap()));
        told(notices.now.into_iter().chain(delayed))
    }

    /// (client, status code, election id) of every notice, the delayed one last.
    fn code(number: i32) -> Code {
        let codes = [Code::Ok, Code::NotFound, Code::AlreadyExists];
        codes.into_iter().find(|code| *code as i32 == number).expect("a code of a notice")
    }

    fn told(all: impl IntoIterator<Item = (ClientId, MasterArbitrationUpdate)>) -> Vec<(ClientId, Code, Option<u128>)> {
        all.into_iter()
            .map(|(to, n)| (to, code(n.status.unwrap().code), n.election_id.as_ref().map(election_id)))
            .collect()
    }

    #[test]
    fn three_clients_follow_the_highest_id() {
        let mut arbiter = Arbiter::new(DEVICE);
        let mut join = |client, id| join(&mut arbiter, client, id, "");
        assert_eq!(join(1, Some(10)), [(1, Code::Ok, Some(10))]);
        assert_eq!(join(2, Some(5)), [(2, Code::AlreadyExists, Some(10))]);
        assert_eq!(join(3, None), [(3, Code::AlreadyExists, Some(10))]);
        let high = 1 << 100;
        assert_eq!(
            join(2, Some(high)),
            [(1, Code::AlreadyExists, Some(high)), (3, Code::AlreadyExists, Some(high)), (2, Code::Ok, Some(high))]
        );
        assert!(arbiter.is_primary_request("", hello(Some(high), "").election_id.as_ref()));
        assert!(!arbiter.is_primary_request("", hello(Some(10), "").election_id.as_ref()));
        assert!(!arbiter.is_primary_request("", None));
        assert!(arbiter.is_primary(2) && !arbiter.is_primary(1));
        assert_eq!(arbiter.describe(1).unwrap(), "backup of the default role with election id 10");
        assert_eq!(arbiter.describe(3).unwrap(), "backup of the default role without an election id");
        assert_eq!(arbiter.describe(4), None);
    }

    #[test]
    fn nobody_inherits_from_a_lost_primary() {
        let mut arbiter = Arbiter::new(DEVICE);
        arbiter.update(1, &hello(Some(10), "")).unwrap();
        arbiter.update(2, &hello(Some(5), "")).unwrap();
        assert_eq!(told(arbiter.disconnect(1).now), [(2, Code::NotFound, Some(10))]);
        assert!(!arbiter.is_primary_request("", hello(Some(10), "").election_id.as_ref()));
        assert_eq!(join(&mut arbiter, 2, Some(9), ""), [(2, Code::NotFound, Some(10))]);
        assert_eq!(join(&mut arbiter, 2, Some(10), ""), [(2, Code::Ok, Some(10))]);
    }

    #[test]
    fn a_primary_may_step_down() {
        let mut arbiter = Arbiter::new(DEVICE);
        arbiter.update(1, &hello(Some(10), "")).unwrap();
        arbiter.update(2, &hello(Some(5), "")).unwrap();
        assert_eq!(join(&mut arbiter, 1, Some(4), ""), [(1, Code::NotFound, Some(10)), (2, Code::NotFound, Some(10))]);
        assert_eq!(arbiter.primaries().count(), 0);
    }

    #[test]
    fn a_client_without_election_id_never_becomes_primary() {
        let mut arbiter = Arbiter::new(DEVICE);
        assert_eq!(join(&mut arbiter, 1, None, ""), [(1, Code::NotFound, None)]);
        assert!(!arbiter.is_primary_request("", None));
        // Zero is an id, unset is none.
        assert_eq!(join(&mut arbiter, 2, Some(0), ""), [(1, Code::AlreadyExists, Some(0)), (2, Code::Ok, Some(0))]);
        arbiter.update(3, &hello(None, "")).unwrap();
    }

    #[test]
    fn roles_elect_apart() {
        let mut arbiter = Arbiter::new(DEVICE);
        arbiter.update(1, &hello(Some(10), "")).unwrap();
        assert_eq!(join(&mut arbiter, 2, Some(10), "monitor"), [(2, Code::Ok, Some(10))]);
        assert_eq!(arbiter.primaries().count(), 2);
        assert!(!arbiter.is_primary_request("other", hello(Some(10), "").election_id.as_ref()));
    }

    #[test]
    fn refusals() {
        let mut arbiter = Arbiter::new(DEVICE);
        let elsewhere = MasterArbitrationUpdate { device_id: 7, ..hello(Some(1), "") };
        assert_eq!(arbiter.update(1, &elsewhere).unwrap_err().code, Code::NotFound);
        arbiter.update(1, &hello(Some(10), "")).unwrap();
        assert_eq!(arbiter.update(1, &elsewhere).unwrap_err().code, Code::FailedPrecondition);
        assert_eq!(arbiter.update(1, &hello(Some(10), "monitor")).unwrap_err().code, Code::FailedPrecondition);
        assert_eq!(arbiter.update(2, &hello(Some(10), "")).unwrap_err().code, Code::InvalidArgument);
        let mut configured = hello(Some(11), "monitor");
        configured.role.as_mut().unwrap().config = Some(Default::default());
        assert_eq!(arbiter.update(2, &configured).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn roles_and_streams_are_bounded() {
        let mut arbiter = Arbiter::new(DEVICE);
        for i in 0..MAX_ROLES as u64 {
            arbiter.update(i, &hello(Some(1), &format!("role{i}"))).unwrap();
            arbiter.disconnect(i);
        }
        assert_eq!(arbiter.update(100, &hello(Some(1), "one more")).unwrap_err().code, Code::ResourceExhausted);
        for i in 0..MAX_CLIENTS_PER_ROLE as u64 {
            arbiter.update(200 + i, &hello(None, "role0")).unwrap();
        }
        assert_eq!(arbiter.update(300, &hello(None, "role0")).unwrap_err().code, Code::ResourceExhausted);
    }
}
