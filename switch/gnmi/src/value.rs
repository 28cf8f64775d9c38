// SPDX-License-Identifier: Apache-2.0
//! Values of leaves: in memory, as scalars of gNMI, and as JSON (RFC 7951 for JSON_IETF).

use serde_json::Value as Json;
use tonic::Status;

use super::proto::gnmi::{Encoding, TypedValue, typed_value::Value as Typed};

/// The type of a leaf.
#[derive(Debug)]
pub enum Type {
    Text,
    Bool,
    /// Up to this, and at most 32 bits: a number in JSON.
    Uint(u64),
    /// 64 bits: a string in JSON_IETF.
    Long,
    /// decimal64 from 0 to 1: a string in JSON_IETF.
    Fraction,
    Enum(&'static [&'static str]),
    /// identityref, with the module of the identities.
    Identity(&'static str, &'static [&'static str]),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Bool(bool),
    Number(u64),
    Fraction(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Bool(flag)
    }
}

impl Value {
    pub fn text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Bool(flag) => flag.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Fraction(fraction) => fraction.to_string(),
        }
    }

    pub fn json(&self, kind: &Type, ietf: bool) -> Json {
        match (self, kind) {
            (Value::Text(text), Type::Identity(module, _)) if ietf => Json::from(format!("{module}:{text}")),
            (Value::Number(_), Type::Long) | (Value::Fraction(_), _) if ietf => Json::from(self.text()),
            (Value::Text(text), _) => Json::from(text.as_str()),
            (Value::Bool(flag), _) => Json::from(*flag),
            (Value::Number(number), _) => Json::from(*number),
            (Value::Fraction(fraction), _) => Json::from(*fraction),
        }
    }

    /// A leaf in an update. Clients that name no encoding say JSON, as it is 0: like those that say PROTO they get
    /// scalars, which JSON's clients understand as well.
    pub fn typed(&self, kind: &Type, encoding: Encoding) -> TypedValue {
        let value = match (encoding, self) {
            (Encoding::JsonIetf, _) => Typed::JsonIetfVal(self.json(kind, true).to_string().into_bytes()),
            (Encoding::Ascii, _) => Typed::AsciiVal(self.text()),
            (_, Value::Text(text)) => Typed::StringVal(text.clone()),
            (_, Value::Bool(flag)) => Typed::BoolVal(*flag),
            (_, Value::Number(number)) => Typed::UintVal(*number),
            (_, Value::Fraction(fraction)) => Typed::DoubleVal(*fraction),
        };
        TypedValue { value: Some(value) }
    }
}

/// Names the values that a leaf takes.
fn wanted(kind: &Type) -> String {
    match kind {
        Type::Text => "a string".into(),
        Type::Bool => "true or false".into(),
        Type::Uint(most) => format!("a whole number up to {most}"),
        Type::Long => "a whole number, as a string in JSON_IETF".into(),
        Type::Fraction => "a number from 0 to 1".into(),
        Type::Enum(names) | Type::Identity(_, names) => names.join(" or "),
    }
}

/// A leaf's value from text.
pub fn parse(kind: &Type, text: &str) -> Option<Value> {
    match kind {
        Type::Text => Some(text.into()),
        Type::Bool => text.parse().ok().map(Value::Bool),
        Type::Uint(most) => text.parse().ok().filter(|number| number <= most).map(Value::Number),
        Type::Long => text.parse().ok().map(Value::Number),
        Type::Fraction => text.parse().ok().filter(|number| (0.0..=1.0).contains(number)).map(Value::Fraction),
        Type::Enum(names) => names.contains(&text).then(|| text.into()),
        Type::Identity(_, names) => {
            let name = text.rsplit_once(':').map_or(text, |(_, name)| name);
            names.contains(&name).then(|| name.into())
        }
    }
}

/// A leaf's value from JSON; numbers may be strings and the other way round. `at`: where, for the error.
pub fn from_json(kind: &Type, json: &Json, at: &str) -> Result<Value, Status> {
    let value = match json {
        Json::String(text) => parse(kind, text),
        Json::Number(number) if matches!(kind, Type::Uint(_) | Type::Long | Type::Fraction) => {
            parse(kind, &number.to_string())
        }
        Json::Bool(flag) if matches!(kind, Type::Bool) => Some(Value::Bool(*flag)),
        _ => None,
    };
    value.ok_or_else(|| refused(kind, &json.to_string(), at))
}

/// A leaf's value from a scalar.
pub fn from_typed(kind: &Type, typed: &Typed, at: &str) -> Result<Value, Status> {
    let (text, fits) = match typed {
        Typed::StringVal(text) | Typed::AsciiVal(text) => (text.clone(), !matches!(kind, Type::Bool)),
        Typed::UintVal(number) => (number.to_string(), is_number(kind)),
        Typed::IntVal(number) => (number.to_string(), is_number(kind)),
        Typed::DoubleVal(number) => (number.to_string(), is_number(kind)),
        Typed::BoolVal(flag) => (flag.to_string(), matches!(kind, Type::Bool)),
        _ => return Err(Status::unimplemented(format!("{at}: a value of this encoding: give a scalar or JSON"))),
    };
    parse(kind, &text).filter(|_| fits).ok_or_else(|| refused(kind, &text, at))
}

fn is_number(kind: &Type) -> bool {
    matches!(kind, Type::Uint(_) | Type::Long | Type::Fraction)
}

fn refused(kind: &Type, given: &str, at: &str) -> Status {
    let given: String = given.chars().take(40).collect();
    Status::invalid_argument(format!("{at}: {given} is not {}", wanted(kind)))
}
