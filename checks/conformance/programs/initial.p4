// SPDX-License-Identifier: Apache-2.0
// A table that starts with entries which are not constant.
#include "frame.p4"

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    answer_t     answer;
    request_t    request;
}

struct metadata_t {}

parser InitialParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
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

control InitialIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action say(bit<32> value) {
        hdr.answer.value = value;
    }
    table initial_table {
        key = { hdr.request.a: exact; }
        actions = { say; NoAction; }
        entries = {
            1: say(11);
            2: say(22);
        }
        size = 8;
    }
    apply {
        std.egress_spec = std.ingress_port;
        hdr.packet_out.setInvalid();
        hdr.answer.setValid();
        hdr.answer = { 0, 0, 0, 0, 0, 0, 0 };
        initial_table.apply();
    }
}

control InitialEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.reason = 0;
        }
    }
}

control InitialDeparser(packet_out packet, in headers_t hdr) {
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

V1Switch(InitialParser(), NoChecksum(), InitialIngress(), InitialEgress(), NoChecksum(), InitialDeparser()) main;
