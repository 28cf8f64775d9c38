// SPDX-License-Identifier: Apache-2.0
//! The machine: runs a compiled program for one packet at a time. It knows nothing of ports; time is an argument.

pub mod bits;
pub mod code;
pub mod frame;
pub mod hash;
pub mod headers;
pub mod meter;
pub mod op;
mod parse;
pub mod profile;
pub mod select;
pub mod table;
pub mod wide;
pub mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ethnum::I256;

use self::code::{Code, Place};
use self::frame::{Frame, PacketState};
use self::meter::Meter;
use self::op::{Address, Effect, Op, REGISTERS, Reg, Registers};
use self::profile::{GROUP, Profile};
use self::select::SetMember;
use self::table::{EntryStats, Table};
use crate::program::{MeterUnit, Program};

/// v1model's port of packets that are dropped.
pub const DROP_PORT: u64 = 511;

/// A counter cell, written by the packet thread alone.
#[derive(Default, Debug)]
pub struct CounterCell {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
}

/// What the packet thread writes and everybody reads.
#[derive(Debug)]
pub struct Shared {
    pub counters: Vec<Arc<[CounterCell]>>,
    pub registers: Vec<Arc<[AtomicU64]>>,
    /// For each table, a cell for each slot; none if nothing is counted.
    pub entries: Vec<Arc<[EntryStats]>>,
}

impl Shared {
    pub fn new(program: &Program) -> Shared {
        fn cells<T: Default>(size: usize) -> Arc<[T]> {
            (0..size).map(|_| T::default()).collect()
        }
        Shared {
            counters: program.counters.iter().map(|c| cells(c.size)).collect(),
            registers: program.registers.iter().map(|r| cells(r.size)).collect(),
            entries: (program.code.tables.iter())
                .map(|t| cells(if t.counter || t.timeout { t.max_size } else { 0 }))
                .collect(),
        }
    }
}

/// Adds to an atomic that only this thread writes.
#[inline]
fn add(cell: &AtomicU64, amount: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// What a pipeline asked to happen to the packet, beside its registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// Bit i: digest i.
    pub digests: u64,
    /// Session and field list.
    pub clone: Option<(u32, u16)>,
    /// Field lists.
    pub resubmit: Option<u16>,
    pub recirculate: Option<u16>,
}

/// A program and the state that it runs on.
pub struct Machine {
    pub code: Arc<Code>,
    pub state: State,
}

pub struct State {
    pub shared: Arc<Shared>,
    pub regs: Box<Registers>,
    pub tables: Vec<Table>,
    pub meters: Vec<Vec<Meter>>,
    pub value_sets: Vec<Vec<SetMember>>,
    pub profiles: Vec<Profile>,
    meter_bytes: Vec<bool>,
    pub packet: PacketState,
    pub requests: Requests,
    rng: fastrand::Rng,
    scratch: Vec<u8>,
}

impl Machine {
    /// `seed` is that of P4's `random`.
    pub fn new(program: &Program, shared: Arc<Shared>, seed: u64) -> Machine {
        let code = program.code.clone();
        let mut regs = Box::new([0; REGISTERS]);
        for &(reg, value) in &code.constants {
            regs[reg as usize] = value;
        }
        let tables = code.tables.iter().zip(&shared.entries);
        let state = State {
            tables: tables.map(|(table, stats)| Table::new(table, stats.clone(), seed)).collect(),
            meters: program.meters.iter().map(|m| vec![Meter::default(); m.size]).collect(),
            profiles: code.selectors.iter().map(|_| Profile::default()).collect(),
            value_sets: vec![Vec::new(); program.value_sets.len()],
            meter_bytes: program.meters.iter().map(|m| m.unit == MeterUnit::Bytes).collect(),
            shared,
            regs,
            packet: PacketState::default(),
            requests: Requests::default(),
            rng: fastrand::Rng::with_seed(seed),
            scratch: Vec::new(),
        };
        Machine { code, state }
    }

    /// An empty PHV for the next packet.
    #[inline]
    pub fn reset(&mut self) {
        self.state.regs[..self.code.phv.len()].copy_from_slice(&self.code.phv);
        self.state.requests = Requests::default();
    }

