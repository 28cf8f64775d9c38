// SPDX-License-Identifier: Apache-2.0
// ack: pure ACKs leave through the priority queue of a busy port (QoS-guaranteed TCP, section III), and an ACK that a
// newer one supersedes is not sent at all (`ack_filter`, the architecture's).
//
//   ack_priority (per egress port) -> queue, filter
#ifndef ACK_P4
#define ACK_P4

control AckPriority(inout metadata_t meta) {
    // When the ACKs that leave through this port acknowledge traffic of a faster direction.
    @id(ACTION_PRIORITISE)
    action prioritise(@id(1) queue_t queue, @id(2) bit<1> filter) {
        meta.queue = queue;
        meta.filter = filter;
    }

    @id(TABLE_ACK_PRIORITY)
    table ack_priority {
        key = { meta.egress_port: exact @id(1) @name("egress_port"); }
        actions = { prioritise; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    apply {
        if (meta.pure_ack == 1) {
            ack_priority.apply();
        }
    }
}

#endif
