// SPDX-License-Identifier: Apache-2.0
// IPv4 forwarding by longest prefix: the first exercise of a P4 course, for docs/quickstart/p4.md.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata_t { }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x0800: ipv4; default: accept; }
    }
    state ipv4 { packet.extract(hdr.ipv4); transition accept; }
}
#define FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.flags, \
    hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }
control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply { update_checksum(hdr.ipv4.isValid(), FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16); }
}
control BasicIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action forward(bit<48> next_hop, bit<9> port) {
        std.egress_spec = port;
        hdr.ethernet.src = hdr.ethernet.dst; hdr.ethernet.dst = next_hop;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    table routes { key = { hdr.ipv4.dst: lpm; } actions = { forward; drop; } default_action = drop(); size = 1024; }
    apply { if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) { routes.apply(); } else { drop(); } }
}
control BasicEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(Parse(), Verify(), BasicIngress(), BasicEgress(), Compute(), Deparse()) main;
