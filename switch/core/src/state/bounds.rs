// SPDX-License-Identifier: Apache-2.0
//! Owners of memory addresses, for native code that checks what it accesses.

use std::fmt;
use std::mem::size_of_val;

use super::State;
use super::frame::Frame;

/// Parts of memory that do not overlap, beside the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The bytes of a frame.
    Bytes,
    /// Start and end of a frame.
    Frame,
    /// `State::packet`.
    Packet,
    /// `State::places`, and what tells where cells and tables are.
    Places,
    /// Rows, indices and default actions of tables, members of action profiles.
    Tables,
    /// Counters and registers, kept from packet to packet.
    Cells,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Memory::Bytes => "a frame's bytes",
            Memory::Frame => "a frame's start and end",
            Memory::Packet => "the packet's state",
            Memory::Places => "the places of cells and tables",
            Memory::Tables => "tables and action profiles",
            Memory::Cells => "counters and registers",
        })
    }
}

/// The bytes from `address` on are all in the object.
pub fn within<T: ?Sized>(object: &T, address: usize, bytes: usize) -> bool {
    let start = std::ptr::from_ref(object).addr();
    let end = start + size_of_val(object);
    start <= address && address.checked_add(bytes).is_some_and(|behind| behind <= end)
}

impl State {
    /// Returns true if all these bytes belong to that memory.
    pub fn holds(&self, memory: Memory, frame: Option<&Frame>, address: usize, bytes: usize) -> bool {
        match memory {
            Memory::Bytes => frame.is_some_and(|frame| within(frame.buffer(), address, bytes)),
            Memory::Frame => frame.is_some_and(|frame| within(frame, address, bytes)),
            Memory::Packet => within(&self.packet, address, bytes),
            Memory::Places => {
                within(&self.places, address, bytes)
                    || within(&*self.tables, address, bytes)
                    || within(&*self._counters, address, bytes)
                    || within(&*self._registers, address, bytes)
            }
            Memory::Tables => {
                self.tables.iter().any(|table| table.holds(address, bytes))
                    || self.profiles.iter().any(|profile| profile.holds(address, bytes))
            }
            Memory::Cells => {
                self.shared.counters.iter().any(|cells| within(&**cells, address, bytes))
                    || self.shared.registers.iter().any(|array| within(array.words(), address, bytes))
                    || self.shared.entries.iter().any(|cells| within(&**cells, address, bytes))
            }
        }
    }
}
