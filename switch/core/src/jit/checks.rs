// SPDX-License-Identifier: Apache-2.0
//! Native code that asks before each access whether the memory is the state's, for tests and fuzzing: what the loader
//! overlooks then shows as a panic that names the place, not as whatever happens to be behind.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cranelift_codegen::ir::Block;

use super::site::Site;

static CHECKED: AtomicBool = AtomicBool::new(false);

/// Programs that are loaded from now on check what their native code accesses: they are slow, and panic where it is not
/// theirs. For tests and fuzzing.
pub fn check_native_code() {
    CHECKED.store(true, Relaxed);
}

pub fn checked() -> bool {
    CHECKED.load(Relaxed)
}

/// Function that is being emitted, and the accesses that it checks.
pub struct Checks {
    pub function: &'static str,
    /// Construct that an access belongs to: an instruction, a state of the parser, a header of the deparser.
    pub at: (&'static str, usize),
    pub sites: Option<Vec<Box<Site>>>,
    /// Taken where an access is refused.
    pub violated: Option<Block>,
}

impl Checks {
    /// `sites`: those of the functions before, if accesses are checked.
    pub fn new(function: &'static str, sites: Option<Vec<Box<Site>>>) -> Checks {
        Checks { function, at: ("start", 0), sites, violated: None }
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
        let json = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/features.json")).unwrap();
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
        let json = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/profiles.json")).unwrap();
        let program = Program::load(&json).unwrap();
        let mut machine = Machine::new(&program, Arc::new(Shared::new(&program)), 1);
        machine.reset();
        machine.state.places.tables += 1 << 20;
        machine.ingress(0);
    }
}
