// SPDX-License-Identifier: Apache-2.0
//! A program's instructions, and the state that they work on: registers, tables, meters, the packet's headers. It knows
//! nothing of ports; time is an argument.

pub mod bits;
pub mod bounds;
mod chains;
pub mod code;
pub mod frame;
pub mod hash;
pub mod headers;
mod masks;
pub mod meter;
pub mod op;
mod parse;
pub mod profile;
pub mod register;
pub mod select;
pub mod table;
pub mod wide;
pub mod wire;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use self::code::{Code, FieldRef};
use self::frame::PacketState;
use self::meter::Meter;
use self::op::{Effect, REGISTERS, Reg, Registers};
use self::profile::{GROUP, Profile};
use self::register::RegisterArray;
use self::select::SetMember;
use self::table::{EntryStats, Table};
use crate::throttle::Throttle;
use crate::value::{CounterValue, words};

/// v1model's port of packets that are dropped.
pub const DROP_PORT: u64 = 511;

/// A counter cell, written by the packet thread alone.
#[derive(Default, Debug)]
pub struct CounterCell {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
}

impl CounterCell {
    #[inline]
    fn count(&self, bytes: u64) {
        self.packets.store(self.packets.load(Relaxed).wrapping_add(1), Relaxed);
        self.bytes.store(self.bytes.load(Relaxed).wrapping_add(bytes), Relaxed);
    }

    pub fn value(&self) -> CounterValue {
        CounterValue { packets: self.packets.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }

    pub fn set(&self, value: CounterValue) {
        self.packets.store(value.packets, Relaxed);
        self.bytes.store(value.bytes, Relaxed);
    }
}

/// Cells that count green, yellow and red packets of a meter.
pub type ColourCells = [CounterCell; 3];

/// Memory that the packet thread writes and all threads read.
#[derive(Debug)]
pub struct Shared {
    pub counters: Vec<Arc<[CounterCell]>>,
    pub registers: Vec<Arc<RegisterArray>>,
    /// For each table, a cell for each slot and behind them one for the default entry; none if nothing is counted.
    pub entries: Vec<Arc<[EntryStats]>>,
    /// Colours of each indirect meter.
    pub colours: Vec<Arc<[ColourCells]>>,
    /// Colours of each table's direct meter, as `entries`.
    pub entry_colours: Vec<Arc<[ColourCells]>>,
}

/// Addresses of what native code reads and writes itself.
#[repr(C)]
pub struct Places {
    /// Address of the first [`Table`].
    pub tables: usize,
    /// Address of the [`Cells`] of the first counter array.
    pub counters: usize,
    /// Address of the [`Cells`] of the first register array.
    pub registers: usize,
}

/// An array of counter or register cells: its address and length.
#[repr(C)]
pub struct Cells {
    pub start: usize,
    pub len: usize,
}

impl Cells {
    fn of<'a, T: 'a>(arrays: impl Iterator<Item = &'a [T]>) -> Box<[Cells]> {
        arrays.map(|array| Cells { start: array.as_ptr().expose_provenance(), len: array.len() }).collect()
    }
}

/// Requests of a pipeline for the packet, in addition to its registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// Session and field list.
    pub clone: Option<(u32, u16)>,
    /// Field lists.
    pub resubmit: Option<u16>,
    pub recirculate: Option<u16>,
}

pub struct State {
    pub places: Places,
    pub shared: Arc<Shared>,
    pub regs: Box<Registers>,
    /// As long as the program is.
    pub tables: Box<[Table]>,
    _counters: Box<[Cells]>,
    _registers: Box<[Cells]>,
    pub meters: Vec<Vec<Option<Box<Meter>>>>,
    pub value_sets: Vec<Vec<SetMember>>,
    pub profiles: Vec<Profile>,
    meter_bytes: Vec<bool>,
    pub packet: PacketState,
    pub requests: Requests,
    /// Asked for since the last time that somebody cleared them; each once.
    pub digests: Vec<u16>,
    rng: fastrand::Rng,
    scratch: Vec<u8>,
    /// Access that native code attempted outside the state's memory: see [`bounds`].
    pub violation: Option<String>,
    throttle: Throttle,
}

impl State {
    /// `shared` is of the same tables and arrays. `meters`: size of each, and whether it counts bytes; `value_sets`:
    /// how many. `seed`: of P4's `random`.
    pub fn new(
        code: &Code,
        shared: Arc<Shared>,
        meters: impl Iterator<Item = (usize, bool)>,
        value_sets: usize,
        seed: u64,
    ) -> State {
        let mut regs = Box::new([0; REGISTERS]);
        for &(reg, value) in &code.constants {
            regs[reg as usize] = value;
        }
        let tables = code.tables.iter().zip(&shared.entries);
        let tables: Box<[Table]> = tables.map(|(table, stats)| Table::new(table, stats.clone(), seed)).collect();
        let counters = Cells::of(shared.counters.iter().map(|array| &**array));
        let registers = Cells::of(shared.registers.iter().map(|array| array.words()));
        let places = Places {
            tables: tables.as_ptr().expose_provenance(),
            counters: counters.as_ptr().expose_provenance(),
            registers: registers.as_ptr().expose_provenance(),
        };
        let (meters, meter_bytes) = meters.map(|(size, bytes)| (vec![None; size], bytes)).unzip();
        State {
            places,
            tables,
            _counters: counters,
            _registers: registers,
            meters,
            profiles: (0..code.selectors.len()).map(|profile| Profile::new(code.profile_params(profile))).collect(),
            value_sets: vec![Vec::new(); value_sets],
            meter_bytes,
            shared,
            regs,
            packet: PacketState::default(),
            requests: Requests::default(),
            digests: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            scratch: Vec::new(),
            violation: None,
            throttle: Throttle::default(),
        }
    }

