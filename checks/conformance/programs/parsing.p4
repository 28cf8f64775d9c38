// SPDX-License-Identifier: Apache-2.0
// What a parser does, and what becomes of what it extracted. `op` chooses.
#include "frame.p4"

error { Unwanted, Unlikely }

header command_t {
    bit<8> op;
    bit<8> arg;
}
header item_t {
    bit<1> more;
    bit<7> value;
}
header short_t {
    bit<8>  kind;
    bit<8>  value;
}
header long_t {
    bit<8>  kind;
    bit<32> value;
}
header_union option_t {
    short_t short_option;
    long_t  long_option;
}
// A varbit between fields that are not whole bytes
header list_t {
    bit<4>      kind;
    varbit<160> items;
    bit<12>     end;
}
header pair_t {
    bit<12> a;
    bit<20> b;
}
struct pair_set_t {
    @match(exact)   bit<12> a;
    @match(ternary) bit<20> b;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    answer_t     answer;
    request_t    request;
    command_t    command;
    item_t[4]    items;
    option_t[3]  options;
    list_t       list;
    pair_t       pair;
}
struct metadata_t {
    bit<32> value;
    bit<8>  way;
}

parser ParsingParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<bit<8>>(4) ways;
    value_set<pair_set_t>(4) pairs;

    state start {
        meta.value = 0;
        meta.way = 0;
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
        transition select(hdr.request.op) {
            1: parse_items;
            2: parse_options;
            3: parse_list;
            4: look_ahead;
            5: step;
            6: check;
            7: parse_pair;
            8: look_in_set;
            9: parse_items;
            10: parse_items;
            11: parse_items;
            12: long_select;
            13: no_case;
            15: parse_options;
            16: parse_items;
            17: nested;
            default: accept;
        }
    }
    state parse_items {
        packet.extract(hdr.items.next);
        transition select(hdr.items.last.more) {
            1: parse_items;
            default: accept;
        }
    }
    state parse_options {
        transition select(packet.lookahead<bit<8>>()) {
            1: parse_short;
            2: parse_long;
            default: accept;
        }
    }
    state parse_short {
        packet.extract(hdr.options.next.short_option);
        transition parse_options;
    }
    state parse_long {
        packet.extract(hdr.options.next.long_option);
        transition parse_options;
    }
    state parse_list {
        packet.extract(hdr.list, (bit<32>)hdr.request.b);
        transition accept;
    }
    state look_ahead {
        meta.value = (bit<32>)packet.lookahead<bit<20>>();
        transition accept;
    }
    state step {
        packet.advance((bit<32>)hdr.request.b);
        packet.extract(hdr.pair);
        transition accept;
    }
    state check {
        verify(hdr.request.b != 5, error.Unwanted);
        verify(hdr.request.b < 200, error.Unlikely);
        meta.way = 1;
        transition accept;
    }
    state parse_pair {
        packet.extract(hdr.pair);
        transition select(hdr.pair.a, hdr.pair.b) {
            (1, 2): way_1;
            pairs: way_2;
            (0x800 &&& 0x800, _): way_3;
            (0x100 .. 0x1ff, 7): way_4;
            default: accept;
        }
    }
    state look_in_set {
        transition select(hdr.request.a) {
            ways: way_1;
            default: way_2;
        }
    }
    state long_select {
        transition select(hdr.ethernet.dst_addr, hdr.request.c, hdr.request.b) {
            (0x020000000002, 0x12345678, 0xabcd): way_1;
            (_, 0x12345678, _): way_2;
            default: way_3;
        }
    }
    state no_case {
        transition select(hdr.request.b) {
            1: way_1;
            2: way_2;
        }
    }
    state nested {
        meta.value = hdr.request.c + 1;
        hdr.pair.setValid();
        hdr.pair.a = hdr.request.b[11:0];
        hdr.pair.b = hdr.request.c[19:0];
        transition accept;
    }
    state way_1 { meta.way = 1; transition accept; }
    state way_2 { meta.way = 2; transition accept; }
    state way_3 { meta.way = 3; transition accept; }
    state way_4 { meta.way = 4; transition accept; }
}

control ParsingIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = std.ingress_port;
        hdr.answer.setValid();
        hdr.answer.value = meta.value;
        hdr.answer.hit = meta.way;
        if (std.parser_error == error.NoError) { hdr.answer.error_code = 0; }
        else if (std.parser_error == error.PacketTooShort) { hdr.answer.error_code = 1; }
        else if (std.parser_error == error.NoMatch) { hdr.answer.error_code = 2; }
        else if (std.parser_error == error.StackOutOfBounds) { hdr.answer.error_code = 3; }
        else if (std.parser_error == error.HeaderTooShort) { hdr.answer.error_code = 4; }
        else if (std.parser_error == error.Unwanted) { hdr.answer.error_code = 6; }
        else if (std.parser_error == error.Unlikely) { hdr.answer.error_code = 7; }
        else { hdr.answer.error_code = 99; }

        bit<8> op = hdr.request.op;
        if (op == 1) {
            hdr.answer.value = (bit<32>)hdr.items[0].value;
            if (hdr.items[1].isValid()) { hdr.answer.hit = 2; }
            if (hdr.items[2].isValid()) { hdr.answer.hit = 3; }
            if (hdr.items[3].isValid()) { hdr.answer.hit = 4; }
        }
        if (op == 9) {
            hdr.items.push_front(1);
            hdr.items[0].setValid();
            hdr.items[0].more = 1;
            hdr.items[0].value = 0x55;
        }
        if (op == 10) { hdr.items.pop_front(2); }
        if (op == 11) { hdr.items[1].setInvalid(); }
        if (op == 16) {
            hdr.items[hdr.request.a & 3].value = 0x2a;
            hdr.answer.value = (bit<32>)hdr.items[hdr.request.b[1:0]].value;
        }
        if (op == 2 || op == 15) {
            if (hdr.options[0].short_option.isValid()) { hdr.answer.value = (bit<32>)hdr.options[0].short_option.value; }
            if (hdr.options[0].long_option.isValid()) { hdr.answer.value = hdr.options[0].long_option.value; }
        }
        if (op == 15) {
            // To set one member of a union valid makes the other one invalid.
            hdr.options[0].long_option.setValid();
            hdr.options[0].long_option.kind = 2;
            hdr.options[0].long_option.value = hdr.request.c;
            if (hdr.options[0].short_option.isValid()) { hdr.answer.hit = 0xff; }
        }
        if (op == 3 && hdr.list.isValid()) { hdr.list.end = hdr.list.end + 1; }
        if (op == 5 && hdr.pair.isValid()) { hdr.answer.value = (bit<32>)hdr.pair.b; }
    }
}

control ParsingEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        hdr.packet_out.setInvalid();
        hdr.answer.instance_type = (bit<8>)std.instance_type;
        hdr.answer.replica = std.egress_rid;
        hdr.answer.ingress_port = (bit<16>)std.ingress_port;
        hdr.answer.packet_length = 0;
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.reason = 0;
        }
    }
}

control ParsingDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.answer);
        packet.emit(hdr.request);
        packet.emit(hdr.items);
        packet.emit(hdr.options);
        packet.emit(hdr.list);
        packet.emit(hdr.pair);
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

V1Switch(ParsingParser(), NoChecksum(), ParsingIngress(), ParsingEgress(), NoChecksum(), ParsingDeparser()) main;
