// SPDX-License-Identifier: Apache-2.0
// ack_filter: an ACK that a newer one supersedes is not sent at all (RFC 3449, 5.2.1).
//
//   ingress, once the packet is admitted: newest_ack[flow] = the newest ACK number of the flow, and its run: how far
//            before that number ACKs say the same of ECN. Not that of a demoted ACK, for the older ones in the priority
//            queue arrive before it
//   egress:  a supersedable ACK within the run is dropped when it leaves the queue, but never more than MOST_FILTERED
//            in a row: what each ACK that is left tells its sender to send at once stays bounded
//
// So of ECN nothing is lost: ECE, and the counter of accurate ECN (AE, CWR and ECE), change with an ACK that is kept
// and with which a new run begins.
//
// No history locks a connection out. A number is older only when it is less than a window behind, and else newer;
// what the flow said while nobody listened belongs to no run; and once MOST_FILTERED have been dropped in a row, the next
// ACK that arrives and looks older is the newest: it was not those that are wrong, but what is remembered.
//
// newest_ack holds generation ++ ECN flags ++ run ++ ACK number: what an earlier user of the flow index left behind
// never counts. v1model lets ingress and egress share the registers; each is written by one of them.
#ifndef V1MODEL_ACK_FILTER_P4
#define V1MODEL_ACK_FILTER_P4

@id(REGISTER_NEWEST_ACK)
register<bit<80>>(FLOWS_SIZE) newest_ack;
// Per flow index: dropped since one was sent.
@id(REGISTER_FILTERED_ACKS)
register<bit<8>>(FLOWS_SIZE) filtered_acks;

const bit<8> MOST_FILTERED = 15;
// Above every window of TCP (RFC 7323, 2.3), and half of what serial numbers can tell apart.
const bit<32> ACK_WINDOW = 1 << 30;

#define ECN_FLAGS(tcp) (5w0 ++ tcp.reserved[0:0] ++ tcp.flags[7:6])

control AckRemember(in headers_t hdr, in metadata_t meta) {
    apply {
        if (meta.filter == 1 && meta.demoted == 0 && meta.known_flow == 1) {
            bit<80> newest;
            bit<8> in_a_row;
            newest_ack.read(newest, (bit<32>)meta.flow_index);
            filtered_acks.read(in_a_row, (bit<32>)meta.flow_index);
            bit<8> ecn = ECN_FLAGS(hdr.tcp);
            bit<32> behind = newest[31:0] - hdr.tcp.acknowledgment;
            bit<32> ahead = hdr.tcp.acknowledgment - newest[31:0];
            bit<32> run = 0;
            bit<1> older = 0;
            if (newest[79:72] == meta.generation) {
                if (behind != 0 && behind < ACK_WINDOW && in_a_row < MOST_FILTERED) {
                    older = 1;
                } else if (newest[71:64] == ecn && ahead < ACK_WINDOW) {
                    run = newest[63:32] + ahead;
                    if (run > ACK_WINDOW) {
                        run = ACK_WINDOW;
                    }
                }
            }
            if (older == 0) {
                newest_ack.write((bit<32>)meta.flow_index, meta.generation ++ ecn ++ run ++ hdr.tcp.acknowledgment);
            }
        }
    }
}

control AckFilter(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.filter == 1 && meta.known_flow == 1 && meta.supersedable == 1) {
            bit<80> newest;
            bit<8> in_a_row;
            newest_ack.read(newest, (bit<32>)meta.flow_index);
            filtered_acks.read(in_a_row, (bit<32>)meta.flow_index);
            bit<8> ecn = ECN_FLAGS(hdr.tcp);
            bit<32> behind = newest[31:0] - hdr.tcp.acknowledgment;
            if (newest[79:72] == meta.generation && newest[71:64] == ecn && behind != 0 && behind <= newest[63:32] &&
                in_a_row < MOST_FILTERED) {
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
