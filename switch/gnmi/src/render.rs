// SPDX-License-Identifier: Apache-2.0
//! Leaves as answers: one by one, or as the JSON of the nodes that were asked for.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value as Json};
use tonic::Status;

use super::path::{Path, Pattern, Step};
use super::proto::gnmi;
use super::proto::gnmi::Encoding;
use super::schema::{Node, ROOT};
use super::value::{self, Value};

/// ns since 1970.
pub fn timestamp() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64)
}

pub fn encoding(number: i32) -> Result<Encoding, Status> {
    match Encoding::try_from(number) {
        Ok(Encoding::Bytes) | Err(_) => {
            Err(Status::unimplemented("encoding: this target has JSON, JSON_IETF, PROTO and ASCII"))
        }
        Ok(encoding) => Ok(encoding),
    }
}

/// A leaf as an update.
pub fn leaf(path: &Path, value: &Value, encoding: Encoding) -> Option<gnmi::Update> {
    let kind = path.node()?.leaf_type()?;
    Some(gnmi::Update { path: Some(path.message()), val: Some(value.typed(kind, encoding)), ..Default::default() })
}

/// The updates that answer a pattern: leaves one by one, or JSON with each node that it names.
pub fn updates(pattern: &Pattern, leaves: &BTreeMap<Path, Value>, encoding: Encoding) -> Vec<gnmi::Update> {
    let mut updates: Vec<gnmi::Update> = Vec::new();
    let wanted = leaves.iter().filter_map(|(path, value)| Some((path, value, pattern.depth(&path.0)?)));
    if !matches!(encoding, Encoding::Json | Encoding::JsonIetf) {
        return wanted.filter_map(|(path, value, _)| leaf(path, value, encoding)).collect();
    }
    let ietf = encoding == Encoding::JsonIetf;
    let mut nodes: BTreeMap<Path, Json> = BTreeMap::new();
    for (path, value, depth) in wanted {
        let (above, below) = path.0.split_at(depth);
        let above = Path(above.to_vec());
        let Some((node, module)) = node_and_module(&above) else { continue };
        if let Some(kind) = node.leaf_type() {
            nodes.insert(above, value.json(kind, ietf));
            continue;
        }
        let object = nodes.entry(above).or_insert_with(|| Json::Object(Map::new()));
        insert(object, (node, module), "", below, value, ietf);
    }
    for (path, json) in nodes {
        let text = json.to_string().into_bytes();
        let value =
            if ietf { gnmi::typed_value::Value::JsonIetfVal(text) } else { gnmi::typed_value::Value::JsonVal(text) };
        let val = Some(gnmi::TypedValue { value: Some(value) });
        updates.push(gnmi::Update { path: Some(path.message()), val, ..Default::default() });
    }
    updates
}

/// Puts a leaf into the object of a node, which is in the module `its`; `around`: the module that a name without one
/// means.
fn insert(
    object: &mut Json,
    (node, its): (&Node, &'static str),
    around: &str,
    below: &[Step],
    value: &Value,
    ietf: bool,
) {
    let (Some((step, below)), Json::Object(object)) = (below.split_first(), object) else { return };
    let Some(child) = node.child(step.name) else { return };
    let its = child.module(its);
    let name = if ietf && its != around { format!("{its}:{}", step.name) } else { step.name.to_string() };
    if let Some(kind) = child.leaf_type() {
        object.insert(name, value.json(kind, ietf));
        return;
    }
    let Some((key, text)) = &step.key else {
        let inner = object.entry(name).or_insert_with(|| Json::Object(Map::new()));
        return insert(inner, (child, its), its, below, value, ietf);
    };
    let Json::Array(entries) = object.entry(name).or_insert_with(|| Json::Array(Vec::new())) else { return };
    let Some(kind) = child.child(key).and_then(Node::leaf_type) else { return };
    let Some(key_value) = value::parse(kind, text) else { return };
    let key_value = key_value.json(kind, ietf);
    // Leaves come in the order of their paths: an entry's are together.
    if entries.last().is_none_or(|last| last[key] != key_value) {
        entries.push(Json::Object(Map::from_iter([(key.to_string(), key_value)])));
    }
    if let Some(entry) = entries.last_mut() {
        insert(entry, (child, its), its, below, value, ietf);
    }
}

/// The node of a path, and the module that it is in.
fn node_and_module(path: &Path) -> Option<(&'static Node, &'static str)> {
    path.0.iter().try_fold((&ROOT, ""), |(node, module), step| {
        let child = node.child(step.name)?;
        Some((child, child.module(module)))
    })
}
