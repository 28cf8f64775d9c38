// SPDX-License-Identifier: Apache-2.0
// ack: pure ACKs go first, and an ACK that a newer one supersedes is not sent at all.
//
//   ingress: ack_priority (per egress port) -> queue, filter; queue_meter keeps every priority queue within its
//            rate: above it the packet waits with the bulk, so nobody buys priority with a flood of ACKs
//   ingress, once the packet is admitted: newest_ack[flow] = the newest ACK number of the flow; not that of a
//            demoted ACK, for the older ones in the priority queue arrive before it
//   egress:  a supersedable ACK older than newest_ack[flow] is dropped when it leaves the queue (RFC 3449, 5.2.1)
//
// newest_ack holds generation ++ ACK number: what an earlier user of the flow index left behind never counts.
// v1model lets ingress and egress share the register.
#ifndef ACK_P4
#define ACK_P4

control AckPriority(inout metadata_t meta) {
    // When the ACKs that leave through this port acknowledge traffic of a faster direction.
    @id(ACTION_PRIORITISE)
    action prioritise(queue_t queue, bit<1> filter) {
        meta.queue = queue;
        meta.filter = filter;
    }

    @id(TABLE_ACK_PRIORITY)
    table ack_priority {
        key = { meta.egress_port: exact @name("egress_port"); }
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

control QueueMeter(inout metadata_t meta) {
    // Per egress port ++ queue.
    @id(METER_QUEUE)
    meter(CLASSES_SIZE, MeterType.bytes) queue_meter;

    apply {
        if (meta.queue != 0) {
            color_t color = COLOR_GREEN;
            queue_meter.execute_meter<color_t>((bit<32>)(meta.egress_port ++ meta.queue), color);
            if (color != COLOR_GREEN) {
                meta.queue = 0;
                meta.demoted = 1;
            }
        }
    }
}

control AckRemember(in headers_t hdr, in metadata_t meta, register<bit<40>> newest_ack) {
    apply {
        if (meta.filter == 1 && meta.demoted == 0 && meta.known_flow == 1) {
            bit<40> newest;
            newest_ack.read(newest, (bit<32>)meta.flow_index);
            bit<32> ahead = hdr.tcp.acknowledgment - newest[31:0];
            if (newest[39:32] != meta.generation || ahead[31:31] == 0) {
                newest_ack.write((bit<32>)meta.flow_index, meta.generation ++ hdr.tcp.acknowledgment);
            }
        }
    }
}

control AckFilter(in headers_t hdr, inout metadata_t meta, register<bit<40>> newest_ack) {
    apply {
        if (meta.filter == 1 && meta.known_flow == 1 && meta.supersedable == 1) {
            bit<40> newest;
            newest_ack.read(newest, (bit<32>)meta.flow_index);
            bit<32> ahead = hdr.tcp.acknowledgment - newest[31:0];
            if (newest[39:32] == meta.generation && ahead[31:31] == 1) {
                meta.drop = 1;
            }
        }
    }
}

#endif
