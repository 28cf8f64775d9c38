// SPDX-License-Identifier: Apache-2.0
// ack_filter: an ACK that a newer one supersedes is not sent (v1model/ack_filter.p4). On hardware a register belongs to
// one pipe and gress, so ingress tells egress with a truncated copy of the ACK:
//
//   ingress, once the packet is admitted: mirror session ACK_SESSION + pipe; not for a demoted ACK
//   egress, the copy:   newest_ack[flow] = the newest ACK number of the flow; the copy ends here
//   egress, the ACK:    a supersedable ACK older than newest_ack[flow] is dropped when it leaves the queue
//
// One stateful ALU compares no more than this: an ACK that says anything of ECN is kept, there is no window, and what
// was filtered is not counted.
//
// The copy must overtake the queue: the session's port is one of the same pipe without a queue (its recirculation
// port, which the copy never reaches).
#ifndef TNA_ACK_FILTER_P4
#define TNA_ACK_FILTER_P4

const bit<8> ACK_SESSION = 8;

struct newest_ack_t {
    int<32> number;
    int<32> generation;
}

// egress
control AckFilter(in tna_headers_t hdr, in tna_metadata_t meta, inout bit<1> superseded) {
    Register<newest_ack_t, flow_index_t>(FLOWS_SIZE, { 0, 0 }) newest_ack;

    int<32> number = 0;
    int<32> generation = 0;

    // Numbers are compared modulo 2^32 (RFC 9293, 3.4); those of another generation count as none.
    RegisterAction<newest_ack_t, flow_index_t, bit<1>>(newest_ack) remember = {
        void apply(inout newest_ack_t newest) {
            if (newest.generation != generation || newest.number - number < 0) {
                newest.number = number;
                newest.generation = generation;
            }
        }
    };

    RegisterAction<newest_ack_t, flow_index_t, bit<1>>(newest_ack) is_superseded = {
        void apply(inout newest_ack_t newest, out bit<1> older) {
            older = 0;
            if (newest.generation == generation && newest.number - number > 0) {
                older = 1;
            }
        }
    };

    @hidden
    action remember_newest() {
        remember.execute(meta.stages.flow_index);
    }

    @hidden
    action judge_ack() {
        superseded = is_superseded.execute(meta.stages.flow_index);
    }

    // Late, for the flow tables want the memory of the first stages.
    @hidden
    @stage(9)
    table ack_filter {
        key = {
            hdr.ack_copy.isValid(): exact;
            hdr.frame.filter: ternary;
            hdr.frame.supersedable: ternary;
            hdr.frame.known_flow: ternary;
            hdr.frame.tcp_flags: ternary;
            hdr.frame.tcp_reserved: ternary;
        }
        actions = { remember_newest; judge_ack; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (true, _, _, _, _, _): remember_newest();
            (false, 1, 1, 1, 0 &&& 0xC0, 0): judge_ack();
        }
        size = 2;
    }

    apply {
        number = (int<32>)meta.acknowledgment;
        generation = (int<32>)(bit<32>)meta.stages.generation;
        ack_filter.apply();
    }
}

#endif
