// SPDX-License-Identifier: Apache-2.0
//! Set: all of a request or nothing. Operations change a copy of the configuration, which takes effect when it means
//! something for every port.
//!
//! Which ports there are is part of the request, not of the configuration: an `id` adds the port of an interface, and
//! only a delete of the interface itself takes it away. What is deleted or replaced above it is set anew, as on a
//! device whose interfaces are built in.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use tonic::Status;

use super::config::{self, Leaves};
use super::path::{Path, Pattern, Step};
use super::proto::gnmi;
use super::proto::gnmi::typed_value::Value as Typed;
use super::proto::gnmi::update_result::Operation;
use super::schema::{Kind, Node};
use super::value::{self, Value};

/// Operations of a request, and bytes of a text or a key in it.
const MAX_OPERATIONS: usize = 1024;
const MAX_TEXT_LEN: usize = 256;
/// Leaves that a configuration may hold.
const MAX_CONFIG_LEAVES: usize = 1 << 14;

/// The configuration and the ports as a request changes them.
pub struct Edit {
    pub leaves: Leaves,
    /// The number of each port by the interface, as they shall be.
    pub ports: BTreeMap<String, u64>,
    /// Ports that there are.
    before: BTreeMap<String, u64>,
    /// Interfaces that the request names.
    named: BTreeSet<String>,
    /// Values of leaves that nobody can change, as the request has them.
    pub fixed: BTreeMap<Path, Value>,
    pub results: Vec<gnmi::UpdateResult>,
}

/// Checks the number of operations, before the request waits for its turn.
pub fn check_operations(request: &gnmi::SetRequest) -> Result<(), Status> {
    match request.delete.len() + request.replace.len() + request.update.len() {
        ..=MAX_OPERATIONS => Ok(()),
        number => Err(exhausted(format!("{number} operations: {MAX_OPERATIONS} are the most"))),
    }
}

impl Edit {
    /// `ports`: numbers by interface. What was set for a port that is gone is forgotten.
    pub fn new(mut leaves: Leaves, ports: BTreeMap<String, u64>) -> Edit {
        leaves.retain(|path, _| config::interface_of(path).is_none_or(|name| ports.contains_key(name)));
        let (named, fixed, results) = Default::default();
        Edit { leaves, before: ports.clone(), ports, named, fixed, results }
    }

    /// The operations in the order of the specification (3.4.3).
    pub fn run(&mut self, request: &gnmi::SetRequest) -> Result<(), Status> {
        if !request.union_replace.is_empty() {
            return Err(Status::unimplemented("union_replace: use delete, replace and update"));
        }
        let prefix = request.prefix.as_ref();
        for path in &request.delete {
            let pattern = parse(prefix, path)?;
            if pattern.is_state() {
                return Err(Status::invalid_argument(format!("{pattern}: state is not for setting")));
            }
            self.remove_ports(&pattern)?;
            self.leaves.retain(|leaf, _| pattern.depth(&leaf.0).is_none());
            self.result(path, Operation::Delete);
        }
        for (updates, operation) in [(&request.replace, Operation::Replace), (&request.update, Operation::Update)] {
            for update in updates {
                let Some(path) = &update.path else {
                    return Err(Status::invalid_argument("an update without a path"));
                };
                self.update(prefix, path, update.val.as_ref(), operation == Operation::Replace)?;
                self.result(path, operation);
            }
        }
        if let Some(name) = self.named.iter().find(|name| !self.ports.contains_key(*name)) {
            return Err(Status::not_found(config::no_interface(name)));
        }
        config::with_keys(&mut self.leaves);
        match self.leaves.len() {
            ..=MAX_CONFIG_LEAVES => Ok(()),
            leaves => Err(exhausted(format!("a configuration of {leaves} leaves: {MAX_CONFIG_LEAVES} are the most"))),
        }
    }

    /// The ports whose entries a delete is about go, with what was set for them.
    fn remove_ports(&mut self, pattern: &Pattern) -> Result<(), Status> {
        if let Ok(path) = pattern.exact()
            && id_of(&path).is_some()
        {
            return Err(Status::invalid_argument(format!("{path}: a port keeps its id: delete the interface itself")));
        }
        let entry = |name: &String| {
            let step = |name, key| Step { name, key };
            [step("interfaces", None), step("interface", Some(("name", name.clone())))]
        };
        let before = self.ports.len();
        self.ports.retain(|name, _| pattern.depth(&entry(name)) != Some(2));
        if self.ports.len() < before {
            let ports = &self.ports;
            self.leaves.retain(|path, _| config::interface_of(path).is_none_or(|name| ports.contains_key(name)));
        }
        Ok(())
    }

    /// An interface that is a port already, or becomes one.
    fn add_port(&mut self, path: &Path, name: &str, number: u64) -> Result<(), Status> {
        match self.before.get(name) {
            Some(has) if *has != number => Err(Status::invalid_argument(format!(
                "{path}: {name} is port {has} until this request has ended: delete the interface, then add it"
            ))),
            _ => {
                self.ports.insert(name.to_string(), number);
                Ok(())
            }
        }
    }

    fn result(&mut self, path: &gnmi::Path, operation: Operation) {
        self.results.push(gnmi::UpdateResult { path: Some(path.clone()), op: operation.into(), ..Default::default() });
    }

