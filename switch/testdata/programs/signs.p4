// SPDX-License-Identifier: Apache-2.0
// What BMv2 does not load: selects over negative numbers, digests of signed ones; and a deparser that logs.
#include <core.p4>
#include <v1model.p4>

header signs_t { int<8> x; int<12> y; bit<4> z; int<100> wide; bit<4> end; }
header answer_t { bit<8> way; }
struct headers_t { signs_t signs; answer_t answer; }
struct metadata_t { bit<8> way; }
struct sample_t { int<8> x; int<100> wide; }

parser TheParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        packet.extract(h.signs);
        transition select(h.signs.x) {
            -1: one;
            -2: two;
            5: second;
            default: third;
        }
    }
    state second {
        transition select(h.signs.y) {
            -1: one;
            -3 &&& 0xff: two;
            default: fourth;
        }
    }
    state third {
        transition select(h.signs.x, h.signs.y, h.signs.z) {
            (6, -1, 3): one;
            (-4, _, 2): two;
            (-4, -5, _): three;
            default: accept;
        }
    }
    state fourth {
        transition select(h.signs.z, h.signs.wide) {
            (1, -1): one;
            (_, -2): two;
            (2, 5): three;
            default: accept;
        }
    }
    state one { m.way = 1; transition accept; }
    state two { m.way = 2; transition accept; }
    state three { m.way = 3; transition accept; }
}
control TheVerify(inout headers_t h, inout metadata_t m) { apply {} }
control TheIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        h.answer.setValid();
        h.answer.way = m.way;
        digest<sample_t>(1, { h.signs.x, h.signs.wide });
    }
}
control TheEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) { apply {} }
control TheCompute(inout headers_t h, inout metadata_t m) { apply {} }
control TheDeparser(packet_out packet, in headers_t h) {
    apply {
        log_msg("way {} after {}", { h.answer.way, h.signs.wide });
        packet.emit(h);
    }
}
V1Switch(TheParser(), TheVerify(), TheIngress(), TheEgress(), TheCompute(), TheDeparser()) main;
