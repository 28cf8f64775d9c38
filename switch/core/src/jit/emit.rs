// SPDX-License-Identifier: Apache-2.0
//! Translation of instructions to Cranelift's intermediate representation.

mod check;
mod table;

use std::collections::{HashMap, HashSet};
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, AliasRegion, AliasRegionData, Block, BlockArg, InstBuilder, MemFlagsData, Signature, StackSlot,
    StackSlotData, StackSlotKind, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, Switch};

use super::checks::Checks;
use super::helpers::{self, MISS};
use crate::state::bounds::Memory;
use crate::state::code::{Code, FieldRef, Matching, TableAction, TableCode};
use crate::state::frame::PacketState;
use crate::state::op::{Address, Compare, Effect, Op, REGISTERS, Reg};
use crate::state::table::{EntryStats, NO_SLOT, Parts, RowShape, Table};
use crate::state::wire::NOT_IN_FRAME;
use crate::state::{Cells, CounterCell, DROP_PORT, Places, State};

/// Registers that Cranelift follows one by one; more would make large programs slow to load.
const FOLLOWED_REGISTERS: u32 = 512;

/// Instructions of a function at most: more would take long to translate.
pub const MAX_INSTRUCTIONS: usize = 1 << 19;

/// Names for the registers' parts of memory start behind those.
const FIRST_REGISTER: u32 = 16;

pub struct Emitter<'f> {
    pub builder: FunctionBuilder<'f>,
    pub code: &'f Code,
    /// Registers that nothing writes.
    constants: HashMap<Reg, u64>,
    /// For each register that stands on the wire, the one with its header's offset.
    offsets: HashMap<Reg, Reg>,
    /// Addresses that are jumped to.
    leaders: HashSet<Address>,
    call_conv: CallConv,
    pub state: Value,
    regs: Value,
    now: Value,
    pub frame: Value,
    pub bytes: Value,
    /// Stack slot of keys while they are looked up, one after the other.
    key: Option<StackSlot>,
    pub checks: Checks,
    /// A register that is none was asked for: the loader is wrong.
    pub foreign_register: Option<Reg>,
}

/// A piece of code that ends at one place: its blocks by address and, within an action, by where the action goes on.
struct Region {
    end: Block,
    blocks: HashMap<(Address, Option<Address>), Block>,
    /// Not yet emitted.
    waiting: Vec<(Address, Option<Address>)>,
}

impl<'f> Emitter<'f> {
    pub fn new(mut builder: FunctionBuilder<'f>, code: &'f Code, call_conv: CallConv, checks: Checks) -> Self {
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        let &[state, regs, now, frame, bytes] = builder.block_params(entry) else {
            unreachable!("entries have five parameters");
        };
        let mut leaders = HashSet::new();
        for op in &code.ops {
            if let Op::Jump { to } | Op::Branch { to, .. } = op {
                leaders.insert(*to);
            }
        }
        let with_none = |table: &'f TableCode| table.actions.iter().chain([&table.no_action]);
        for action in code.tables.iter().flat_map(with_none) {
            leaders.extend([action.next_hit, action.next_miss]);
            leaders.extend(action.body);
        }
        let constants = code.constants.iter().copied().collect();
        let on_wire = code.headers.iter().filter(|header| !header.metadata);
        let offsets = on_wire.flat_map(|h| h.fields.clone().map(|reg| (reg as Reg, h.offset))).collect();
        Emitter {
            builder,
            code,
            constants,
            offsets,
            leaders,
            call_conv,
            state,
            regs,
            now,
            frame,
            bytes,
            key: None,
            checks,
            foreign_register: None,
        }
    }

    /// The function has as many instructions as it may have: what is emitted now is thrown away.
    pub fn is_full(&self) -> bool {
        self.builder.func.dfg.num_insts() > MAX_INSTRUCTIONS
    }

    pub fn constant(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(I64, value as i64)
    }

