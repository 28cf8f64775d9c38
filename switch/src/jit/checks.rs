// SPDX-License-Identifier: Apache-2.0
//! Native code that asks before each access whether the memory is the state's, for tests and fuzzing: what the loader
//! overlooks then shows as a panic that names the place, not as whatever happens to be behind.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cranelift_codegen::ir::{Block, InstBuilder, Value};

use super::emit::Emitter;
use super::helpers;
use crate::state::bounds::Memory;

static CHECKED: AtomicBool = AtomicBool::new(false);

/// Programs that are loaded from now on check what their native code accesses: they are slow, and panic where it is not
/// theirs. For tests and fuzzing.
pub fn check_native_code() {
    CHECKED.store(true, Relaxed);
}

pub fn checked() -> bool {
    CHECKED.load(Relaxed)
}

/// A place in native code that accesses memory.
#[derive(Debug)]
pub struct Site {
    pub memory: Memory,
    /// Such as `ingress, instruction 17`.
    pub place: String,
}

/// What is being emitted, and the accesses that it checks.
pub struct Checks {
    function: &'static str,
    /// What an access belongs to: an instruction, a state of the parser, a header of the deparser.
    pub at: (&'static str, usize),
    sites: Option<Vec<Box<Site>>>,
    /// Taken where an access is refused.
    violated: Option<Block>,
}

impl Checks {
    /// `sites`: those of the functions before, if accesses are checked.
    pub fn new(function: &'static str, sites: Option<Vec<Box<Site>>>) -> Checks {
        Checks { function, at: ("start", 0), sites, violated: None }
    }
}

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
            return Err(format!("the {function} uses register {reg}, which is none"));
        }
        if self.is_full() {
            return Err(format!(
                "the {function} is too long: it takes more than {} instructions",
                super::emit::MAX_INSTRUCTIONS
            ));
        }
        if let Some(block) = self.checks.violated {
            self.builder.switch_to_block(block);
            let none = self.constant(0);
            self.builder.ins().return_(&[none]);
        }
        Ok(self.checks.sites.take())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::machine::Machine;
    use crate::program::Program;
    use crate::state::Shared;
    use crate::state::frame::Pool;

    #[test]
    #[should_panic(expected = "native code: parser, state")]
    fn bytes_behind_a_frame_are_not_read_but_told() {
        check_native_code();
        let json = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/programs/features.json")).unwrap();
        let program = Program::load(&json).unwrap();
        let mut machine = Machine::new(&program, Arc::new(Shared::new(&program)), 1);
        let mut packet = Pool::new(64, 1).take().unwrap();
        packet.frame.start = packet.frame.buffer().len() - 1;
        packet.frame.end = usize::MAX >> 1;
        machine.reset();
        machine.parse(&packet.frame, 0);
    }

    #[test]
    #[should_panic(expected = "native code: ingress, instruction")]
    fn another_table_s_address_is_not_read_but_told() {
        check_native_code();
        let json = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/programs/kinds.json")).unwrap();
        let program = Program::load(&json).unwrap();
        let mut machine = Machine::new(&program, Arc::new(Shared::new(&program)), 1);
        machine.reset();
        machine.state.places.tables += 1 << 20;
        machine.ingress(0);
    }
}
