// SPDX-License-Identifier: Apache-2.0
//! Ingress and egress: tables, conditionals and action calls as one piece of code.
//!
//! The control-flow graph is laid out depth first; a node that is reached again is jumped to. Tables that the
//! compiler made for code between tables (no key, constant default action) become that code.

use std::collections::HashMap;

use num_bigint::BigUint;

use super::actions;
use super::asm::{Assembler, Label, Param};
use super::expr;
use super::json::{self, Document};
use super::phv::MAX_WIDTH;
use super::{LoadError, Objects, place_of, refuse, tables};
use crate::program::{ActionCall, ActionId, ActionInfo, FieldInfo, Program, TableId, Value};
use crate::state::code::{Message, TableAction, TableCode};
use crate::state::op::{Address, Op, Reg};
use crate::value::words;

pub struct Control {
    pub ingress: Address,
    pub egress: Address,
    pub tables: Vec<TableCode>,
}

/// Action body and where it goes on, to be resolved when all code is laid out.
struct PendingAction {
    body: Option<Label>,
    next_hit: Label,
    next_miss: Label,
    param_words: usize,
}

struct Compiler<'c, 'd, 'a> {
    doc: &'d Document,
    asm: &'c mut Assembler<'a>,
    objects: &'c Objects,
    messages: &'c mut Vec<Message>,
    program: &'c mut Program,
    action_ids: HashMap<u64, ActionId>,
    bodies: HashMap<ActionId, Label>,
    tables: Vec<TableCode>,
    pending: Vec<Vec<PendingAction>>,
}

enum Node<'d> {
    Table(&'d json::Table),
    Conditional(&'d json::Conditional),
    ActionCall(&'d json::ActionCall),
}

impl<'d> Node<'d> {
    /// Names of the nodes that may follow.
    fn next(&self) -> Vec<&'d str> {
        let names: Vec<&'d Option<String>> = match self {
            Node::Table(table) => table.next_tables.values().chain([&table.base_default_next]).collect(),
            Node::Conditional(conditional) => vec![&conditional.true_next, &conditional.false_next],
            Node::ActionCall(call) => vec![&call.next_node],
        };
        names.into_iter().flatten().map(String::as_str).collect()
    }

    fn place(&self) -> String {
        match self {
            Node::Table(table) => place_of("table", &table.name, &table.source_info),
            Node::Conditional(conditional) => place_of("condition", &conditional.name, &conditional.source_info),
            Node::ActionCall(call) => place_of("action call", &call.name, &None),
        }
    }
}

/// Every packet leaves a pipeline: no node leads back to one that it was reached from.
fn check_flow<'d>(nodes: &HashMap<&'d str, Node<'d>>, init: &'d Option<String>) -> Result<(), LoadError> {
    let known = |name: &str| nodes.get_key_value(name);
    /// State of a node that was reached.
    #[derive(PartialEq)]
    enum Reached {
        OnTheWay,
        Left,
    }
    let mut reached: HashMap<&str, Reached> = HashMap::new();
    // The way to the node that is looked at: of each, its name and what is still to be followed from it.
    let mut way: Vec<(&str, Vec<&str>)> = Vec::new();
    let enter = |name: &'d str, way: &mut Vec<(&'d str, Vec<&'d str>)>, reached: &mut HashMap<&'d str, Reached>| {
        if let Some((&name, node)) = known(name) {
            reached.insert(name, Reached::OnTheWay);
            way.push((name, node.next()));
        }
    };
    if let Some(init) = init {
        enter(init, &mut way, &mut reached);
    }
    while let Some((name, next)) = way.last_mut() {
        let name = *name;
        match next.pop() {
            None => {
                reached.insert(name, Reached::Left);
                way.pop();
            }
            Some(next) => match reached.get(next) {
                None => enter(next, &mut way, &mut reached),
                Some(Reached::Left) => {}
                Some(Reached::OnTheWay) => {
                    let reason = format!("the control flow loops: it leads back to `{next}`, which leads to it");
                    return refuse(nodes[name].place(), reason);
                }
            },
        }
    }
    Ok(())
}

