// SPDX-License-Identifier: Apache-2.0
// Types of which clients see another number of bits than the data plane has.
#define OWN_CONTROLLER_HEADERS
#include "frame.p4"

@p4runtime_translation("conformance/types/port", bit<32>)
type bit<9> port_t;

@p4runtime_translation("conformance/types/half", bit<32>)
type bit<16> half_t;

@controller_header("packet_in")
header ports_in_t {
    port_t          ingress_port;
    @padding bit<7> pad;
}

@controller_header("packet_out")
header ports_out_t {
    port_t          egress_port;  // 0: as a packet that came in by the CPU port
    @padding bit<7> pad;
}

struct headers_t {
    ports_in_t  packet_in;
    ports_out_t packet_out;
    ethernet_t  ethernet;
    answer_t    answer;
    request_t   request;
}

struct metadata_t {
    half_t half;
    port_t port;
}

struct half_digest_t {
    half_t half;
    port_t port;
}

parser TypesParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
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

control TypesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<half_t>(4) halves;

    action say(half_t half) {
        hdr.answer.value = (bit<32>)(bit<16>)half;
    }
    action send_to(port_t port) {
        std.egress_spec = (bit<9>)port;
    }

    table exact_half {
        key = { meta.half: exact @name("half"); }
        actions = { say; NoAction; }
        size = 8;
    }
    table ternary_half {
        key = { meta.half: ternary @name("half"); }
        actions = { say; NoAction; }
        size = 8;
    }
    table lpm_half {
        key = { meta.half: lpm @name("half"); }
        actions = { say; NoAction; }
        size = 8;
    }
    table range_half {
        key = { meta.half: range @name("half"); }
        actions = { say; NoAction; }
        size = 8;
    }
    table port_table {
        key = { meta.port: exact @name("port"); }
        actions = { send_to; NoAction; }
        size = 8;
    }

    apply {
        bit<8> op = hdr.request.op;
        std.egress_spec = std.ingress_port;
        meta.half = (half_t)hdr.request.b;
        meta.port = (port_t)std.ingress_port;
        hdr.answer.setValid();
        hdr.answer = { 0, 0, 0, 0, 0, 0, 0 };
        if (hdr.packet_out.isValid() && hdr.packet_out.egress_port != (port_t)0) {
            std.egress_spec = (bit<9>)hdr.packet_out.egress_port;
            op = 0;
        }
        if (op == 1) { exact_half.apply(); }
        if (op == 2) { ternary_half.apply(); }
        if (op == 3) { lpm_half.apply(); }
        if (op == 4) { range_half.apply(); }
        if (op == 5) { port_table.apply(); }
        if (op == 7) { digest<half_digest_t>(1, { meta.half, meta.port }); }
        if (op == 8) { halves.write(1, meta.half); }
        if (op == 9) { halves.read(meta.half, 1); hdr.answer.value = (bit<32>)(bit<16>)meta.half; }
        if (op == 10) { std.egress_spec = CPU_PORT; }
    }
}

control TypesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.packet_out.isValid() && hdr.packet_out.egress_port != (port_t)0) {
            hdr.answer.setInvalid();
        }
        hdr.packet_out.setInvalid();
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = (port_t)std.ingress_port;
            hdr.packet_in.pad = 0;
        }
    }
}

control TypesDeparser(packet_out packet, in headers_t hdr) {
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

V1Switch(TypesParser(), NoChecksum(), TypesIngress(), TypesEgress(), NoChecksum(), TypesDeparser()) main;