    fn update(
        &mut self,
        prefix: Option<&gnmi::Path>,
        path: &gnmi::Path,
        value: Option<&gnmi::TypedValue>,
        replace: bool,
    ) -> Result<(), Status> {
        let path = parse(prefix, path)?.exact()?;
        let node = path.node().ok_or_else(|| Status::not_found(format!("{path}: there is no such node")))?;
        let Some(Typed::JsonVal(json) | Typed::JsonIetfVal(json)) = value.and_then(|value| value.value.as_ref()) else {
            let Some(typed) = value.and_then(|value| value.value.as_ref()) else {
                return Err(Status::invalid_argument(format!("{path}: there is no value")));
            };
            return match node.leaf_type() {
                Some(kind) => self.leaf(path.clone(), node, value::from_typed(kind, typed, &path.to_string())?),
                None => Err(Status::invalid_argument(format!("{path}: this is no leaf: give JSON"))),
            };
        };
        let json: Json = serde_json::from_slice(json)
            .map_err(|error| Status::invalid_argument(format!("{path}: the JSON of the value: {error}")))?;
        if replace {
            self.leaves.retain(|leaf, _| !leaf.starts_with(&path));
        }
        self.json(path, node, &json)
    }

    fn json(&mut self, path: Path, node: &'static Node, json: &Json) -> Result<(), Status> {
        if let Some(kind) = node.leaf_type() {
            let value = value::from_json(kind, json, &path.to_string())?;
            return self.leaf(path, node, value);
        }
        let Json::Object(members) = json else {
            return Err(Status::invalid_argument(format!("{path}: this is no leaf: give a JSON object")));
        };
        if let Kind::List { key, .. } = node.kind
            && path.0.last().is_some_and(|step| step.key.is_some())
            && members.is_empty()
        {
            return Err(Status::invalid_argument(format!("{path}: an entry without its {key}: delete it instead")));
        }
        for (name, member) in members {
            let child =
                node.child(name).ok_or_else(|| Status::not_found(format!("{path}/{name}: there is no such node")))?;
            let Some(key) = child.key() else {
                self.json(path.join(child.name, None), child, member)?;
                continue;
            };
            let Json::Array(entries) = member else {
                return Err(Status::invalid_argument(format!("{path}/{name}: a list: give a JSON array")));
            };
            for entry in entries {
                let value = match &entry[key] {
                    Json::String(text) => text.clone(),
                    Json::Number(number) => number.to_string(),
                    _ => {
                        return Err(Status::invalid_argument(format!("{path}/{name}: an entry without its key {key}")));
                    }
                };
                self.json(path.join(child.name, Some((key, value))), child, entry)?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, path: Path, node: &'static Node, value: Value) -> Result<(), Status> {
        let keys = path.0.iter().filter_map(|step| Some(step.key.as_ref()?.1.len()));
        let text = if let Value::Text(text) = &value { text.len() } else { 0 };
        if let Some(bytes) = keys.chain([text]).find(|bytes| *bytes > MAX_TEXT_LEN) {
            let of = path.name();
            return Err(exhausted(format!("{of}: a text or key of {bytes} bytes: {MAX_TEXT_LEN} are the most")));
        }
        if self.leaves.len() > MAX_CONFIG_LEAVES {
            return Err(exhausted(format!("{path}: more than {MAX_CONFIG_LEAVES} leaves are set")));
        }
        let above = path.0.len().checked_sub(2).map(|index| &path.0[index]);
        let is_config = above.is_some_and(|step| step.name == "config");
        // The key of an entry, once beside its config and once in it.
        let entry = if is_config { path.0.len().checked_sub(3).map(|index| &path.0[index]) } else { above };
        let entry_key = entry.and_then(|step| step.key.as_ref()).filter(|(key, _)| *key == path.name());
        if let Some((_, key)) = entry_key
            && value.text() != *key
        {
            return Err(Status::invalid_argument(format!("{path}: {} is not the key {key}", value.text())));
        }
        if !is_config {
            return match entry_key {
                Some(_) => Ok(()),
                None => Err(Status::invalid_argument(format!("{path}: state is not for setting"))),
            };
        }
        if let Some(name) = config::interface_of(&path)
            && !self.named.contains(name)
        {
            self.named.insert(name.to_string());
        }
        if let (Some(name), Value::Number(number)) = (id_of(&path), &value) {
            return self.add_port(&path, name, *number);
        }
        match node.kind {
            Kind::Fixed(_) if self.fixed.len() > MAX_CONFIG_LEAVES => {
                Err(exhausted(format!("{path}: more than {MAX_CONFIG_LEAVES} leaves that are always the same")))
            }
            Kind::Fixed(_) => {
                self.fixed.insert(path, value);
                Ok(())
            }
            _ => {
                self.leaves.insert(path, value);
                Ok(())
            }
        }
    }
}

/// The interface whose port number this path is.
fn id_of(path: &Path) -> Option<&str> {
    let is_id = path.has(0, "interfaces") && path.has(2, "config") && path.has(3, "id");
    path.key("interface").filter(|_| is_id)
}

/// Leaves that nobody can change are as they are said to be. `tree`: all that there will be.
pub fn check_fixed(fixed: BTreeMap<Path, Value>, tree: &BTreeMap<Path, Value>) -> Result<(), Status> {
    for (path, value) in fixed {
        match tree.get(&path) {
            Some(has) if *has == value => {}
            Some(has) => return Err(Status::invalid_argument(format!("{path}: always {} here", has.text()))),
            None => return Err(Status::not_found(format!("{path}: does not exist"))),
        }
    }
    Ok(())
}

fn exhausted(reason: String) -> Status {
    Status::resource_exhausted(reason)
}

/// A path that is not in the schema is one that is not there.
fn parse(prefix: Option<&gnmi::Path>, path: &gnmi::Path) -> Result<Pattern, Status> {
    Pattern::parse(prefix, path).map_err(|status| match status.code() {
        tonic::Code::Unimplemented => Status::not_found(status.message()),
        _ => status,
    })
}
