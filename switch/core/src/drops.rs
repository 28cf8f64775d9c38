// SPDX-License-Identifier: Apache-2.0
//! Reasons for which packets ended without leaving through a port, counted for the whole switch. What a port loses by
//! itself (full queues, the link model's loss, an interface that refuses) is counted with the port:
//! [`crate::port::PortStats`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! reasons {
    ($($(#[doc = $text:literal])+ $reason:ident = $name:literal,)+) => {
        /// [`Drops`] as the packet thread alone writes them.
        #[derive(Default, Debug)]
        pub struct DropCells {
            $(pub $reason: AtomicU64,)+
        }

        /// Packets that went nowhere by their reasons, counted since the start of the switch.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Drops {
            $($(#[doc = $text])+ pub $reason: u64,)+
        }

        impl DropCells {
            pub fn read(&self) -> Drops {
                Drops { $($reason: self.$reason.load(Relaxed),)+ }
            }
        }

        impl Drops {
            /// Names of the reasons, in their order.
            pub const NAMES: &[&str] = &[$($name,)+];

            /// Name, count and meaning of each reason, in a fixed order.
            pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> + use<> {
                [$(($name, self.$reason, concat!($($text),+)),)+].into_iter()
            }
        }
    };
}

reasons! {
    /// No program was loaded yet.
    no_pipeline = "no-pipeline",
    /// The program dropped it in ingress (`mark_to_drop`, or a failed `assert` or `assume`).
    ingress = "ingress",
    /// The program dropped it in egress.
    egress = "egress",
    /// Multicast group that does not exist or has no replica.
    no_multicast_group = "no-multicast-group",
    /// A clone: its session does not exist.
    no_clone_session = "no-clone-session",
    /// Egress port that the switch does not have.
    no_port = "no-port",
    /// Priority without a queue.
    no_queue = "no-queue",
    /// Full memory: as many packets were in flight as it is set aside for.
    no_buffer = "no-buffer",
    /// Full memory of copies and packets on their way back to ingress.
    replication_limit = "replication-limit",
    /// The frame with its new headers was longer than a buffer.
    no_headroom = "no-headroom",
    /// Wait in a queue while the pipeline was replaced.
    pipeline_replaced = "pipeline-replaced",
    /// Wait in a queue of a port that was removed.
    port_removed = "port-removed",
    /// Ingress port that is not enabled.
    port_disabled = "port-disabled",
    /// A packet-in that the control plane did not fetch in time.
    packet_in_overflow = "packet-in-overflow",
    /// A digest that the control plane did not fetch in time; its packet went on.
    digest_overflow = "digest-overflow",
}

/// The reasons that there were, in one line.
impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut there = self.reasons().filter(|(_, count, _)| *count > 0).peekable();
        if there.peek().is_none() {
            return f.write_str("none");
        }
        for (place, (name, count, _)) in there.enumerate() {
            write!(f, "{}{name} {count}", if place > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::count;

    #[test]
    fn reasons_have_names_of_their_own_and_read_well() {
        let cells = DropCells::default();
        assert_eq!(cells.read().to_string(), "none");
        count(&cells.no_port, 3);
        count(&cells.digest_overflow, 1);
        assert_eq!(cells.read().to_string(), "no-port 3, digest-overflow 1");
        let mut names: Vec<_> = cells.read().reasons().map(|(name, ..)| name).collect();
        let number = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), number);
    }
}
