// SPDX-License-Identifier: Apache-2.0
// What all programs of the suite share: a request in a frame chooses what is done, an answer in front of it tells what
// became of it. The answer leaves through the port that the request came in by, also through the CPU port, so that
// the suite needs no interface of the switch.
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

// v1model's standard_metadata.instance_type, as BMv2 numbers it
#define INGRESS_CLONE 1
#define EGRESS_CLONE 2
#define RECIRCULATED 4
#define RESUBMITTED 6

#ifndef OWN_CONTROLLER_HEADERS
@controller_header("packet_in")
header packet_in_t {
    bit<9>  ingress_port;
    bit<7>  reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9>          egress_port;  // 0: as a packet that came in by the CPU port
    @padding bit<7> pad;
}
#endif

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header request_t {
    bit<8>  op;
    bit<8>  a;
    bit<16> b;
    bit<32> c;
}

header answer_t {
    bit<32> value;
    bit<8>  hit;
    bit<8>  instance_type;
    bit<16> replica;
    bit<16> error_code;
    bit<16> ingress_port;
    bit<32> packet_length;
}
