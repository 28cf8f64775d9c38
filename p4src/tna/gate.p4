// SPDX-License-Identifier: Apache-2.0
// gate: FIFO batching (v1model/gate.p4) with what ingress has on hardware, where the depth of a queue is unknown.
//
//   virtual_queue: a meter with the link's rate and a burst of the buffer's size; above it the buffer is full
//   full:          in each `window` (the time that the link needs for a batch) `batch` packets pass, the first ones
//
// The window starts with the first packet after the last one's end, so a full gate admits batch after batch and never
// more than the link carries.
#ifndef TNA_GATE_P4
#define TNA_GATE_P4

control Gate(in metadata_t meta, in int<32> now, inout bit<1> refused) {
    Meter<port_t>(PORTS_SIZE, MeterType_t.BYTES) virtual_queue;

    Register<int<32>, port_t>(PORTS_SIZE, 0) window_start;
    Register<bit<32>, port_t>(PORTS_SIZE, 0) admitted;

    color_t color = COLOR_GREEN;
    bit<1> first = 0;
    int<32> length = 0;
    int<32> last_end = 0;
    bit<32> room = 0;

    // 1 when the last window has ended: this packet starts the next one.
    RegisterAction<int<32>, port_t, bit<1>>(window_start) start_window = {
        void apply(inout int<32> value, out bit<1> started) {
            started = 0;
            if (value - last_end <= 0 || value - now > 0) {
                value = now;
                started = 1;
            }
        }
    };

    RegisterAction<bit<32>, port_t, bit<1>>(admitted) admit_first = {
        void apply(inout bit<32> value) {
            value = 1;
        }
    };

    // 1 when the window has no room left.
    RegisterAction<bit<32>, port_t, bit<1>>(admitted) admit_next = {
        void apply(inout bit<32> value, out bit<1> full) {
            if (value < room) {
                value = value + 1;
                full = 0;
            } else {
                full = 1;
            }
        }
    };

    @id(ACTION_BATCH_WINDOW)
    action batch_window(@id(1) bit<32> batch, @id(2) int<32> window) {
        color = virtual_queue.execute(meta.egress_port);
        room = batch;
        length = window;
    }

    @id(TABLE_GATE)
    table gate {
        key = { meta.egress_port: exact @id(1) @name("egress_port"); }
        actions = { batch_window; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    apply {
        gate.apply();
        last_end = now - length;
        if (color != COLOR_GREEN) {
            first = start_window.execute(meta.egress_port);
            if (first == 1) {
                admit_first.execute(meta.egress_port);
            } else {
                refused = admit_next.execute(meta.egress_port);
            }
        }
    }
}

#endif
