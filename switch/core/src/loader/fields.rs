// SPDX-License-Identifier: Apache-2.0
//! Names of header fields. They are read from the JSON again when a client asks: no packet needs them.

use super::json::Document;
use super::phv::Phv;
use super::{LoadError, place, refuse};
use crate::program::{HeaderField, Program};

impl Program {
    /// Returns the fields of the headers on the wire, in the program's order. Reads [`Program::source`].
    pub fn header_fields(&self) -> Result<Vec<HeaderField>, LoadError> {
        let doc: Document = match serde_json::from_slice(&self.source) {
            Ok(doc) => doc,
            Err(_) => return refuse("program", "its JSON was not kept"),
        };
        let phv = Phv::new(&doc)?;
        let mut fields = Vec::new();
        for header in doc.headers.iter().filter(|header| !header.metadata) {
            let header_type = doc.header_types.iter().find(|one| one.name == header.header_type);
            for name in header_type.iter().flat_map(|one| &one.fields).filter_map(|field| field.first()?.as_str()) {
                let Some(field) = phv.field(&header.name, name).filter(|field| field.length.is_none()) else {
                    continue;
                };
                fields.push(HeaderField {
                    header: header.name.clone(),
                    name: name.to_string(),
                    place: place(field),
                    valid: phv.valid(field.header),
                });
            }
        }
        Ok(fields)
    }
}
