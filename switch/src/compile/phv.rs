// SPDX-License-Identifier: Apache-2.0
//! Where every header and field lives in the register file.
//!
//! ```text
//! 0 .. fields              the packet header vector (PHV); travels with a packet that waits in a queue
//!   validity of each header | buffer offset of each header | fields, 64 bits a register, low word first
//! fields .. REGISTERS      parameters of the running action | temporaries | constants
//! ```

use std::collections::HashMap;

use serde_json::Value;

use super::json::{Document, Typed};
use super::{LoadError, refuse};
use crate::machine::op::{REGISTERS, Reg};
use crate::machine::wire::{HeaderLayout, Piece};

/// The widest field, parameter or key field.
pub const MAX_WIDTH: u16 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The low word; the high word of a field wider than 64 bits is the next register.
    pub reg: Reg,
    pub width: u16,
    pub signed: bool,
    pub header: u16,
}

impl Field {
    pub fn is_wide(&self) -> bool {
        self.width > 64
    }
}

pub struct HeaderInfo {
    pub metadata: bool,
    /// In the order of the wire.
    pub fields: Vec<Field>,
    /// Total of the field widths.
    pub bits: u32,
    pub registers: std::ops::Range<usize>,
}

pub struct Phv {
    pub headers: Vec<HeaderInfo>,
    header_by_name: HashMap<String, u16>,
    field_by_name: HashMap<(u16, String), Field>,
    aliases: HashMap<String, (String, String)>,
    /// Registers that travel with a packet.
    pub fields: usize,
}

impl Phv {
    pub fn new(doc: &Document) -> Result<Phv, LoadError> {
        let mut phv = Phv {
            headers: Vec::new(),
            header_by_name: HashMap::new(),
            field_by_name: HashMap::new(),
            aliases: doc.field_aliases.iter().cloned().collect(),
            fields: 2 * doc.headers.len(),
        };
        let types: HashMap<&str, _> = doc.header_types.iter().map(|t| (t.name.as_str(), t)).collect();
        for header in &doc.headers {
            let place = format!("header `{}`", header.name);
            let Some(header_type) = types.get(header.header_type.as_str()) else {
                return refuse(place, format!("unknown header type `{}`", header.header_type));
            };
            let index = phv.headers.len() as u16;
            let mut info = HeaderInfo {
                metadata: header.metadata,
                fields: Vec::new(),
                bits: 0,
                registers: phv.fields..phv.fields,
            };
            for field in &header_type.fields {
                let (name, width, signed) = match field.as_slice() {
                    [Value::String(name), width] => (name, width, false),
                    [Value::String(name), width, Value::Bool(signed)] => (name, width, *signed),
                    _ => return refuse(place, "a field is not [name, width, signed]"),
                };
                let place = format!("field `{}.{name}`", header.name);
                let width = match width.as_u64() {
                    Some(w) if (1..=MAX_WIDTH as u64).contains(&w) => w as u16,
                    Some(w) => return refuse(place, format!("width {w} is not supported (1 to {MAX_WIDTH} bits)")),
                    None => return refuse(place, "fields of variable width (varbit) are not supported"),
                };
                if signed && width > 64 {
                    return refuse(place, format!("signed fields wider than 64 bits are not supported ({width})"));
                }
                let field = Field { reg: phv.fields as Reg, width, signed, header: index };
                phv.fields += if field.is_wide() { 2 } else { 1 };
                if phv.fields > REGISTERS / 2 {
                    return refuse(place, "the program has more fields than the register file holds");
                }
                phv.field_by_name.insert((index, name.clone()), field);
                info.fields.push(field);
                info.bits += width as u32;
            }
            if !header.metadata && !info.bits.is_multiple_of(8) {
                return refuse(place, format!("its {} bits are not whole bytes", info.bits));
            }
            info.registers.end = phv.fields;
            phv.header_by_name.insert(header.name.clone(), index);
            phv.headers.push(info);
        }
        Ok(phv)
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
        let index = self.header(header)?;
        if field == "$valid$" {
            return Some(Field { reg: self.valid(index), width: 1, signed: false, header: index });
        }
        self.field_by_name.get(&(index, field.to_string())).copied()
    }

    /// A field that the architecture names, such as `intrinsic_metadata.mcast_grp`.
    pub fn intrinsic(&self, name: &str) -> Option<Field> {
        if let Some((header, field)) = self.aliases.get(name) {
            return self.field(header, field);
        }
        let (header, field) = name.split_once('.')?;
        self.field(header, field)
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

    pub fn header_of(&self, param: &Typed, place: &str) -> Result<u16, LoadError> {
        if param.kind != "header" {
            return refuse(place, format!("`{}` where a header is needed is not supported", param.kind));
        }
        match param.value.as_str().and_then(|name| self.header(name)) {
            Some(header) => Ok(header),
            None => refuse(place, format!("unknown header {}", param.value)),
        }
    }

    /// How the header stands on the wire: its fields cut at every eighth byte and at the words of their registers.
    pub fn wire_layout(&self, header: u16) -> HeaderLayout {
        let info = &self.headers[header as usize];
        let registers = info.registers.clone();
        let mut layout = HeaderLayout::new(self.valid(header), self.offset(header), info.bits / 8, registers);
        if info.metadata {
            layout.metadata = true;
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
            if field.signed {
                layout.signed.push((field.reg, field.width as u8));
            }
        }
        layout
    }
}
