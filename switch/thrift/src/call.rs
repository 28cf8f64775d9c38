// SPDX-License-Identifier: Apache-2.0
//! Arguments of a call by their numbers in BMv2's files, and the refusal of a call.

use apswitch_dataplane::control::UpdateError;

use crate::message::{Fields, Value};

/// Refusal of a call.
#[derive(Debug)]
pub struct Refusal {
    /// Code of the exception that the method declares; `None`: the text is all that there is.
    pub code: Option<i32>,
    pub text: String,
}

/// `None`: the method returns nothing.
pub type Answered = Result<Option<Value>, Refusal>;

/// A refusal that the client sees as text.
pub fn application<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { code: None, text: text.into() })
}

/// A refusal by the code of an exception.
pub fn declared(code: i32, text: impl Into<String>) -> Refusal {
    Refusal { code: Some(code), text: text.into() }
}

/// Codes of one kind of exception for the errors of the data plane.
#[derive(Clone, Copy)]
pub struct Codes {
    pub exists: i32,
    pub not_found: i32,
    pub full: i32,
    pub denied: i32,
    pub in_use: i32,
    pub other: i32,
}

impl Codes {
    /// Creates codes that are the same for all errors.
    pub const fn all(code: i32) -> Codes {
        Codes { exists: code, not_found: code, full: code, denied: code, in_use: code, other: code }
    }

    /// Returns the result with a refusal in place of the error.
    pub fn check<T>(self, result: Result<T, UpdateError>) -> Result<T, Refusal> {
        result.map_err(|error| self.refusal(&error))
    }

    pub fn refusal(self, error: &UpdateError) -> Refusal {
        let code = match error {
            UpdateError::AlreadyExists(_) => self.exists,
            UpdateError::NotFound(_) => self.not_found,
            UpdateError::ResourceExhausted(_) => self.full,
            UpdateError::PermissionDenied(_) => self.denied,
            UpdateError::FailedPrecondition(_) => self.in_use,
            _ => self.other,
        };
        declared(code, error.to_string())
    }
}

pub struct Call<'a> {
    pub arguments: &'a Fields,
}

impl<'a> Call<'a> {
    fn find(&self, id: i16) -> Result<&'a Value, Refusal> {
        field(self.arguments, id).map_or_else(|| application(format!("argument {id} is missing")), Ok)
    }

    pub fn text(&self, id: i16) -> Result<&'a str, Refusal> {
        match self.find(id)? {
            Value::Bytes(bytes) => {
                std::str::from_utf8(bytes).or_else(|_| application(format!("argument {id} is not UTF-8")))
            }
            _ => wrong(id, "a string"),
        }
    }

    pub fn bytes(&self, id: i16) -> Result<&'a [u8], Refusal> {
        match self.find(id)? {
            Value::Bytes(bytes) => Ok(bytes),
            _ => wrong(id, "a binary"),
        }
    }

    pub fn i32(&self, id: i16) -> Result<i32, Refusal> {
        match self.find(id)? {
            Value::I32(value) => Ok(*value),
            _ => wrong(id, "an i32"),
        }
    }

    pub fn i64(&self, id: i16) -> Result<i64, Refusal> {
        match self.find(id)? {
            Value::I64(value) => Ok(*value),
            _ => wrong(id, "an i64"),
        }
    }

    pub fn bool(&self, id: i16) -> Result<bool, Refusal> {
        match self.find(id)? {
            Value::Bool(value) => Ok(*value),
            _ => wrong(id, "a bool"),
        }
    }

    /// Elements of a list.
    pub fn list(&self, id: i16) -> Result<&'a [Value], Refusal> {
        match self.find(id)? {
            Value::List(_, values) => Ok(values),
            _ => wrong(id, "a list"),
        }
    }

    /// Fields of a struct.
    pub fn fields(&self, id: i16) -> Result<&'a Fields, Refusal> {
        match self.find(id)? {
            Value::Struct(fields) => Ok(fields),
            _ => wrong(id, "a struct"),
        }
    }
}

fn wrong<T>(id: i16, what: &str) -> Result<T, Refusal> {
    application(format!("argument {id} is not {what}"))
}

/// The field of a struct; the last one, if there are more.
pub fn field(fields: &Fields, id: i16) -> Option<&Value> {
    fields.iter().rev().find(|(own, _)| *own == id).map(|(_, value)| value)
}

pub fn i32_field(fields: &Fields, id: i16) -> Option<i32> {
    match field(fields, id) {
        Some(Value::I32(value)) => Some(*value),
        _ => None,
    }
}

pub fn i64_field(fields: &Fields, id: i16) -> Option<i64> {
    match field(fields, id) {
        Some(Value::I64(value)) => Some(*value),
        _ => None,
    }
}

pub fn bytes_field(fields: &Fields, id: i16) -> Option<&[u8]> {
    match field(fields, id) {
        Some(Value::Bytes(value)) => Some(value),
        _ => None,
    }
}