    /// The registers that travel with a packet.
    pub fn phv(&self) -> &[u64] {
        &self.state.regs[..self.code.phv.len()]
    }

    pub fn set_phv(&mut self, phv: &[u64]) {
        self.state.regs[..phv.len()].copy_from_slice(phv);
        self.state.requests = Requests::default();
    }

    /// Takes the fields of a list over from another packet's PHV.
    pub fn copy_fields(&mut self, list: u16, phv: &[u64]) {
        for place in &self.code.field_lists[list as usize] {
            let range = place.reg as usize..place.reg as usize + place.words();
            self.state.regs[range.clone()].copy_from_slice(&phv[range]);
        }
    }

    /// The values of a digest as they are now.
    pub fn digest_values(&self, digest: usize) -> impl Iterator<Item = u128> {
        self.code.digests[digest].iter().map(|place| hash::read(*place, &self.state.regs))
    }

    pub fn get(&self, place: Place) -> u64 {
        self.state.get(place)
    }

    pub fn set(&mut self, place: Place, value: u64) {
        self.state.set(place, value);
    }

    pub fn ingress(&mut self, now: u64) {
        self.state.run(&self.code, self.code.ingress, now);
    }

    pub fn egress(&mut self, now: u64) {
        self.state.run(&self.code, self.code.egress, now);
    }

    /// See [`State::parse`].
    pub fn parse(&mut self, frame: &Frame, now: u64) {
        self.state.parse(&self.code, frame, now);
    }

    /// See [`State::deparse`].
    pub fn deparse(&mut self, frame: &mut Frame, now: u64) -> bool {
        self.state.deparse(&self.code, frame, now)
    }
}

impl State {
    /// A field of at most 64 bits.
    #[inline]
    pub fn get(&self, place: Place) -> u64 {
        self.regs[place.reg as usize % REGISTERS]
    }

    #[inline]
    pub fn set(&mut self, place: Place, value: u64) {
        self.regs[place.reg as usize % REGISTERS] = value & place.mask();
    }

    #[inline]
    fn reg(&self, reg: Reg) -> u64 {
        get(&self.regs, reg)
    }

    #[inline]
    fn put(&mut self, reg: Reg, value: u64) {
        put(&mut self.regs, reg, value);
    }

    /// Runs code until it ends. `now`: ns since the start of the switch.
    pub fn run(&mut self, code: &Code, start: Address, now: u64) {
        let mut pc = start as usize;
        let mut after_action = 0;
        loop {
            match run_on_registers(&code.ops, &mut pc, &mut self.regs) {
                Effect::Wide { dst, expression, width } => self.wide(code, dst, expression, width),
                Effect::Apply { table } => (pc, after_action) = self.apply(code, table as usize, now),
                Effect::Return => pc = after_action,
                Effect::Exit => return,
                Effect::AddHeader { header } => self.add_header(code, header),
                Effect::RemoveHeader { header } => self.remove_header(code, header),
                Effect::CopyHeader { dst, src } => self.copy_header(code, dst, src),
                Effect::Headers { op } => self.header_op(code, op),
                Effect::MarkToDrop => self.mark_to_drop(code),
                Effect::Count { counter, index } => {
                    if let Some(cell) = self.shared.counters[counter as usize].get(self.reg(index) as usize) {
                        add(&cell.packets, 1);
                        add(&cell.bytes, self.packet.ingress_length as u64);
                    }
                }
                Effect::ExecuteMeter { meter, index, dst } => {
                    let index = self.reg(index) as usize;
                    let bytes = self.meter_bytes[meter as usize];
                    let amount = if bytes { self.packet.ingress_length as u64 } else { 1 };
                    if let Some(meter) = self.meters[meter as usize].get_mut(index) {
                        let colour = meter.execute(amount, now);
                        self.put(dst, colour);
                    }
                }
                Effect::ReadRegister { dst, register, index } => {
                    if let Some(cell) = self.shared.registers[register as usize].get(self.reg(index) as usize) {
                        self.put(dst, cell.load(Relaxed));
                    }
                }
                Effect::WriteRegister { register, index, a } => {
                    if let Some(cell) = self.shared.registers[register as usize].get(self.reg(index) as usize) {
                        cell.store(self.reg(a), Relaxed);
                    }
                }
                Effect::Digest { list } => self.requests.digests |= 1 << list,
                Effect::Random { dst, low, high } => {
                    let (low, high) = (self.reg(low), self.reg(high));
                    // As BMv2: an empty range leaves the field as it was.
                    if low <= high {
                        let value = self.rng.u64(low..=high);
                        self.put(dst, value);
                    }
                }
                Effect::Hash { dst, calculation, low, size } => {
                    // The payload is not at hand here; the loader refuses it.
                    let hash = self.calculate(code, calculation, &[]);
                    let value = self.reg(low).wrapping_add(hash % self.reg(size).max(1));
                    self.put(dst, value);
                }
                Effect::Clone { session, fields } => self.requests.clone = Some((self.reg(session) as u32, fields)),
                Effect::Resubmit { fields } => self.requests.resubmit = Some(fields),
                Effect::Recirculate { fields } => self.requests.recirculate = Some(fields),
                Effect::Truncate { length } => {
                    self.packet.truncate = self.packet.truncate.min(self.reg(length).min(u32::MAX as u64) as u32);
                }
                Effect::Log { message } => self.log(code, message),
                Effect::Assert { condition, message } => {
                    if self.reg(condition) == 0 {
                        tracing::error!("{} failed: packet dropped", code.messages[message as usize].place);
                        self.mark_to_drop(code);
                        return;
                    }
                }
            }
        }
    }

