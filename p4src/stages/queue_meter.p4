// SPDX-License-Identifier: Apache-2.0
// queue_meter: keeps every priority queue within its rate (per egress port ++ queue). Above it the packet waits with the
// bulk, so nobody buys priority with a flood of ACKs or of small packets.
#ifndef QUEUE_METER_P4
#define QUEUE_METER_P4

control QueueMeter(inout metadata_t meta) {
    // Per egress port ++ queue.
    @id(METER_QUEUE)
    METER(CLASSES_SIZE) queue_meter;

    apply {
        if (meta.queue != 0) {
            color_t color = COLOR_GREEN;
            EXECUTE_METER(queue_meter, meta.egress_port ++ meta.queue, color);
            if (color != COLOR_GREEN) {
                meta.queue = 0;
                meta.demoted = 1;
#ifdef DEMOTED_IS_REGULATED
                // What waits with the bulk is held back as the bulk is.
                meta.regulated = 1;
#endif
            }
        }
    }
}

#endif