    /// The address of something that lives as long as the program.
    pub fn pointer<T>(&mut self, to: &T) -> Value {
        self.constant(std::ptr::from_ref(to).expose_provenance() as u64)
    }

    fn region(&mut self, user_id: u32, description: &'static str) -> Option<AliasRegion> {
        let data = AliasRegionData { user_id, description: description.into() };
        Some(self.builder.func.dfg.alias_regions.insert(data))
    }

    pub fn memory(&mut self, memory: Memory) -> MemFlagsData {
        // Headers start at any byte.
        let aligned = !matches!(memory, Memory::Bytes);
        let flags = if aligned { MemFlagsData::trusted() } else { MemFlagsData::new().with_notrap() };
        flags.with_alias_region(self.region(memory as u32, "memory"))
    }

    fn register(&mut self, reg: Reg) -> MemFlagsData {
        if reg as usize >= REGISTERS {
            self.foreign_register = Some(reg);
        }
        let region = self.region(FIRST_REGISTER + (reg as u32).min(FOLLOWED_REGISTERS), "register");
        MemFlagsData::trusted().with_alias_region(region)
    }

    /// A word at an offset from an address.
    pub fn load(&mut self, memory: Memory, address: Value, offset: usize) -> Value {
        self.check(memory, address, offset, 8);
        let flags = self.memory(memory);
        self.builder.ins().load(I64, flags, address, offset as i32)
    }

    pub fn store(&mut self, memory: Memory, value: Value, address: Value, offset: usize) {
        self.check(memory, address, offset, 8);
        let flags = self.memory(memory);
        self.builder.ins().store(flags, value, address, offset as i32);
    }

    /// Adds to a word.
    fn add(&mut self, memory: Memory, amount: Value, address: Value, offset: usize) {
        let before = self.load(memory, address, offset);
        let after = self.builder.ins().iadd(before, amount);
        self.store(memory, after, address, offset);
    }

    pub fn get(&mut self, reg: Reg) -> Value {
        if let Some(&value) = self.constants.get(&reg) {
            return self.constant(value);
        }
        let flags = self.register(reg);
        self.builder.ins().load(I64, flags, self.regs, 8 * reg as i32)
    }

    pub fn put(&mut self, reg: Reg, value: Value) {
        self.touch(reg);
        self.put_extracted(reg, value);
    }

    /// A value that the frame holds too.
    pub fn put_extracted(&mut self, reg: Reg, value: Value) {
        let flags = self.register(reg);
        self.builder.ins().store(flags, value, self.regs, 8 * reg as i32);
    }

    /// Marks the register's header as differing from the frame from here on.
    fn touch(&mut self, reg: Reg) {
        if let Some(&offset) = self.offsets.get(&reg) {
            let nowhere = self.constant(NOT_IN_FRAME);
            self.put_extracted(offset, nowhere);
        }
    }

    /// A field, without the copies of a sign; low word first.
    pub fn get_place(&mut self, place: FieldRef) -> Vec<Value> {
        let low = self.get(place.reg);
        let low = self.builder.ins().band_imm_s(low, place.mask() as i64);
        let high = (1..place.words()).map(|word| self.get(place.reg + word as Reg));
        [low].into_iter().chain(high).collect()
    }

    /// Writes a number of at most 64 bits to a field.
    pub fn put_place(&mut self, place: FieldRef, value: Value) {
        let low = match place.signed && place.width < 64 {
            true => self.sign_extend(value, place.width as u8),
            false => self.builder.ins().band_imm_s(value, place.mask() as i64),
        };
        self.put(place.reg, low);
        for word in 1..place.words() {
            let zero = self.constant(0);
            self.put(place.reg + word as Reg, zero);
        }
    }

