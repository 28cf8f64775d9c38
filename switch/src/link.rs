// SPDX-License-Identifier: Apache-2.0
//! The link model of one port.

/// Everything is off by default: no queue, no delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// bit/s over all queues; `None`: unlimited.
    pub rate: Option<u64>,
    /// Packets in all queues of the port.
    pub limit_packets: Option<u32>,
    /// Bytes in all queues of the port.
    pub limit_bytes: Option<u64>,
    pub delay_ns: u64,
    pub jitter_ns: u64,
    /// Probability that a frame is lost on the wire.
    pub loss: f64,
    /// Bytes that every frame takes on the wire beyond its own.
    pub overhead: u32,
}
