// SPDX-License-Identifier: Apache-2.0
//! Checks of accesses to memory, and the end of a function.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::{Emitter, MAX_INSTRUCTIONS};
use crate::jit::checks::Checks;
use crate::jit::helpers;
use crate::jit::site::Site;
use crate::state::bounds::Memory;

impl Emitter<'_> {
    /// Goes on only if these bytes may be accessed.
    pub fn check(&mut self, memory: Memory, address: Value, offset: usize, bytes: usize) {
        let Checks { function, at: (what, number), sites: Some(sites), .. } = &mut self.checks else { return };
        sites.push(Box::new(Site { memory, place: format!("{function}, {what} {number}") }));
        let site = std::ptr::from_ref(&**sites.last().expect("just added")).expose_provenance() as u64;
        let violated = match self.checks.violated {
            Some(block) => block,
            None => *self.checks.violated.insert(self.builder.create_block()),
        };
        let address = self.builder.ins().iadd_imm_u(address, offset as i64);
        let (bytes, site, frame) = (self.constant(bytes as u64), self.constant(site), self.frame);
        let [allowed] = self.call(helpers::check as *const (), &[frame, address, bytes, site]);
        let go_on = self.builder.create_block();
        self.builder.ins().brif(allowed, go_on, &[], violated, &[]);
        self.builder.switch_to_block(go_on);
    }

    /// Fills what is left to be filled; the accesses that are checked.
    pub fn finish(&mut self) -> Result<Option<Vec<Box<Site>>>, String> {
        let function = self.checks.function;
        if let Some(reg) = self.foreign_register {
            return Err(format!("the {function} uses register {reg}, which does not exist"));
        }
        if self.is_full() {
            return Err(format!("the {function} is too long: it takes more than {} instructions", MAX_INSTRUCTIONS));
        }
        if let Some(block) = self.checks.violated {
            self.builder.switch_to_block(block);
            let none = self.constant(0);
            self.builder.ins().return_(&[none]);
        }
        Ok(self.checks.sites.take())
    }
}
