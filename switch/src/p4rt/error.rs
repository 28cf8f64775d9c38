// SPDX-License-Identifier: Apache-2.0
//! Errors as P4Runtime reports them (P4Runtime 1.4, "Error Reporting Messages").

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

use super::proto::google::rpc;
use super::proto::p4::v1::Error;
use super::value::BadValue;
use crate::control::UpdateError;

/// The `space` of our error codes, which are the canonical ones.
const SPACE: &str = "apswitch";
/// All errors of a batch travel in one HTTP/2 trailer, which clients bound (gRPC: 8 KiB by default), so only this many
/// of them carry a text.
const MOST_TEXTS: usize = 16;

/// Why one update, or one request of a batch, was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
}

pub type Checked<T> = Result<T, Refusal>;

/// `refuse!(InvalidArgument, "table {id} ...")` is an error with that canonical code.
macro_rules! refuse {
    ($code:ident, $($text:tt)*) => {
        Err($crate::p4rt::error::Refusal { code: tonic::Code::$code, message: format!($($text)*) })
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
    let mut texts = 0;
    let details = outcomes
        .iter()
        .map(|outcome| {
            let error = match outcome {
                Ok(()) => Error::default(),
                Err(refusal) => {
                    texts += 1;
                    let message = if texts <= MOST_TEXTS { refusal.message.clone() } else { String::new() };
                    let code = refusal.code as i32;
                    Error { canonical_code: code, message, space: SPACE.into(), code, details: None }
                }
            };
            prost_types::Any { type_url: "type.googleapis.com/p4.v1.Error".into(), value: error.encode_to_vec() }
        })
        .collect();
    let message = format!("{operation}: {failures} of {} failed", outcomes.len());
    let status = rpc::Status { code: Code::Unknown as i32, message: message.clone(), details };
    Err(Status::with_details(Code::Unknown, message, Bytes::from(status.encode_to_vec())))
}
