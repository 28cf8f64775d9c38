// SPDX-License-Identifier: Apache-2.0
// ack_filter: an ACK that a newer one supersedes is not sent at all (RFC 3449, 5.2.1).
//
//   ingress, a SYN or RST of the flow:  forget; another connection begins on these addresses and ports
//   ingress, once an ACK is admitted to its priority queue:  newest_ack[flow] = its number, and the run: how far before
//            that number ACKs say the same of ECN; where it waits
//   egress:  a supersedable ACK within the run is dropped when it leaves the queue, but never more than MAX_FILTERED
//            in a row: what each ACK that is left tells its sender to send at once stays bounded
//
// So of ECN nothing is lost: ECE, and the counter of accurate ECN (AE, CWR and ECE), change with an ACK that is kept
// and with which a new run begins.
//
// Only what will be sent supersedes. An ACK is remembered while no more than QUEUE_ROOM wait in its queue, itself
// included: a port must have room for so many, so none of them is lost there. One that waits with the bulk
// (demoted, or in order behind its connection's own data) is not remembered: its queue may be full, and the older ones in
// the priority queue arrive first.
//
// No history locks a connection out. The memory ends with the connection and with the owner of the flow index. An ACK that
// arrives after the newest one has left is the newest, whatever its number: serial numbers wrap (4 GiB may pass without a pure
// ACK), and a FIFO would send it too. So is one that arrives for another queue, and one that is not within the run: the flow may
// have said anything while nobody listened.
//
// v1model lets ingress and egress share the registers; each is written by one of them.
#ifndef V1MODEL_ACK_FILTER_P4
#define V1MODEL_ACK_FILTER_P4

// Per flow index: egress port ++ queue ++ place in it ++ generation ++ known ++ ECN flags ++ run ++ ACK number.
@id(REGISTER_NEWEST_ACK)
register<bit<124>>(FLOWS_SIZE) newest_ack;
// Per flow index: generation ++ how many were dropped since one was sent.
@id(REGISTER_FILTERED_ACKS)
register<bit<16>>(FLOWS_SIZE) filtered_acks;
// Per egress port ++ queue: how many ACKs entered it, and the place of the last one that left. A queue is a FIFO, so
// what entered before that one has left too, or was lost: the difference is never less than what waits.
@id(REGISTER_ACKS_ENTERED)
register<bit<32>>(CLASSES_SIZE) acks_entered;
@id(REGISTER_ACKS_LEFT)
register<bit<32>>(CLASSES_SIZE) acks_left;

const bit<8> MAX_FILTERED = 15;
// Above every window of TCP (RFC 7323, 2.3), and half of what serial numbers can tell apart.
const bit<32> ACK_WINDOW = 1 << 30;
// What each of BMv2's queues holds by default. With less, ACKs that come in a burst are not thinned.
const bit<32> QUEUE_ROOM = 64;

#define ECN_FLAGS(tcp) (tcp.reserved[0:0] ++ tcp.flags[7:6])

// Whether what is remembered still waits in this queue, of which `left` was the last to leave.
#define STILL_WAITS(newest, queue, left) (newest[123:112] == queue && newest[111:80] - left - 1 < QUEUE_ROOM)
// Whether an ACK is within the run of what is remembered; and says the same of ECN, and not too many were dropped in a row.
#define IS_OLDER(newest, generation, tcp) \
    (newest[79:67] == generation ++ 5w1 && newest[31:0] != tcp.acknowledgment && \
     newest[31:0] - tcp.acknowledgment <= newest[63:32])
#define IS_SUPERSEDED(newest, filtered, generation, tcp) \
    (IS_OLDER(newest, generation, tcp) && newest[66:64] == ECN_FLAGS(tcp) && \
     (filtered[15:8] != generation || filtered[7:0] < MAX_FILTERED))

// Before any ACK of the new connection.
control AckForget(in metadata_t meta) {
    apply {
        if (meta.boundary == 1 && meta.known_flow == 1) {
            newest_ack.write((bit<32>)meta.flow_index, 0);
        }
    }
}

control AckRemember(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.filter == 1) {
            bit<12> queue = meta.egress_port ++ meta.queue;
            bit<32> left = 0;
            if (meta.queue != 0) {
                acks_entered.read(meta.ack_place, (bit<32>)queue);
                acks_left.read(left, (bit<32>)queue);
                meta.ack_place = meta.ack_place + 1;
                acks_entered.write((bit<32>)queue, meta.ack_place);
            }
            if (meta.known_flow == 1) {
                bit<124> newest;
                newest_ack.read(newest, (bit<32>)meta.flow_index);
                bool older = IS_OLDER(newest, meta.generation, hdr.tcp);
                bool superseded = older && STILL_WAITS(newest, queue, left);
                if (!superseded && meta.queue != 0 && meta.ack_place - left <= QUEUE_ROOM) {
                    bit<32> ahead = hdr.tcp.acknowledgment - newest[31:0];
                    bit<32> run = 0;
                    if (newest[79:64] == meta.generation ++ 5w1 ++ ECN_FLAGS(hdr.tcp) && ahead < ACK_WINDOW) {
                        run = newest[63:32] + ahead;
                        if (run > ACK_WINDOW) {
                            run = ACK_WINDOW;
                        }
                    }
                    newest_ack.write((bit<32>)meta.flow_index, queue ++ meta.ack_place ++
                        meta.generation ++ 5w1 ++ ECN_FLAGS(hdr.tcp) ++ run ++ hdr.tcp.acknowledgment);
                } else if (older && !superseded) {
                    newest_ack.write((bit<32>)meta.flow_index, 0);
                }
            }
        }
    }
}

control AckFilter(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.filter == 1) {
            if (meta.queue != 0) {
                acks_left.write((bit<32>)(meta.egress_port ++ meta.queue), meta.ack_place);
            }
            if (meta.known_flow == 1 && meta.supersedable == 1) {
                bit<124> newest;
                bit<16> filtered;
                newest_ack.read(newest, (bit<32>)meta.flow_index);
                filtered_acks.read(filtered, (bit<32>)meta.flow_index);
                bit<8> in_a_row = 0;
                if (IS_SUPERSEDED(newest, filtered, meta.generation, hdr.tcp)) {
                    meta.drop = 1;
                    in_a_row = filtered[15:8] == meta.generation ? filtered[7:0] + 1 : 8w1;
                }
                filtered_acks.write((bit<32>)meta.flow_index, meta.generation ++ in_a_row);
            }
        }
    }
}

#endif