    /// Calls a helper with the state, the program and `arguments`.
    pub fn call<const RESULTS: usize>(&mut self, helper: *const (), arguments: &[Value]) -> [Value; RESULTS] {
        let code = self.pointer(self.code);
        let arguments: Vec<Value> = [self.state, code].into_iter().chain(arguments.iter().copied()).collect();
        self.call_plain(helper, &arguments)
    }

    fn call_plain<const RESULTS: usize>(&mut self, helper: *const (), arguments: &[Value]) -> [Value; RESULTS] {
        let mut signature = Signature::new(self.call_conv);
        signature.params = vec![AbiParam::new(I64); arguments.len()];
        signature.returns = vec![AbiParam::new(I64); RESULTS];
        let signature = self.builder.import_signature(signature);
        let helper = self.constant(helper.expose_provenance() as u64);
        let call = self.builder.ins().call_indirect(signature, helper, arguments);
        std::array::from_fn(|index| self.builder.inst_results(call)[index])
    }

    pub fn jump(&mut self, to: Block) {
        self.builder.ins().jump(to, &[]);
    }

    /// Emits the code that starts at `start`; it ends at `end`, which the caller fills.
    pub fn run(&mut self, start: Address, end: Block) {
        let mut region = Region { end, blocks: HashMap::new(), waiting: Vec::new() };
        let first = self.block(&mut region, start, None);
        self.jump(first);
        while let Some((address, after)) = region.waiting.pop() {
            if self.is_full() {
                return;
            }
            self.builder.switch_to_block(region.blocks[&(address, after)]);
            self.fill(&mut region, address, after);
        }
    }

    /// The block of the code at `address`. `after`: where it goes on, if it is an action's.
    fn block(&mut self, region: &mut Region, address: Address, after: Option<Address>) -> Block {
        *region.blocks.entry((address, after)).or_insert_with(|| {
            region.waiting.push((address, after));
            self.builder.create_block()
        })
    }

    fn fill(&mut self, region: &mut Region, address: Address, after: Option<Address>) {
        let code = self.code;
        let mut next = address;
        loop {
            let op = &code.ops[next as usize];
            self.checks.at = ("instruction", next as usize);
            next += 1;
            match op {
                Op::Jump { to } => {
                    let to = self.block(region, *to, after);
                    return self.jump(to);
                }
                Op::Branch { compare, a, b, to } => {
                    let holds = self.compare(*compare, *a, *b);
                    let (yes, no) = (self.block(region, *to, after), self.block(region, next, after));
                    self.builder.ins().brif(holds, yes, &[], no, &[]);
                    return;
                }
                Op::Apply { table } => return self.apply(region, *table),
                Op::Return => {
                    let to = after.map_or(region.end, |after| self.block(region, after, None));
                    return self.jump(to);
                }
                Op::Exit => return self.jump(region.end),
                Op::MarkToDrop => {
                    let (port, none) = (self.constant(DROP_PORT), self.constant(0));
                    self.put_place(code.standard.egress_spec, port);
                    self.put(code.standard.mcast_grp.reg, none);
                }
                Op::Count { counter, index } => {
                    let size = size_of::<CounterCell>();
                    let skip = self.cell(offset_of!(Places, counters), *counter, *index, size, |emitter, cell| {
                        let one = emitter.constant(1);
                        let length = emitter.ingress_length();
                        emitter.add(Memory::Cells, one, cell, offset_of!(CounterCell, packets));
                        emitter.add(Memory::Cells, length, cell, offset_of!(CounterCell, bytes));
                    });
                    self.builder.switch_to_block(skip);
                }
                Op::ReadRegister { dst, register, index } => {
                    let skip = self.cell(offset_of!(Places, registers), *register, *index, 8, |emitter, cell| {
                        let value = emitter.load(Memory::Cells, cell, 0);
                        emitter.put(*dst, value);
                    });
                    self.builder.switch_to_block(skip);
                }
                Op::WriteRegister { register, index, a } => {
                    let skip = self.cell(offset_of!(Places, registers), *register, *index, 8, |emitter, cell| {
                        let value = emitter.get(*a);
                        emitter.store(Memory::Cells, value, cell, 0);
                    });
                    self.builder.switch_to_block(skip);
                }
                // p4c removes every header before the parser's first state, so nearly all of them are not there.
                Op::Effect(effect @ Effect::RemoveHeader { header }) => {
                    let valid = self.get(code.headers[*header as usize].valid);
                    let (there, skip) = (self.builder.create_block(), self.builder.create_block());
                    self.builder.ins().brif(valid, there, &[], skip, &[]);
                    self.builder.switch_to_block(there);
                    self.effect(effect);
                    self.jump(skip);
                    self.builder.switch_to_block(skip);
                }
                Op::Effect(effect) => self.effect(effect),
                op => self.arithmetic(op),
            }
            if self.leaders.contains(&next) {
                let to = self.block(region, next, after);
                return self.jump(to);
            }
        }
    }

