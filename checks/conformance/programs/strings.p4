// SPDX-License-Identifier: Apache-2.0
// A type that clients see as a string.
#include "frame.p4"

@p4runtime_translation("conformance/strings/name", string)
type bit<16> name_t;

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    answer_t     answer;
    request_t    request;
}

struct metadata_t {
    name_t name;
}

struct name_digest_t {
    name_t name;
}

parser StringsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
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
        transition accept;
    }
}

control StringsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<name_t>(4) names;

    action set_name(name_t name) {
        meta.name = name;
    }
    action say(bit<32> value) {
        hdr.answer.value = value;
    }
    table give_name {
        key = { hdr.request.a: exact; }
        actions = { set_name; NoAction; }
        size = 8;
    }
    table of_name {
        key = { meta.name: exact @name("name"); }
        actions = { say; NoAction; }
        size = 8;
    }
    table perhaps_of_name {
        key = { meta.name: optional @name("name"); }
        actions = { say; NoAction; }
        size = 8;
    }
    apply {
        std.egress_spec = std.ingress_port;
        hdr.packet_out.setInvalid();
        hdr.answer.setValid();
        hdr.answer = { 0, 0, 0, 0, 0, 0, 0 };
        meta.name = (name_t)0;
        give_name.apply();
        if (hdr.request.op == 1) { of_name.apply(); }
        if (hdr.request.op == 2) { perhaps_of_name.apply(); }
        if (hdr.request.op == 3) { digest<name_digest_t>(1, { meta.name }); }
        if (hdr.request.op == 4) { names.write(0, meta.name); }
    }
}

control StringsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.reason = 0;
        }
    }
}

control StringsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.answer);
        packet.emit(hdr.request);
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

V1Switch(StringsParser(), NoChecksum(), StringsIngress(), StringsEgress(), NoChecksum(), StringsDeparser()) main;
