// SPDX-License-Identifier: Apache-2.0
//! Errors as P4Runtime reports them (P4Runtime 1.4, "Error Reporting Messages").

use std::fmt;

use apswitch_dataplane::control::UpdateError;
use bytes::Bytes;
use prost::Message;

use super::proto::google::rpc;
use super::proto::p4::v1::Error;
use super::value::BadValue;

/// The `space` of our error codes, which are the canonical ones.
const SPACE: &str = "apswitch";
/// All errors of a batch travel in one HTTP/2 trailer, which clients bound (gRPC: 8 KiB by default), so only this many
/// of them carry a text.
pub const MAX_ERROR_TEXTS: usize = 16;
/// Longer details are left out: no client takes them, nor would they leave the server.
const MAX_DETAILS_BYTES: usize = 1 << 20;

/// Canonical codes, as far as they occur here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Ok = 0,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::Ok => "OK",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
        })
    }
}

/// Refusal of a whole RPC, or the end of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub code: Code,
    pub message: String,
    /// A `google.rpc.Status` with an error for each part of a batch, or nothing.
    pub details: Bytes,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into(), details: Bytes::new() }
    }
}

/// Refusal of one update, or of one request of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
}

pub type Checked<T> = Result<T, Refusal>;

/// `refuse!(InvalidArgument, "table {id} ...")` is an error with that canonical code.
macro_rules! refuse {
    ($code:ident, $($text:tt)*) => {
        Err($crate::error::Refusal { code: $crate::error::Code::$code, message: format!($($text)*) })
    };
}
pub(crate) use refuse;

impl Refusal {
    /// Says where the fault is; `place` is only formatted for a refusal.
    pub fn at(self, place: impl std::fmt::Display) -> Refusal {
        Refusal { message: format!("{place}: {}", self.message), ..self }
    }
}

impl From<BadValue> for Refusal {
    fn from(bad: BadValue) -> Refusal {
        Refusal { code: Code::OutOfRange, message: bad.to_string() }
    }
}

impl From<UpdateError> for Refusal {
    fn from(error: UpdateError) -> Refusal {
        let code = match error {
            UpdateError::AlreadyExists(_) => Code::AlreadyExists,
            UpdateError::NotFound(_) => Code::NotFound,
            UpdateError::ResourceExhausted(_) => Code::ResourceExhausted,
            UpdateError::InvalidArgument(_) => Code::InvalidArgument,
            UpdateError::OutOfRange(_) => Code::OutOfRange,
            UpdateError::PermissionDenied(_) => Code::PermissionDenied,
            UpdateError::FailedPrecondition(_) | UpdateError::NoProgram => Code::FailedPrecondition,
            UpdateError::Stopped => Code::Unavailable,
        };
        Refusal { code, message: error.to_string() }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        Status::new(refusal.code, refusal.message)
    }
}

/// The status of a batch: OK when everything succeeded, else UNKNOWN with one `p4.v1.Error` for each part of it.
pub fn batch_status(operation: &str, outcomes: &[Checked<()>]) -> Result<(), Status> {
    let failures = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    if failures == 0 {
        return Ok(());
    }
    let (mut texts, mut length, mut details) = (0, 0, Vec::new());
    for outcome in outcomes {
        let error = match outcome {
            Ok(()) => Error::default(),
            Err(refusal) => {
                texts += 1;
                let message = if texts <= MAX_ERROR_TEXTS { refusal.message.clone() } else { String::new() };
                let code = refusal.code as i32;
                Error { canonical_code: code, message, space: SPACE.into(), code, details: None }
            }
        };
        let part =
            prost_types::Any { type_url: "type.googleapis.com/p4.v1.Error".into(), value: error.encode_to_vec() };
        length += part.encoded_len();
        if length > MAX_DETAILS_BYTES {
            return Err(without_details(operation, outcomes, failures));
        }
        details.push(part);
    }
    let message = format!("{operation}: {failures} of {} failed{}", outcomes.len(), first(outcomes));
    let status = rpc::Status { code: Code::Unknown as i32, message: message.clone(), details };
    Err(Status { code: Code::Unknown, message, details: status.encode_to_vec().into() })
}

/// Names the first failure, for clients and logs that do not show the details.
fn first(outcomes: &[Checked<()>]) -> String {
    let first = outcomes.iter().enumerate().find_map(|(place, outcome)| Some((place + 1, outcome.as_ref().err()?)));
    first.map(|(place, refusal)| format!("; the first is number {place}: {}", refusal.message)).unwrap_or_default()
}

/// The status of a batch whose errors are too many to be told one by one.
fn without_details(operation: &str, outcomes: &[Checked<()>], failures: usize) -> Status {
    let (number, first) = (outcomes.len(), first(outcomes));
    Status::new(
        Code::Unknown,
        format!("{operation}: {failures} of {number} failed, too many for an error of each{first}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: usize) -> Status {
        let refusal = Refusal { code: Code::NotFound, message: "no such table".into() };
        let outcomes: Vec<_> =
            (0..number).map(|place| if place == 1 { Err(refusal.clone()) } else { Ok(()) }).collect();
        batch_status("Write", &outcomes).unwrap_err()
    }

    #[test]
    fn each_part_of_a_batch_has_its_error_as_far_as_they_can_be_sent() {
        let few = batch(3);
        assert_eq!(few.message, "Write: 1 of 3 failed; the first is number 2: no such table");
        assert_eq!(rpc::Status::decode(few.details).unwrap().details.len(), 3);
        let many = batch(1_000_000);
        assert!(many.details.is_empty());
        let said = "Write: 1 of 1000000 failed, too many for an error of each; the first is number 2: no such table";
        assert_eq!(many.message, said);
    }
}
