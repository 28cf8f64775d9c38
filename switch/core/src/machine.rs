// SPDX-License-Identifier: Apache-2.0
//! The machine: a loaded program with the state that it runs on, for one packet at a time. It knows nothing of ports;
//! time is an argument.

use std::sync::Arc;

use crate::jit::Native;
use crate::program::{MeterUnit, Program, Value};
use crate::state::code::{Code, FieldRef, TableCode};
use crate::state::frame::{Frame, PacketState};
use crate::state::hash::read;
use crate::state::register::RegisterArray;
use crate::state::wire::NOT_IN_FRAME;
use crate::state::{Requests, Shared, State};
use crate::value::words;

impl Shared {
    pub fn new(program: &Program) -> Shared {
        fn cells<T: Default>(size: usize) -> Arc<[T]> {
            (0..size).map(|_| T::default()).collect()
        }
        Shared {
            counters: program.counters.iter().map(|c| cells(c.size)).collect(),
            registers: program.registers.iter().map(|r| Arc::new(RegisterArray::new(r.size, r.width))).collect(),
            entries: (program.code.tables.iter())
                .map(|t| cells(if t.counter || t.timeout { t.max_size + 1 } else { 0 }))
                .collect(),
            colours: program.meters.iter().map(|m| cells(m.size)).collect(),
            entry_colours: (program.code.tables.iter())
                .map(|t| cells(if t.meter.is_some() { t.max_size + 1 } else { 0 }))
                .collect(),
        }
    }
}

impl Shared {
    /// Has what the program has, of the same sizes.
    fn fits(&self, program: &Program) -> bool {
        fn alike<A, B>(here: &[A], there: &[B], same: impl Fn(&A, &B) -> bool) -> bool {
            here.len() == there.len() && here.iter().zip(there).all(|(a, b)| same(a, b))
        }
        let slots = |needed: bool, table: &TableCode| if needed { table.max_size + 1 } else { 0 };
        let code = &program.code;
        // The code's own numbers: what a program says of itself can be changed.
        (program.counters.len(), program.registers.len(), program.meters.len())
            == (code.counters, code.registers.len(), code.meters)
            && alike(&self.counters, &program.counters, |cells, info| cells.len() == info.size)
            && alike(&self.registers, &code.registers, |array, &width| array.cell_words() == words(width))
            && alike(&self.colours, &program.meters, |cells, info| cells.len() == info.size)
            && alike(&self.entries, &code.tables, |cells, t| cells.len() == slots(t.counter || t.timeout, t))
            && alike(&self.entry_colours, &code.tables, |cells, t| cells.len() == slots(t.meter.is_some(), t))
    }
}

/// A program and the state that it runs on. Native code relies on the state being as [`Machine::new`] has made it, and
/// on frames staying those that were parsed: nobody outside reaches them.
pub struct Machine {
    pub(crate) code: Arc<Code>,
    native: Arc<Native>,
    pub(crate) state: State,
}

impl Machine {
    /// `seed` is that of P4's `random`. Panics if `shared` was made for a program of other tables or arrays: native
    /// code takes their number and sizes for granted.
    pub fn new(program: &Program, shared: Arc<Shared>, seed: u64) -> Machine {
        let code = program.code.clone();
        assert!(shared.fits(program), "the shared state is another program's");
        let native = program.native.clone().expect("every loaded program has its native code");
        let meters = program.meters.iter().map(|meter| (meter.size, meter.unit == MeterUnit::Bytes));
        let state = State::new(&code, shared, meters, program.value_sets.len(), seed);
        Machine { code, native, state }
    }

    /// An empty PHV for the next packet.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.state.regs[..self.code.phv.len()].copy_from_slice(&self.code.phv);
        self.state.requests = Requests::default();
    }

    /// Starts a packet that a port received: nothing is known of it but this. `now`: ns.
    #[inline]
    pub(crate) fn start(&mut self, port: u16, packet: PacketState, now: u64) {
        self.reset();
        let Machine { code, state, .. } = self;
        state.packet = packet;
        state.set(code.standard.ingress_port, port as u64);
        state.set(code.standard.packet_length, packet.length as u64);
        state.set(code.standard.ingress_global_timestamp, now / 1000);
    }

    /// The registers that travel with a packet.
    pub(crate) fn phv(&self) -> &[u64] {
        &self.state.regs[..self.code.phv.len()]
    }

    pub(crate) fn set_phv(&mut self, phv: &[u64]) {
        self.state.regs[..phv.len()].copy_from_slice(phv);
        self.state.requests = Requests::default();
    }

    /// Takes the fields of a list over from another packet's PHV.
    pub(crate) fn copy_fields(&mut self, list: u16, phv: &[u64]) {
        for place in &self.code.field_lists[list as usize] {
            let range = place.reg as usize..place.reg as usize + place.words();
            if let Some(header) = self.code.headers.iter().find(|header| header.fields.contains(&range.start)) {
                self.state.regs[header.offset as usize] = NOT_IN_FRAME;
            }
            self.state.regs[range.clone()].copy_from_slice(&phv[range]);
        }
    }

    /// The values of a digest as they are now.
    pub(crate) fn digest_values(&self, digest: usize) -> impl Iterator<Item = Value> {
        self.code.digests[digest].iter().map(|place| read(*place, &self.state.regs))
    }

    pub(crate) fn get(&self, place: FieldRef) -> u64 {
        self.state.get(place)
    }

    pub(crate) fn set(&mut self, place: FieldRef, value: u64) {
        self.state.set(place, value);
    }

    pub(crate) fn ingress(&mut self, now: u64) {
        self.native.ingress(&mut self.state, now);
    }

    pub(crate) fn egress(&mut self, now: u64) {
        self.native.egress(&mut self.state, now);
    }

    /// Parses the frame into the registers, which are empty but for what the parser may branch on. Verifies
    /// checksums and leaves the standard metadata about errors. `now`: ns.
    pub(crate) fn parse(&mut self, frame: &Frame, now: u64) {
        self.native.parse(&mut self.state, frame, now);
    }

    /// Updates checksums and writes the headers in front of the payload. False: the frame does not fit its buffer.
    pub(crate) fn deparse(&mut self, frame: &mut Frame, now: u64) -> bool {
        self.native.deparse(&mut self.state, frame, now)
    }
}
