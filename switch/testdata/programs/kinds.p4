// SPDX-License-Identifier: Apache-2.0
// One of everything that P4Runtime can reach, in tables small enough to fill. For test_p4runtime.py.
// A packet-out runs through all tables and leaves through the port that its header names.
// Compiled by: p4c-bm2-ss --std p4-16 -o kinds.json --p4runtime-files kinds.p4info.txtpb kinds.p4
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

@controller_header("packet_in")
header packet_in_t {
    bit<9>  ingress_port;
    bit<7>  pad;
    bit<16> seen;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9>           egress_port;
    @padding bit<7>  pad;
}

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
}

struct metadata_t {
    bit<16> seen;
    bit<2>  color;
}

struct seen_digest_t {
    bit<48> src_addr;
    bit<9>  egress_port;
}

parser KindsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control KindsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) exact_counter;
    direct_meter<bit<2>>(MeterType.bytes) exact_meter;
    direct_counter(CounterType.packets_and_bytes) constant_counter;
    counter(8, CounterType.packets_and_bytes) ports;
    meter(8, MeterType.packets) rates;
    register<bit<48>>(4) newest;
    register<int<8>>(2) level;

    action note(bit<16> bits) {
        meta.seen = meta.seen | bits;
    }

    action count_and_note(bit<16> bits) {
        exact_counter.count();
        exact_meter.read(meta.color);
        meta.seen = meta.seen | bits;
    }

    action count_constant(bit<16> bits) {
        constant_counter.count();
        meta.seen = meta.seen | bits;
    }

    action send_digest() {
        digest<seen_digest_t>(1, { hdr.ethernet.src_addr, std.egress_spec });
    }

    table exact_table {
        key = { hdr.ethernet.src_addr: exact; hdr.ethernet.ether_type: exact; }
        actions = { count_and_note; @defaultonly send_digest; @defaultonly NoAction; }
        default_action = NoAction();
        counters = exact_counter;
        meters = exact_meter;
        size = 4;
        support_timeout = true;
    }

    table lpm_table {
        key = { hdr.ethernet.dst_addr: lpm; }
        actions = { note; @tableonly NoAction; }
        const default_action = note(0);
        size = 8;
    }

    table ternary_table {
        key = { hdr.ethernet.dst_addr: ternary; hdr.ethernet.ether_type: exact; }
        actions = { note; NoAction; }
        size = 8;
    }

    table range_table {
        key = { hdr.ethernet.ether_type: range; }
        actions = { note; NoAction; }
        size = 8;
    }

    table optional_table {
        key = { hdr.ethernet.ether_type: optional; }
        actions = { note; NoAction; }
        size = 8;
    }

    table constant_table {
        key = { hdr.ethernet.ether_type: ternary; }
        actions = { count_constant; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            0x0800: count_constant(0x100);
            0x8000 &&& 0x8000: count_constant(0x200);
        }
        counters = constant_counter;
    }

    table keyless_table {
        actions = { note; NoAction; }
        default_action = NoAction();
    }

    apply {
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        }
        exact_table.apply();
        lpm_table.apply();
        ternary_table.apply();
        range_table.apply();
        optional_table.apply();
        constant_table.apply();
        keyless_table.apply();
        ports.count((bit<32>)hdr.ethernet.ether_type & 7);
        rates.execute_meter((bit<32>)hdr.ethernet.ether_type & 7, meta.color);
        newest.write(1, hdr.ethernet.src_addr);
        level.write(1, -1);
    }
}

control KindsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.pad = 0;
            hdr.packet_in.seen = meta.seen;
        }
    }
}

control KindsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

V1Switch(KindsParser(), NoChecksum(), KindsIngress(), KindsEgress(), NoChecksum(), KindsDeparser()) main;
