// SPDX-License-Identifier: Apache-2.0
//! Programs that no compiler writes: what would break memory, run without end or grow without bound is refused in one
//! line that names it.

use std::sync::Arc;

use crate::common::pair::Pair;
use apswitch_core::machine::Machine;
use apswitch_core::program::Program;
use apswitch_core::state::Shared;
use serde_json::{Value, json};

fn read(name: &str) -> Value {
    let path = format!("{}/../testdata/programs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn load(program: &Value) -> Result<(), String> {
    Program::load(program.to_string().as_bytes()).map(drop).map_err(|error| error.to_string())
}

/// The refusal of the program after a change has all the parts, in a line.
#[track_caller]
fn refused(name: &str, parts: &[&str], change: impl FnOnce(&mut Value)) {
    let mut program = read(name);
    change(&mut program);
    let message = load(&program).expect_err("accepted");
    assert!(message.len() < 1000 && !message.contains('\n'), "not a line: {} bytes, {message}", message.len());
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

fn named<'v>(list: &'v mut Value, name: &str) -> &'v mut Value {
    list.as_array_mut().unwrap().iter_mut().find(|item| item["name"] == name).unwrap()
}

fn tables(program: &mut Value) -> &mut Vec<Value> {
    program["pipelines"][0]["tables"].as_array_mut().unwrap()
}

fn table<'v>(program: &'v mut Value, name: &str) -> &'v mut Value {
    named(&mut program["pipelines"][0]["tables"], name)
}

fn header(name: &str) -> Value {
    json!({"type": "header", "value": name})
}

fn field(header: &str, field: &str) -> Value {
    json!({"type": "field", "value": [header, field]})
}

fn operation(op: &str, left: Value, right: Value) -> Value {
    json!({"type": "expression", "value": {"op": op, "left": left, "right": right}})
}

/// Puts a primitive in front of the first action that has any.
fn primitive(program: &mut Value, op: &str, parameters: Value) {
    let actions = program["actions"].as_array_mut().unwrap();
    let action = actions.iter_mut().find(|action| action["primitives"][0].is_object()).unwrap();
    action["primitives"].as_array_mut().unwrap().insert(0, json!({"op": op, "parameters": parameters}));
}

/// Headers of these fields, in the program under their names.
fn add_header(program: &mut Value, name: &str, fields: Value, max_length: Option<u32>) {
    let id = 1000 + program["headers"].as_array().unwrap().len();
    let header_type = json!({"name": format!("{name}_t"), "id": id, "fields": fields, "max_length": max_length});
    program["header_types"].as_array_mut().unwrap().push(header_type);
    let header = json!({"name": name, "id": id, "header_type": format!("{name}_t"), "metadata": false});
    program["headers"].as_array_mut().unwrap().push(header);
}

fn id_of(program: &mut Value, header: &str) -> Value {
    named(&mut program["headers"], header)["id"].clone()
}

#[test]
fn program_of_another_architecture_or_format_is_named_with_the_fix() {
    refused("features", &["parser `ingress_parser`", "for PSA", "end it in V1Switch", "--arch v1model"], |program| {
        program["parsers"][0]["name"] = json!("ingress_parser");
        let second = program["parsers"][0].clone();
        program["parsers"].as_array_mut().unwrap().push(second);
    });
    refused("features", &["parser `main_parser`", "for PNA"], |program| {
        program["parsers"][0]["name"] = json!("main_parser");
        program["pipelines"] = json!([]);
    });
    refused("features", &["table `", "from before 2017", "compile the P4 program again"], |program| {
        tables(program)[0].as_object_mut().unwrap().remove("action_ids");
    });
}

