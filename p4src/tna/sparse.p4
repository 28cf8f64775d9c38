// SPDX-License-Identifier: Apache-2.0
// sparse: a flow within its sparse rate for SPARSE_HOLD is sparse (v1model/sparse.p4 says why).
//
// One stateful ALU both remembers and compares, times modulo 2^32, as sequence numbers are. The clock wraps in 18 minutes, so
// nothing is remembered for longer than it is asked for: the first packet after the hold forgets it, and the controller takes an
// entry back, whose index then has another generation, long before that.
#ifndef TNA_SPARSE_P4
#define TNA_SPARSE_P4

// In units of 256 ns: 1 s.
const int<32> SPARSE_HOLD = 3906250;

// No flow's generation.
const int<32> NO_GENERATION = 256;

struct busy_t {
    int<32> at;
    int<32> generation;
}

control Sparse(inout metadata_t meta, in int<32> now) {
    // Per flow index: when the flow last exceeded its sparse rate.
    Register<busy_t, flow_index_t>(FLOWS_SIZE, { 0, NO_GENERATION }) last_busy;

    int<32> hold_start = 0;
    int<32> generation = 0;

    RegisterAction<busy_t, flow_index_t, bit<1>>(last_busy) remember_busy = {
        void apply(inout busy_t busy) {
            busy.at = now;
            busy.generation = generation;
        }
    };

    // 0 when the flow was busy within the hold time.
    RegisterAction<busy_t, flow_index_t, bit<1>>(last_busy) was_idle = {
        void apply(inout busy_t busy, out bit<1> idle) {
            if (busy.generation == generation && busy.at - hold_start > 0) {
                idle = 0;
            } else {
                busy.generation = NO_GENERATION;
                idle = 1;
            }
        }
    };

    @hidden
    action busy() {
        remember_busy.execute(meta.flow_index);
    }

    @hidden
    action judge() {
        meta.sparse = was_idle.execute(meta.flow_index);
    }

    @hidden
    table sparse {
        key = {
            meta.known_flow: exact;
            meta.color: ternary;
        }
        actions = { busy; judge; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (1, COLOR_GREEN): judge();
            (1, _): busy();
        }
        size = 2;
    }

    apply {
        hold_start = now - SPARSE_HOLD;
        generation = (int<32>)(bit<32>)meta.generation;
        sparse.apply();
    }
}

#endif
