// SPDX-License-Identifier: Apache-2.0
//! Functions that native code calls: methods of [`State`] with C's calling convention.

use super::site::Site;
use crate::state::State;
use crate::state::code::{Code, OtherParserOp};
use crate::state::frame::Frame;
use crate::state::op::Effect;
use crate::state::select::Select;
use crate::state::table::Table;

/// The slot of an entry that is not there.
pub const MISS: u64 = u64::MAX;

/// No error of a parser is that large.
pub const NO_ERROR: u64 = u64::MAX;
pub const NO_COLOUR: u64 = u64::MAX;

/// Two words come back in registers.
#[repr(C)]
pub struct Pair(u64, u64);

pub extern "C" fn effect(state: &mut State, code: &Code, effect: &Effect, now: u64) {
    state.effect(code, *effect, now);
}

/// The slot of the entry for `words` values of a key, or [`MISS`].
///
/// # Safety
/// `values` points to as many words as the table's key has, with its range fields.
pub unsafe extern "C" fn find(table: &Table, values: *const u64, words: usize) -> u64 {
    // SAFETY: as the caller promises.
    let values = unsafe { std::slice::from_raw_parts(values, words) };
    table.lookup(values).map_or(MISS, u64::from)
}

/// The colour that an entry's meter gives to a packet of `amount` bytes, or 1 packet.
pub extern "C" fn entry_meter(state: &mut State, _: &Code, table: usize, slot: usize, amount: u64, now: u64) -> u64 {
    state.entry_meter(table, slot, amount, now)
}

/// The colour that the default entry's meter gives, or [`NO_COLOUR`].
pub extern "C" fn default_meter(state: &mut State, _: &Code, table: usize, amount: u64, now: u64) -> u64 {
    state.default_meter(table, amount, now).unwrap_or(NO_COLOUR)
}

/// Pointer to the action of the member that an entry refers to; 0: there is none.
pub extern "C" fn member(state: &mut State, code: &Code, table: usize, slot: u32) -> u64 {
    state.member(code, table, slot).map_or(0, |action| action.as_ptr().expose_provenance() as u64)
}

/// The error or [`NO_ERROR`].
pub extern "C" fn parse_other(state: &mut State, code: &Code, frame: &Frame, op: &OtherParserOp) -> u64 {
    state.parse_other(code, op, frame).err().unwrap_or(NO_ERROR)
}

/// The error or [`NO_ERROR`], and the next state; as many as there are states: accept.
pub extern "C" fn select(state: &mut State, code: &Code, frame: &Frame, select: &Select) -> Pair {
    match state.select(code, select, frame) {
        Ok(next) => Pair(NO_ERROR, next.map_or(code.parser.states.len() as u64, u64::from)),
        Err(error) => Pair(error, 0),
    }
}

pub extern "C" fn checksum(state: &mut State, code: &Code, frame: &Frame, calculation: u16) -> u64 {
    state.checksum(code, frame, calculation)
}

/// 0: the frame does not fit its buffer.
pub extern "C" fn make_room(state: &mut State, _: &Code, frame: &mut Frame, len: usize) -> u64 {
    state.make_room(frame, len) as u64
}

pub extern "C" fn emit_parts(state: &mut State, code: &Code, frame: &mut Frame, header: u16, at: usize) {
    state.emit_parts(code, frame, header, at);
}

/// Returns 1 if the state holds these bytes; if not, 0, and the violation is left in it. `frame`: null in the controls.
pub extern "C" fn check(
    state: &mut State,
    _: &Code,
    frame: Option<&Frame>,
    address: usize,
    bytes: usize,
    site: &Site,
) -> u64 {
    let allowed = state.holds(site.memory, frame, address, bytes);
    if !allowed {
        state.violation = Some(format!("{}: {bytes} bytes that are not of {}", site.place, site.memory));
    }
    allowed as u64
}
