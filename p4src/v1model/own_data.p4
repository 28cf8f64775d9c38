// SPDX-License-Identifier: Apache-2.0
// own_data: in a connection that carries data both ways an ACK does not overtake the connection's own data too far.
//
//   a SYN or RST of the flow:  forget; another connection begins on these addresses and ports
//   data of the flow in the bulk's queue:  own_entered counts it, own_first has place and ACK number of the oldest that waits,
//            own_left those of what left last
//   a pure ACK of the flow, while some of it waits:  more than its own window ahead of both -> the bulk's queue, in order
//
// A receiver discards data whose ACK number is further behind than the largest window it was ever told, and answers with a
// challenge ACK (RFC 5961, 5.2). That of the ACK is no larger, and neither is the SYN's, so what waits stays acceptable; a
// flow whose data does not wait is not held back at all.
#ifndef V1MODEL_OWN_DATA_P4
#define V1MODEL_OWN_DATA_P4

// Per flow index: generation, 0 after a boundary ++ the place of what entered the bulk's queue last ++ the newest ACK number
// of what did; ingress.
@id(REGISTER_OWN_ENTERED)
register<bit<56>>(FLOWS_SIZE) own_entered;
// Per flow index: place ++ ACK number of what entered it when nothing waited. What waits says no less. When a segment comes
// late, and so says less than one before it, its place, and the lesser number of both; ingress.
@id(REGISTER_OWN_FIRST)
register<bit<48>>(FLOWS_SIZE) own_first;
// Per flow index: generation ++ the place of what left it last ++ its ACK number; egress.
@id(REGISTER_OWN_LEFT)
register<bit<56>>(FLOWS_SIZE) own_left;

// More than a window before it is no straggler either, but another connection's.
#define OVERTAKES_TOO_FAR(number, told, window) (number - told > window && told - number > window)
#define OWN_DATA_WAITS(entered, left, generation) (entered[55:48] == generation && entered[55:32] != left[55:32])
// Another connection's, or another owner's, may leave behind it.
#define IS_OF_THOSE(left, first, generation) (left[55:48] == generation && left[47:32] - first[47:32] < 0x8000)

#define IS_BEFORE(one, other) (other - one < (1 << 31) && one != other)

// Before any segment of the new connection.
control OwnForget(in metadata_t meta) {
    apply {
        if (meta.boundary == 1 && meta.known_flow == 1) {
            bit<56> entered;
            own_entered.read(entered, (bit<32>)meta.flow_index);
            own_entered.write((bit<32>)meta.flow_index, 8w0 ++ entered[47:0]);
        }
    }
}

// A pure ACK that is about to go ahead.
control OwnOrder(in headers_t hdr, inout metadata_t meta) {
    ConnectionHash() connection_hash;

    apply {
        if (meta.pure_ack == 1 && meta.known_flow == 1 && meta.queue != 0) {
            bit<56> entered;
            bit<56> left;
            bit<32> index = (bit<32>)meta.flow_index;
            own_entered.read(entered, index);
            own_left.read(left, index);
            if (OWN_DATA_WAITS(entered, left, meta.generation)) {
                bit<48> first;
                own_first.read(first, index);
                bit<32> at;
                connection_hash.apply(hdr, meta, false, at);
                bit<36> scale;
                window_scale.read(scale, (bit<32>)at[15:0]);
                bit<32> window = (bit<32>)hdr.tcp.window;
                if (scale[35:20] == at[31:16]) {
                    window = window << (bit<8>)scale[3:0];
                    if (window < (bit<32>)scale[19:4]) {
                        window = (bit<32>)scale[19:4];
                    }
                }
                if (OVERTAKES_TOO_FAR(hdr.tcp.acknowledgment, first[31:0], window) &&
                    (!IS_OF_THOSE(left, first, meta.generation) ||
                     OVERTAKES_TOO_FAR(hdr.tcp.acknowledgment, left[31:0], window))) {
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
            bit<56> entered;
            bit<56> left;
            bit<32> index = (bit<32>)meta.flow_index;
            own_entered.read(entered, index);
            own_left.read(left, index);
            meta.own_place = entered[47:32] == 0xFFFF ? 16w1 : entered[47:32] + 1;
            bit<32> newest = hdr.tcp.acknowledgment;
            if (!OWN_DATA_WAITS(entered, left, meta.generation)) {
                own_first.write(index, meta.own_place ++ hdr.tcp.acknowledgment);
            } else if (IS_BEFORE(hdr.tcp.acknowledgment, entered[31:0])) {
                bit<48> first;
                own_first.read(first, index);
                bit<32> least = IS_BEFORE(first[31:0], hdr.tcp.acknowledgment) ? first[31:0] : hdr.tcp.acknowledgment;
                own_first.write(index, meta.own_place ++ least);
                newest = entered[31:0];
            }
            own_entered.write(index, meta.generation ++ meta.own_place ++ newest);
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
