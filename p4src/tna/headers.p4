// SPDX-License-Identifier: Apache-2.0
// What ingress hands to egress in front of each packet; the first byte says which.
#ifndef TNA_HEADERS_P4
#define TNA_HEADERS_P4

typedef bit<8> kind_t;
const kind_t KIND_FRAME = 1;
const kind_t KIND_CPU_COPY = 2;
const kind_t KIND_ACK_COPY = 3;

const MirrorType_t MIRROR_CPU = 1;
const MirrorType_t MIRROR_ACK = 2;

header kind_h {
    kind_t kind;
}

header frame_h {
    kind_t       kind;
    @padding bit<5> pad;
    role_t       ingress_role;
    port_t       ingress_port;
    bit<1>       unicast;
    bit<1>       filter;
    bit<1>       supersedable;
    bit<1>       known_flow;
    class_t      class_id;
    @padding bit<1> pad2;
    bit<8>       generation;
    flow_index_t flow_index;
    bit<32>      acknowledgment;
    bit<8>       tcp_flags;
    bit<4>       tcp_reserved;
    @padding bit<4> pad3;
}

header cpu_copy_h {
    kind_t kind;
    @padding bit<7> pad;
    port_t ingress_port;
}

header ack_copy_h {
    kind_t       kind;
    @padding bit<7> pad;
    bit<1>       boundary;        // of a SYN or RST, not of an ACK
    bit<8>       generation;
    flow_index_t flow_index;
    bit<32>      acknowledgment;
}

struct tna_metadata_t {
    metadata_t stages;
    kind_t     copy_kind;       // of a mirrored copy
    MirrorId_t session;
    bit<32>    acknowledgment;
}

struct tna_headers_t {
    frame_h    frame;
    cpu_copy_h cpu_copy;
    ack_copy_h ack_copy;
    headers_t  wire;
}

#endif
