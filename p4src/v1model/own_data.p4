// SPDX-License-Identifier: Apache-2.0
// own_data: in a connection that carries data both ways an ACK does not overtake the connection's own data too far.
//
//   data of the flow in the bulk's queue:  own_entered counts it, own_left says how far it left, and its ACK number
//   a pure ACK of the flow, while some of it waits:  more than its own window ahead of what left last -> the bulk's queue,
//            in order
//
// A receiver discards data whose ACK number is further behind than the largest window it was ever told, and answers with a
// challenge ACK (RFC 5961, 5.2). That of the ACK is no larger, so what waits stays acceptable; a flow whose data does not wait is
// not held back at all.
#ifndef V1MODEL_OWN_DATA_P4
#define V1MODEL_OWN_DATA_P4

// Per flow index, each with the generation before it.
// What entered the bulk's queue; ingress.
@id(REGISTER_OWN_ENTERED)
register<bit<24>>(FLOWS_SIZE) own_entered;
// The place of what left it last, and its ACK number; egress.
@id(REGISTER_OWN_LEFT)
register<bit<56>>(FLOWS_SIZE) own_left;
// The newest ACK number that went ahead while nothing waited: data that enters later says no less; ingress.
@id(REGISTER_OWN_PASSED)
register<bit<40>>(FLOWS_SIZE) own_passed;

// More than a window before it is no straggler either, but another connection's.
#define OVERTAKES_TOO_FAR(number, told, window) (number - told > window && told - number > window)

// A pure ACK that is about to go ahead.
control OwnOrder(in headers_t hdr, inout metadata_t meta) {
    ConnectionHash() connection_hash;

    apply {
        if (meta.pure_ack == 1 && meta.known_flow == 1 && meta.queue != 0) {
            bit<24> entered;
            bit<56> left;
            bit<32> index = (bit<32>)meta.flow_index;
            own_entered.read(entered, index);
            own_left.read(left, index);
            if (entered[23:16] != meta.generation || entered == left[55:32]) {
                own_passed.write(index, meta.generation ++ hdr.tcp.acknowledgment);
            } else {
                bit<40> passed;
                own_passed.read(passed, index);
                bit<32> at;
                connection_hash.apply(hdr, meta, false, at);
                bit<20> scale;
                window_scale.read(scale, (bit<32>)at[15:0]);
                bit<32> window = (bit<32>)hdr.tcp.window;
                if (scale[19:4] == at[31:16]) {
                    window = window << (bit<8>)scale[3:0];
                }
                if ((left[55:48] != meta.generation || OVERTAKES_TOO_FAR(hdr.tcp.acknowledgment, left[31:0], window)) &&
                    (passed[39:32] != meta.generation || OVERTAKES_TOO_FAR(hdr.tcp.acknowledgment, passed[31:0], window))) {
                    meta.queue = 0;
                }
            }
        }
    }
}

// What is admitted to the bulk's queue, ACKs in order among it. Not what a meter demoted, which comes when it comes.
control OwnEnter(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.queue == 0 && meta.known_flow == 1 && hdr.tcp.isValid() && (hdr.tcp.flags & TCP_ACK) != 0 && meta.demoted == 0) {
            bit<24> entered;
            own_entered.read(entered, (bit<32>)meta.flow_index);
            meta.own_place = entered[23:16] == meta.generation && entered[15:0] != 0xFFFF ? entered[15:0] + 1 : 16w1;
            own_entered.write((bit<32>)meta.flow_index, meta.generation ++ meta.own_place);
        }
    }
}

control OwnLeave(in headers_t hdr, in metadata_t meta) {
    apply {
        if (meta.own_place != 0) {
            own_left.write((bit<32>)meta.flow_index, meta.generation ++ meta.own_place ++ hdr.tcp.acknowledgment);
        }
    }
}

#endif
