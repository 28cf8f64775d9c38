// SPDX-License-Identifier: Apache-2.0
// sparse: a flow within its sparse rate for SPARSE_HOLD is sparse.
//
// The meter colours single packets; a flow whose packets took both the sparse and the bulk queue in turn would be
// reordered, so one packet above the rate makes the flow bulk for the whole hold time, which must exceed the bulk
// queue's delay.
#ifndef V1MODEL_SPARSE_P4
#define V1MODEL_SPARSE_P4

// In microseconds, the clock of v1model.
const time_t SPARSE_HOLD = 1000000;

control Sparse(inout metadata_t meta, in time_t now) {
    // Per flow index: generation ++ when the flow last exceeded its sparse rate.
    @id(REGISTER_LAST_BUSY)
    register<bit<56>>(FLOWS_SIZE) last_busy;

    apply {
        if (meta.known_flow == 1) {
            if (meta.color != COLOR_GREEN) {
                last_busy.write((bit<32>)meta.flow_index, meta.generation ++ now);
            } else {
                bit<56> busy;
                last_busy.read(busy, (bit<32>)meta.flow_index);
                if (busy == 0 || busy[55:48] != meta.generation || now - busy[47:0] > SPARSE_HOLD) {
                    meta.sparse = 1;
                }
            }
        }
    }
}

#endif
