// SPDX-License-Identifier: Apache-2.0
//! BMv2 JSON (format 2.x) as p4c writes it, field for field; attributes that the loader does not need are left out.

use serde::Deserialize;
use serde_json::Value;

/// Position of a construct in the P4 source.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SourceInfo {
    #[serde(default)]
    pub filename: String,
    #[serde(default)]
    pub line: u32,
}

/// The `{"type", "value"}` object of the format.
#[derive(Clone, Debug, Deserialize)]
pub struct Typed {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub value: Value,
    pub bitwidth: Option<u16>,
}

#[derive(Debug, Deserialize)]
pub struct Document {
    #[serde(rename = "__meta__")]
    pub meta: Option<Meta>,
    pub header_types: Vec<HeaderType>,
    pub headers: Vec<Header>,
    #[serde(default)]
    pub header_stacks: Vec<HeaderStack>,
    #[serde(default)]
    pub header_union_types: Vec<HeaderUnionType>,
    #[serde(default)]
    pub header_unions: Vec<HeaderUnion>,
    #[serde(default)]
    pub header_union_stacks: Vec<HeaderUnionStack>,
    #[serde(default)]
    pub field_lists: Vec<FieldList>,
    #[serde(default)]
    pub errors: Vec<(String, u64)>,
    pub parsers: Vec<Parser>,
    #[serde(default)]
    pub parse_vsets: Vec<ParseVset>,
    pub deparsers: Vec<Deparser>,
    #[serde(default)]
    pub meter_arrays: Vec<MeterArray>,
    #[serde(default)]
    pub counter_arrays: Vec<CounterArray>,
    #[serde(default)]
    pub register_arrays: Vec<RegisterArray>,
    #[serde(default)]
    pub calculations: Vec<Calculation>,
    #[serde(default)]
    pub learn_lists: Vec<FieldList>,
    pub actions: Vec<Action>,
    pub pipelines: Vec<Pipeline>,
    #[serde(default)]
    pub checksums: Vec<Checksum>,
    #[serde(default)]
    pub extern_instances: Vec<Named>,
    #[serde(default)]
    pub field_aliases: Vec<(String, (String, String))>,
}

#[derive(Debug, Deserialize)]
pub struct Meta {
    pub version: (u32, u32),
}

