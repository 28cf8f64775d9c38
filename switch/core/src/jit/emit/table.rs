// SPDX-License-Identifier: Apache-2.0
//! Tables: the key, the entry, what is counted, the action.

use super::*;

impl Emitter<'_> {
    /// Looks the table up and counts the hit; then the action, with its parameters in their registers.
    pub(super) fn apply(&mut self, region: &mut Region, index: u16) {
        let code = self.code;
        let table = &code.tables[index as usize];
        let tables = self.load(Memory::Places, self.state, offset_of!(State, places) + offset_of!(Places, tables));
        let address = self.builder.ins().iadd_imm_u(tables, (size_of::<Table>() * index as usize) as i64);
        let part =
            |emitter: &mut Self, part: usize| emitter.load(Memory::Places, address, offset_of!(Table, parts) + part);
        let same_next = table.actions.iter().all(|action| action.next_hit == action.next_miss);
        let (on_hit, on_miss) = (self.builder.create_block(), self.builder.create_block());
        self.builder.append_block_param(on_hit, I64);
        // A miss that goes on as a hit does shares its code.
        let on_default = if same_next { on_hit } else { self.builder.create_block() };
        if !same_next {
            self.builder.append_block_param(on_default, I64);
        }

        if let Some(slot) = self.find(table, address, part) {
            let hit = self.builder.create_block();
            let is_hit = self.builder.ins().icmp_imm_s(IntCC::NotEqual, slot, MISS as i64);
            self.builder.ins().brif(is_hit, hit, &[], on_miss, &[]);
            self.builder.switch_to_block(hit);
            if let Some((target, bytes)) = table.meter {
                let amount = if bytes { self.ingress_length() } else { self.constant(1) };
                let (number, now) = (self.constant(index as u64), self.now);
                let [colour] = self.call(helpers::entry_meter as *const (), &[number, slot, amount, now]);
                self.put_place(target, colour);
            }
            if table.counter || table.timeout {
                let stats = part(self, offset_of!(Parts, stats));
                let offset = self.builder.ins().imul_imm_u(slot, size_of::<EntryStats>() as i64);
                let stats = self.builder.ins().iadd(stats, offset);
                self.count(stats);
                self.store(Memory::Cells, self.now, stats, offset_of!(EntryStats, last_hit));
            }
            let shape = RowShape::new(table);
            let rows = part(self, offset_of!(Parts, rows));
            let offset = self.builder.ins().imul_imm_u(slot, 8 * shape.len as i64);
            let row = self.builder.ins().iadd(rows, offset);
            let action = self.builder.ins().iadd_imm_u(row, 8 * shape.action as i64);
            if table.profile.is_some() {
                let number = self.constant(index as u64);
                let [action] = self.call(helpers::member as *const (), &[number, slot]);
                let empty = self.block(region, table.no_action.next_hit, None);
                self.builder.ins().brif(action, on_hit, &[BlockArg::Value(action)], empty, &[]);
            } else {
                self.builder.ins().jump(on_hit, &[BlockArg::Value(action)]);
            }
        } else {
            self.jump(on_miss);
        }

        self.builder.switch_to_block(on_miss);
        self.miss(table, index, part);
        let default = part(self, offset_of!(Parts, default));
        let nothing = self.block(region, table.no_action.next_miss, None);
        self.builder.ins().brif(default, on_default, &[BlockArg::Value(default)], nothing, &[]);
        for (block, hit) in [(on_hit, true), (on_default, false)].into_iter().take(2 - same_next as usize) {
            self.builder.switch_to_block(block);
            let action = self.builder.block_params(block)[0];
            self.choose(region, &table.actions, action, hit);
        }
    }

    /// Counts the packet for an entry.
    fn count(&mut self, stats: Value) {
        let (one, length) = (self.constant(1), self.ingress_length());
        self.add(Memory::Cells, one, stats, offset_of!(EntryStats, packets));
        self.add(Memory::Cells, length, stats, offset_of!(EntryStats, bytes));
    }

    /// Direct meter and counter of the default entry.
    fn miss(&mut self, table: &TableCode, index: u16, part: impl Fn(&mut Self, usize) -> Value) {
        if let Some((target, bytes)) = table.meter {
            let amount = if bytes { self.ingress_length() } else { self.constant(1) };
            let (number, now) = (self.constant(index as u64), self.now);
            let [colour] = self.call(helpers::default_meter as *const (), &[number, amount, now]);
            let (coloured, next) = (self.builder.create_block(), self.builder.create_block());
            let is_coloured = self.builder.ins().icmp_imm_s(IntCC::NotEqual, colour, helpers::NO_COLOUR as i64);
            self.builder.ins().brif(is_coloured, coloured, &[], next, &[]);
            self.builder.switch_to_block(coloured);
            self.put_place(target, colour);
            self.jump(next);
            self.builder.switch_to_block(next);
        }
        if table.counter {
            let stats = part(self, offset_of!(Parts, stats));
            let stats = self.builder.ins().iadd_imm_u(stats, (table.max_size * size_of::<EntryStats>()) as i64);
            self.count(stats);
        }
    }

    /// The slot of the entry for the registers, or [`MISS`]; `None`: the table has no key.
    fn find(&mut self, table: &TableCode, address: Value, part: impl Fn(&mut Self, usize) -> Value) -> Option<Value> {
        if table.matching == Matching::None {
            return None;
        }
        let mut key: Vec<Option<Value>> = vec![None; table.key_words];
        for chunk in &table.chunks {
            let value = self.key_field(chunk.reg, chunk.mask, chunk.valid);
            let value = self.builder.ins().ishl_imm_u(value, chunk.shift as i64);
            let word = &mut key[chunk.word as usize];
            *word = Some(word.map_or(value, |before| self.builder.ins().bor(before, value)));
        }
        let mut values: Vec<Value> = key.into_iter().flatten().collect();
        if table.matching == Matching::Direct {
            let slots = part(self, offset_of!(Parts, slots));
            let flags = self.memory(Memory::Tables);
            let offset = self.builder.ins().ishl_imm_u(values[0], 2);
            let place = self.builder.ins().iadd(slots, offset);
            self.check(Memory::Tables, place, 0, 4);
            // Sign extension makes the slot that is none a miss.
            const { assert!(NO_SLOT as i32 as i64 as u64 == MISS) };
            return Some(self.builder.ins().sload32(flags, place, 0));
        }
        for range in &table.ranges {
            for &(reg, mask) in &range.words {
                values.push(self.key_field(reg, mask, range.valid));
            }
        }
        let slot = self.key_slot();
        let place = self.builder.ins().stack_addr(I64, slot, 0);
        let flags = self.memory(Memory::Tables);
        for (word, value) in values.iter().enumerate() {
            self.builder.ins().store(flags, *value, place, 8 * word as i32);
        }
        self.check(Memory::Places, address, 0, size_of::<Table>());
        let words = self.constant(values.len() as u64);
        let [found] = self.call_plain(helpers::find as *const (), &[address, place, words]);
        Some(found)
    }

    /// Room for the longest key of any table.
    fn key_slot(&mut self) -> StackSlot {
        if let Some(slot) = self.key {
            return slot;
        }
        let words =
            |table: &TableCode| table.key_words + table.ranges.iter().map(|range| range.words.len()).sum::<usize>();
        let longest = self.code.tables.iter().map(words).max().unwrap_or(0);
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * longest as u32, 3);
        *self.key.insert(self.builder.create_sized_stack_slot(data))
    }

    /// Bits of a register, 0 unless its header is valid.
    fn key_field(&mut self, reg: Reg, mask: u64, valid: Reg) -> Value {
        let value = self.get(reg);
        let value = self.builder.ins().band_imm_s(value, mask as i64);
        // The validity of a header has its number.
        if self.code.headers[valid as usize].metadata {
            return value;
        }
        let valid = self.get(valid);
        let all = self.builder.ins().ineg(valid);
        self.builder.ins().band(value, all)
    }

    /// Runs the action whose number and parameters stand at `action`.
    fn choose(&mut self, region: &mut Region, actions: &[TableAction], action: Value, hit: bool) {
        let blocks: Vec<Block> = actions.iter().map(|_| self.builder.create_block()).collect();
        let mut switch = Switch::new();
        // The last one needs no comparison.
        let (last, others) = blocks.split_last().expect("a table has actions");
        others.iter().enumerate().for_each(|(number, &block)| switch.set_entry(number as u128, block));
        let number = self.load(Memory::Tables, action, 0);
        switch.emit(&mut self.builder, number, *last);
        for (chosen, block) in actions.iter().zip(blocks) {
            if self.is_full() {
                return;
            }
            self.builder.switch_to_block(block);
            let next = if hit { chosen.next_hit } else { chosen.next_miss };
            let to = match chosen.body {
                None => self.block(region, next, None),
                Some(body) => {
                    for word in 0..chosen.param_words {
                        let value = self.load(Memory::Tables, action, 8 * (1 + word));
                        self.put((self.code.params + word) as Reg, value);
                    }
                    self.block(region, body, Some(next))
                }
            };
            self.jump(to);
        }
    }
}
