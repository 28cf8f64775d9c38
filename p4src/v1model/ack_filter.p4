// SPDX-License-Identifier: Apache-2.0
// ack_filter: an ACK that a newer one supersedes is not sent at all (RFC 3449, 5.2.1).
//
//   ingress, once the packet is admitted: newest_ack[flow] = the newest ACK number of the flow; not that of a
//            demoted ACK, for the older ones in the priority queue arrive before it
//   egress:  a supersedable ACK older than newest_ack[flow] is dropped when it leaves the queue
//
// newest_ack holds generation ++ ACK number: what an earlier user of the flow index left behind never counts.
// v1model lets ingress and egress share the register.
#ifndef V1MODEL_ACK_FILTER_P4
#define V1MODEL_ACK_FILTER_P4

@id(REGISTER_NEWEST_ACK)
register<bit<40>>(FLOWS_SIZE) newest_ack;

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
