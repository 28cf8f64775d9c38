// SPDX-License-Identifier: Apache-2.0
//! Programs as p4c writes them, drawn from a tape of numbers: where the tape ends, everything is the simplest.

use serde_json::{Value, json};

/// Numbers that proptest makes and shrinks.
pub struct Tape<'t> {
    numbers: &'t [u32],
    at: usize,
}

impl Tape<'_> {
    pub fn new(numbers: &[u32]) -> Tape<'_> {
        Tape { numbers, at: 0 }
    }

    pub fn next(&mut self) -> u32 {
        self.at += 1;
        self.numbers.get(self.at - 1).copied().unwrap_or(0)
    }

    /// Picks a number below `count`.
    pub fn pick(&mut self, count: usize) -> usize {
        self.next() as usize % count
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.pick(choices.len())]
    }

    /// Extremes are as likely as everything else.
    pub fn value(&mut self, width: u32) -> u128 {
        let all = u128::MAX >> (128 - width);
        let any = (0..4).fold(0u128, |value, _| value << 32 | u128::from(self.next()));
        all & match self.pick(5) {
            0 => any % 4,
            1 => all,
            2 => 1 << (any % u128::from(width)),
            3 => (1 << (any % u128::from(width))) - 1,
            _ => any,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub header: &'static str,
    pub name: String,
    pub width: u32,
    pub signed: bool,
}

const UNSIGNED: [u32; 16] = [8, 1, 3, 5, 12, 16, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128];
const SIGNED: [u32; 8] = [8, 2, 7, 16, 32, 33, 63, 64];

fn hex(value: u128) -> Value {
    json!({"type": "hexstr", "value": format!("{value:#x}")})
}

fn operation(op: &str, left: Value, right: Value) -> Value {
    json!({"type": "expression", "value": {"op": op, "left": left, "right": right}})
}

fn reference(field: &Field) -> Value {
    json!({"type": "field", "value": [field.header, field.name]})
}

fn mask(width: u32) -> Value {
    hex(u128::MAX >> (128 - width))
}

/// Makes a program of fields that it has made before.
pub struct Generator<'t> {
    pub tape: Tape<'t>,
    pub fields: Vec<Field>,
    /// Widths of the parameters of the action that is being made.
    params: Vec<u32>,
}

