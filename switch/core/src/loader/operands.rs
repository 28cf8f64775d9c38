// SPDX-License-Identifier: Apache-2.0
//! References to headers and fields: by name, or as the element of a stack that an index chooses when the packet comes.

use std::rc::Rc;

use serde_json::Value;

use super::expr::{self, Expr, constant};
use super::json::Typed;
use super::phv::{Field, Phv, StackInfo};
use super::{LoadError, refuse};
use crate::state::wide::Binary;

#[derive(Clone, Debug)]
pub enum HeaderRef {
    Fixed(u16),
    /// One for each element of a stack.
    Indexed {
        headers: Vec<u16>,
        index: Rc<Expr>,
    },
}

/// The members of a union.
enum UnionRef {
    Fixed(Vec<u16>),
    Indexed { elements: Vec<Vec<u16>>, index: Rc<Expr> },
}

impl HeaderRef {
    /// Any of them: they are alike.
    pub fn sample(&self) -> u16 {
        match self {
            HeaderRef::Fixed(header) => *header,
            HeaderRef::Indexed { headers, .. } => headers[0],
        }
    }

    /// A field of the header, found by `find`.
    pub fn field(&self, find: impl Fn(u16) -> Option<Field>) -> Option<Expr> {
        match self {
            HeaderRef::Fixed(header) => Some(Expr::Field(find(*header)?)),
            HeaderRef::Indexed { headers, index } => {
                let fields: Option<Rc<[Field]>> = headers.iter().map(|h| find(*h)).collect();
                Some(Expr::Element(fields?, index.clone()))
            }
        }
    }
}

/// An object in an `expression` wrapper, or the operation in it.
fn unwrap(typed: &Typed, place: &str) -> Result<Typed, LoadError> {
    if typed.kind == "expression" && typed.value.get("type").is_some() {
        return unwrap(&expr::to_typed(&typed.value, place)?, place);
    }
    Ok(typed.clone())
}

fn operand(typed: &Typed, name: &str, place: &str) -> Result<Typed, LoadError> {
    unwrap(&expr::to_typed(typed.value.get(name).unwrap_or(&Value::Null), place)?, place)
}

fn op(typed: &Typed) -> &str {
    typed.value.get("op").and_then(Value::as_str).unwrap_or_default()
}

/// The stack of a `header_stack` or `header_union_stack`.
pub fn stack<'p>(typed: &Typed, phv: &'p Phv, place: &str) -> Result<(u16, &'p StackInfo), LoadError> {
    match (typed.kind.as_str(), typed.value.as_str()) {
        ("header_stack" | "header_union_stack" | "stack" | "union_stack", Some(name)) => match phv.stack(name) {
            Some(index) => Ok((index, &phv.stacks[index as usize])),
            None => refuse(place, format!("unknown stack `{name}`")),
        },
        _ => refuse(place, format!("`{}` where a stack is needed is not supported", typed.kind)),
    }
}

/// Returns the elements that `dereference_..._stack` chooses from.
fn element(typed: &Typed, phv: &Phv, place: &str) -> Result<(Vec<Vec<u16>>, Rc<Expr>), LoadError> {
    let (_, info) = stack(&operand(typed, "left", place)?, phv, place)?;
    let index = expr::parse(&operand(typed, "right", place)?, phv, place)?;
    Ok((info.elements.clone(), Rc::new(index)))
}

pub fn header(typed: &Typed, phv: &Phv, place: &str) -> Result<HeaderRef, LoadError> {
    let typed = unwrap(typed, place)?;
    match (typed.kind.as_str(), op(&typed)) {
        ("header", _) => match typed.value.as_str().and_then(|name| phv.header(name)) {
            Some(header) => Ok(HeaderRef::Fixed(header)),
            None => refuse(place, format!("unknown header {}", typed.value)),
        },
        ("expression", "dereference_header_stack" | "dereference_stack") => {
            let (elements, index) = element(&typed, phv, place)?;
            Ok(HeaderRef::Indexed { headers: elements.iter().map(|e| e[0]).collect(), index })
        }
        ("expression", "access_union_header") => {
            let at = typed.value.get("right").and_then(Value::as_u64).unwrap_or(u64::MAX) as usize;
            let member = |members: &Vec<u16>| members.get(at).copied();
            let found = match union(&operand(&typed, "left", place)?, phv, place)? {
                UnionRef::Fixed(members) => member(&members).map(HeaderRef::Fixed),
                UnionRef::Indexed { elements, index } => {
                    let headers: Option<Vec<u16>> = elements.iter().map(member).collect();
                    headers.map(|headers| HeaderRef::Indexed { headers, index })
                }
            };
            found.map_or_else(|| refuse(place, "there is no such member of the union"), Ok)
        }
        (kind, _) => refuse(place, format!("`{kind}` where a header is needed is not supported")),
    }
}

