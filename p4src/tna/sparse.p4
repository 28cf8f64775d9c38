// SPDX-License-Identifier: Apache-2.0
// sparse: a flow within its sparse rate for SPARSE_HOLD is sparse (v1model/sparse.p4 says why).
//
// One stateful ALU both remembers and compares, times modulo 2^32, as sequence numbers are. The clock wraps in 18 minutes, so a
// flow that is idle moves its time along with each packet, and no old one comes true again. A generation would be a third
// input of an ALU that has two: a new flow that meets what is left of an earlier owner, or the initial 0, within the second in
// which the clock passes it, is bulk for the rest of that second.
#ifndef TNA_SPARSE_P4
#define TNA_SPARSE_P4

// In units of 256 ns: 1 s.
const int<32> SPARSE_HOLD = 3906250;

control Sparse(inout metadata_t meta, in int<32> now) {
    // Per flow index: when the flow last exceeded its sparse rate.
    Register<int<32>, flow_index_t>(FLOWS_SIZE, 0) last_busy;

    int<32> hold_start = 0;

    RegisterAction<int<32>, flow_index_t, bit<1>>(last_busy) remember_busy = {
        void apply(inout int<32> value) {
            value = now;
        }
    };

    // 0 when the flow was busy within the hold time.
    RegisterAction<int<32>, flow_index_t, bit<1>>(last_busy) was_idle = {
        void apply(inout int<32> value, out bit<1> idle) {
            if (value - hold_start > 0 && value - now <= 0) {
                idle = 0;
            } else {
                value = hold_start;
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
        sparse.apply();
    }
}

#endif