pub fn compile(
    doc: &Document,
    asm: &mut Assembler,
    objects: &Objects,
    messages: &mut Vec<Message>,
    program: &mut Program,
) -> Result<Control, LoadError> {
    let mut action_ids = HashMap::new();
    for action in &doc.actions {
        let place = place_of("action", &action.name, &action.source_info);
        let mut params = Vec::new();
        for param in &action.runtime_data {
            if !(1..=MAX_WIDTH).contains(&param.bitwidth) {
                let reason = format!(
                    "parameter `{}` of {} bits is not supported (1 to {MAX_WIDTH})",
                    param.name, param.bitwidth
                );
                return refuse(place, reason);
            }
            params.push(FieldInfo { name: param.name.clone(), width: param.bitwidth });
        }
        action_ids.insert(action.id, ActionId(program.actions.len()));
        program.actions.push(ActionInfo { name: action.name.clone(), params });
    }
    let mut compiler = Compiler {
        doc,
        asm,
        objects,
        messages,
        program,
        action_ids,
        bodies: HashMap::new(),
        tables: Vec::new(),
        pending: Vec::new(),
    };
    let ingress = compiler.pipeline("ingress")?;
    let egress = compiler.pipeline("egress")?;
    compiler.action_bodies()?;
    let Compiler { asm, mut tables, pending, .. } = compiler;
    for (table, actions) in tables.iter_mut().zip(pending) {
        table.actions = actions
            .into_iter()
            .map(|action| TableAction {
                body: action.body.map(|label| asm.address(label)),
                next_hit: asm.address(action.next_hit),
                next_miss: asm.address(action.next_miss),
                param_words: action.param_words,
            })
            .collect();
        table.no_action = table.actions.pop().unwrap_or_default();
    }
    Ok(Control { ingress, egress, tables })
}