fn union(typed: &Typed, phv: &Phv, place: &str) -> Result<UnionRef, LoadError> {
    let typed = unwrap(typed, place)?;
    match (typed.kind.as_str(), op(&typed)) {
        // p4c calls the element of a stack of unions a header.
        ("header_union" | "header", _) => match typed.value.as_str().and_then(|name| phv.union(name)) {
            Some(members) => Ok(UnionRef::Fixed(members.to_vec())),
            None => refuse(place, format!("unknown header union {}", typed.value)),
        },
        ("expression", "dereference_union_stack") => {
            let (elements, index) = element(&typed, phv, place)?;
            Ok(UnionRef::Indexed { elements, index })
        }
        (kind, _) => refuse(place, format!("`{kind}` where a header union is needed is not supported")),
    }
}

/// The members of a union.
pub fn union_members(typed: &Typed, phv: &Phv, place: &str) -> Result<Vec<HeaderRef>, LoadError> {
    Ok(match union(typed, phv, place)? {
        UnionRef::Fixed(members) => members.into_iter().map(HeaderRef::Fixed).collect(),
        UnionRef::Indexed { elements, index } => (0..elements[0].len())
            .map(|member| HeaderRef::Indexed {
                headers: elements.iter().map(|e| e[member]).collect(),
                index: index.clone(),
            })
            .collect(),
    })
}

/// The validity of each member of a union.
pub fn union_validity(typed: &Typed, phv: &Phv, place: &str) -> Result<Vec<Expr>, LoadError> {
    let valid = |header: u16| phv.header_field(header, "$valid$");
    Ok(union_members(typed, phv, place)?.iter().filter_map(|member| member.field(valid)).collect())
}

/// The field of the last element that was extracted.
pub fn last(value: &Value, phv: &Phv, place: &str) -> Result<(Field, Rc<[Field]>), LoadError> {
    let names: Option<Vec<&str>> = value.as_array().and_then(|a| a.iter().map(Value::as_str).collect());
    let found = names.and_then(|names| {
        let info = &phv.stacks[phv.stack(names.first()?)? as usize];
        let (member, field) = match names[1..] {
            [field] => (0, field),
            [member, field] => (info.members.iter().position(|m| m == member)?, field),
            _ => return None,
        };
        let fields: Option<Rc<[Field]>> = info.elements.iter().map(|e| phv.header_field(e[member], field)).collect();
        Some((info.next, fields?))
    });
    found.map_or_else(|| refuse(place, format!("{value} is not a field of a stack")), Ok)
}

/// Index of the last element that was extracted; -1 if there is none.
pub fn last_index(next: Field) -> Expr {
    Expr::Binary(Binary::Subtract, Box::new(Expr::Field(next)), Box::new(constant(1)))
}

/// Parses an operand that can be read and written: [`Expr::Field`] or [`Expr::Element`]; `None` if the object is
/// something else.
pub fn field(typed: &Typed, phv: &Phv, place: &str) -> Result<Option<Expr>, LoadError> {
    let typed = unwrap(typed, place)?;
    match (typed.kind.as_str(), op(&typed)) {
        ("field", _) => {
            // The validity of an element is a field of an expression.
            if let (Some(header @ Value::Object(_)), Some(name)) = (typed.value.get(0), typed.value.get(1)) {
                let header = Typed { kind: "expression".to_string(), value: header.clone(), bitwidth: None };
                let header = self::header(&header, phv, place)?;
                return match header.field(|h| phv.header_field(h, name.as_str()?)) {
                    Some(field) => Ok(Some(field)),
                    None => refuse(place, format!("unknown field {name}")),
                };
            }
            Ok(Some(Expr::Field(phv.field_of(&typed.value, place)?)))
        }
        ("stack_field" | "union_stack_field", _) => {
            let (next, fields) = last(&typed.value, phv, place)?;
            Ok(Some(Expr::Element(fields, Rc::new(last_index(next)))))
        }
        ("expression", "access_field") => {
            let header = header(&operand(&typed, "left", place)?, phv, place)?;
            let at = typed.value.get("right").and_then(Value::as_u64).unwrap_or(u64::MAX) as usize;
            let find = |h: u16| {
                let fields = &phv.headers[h as usize].fields;
                // The validity is the field behind the last.
                if at == fields.len() { phv.header_field(h, "$valid$") } else { fields.get(at).copied() }
            };
            header.field(find).map_or_else(|| refuse(place, "there is no such field of the header"), |f| Ok(Some(f)))
        }
        _ => Ok(None),
    }
}
