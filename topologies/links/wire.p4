// SPDX-License-Identifier: Apache-2.0
// A wire between ports 1 and 2: what enters one leaves the other, through that port's link model.

#include <core.p4>
#include <v1model.p4>

struct headers_t {}
struct metadata_t {}

parser TheParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition accept; }
}

control TheIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { sm.egress_spec = 3 - sm.ingress_port; }
}

control TheEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {}
}

control TheDeparser(packet_out packet, in headers_t h) {
    apply {}
}

control NoVerify(inout headers_t h, inout metadata_t m) {
    apply {}
}

control NoCompute(inout headers_t h, inout metadata_t m) {
    apply {}
}

V1Switch(TheParser(), NoVerify(), TheIngress(), TheEgress(), NoCompute(), TheDeparser()) main;
