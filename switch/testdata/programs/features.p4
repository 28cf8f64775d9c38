// SPDX-License-Identifier: Apache-2.0
// Compile: p4c-bm2-ss --p4v 16 -o features.json features.p4
// What v1model offers beside arithmetic; the first byte of a packet chooses.
#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8>  kind;
    bit<8>  index;
    bit<32> value;
    bit<16> checksum;
}
header extra_t {
    bit<4>  left;
    bit<20> middle;
    bit<8>  right;
}
header address_t { bit<128> value; }
header answer_t {
    bit<32> value;
    bit<8>  instance_type;
    bit<8>  error_code;
    bit<16> egress_rid;
    bit<16> ingress_port;
    bit<32> packet_length;
}

struct headers_t { answer_t answer; request_t request; extra_t extra; address_t address; }
struct metadata_t {
    @field_list(1)
    bit<32> kept;
    bit<32> lost;
    bit<2>  colour;
    bit<7>  intrinsic_metadata_lane;
    bit<32> intrinsic_metadata_lane_weight;
}
struct sample_t { bit<8> index; bit<32> value; bit<128> address; }

parser TheParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        packet.extract(h.request);
        transition select(h.request.kind, packet.lookahead<bit<12>>()) {
            (0x20, 0xabc): parse_extra;
            (0x20 &&& 0xfe, _): reject_small;
            (0x22, _): skip;
            (0x30 &&& 0xf0, _): parse_address;
            default: accept;
        }
    }
    state parse_extra { packet.extract(h.extra); transition accept; }
    state parse_address { packet.extract(h.address); transition accept; }
    state reject_small {
        verify(h.request.value > 100, error.HeaderTooShort);
        transition parse_extra;
    }
    state skip {
        packet.advance((bit<32>)h.request.index * 8);
        transition parse_extra;
    }
}

control TheVerify(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.request.kind == 0x40, { h.request.kind, h.request.index, h.request.value },
                        h.request.checksum, HashAlgorithm.csum16);
    }
}

control TheIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    counter(16, CounterType.packets_and_bytes) hits;
    meter(16, MeterType.packets) limits;
    register<bit<32>>(16) cells;
    direct_counter(CounterType.packets_and_bytes) route_counter;
    direct_meter<bit<2>>(MeterType.packets) route_meter;

    action answer(bit<32> value) {
        h.answer.value = value;
        route_counter.count();
        route_meter.read(m.colour);
    }
    action set_answer(bit<32> value) { h.answer.value = value; }
    action set_address(bit<128> value) { h.address.value = value; h.answer.value = 1; }
    table routes {
        key = { h.request.value: lpm; }
        actions = { answer; @defaultonly NoAction; }
        default_action = NoAction();
        counters = route_counter;
        meters = route_meter;
        size = 64;
    }
    table ranges {
        key = { h.request.index: range; h.request.value: optional; h.request.checksum: ternary; }
        actions = { set_answer; NoAction; }
        default_action = set_answer(7);
        size = 8;
    }
    table masks {
        key = { h.request.value: ternary; h.request.index: exact; }
        actions = { set_answer; @defaultonly NoAction; }
        default_action = NoAction();
        size = 1024;
    }
    table addresses {
        key = { h.address.value: exact; }
        actions = { set_answer; set_address; NoAction; }
        default_action = NoAction();
        size = 16;
        support_timeout = true;
    }
    table prefixes {
        key = { h.address.value: lpm; }
        actions = { set_answer; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table fixed {
        key = { h.request.index: ternary; }
        actions = { set_answer; NoAction; }
        const default_action = NoAction();
        const entries = {
            0x10 &&& 0xf0: set_answer(100);
            0x11: set_answer(200);
            _: set_answer(300);
        }
    }

    apply {
        h.answer.setValid();
        h.answer.instance_type = (bit<8>)sm.instance_type;
        h.answer.ingress_port = (bit<16>)sm.ingress_port;
        h.answer.error_code = (bit<8>)(bit<1>)sm.checksum_error;
        sm.egress_spec = 2;
        bit<8> kind = h.request.kind;
        if (sm.instance_type == 6) {           // resubmitted
            h.answer.value = m.kept + m.lost;
            return;
        }
        if (sm.parser_error != error.NoError) { h.answer.error_code = 0xee; }
        if (sm.parser_error == error.HeaderTooShort) { h.answer.error_code = 0xdd; }
        if (sm.parser_error == error.PacketTooShort) { h.answer.error_code = 0xcc; }

        if (kind == 0x01) { if (routes.apply().hit) { h.answer.error_code = (bit<8>)m.colour + 1; } }
        if (kind == 0x02) {
            switch (ranges.apply().action_run) {
                set_answer: { h.answer.error_code = 1; }
                NoAction: { h.answer.error_code = 2; }
            }
        }
        if (kind == 0x03) { masks.apply(); }
        if (kind == 0x04) { fixed.apply(); }
        if (kind == 0x05) { hits.count((bit<32>)h.request.index); }
        if (kind == 0x06) { limits.execute_meter<bit<2>>((bit<32>)h.request.index, m.colour); h.answer.value = (bit<32>)m.colour; }
        if (kind == 0x07) { cells.write((bit<32>)h.request.index, h.request.value); }
        if (kind == 0x08) { cells.read(h.answer.value, (bit<32>)h.request.index); }
        if (kind == 0x09) { hash(h.answer.value, HashAlgorithm.crc32, 32w0, { h.request.index, h.request.value }, 64w0x100000000); }
        if (kind == 0x0a) { hash(h.answer.value, HashAlgorithm.crc16, 32w1000, { h.request.index, h.request.value }, 64w0x100); }
        if (kind == 0x0b) { random(h.answer.value, 32w10, 32w20); }
        if (kind == 0x0c) { sm.mcast_grp = (bit<16>)h.request.index; }
        if (kind == 0x0d) { m.kept = h.request.value; m.lost = 5; resubmit_preserving_field_list(1); }
        if (kind == 0x0e) { m.kept = h.request.value; clone_preserving_field_list(CloneType.I2E, 7, 1); }
        if (kind == 0x0f) { truncate((bit<32>)h.request.index); }
        if (kind == 0x10) { mark_to_drop(sm); }
        if (kind == 0x11) { h.answer.setInvalid(); sm.egress_spec = 2; exit; }
        if (kind == 0x12) { assert(h.request.value > 10); log_msg("value {} index {}", { h.request.value, h.request.index }); }
        if (kind == 0x13) { digest<sample_t>(1, { h.request.index, h.request.value, 128w1 << 100 }); }
        if (kind == 0x14) {
            sm.priority = h.request.index[2:0];
            m.intrinsic_metadata_lane = h.request.index[6:0];
            m.intrinsic_metadata_lane_weight = h.request.value;
        }
        if (kind == 0x15) { sm.egress_spec = (bit<9>)h.request.value; }
        if (kind == 0x16) { h.request.setInvalid(); }
        if (kind == 0x31) { addresses.apply(); }
        if (kind == 0x32) { prefixes.apply(); }
        if (kind == 0x33) { h.answer.value = h.address.value[127:96]; h.address.value[15:0] = 0xbeef; }
    }
}

control TheEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        if (sm.instance_type == 1 || sm.instance_type == 2) {   // clones
            h.answer.setValid();
            h.answer.value = m.kept;
            h.answer.instance_type = (bit<8>)sm.instance_type;
            h.answer.error_code = 0;
            h.answer.ingress_port = (bit<16>)sm.ingress_port;
        }
        h.answer.egress_rid = sm.egress_rid;
        h.answer.packet_length = sm.packet_length;
        if (h.request.kind == 0x17 && sm.instance_type == 0) { m.kept = 99; clone_preserving_field_list(CloneType.E2E, 7, 1); }
        if (h.request.kind == 0x18 && h.request.index > 0) {
            h.request.index = h.request.index - 1;
            h.answer.setInvalid();
            recirculate_preserving_field_list(1);
        }
        if (h.request.kind == 0x19) { mark_to_drop(sm); }
        if (h.request.kind == 0x1a) { h.answer.value = (bit<32>)sm.enq_qdepth; h.answer.packet_length = (bit<32>)sm.deq_qdepth; }
    }
}

control TheCompute(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum_with_payload(h.request.kind == 0x41, { h.request.kind, h.request.index, h.request.value },
                                     h.request.checksum, HashAlgorithm.csum16);
    }
}

control TheDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.answer);
        packet.emit(h.request);
        packet.emit(h.extra);
        packet.emit(h.address);
    }
}
V1Switch(TheParser(), TheVerify(), TheIngress(), TheEgress(), TheCompute(), TheDeparser()) main;
