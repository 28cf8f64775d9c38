// SPDX-License-Identifier: Apache-2.0
//! Controls, tables and actions of one packet.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use num_bigint::{BigInt, BigUint};

use super::hash::Algorithm;
use super::packet_trace::{Event, show};
use super::phv::{Bits, Packet, Scope, fit, is_true, low64};
use super::program::*;
use super::registers::Registers;
use super::stacks::{copy_header, copy_stack, copy_union, pop, push};
use super::tables::{Entries, show as show_key};
use apswitch_core::dataplane_ops::{CounterValue, MeterConfig};
use apswitch_core::program::{ActionCall, KeyField, Value};
use apswitch_core::state::meter::{self, Meter};

/// v1model's port of packets that are dropped.
pub const DROP_PORT: u64 = 511;

/// Times that an action may go back to an earlier statement; with more it ends.
const MAX_JUMPS_BACK: usize = 4096;
const COLOURS: [&str; 3] = ["green", "yellow", "red"];

/// Requests of a control for the packet.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    pub digests: BTreeSet<usize>,
    /// Session and field list.
    pub clone: Option<(u32, usize)>,
    /// Field lists.
    pub resubmit: Option<usize>,
    pub recirculate: Option<usize>,
}

#[derive(Debug, PartialEq)]
enum Flow {
    GoOn,
    Exit,
}

/// The program and what outlives a packet.
pub struct Interpreter {
    pub program: Arc<Program>,
    /// By name.
    pub tables: HashMap<String, Entries>,
    pub counters: Vec<Vec<CounterValue>>,
    pub meters: Vec<Vec<(Option<MeterConfig>, Option<Meter>)>>,
    pub registers: Registers,
    /// Members, field by field.
    pub value_sets: Vec<Vec<Vec<KeyField>>>,
    /// P4's `random`.
    pub rng: fastrand::Rng,
    /// ns since the start.
    pub now: u64,
    pub trace: Option<Vec<Event>>,
}

impl Interpreter {
    pub fn new(program: Arc<Program>, seed: u64) -> Interpreter {
        Interpreter {
            tables: HashMap::new(),
            counters: program.counters.iter().map(|c| vec![CounterValue::default(); c.size]).collect(),
            meters: program.meters.iter().map(|m| vec![(None, None); m.size]).collect(),
            registers: Registers::new(&program),
            value_sets: vec![Vec::new(); program.value_sets.len()],
            program,
            rng: fastrand::Rng::with_seed(seed),
            now: 0,
            trace: None,
        }
    }

    /// An unchanged meter keeps its buckets.
    pub fn set_meter(&mut self, array: usize, index: usize, config: Option<MeterConfig>) {
        let cell = &mut self.meters[array][index];
        if cell.0 != config {
            *cell = (config, config.map(|config| config.meter(self.now)));
        }
    }

    pub fn note(&mut self, event: impl FnOnce() -> Event) {
        if let Some(trace) = &mut self.trace {
            trace.push(event());
        }
    }

    /// Runs a control to its end.
    pub fn run(&mut self, control: &Control, packet: &mut Packet) -> Requests {
        let program = self.program.clone();
        let mut requests = Requests::default();
        self.note(|| Event::Control { name: control.name });
        let mut next = control.start;
        while let Some(index) = next {
            let (flow, after) = match &control.nodes[index] {
                Node::Condition(condition) => {
                    let holds = scope(&program, packet, &[]).holds(&condition.expr);
                    let (text, place) = (&condition.source.text, &condition.source.place);
                    self.note(|| Event::Condition { text: text.clone(), place: place.clone(), holds });
                    (Flow::GoOn, if holds { condition.then } else { condition.otherwise })
                }
                Node::Call(action, after) => {
                    let action = &program.actions[*action];
                    (self.execute(&action.name, &action.body, &[], packet, &mut requests), *after)
                }
                Node::Table(table) => self.apply(table, packet, &mut requests),
            };
            if flow == Flow::Exit {
                break;
            }
            next = after;
        }
        requests
    }

