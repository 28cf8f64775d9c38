// SPDX-License-Identifier: Apache-2.0
//! Ports: frames in and out of an interface, in batches.

use crate::link::LinkConfig;

pub type PortNumber = u16;

#[derive(Clone, Debug)]
pub struct PortConfig {
    pub number: PortNumber,
    pub interface: String,
    pub link: Option<LinkConfig>,
}

/// Counted since the start of the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Tail drops of the port's queues.
    pub queue_drops: u64,
    /// Frames lost by the link model.
    pub lost: u64,
    /// Frames that the interface did not take.
    pub tx_errors: u64,
    /// Frames that the kernel dropped because they were not fetched in time, or that were longer than a buffer.
    pub rx_errors: u64,
    pub queue_packets: u64,
    pub queue_bytes: u64,
}
