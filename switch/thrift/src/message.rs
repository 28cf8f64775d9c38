// SPDX-License-Identifier: Apache-2.0
//! Messages of Thrift's binary protocol, each bounded before it is read.

use std::io::{self, BufRead, Read};

use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier,
    TMessageIdentifier, TMessageType, TOutputProtocol, TStructIdentifier, TType,
};
use thrift::{ApplicationErrorKind, TConfiguration};

/// Bytes of a call. The longest that the switch has a use for is an entry with a long key.
pub const MAX_CALL_LEN: u64 = 256 << 10;
/// Elements of a list: a table has fewer key fields, an action fewer parameters.
const MAX_ELEMENTS: usize = 4096;
/// The arguments, a list of key fields, a field, and its kind.
const MAX_DEPTH: usize = 8;

/// Fields of a struct, by their ids.
pub type Fields = Vec<(i16, Value)>;

/// A value of a Thrift type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    Double(f64),
    /// A string or a binary.
    Bytes(Vec<u8>),
    /// Values of one type, which an empty list has, too.
    List(TType, Vec<Value>),
    Struct(Fields),
    /// A map from strings to strings without an element.
    EmptyMap,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }
}

impl Value {
    pub fn structs(values: impl IntoIterator<Item = Fields>) -> Value {
        Value::List(TType::Struct, values.into_iter().map(Value::Struct).collect())
    }

    fn kind(&self) -> TType {
        match self {
            Value::Bool(_) => TType::Bool,
            Value::I8(_) => TType::I08,
            Value::I16(_) => TType::I16,
            Value::I32(_) => TType::I32,
            Value::I64(_) => TType::I64,
            Value::Double(_) => TType::Double,
            Value::Bytes(_) => TType::String,
            Value::List(..) => TType::List,
            Value::Struct(_) => TType::Struct,
            Value::EmptyMap => TType::Map,
        }
    }
}

/// A call as it came.
#[derive(Debug, PartialEq)]
pub struct Message {
    /// The service's name, a colon, and the method's.
    pub name: String,
    pub sequence: i32,
    pub arguments: Fields,
}

/// Name and number of a call, if they are known, and the error after which nothing more can be read.
pub type Unreadable = (Option<(String, i32)>, thrift::Error);

/// Answer to a call.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// `None`: of a method that returns nothing.
    Value(Option<Value>),
    /// The exception that the method declares, which has a code alone.
    Declared(i32),
    /// A `TApplicationException`, which has a text.
    Refused(String),
    /// A `TApplicationException` for a method that does not exist.
    Unknown(String),
}

/// A reader that ends after so many bytes.
pub struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!("the call is longer than {MAX_CALL_LEN} bytes")));
        }
        let most = buffer.len().min(self.left as usize);
        let read = self.inner.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Calls of one client.
pub struct Calls<R: BufRead>(TBinaryInputProtocol<Limited<R>>);

impl<R: BufRead> Calls<R> {
    pub fn new(inner: R) -> Calls<R> {
        let config = TConfiguration::builder()
            .max_recursion_depth(Some(MAX_DEPTH))
            .max_container_size(Some(MAX_ELEMENTS))
            .max_string_size(Some(MAX_CALL_LEN as usize))
            .build()
            .expect("the bounds fit each other");
        Calls(TBinaryInputProtocol::with_config(Limited { inner, left: 0 }, true, config))
    }

    /// Returns what calls are read from.
    pub fn input(&mut self) -> &mut R {
        &mut self.0.transport.inner
    }

    /// Waits for the first byte of a call; false: the client has ended.
    pub fn begins(&mut self) -> io::Result<bool> {
        Ok(!self.input().fill_buf()?.is_empty())
    }

    /// Returns the next call.
    pub fn next_call(&mut self) -> Result<Message, Unreadable> {
        self.0.transport.left = MAX_CALL_LEN;
        let start = self.0.read_message_begin().map_err(|error| (None, error))?;
        let (name, sequence) = (start.name, start.sequence_number);
        match self.read_struct() {
            Ok(arguments) => Ok(Message { name, sequence, arguments }),
            Err(error) => Err((Some((name, sequence)), error)),
        }
    }