    fn apply(&mut self, table: &Table, packet: &mut Packet, requests: &mut Requests) -> (Flow, Option<usize>) {
        let program = self.program.clone();
        let widths: Vec<u32> = table.key.iter().map(|key| packet.phv.width(&program, key.header, key.part)).collect();
        let key: Vec<BigInt> =
            table.key.iter().zip(&widths).map(|(key, &width)| key_value(key, width, packet)).collect();
        let values: Vec<Value> = key.iter().map(|value| value.magnitude().into()).collect();
        let found = self.tables.get(&table.name).and_then(|entries| entries.find(&values, &widths));
        self.direct(table, found, packet);
        let entries = self.tables.get(&table.name);
        let entry = entries.and_then(|entries| found.map(|index| &entries.entries[index]));
        let call: Option<ActionCall> = match entry {
            Some(entry) => {
                let hash =
                    table.selector.as_ref().map_or(0, |selector| calculate(&program, selector, packet, &mut self.rng));
                // An empty group does nothing.
                hash.checked_rem(entry.actions.len() as u64).map(|chosen| entry.actions[chosen as usize].clone())
            }
            None => entries.and_then(|entries| entries.default.clone()),
        };
        let action = call.as_ref().map(|call| &program.actions[call.action.0]);
        if self.trace.is_some() {
            let names: Vec<String> = table.key.iter().map(|key| key.name.clone()).collect();
            let shown = names.iter().zip(&key).zip(&widths);
            let params = call.iter().flat_map(|call| &call.params).map(|value| BigInt::from(BigUint::from(value)));
            let event = Event::Table {
                name: table.name.clone(),
                place: table.source.place.clone(),
                key: shown.map(|((name, value), &width)| (name.clone(), show(value, width))).collect(),
                entry: entry.map(|entry| show_key(&entry.key, &names)),
                action: action.map(|action| action.name.clone()),
                params: action.map_or_else(Vec::new, |action| {
                    let named = action.params.iter().zip(params);
                    named.map(|((name, width), value)| (name.clone(), show(&value, *width))).collect()
                }),
            };
            self.note(|| event);
        }
        let how = if found.is_some() { "__HIT__" } else { "__MISS__" };
        let Some((call, action)) = call.as_ref().zip(action) else {
            // A miss without a default does nothing.
            return (Flow::GoOn, table.next.get(how).copied().unwrap_or(table.default_next));
        };
        let params: Vec<BigInt> = call.params.iter().map(|value| BigInt::from(BigUint::from(value))).collect();
        let flow = self.execute(&action.name, &action.body, &params, packet, requests);
        let next = table.next.get(how).or_else(|| table.next.get(&action.name));
        (flow, next.copied().unwrap_or(table.default_next))
    }

    /// Direct meter and counter, on a miss those of the default entry.
    fn direct(&mut self, table: &Table, found: Option<usize>, packet: &mut Packet) {
        let (length, now) = (packet.ingress_length, self.now);
        let Some(entries) = self.tables.get_mut(&table.name) else { return };
        let direct = match found {
            Some(index) => &mut entries.entries[index].direct,
            None => &mut entries.missed,
        };
        if table.has_counter {
            direct.counter.packets += 1;
            direct.counter.bytes += length;
        }
        // As BMv2: without a configuration a miss has no colour.
        let coloured = found.is_some() || direct.config.is_some();
        if let Some((target, bytes)) = table.meter.as_ref().filter(|_| coloured) {
            let colour = meter::colour(direct.meter.as_mut(), if *bytes { length } else { 1 }, now);
            self.assign(target, &BigInt::from(colour), packet, &[]);
            self.note(|| Event::Colour { of: table.name.clone(), colour: COLOURS[colour as usize] });
        }
    }

