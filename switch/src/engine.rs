// SPDX-License-Identifier: Apache-2.0
//! The packet thread.

use thiserror::Error;

use crate::port::{PortConfig, PortNumber};

#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub ports: Vec<PortConfig>,
    pub cpu_port: Option<PortNumber>,
    /// Queues per port, at most 8.
    pub priority_queues: usize,
    /// Seeds loss, jitter and P4's `random`.
    pub seed: u64,
}

/// Why the data plane could not start: one line that names the thing and the mend.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct StartError(pub String);
