// SPDX-License-Identifier: Apache-2.0
// ack_filter: an ACK that a newer one of its connection supersedes is not sent (v1model/ack_filter.p4). On hardware a
// register belongs to one pipe and gress, so ingress tells egress with a truncated copy of the ACK:
//
//   ingress, once the packet is admitted: mirror session ACK_SESSION + pipe; not for a demoted ACK. A SYN or RST of a known
//            flow is copied as well
//   egress, the copy:   ack_owner[flow] = the generation; acks[flow] = the run of ACK numbers, oldest to newest; a SYN, an RST,
//            another owner, or an ACK before the run begins a new one. The copy ends here
//   egress, the ACK:    a supersedable ACK within the run is dropped when it leaves the queue, but never more than
//            MAX_FILTERED in a row
//
// Three stateful ALUs, one behind the other, each of which compares twice: an ACK that says anything of ECN is kept and part of
// the run all the same, and the run is at most half of the sequence space. What the traffic manager drops behind the mirror is
// remembered: nobody at ingress knows how full a queue is.
//
// The copy must overtake the queue: the session's port is one of the same pipe without a queue (its recirculation
// port, which the copy never reaches).
#ifndef TNA_ACK_FILTER_P4
#define TNA_ACK_FILTER_P4

const bit<8> ACK_SESSION = 8;
const bit<8> MAX_FILTERED = 15;

struct ack_run_t {
    int<32> newest;
    int<32> oldest;
}

// egress
control AckFilter(in tna_headers_t hdr, in tna_metadata_t meta, inout bit<1> superseded) {
    Register<bit<8>, flow_index_t>(FLOWS_SIZE, 0) ack_owner;
    Register<ack_run_t, flow_index_t>(FLOWS_SIZE, { 0, 0 }) acks;
    Register<bit<8>, flow_index_t>(FLOWS_SIZE, 0) filtered_acks;

    int<32> number = 0;
    bit<1> stranger = 0;
    bit<1> within = 0;

    // 1 when the index has another owner's memory.
    RegisterAction<bit<8>, flow_index_t, bit<1>>(ack_owner) claim = {
        void apply(inout bit<8> owner, out bit<1> changed) {
            if (owner == meta.stages.generation) {
                changed = 0;
            } else {
                changed = 1;
            }
            owner = meta.stages.generation;
        }
    };

    RegisterAction<bit<8>, flow_index_t, bit<1>>(ack_owner) ask = {
        void apply(inout bit<8> owner, out bit<1> changed) {
            if (owner == meta.stages.generation) {
                changed = 0;
            } else {
                changed = 1;
            }
        }
    };

    RegisterAction<ack_run_t, flow_index_t, bit<1>>(acks) begin_run = {
        void apply(inout ack_run_t run) {
            run.newest = number;
            run.oldest = number;
        }
    };

    // Numbers are compared modulo 2^32 (RFC 9293, 3.4).
    RegisterAction<ack_run_t, flow_index_t, bit<1>>(acks) extend_run = {
        void apply(inout ack_run_t run) {
            if (run.newest - number < 0 || number - run.oldest < 0) {
                run.newest = number;
            }
            if (number - run.oldest < 0) {
                run.oldest = number;
            }
        }
    };

    RegisterAction<ack_run_t, flow_index_t, bit<1>>(acks) is_within = {
        void apply(inout ack_run_t run, out bit<1> inside) {
            inside = 0;
            if (run.newest - number > 0 && number - run.oldest >= 0) {
                inside = 1;
            }
        }
    };

    RegisterAction<bit<8>, flow_index_t, bit<1>>(filtered_acks) count_filtered = {
        void apply(inout bit<8> in_a_row, out bit<1> drop) {
            if (in_a_row < MAX_FILTERED) {
                in_a_row = in_a_row + 1;
                drop = 1;
            } else {
                in_a_row = 0;
                drop = 0;
            }
        }
    };

    RegisterAction<bit<8>, flow_index_t, bit<1>>(filtered_acks) count_sent = {
        void apply(inout bit<8> in_a_row) {
            in_a_row = 0;
        }
    };

    @hidden
    action claim_index() {
        stranger = claim.execute(meta.stages.flow_index);
    }

    @hidden
    action ask_owner() {
        stranger = ask.execute(meta.stages.flow_index);
    }

    @hidden
    action begin() {
        begin_run.execute(meta.stages.flow_index);
    }

    @hidden
    action extend() {
        extend_run.execute(meta.stages.flow_index);
    }

    @hidden
    action judge_ack() {
        within = is_within.execute(meta.stages.flow_index);
    }

    @hidden
    action filter_ack() {
        superseded = count_filtered.execute(meta.stages.flow_index);
    }

    @hidden
    action send_ack() {
        count_sent.execute(meta.stages.flow_index);
    }

    // Late, for the flow tables want the memory of the first stages.
    @hidden
    @stage(7)
    table owner {
        key = {
            hdr.ack_copy.isValid(): exact;
            hdr.frame.filter: ternary;
            hdr.frame.known_flow: ternary;
        }
        actions = { claim_index; ask_owner; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (true, _, _): claim_index();
            (false, 1, 1): ask_owner();
        }
        size = 2;
    }

    @hidden
    @stage(8)
    table ack_filter {
        key = {
            hdr.ack_copy.isValid(): exact;
            hdr.ack_copy.boundary: ternary;
            stranger: ternary;
            hdr.frame.filter: ternary;
            hdr.frame.supersedable: ternary;
            hdr.frame.known_flow: ternary;
            hdr.frame.tcp_flags: ternary;
            hdr.frame.tcp_reserved: ternary;
        }
        actions = { begin; extend; judge_ack; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (true, 1, _, _, _, _, _, _): begin();
            (true, _, 1, _, _, _, _, _): begin();
            (true, _, _, _, _, _, _, _): extend();
            (false, _, 0, 1, 1, 1, 0 &&& 0xC0, 0): judge_ack();
        }
        size = 4;
    }

    @hidden
    @stage(9)
    table in_a_row {
        key = {
            within: exact;
            hdr.frame.filter: exact;
            hdr.frame.known_flow: exact;
        }
        actions = { filter_ack; send_ack; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (1, 1, 1): filter_ack();
            (0, 1, 1): send_ack();
        }
        size = 2;
    }

    apply {
        number = (int<32>)meta.acknowledgment;
        owner.apply();
        ack_filter.apply();
        in_a_row.apply();
    }
}

#endif