    /// A field of at most 64 bits.
    #[inline]
    pub fn get(&self, place: FieldRef) -> u64 {
        self.regs[place.reg as usize % REGISTERS]
    }

    #[inline]
    pub fn set(&mut self, place: FieldRef, value: u64) {
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

    /// Runs the effect of an instruction beyond arithmetic and jumps. `now`: ns since the start of the switch.
    pub fn effect(&mut self, code: &Code, effect: Effect, now: u64) {
        match effect {
            Effect::Wide { dst, expression, width } => {
                let value = code.wide[expression as usize].evaluate(&self.regs);
                wide::store(&value, width, self.span(dst, words(width)));
            }
            Effect::ReadCell { dst, words, register, index } => {
                let index = self.reg(index) as usize;
                let first = dst as usize;
                self.shared.registers[register as usize].load(index, &mut self.regs[first..first + words as usize]);
            }
            Effect::WriteCell { register, index, a, words } => {
                let (index, first) = (self.reg(index) as usize, a as usize);
                self.shared.registers[register as usize].write(index, &self.regs[first..first + words as usize]);
            }
            Effect::AddHeader { header } => self.add_header(code, header),
            Effect::RemoveHeader { header } => self.remove_header(code, header),
            Effect::CopyHeader { dst, src } => self.copy_header(code, dst, src),
            Effect::Headers { op } => self.header_op(code, op),
            Effect::ExecuteMeter { meter, index, dst } => {
                let index = self.reg(index) as usize;
                let bytes = self.meter_bytes[meter as usize];
                let amount = if bytes { self.packet.ingress_length as u64 } else { 1 };
                if let Some(cell) = self.meters[meter as usize].get_mut(index) {
                    let colour = meter::colour(cell.as_deref_mut(), amount, now);
                    self.shared.colours[meter as usize][index][colour as usize]
                        .count(self.packet.ingress_length as u64);
                    self.put(dst, colour);
                }
            }
            Effect::Digest { list } => {
                if !self.digests.contains(&list) {
                    self.digests.push(list);
                }
            }
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
            Effect::Log { message } => self.log(code, message, now),
            Effect::AssertionFailed { message } if self.throttle.allows(now) => {
                tracing::error!("{} failed: packet dropped", code.messages[message as usize].place);
            }
            Effect::AssertionFailed { .. } => {}
        }
    }

    /// The `words` registers from `first` on.
    fn span(&mut self, first: Reg, words: usize) -> &mut [u64] {
        &mut self.regs[first as usize..first as usize + words]
    }

    /// The colour that an entry's meter gives to a packet of `amount` bytes, or 1 packet.
    pub fn entry_meter(&mut self, table: usize, slot: usize, amount: u64, now: u64) -> u64 {
        let colour = meter::colour(self.tables[table].meters[slot].as_deref_mut(), amount, now);
        self.shared.entry_colours[table][slot][colour as usize].count(self.packet.ingress_length as u64);
        colour
    }

    /// Returns the colour by the default entry's meter; `None` as long as its meter has no configuration: as BMv2, a
    /// miss then has no colour.
    pub fn default_meter(&mut self, table: usize, amount: u64, now: u64) -> Option<u64> {
        let slot = self.tables[table].default_slot();
        self.tables[table].meters[slot].is_some().then(|| self.entry_meter(table, slot, amount, now))
    }

    /// The action of the member that an entry of an indirect table refers to; `None`: of an empty group.
    pub fn member(&mut self, code: &Code, table: usize, slot: u32) -> Option<&[u64]> {
        let profile = code.tables[table].profile?;
        let reference = self.tables[table].action(slot)[0];
        let hash = match code.selectors[profile] {
            Some(calculation) if reference & GROUP != 0 => self.calculate(code, calculation, &[]),
            _ => 0,
        };
        self.profiles[profile].action(reference, hash)
    }

    fn calculate(&mut self, code: &Code, calculation: u16, payload: &[u8]) -> u64 {
        let calculation = &code.calculations[calculation as usize];
        hash::calculate(calculation, &code.headers, &self.regs, payload, &mut self.scratch, || self.rng.u64(..))
    }

    fn log(&mut self, code: &Code, message: u32, now: u64) {
        if !self.throttle.allows(now) {
            return;
        }
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