    fn effect(&mut self, effect: &Effect) {
        let (first, words) = effect.destination().unwrap_or_default();
        (first..first + words).for_each(|reg| self.touch(reg));
        let (effect, now) = (self.pointer(effect), self.now);
        self.call::<0>(helpers::effect as *const (), &[effect, now]);
    }

    /// Does something with the cell at an index of an array, unless the index is beyond it. `arrays`: offset in
    /// [`Places`]. Goes on in the block that is returned.
    fn cell(
        &mut self,
        arrays: usize,
        array: u16,
        index: Reg,
        size: usize,
        use_it: impl FnOnce(&mut Self, Value),
    ) -> Block {
        let arrays = self.load(Memory::Places, self.state, offset_of!(State, places) + arrays);
        let array = size_of::<Cells>() * array as usize;
        let len = self.load(Memory::Places, arrays, array + offset_of!(Cells, len));
        let index = self.get(index);
        let (there, skip) = (self.builder.create_block(), self.builder.create_block());
        let is_there = self.builder.ins().icmp(IntCC::UnsignedLessThan, index, len);
        self.builder.ins().brif(is_there, there, &[], skip, &[]);
        self.builder.switch_to_block(there);
        let start = self.load(Memory::Places, arrays, array + offset_of!(Cells, start));
        let offset = self.builder.ins().imul_imm_u(index, size as i64);
        let cell = self.builder.ins().iadd(start, offset);
        use_it(self, cell);
        self.jump(skip);
        skip
    }

    /// Bytes as received.
    fn ingress_length(&mut self) -> Value {
        let flags = self.memory(Memory::Packet);
        let offset = offset_of!(State, packet) + offset_of!(PacketState, ingress_length);
        self.builder.ins().uload32(flags, self.state, offset as i32)
    }

    fn compare(&mut self, compare: Compare, a: Reg, b: Reg) -> Value {
        let condition = match compare {
            Compare::Equal => IntCC::Equal,
            Compare::NotEqual => IntCC::NotEqual,
            Compare::Less => IntCC::UnsignedLessThan,
            Compare::LessOrEqual => IntCC::UnsignedLessThanOrEqual,
            Compare::SignedLess => IntCC::SignedLessThan,
            Compare::SignedLessOrEqual => IntCC::SignedLessThanOrEqual,
        };
        let (a, b) = (self.get(a), self.get(b));
        self.builder.ins().icmp(condition, a, b)
    }

