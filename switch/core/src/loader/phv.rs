// SPDX-License-Identifier: Apache-2.0
//! Layout of headers and fields in the register file.
//!
//! ```text
//! 0 .. fields              the packet header vector (PHV); travels with a packet that waits in a queue
//!   validity of each header | buffer offset of each header | next index of each stack |
//!   fields, 64 bits a register, low word first; behind a varbit its length in bits
//! fields .. REGISTERS      parameters of the running action | temporaries | constants
//! ```

use std::collections::HashMap;

use serde_json::Value;

use super::json::{Document, Header, HeaderType};
use super::{LoadError, refuse};
use crate::state::op::{REGISTERS, Reg};
use crate::state::wire::{HeaderLayout, Part, Piece};
use crate::value;

/// The widest field, parameter or cell of a register: p4c has none wider.
pub const MAX_WIDTH: u16 = 2048;
/// Bits of the longest varbit.
const MAX_VARBIT: u64 = 1 << 14;
/// Elements of a stack and members of a union at most.
const MAX_ELEMENTS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The low word; those above are the next registers. A signed field of up to 64 bits is kept sign-extended.
    pub reg: Reg,
    /// Bits; of a varbit at most.
    pub width: u16,
    pub signed: bool,
    pub header: u16,
    /// Register with a varbit's length in bits.
    pub length: Option<Reg>,
}

impl Field {
    fn new(reg: Reg, width: u16, signed: bool, header: u16) -> Field {
        Field { reg, width, signed, header, length: None }
    }

    /// An unsigned one that belongs to no header.
    pub fn of_none(reg: Reg, width: u16) -> Field {
        Field::new(reg, width, false, NO_HEADER)
    }

    /// Returns the field of a varbit's length in bits.
    pub fn of_length(self) -> Option<Field> {
        Some(Field { reg: self.length?, width: 32, signed: false, length: None, ..self })
    }

    pub fn is_wide(&self) -> bool {
        self.width > 64
    }

    /// Registers that its value takes.
    pub fn words(&self) -> u16 {
        value::words(self.width) as u16
    }
}

pub struct HeaderInfo {
    pub metadata: bool,
    /// In the order of the wire.
    pub fields: Vec<Field>,
    /// Total of the field widths; a varbit counts nothing.
    pub bits: u32,
    pub registers: std::ops::Range<usize>,
    /// Other members of its union.
    pub rivals: Vec<u16>,
}

impl HeaderInfo {
    pub fn varbit(&self) -> Option<&Field> {
        self.fields.iter().find(|field| field.length.is_some())
    }

    /// Returns what two headers have in common if one can be copied onto the other: width and sign of each field, and
    /// which is a varbit. Their registers are then laid out alike.
    pub fn shape(&self) -> impl Iterator<Item = (u16, bool, bool)> {
        self.fields.iter().map(|field| (field.width, field.signed, field.length.is_some()))
    }

    /// Neither of variable length nor in a union: whatever is done to it concerns its own registers only.
    pub fn is_plain(&self) -> bool {
        self.rivals.is_empty() && self.varbit().is_none()
    }
}

/// A stack of headers or unions.
pub struct StackInfo {
    /// Index behind the last element that was extracted.
    pub next: Field,
    /// The headers of each element: one, or the members of the union.
    pub elements: Vec<Vec<u16>>,
    /// Names of the members of the union.
    pub members: Vec<String>,
}

pub struct Phv {
    pub headers: Vec<HeaderInfo>,
    pub stacks: Vec<StackInfo>,
    header_by_name: HashMap<String, u16>,
    stack_by_name: HashMap<String, u16>,
    union_by_name: HashMap<String, Vec<u16>>,
    field_by_name: HashMap<(u16, String), Field>,
    aliases: HashMap<String, (String, String)>,
    /// Registers that travel with a packet.
    pub fields: usize,
    /// One of them, where there are jumps: how often actions have gone back for this packet.
    pub jumps_back: Option<Reg>,
}

