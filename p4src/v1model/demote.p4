// SPDX-License-Identifier: Apache-2.0
// demote: packets that match no flow entry (opaque, or a flow that the controller has no capacity for) are kept in one
// queue, to preserve order.
//
// `queue_meter` turns single packets away. Nobody can tell here whose they are, so all that is of no known flow and asks
// for that queue of that port waits with the bulk for DEMOTE_HOLD, in order, and is regulated as one: the hold begins
// anew with every packet that is above the meter. Control packets are answers of their own; any order will do.
#ifndef V1MODEL_DEMOTE_P4
#define V1MODEL_DEMOTE_P4

// In microseconds, the clock of v1model; longer than the bulk may wait.
const time_t DEMOTE_HOLD = 1000000;

// `asked`: the queue before the meter.
control Demote(inout metadata_t meta, in queue_t asked, in time_t now) {
    // Per egress port ++ queue: when a packet of no known flow was last above the meter.
    @id(REGISTER_LAST_DEMOTED)
    register<time_t>(CLASSES_SIZE) last_demoted;

    apply {
        if (asked != 0 && meta.known_flow == 0 && meta.is_control == 0) {
            bit<32> index = (bit<32>)(meta.egress_port ++ asked);
            if (meta.demoted == 1) {
                last_demoted.write(index, now | 1);   // 0: never
            } else {
                time_t last;
                last_demoted.read(last, index);
                if (last != 0 && now - last <= DEMOTE_HOLD) {
                    meta.queue = 0;
                    meta.demoted = 1;
                    meta.regulated = 1;
                }
            }
        }
    }
}

#endif