    fn read_struct(&mut self) -> thrift::Result<Fields> {
        let mut fields = Vec::new();
        self.0.read_struct_begin()?;
        loop {
            let field = self.0.read_field_begin()?;
            if field.field_type == TType::Stop {
                self.0.read_struct_end()?;
                return Ok(fields);
            }
            fields.push((field.id.unwrap_or_default(), self.read(field.field_type)?));
        }
    }

    fn read(&mut self, kind: TType) -> thrift::Result<Value> {
        Ok(match kind {
            TType::Bool => Value::Bool(self.0.read_bool()?),
            TType::I08 => Value::I8(self.0.read_i8()?),
            TType::I16 => Value::I16(self.0.read_i16()?),
            TType::I32 => Value::I32(self.0.read_i32()?),
            TType::I64 => Value::I64(self.0.read_i64()?),
            TType::Double => Value::Double(self.0.read_double()?),
            TType::String => Value::Bytes(self.0.read_bytes()?),
            TType::Struct => Value::Struct(self.read_struct()?),
            TType::List => {
                let list = self.0.read_list_begin()?;
                // No argument is a list of lists, which could be as deep as the call is long.
                if list.element_type == TType::List {
                    return Err(unexpected(list.element_type));
                }
                let values = (0..list.size).map(|_| self.read(list.element_type)).collect::<Result<_, _>>()?;
                Value::List(list.element_type, values)
            }
            TType::Map if self.0.read_map_begin()?.size == 0 => Value::EmptyMap,
            kind => return Err(unexpected(kind)),
        })
    }
}

/// Returns why nothing more can be read: the library's own text has only the kind of error.
pub fn reason(error: &thrift::Error) -> String {
    match error {
        thrift::Error::Protocol(error) => error.message.clone(),
        thrift::Error::Transport(error) => error.message.clone(),
        other => other.to_string(),
    }
}

fn unexpected(kind: TType) -> thrift::Error {
    let text = format!("no method has an argument of type {kind}");
    thrift::Error::Protocol(thrift::ProtocolError::new(thrift::ProtocolErrorKind::InvalidData, text))
}

/// Returns the bytes of a call, as a client sends it.
pub fn call(name: &str, sequence: i32, arguments: &Fields) -> thrift::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut output = TBinaryOutputProtocol::new(&mut bytes, true);
    output.write_message_begin(&TMessageIdentifier::new(name, TMessageType::Call, sequence))?;
    write_struct(&mut output, arguments)?;
    Ok(bytes)
}

/// Returns the bytes of an answer to the call of this name and number.
pub fn reply(name: &str, sequence: i32, answer: Answer) -> thrift::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut output = TBinaryOutputProtocol::new(&mut bytes, true);
    let kind = match answer {
        Answer::Value(_) | Answer::Declared(_) => TMessageType::Reply,
        Answer::Refused(_) | Answer::Unknown(_) => TMessageType::Exception,
    };
    output.write_message_begin(&TMessageIdentifier::new(name, kind, sequence))?;
    match answer {
        Answer::Value(None) => write_struct(&mut output, &[])?,
        Answer::Value(Some(value)) => write_struct(&mut output, &[(0, value)])?,
        Answer::Declared(code) => {
            write_struct(&mut output, &[(1, Value::Struct(vec![(1, Value::I32(code))]))])?;
        }
        Answer::Refused(text) => write_exception(&mut output, ApplicationErrorKind::InternalError, text)?,
        Answer::Unknown(text) => write_exception(&mut output, ApplicationErrorKind::UnknownMethod, text)?,
    }
    output.write_message_end()?;
    output.flush()?;
    Ok(bytes)
}

fn write_exception(output: &mut impl TOutputProtocol, kind: ApplicationErrorKind, text: String) -> thrift::Result<()> {
    let error = thrift::ApplicationError::new(kind, text);
    thrift::Error::write_application_error_to_out_protocol(&error, output)
}

fn write_struct(output: &mut impl TOutputProtocol, fields: &[(i16, Value)]) -> thrift::Result<()> {
    output.write_struct_begin(&TStructIdentifier::new(""))?;
    for (id, value) in fields {
        output.write_field_begin(&TFieldIdentifier::new("", value.kind(), *id))?;
        write(output, value)?;
        output.write_field_end()?;
    }
    output.write_field_stop()?;
    output.write_struct_end()
}