#[derive(Debug, Deserialize)]
pub struct HeaderType {
    pub name: String,
    /// `[name, width]` or `[name, width, signed]`; the width is `"*"` for a varbit.
    pub fields: Vec<Vec<Value>>,
    /// Bytes; of a header with a varbit.
    #[serde(default)]
    pub max_length: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub struct Header {
    pub name: String,
    #[serde(default)]
    pub id: u64,
    pub header_type: String,
    #[serde(default)]
    pub metadata: bool,
}

#[derive(Debug, Deserialize)]
pub struct HeaderStack {
    pub name: String,
    pub header_ids: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub struct HeaderUnionType {
    pub name: String,
    /// `[member, header type]`
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub struct HeaderUnion {
    pub name: String,
    #[serde(default)]
    pub id: u64,
    pub header_ids: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub struct HeaderUnionStack {
    pub name: String,
    pub union_type: String,
    pub header_union_ids: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub struct ParseVset {
    pub name: String,
    /// Total of the widths of its fields.
    pub compressed_bitwidth: u16,
    #[serde(default)]
    pub max_size: usize,
}

/// Objects that are only named when they are refused.
#[derive(Debug, Deserialize)]
pub struct Named {
    pub name: String,
    pub source_info: Option<SourceInfo>,
}

#[derive(Debug, Deserialize)]
pub struct FieldList {
    pub id: u64,
    pub name: String,
    pub source_info: Option<SourceInfo>,
    pub elements: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub struct Parser {
    pub init_state: Option<String>,
    pub parse_states: Vec<ParseState>,
}

#[derive(Debug, Deserialize)]
pub struct ParseState {
    pub name: String,
    pub source_info: Option<SourceInfo>,
    #[serde(default)]
    pub parser_ops: Vec<ParserOp>,
    #[serde(default)]
    pub transitions: Vec<Transition>,
    #[serde(default)]
    pub transition_key: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub struct ParserOp {
    pub op: String,
    pub parameters: Vec<Value>,
    pub source_info: Option<SourceInfo>,
}

#[derive(Debug, Deserialize)]
pub struct Transition {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub value: Option<String>,
    pub mask: Option<String>,
    pub next_state: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Deparser {
    pub order: Vec<String>,
    #[serde(default)]
    pub primitives: Vec<Primitive>,
    pub source_info: Option<SourceInfo>,
}

#[derive(Debug, Deserialize)]
pub struct MeterArray {
    pub name: String,
    pub source_info: Option<SourceInfo>,
    #[serde(rename = "type")]
    pub unit: String,
    #[serde(default)]
    pub rate_count: u32,
    #[serde(default)]
    pub size: usize,
    #[serde(default)]
    pub is_direct: bool,
    pub result_target: Option<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub struct CounterArray {
    pub name: String,
    #[serde(default)]
    pub size: usize,
    #[serde(default)]
    pub is_direct: bool,
}

#[derive(Debug, Deserialize)]
pub struct RegisterArray {
    pub name: String,
    pub source_info: Option<SourceInfo>,
    pub size: usize,
    pub bitwidth: u16,
}

#[derive(Debug, Deserialize)]
pub struct Calculation {
    pub name: String,
    pub source_info: Option<SourceInfo>,
    pub algo: String,
    pub input: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub struct Action {
    pub name: String,
    pub id: u64,
    pub runtime_data: Vec<RuntimeData>,
    pub primitives: Vec<Primitive>,
    pub source_info: Option<SourceInfo>,
}

#[derive(Debug, Deserialize)]
pub struct RuntimeData {
    pub name: String,
    pub bitwidth: u16,
}

#[derive(Debug, Deserialize)]
pub struct Primitive {
    pub op: String,
    #[serde(default)]
    pub parameters: Vec<Typed>,
    pub source_info: Option<SourceInfo>,
}

#[derive(Debug, Deserialize)]
pub struct Pipeline {
    pub name: String,
    pub init_table: Option<String>,
    pub tables: Vec<Table>,
    #[serde(default)]
    pub action_profiles: Vec<ActionProfile>,
    #[serde(default)]
    pub conditionals: Vec<Conditional>,
    #[serde(default)]
    pub action_calls: Vec<ActionCall>,
}

#[derive(Debug, Deserialize)]
pub struct ActionProfile {
    pub name: String,
    pub source_info: Option<SourceInfo>,
    #[serde(default)]
    pub max_size: usize,
    pub selector: Option<Selector>,
}

#[derive(Debug, Deserialize)]
pub struct Selector {
    pub algo: String,
    pub input: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub struct Table {
    pub name: String,
    pub source_info: Option<SourceInfo>,
    pub key: Vec<Key>,
    #[serde(rename = "type")]
    pub kind: String,
    pub action_profile: Option<String>,
    #[serde(default)]
    pub max_size: usize,
    #[serde(default)]
    pub with_counters: bool,
    #[serde(default)]
    pub support_timeout: bool,
    pub direct_meters: Option<String>,
    pub action_ids: Vec<u64>,
    pub base_default_next: Option<String>,
    #[serde(default)]
    pub next_tables: std::collections::HashMap<String, Option<String>>,
    pub default_entry: Option<DefaultEntry>,
    pub entries: Option<Vec<Entry>>,
    /// Not in the format: the entries may be written.
    #[serde(skip)]
    pub writable: bool,
}

#[derive(Debug, Deserialize)]
pub struct Key {
    pub match_type: String,
    pub name: Option<String>,
    pub target: Value,
    pub mask: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct DefaultEntry {
    pub action_id: u64,
    #[serde(default)]
    pub action_const: bool,
    #[serde(default)]
    pub action_data: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Entry {
    pub source_info: Option<SourceInfo>,
    pub match_key: Vec<EntryKey>,
    pub action_entry: ActionEntry,
    #[serde(default)]
    pub priority: i64,
}

#[derive(Debug, Deserialize)]
pub struct EntryKey {
    pub match_type: String,
    pub key: Option<Value>,
    pub mask: Option<String>,
    pub prefix_length: Option<u16>,
    pub start: Option<String>,
    pub end: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct ActionEntry {
    pub action_id: u64,
    pub action_data: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Conditional {
    pub name: String,
    pub source_info: Option<SourceInfo>,
    pub expression: Typed,
    pub true_next: Option<String>,
    pub false_next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct ActionCall {
    pub name: String,
    pub action_id: u64,
    pub next_node: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Checksum {
    pub name: String,
    pub source_info: Option<SourceInfo>,
    pub target: (String, String),
    pub calculation: String,
    #[serde(default = "yes")]
    pub verify: bool,
    #[serde(default = "yes")]
    pub update: bool,
    pub if_cond: Option<Typed>,
}

fn yes() -> bool {
    true
}