    /// Writes to a field; to an element beyond its stack, nothing.
    pub fn assign(
        &mut self,
        target: &FieldRef,
        value: &BigInt,
        packet: &mut Packet,
        params: &[BigInt],
    ) -> Vec<(String, String)> {
        let program = self.program.clone();
        let Some(header) = scope(&program, packet, params).header(&target.header) else { return Vec::new() };
        let Part::Field(field) = target.part else { return Vec::new() };
        packet.phv.set(&program, header, field, value);
        if self.trace.is_none() {
            return Vec::new();
        }
        let width = packet.phv.width(&program, header, target.part);
        vec![(program.field_name(header, target.part), show(&packet.phv.get(header, target.part), width))]
    }

    fn execute(
        &mut self,
        action: &str,
        body: &[Statement],
        params: &[BigInt],
        packet: &mut Packet,
        requests: &mut Requests,
    ) -> Flow {
        let mut at = 0;
        while let Some(statement) = body.get(at) {
            at += 1;
            if let Primitive::Jump(target) | Primitive::JumpIfZero(_, target) = &statement.primitive
                && *target < at
            {
                packet.jumps_back += 1;
                if packet.jumps_back > MAX_JUMPS_BACK {
                    break;
                }
            }
            match &statement.primitive {
                Primitive::Jump(target) => at = *target,
                Primitive::JumpIfZero(condition, target) => {
                    let holds = scope(&self.program, packet, params).holds(condition);
                    let Source { place, text } = &statement.source;
                    if !text.is_empty() {
                        self.note(|| Event::Condition { text: text.clone(), place: place.clone(), holds });
                    }
                    if !holds {
                        at = *target;
                    }
                }
                _ => {
                    if self.statement(action, statement, params, packet, requests) == Flow::Exit {
                        return Flow::Exit;
                    }
                }
            }
        }
        Flow::GoOn
    }

    /// Outside actions nobody exits.
    pub fn run_statement(&mut self, statement: &Statement, packet: &mut Packet) {
        self.statement("", statement, &[], packet, &mut Requests::default());
    }

