// SPDX-License-Identifier: Apache-2.0
// ack_filter: an ACK that a newer one supersedes is not sent at all (RFC 3449, 5.2.1).
//
//   ingress, once the packet is admitted: newest_ack[flow] = the newest ACK number of the flow; not that of a
//            demoted ACK, for the older ones in the priority queue arrive before it
//   egress:  a supersedable ACK older than newest_ack[flow] is dropped when it leaves the queue, but never more than
//            MOST_FILTERED in a row: what each ACK that is left tells its sender to send at once stays bounded, and
//            whatever is remembered, no connection is left without ACKs
//
// newest_ack holds generation ++ ACK number: what an earlier user of the flow index left behind never counts.
// v1model lets ingress and egress share the register.
#ifndef V1MODEL_ACK_FILTER_P4
#define V1MODEL_ACK_FILTER_P4

@id(REGISTER_NEWEST_ACK)
register<bit<40>>(FLOWS_SIZE) newest_ack;

const bit<8> MOST_FILTERED = 15;

control AckRemember(in headers_t hdr, in metadata_t meta) {
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

control AckFilter(in headers_t hdr, inout metadata_t meta) {
    // Per flow index: dropped since one was sent.
    @id(REGISTER_FILTERED_ACKS)
    register<bit<8>>(FLOWS_SIZE) filtered_acks;

    apply {
        if (meta.filter == 1 && meta.known_flow == 1 && meta.supersedable == 1) {
            bit<40> newest;
            newest_ack.read(newest, (bit<32>)meta.flow_index);
            bit<32> ahead = hdr.tcp.acknowledgment - newest[31:0];
            bit<8> in_a_row;
            filtered_acks.read(in_a_row, (bit<32>)meta.flow_index);
            if (newest[39:32] == meta.generation && ahead[31:31] == 1 && in_a_row < MOST_FILTERED) {
                meta.drop = 1;
                in_a_row = in_a_row + 1;
            } else {
                in_a_row = 0;
            }
            filtered_acks.write((bit<32>)meta.flow_index, in_a_row);
        }
    }
}

#endif
