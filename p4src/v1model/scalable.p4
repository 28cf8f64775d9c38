// SPDX-License-Identifier: Apache-2.0
// scalable: a flow that sends with the identifier of L4S (RFC 9331, section 5.1), whose packets may wait with those of
// its kind, ahead of the bulk.
//
//   identifier:      ECT(1); CE says nothing of its sender, so it goes with what the flow sent last (a classic flow
//                    that was marked on its way here is not reordered)
//   above the meter: one packet that `queue_meter` turns away makes the flow bulk for SCALABLE_HOLD, in order, as
//                    `sparse` does
//   Not-ECT:         of a TCP connection that is ECN-capable it is data sent again, or a probe (RFC 3168, 6.1.5, 6.1.6). Marks
//                    slow that sender down, and a drop would cost it a timeout, so it passes, as what `pure_ack` spares
//   unresponsive:    a flow whose own feedback marks every packet of it and that is above its share all the same does
//                    not give way to marks: it waits with the bulk, so the identifier alone buys nothing
#ifndef V1MODEL_SCALABLE_P4
#define V1MODEL_SCALABLE_P4

// In microseconds, the clock of v1model; longer than the bulk may wait.
const time_t SCALABLE_HOLD = 1000000;

// Per flow index: generation ++ when a packet of it was last above the meter of its queue; 0: never.
@id(REGISTER_LAST_ABOVE)
register<bit<56>>(FLOWS_SIZE) last_above;

control Scalable(inout metadata_t meta, in time_t now) {
    // Per flow index: generation ++ whether its last packet that was ECT was ECT(1). 0: none was, in this connection.
    @id(REGISTER_SCALABLE_FLOW)
    register<bit<9>>(FLOWS_SIZE) scalable_flow;

    apply {
        if (meta.known_flow == 1) {
            if (meta.boundary == 1) {
                scalable_flow.write((bit<32>)meta.flow_index, 0);
            }
            bit<9> before;
            scalable_flow.read(before, (bit<32>)meta.flow_index);
            if (meta.ecn == ECN_NOT_ECT) {
                if (meta.protocol == PROTOCOL_TCP && before[8:1] == meta.generation) {
                    meta.spared = 1;
                }
            } else {
                bit<1> scalable = meta.ecn[0:0];
                if (meta.ecn == ECN_CE) {
                    scalable = before == meta.generation ++ 1w1 ? 1w1 : 1w0;
                } else {
                    scalable_flow.write((bit<32>)meta.flow_index, meta.generation ++ scalable);
                }
                bit<56> last;
                last_above.read(last, (bit<32>)meta.flow_index);
                if (scalable == 1 && meta.scalable_feedback != FEEDBACK_ALWAYS &&
                    (last == 0 || last[55:48] != meta.generation || now - last[47:0] > SCALABLE_HOLD)) {
                    meta.scalable = 1;
                }
            }
        }
    }
}

// Behind the meter.
control ScalableHold(in metadata_t meta, in time_t now) {
    apply {
        if (meta.scalable == 1 && meta.demoted == 1) {
            last_above.write((bit<32>)meta.flow_index, meta.generation ++ now);
        }
    }
}

#endif