    fn statement(
        &mut self,
        action: &str,
        statement: &Statement,
        params: &[BigInt],
        packet: &mut Packet,
        requests: &mut Requests,
    ) -> Flow {
        let program = self.program.clone();
        // Before the statement changes anything.
        let eval = |expr: &Expr, packet: &Packet| scope(&program, packet, params).eval(expr);
        let index = |expr: &Expr, packet: &Packet| low64(&eval(expr, packet)) as usize;
        let mut result = Vec::new();
        match &statement.primitive {
            Primitive::Assign(target, value) => {
                let value = eval(value, packet);
                result = self.assign(target, &value, packet, params);
                if program.standard.get("standard_metadata.egress_spec").is_some_and(|&(header, field)| {
                    matches!(target.header, HeaderRef::Header(h) if h == header) && target.part == Part::Field(field)
                }) {
                    packet.chosen_by = who(action, statement);
                }
            }
            Primitive::AssignVarbit(to, from) => self.assign_varbit(to, from, packet, params),
            Primitive::AssignHeader(to, from) => {
                let scope = scope(&program, packet, params);
                if let (Some(to), Some(from)) = (scope.header(to), scope.header(from)) {
                    copy_header(&program, packet, to, from);
                }
            }
            Primitive::AssignUnion(to, from) => {
                let scope = scope(&program, packet, params);
                if let (Some(to), Some(from)) = (scope.union(to), scope.union(from)) {
                    copy_union(&program, packet, to, from);
                }
            }
            Primitive::AssignStack { to, from } => copy_stack(&program, packet, *to, *from),
            Primitive::AddHeader(header) => {
                let header = scope(&program, packet, params).header(header);
                if let Some(header) = header.filter(|&header| !packet.phv.headers[header].valid) {
                    packet.phv.set_valid(&program, header, true);
                    let value = &mut packet.phv.headers[header];
                    value.fields.fill(BigInt::ZERO);
                    value.varbit = 0;
                }
            }
            Primitive::RemoveHeader(header) => {
                if let Some(header) = scope(&program, packet, params).header(header) {
                    packet.phv.set_valid(&program, header, false);
                }
            }
            Primitive::Push(stack, count) => {
                let count = index(count, packet);
                push(&program, &mut packet.phv, *stack, count);
            }
            Primitive::Pop(stack, count) => {
                let count = index(count, packet);
                pop(&program, &mut packet.phv, *stack, count);
            }
            Primitive::Exit => {}
            Primitive::MarkToDrop => {
                self.mark_to_drop(packet);
                packet.chosen_by = who(action, statement);
            }
            Primitive::Count { counter, index: at } => {
                let length = packet.ingress_length;
                if let Some(cell) = self.counters[*counter].get_mut(index(at, packet)) {
                    cell.packets += 1;
                    cell.bytes += length;
                }
            }
            Primitive::ExecuteMeter { meter, index: at, to } => {
                let amount = if program.meters[*meter].bytes { packet.ingress_length } else { 1 };
                let (at, now) = (index(at, packet), self.now);
                if let Some((_, cell)) = self.meters[*meter].get_mut(at) {
                    let colour = meter::colour(cell.as_mut(), amount, now);
                    let of = format!("{}[{at}]", program.meters[*meter].name);
                    self.note(|| Event::Colour { of, colour: COLOURS[colour as usize] });
                    result = self.assign(to, &BigInt::from(colour), packet, params);
                }
            }
            Primitive::ReadRegister { register, index: at, to } => {
                if let Some(value) = self.registers.get(*register, index(at, packet)) {
                    result = self.assign(to, &value, packet, params);
                }
            }
            Primitive::WriteRegister { register, index: at, value } => {
                let width = program.registers[*register].width;
                let (at, value) = (index(at, packet), fit(&eval(value, packet), width, false));
                if self.registers.set(*register, at, value.clone()) && self.trace.is_some() {
                    let name = format!("{}[{at}]", program.registers[*register].name);
                    result = vec![(name, show(&value, width))];
                }
            }
            Primitive::Digest(list) => {
                requests.digests.insert(*list);
            }
            Primitive::Random { to, low, high } => {
                let (low, high) = (low64(&eval(low, packet)), low64(&eval(high, packet)));
                // An empty range leaves the field as it was.
                if low <= high {
                    let value = self.rng.u64(low..=high);
                    result = self.assign(to, &BigInt::from(value), packet, params);
                }
            }
            Primitive::Hash { to, calculation, low, size } => {
                let (low, size) = (low64(&eval(low, packet)), low64(&eval(size, packet)));
                let hash = calculate(&program, &program.calculations[*calculation], packet, &mut self.rng);
                let value = low.wrapping_add(hash % size.max(1));
                result = self.assign(to, &BigInt::from(value), packet, params);
            }
            Primitive::Clone { session, fields } => {
                requests.clone = Some((low64(&eval(session, packet)) as u32, *fields));
            }
            Primitive::Resubmit { fields } => requests.resubmit = Some(*fields),
            Primitive::Recirculate { fields } => requests.recirculate = Some(*fields),
            Primitive::Truncate(length) => packet.truncate = packet.truncate.min(low64(&eval(length, packet))),
            Primitive::Log { format, values } => {
                let mut text = format.clone();
                for value in values {
                    text = text.replacen("{}", &eval(value, packet).to_string(), 1);
                }
                self.note(|| Event::Log { text });
                return Flow::GoOn;
            }
            Primitive::Assert(condition) => {
                if !is_true(&eval(condition, packet)) {
                    self.mark_to_drop(packet);
                    packet.chosen_by = who(action, statement);
                    return Flow::Exit;
                }
            }
            Primitive::Nothing | Primitive::Jump(_) | Primitive::JumpIfZero(..) => return Flow::GoOn,
        }
        let Source { place, text } = &statement.source;
        if !text.is_empty() || !result.is_empty() {
            let text = if text.is_empty() { "sets".to_string() } else { text.clone() };
            self.note(|| Event::Step { text, place: place.clone(), result });
        }
        if matches!(statement.primitive, Primitive::Exit) { Flow::Exit } else { Flow::GoOn }
    }

