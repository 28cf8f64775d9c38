// SPDX-License-Identifier: Apache-2.0
//! Memory that a program's tables and arrays take, before any of it is taken.

use super::packed::Stored;
use super::{Result, invalid};
use crate::dataplane_ops::MeterConfig;
use crate::program::{MeterUnit, Program};
use crate::state::meter::Meter;
use crate::state::table::{EntryStats, RowShape};
use crate::state::{ColourCells, CounterCell};
use crate::value::words;

/// Cells of an array, entries of a table and members of a profile at most.
const MAX_CELLS: usize = 1 << 24;
/// Bytes of all arrays, with what is counted of entries, which are there from the start; and with tables and profiles
/// when they are full.
const MAX_BYTES_AT_START: usize = 256 << 20;
const MAX_BYTES_WHEN_FULL: usize = 1 << 30;
/// Bytes of an entry in two hash tables, which are at most 7/8 full and double, and in the lists of free slots.
const INDEX: usize = 32;
/// Bytes of a member or group of a profile.
const MEMBER: usize = 256;

/// Bytes that a thing takes at once, and when it is full.
struct Size<'a> {
    name: &'a str,
    cells: usize,
    at_once: usize,
    full: usize,
}

impl<'a> Size<'a> {
    /// An array with so many bytes for each cell.
    fn of_array(name: &'a str, cells: usize, bytes: usize) -> Size<'a> {
        let all = cells.saturating_mul(bytes);
        Size { name, cells, at_once: all, full: all }
    }
}

fn sizes(program: &Program) -> Vec<Size<'_>> {
    let table = |(info, code)| {
        let (info, code): (&crate::program::TableInfo, &crate::state::code::TableCode) = (info, code);
        let meter = |unit: Option<MeterUnit>| if unit.is_some() { size_of::<(Meter, ColourCells)>() } else { 0 };
        let counted = if code.counter || code.timeout { size_of::<EntryStats>() } else { 0 };
        let at_once = counted + meter(info.meter);
        // One row is the packet thread's, one the control plane's.
        let row = 2 * 8 * (RowShape::new(code).len + 1) + size_of::<Option<Stored>>() + INDEX;
        let of_all = |bytes: usize| info.max_size.saturating_mul(bytes);
        Size { name: &info.name, cells: info.max_size, at_once: of_all(at_once), full: of_all(at_once + row) }
    };
    let tables = program.tables.iter().zip(&program.code.tables).map(table);
    let profile = |profile| -> Size<'_> {
        let profile: &crate::program::ProfileInfo = profile;
        Size { name: &profile.name, cells: profile.size, at_once: 0, full: profile.size.saturating_mul(MEMBER) }
    };
    let profiles = program.profiles.iter().map(profile);
    let counters = program.counters.iter().map(|of| Size::of_array(&of.name, of.size, size_of::<CounterCell>()));
    let meter = size_of::<(Meter, ColourCells, Option<MeterConfig>)>();
    let meters = program.meters.iter().map(|of| Size::of_array(&of.name, of.size, meter));
    let registers = program.registers.iter().map(|of| Size::of_array(&of.name, of.size, 8 * words(of.width)));
    tables.chain(profiles).chain(counters).chain(meters).chain(registers).collect()
}

/// Checks that there is memory for all that the program declares.
pub fn check_size(program: &Program) -> Result<()> {
    let (mut at_once, mut full) = (0usize, 0usize);
    for size in sizes(program) {
        let Size { name, cells, .. } = size;
        if cells > MAX_CELLS {
            return invalid(format!("`{name}` has a size of {cells}: {MAX_CELLS} is the largest"));
        }
        (at_once, full) = (at_once.saturating_add(size.at_once), full.saturating_add(size.full));
        for (bytes, most, what) in
            [(at_once, MAX_BYTES_AT_START, "arrays"), (full, MAX_BYTES_WHEN_FULL, "arrays and full tables")]
        {
            if bytes > most {
                return invalid(format!(
                    "`{name}` takes {} bytes, {what} up to it {bytes}: {most} are the most: give it a smaller size",
                    if what == "arrays" { size.at_once } else { size.full }
                ));
            }
        }
    }
    Ok(())
}