    fn arithmetic(&mut self, op: &Op) {
        let (dst, value) = match *op {
            Op::Move { dst, a } => (dst, self.get(a)),
            Op::Add { dst, a, b } => {
                let (a, b) = (self.get(a), self.get(b));
                (dst, self.builder.ins().iadd(a, b))
            }
            Op::Subtract { dst, a, b } => {
                let (a, b) = (self.get(a), self.get(b));
                (dst, self.builder.ins().isub(a, b))
            }
            Op::Multiply { dst, a, b } => {
                let (a, b) = (self.get(a), self.get(b));
                (dst, self.builder.ins().imul(a, b))
            }
            Op::Divide { dst, a, b } => {
                let (divisor, by_zero) = self.divisor(b);
                let (a, zero) = (self.get(a), self.constant(0));
                let quotient = self.builder.ins().udiv(a, divisor);
                (dst, self.builder.ins().select(by_zero, zero, quotient))
            }
            Op::Modulo { dst, a, b } => {
                // The rest of a division by 1 is 0.
                let (divisor, _) = self.divisor(b);
                let a = self.get(a);
                (dst, self.builder.ins().urem(a, divisor))
            }
            Op::And { dst, a, b } => {
                let (a, b) = (self.get(a), self.get(b));
                (dst, self.builder.ins().band(a, b))
            }
            Op::Or { dst, a, b } => {
                let (a, b) = (self.get(a), self.get(b));
                (dst, self.builder.ins().bor(a, b))
            }
            Op::Xor { dst, a, b } => {
                let (a, b) = (self.get(a), self.get(b));
                (dst, self.builder.ins().bxor(a, b))
            }
            Op::Not { dst, a } => {
                let a = self.get(a);
                (dst, self.builder.ins().bnot(a))
            }
            Op::ShiftLeft { dst, a, b } => {
                let (a, b, zero) = (self.get(a), self.get(b), self.constant(0));
                let shifted = self.builder.ins().ishl(a, b);
                let fits = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, b, 64);
                (dst, self.builder.ins().select(fits, shifted, zero))
            }
            Op::ShiftRight { dst, a, b } => {
                let (a, b, zero) = (self.get(a), self.get(b), self.constant(0));
                let shifted = self.builder.ins().ushr(a, b);
                let fits = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, b, 64);
                (dst, self.builder.ins().select(fits, shifted, zero))
            }
            Op::SignedShiftRight { dst, a, b } => {
                let (a, b, most) = (self.get(a), self.get(b), self.constant(63));
                let b = self.builder.ins().umin(b, most);
                (dst, self.builder.ins().sshr(a, b))
            }
            Op::Compare { dst, a, b, compare } => {
                let holds = self.compare(compare, a, b);
                (dst, self.builder.ins().uextend(I64, holds))
            }
            Op::Select { dst, condition, a, b } => {
                let (condition, a, b) = (self.get(condition), self.get(a), self.get(b));
                (dst, self.builder.ins().select(condition, a, b))
            }
            Op::SignExtend { dst, a, width } => {
                let a = self.get(a);
                (dst, self.sign_extend(a, width))
            }
            Op::Clamp { dst, a, low, high } => {
                let (a, low, high) = (self.get(a), self.get(low), self.get(high));
                let a = self.builder.ins().umax(a, low);
                (dst, self.builder.ins().umin(a, high))
            }
            Op::SignedClamp { dst, a, low, high } => {
                let (a, low, high) = (self.get(a), self.get(low), self.get(high));
                let a = self.builder.ins().smax(a, low);
                (dst, self.builder.ins().smin(a, high))
            }
            _ => unreachable!("not arithmetic"),
        };
        self.put(dst, value);
    }

    /// The two's complement value of the low `width` bits (1 to 64).
    pub fn sign_extend(&mut self, value: Value, width: u8) -> Value {
        let unused = 64 - width as i64;
        let top = self.builder.ins().ishl_imm_u(value, unused);
        self.builder.ins().sshr_imm_u(top, unused)
    }

    /// The register's value or, if it is 0, 1; and whether it is 0.
    fn divisor(&mut self, reg: Reg) -> (Value, Value) {
        let (value, one) = (self.get(reg), self.constant(1));
        let is_zero = self.builder.ins().icmp_imm_u(IntCC::Equal, value, 0);
        (self.builder.ins().select(is_zero, one, value), is_zero)
    }
}
