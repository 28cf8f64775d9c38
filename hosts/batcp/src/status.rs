// SPDX-License-Identifier: Apache-2.0
//! Status of a connection.

use serde::Serialize;

use super::Scheduler;
use super::connection_state::{ConnectionState, Totals};
use super::subflow::Subflow;

/// Status of an open subflow.
#[derive(Clone, Debug, Serialize)]
pub struct SubflowStatus {
    pub interface: String,
    pub local: String,
    pub peer: String,
    /// Nothing arrives on it at present.
    pub stalled: bool,
    pub rtt_ms: f64,
    /// Filtered, in kbit/s (section 3.5).
    pub throughput_kbit: f64,
    /// Load by equation 4: 1 is the best interface.
    pub load: f64,
}

/// State of a connection and its counters. Bytes are payload.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Plain TCP: the peer does not speak BATCP, and nothing below is known.
    pub plain: bool,
    /// The four-digit connection id of section 3.
    pub connection: u16,
    pub scheduler: Scheduler,
    pub bytes_acknowledged: u64,
    pub bytes_read: u64,
    /// Bytes that wait for a segment before them.
    pub bytes_early: usize,
    /// Segments that were given to a second subflow; segments received twice.
    pub segments_repeated: u64,
    pub segments_duplicate: u64,
    pub subflows: Vec<SubflowStatus>,
    pub totals: Vec<Totals>,
}

impl Status {
    pub(super) fn plain() -> Self {
        Self {
            plain: true,
            connection: 0,
            scheduler: Scheduler::default(),
            bytes_acknowledged: 0,
            bytes_read: 0,
            bytes_early: 0,
            segments_repeated: 0,
            segments_duplicate: 0,
            subflows: Vec::new(),
            totals: Vec::new(),
        }
    }

    pub(super) fn of(shared: &ConnectionState) -> Self {
        let state = shared.state();
        Self {
            plain: false,
            connection: shared.id,
            scheduler: shared.options.scheduler,
            bytes_acknowledged: state.sender.acknowledged(),
            bytes_read: state.receiver.bytes_read(),
            bytes_early: state.receiver.early_bytes(),
            segments_repeated: state.sender.repeated(),
            segments_duplicate: state.receiver.duplicates(),
            subflows: state.subflows.values().map(SubflowStatus::of).collect(),
            totals: state.totals.values().cloned().collect(),
        }
    }
}

impl SubflowStatus {
    fn of(subflow: &Subflow) -> Self {
        Self {
            interface: subflow.interface.name.clone(),
            local: subflow.link.local.to_string(),
            peer: subflow.link.peer.to_string(),
            stalled: subflow.stalled,
            rtt_ms: subflow.path.rtt.as_secs_f64() * 1e3,
            throughput_kbit: subflow.throughput() * 8e-3,
            load: subflow.load,
        }
    }
}