fn write(output: &mut impl TOutputProtocol, value: &Value) -> thrift::Result<()> {
    match value {
        Value::Bool(value) => output.write_bool(*value),
        Value::I8(value) => output.write_i8(*value),
        Value::I16(value) => output.write_i16(*value),
        Value::I32(value) => output.write_i32(*value),
        Value::I64(value) => output.write_i64(*value),
        Value::Double(value) => output.write_double(*value),
        Value::Bytes(value) => output.write_bytes(value),
        Value::Struct(fields) => write_struct(output, fields),
        Value::List(kind, values) => {
            output.write_list_begin(&TListIdentifier::new(*kind, values.len() as i32))?;
            values.iter().try_for_each(|value| write(output, value))?;
            output.write_list_end()
        }
        Value::EmptyMap => {
            output.write_map_begin(&TMapIdentifier::new(TType::String, TType::String, 0))?;
            output.write_map_end()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calls_are_read_as_they_were_written() {
        let key = vec![(1, Value::I32(0)), (2, Value::Struct(vec![(1, Value::Bytes(vec![1, 2]))]))];
        let arguments = vec![
            (1, Value::I32(0)),
            (2, "ingress.t".into()),
            (3, Value::structs([key])),
            (4, Value::List(TType::String, Vec::new())),
            (5, Value::Double(0.5)),
            (6, Value::Bool(true)),
            (7, Value::I64(-1)),
            (8, Value::I16(3)),
            (9, Value::I8(4)),
        ];
        let bytes = [call("standard:a", 7, &arguments).unwrap(), call("standard:b", 8, &Vec::new()).unwrap()].concat();
        let mut calls = Calls::new(&bytes[..]);
        let first = calls.next_call().unwrap();
        assert_eq!((first.name.as_str(), first.sequence, &first.arguments), ("standard:a", 7, &arguments));
        assert_eq!(calls.next_call().unwrap().name, "standard:b");
        assert!(!calls.begins().unwrap());
    }

    /// A field with this type's byte, and what follows.
    fn hostile(rest: &[u8]) -> Result<Message, String> {
        let mut bytes = call("standard:x", 0, &Vec::new()).unwrap();
        bytes.pop();
        bytes.extend(rest);
        Calls::new(&bytes[..]).next_call().map_err(|(_, error)| reason(&error))
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_read() {
        assert!(hostile(&[11, 0, 1, 0x7f, 0xff, 0xff, 0xff]).unwrap_err().contains("exceeds maximum"));
        assert!(hostile(&[11, 0, 1, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(hostile(&[15, 0, 1, 2, 0x7f, 0xff, 0xff, 0xff]).is_err());
        assert!(hostile(&[15, 0, 1, 15, 0, 0, 0, 1]).unwrap_err().contains("type list"));
        assert!(hostile(&[13, 0, 1, 11, 11, 0, 0, 0, 1]).unwrap_err().contains("type map"));
        assert!(hostile(&[12, 0, 1].repeat(1000)).unwrap_err().contains("depth"));
        // One string after the other, each short enough.
        let strings = [&[11, 0, 1, 0, 1, 0, 0][..], &vec![0; 65_536]].concat().repeat(5);
        assert!(hostile(&strings).unwrap_err().contains("longer than 262144 bytes"));
    }

    #[test]
    fn answers_have_the_name_and_number_of_their_call() {
        let bytes = reply("bm_reset_state", 9, Answer::Value(None)).unwrap();
        assert_eq!(bytes, [&[0x80, 1, 0, 2, 0, 0, 0, 14][..], b"bm_reset_state", &[0, 0, 0, 9, 0]].concat());
        let declared = reply("m", 1, Answer::Declared(2)).unwrap();
        assert_eq!(declared[13..], [12, 0, 1, 8, 0, 1, 0, 0, 0, 2, 0, 0]);
        let refused = reply("m", 1, Answer::Refused("no".into())).unwrap();
        assert_eq!(refused[..4], [0x80, 1, 0, 3]);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes: Vec<u8>, rest: Vec<u8>) {
            let _ = Calls::new(&bytes[..]).next_call();
            let _ = hostile(&rest);
        }
    }
}
