// SPDX-License-Identifier: Apache-2.0
// What v1model offers beside tables: checksums, hashes, random numbers, and the ways of a packet. `op` chooses.
#include "frame.p4"

header sum_t {
    bit<16> checksum;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    answer_t     answer;
    request_t    request;
    sum_t        sum;
}

struct metadata_t {
    @field_list(1)
    bit<32> kept;
    bit<32> lost;
    @field_list(1)
    bit<9>  first_port;
    bit<2>  colour;
}

struct sample_t {
    bit<8>  a;
    bit<32> c;
}

parser ExternsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port, std.instance_type) {
            (CPU_PORT, RECIRCULATED): parse_request;
            (CPU_PORT, _): parse_packet_out;
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
        transition select(hdr.request.op) {
            0x40 &&& 0xf0: parse_sum;
            default: accept;
        }
    }
    state parse_sum {
        packet.extract(hdr.sum);
        transition accept;
    }
}

control ExternsVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.request.op == 0x40, { hdr.request.op, hdr.request.a, hdr.request.b, hdr.request.c },
                        hdr.sum.checksum, HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.request.op == 0x41,
                                     { hdr.request.op, hdr.request.a, hdr.request.b, hdr.request.c },
                                     hdr.sum.checksum, HashAlgorithm.csum16);
    }
}

control ExternsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    meter(4, MeterType.bytes) limits;
    register<bit<48>>(4) wide;
    register<bit<32>>(4) total;

    action leave() {
        hdr.answer.value = 1;
        return;
    }
    action give_up() {
        hdr.answer.value = 2;
        exit;
    }

    apply {
        bit<8> op = hdr.request.op;
        bit<8> a = hdr.request.a;
        bit<32> c = hdr.request.c;
        if (std.instance_type == 0) {
            meta.first_port = std.ingress_port;
        }
        std.egress_spec = meta.first_port;
        hdr.answer.setValid();
        hdr.answer.value = 0;
        hdr.answer.hit = 0;
        hdr.answer.instance_type = (bit<8>)std.instance_type;
        hdr.answer.error_code = (bit<16>)(bit<1>)std.checksum_error;
        if (std.instance_type == RESUBMITTED) {
            hdr.answer.value = meta.kept;
            hdr.answer.hit = (bit<8>)meta.lost;
        } else {
            meta.lost = 5;
            if (op == 0x01) { hash(hdr.answer.value, HashAlgorithm.crc32, 32w0, { a, hdr.request.b, c }, 64w0x100000000); }
            if (op == 0x02) { hash(hdr.answer.value, HashAlgorithm.crc16, 32w0, { a, hdr.request.b, c }, 64w0x10000); }
            if (op == 0x03) { hash(hdr.answer.value, HashAlgorithm.csum16, 32w0, { op, a, hdr.request.b, c }, 64w0x10000); }
            if (op == 0x04) { hash(hdr.answer.value, HashAlgorithm.xor16, 32w0, { op, a, hdr.request.b, c }, 64w0x10000); }
            if (op == 0x05) { hash(hdr.answer.value, HashAlgorithm.identity, 32w0, { c }, 64w0x100000000); }
            if (op == 0x06) { hash(hdr.answer.value, HashAlgorithm.crc32, 32w1000, { c }, 64w10); }
            if (op == 0x07) { hash(hdr.answer.value, HashAlgorithm.crc16, 32w7, { c }, 64w1); }
            if (op == 0x08) { random(hdr.answer.value, 32w10, 32w20); }
            if (op == 0x09) { random(hdr.answer.value, c, c); }
            if (op == 0x0a) { limits.execute_meter((bit<32>)a, meta.colour); hdr.answer.value = (bit<32>)meta.colour; }
            if (op == 0x0b) { wide.write((bit<32>)a, hdr.ethernet.src_addr); }
            if (op == 0x0c) {
                bit<48> value;
                wide.read(value, (bit<32>)a);
                hdr.answer.value = value[31:0];
                hdr.answer.hit = value[39:32];
            }
            if (op == 0x0d) {
                @atomic {
                    bit<32> value;
                    total.read(value, (bit<32>)a);
                    value = value + c;
                    total.write((bit<32>)a, value);
                    hdr.answer.value = value;
                }
            }
            if (op == 0x10) { mark_to_drop(std); }
            if (op == 0x11) { mark_to_drop(std); std.egress_spec = meta.first_port; }
            if (op == 0x12) { truncate(c); }
            if (op == 0x13 || op == 0x35) { std.mcast_grp = hdr.request.b; }
            if (op == 0x14) { meta.kept = c; resubmit_preserving_field_list(1); }
            if (op == 0x15) { meta.kept = c; clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.request.b, 1); }
            if (op == 0x16) { hdr.request.c = c + 1; clone(CloneType.I2E, (bit<32>)hdr.request.b); }
            if (op == 0x17) { digest<sample_t>(1, { a, c }); }
            if (op == 0x18) { log_msg("value {} of {}", { c, a }); hdr.answer.value = 1; }
            if (op == 0x19) { assert(c > 10); assume(c > 20); hdr.answer.value = 1; }
            if (op == 0x1a) { leave(); hdr.answer.hit = 1; }
            if (op == 0x1b) { give_up(); hdr.answer.hit = 1; }
            if (op == 0x1c) { hdr.answer.value = 3; exit; }
            if (op == 0x1d) { hdr.answer.value = 4; return; }
            if (op == 0x1f) { hdr.answer.value = std.packet_length; }
            if (op == 0x20) { hdr.answer.value = (bit<32>)std.ingress_port; }
            if (op == 0x21) { hdr.answer.hit = std.ingress_global_timestamp != 0 ? 8w1 : 8w0; }
            if (op == 0x22) {
                switch (a) {
                    1: { hdr.answer.value = 10; }
                    2:
                    3: { hdr.answer.value = 20; }
                    default: { hdr.answer.value = 30; }
                }
            }
            if (op == 0x23) { mark_to_drop(std); clone(CloneType.I2E, (bit<32>)hdr.request.b); }
            hdr.answer.hit = hdr.answer.hit | 0x80;  // neither exit nor return
        }
    }
}

control ExternsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        bit<8> op = hdr.request.op;
        if (std.instance_type == INGRESS_CLONE || std.instance_type == EGRESS_CLONE) {
            hdr.answer.setValid();
            hdr.answer.value = meta.kept;
            hdr.answer.hit = (bit<8>)meta.lost;
            hdr.answer.error_code = 0;
        }
        if (std.instance_type != 0) {
            hdr.answer.instance_type = (bit<8>)std.instance_type;
        }
        hdr.answer.replica = std.egress_rid;
        hdr.answer.ingress_port = (bit<16>)std.ingress_port;
        hdr.answer.packet_length = std.packet_length;
        hdr.packet_out.setInvalid();
        if (op == 0x30 && std.instance_type == 0) {
            meta.kept = hdr.request.c;
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.request.b, 1);
        }
        if (op == 0x31 && hdr.request.a > 0) {
            hdr.request.a = hdr.request.a - 1;
            meta.kept = meta.kept + hdr.request.c;
            hdr.answer.setInvalid();
            recirculate_preserving_field_list(1);
        } else {
            if (op == 0x31) { hdr.answer.value = meta.kept; }
            if (op == 0x32) { mark_to_drop(std); }
            if (op == 0x33) { hdr.answer.value = (bit<32>)std.egress_port; }
            if (op == 0x34) { truncate(hdr.request.c); }
            if (op == 0x35 && std.egress_rid == 2) { mark_to_drop(std); }
            if (op == 0x36) { hdr.request.setInvalid(); }
            if (std.egress_port == CPU_PORT) {
                hdr.packet_in.setValid();
                hdr.packet_in.ingress_port = std.ingress_port;
                hdr.packet_in.reason = 0;
            }
        }
    }
}

control ExternsCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.request.op == 0x42, { hdr.request.op, hdr.request.a, hdr.request.b, hdr.request.c },
                        hdr.sum.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.request.op == 0x43,
                                     { hdr.request.op, hdr.request.a, hdr.request.b, hdr.request.c },
                                     hdr.sum.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.request.op == 0x44, { hdr.request.op, hdr.request.a, hdr.request.b, hdr.request.c },
                        hdr.sum.checksum, HashAlgorithm.crc16);
    }
}

control ExternsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.answer);
        packet.emit(hdr.request);
        packet.emit(hdr.sum);
    }
}

V1Switch(ExternsParser(), ExternsVerify(), ExternsIngress(), ExternsEgress(), ExternsCompute(), ExternsDeparser()) main;