/// The header of registers that belong to none.
const NO_HEADER: u16 = u16::MAX;

impl Phv {
    pub fn new(doc: &Document) -> Result<Phv, LoadError> {
        let stacks = doc.header_stacks.len() + doc.header_union_stacks.len();
        let mut phv = Phv {
            headers: Vec::new(),
            stacks: Vec::new(),
            header_by_name: HashMap::new(),
            stack_by_name: HashMap::new(),
            union_by_name: HashMap::new(),
            field_by_name: HashMap::new(),
            aliases: doc.field_aliases.iter().cloned().collect(),
            fields: 2 * doc.headers.len() + stacks,
            jumps_back: None,
        };
        let types: HashMap<&str, _> = doc.header_types.iter().map(|t| (t.name.as_str(), t)).collect();
        for header in &doc.headers {
            let Some(header_type) = types.get(header.header_type.as_str()) else {
                let reason = format!("unknown header type `{}`", header.header_type);
                return refuse(format!("header `{}`", header.name), reason);
            };
            phv.add_header(header, header_type)?;
        }
        if phv.fields > REGISTERS / 2 {
            return refuse("`headers`", "the program has more headers than the register file holds");
        }
        phv.add_unions_and_stacks(doc)?;
        let mut primitives = doc.actions.iter().flat_map(|action| &action.primitives);
        if primitives.any(|primitive| primitive.op.starts_with("_jump")) {
            phv.jumps_back = Some(phv.fields as Reg);
            phv.fields += 1;
        }
        Ok(phv)
    }

    fn add_header(&mut self, header: &Header, header_type: &HeaderType) -> Result<(), LoadError> {
        let place = format!("header `{}`", header.name);
        let index = self.headers.len() as u16;
        let mut info = HeaderInfo {
            metadata: header.metadata,
            fields: Vec::new(),
            bits: 0,
            registers: self.fields..self.fields,
            rivals: Vec::new(),
        };
        let widths = header_type.fields.iter().filter_map(|field| field.get(1)?.as_u64());
        // Each is checked below.
        let fixed = widths.fold(0u64, u64::saturating_add);
        for field in &header_type.fields {
            let (name, width, signed) = match field.as_slice() {
                [Value::String(name), width] => (name, width, false),
                [Value::String(name), width, Value::Bool(signed)] => (name, width, *signed),
                // Booleans and errors.
                [Value::String(name), width, Value::Number(_)] => (name, width, false),
                _ => return refuse(place, "a field is not [name, width, signed]"),
            };
            let place = format!("field `{}.{name}`", header.name);
            let variable = width.as_str() == Some("*");
            let width = match (width.as_u64(), header_type.max_length) {
                (Some(w), _) if (1..=MAX_WIDTH as u64).contains(&w) => w as u16,
                (Some(w), _) => return refuse(place, format!("width {w} is not supported (1 to {MAX_WIDTH} bits)")),
                (None, Some(bytes)) if variable => match (8 * bytes as u64).checked_sub(fixed) {
                    Some(w) if (1..=MAX_VARBIT).contains(&w) => w as u16,
                    _ => return refuse(place, format!("a varbit in {bytes} bytes is not supported")),
                },
                (None, _) => return refuse(place, "its width is neither a number nor `*` with a `max_length`"),
            };
            if variable && info.varbit().is_some() {
                return refuse(place, "a second varbit in a header is not supported");
            }
            let mut field = Field::new(self.fields as Reg, width, signed, index);
            self.fields += field.words() as usize;
            if variable {
                field.length = Some(self.fields as Reg);
                self.fields += 1;
            } else {
                info.bits += width as u32;
            }
            if self.fields > REGISTERS / 2 {
                return refuse(place, "the program has more fields than the register file holds");
            }
            self.field_by_name.insert((index, name.clone()), field);
            info.fields.push(field);
        }
        if !header.metadata && !info.bits.is_multiple_of(8) {
            return refuse(place, format!("its {} bits are not whole bytes", info.bits));
        }
        info.registers.end = self.fields;
        self.header_by_name.insert(header.name.clone(), index);
        self.headers.push(info);
        Ok(())
    }

