// SPDX-License-Identifier: Apache-2.0
// Every operator of P4_16 on odd widths. `op` chooses the operator, `a` the width; the operands follow the request, the
// result replaces the first of them.
#include "frame.p4"

header operands_t {
    bit<128> x;
    bit<128> y;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    request_t    request;
    operands_t   operands;
}
struct metadata_t {}

parser OperatorsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_request;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_request;
    }
    state parse_request {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.request);
        packet.extract(hdr.operands);
        transition accept;
    }
}

// Unsigned and signed arithmetic, shifts, comparisons and casts at one width. A shift is by 8 bits of the second operand.
#define AT_WIDTH(W) \
    if (width == W) { \
        bit<W> x = hdr.operands.x[W - 1:0]; \
        bit<W> y = hdr.operands.y[W - 1:0]; \
        int<W> sx = (int<W>)x; \
        int<W> sy = (int<W>)y; \
        bit<8> by = hdr.operands.y[7:0]; \
        bit<W> r = 0; \
        if (op == 1) { r = x + y; } \
        if (op == 2) { r = x - y; } \
        if (op == 3) { r = x * y; } \
        if (op == 4) { r = x |+| y; } \
        if (op == 5) { r = x |-| y; } \
        if (op == 6) { r = x & y; } \
        if (op == 7) { r = x | y; } \
        if (op == 8) { r = x ^ y; } \
        if (op == 9) { r = ~x; } \
        if (op == 10) { r = -x; } \
        if (op == 11) { r = x << by; } \
        if (op == 12) { r = x >> by; } \
        if (op == 13) { r = (bit<W>)(sx + sy); } \
        if (op == 14) { r = (bit<W>)(sx - sy); } \
        if (op == 15) { r = (bit<W>)(sx |+| sy); } \
        if (op == 16) { r = (bit<W>)(sx |-| sy); } \
        if (op == 17) { r = (bit<W>)(sx >> by); } \
        if (op == 18) { r = (bit<W>)(sx * sy); } \
        if (op == 19 && x < y) { r = 1; } \
        if (op == 20 && x <= y) { r = 1; } \
        if (op == 21 && sx < sy) { r = 1; } \
        if (op == 22 && sx >= sy) { r = 1; } \
        if (op == 23 && x == y) { r = 1; } \
        if (op == 24 && x != y) { r = 1; } \
        if (op == 25) { r = x > y ? x : y; } \
        if (op == 26) { r = (bit<W>)(sx << by); } \
        if (op == 27) { r = (bit<W>)(-sx); } \
        hdr.operands.x = (bit<128>)r; \
    }

control OperatorsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        bit<8> op = hdr.request.op;
        bit<8> width = hdr.request.a;
        std.egress_spec = std.ingress_port;
        AT_WIDTH(5)
        AT_WIDTH(13)
        AT_WIDTH(33)
        AT_WIDTH(48)
        AT_WIDTH(64)
        AT_WIDTH(128)
        if (op == 40) { hdr.operands.x = (bit<128>)(hdr.operands.x[12:0] ++ hdr.operands.y[6:0]); }
        if (op == 41) { hdr.operands.x = (bit<128>)hdr.operands.x[100:37]; }
        if (op == 42) { hdr.operands.x[100:37] = hdr.operands.y[63:0]; }
        if (op == 43) { hdr.operands.x = (bit<128>)(bit<7>)hdr.operands.x[12:0]; }
        if (op == 44) { hdr.operands.x = (bit<128>)(bit<48>)(int<48>)(int<13>)hdr.operands.x[12:0]; }
        if (op == 50) { hdr.operands.x = (bit<128>)(hdr.operands.x[31:0] & 0xff00ff00 | hdr.operands.y[31:0] & 0x00ff00ff); }
        if (op >= 60) {
            // 256 bits: x is the upper half.
            bit<256> z = hdr.operands.x ++ hdr.operands.y;
            bit<256> turned = hdr.operands.y ++ hdr.operands.x;
            int<256> signed = (int<256>)z;
            if (op == 60) { z = z + turned; }
            if (op == 61) { z = z - turned; }
            if (op == 62) { z = z * turned; }
            if (op == 63) { z = z << hdr.request.b[7:0]; }
            if (op == 64) { z = z >> hdr.request.b[7:0]; }
            if (op == 65) { z = z |+| turned; }
            if (op == 66) { z = (bit<256>)(signed |+| (int<256>)turned); }
            if (op == 67) { z = (bit<256>)(signed >> hdr.request.b[7:0]); }
            if (op == 68) { z = z < turned ? 256w1 : 256w2; }
            if (op == 69) { z = (bit<256>)z[200:33]; }
            if (op == 70) { z = z & ~turned | z ^ turned; }
            hdr.operands.x = z[255:128];
            hdr.operands.y = z[127:0];
        }
        if (op == 51) { bool both = hdr.operands.x == 1 && (hdr.operands.y == 1 || !(hdr.operands.y == 2)); hdr.operands.x = both ? 128w7 : 128w9; }
    }
}

control OperatorsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        hdr.packet_out.setInvalid();
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.reason = 0;
        }
    }
}

control OperatorsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.request);
        packet.emit(hdr.operands);
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

V1Switch(OperatorsParser(), NoChecksum(), OperatorsIngress(), OperatorsEgress(), NoChecksum(), OperatorsDeparser()) main;