impl<'t> Generator<'t> {
    pub fn new(numbers: &'t [u32]) -> Generator<'t> {
        Generator { tape: Tape::new(numbers), fields: Vec::new(), params: Vec::new() }
    }

    /// `[name, width, signed]` of fields that together are whole bytes.
    fn header_type(&mut self, header: &'static str, most: usize) -> Value {
        let count = 1 + self.tape.pick(most);
        let mut fields = Vec::new();
        let mut bits = 0;
        for index in 0..count {
            let signed = self.tape.pick(4) == 3;
            let width = if signed { self.tape.of(&SIGNED) } else { self.tape.of(&UNSIGNED) };
            bits += width;
            fields.push(Field { header, name: format!("f{index}"), width, signed });
        }
        if bits % 8 > 0 {
            fields.push(Field { header, name: "pad".into(), width: 8 - bits % 8, signed: false });
        }
        let list: Vec<Value> = fields.iter().map(|f| json!([f.name, f.width, f.signed])).collect();
        self.fields.extend(fields);
        json!(list)
    }

    fn leaf(&mut self, width: u32, signed: bool) -> Value {
        let params: Vec<usize> =
            (0..self.params.len()).filter(|&index| self.params[index] == width && !signed).collect();
        let fields: Vec<Field> =
            self.fields.iter().filter(|f| f.width == width && f.signed == signed).cloned().collect();
        match self.tape.pick(4) {
            0 if !params.is_empty() => json!({"type": "local", "value": self.tape.of(&params)}),
            0..=2 if !fields.is_empty() => reference(&fields[self.tape.pick(fields.len())]),
            _ if signed => {
                let value = self.tape.value(width);
                let negative = value >> (width - 1) == 1;
                let magnitude = if negative { (1u128 << width) - value } else { value };
                json!({"type": "hexstr", "value": format!("{}{magnitude:#x}", if negative { "-" } else { "" })})
            }
            _ => hex(self.tape.value(width)),
        }
    }

    /// A number of this type, in the forms that p4c gives to P4's operators.
    pub fn number(&mut self, width: u32, signed: bool, depth: u32) -> Value {
        if depth == 0 {
            return self.leaf(width, signed);
        }
        let fit = |value: Value| match signed {
            true => operation("two_comp_mod", value, hex(width.into())),
            false => operation("&", value, mask(width)),
        };
        match self.tape.pick(13) {
            0 => self.leaf(width, signed),
            op @ 1..=3 => {
                let (a, b) = (self.number(width, signed, depth - 1), self.number(width, signed, depth - 1));
                fit(operation(["+", "-", "*"][op - 1], a, b))
            }
            op @ 4..=5 => {
                let (a, b) = (self.number(width, signed, depth - 1), self.number(width, signed, depth - 1));
                let cast = if signed { "sat_cast" } else { "usat_cast" };
                operation(cast, operation(["+", "-"][op - 4], a, b), hex(width.into()))
            }
            op @ 6..=8 => {
                let (a, b) = (self.number(width, signed, depth - 1), self.number(width, signed, depth - 1));
                operation(["&", "|", "^"][op - 6], a, b)
            }
            9 => {
                let a = self.number(width, signed, depth - 1);
                let amount = self.number(8, false, depth - 1);
                if self.tape.pick(2) == 0 { fit(operation("<<", a, amount)) } else { operation(">>", a, amount) }
            }
            10 => {
                let a = self.number(width, signed, depth - 1);
                fit(operation(self.tape.of(&["~", "-"]), Value::Null, a))
            }
            11 => {
                // A cast, or a slice of something wider.
                let from_signed = self.tape.pick(3) == 2;
                let from = if from_signed { self.tape.of(&SIGNED) } else { self.tape.of(&UNSIGNED) };
                let a = self.number(from, from_signed, depth - 1);
                let low = self.tape.pick(from as usize) as u128;
                fit(if self.tape.pick(2) == 0 { a } else { operation(">>", a, hex(low)) })
            }
            _ => {
                let condition = self.condition(depth - 1);
                let (a, b) = (self.number(width, signed, depth - 1), self.number(width, signed, depth - 1));
                json!({"type": "expression", "value": {"op": "?", "left": a, "right": b, "cond": condition}})
            }
        }
    }

    pub fn condition(&mut self, depth: u32) -> Value {
        match self.tape.pick(if depth == 0 { 2 } else { 5 }) {
            0 => operation("d2b", Value::Null, json!({"type": "field", "value": ["h1", "$valid$"]})),
            1 | 2 => {
                let signed = self.tape.pick(3) == 2;
                let width = if signed { self.tape.of(&SIGNED) } else { self.tape.of(&UNSIGNED) };
                let depth = depth.saturating_sub(1);
                let (a, b) = (self.number(width, signed, depth), self.number(width, signed, depth));
                operation(self.tape.of(&["==", "!=", "<", "<=", ">", ">="]), a, b)
            }
            3 => operation("not", Value::Null, self.condition(depth - 1)),
            _ => {
                let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
                operation(self.tape.of(&["and", "or"]), a, b)
            }
        }
    }

    fn writable(&mut self) -> Field {
        self.fields[self.tape.pick(self.fields.len())].clone()
    }

    fn primitive(&mut self, at: usize, count: usize) -> Value {
        let wrap = |value: Value| json!({"type": "expression", "value": value});
        let call = |op: &str, parameters: Value| json!({"op": op, "parameters": parameters});
        let small = |value: u128| hex(value);
        match self.tape.pick(10) {
            0..=4 => {
                let field = self.writable();
                let value = self.number(field.width, field.signed, 3);
                call("assign", json!([reference(&field), wrap(value)]))
            }
            5 => {
                let header = json!({"type": "header", "value": self.tape.of(&["h0", "h1"])});
                match self.tape.pick(3) {
                    0 => call("add_header", json!([header])),
                    1 => call("remove_header", json!([header])),
                    _ => call(
                        "assign_header",
                        json!([{"type": "header", "value": "h2"}, {"type": "header", "value": "h1"}]),
                    ),
                }
            }
            6 => {
                let array = json!({"type": "register_array", "value": "cells"});
                let index = wrap(self.number(8, false, 1));
                if self.tape.pick(2) == 0 {
                    let field = self.writable();
                    call("register_read", json!([reference(&field), array, index]))
                } else {
                    call("register_write", json!([array, index, wrap(self.number(33, false, 2))]))
                }
            }
            7 => {
                let field = self.writable();
                let calculation = json!({"type": "calculation", "value": self.tape.of(&["sum", "crc"])});
                call(
                    "modify_field_with_hash_based_offset",
                    json!([reference(&field), small(self.tape.value(8)), calculation, small(self.tape.value(32))]),
                )
            }
            8 if at + 1 < count => {
                let to = at + 1 + self.tape.pick(count - at);
                call("_jump_if_zero", json!([wrap(self.condition(2)), small(to as u128)]))
            }
            _ => {
                let (field, low) = (self.writable(), self.tape.value(8));
                let high = low + u128::from(self.tape.next());
                call("modify_field_rng_uniform", json!([reference(&field), small(low), small(high)]))
            }
        }
    }

    fn action(&mut self, id: usize) -> Value {
        self.params = (0..self.tape.pick(3)).map(|_| self.tape.of(&UNSIGNED)).collect();
        let count = 1 + self.tape.pick(5);
        let primitives: Vec<Value> = (0..count).map(|at| self.primitive(at, count)).collect();
        let params: Vec<Value> = self
            .params
            .iter()
            .enumerate()
            .map(|(i, width)| json!({"name": format!("p{i}"), "bitwidth": width}))
            .collect();
        self.params.clear();
        json!({"name": format!("a{id}"), "id": id, "runtime_data": params, "primitives": primitives})
    }

    fn table(&mut self, id: usize, actions: &[usize], next: &str) -> Value {
        let kinds: &[&str] =
            self.tape.of(&[&["exact"], &["exact", "lpm"], &["exact", "ternary"], &["exact", "ternary", "range"]]);
        let mut lpm = false;
        let mut key = Vec::new();
        for _ in 0..1 + self.tape.pick(3) {
            let (field, mut kind) = (self.writable(), self.tape.of(kinds));
            // Ranges are of bits up to 64, prefixes one to a table.
            if kind == "range" && (field.signed || field.width > 64) || kind == "lpm" && lpm {
                kind = "exact";
            }
            lpm |= kind == "lpm";
            key.push(json!({"match_type": kind, "name": format!("{}.{}", field.header, field.name), "target": [field.header, field.name], "mask": null}));
        }
        let names: Vec<String> = actions.iter().map(|id| format!("a{id}")).collect();
        let hit_miss = self.tape.pick(2) == 1;
        let next_tables: Value = match hit_miss {
            true => json!({"__HIT__": next, "__MISS__": "last"}),
            false => names.iter().map(|name| (name.clone(), json!(next))).collect::<serde_json::Map<_, _>>().into(),
        };
        json!({
            "name": format!("t{id}"), "id": id, "key": key, "match_type": "exact", "type": "simple",
            "max_size": self.tape.of(&[16, 200]), "with_counters": self.tape.pick(2) == 1, "support_timeout": false,
            "direct_meters": null, "action_ids": actions, "actions": names,
            "base_default_next": next, "next_tables": next_tables,
            "default_entry": {"action_id": 0, "action_const": false, "action_data": [], "action_entry_const": false},
        })
    }

    /// A whole program. It sends each packet to the port that it came from.
    pub fn program(&mut self) -> Value {
        let types = json!([
            {"name": "h0_t", "id": 0, "fields": self.header_type("h0", 5)},
            {"name": "h1_t", "id": 1, "fields": self.header_type("h1", 4)},
            {"name": "scalars_t", "id": 2, "fields": self.header_type("scalars", 4)},
            {"name": "standard_metadata", "id": 3, "fields": standard_metadata()},
        ]);
        let header = |name: &str, kind: &str, id: usize, metadata: bool| json!({"name": name, "id": id, "header_type": kind, "metadata": metadata, "pi_omit": true});
        // The nothing that tables fall back to, and what is always run.
        let mut actions = vec![json!({"name": "a0", "id": 0, "runtime_data": [], "primitives": []})];
        let count = 2 + self.tape.pick(4);
        actions.extend((1..count).map(|id| self.action(id)));
        let fixed = actions.len();
        let reflect = json!({"op": "assign", "parameters": [
            {"type": "field", "value": ["standard_metadata", "egress_spec"]},
            {"type": "field", "value": ["standard_metadata", "ingress_port"]}]});
        actions.push(json!({"name": "reflect", "id": fixed, "runtime_data": [], "primitives": [reflect]}));
        let chosen: Vec<usize> = (0..count).collect();
        let tables = [
            self.table(0, &chosen, "if0"),
            self.table(1, &chosen, "last"),
            fixed_table(2, "first", fixed, json!("t0")),
            fixed_table(3, "last", 0, Value::Null),
        ];
        let condition =
            json!({"name": "if0", "id": 0, "expression": self.condition(3), "true_next": "t1", "false_next": "last"});
        let select = self.fields[self.tape.pick(2.min(self.fields.len()))].clone();
        let (value, mask) = (self.tape.value(select.width), self.tape.value(select.width));
        let digits = 2 * select.width.div_ceil(8) as usize;
        let padded = |value: u128| format!("0x{value:0digits$x}");
        let default = json!({"type": "default", "value": null, "mask": null, "next_state": null});
        let extract = |header: &str| json!({"op": "extract", "parameters": [{"type": "regular", "value": header}]});
        let input = |fields: &[Field]| -> Vec<Value> { fields.iter().map(reference).collect() };
        let scalars: Vec<Field> = self.fields.iter().filter(|f| f.header == "scalars").cloned().collect();
        let h1: Vec<Field> = self.fields.iter().filter(|f| f.header == "h1").cloned().collect();
        json!({
            "__meta__": {"version": [2, 23]},
            "header_types": types,
            "headers": [header("scalars", "scalars_t", 0, true), header("standard_metadata", "standard_metadata", 1, true),
                header("h0", "h0_t", 2, false), header("h1", "h1_t", 3, false), header("h2", "h1_t", 4, false)],
            "errors": [["NoError", 0], ["PacketTooShort", 1], ["NoMatch", 2]],
            "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [
                {"name": "start", "id": 0, "parser_ops": [extract("h0")],
                    "transition_key": [reference(&select)],
                    "transitions": [{"type": "hexstr", "value": padded(value), "mask": padded(mask), "next_state": "more"}, default]},
                {"name": "more", "id": 1, "parser_ops": [extract("h1")], "transition_key": [], "transitions": [default]},
            ]}],
            "deparsers": [{"name": "deparser", "id": 0, "order": ["h0", "h1", "h2"], "primitives": []}],
            "register_arrays": [{"name": "cells", "id": 0, "size": 200, "bitwidth": 33}],
            "calculations": [
                {"name": "sum", "id": 0, "algo": self.tape.of(&["csum16", "xor16", "identity"]), "input": input(&h1)},
                {"name": "crc", "id": 1, "algo": self.tape.of(&["crc16", "crc32"]), "input": input(&scalars)},
            ],
            "actions": actions,
            "pipelines": [
                {"name": "ingress", "id": 0, "init_table": "first", "tables": tables, "action_profiles": [], "conditionals": [condition]},
                {"name": "egress", "id": 1, "init_table": null, "tables": [], "action_profiles": [], "conditionals": []},
            ],
            "checksums": [],
            "learn_lists": [], "field_lists": [], "meter_arrays": [], "counter_arrays": [],
            "field_aliases": [],
        })
    }
}

/// A table as p4c makes it for code between tables.
fn fixed_table(id: usize, name: &str, action: usize, next: Value) -> Value {
    let action_name = if action == 0 { "a0" } else { "reflect" };
    json!({
        "name": name, "id": id, "key": [], "match_type": "exact", "type": "simple", "max_size": 1024,
        "with_counters": false, "support_timeout": false, "direct_meters": null,
        "action_ids": [action], "actions": [action_name], "base_default_next": next, "next_tables": {action_name: next},
        "default_entry": {"action_id": action, "action_const": true, "action_data": [], "action_entry_const": true},
    })
}

fn standard_metadata() -> Value {
    let fields = [
        ("ingress_port", 9),
        ("egress_spec", 9),
        ("egress_port", 9),
        ("instance_type", 32),
        ("packet_length", 32),
        ("mcast_grp", 16),
        ("parser_error", 32),
        ("checksum_error", 1),
        ("priority", 3),
        ("_padding", 1),
    ];
    fields.iter().map(|(name, width)| json!([name, width, false])).collect()
}