    fn add_unions_and_stacks(&mut self, doc: &Document) -> Result<(), LoadError> {
        let by_id: HashMap<u64, (u16, bool)> =
            doc.headers.iter().zip(0..).map(|(header, at)| (header.id, (at, header.metadata))).collect();
        let headers = |place: String, ids: &[u64]| -> Result<Vec<u16>, LoadError> {
            if ids.len() > MAX_ELEMENTS {
                return refuse(place, format!("{} elements are not supported (at most {MAX_ELEMENTS})", ids.len()));
            }
            let found: Option<Vec<(u16, bool)>> = ids.iter().map(|id| by_id.get(id).copied()).collect();
            match found {
                // Metadata are never on the wire, and need not be whole bytes.
                Some(found) if found.iter().any(|(_, metadata)| *metadata) => {
                    refuse(place, "metadata in a stack or union is not supported: its elements have to be headers")
                }
                Some(found) => Ok(found.into_iter().map(|(header, _)| header).collect()),
                None => refuse(place, "unknown header id"),
            }
        };
        let mut union_by_id = HashMap::new();
        for union in &doc.header_unions {
            let members = headers(format!("header union `{}`", union.name), &union.header_ids)?;
            for &member in &members {
                self.headers[member as usize].rivals = members.iter().copied().filter(|m| *m != member).collect();
            }
            self.union_by_name.insert(union.name.clone(), members.clone());
            union_by_id.insert(union.id, members);
        }
        let mut stacks = Vec::new();
        for stack in &doc.header_stacks {
            let place = format!("header stack `{}`", stack.name);
            let elements = headers(place.clone(), &stack.header_ids)?;
            stacks.push((place, &stack.name, elements.into_iter().map(|h| vec![h]).collect::<Vec<_>>(), Vec::new()));
        }
        for stack in &doc.header_union_stacks {
            let place = format!("header union stack `{}`", stack.name);
            let unions = stack.header_union_ids.iter().map(|id| union_by_id.get(id).cloned()).collect();
            let union_type = doc.header_union_types.iter().find(|t| t.name == stack.union_type);
            let (Some(elements), Some(union_type)) = (unions, union_type) else {
                return refuse(place, "unknown union id or type");
            };
            let members = union_type.headers.iter().map(|(name, _)| name.clone()).collect();
            stacks.push((place, &stack.name, elements, members));
        }
        for (place, name, elements, members) in stacks {
            let same = |(a, b): (&u16, &u16)| self.headers[*a as usize].shape().eq(self.headers[*b as usize].shape());
            let alike = |pair: &[Vec<u16>]| pair[0].len() == pair[1].len() && pair[0].iter().zip(&pair[1]).all(same);
            let is_whole = |element: &Vec<u16>| element.len() == members.len().max(1);
            if elements.len() > MAX_ELEMENTS {
                let reason = format!("{} elements are not supported (at most {MAX_ELEMENTS})", elements.len());
                return refuse(place, reason);
            }
            if elements.is_empty() || !elements.windows(2).all(alike) || !elements.iter().all(is_whole) {
                return refuse(place, "it has no elements, or such of different types");
            }
            let index = self.stacks.len();
            let next = Field::of_none((2 * self.headers.len() + index) as Reg, 32);
            self.stack_by_name.insert(name.clone(), index as u16);
            self.stacks.push(StackInfo { next, elements, members });
        }
        Ok(())
    }

    pub fn stack(&self, name: &str) -> Option<u16> {
        self.stack_by_name.get(name).copied()
    }

    /// The members of a union.
    pub fn union(&self, name: &str) -> Option<&[u16]> {
        self.union_by_name.get(name).map(Vec::as_slice)
    }