    fn mark_to_drop(&mut self, packet: &mut Packet) {
        self.set_standard(packet, "standard_metadata.egress_spec", DROP_PORT);
        self.set_standard(packet, "intrinsic_metadata.mcast_grp", 0);
    }

    /// A field of the architecture, if the program has it.
    pub fn set_standard(&self, packet: &mut Packet, name: &str, value: u64) {
        if let Some(&(header, field)) = self.program.standard.get(name) {
            packet.phv.set(&self.program, header, field, &BigInt::from(value));
        }
    }

    /// 0 if the program does not have it.
    pub fn standard(&self, packet: &Packet, name: &str) -> u64 {
        let place = self.program.standard.get(name);
        place.map_or(0, |&(header, field)| low64(&packet.phv.get(header, Part::Field(field))))
    }

    fn assign_varbit(&mut self, to: &FieldRef, from: &FieldRef, packet: &mut Packet, params: &[BigInt]) {
        let program = self.program.clone();
        let scope = scope(&program, packet, params);
        let (value, from) = (scope.field(from), scope.header(&from.header));
        if let (Some(header), Part::Field(field), Some(from)) = (scope.header(&to.header), to.part, from) {
            packet.phv.headers[header].varbit = packet.phv.headers[from].varbit;
            packet.phv.set(&program, header, field, &value);
        }
    }
}

/// The statement as the reason for an egress port.
fn who(action: &str, statement: &Statement) -> String {
    let Source { place, text } = &statement.source;
    match (text.is_empty(), place.is_empty()) {
        (false, _) => format!("`{text}` ({place})"),
        (true, false) => place.clone(),
        (true, true) => format!("action {action}"),
    }
}

pub fn scope<'a>(program: &'a Program, packet: &'a Packet, params: &'a [BigInt]) -> Scope<'a> {
    Scope { program, phv: &packet.phv, params }
}

/// A field of an invalid header is 0 in a key.
fn key_value(key: &Key, width: u32, packet: &Packet) -> BigInt {
    let value = packet.phv.get(key.header, key.part);
    if !packet.phv.headers[key.header].valid && key.part != Part::Valid {
        return BigInt::ZERO;
    }
    let value = fit(&value, width, false);
    match &key.mask {
        Some(mask) => value & mask,
        None => value,
    }
}

/// The hash of what is valid of the input.
pub fn calculate(program: &Program, calculation: &Calculation, packet: &Packet, rng: &mut fastrand::Rng) -> u64 {
    let mut bits = Bits::default();
    let mut payload = false;
    for input in &calculation.input {
        match input {
            HashInput::Field { header, field } if packet.phv.headers[*header].valid => {
                let part = Part::Field(*field);
                bits.push(&packet.phv.get(*header, part), packet.phv.width(program, *header, part));
            }
            HashInput::Header(header) if packet.phv.headers[*header].valid => {
                bits.push(&BigInt::ZERO, bits.len.next_multiple_of(8) - bits.len);
                packet.phv.push_header(program, *header, &mut bits);
            }
            HashInput::Field { .. } | HashInput::Header(_) => {}
            HashInput::Constant { value, width } => bits.push(value, *width),
            HashInput::Payload => payload = true,
        }
    }
    let mut bytes = bits.bytes();
    if payload {
        bytes.extend_from_slice(packet.payload());
    }
    Algorithm::hash(calculation.algorithm, &bytes, rng)
}
