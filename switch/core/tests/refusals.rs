// SPDX-License-Identifier: Apache-2.0
//! Refusals of the loader name the construct with its place in the source.

use apswitch_core::program::Program;
use serde_json::{Value, json};

fn features() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/features.json");
    let mut program = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    give_places(&mut program);
    program
}

/// Gives tables, their entries and primitives a place in the source, as p4c does.
fn give_places(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(give_places);
            if ["match_type", "match_key", "parameters"].iter().any(|name| fields.contains_key(*name)) {
                fields.insert("source_info".to_string(), json!({"filename": "features.p4", "line": 12}));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(give_places),
        _ => {}
    }
}

/// The message for the program after a change.
fn refused(change: impl FnOnce(&mut Value)) -> String {
    let mut program = features();
    change(&mut program);
    Program::load(program.to_string().as_bytes()).map(drop).expect_err("accepted").to_string()
}

fn named<'v>(list: &'v mut Value, name: &str) -> &'v mut Value {
    list.as_array_mut().unwrap().iter_mut().find(|item| item["name"] == name).unwrap()
}

fn table<'v>(program: &'v mut Value, name: &str) -> &'v mut Value {
    named(&mut program["pipelines"][0]["tables"], name)
}

/// The first primitive of that kind in any action.
fn primitive<'v>(program: &'v mut Value, op: &str) -> &'v mut Value {
    let actions = program["actions"].as_array_mut().unwrap();
    let primitives = actions.iter_mut().flat_map(|action| action["primitives"].as_array_mut().unwrap());
    primitives.into_iter().find(|primitive| primitive["op"] == op).unwrap()
}