impl<'d> Compiler<'_, 'd, '_> {
    fn pipeline(&mut self, name: &str) -> Result<Address, LoadError> {
        let Some(pipeline) = self.doc.pipelines.iter().find(|p| p.name == name) else {
            return refuse("`pipelines`", format!("there is no `{name}`: this is not a v1model program"));
        };
        let mut nodes: HashMap<&'d str, Node<'d>> = HashMap::new();
        nodes.extend(pipeline.tables.iter().map(|t| (t.name.as_str(), Node::Table(t))));
        nodes.extend(pipeline.conditionals.iter().map(|c| (c.name.as_str(), Node::Conditional(c))));
        nodes.extend(pipeline.action_calls.iter().map(|c| (c.name.as_str(), Node::ActionCall(c))));
        check_flow(&nodes, &pipeline.init_table)?;

        let end = self.asm.new_label();
        let mut labels: HashMap<&'d str, Label> = HashMap::new();
        for &name in nodes.keys() {
            labels.insert(name, self.asm.new_label());
        }
        let find = |next: &'d Option<String>, from: &str| -> Result<Option<&'d str>, LoadError> {
            match next {
                None => Ok(None),
                Some(next) if nodes.contains_key(next.as_str()) => Ok(Some(next.as_str())),
                Some(next) => refuse(from, format!("unknown next node `{next}`")),
            }
        };
        let label = |next: Option<&str>| next.map_or(end, |name| labels[name]);

        let start = self.asm.new_label();
        self.asm.bind(start);
        let mut done: HashMap<&str, ()> = HashMap::new();
        let mut waiting = vec![find(&pipeline.init_table, name)?];
        while let Some(mut node) = waiting.pop() {
            // Lay out a chain of nodes.
            loop {
                let Some(name) = node else {
                    self.asm.jump(end);
                    break;
                };
                if done.insert(name, ()).is_some() {
                    self.asm.jump(labels[name]);
                    break;
                }
                self.asm.bind(labels[name]);
                self.asm.next_statement();
                self.asm.params.clear();
                match &nodes[name] {
                    Node::Conditional(conditional) => {
                        self.asm.place = place_of("condition", name, &conditional.source_info);
                        let place = self.asm.place.clone();
                        let condition = expr::parse(&conditional.expression, self.asm.phv, &place)?;
                        let no = find(&conditional.false_next, &place)?;
                        self.asm.branch(&condition, false, label(no))?;
                        waiting.push(no);
                        node = find(&conditional.true_next, &place)?;
                    }
                    Node::ActionCall(call) => {
                        let place = place_of("action call", name, &None);
                        let Some(&action) = self.action_ids.get(&call.action_id) else {
                            return refuse(place, format!("unknown action id {}", call.action_id));
                        };
                        self.inline(&ActionCall { action, params: Vec::new() })?;
                        node = find(&call.next_node, &place)?;
                    }
                    Node::Table(table) => {
                        let place = place_of("table", name, &table.source_info);
                        let id = self.declare_table(table)?;
                        let next = |action: ActionId, how: &str| -> Result<Option<&'d str>, LoadError> {
                            let name = &self.program.actions[action.0].name;
                            let next = table.next_tables.get(how).or_else(|| table.next_tables.get(name));
                            find(next.unwrap_or(&table.base_default_next), &place)
                        };
                        let info = &self.program.tables[id.0];
                        let default = self.program.defaults[id.0].clone();
                        if let (true, true, Some(call)) = (info.key.is_empty(), info.const_default, default) {
                            node = next(call.action, "__MISS__")?;
                            self.inline(&call)?;
                            continue;
                        }
                        let mut pending = Vec::new();
                        let mut reached = Vec::new();
                        for &action in &info.actions {
                            let (hit, miss) = (next(action, "__HIT__")?, next(action, "__MISS__")?);
                            reached.extend([hit, miss]);
                            pending.push((action, label(hit), label(miss)));
                        }
                        // A table without any action still goes on.
                        if pending.is_empty() {
                            return refuse(place, "a table without actions is not supported");
                        }
                        self.asm.code.push(Op::Apply { table: id.0 as u16 });
                        let pending = pending.into_iter().map(|(action, next_hit, next_miss)| PendingAction {
                            body: self.body_label(action),
                            next_hit,
                            next_miss,
                            param_words: self.param_words(action),
                        });
                        let mut pending: Vec<_> = pending.collect();
                        // Last, what happens if there is no action: no default, or an empty group.
                        let next =
                            |how: &str| find(table.next_tables.get(how).unwrap_or(&table.base_default_next), &place);
                        let (hit, miss) = (next("__HIT__")?, next("__MISS__")?);
                        reached.extend([hit, miss]);
                        let (next_hit, next_miss) = (label(hit), label(miss));
                        pending.push(PendingAction { body: None, next_hit, next_miss, param_words: 0 });
                        self.pending[id.0] = pending;
                        reached.retain(|next| next.is_some_and(|name| !done.contains_key(name)));
                        reached.reverse();
                        waiting.extend(reached);
                        break;
                    }
                }
            }
        }
        self.asm.bind(end);
        self.asm.code.push(Op::Exit);
        Ok(self.asm.address(start))
    }

    fn declare_table(&mut self, table: &'d json::Table) -> Result<TableId, LoadError> {
        let (info, code) =
            tables::compile(table, self.doc, self.asm.phv, &self.action_ids, self.objects, self.program)?;
        let default = tables::default_action(table, &info, &self.action_ids, self.program)?;
        let id = TableId(self.program.tables.len());
        for (key, action) in tables::const_entries(table, &info, &self.action_ids, self.program)? {
            self.program.const_entries.push((id, key, action));
        }
        self.program.tables.push(info);
        self.program.defaults.push(default);
        self.tables.push(code);
        self.pending.push(Vec::new());
        Ok(id)
    }

    fn param_words(&self, action: ActionId) -> usize {
        self.program.actions[action.0].params.iter().map(|p| words(p.width)).sum()
    }

    /// The action's code in place, with constant parameters.
    fn inline(&mut self, call: &ActionCall) -> Result<(), LoadError> {
        let constant = |value: &Value| Param::Constant(BigUint::from(value).into());
        self.asm.params = call.params.iter().map(constant).collect();
        let action = &self.doc.actions[call.action.0];
        actions::body(&action.primitives, &action.name, self.asm, self.objects, self.messages)
    }

    fn body_label(&mut self, action: ActionId) -> Option<Label> {
        if self.doc.actions[action.0].primitives.is_empty() {
            return None;
        }
        if let Some(&label) = self.bodies.get(&action) {
            return Some(label);
        }
        let label = self.asm.new_label();
        self.bodies.insert(action, label);
        Some(label)
    }

    /// The code of every action that a table can run.
    fn action_bodies(&mut self) -> Result<(), LoadError> {
        let mut bodies: Vec<_> = self.bodies.iter().map(|(&action, &label)| (action, label)).collect();
        bodies.sort();
        for (action, label) in bodies {
            let mut reg = self.asm.phv.fields as Reg;
            self.asm.params.clear();
            for param in &self.program.actions[action.0].params {
                self.asm.params.push(Param::Register { reg, width: param.width });
                reg += words(param.width) as Reg;
            }
            self.asm.bind(label);
            let action = &self.doc.actions[action.0];
            actions::body(&action.primitives, &action.name, self.asm, self.objects, self.messages)?;
            self.asm.code.push(Op::Return);
        }
        Ok(())
    }
}