#[test]
fn a_fixed_header_is_not_copied_onto_one_with_a_varbit() {
    // As many registers: 64 bits beside the varbit's 40 and its length.
    refused("variable", &["primitive `assign_header`", "different types"], |program| {
        add_header(program, "fixed", json!([["a", 64, false], ["b", 64, false]]), None);
        add_header(program, "varying", json!([["a", "*"]]), Some(5));
        primitive(program, "assign_header", json!([header("varying"), header("fixed")]));
    });
    refused("variable", &["primitive `assign_header`", "different types"], |program| {
        add_header(program, "before", json!([["a", "*"], ["b", 64, false]]), Some(13));
        add_header(program, "behind", json!([["b", 64, false], ["a", "*"]]), Some(13));
        primitive(program, "assign_header", json!([header("before"), header("behind")]));
    });
    refused("stacks", &["primitive `assign_header`", "different types"], |program| {
        add_header(program, "nine", json!([["a", 9, false], ["b", 7, false], ["c", 8, false]]), None);
        primitive(program, "assign_header", json!([header("nine"), header("labels[0]")]));
    });
}

#[test]
fn unions_and_stacks_are_copied_only_onto_their_like() {
    fn with_varbit(program: &mut Value) -> Vec<Value> {
        for name in ["varying", "other"] {
            add_header(program, name, json!([["a", "*"]]), Some(5));
        }
        for name in ["fixed", "plain"] {
            add_header(program, name, json!([["a", 64, false], ["b", 64, false]]), None);
        }
        ["varying", "other", "fixed", "plain"].map(|name| id_of(program, name)).into()
    }
    refused("stacks", &["primitive `assign_union`", "different types"], |program| {
        let ids = with_varbit(program);
        let unions = program["header_unions"].as_array_mut().unwrap();
        unions.push(json!({"name": "u", "id": 91, "header_ids": [ids[0]]}));
        unions.push(json!({"name": "v", "id": 92, "header_ids": [ids[2]]}));
        let union = |name: &str| json!({"type": "header_union", "value": name});
        primitive(program, "assign_union", json!([union("u"), union("v")]));
    });
    refused("stacks", &["primitive `assign_header_stack`", "different types"], |program| {
        let ids = with_varbit(program);
        let stacks = program["header_stacks"].as_array_mut().unwrap();
        stacks.push(json!({"name": "s", "id": 91, "header_ids": [ids[0], ids[1]]}));
        stacks.push(json!({"name": "t", "id": 92, "header_ids": [ids[2], ids[3]]}));
        let stack = |name: &str| json!({"type": "header_stack", "value": name});
        primitive(program, "assign_header_stack", json!([stack("s"), stack("t")]));
    });
    // Its elements would be shifted onto each other.
    refused("stacks", &["header stack `s`", "different types"], |program| {
        let ids = with_varbit(program);
        let stacks = program["header_stacks"].as_array_mut().unwrap();
        stacks.push(json!({"name": "s", "id": 91, "header_ids": [ids[0], ids[2]]}));
    });
    // Extracted, its bits that fill no byte would be read behind the frame's end.
    refused("stacks", &["header stack `s`", "metadata"], |program| {
        let scalars = id_of(program, "scalars");
        program["header_stacks"].as_array_mut().unwrap().push(json!({"name": "s", "id": 91, "header_ids": [scalars]}));
    });
}

#[test]
fn varbits_are_copied_and_looked_ahead_to_only_where_they_fit() {
    refused("variable", &["primitive `assign_VL`", "different"], |program| {
        add_header(program, "short", json!([["a", "*"]]), Some(4));
        add_header(program, "long", json!([["a", "*"]]), Some(400));
        primitive(program, "assign_VL", json!([field("short", "a"), field("long", "a")]));
    });
    refused("variable", &["parser", "lookahead", "varbit"], |program| {
        add_header(program, "long", json!([["a", "*"]]), Some(2000));
        let lookahead = json!({"type": "lookahead", "value": [0, 16]});
        let op = json!({"op": "set", "parameters": [field("long", "a"), lookahead]});
        program["parsers"][0]["parse_states"][0]["parser_ops"].as_array_mut().unwrap().insert(0, op);
    });
}

