// SPDX-License-Identifier: Apache-2.0
// gate: how a real access point admits packets (QoS-guaranteed TCP, Fig. 1): a FIFO of `buffer` packets that, once
// full, takes packets again only when a whole batch fits.
//
//   open --(depth reaches buffer)--> closed: drop --(depth <= buffer - batch, or 0)--> open
//
// A batch that is larger than the buffer fits when the buffer is empty.
//
// depth = admitted - released: registers written by ingress alone, registers written by egress alone, so that a target
// with a thread for each needs no lock. The port's own queue must hold `buffer` packets.
//
// A packet that is lost between the two (a full queue, a new pipeline) would hold its place for ever. A port that for
// GATE_FORGETS neither took nor sent a packet has none, and depth begins anew; after an outage of the link that is
// longer, it has some that are not counted, and depth stays 0 until they are gone.
#ifndef V1MODEL_GATE_P4
#define V1MODEL_GATE_P4

// Shared by ingress and egress, which v1model allows and hardware does not.
@id(REGISTER_GATE_ADMITTED)
register<bit<32>>(PORTS_SIZE) gate_admitted;
@id(REGISTER_GATE_RELEASED)
register<bit<32>>(PORTS_SIZE) gate_released;
// When a packet last took its place, and gave it back.
@id(REGISTER_GATE_ADMITTED_AT)
register<time_t>(PORTS_SIZE) gate_admitted_at;
@id(REGISTER_GATE_RELEASED_AT)
register<time_t>(PORTS_SIZE) gate_released_at;

// In microseconds, the clock of v1model.
const time_t GATE_FORGETS = 1000000;

control Gate(inout metadata_t meta, in time_t now) {
    @id(REGISTER_GATE_CLOSED)
    register<bit<1>>(PORTS_SIZE) gate_closed;

    @id(ACTION_BATCH_GATE)
    action batch_gate(@id(1) bit<32> buffer, @id(2) bit<32> batch) {
        bit<32> admitted;
        bit<32> released;
        bit<1> closed;
        gate_admitted.read(admitted, (bit<32>)meta.egress_port);
        gate_released.read(released, (bit<32>)meta.egress_port);
        gate_closed.read(closed, (bit<32>)meta.egress_port);
        time_t admitted_at;
        time_t released_at;
        gate_admitted_at.read(admitted_at, (bit<32>)meta.egress_port);
        gate_released_at.read(released_at, (bit<32>)meta.egress_port);
        bit<32> depth = admitted - released;
        if (depth[31:31] == 1 || (now - admitted_at > GATE_FORGETS && now - released_at > GATE_FORGETS)) {
            admitted = released;
            depth = 0;
        }
        closed = depth >= buffer ? 1w1 : (depth == 0 || depth + batch <= buffer ? 1w0 : closed);
        gate_closed.write((bit<32>)meta.egress_port, closed);
        gate_admitted.write((bit<32>)meta.egress_port, admitted + (bit<32>)(~closed));
        gate_admitted_at.write((bit<32>)meta.egress_port, closed == 1 ? admitted_at : now);
        meta.drop = closed;
        meta.gated = ~closed;
    }

    @id(TABLE_GATE)
    table gate {
        key = { meta.egress_port: exact @id(1) @name("egress_port"); }
        actions = { batch_gate; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    apply {
        gate.apply();
    }
}

control GateRelease(in metadata_t meta, in time_t now) {
    apply {
        if (meta.gated == 1) {
            bit<32> released;
            gate_released.read(released, (bit<32>)meta.egress_port);
            gate_released.write((bit<32>)meta.egress_port, released + 1);
            gate_released_at.write((bit<32>)meta.egress_port, now);
        }
    }
}

#endif
