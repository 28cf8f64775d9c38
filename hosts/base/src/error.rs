// SPDX-License-Identifier: Apache-2.0
//! The one error that people see: a line that names the thing and the remedy.

/// Failure of a program in one line: the thing and the remedy; printed as `error: ...` before exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    pub fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }
}

/// Names the thing that an operating-system error is about.
pub trait About<T> {
    /// Prefix an error with `about`, the start of its line: "connect to 10.0.0.1:80". Errors are those of `self`.
    fn about(self, about: impl std::fmt::Display) -> Result<T, Error>;
}

impl<T, E: std::fmt::Display> About<T> for Result<T, E> {
    fn about(self, about: impl std::fmt::Display) -> Result<T, Error> {
        self.map_err(|error| Error(format!("{about}: {error}")))
    }
}
