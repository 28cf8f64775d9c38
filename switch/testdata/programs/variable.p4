// SPDX-License-Identifier: Apache-2.0
// Headers of variable length, selects over value sets and long keys, lookahead, advance and errors of the program's own.
#include <core.p4>
#include <v1model.p4>

error { Unwanted, Unlikely }

header command_t {
    bit<8> op;
    bit<8> arg;
}
// A varbit between fields that are not whole bytes.
header list_t {
    bit<4>      kind;
    varbit<160> items;
    bit<12>     end;
}
header options_t { varbit<320> data; }
header address_t { bit<128> high; bit<64> low; }
header pair_t { bit<12> a; bit<20> b; }
header point_t { int<8> x; bit<8> y; bit<16> z; }
header answer_t {
    bit<16> error_code;
    bit<8>  way;
    bit<8>  flag;
    bit<64> value;
    bit<16> checksum;
}

struct headers_t {
    answer_t  answer;
    command_t command;
    list_t    list;
    options_t options;
    options_t other;
    address_t address;
    pair_t    pair;
    point_t   point;
}
struct metadata_t { bit<8> way; bit<64> value; int<8> signed; bool flag; error reason; }
struct pair_set_t { bit<12> a; bit<20> b; }

parser TheParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) ways;
    value_set<pair_set_t>(4) pairs;

    state start {
        packet.extract(h.command);
        transition select(h.command.op) {
            ways: found;
            1: parse_list;
            2: parse_options;
            3: parse_address;
            4: look_ahead;
            5: check;
            6: step;
            7: parse_pair;
            8: look_at_headers;
            default: accept;
        }
    }
    state found { m.way = 100; transition accept; }
    state parse_list {
        packet.extract(h.list, (bit<32>)h.command.arg * 8);
        transition accept;
    }
    state parse_options {
        packet.extract(h.options, (bit<32>)h.command.arg);
        transition accept;
    }
    state parse_address {
        packet.extract(h.address);
        transition select(h.address.high, h.address.low) {
            (0x20010db8000000000000000000000001, 7): way_1;
            (0x20010db8000000000000000000000000 &&& 0xffffffff000000000000000000000000, 8..9): way_2;
            (_, 10): way_3;
        }
    }
    state way_1 { m.way = 1; transition accept; }
    state way_2 { m.way = 2; transition accept; }
    state way_3 { m.way = 3; transition accept; }
    state look_ahead {
        m.value = (bit<64>)packet.lookahead<bit<36>>();
        m.signed = packet.lookahead<int<8>>();
        transition accept;
    }
    state check {
        m.flag = h.command.arg > 9;
        verify(h.command.arg != 5, error.Unwanted);
        m.reason = m.flag ? error.Unlikely : error.NoError;
        verify(h.command.arg < 200, error.Unlikely);
        transition accept;
    }
    state step {
        packet.advance((bit<32>)h.command.arg);
        packet.extract(h.pair);
        transition accept;
    }
    state parse_pair {
        packet.extract(h.pair);
        transition select(h.pair.a, h.pair.b) {
            (1, 2): way_1;
            pairs: way_2;
            (0x800 &&& 0x800, _): way_3;
            default: accept;
        }
    }
    state look_at_headers {
        h.pair = packet.lookahead<pair_t>();
        packet.extract(h.point);
        transition accept;
    }
}

control TheVerify(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum_with_payload(h.options.isValid(), { h.command.op, h.options.data, 8w0 }, h.command.arg,
                                     HashAlgorithm.xor16);
    }
}

control TheIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        h.answer.setValid();
        h.answer.way = m.way;
        h.answer.value = m.value;
        h.answer.flag = (bit<8>)m.signed;
        if (sm.parser_error == error.NoError) { h.answer.error_code = 0; }
        else if (sm.parser_error == error.HeaderTooShort) { h.answer.error_code = 1; }
        else if (sm.parser_error == error.PacketTooShort) { h.answer.error_code = 2; }
        else if (sm.parser_error == error.NoMatch) { h.answer.error_code = 3; }
        else if (sm.parser_error == error.ParserInvalidArgument) { h.answer.error_code = 4; }
        else if (sm.parser_error == error.Unwanted) { h.answer.error_code = 5; }
        else if (sm.parser_error == error.Unlikely) { h.answer.error_code = 6; }
        if (m.reason == error.Unlikely) { h.answer.way = 0xee; }

        if (h.options.isValid()) {
            // A varbit is copied with its length.
            h.other.setValid();
            h.other.data = h.options.data;
        }
        if (h.list.isValid() && h.list.kind == 9) { h.list.setInvalid(); h.list.setValid(); h.list.end = 0xfed; }
        if (h.list.isValid() && h.list.kind == 8) { h.list.end = 0xabc; }
        if (h.address.isValid() && h.address.low == 9) { h.address.high = h.address.high + 1; }
        if (h.point.isValid()) { h.point.x = h.point.x - 1; }
    }
}

control TheEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) { apply {} }
control TheCompute(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum_with_payload(h.list.isValid() || h.options.isValid(),
                                     { h.command.op, h.command.arg, h.list.kind, h.list.items, h.list.end, h.options.data },
                                     h.answer.checksum, HashAlgorithm.csum16);
    }
}
control TheDeparser(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(TheParser(), TheVerify(), TheIngress(), TheEgress(), TheCompute(), TheDeparser()) main;
