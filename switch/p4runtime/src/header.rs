// SPDX-License-Identifier: Apache-2.0
//! The fields of controller headers, between the P4Info and the header on the wire (P4Runtime 1.5,
//! "ControllerPacketMetadata").

use apswitch_core::program::FieldInfo;
use apswitch_dataplane::control::Program;

use super::error::{Checked, refuse};
use super::proto::p4::config::v1 as info;
use super::translation::{SdnType, Types};

/// Bits of a field at most: p4c has none wider.
const MAX_FIELD_BITS: u32 = 2048;

/// A field of a controller header.
pub struct HeaderField {
    pub id: u32,
    pub name: String,
    /// Bits of the data plane's value.
    pub width: u32,
    pub sdn_type: SdnType,
    /// Filler that clients need not send.
    pub is_padding: bool,
}

type Metadata = info::controller_packet_metadata::Metadata;

pub fn fields(metadata: &[Metadata], types: &Types<'_>, program: &Program) -> Checked<Vec<HeaderField>> {
    let found = widths(metadata, types, program)?;
    let mut fields: Vec<HeaderField> = Vec::with_capacity(metadata.len());
    for (field, width) in metadata.iter().zip(found) {
        let (id, name) = (field.id, &field.name);
        if !(1..=MAX_FIELD_BITS).contains(&width) {
            return refuse!(InvalidArgument, "{name}: {width} bits; at most {MAX_FIELD_BITS}");
        }
        if id == 0 || fields.iter().any(|other| other.id == id) {
            return refuse!(InvalidArgument, "{name}: id {id} is zero or used twice");
        }
        let sdn_type = SdnType::new(field.type_name.as_ref(), types, field.bitwidth, width).map_err(|e| e.at(name))?;
        let is_padding = field.annotations.iter().any(|a| a.starts_with("@padding"));
        fields.push(HeaderField { id, name: name.clone(), width, sdn_type, is_padding });
    }
    let bits: u32 = fields.iter().map(|f| f.width).sum();
    match bits % 8 {
        0 => Ok(fields),
        _ => refuse!(InvalidArgument, "{bits} bits are no whole number of bytes"),
    }
}

/// Widths of the fields on the wire. Of translated ones the P4Info says only what clients see; the header itself is
/// then that of the program which has these fields.
fn widths(metadata: &[Metadata], types: &Types<'_>, program: &Program) -> Checked<Vec<u32>> {
    let is_translated =
        |field: &Metadata| field.type_name.as_ref().is_some_and(|name| types.translation(&name.name).is_some());
    let Some(translated) = metadata.iter().find(|field| is_translated(field)) else {
        return Ok(metadata.iter().map(|field| field.bitwidth.max(0) as u32).collect());
    };
    let describes = |header: &&Vec<FieldInfo>| {
        header.len() == metadata.len()
            && header.iter().zip(metadata).all(|(there, field)| {
                there.name == field.name && (is_translated(field) || i32::from(there.width) == field.bitwidth)
            })
    };
    let mut found = program.headers.iter().filter(describes);
    match (found.next(), found.next()) {
        (Some(header), other) if other.is_none_or(|other| other == header) => {
            Ok(header.iter().map(|field| field.width.into()).collect())
        }
        (found, _) => {
            let (name, of) = (&translated.name, translated.type_name.as_ref().map_or("", |name| &name.name));
            let headers = if found.is_some() { "several headers" } else { "no header" };
            refuse!(
                Unimplemented,
                "{name}: the width of type {of} is undecidable: {headers} of the device config with these fields"
            )
        }
    }
}