fn assert_contains(message: &str, parts: &[&str]) {
    assert!(!message.contains('\n'), "more than a line: {message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn what_is_not_bmv2_json() {
    for text in ["", "{", "[]", "{}", "null", "\u{0}"] {
        let error = Program::load(text.as_bytes()).unwrap_err().to_string();
        assert_contains(&error, &["BMv2 JSON"]);
    }
    let whole = features().to_string();
    for length in (0..whole.len()).step_by(997) {
        assert!(Program::load(&whole.as_bytes()[..length]).is_err());
    }
    assert_contains(&refused(|p| p["__meta__"]["version"] = json!([3, 0])), &["3.0", "2.x"]);
    assert_contains(&refused(|p| p["pipelines"][1]["name"] = json!("other")), &["egress", "v1model"]);
}

#[test]
fn constructs_that_are_not_supported() {
    let source = json!({"filename": "a.p4", "line": 12});
    let external = json!([{"name": "hdr.vlan", "id": 0, "source_info": source}]);
    assert_contains(&refused(|p| p["extern_instances"] = external), &["extern `hdr.vlan` (a.p4:12)"]);
    let stack = json!([{"name": "vlan", "header_ids": [99]}]);
    assert_contains(&refused(|p| p["header_stacks"] = stack.clone()), &["header stack `vlan`", "unknown header id"]);
    assert_contains(&refused(|p| p["header_unions"] = stack.clone()), &["header union `vlan`", "unknown header id"]);
    let unlike = json!([{"name": "vlan", "header_ids": [2, 3]}]);
    assert_contains(&refused(|p| p["header_stacks"] = unlike), &["header stack `vlan`", "different types"]);
    let indirect = refused(|p| table(p, "TheIngress.routes")["type"] = json!("indirect"));
    assert_contains(&indirect, &["table `TheIngress.routes` (features.p4:", "unknown action profile"]);

    let varbit = refused(|p| named(&mut p["header_types"], "extra_t")["fields"][1][1] = json!("*"));
    assert_contains(&varbit, &["`extra.middle`", "max_length"]);
    let wide = refused(|p| named(&mut p["header_types"], "address_t")["fields"][0][1] = json!(2056));
    assert_contains(&wide, &["`address.value`", "2056"]);
    let ragged = refused(|p| named(&mut p["header_types"], "extra_t")["fields"][1][1] = json!(19));
    assert_contains(&ragged, &["header `extra`", "whole bytes"]);

    let foreign = refused(|p| table(p, "TheIngress.routes")["default_entry"]["action_id"] = json!(39));
    assert_contains(&foreign, &["table `TheIngress.routes` (features.p4:", "action id 39 is not one of table"]);
    let valid = refused(|p| table(p, "TheIngress.routes")["key"][0]["match_type"] = json!("valid"));
    assert_contains(&valid, &["TheIngress.routes", "match kind `valid`"]);
    assert_contains(&refused(|p| p["meter_arrays"][0]["rate_count"] = json!(3)), &["meter", "3 rates"]);
    assert_contains(
        &refused(|p| p["register_arrays"][0]["bitwidth"] = json!(2049)),
        &["TheIngress.cells", "2049 bits"],
    );
    let algorithm = refused(|p| p["calculations"][0]["algo"] = json!("toeplitz"));
    assert_contains(&algorithm, &["calculation", "`toeplitz`"]);
}

#[test]
fn primitives_and_expressions() {
    let push = refused(|p| primitive(p, "mark_to_drop")["op"] = json!("push"));
    assert_contains(&push, &["action", "primitive `push` (features.p4:", "`header`", "not supported"]);
    let unknown = refused(|p| primitive(p, "mark_to_drop")["op"] = json!("juggle"));
    assert_contains(&unknown, &["action", "primitive `juggle` (features.p4:", "not supported"]);
    let stack = refused(|p| primitive(p, "add_header")["parameters"][0]["type"] = json!("header_stack"));
    assert_contains(&stack, &["`header_stack`"]);
    let none = refused(|p| primitive(p, "register_read")["parameters"] = json!([]));
    assert_contains(&none, &["register_read", "lacks parameter 0"]);
    let list = refused(|p| primitive(p, "resubmit")["parameters"][0]["value"] = json!("0x77"));
    assert_contains(&list, &["resubmit", "field list 119"]);
    let expression = json!({"type": "expression", "value": {"op": "last_stack_index", "left": null, "right": null}});
    let operation = refused(|p| primitive(p, "truncate")["parameters"][0] = expression);
    assert_contains(&operation, &["truncate", "null is not an expression"]);
    let field = refused(|p| primitive(p, "truncate")["parameters"][0] = json!({"type": "field", "value": ["a", "b"]}));
    assert_contains(&field, &["truncate", "unknown field `a.b`"]);
}

#[test]
fn parsers_and_references() {
    fn state<'v>(p: &'v mut Value, name: &str) -> &'v mut Value {
        named(&mut p["parsers"][0]["parse_states"], name)
    }
    let op = refused(|p| state(p, "skip")["parser_ops"][0]["op"] = json!("shift"));
    assert_contains(&op, &["parser", "`shift`"]);
    let union = refused(|p| state(p, "parse_extra")["parser_ops"][0]["parameters"][0]["type"] = json!("stack"));
    assert_contains(&union, &["unknown stack `extra`"]);
    let next = refused(|p| state(p, "start")["transitions"][0]["next_state"] = json!("nowhere"));
    assert_contains(&next, &["parser state `start`", "`nowhere`"]);
    let node = refused(|p| p["pipelines"][0]["init_table"] = json!("nothing"));
    assert_contains(&node, &["`nothing`"]);
    let action = refused(|p| table(p, "TheIngress.routes")["action_ids"] = json!([999]));
    assert_contains(&action, &["TheIngress.routes", "999"]);
    let key = json!([{"match_type": "exact", "key": "0x11"}]);
    let entry = refused(|p| table(p, "TheIngress.fixed")["entries"][0]["match_key"] = key);
    assert_contains(&entry, &["entry of table `TheIngress.fixed` (features.p4:", "exact"]);
}

/// No document makes the loader panic: values of the wrong kind, numbers out of every range, missing parts.
#[test]
fn damaged_documents_are_refused_or_loaded_but_never_panic() {
    let mut rng = fastrand::Rng::with_seed(7);
    let whole = features();
    for _ in 0..3000 {
        let mut program = whole.clone();
        for _ in 0..rng.usize(1..4) {
            damage(&mut program, &mut rng);
        }
        let _ = Program::load(program.to_string().as_bytes());
    }
}

fn damage(value: &mut Value, rng: &mut fastrand::Rng) {
    let inner = match value {
        Value::Array(items) if !items.is_empty() => {
            let at = rng.usize(..items.len());
            if rng.u8(..40) == 0 {
                items.remove(at);
                return;
            }
            Some(&mut items[at])
        }
        Value::Object(fields) if !fields.is_empty() => {
            let at = rng.usize(..fields.len());
            if rng.u8(..40) == 0 {
                let name = fields.keys().nth(at).unwrap().clone();
                fields.remove(&name);
                return;
            }
            fields.values_mut().nth(at)
        }
        _ => None,
    };
    match inner {
        Some(inner) if rng.u8(..20) != 0 => damage(inner, rng),
        _ => {
            *value = match rng.u8(..7) {
                0 => Value::Null,
                1 => json!(rng.u64(..)),
                2 => json!(-1),
                3 => json!("0xffffffffffffffffffffffffffffffffffff"),
                4 => json!("request"),
                5 => json!([]),
                _ => json!({"type": "field", "value": ["request", "value"]}),
            }
        }
    }
}