#[test]
fn tables_that_share_a_profile_agree_on_the_parameters_of_its_actions() {
    // A member is written once, with the parameters of one of them.
    fn action(program: &mut Value, table_name: &str, at: usize) -> usize {
        let id = table(program, table_name)["action_ids"][at].clone();
        program["actions"].as_array().unwrap().iter().position(|action| action["id"] == id).unwrap()
    }
    for (change, how) in [(json!(2048), "wider"), (json!(null), "more")] {
        refused("profiles", &["table `TheIngress.chosen_too`", "TheIngress.selector", "parameters"], |program| {
            let at = (0..3).map(|at| action(program, "TheIngress.chosen_too", at));
            let at =
                at.collect::<Vec<_>>().into_iter().find(|&at| program["actions"][at]["runtime_data"][0].is_object());
            let params = program["actions"][at.expect("one has a parameter")]["runtime_data"].as_array_mut().unwrap();
            match how {
                "wider" => params[0]["bitwidth"] = change.clone(),
                _ => params.push(json!({"name": "more", "bitwidth": 64})),
            }
        });
    }
    // The same action named twice does not hide another one.
    refused("profiles", &["table `TheIngress.chosen_too`", "TheIngress.selector"], |program| {
        let ids = table(program, "TheIngress.chosen_too")["action_ids"].clone();
        table(program, "TheIngress.chosen_too")["action_ids"] = json!([ids[0], ids[0], ids[1]]);
    });
}

#[test]
fn control_flow_that_comes_back_is_refused() {
    refused("features", &["table `TheIngress.routes`", "loop"], |program| {
        let routes = table(program, "TheIngress.routes");
        routes["base_default_next"] = json!("TheIngress.routes");
        routes["next_tables"] = json!({});
    });
    refused("features", &["loop", "TheIngress.routes"], |program| {
        let init = program["pipelines"][0]["init_table"].clone();
        let routes = table(program, "TheIngress.routes");
        routes["base_default_next"] = init.clone();
        let next = routes["next_tables"].as_object_mut().unwrap();
        next.values_mut().for_each(|next| *next = init.clone());
    });
    refused("features", &["condition", "loop"], |program| {
        let condition = &mut program["pipelines"][0]["conditionals"][0];
        condition["false_next"] = condition["name"].clone();
    });
    // Tables whose one action is laid out in place.
    refused("features", &["loop"], |program| {
        let init = program["pipelines"][0]["init_table"].clone();
        let first = tables(program).iter_mut().find(|table| table["name"] == init).unwrap();
        first["base_default_next"] = init.clone();
        first["next_tables"] = json!({});
    });
}

