// SPDX-License-Identifier: Apache-2.0
//! Register cells: the interpreter's own, or those of a running switch, which it reads and never writes.

use std::collections::HashMap;
use std::sync::Arc;

use num_bigint::{BigInt, BigUint};

use super::program::Program;
use apswitch_core::state::Shared;

pub enum Registers {
    Own(Vec<Vec<BigInt>>),
    /// `written`: by this packet alone.
    Live {
        shared: Arc<Shared>,
        written: HashMap<(usize, usize), BigInt>,
    },
}

impl Registers {
    pub fn new(program: &Program) -> Registers {
        Registers::Own(program.registers.iter().map(|register| vec![BigInt::ZERO; register.size]).collect())
    }

    pub fn live(shared: Arc<Shared>) -> Registers {
        Registers::Live { shared, written: HashMap::new() }
    }

    /// Starts a packet.
    pub fn start(&mut self) {
        if let Registers::Live { written, .. } = self {
            written.clear();
        }
    }

    /// `None`: there is no such cell.
    pub fn get(&self, register: usize, index: usize) -> Option<BigInt> {
        match self {
            Registers::Own(registers) => registers[register].get(index).cloned(),
            Registers::Live { shared, written } => {
                let array = &shared.registers[register];
                let read = || (index < array.cells()).then(|| BigInt::from(BigUint::from(&array.read(index))));
                written.get(&(register, index)).cloned().or_else(read)
            }
        }
    }

    /// False: there is no such cell.
    pub fn set(&mut self, register: usize, index: usize, value: BigInt) -> bool {
        match self {
            Registers::Own(registers) => registers[register].get_mut(index).map(|cell| *cell = value).is_some(),
            Registers::Live { shared, written } => {
                let exists = index < shared.registers[register].cells();
                if exists {
                    written.insert((register, index), value);
                }
                exists
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apswitch_core::state::register::RegisterArray;

    #[test]
    fn live_registers_are_read_as_they_are_and_never_written() {
        let array = Arc::new(RegisterArray::new(2, 32));
        array.write(1, &[7]);
        let shared = Shared {
            counters: Vec::new(),
            registers: vec![array.clone()],
            entries: Vec::new(),
            colours: Vec::new(),
            entry_colours: Vec::new(),
        };
        let mut live = Registers::live(Arc::new(shared));
        assert_eq!((live.get(0, 1), live.get(0, 2)), (Some(BigInt::from(7)), None));
        assert!(live.set(0, 1, BigInt::from(8)) && !live.set(0, 2, BigInt::from(8)));
        assert_eq!((live.get(0, 1), array.read(1)), (Some(BigInt::from(8)), 7u64.into()));
        array.write(1, &[9]);
        live.start();
        assert_eq!(live.get(0, 1), Some(BigInt::from(9)));
    }
}