    /// Where the table's action starts and where it goes on.
    #[inline]
    fn apply(&mut self, code: &Code, index: usize, now: u64) -> (usize, usize) {
        let table_code = &code.tables[index];
        let slot = self.tables[index].lookup(table_code, &self.regs);
        let hash = match (slot, table_code.profile) {
            (Some(slot), Some(profile)) => self.select_member(code, profile, self.tables[index].action(slot)[0]),
            _ => 0,
        };
        let table = &mut self.tables[index];
        let action: &[u64] = match slot {
            Some(slot) => {
                let length = self.packet.ingress_length as u64;
                if let Some((target, bytes)) = table_code.meter {
                    let colour = table.meters[slot as usize].execute(if bytes { length } else { 1 }, now);
                    self.regs[target.reg as usize % REGISTERS] = colour;
                }
                if let Some(stats) = table.stats.get(slot as usize) {
                    add(&stats.packets, 1);
                    add(&stats.bytes, length);
                    stats.last_hit.store(now, Relaxed);
                }
                match table_code.profile {
                    None => table.action(slot),
                    Some(profile) => match self.profiles[profile].action(table.action(slot)[0], hash) {
                        Some(action) => action,
                        None => return (table_code.no_action.next_hit as usize, 0),
                    },
                }
            }
            None => match &table.default {
                Some(action) => action,
                // Without a default, a miss does nothing.
                None => return (table_code.no_action.next_miss as usize, 0),
            },
        };
        let (number, params) = action.split_first().map_or((0, action), |(first, rest)| (*first as usize, rest));
        let action = &table_code.actions[number];
        let next = if slot.is_some() { action.next_hit } else { action.next_miss } as usize;
        match action.body {
            None => (next, 0),
            Some(body) => {
                // A few words: faster here than by memcpy.
                let regs = &mut self.regs[code.params..code.params + action.param_words];
                regs.iter_mut().zip(params).for_each(|(reg, param)| *reg = *param);
                (body as usize, next)
            }
        }
    }

    fn wide(&mut self, code: &Code, dst: Reg, expression: u16, width: u8) {
        let value = code.wide[expression as usize].evaluate(&self.regs);
        let value = (value & ((I256::ONE << width as u32) - I256::ONE)).as_u128();
        self.put(dst, value as u64);
        if width > 64 {
            self.put(dst + 1, (value >> 64) as u64);
        }
    }

    fn mark_to_drop(&mut self, code: &Code) {
        self.set(code.standard.egress_spec, DROP_PORT);
        self.put(code.standard.mcast_grp.reg, 0);
    }