/// P4's for loops go back, as `_jump` and `_jump_if_zero` do here.
#[test]
fn an_action_that_loops_ends() {
    let number = |value: u32| json!({"type": "hexstr", "value": format!("{value:#x}")});
    // Around itself; around a statement and a condition that never holds; around a condition that always does not.
    let loops: [&[(&str, Value)]; 3] = [
        &[("_jump", json!([number(0)]))],
        &[("_jump_if_zero", json!([number(1), number(2)])), ("_jump", json!([number(0)]))],
        &[("_jump_if_zero", json!([number(0), number(0)]))],
    ];
    for primitives in loops {
        let mut program = read("stacks");
        for (op, parameters) in primitives.iter().rev() {
            primitive(&mut program, op, parameters.clone());
        }
        let mut pair = Pair::new(program.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        for op in 0..20 {
            pair.same(1, &[vec![op; 70], vec![op]].concat());
        }
    }
}

#[test]
fn keys_and_parameters_are_bounded() {
    // Ten of 2048 bits, and so on.
    refused("features", &["table `TheIngress.addresses`", "key", "bits"], |program| {
        add_header(program, "long", json!([["a", 2048, false]]), None);
        let key = json!({"match_type": "exact", "name": "a", "target": ["long", "a"], "mask": null});
        table(program, "TheIngress.addresses")["key"] = json!(vec![key; 3000]);
    });
    refused("features", &["action", "parameters"], |program| {
        let params = vec![json!({"name": "p", "bitwidth": 2048}); 3000];
        program["actions"][5]["runtime_data"] = json!(params);
    });
    refused("features", &["table `TheIngress.addresses`", "size"], |program| {
        table(program, "TheIngress.addresses")["max_size"] = json!(u64::MAX);
        table(program, "TheIngress.addresses")["with_counters"] = json!(true);
    });
    refused("features", &["entry of table `TheIngress.fixed`", "priority"], |program| {
        table(program, "TheIngress.fixed")["entries"][0]["priority"] = json!(i64::MIN);
    });
}

/// However many actions loop, a packet goes through few rounds: with a loop in each it takes no longer than with one.
#[test]
fn all_loops_of_a_packet_end_together() {
    let mut program = read("features");
    let jump = json!({"op": "_jump", "parameters": [{"type": "hexstr", "value": "0x0"}]});
    let actions = program["actions"].as_array_mut().unwrap();
    actions.iter_mut().for_each(|action| action["primitives"].as_array_mut().unwrap().push(jump.clone()));
    let mut pair = Pair::new(program.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    for op in 0..20 {
        pair.same(1, &[vec![op; 70], vec![op]].concat());
    }
}

/// The frame of the native code stays small however many tables there are.
#[test]
fn tables_of_long_keys_need_no_more_stack() {
    let mut program = read("features");
    add_header(&mut program, "long", json!([["a", 2048, false]]), None);
    let key = json!({"match_type": "exact", "name": "a", "target": ["long", "a"], "mask": null});
    let mut long = table(&mut program, "TheIngress.addresses").clone();
    let end = long["base_default_next"].clone();
    long["key"] = json!(vec![key; 16]);
    long["next_tables"] = json!({});
    long.as_object_mut().unwrap().remove("entries");
    const TABLES: usize = 60;
    for number in 0..TABLES {
        let mut table = long.clone();
        table["name"] = json!(format!("long{number}"));
        table["base_default_next"] =
            if number + 1 < TABLES { json!(format!("long{}", number + 1)) } else { end.clone() };
        tables(&mut program).push(table);
    }
    program["pipelines"][0]["init_table"] = json!("long0");
    load(&program).unwrap();
}

#[test]
fn expressions_are_bounded() {
    // Each level names the one below as often as a header has fields.
    refused("stacks", &["expression", "large"], |program| {
        let mut index = json!({"type": "hexstr", "value": "0x0"});
        for _ in 0..12 {
            let stack = json!({"type": "header_stack", "value": "labels"});
            let element = operation("dereference_header_stack", stack, index);
            index = operation("==h", element.clone(), element);
        }
        let parameter = json!({"type": "expression", "value": index});
        primitive(program, "assign", json!([field("answer", "value"), parameter]));
    });
    refused("stacks", &["constant", "bits"], |program| {
        let parameter = json!({"type": "hexstr", "value": format!("0x{}", "f".repeat(100_000))});
        primitive(program, "assign", json!([field("answer", "value"), parameter]));
    });
    // Values that grow with every level.
    refused("stacks", &["expression", "bits"], |program| {
        let mut value = field("answer", "value");
        for _ in 0..20 {
            value = operation("<<", value, field("answer", "packet_length"));
        }
        primitive(program, "assign", json!([field("answer", "value"), value]));
    });
}

/// As many conditions as a header has fields, one in the other, would take more stack than a thread has.
#[test]
fn headers_of_many_fields_are_compared() {
    let mut program = read("stacks");
    let fields: Vec<Value> = (0..3000).map(|number| json!([format!("f{number}"), 8, false])).collect();
    add_header(&mut program, "one", json!(fields), None);
    add_header(&mut program, "two", json!(fields), None);
    let same = operation("==h", header("one"), header("two"));
    primitive(&mut program, "assign", json!([field("answer", "value"), same]));
    let loader = std::thread::Builder::new().stack_size(1 << 20);
    loader.spawn(move || load(&program).unwrap()).unwrap().join().unwrap();
}

#[test]
fn nesting_is_refused_before_it_takes_the_stack() {
    let mut program = read("features");
    primitive(&mut program, "truncate", json!([{"type": "expression", "value": "here"}]));
    let deep = format!("{}0{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let whole = program.to_string().replacen("\"here\"", &deep, 1);
    let error = Program::load(whole.as_bytes()).map(drop).expect_err("accepted").to_string();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn value_sets_are_of_the_same_fields_in_every_select() {
    refused("features", &["value set `set`", "other fields"], |program| {
        add_header(
            program,
            "bits",
            json!([["one", 12, false], ["a", 4, false], ["b", 4, false], ["c", 4, false]]),
            None,
        );
        program["parse_vsets"] = json!([{"name": "set", "id": 0, "compressed_bitwidth": 12, "max_size": 4}]);
        let select = |fields: &[&str], next: Value| {
            let transitions = json!([
                {"type": "parse_vset", "value": "set", "mask": null, "next_state": null},
                {"type": "default", "value": null, "mask": null, "next_state": next}
            ]);
            let key: Vec<Value> = fields.iter().map(|name| field("bits", name)).collect();
            (json!(key), transitions)
        };
        let states = program["parsers"][0]["parse_states"].as_array_mut().unwrap();
        for (name, fields) in [("first", &["one"][..]), ("second", &["a", "b", "c"])] {
            let (key, transitions) = select(fields, json!("start"));
            states.push(
                json!({"name": name, "id": 99, "parser_ops": [], "transitions": transitions, "transition_key": key}),
            );
        }
    });
}

#[test]
fn numbers_of_errors_are_32_bits() {
    refused("features", &["`errors`", "PacketTooShort"], |program| {
        let errors = program["errors"].as_array_mut().unwrap();
        errors.iter_mut().filter(|error| error[0] == "PacketTooShort").for_each(|error| error[1] = json!(u64::MAX));
    });
}

#[test]
fn what_is_numbered_has_a_number_of_its_own() {
    refused("features", &["counter_arrays", "65537"], |program| {
        let counter = json!({"name": "c", "id": 0, "is_direct": false, "size": 1});
        program["counter_arrays"] = json!(vec![counter; (1 << 16) + 1]);
    });
    refused("features", &["parse_states", "at most 65535"], |program| {
        let state = json!({"name": "s", "id": 0, "parser_ops": [], "transitions": [], "transition_key": []});
        let states = program["parsers"][0]["parse_states"].as_array_mut().unwrap();
        states.extend(vec![state; 1 << 16]);
    });
}

/// Each state extracts the longest header once more: a small document, and gigabytes of code.
#[test]
fn code_is_bounded() {
    refused("features", &["native code", "long"], |program| {
        let fields: Vec<Value> = (0..2000).map(|number| json!([format!("f{number}"), 64, false])).collect();
        add_header(program, "long", json!(fields), None);
        let extract = json!({"op": "extract", "parameters": [{"type": "regular", "value": "long"}]});
        program["parsers"][0]["parse_states"][0]["parser_ops"] = json!(vec![extract; 20_000]);
    });
    refused("features", &["native code", "long"], |program| {
        let fields: Vec<Value> = (0..2000).map(|number| json!([format!("f{number}"), 64, false])).collect();
        add_header(program, "long", json!(fields), None);
        program["deparsers"][0]["order"] = json!(vec!["long"; 20_000]);
    });
}

/// Checks that what a refusal quotes is cut.
#[test]
fn refusals_are_short() {
    refused("features", &["primitive", "..."], |program| {
        let parameter = json!({"type": "field", "value": vec!["x".repeat(1000); 1000]});
        primitive(program, "truncate", json!([parameter]));
    });
}

#[test]
fn a_machine_takes_the_shared_state_of_its_own_program_only() {
    let [features, wide] = ["features", "wide"].map(|name| Program::load(read(name).to_string().as_bytes()).unwrap());
    Machine::new(&features, Arc::new(Shared::new(&features)), 1);
    let of = |program: &Program, other: &Program| {
        let shared = Arc::new(Shared::new(other));
        std::panic::catch_unwind(|| drop(Machine::new(program, shared, 1))).is_ok()
    };
    assert!(!of(&features, &wide));
    // What the program says of itself is not what its code takes for granted.
    let mut fewer = features.clone();
    fewer.counters.clear();
    assert!(!of(&fewer, &fewer));
    let mut wider = features.clone();
    wider.registers.iter_mut().for_each(|register| register.width = 2048);
    assert!(!of(&features, &wider));
}