    /// A field of a header that is known by its index.
    pub fn header_field(&self, header: u16, field: &str) -> Option<Field> {
        if field == "$valid$" {
            return Some(Field::new(self.valid(header), 1, false, header));
        }
        self.field_by_name.get(&(header, field.to_string())).copied()
    }

    pub fn header(&self, name: &str) -> Option<u16> {
        self.header_by_name.get(name).copied()
    }

    /// The register that is 1 while the header is valid.
    pub fn valid(&self, header: u16) -> Reg {
        header
    }

    /// The register with the place of the header in the frame's buffer.
    pub fn offset(&self, header: u16) -> Reg {
        self.headers.len() as Reg + header
    }

    /// `header.field`, or `header.$valid$`.
    pub fn field(&self, header: &str, field: &str) -> Option<Field> {
        self.header_field(self.header(header)?, field)
    }

    /// A field that the architecture names, such as `intrinsic_metadata.mcast_grp`; without a header: one of the program's
    /// metadata, for which p4c has no alias.
    pub fn intrinsic(&self, name: &str) -> Option<Field> {
        if let Some((header, field)) = self.aliases.get(name) {
            return self.field(header, field);
        }
        match name.split_once('.') {
            Some((header, field)) => self.field(header, field),
            None => self.of_metadata(name),
        }
    }

    /// A field of the program's metadata. In a struct within that p4c calls each `_STRUCT_FIELD`, and a number.
    fn of_metadata(&self, name: &str) -> Option<Field> {
        let is_it = |field: &str| {
            let last = field.rsplit('.').next().unwrap_or(field);
            last == name
                || last.strip_prefix('_').is_some_and(|it| it.trim_end_matches(|c: char| c.is_ascii_digit()) == name)
        };
        let metadata = |header: u16| self.headers.get(header as usize).is_some_and(|info| info.metadata);
        let found = self.field_by_name.iter().find(|((header, field), _)| metadata(*header) && is_it(field));
        found.map(|(_, field)| *field)
    }

    /// The `[header, field]` of a `field` reference.
    pub fn field_of(&self, value: &Value, place: &str) -> Result<Field, LoadError> {
        let names = value.as_array().and_then(|a| Some((a.first()?.as_str()?, a.get(1)?.as_str()?)));
        let Some((header, field)) = names else {
            return refuse(place, format!("{value} is not a field reference"));
        };
        match self.field(header, field) {
            Some(field) => Ok(field),
            None => refuse(place, format!("unknown field `{header}.{field}`")),
        }
    }

    /// Returns the header's layout on the wire: its fields cut at every eighth byte and at the words of their
    /// registers.
    pub fn wire_layout(&self, header: u16) -> HeaderLayout {
        let info = &self.headers[header as usize];
        let registers = info.registers.clone();
        let mut layout = HeaderLayout::new(self.valid(header), self.offset(header), info.bits / 8, registers);
        layout.metadata = info.metadata;
        layout.rivals = info.rivals.clone();
        if info.varbit().is_some() {
            let part =
                |f: &Field| Part { reg: f.reg, width: f.width, signed: f.signed && !f.is_wide(), length: f.length };
            layout.parts = info.fields.iter().map(part).collect();
        }
        if info.metadata || info.varbit().is_some() {
            return layout;
        }
        let mut bit = 0u32;
        for field in &info.fields {
            let mut left = field.width as u32;
            while left > 0 {
                let word_bits = (left - 1) % 64 + 1;
                let bits = word_bits.min(64 - bit % 64);
                let low = left - bits;
                layout.push(
                    bit / 64,
                    Piece {
                        reg: field.reg + (low / 64) as Reg,
                        shift: (64 - bit % 64 - bits) as u8,
                        place: (low % 64) as u8,
                        starts_word: left == field.width as u32 || left.is_multiple_of(64),
                        mask: u64::MAX >> (64 - bits),
                    },
                );
                bit += bits;
                left = low;
            }
            if field.signed && !field.is_wide() {
                layout.signed.push((field.reg, field.width as u8));
            }
        }
        layout
    }
}