    /// The hash that chooses the member that an entry refers to.
    fn select_member(&mut self, code: &Code, profile: usize, reference: u64) -> u64 {
        match code.selectors[profile] {
            Some(calculation) if reference & GROUP != 0 => self.calculate(code, calculation, &[]),
            _ => 0,
        }
    }

    fn calculate(&mut self, code: &Code, calculation: u16, payload: &[u8]) -> u64 {
        let calculation = &code.calculations[calculation as usize];
        hash::calculate(calculation, &code.headers, &self.regs, payload, &mut self.scratch, || self.rng.u64(..))
    }

    fn log(&self, code: &Code, message: u16) {
        let message = &code.messages[message as usize];
        let mut parts = message.format.split("{}");
        let mut text = parts.next().unwrap_or_default().to_string();
        for (part, value) in parts.zip(message.values.iter().map(|value| value.evaluate(&self.regs))) {
            text.push_str(&value.to_string());
            text.push_str(part);
        }
        tracing::info!("{text}");
    }
}

#[inline]
fn get(regs: &Registers, reg: Reg) -> u64 {
    regs[reg as usize % REGISTERS]
}

#[inline]
fn put(regs: &mut Registers, reg: Reg, value: u64) {
    regs[reg as usize % REGISTERS] = value;
}

/// Runs from `pc` to the next effect.
#[inline]
fn run_on_registers(ops: &[Op], pc: &mut usize, regs: &mut Registers) -> Effect {
    loop {
        let op = &ops[*pc];
        *pc += 1;
        match *op {
            Op::Move { dst, a } => put(regs, dst, get(regs, a)),
            Op::Add { dst, a, b } => put(regs, dst, get(regs, a).wrapping_add(get(regs, b))),
            Op::Subtract { dst, a, b } => put(regs, dst, get(regs, a).wrapping_sub(get(regs, b))),
            Op::Multiply { dst, a, b } => put(regs, dst, get(regs, a).wrapping_mul(get(regs, b))),
            Op::Divide { dst, a, b } => put(regs, dst, get(regs, a).checked_div(get(regs, b)).unwrap_or(0)),
            Op::Modulo { dst, a, b } => put(regs, dst, get(regs, a).checked_rem(get(regs, b)).unwrap_or(0)),
            Op::And { dst, a, b } => put(regs, dst, get(regs, a) & get(regs, b)),
            Op::Or { dst, a, b } => put(regs, dst, get(regs, a) | get(regs, b)),
            Op::Xor { dst, a, b } => put(regs, dst, get(regs, a) ^ get(regs, b)),
            Op::Not { dst, a } => put(regs, dst, !get(regs, a)),
            Op::ShiftLeft { dst, a, b } => {
                let b = get(regs, b);
                put(regs, dst, if b < 64 { get(regs, a) << b } else { 0 });
            }
            Op::ShiftRight { dst, a, b } => {
                let b = get(regs, b);
                put(regs, dst, if b < 64 { get(regs, a) >> b } else { 0 });
            }
            Op::SignedShiftRight { dst, a, b } => {
                let b = get(regs, b).min(63);
                put(regs, dst, ((get(regs, a) as i64) >> b) as u64);
            }
            Op::Compare { dst, a, b, compare } => {
                put(regs, dst, compare.holds(get(regs, a), get(regs, b)) as u64);
            }
            Op::Select { dst, condition, a, b } => {
                let chosen = if get(regs, condition) != 0 { a } else { b };
                put(regs, dst, get(regs, chosen));
            }
            Op::SignExtend { dst, a, width } => put(regs, dst, wire::sign_extend(get(regs, a), width)),
            Op::Clamp { dst, a, low, high } => put(regs, dst, get(regs, a).clamp(get(regs, low), get(regs, high))),
            Op::SignedClamp { dst, a, low, high } => {
                let value = (get(regs, a) as i64).clamp(get(regs, low) as i64, get(regs, high) as i64);
                put(regs, dst, value as u64);
            }
            Op::Jump { to } => *pc = to as usize,
            Op::Branch { compare, a, b, to } => {
                if compare.holds(get(regs, a), get(regs, b)) {
                    *pc = to as usize;
                }
            }
            Op::Effect(effect) => return effect,
        }
    }
}
