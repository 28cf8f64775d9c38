// SPDX-License-Identifier: Apache-2.0
// Compile: p4c-bm2-ss --p4v 16 -o arithmetic.json arithmetic.p4
// Every operator that p4c emits, on operands of the packet: the test calculates the same and compares.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8>   op;
    bit<8>   shift;
    bit<16>  a16;
    bit<16>  b16;
    int<16>  i16;
    int<16>  j16;
    bit<64>  a64;
    bit<64>  b64;
    bit<128> a128;
    bit<128> b128;
    bit<4>   nibble;
    bit<12>  twelve;
}

header results_t {
    bit<16>  r16;
    int<16>  s16;
    bit<64>  r64;
    bit<128> r128;
    bit<8>   flag;
}

struct headers_t { operands_t x; results_t y; }
struct metadata_t {}

parser TheParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { packet.extract(h.x); transition accept; }
}
control TheVerify(inout headers_t h, inout metadata_t m) { apply {} }

control TheIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    action flag(bool value) { h.y.flag = value ? 8w1 : 8w0; }
    apply {
        h.y.setValid();
        sm.egress_spec = 2;
        if (h.x.op == 0) { h.y.r16 = h.x.a16 + h.x.b16; h.y.r64 = h.x.a64 + h.x.b64; h.y.r128 = h.x.a128 + h.x.b128; }
        if (h.x.op == 1) { h.y.r16 = h.x.a16 - h.x.b16; h.y.r64 = h.x.a64 - h.x.b64; h.y.r128 = h.x.a128 - h.x.b128; }
        if (h.x.op == 2) { h.y.r16 = h.x.a16 * h.x.b16; h.y.r64 = h.x.a64 * h.x.b64; h.y.r128 = h.x.a128 * h.x.b128; }
        if (h.x.op == 3) { h.y.r16 = h.x.a16 |+| h.x.b16; h.y.r64 = h.x.a64 |+| h.x.b64; h.y.r128 = h.x.a128 |+| h.x.b128; h.y.s16 = h.x.i16 |+| h.x.j16; }
        if (h.x.op == 4) { h.y.r16 = h.x.a16 |-| h.x.b16; h.y.r64 = h.x.a64 |-| h.x.b64; h.y.r128 = h.x.a128 |-| h.x.b128; h.y.s16 = h.x.i16 |-| h.x.j16; }
        if (h.x.op == 5) { h.y.r16 = h.x.a16 << h.x.shift; h.y.r64 = h.x.a64 << h.x.shift; h.y.r128 = h.x.a128 << h.x.shift; h.y.s16 = h.x.i16 << h.x.shift; }
        if (h.x.op == 6) { h.y.r16 = h.x.a16 >> h.x.shift; h.y.r64 = h.x.a64 >> h.x.shift; h.y.r128 = h.x.a128 >> h.x.shift; h.y.s16 = h.x.i16 >> h.x.shift; }
        if (h.x.op == 7) { h.y.r16 = h.x.a16 & h.x.b16; h.y.r64 = h.x.a64 | h.x.b64; h.y.r128 = h.x.a128 ^ h.x.b128; h.y.s16 = ~h.x.i16; }
        if (h.x.op == 8) { h.y.r16 = ~h.x.a16; h.y.r64 = -h.x.a64; h.y.r128 = ~h.x.a128; h.y.s16 = -h.x.i16; }
        if (h.x.op == 9) { h.y.s16 = h.x.i16 + h.x.j16; h.y.r16 = (bit<16>)(h.x.i16 - h.x.j16); }
        if (h.x.op == 10) { h.y.s16 = h.x.i16 * h.x.j16; h.y.r64 = (bit<64>)(bit<16>)h.x.i16; h.y.r128 = h.x.a64 ++ h.x.b64; }
        if (h.x.op == 11) { h.y.r16 = h.x.nibble ++ h.x.twelve; h.y.r64 = h.x.a128[99:36]; h.y.r128[70:7] = h.x.a64; }
        if (h.x.op == 12) { flag(h.x.a16 < h.x.b16); }
        if (h.x.op == 13) { flag(h.x.i16 < h.x.j16); }
        if (h.x.op == 14) { flag(h.x.a128 < h.x.b128); }
        if (h.x.op == 15) { flag(h.x.a64 >= h.x.b64); }
        if (h.x.op == 16) { flag(h.x.a128 == h.x.b128 || (h.x.a64 != h.x.b64 && !(h.x.a16 > h.x.b16))); }
        if (h.x.op == 17) { h.y.r16 = h.x.a16 > h.x.b16 ? h.x.a16 : h.x.b16; h.y.s16 = h.x.i16 <= h.x.j16 ? h.x.i16 : h.x.j16; }
        if (h.x.op == 18) { h.y.r64 = (bit<64>)h.x.a128 + (bit<64>)h.x.a16; h.y.r128 = (bit<128>)h.x.a64 * 3; }
        if (h.x.op == 19) { h.y.s16 = (int<16>)(int<8>)h.x.i16; h.y.r16 = (bit<16>)h.x.nibble; }
    }
}
control TheEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) { apply {} }
control TheCompute(inout headers_t h, inout metadata_t m) { apply {} }
control TheDeparser(packet_out packet, in headers_t h) { apply { packet.emit(h.y); } }
V1Switch(TheParser(), TheVerify(), TheIngress(), TheEgress(), TheCompute(), TheDeparser()) main;
