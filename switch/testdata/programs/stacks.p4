// SPDX-License-Identifier: Apache-2.0
// Header stacks and unions. Every packet leaves through port 2, with what became of it in front.
#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> op;
    bit<8> arg;
}
// The bottom one ends a stack; so does anything else behind the last.
header label_t {
    bit<7>  value;
    bit<1>  bottom;
    bit<8>  ttl;
}
header short_t { bit<8>  tag; bit<8>  value; }
header long_t  { bit<8>  tag; bit<24> value; bit<8> rest; }
header_union option_t {
    short_t short;
    long_t  long;
}
header answer_t {
    bit<8> error_code;
    bit<8> last_index;
    bit<8> value;
    bit<8> valid;
    bit<16> packet_length;
}

struct headers_t {
    answer_t    answer;
    command_t   command;
    label_t[4]  labels;
    option_t    option;
    option_t[3] options;
    label_t[4]  spare;
}
struct metadata_t { bit<8> last; bit<8> last_index; }

parser TheParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        packet.extract(h.command);
        transition select(h.command.op) {
            0x10 &&& 0xf0: parse_labels;
            0x20 &&& 0xf0: parse_option;
            0x30 &&& 0xf0: parse_options;
            0x40: read_last_of_none;
            default: accept;
        }
    }
    state parse_labels {
        packet.extract(h.labels.next);
        m.last = h.labels.last.ttl;
        m.last_index = (bit<8>)h.labels.lastIndex;
        transition select(h.labels.last.bottom) {
            0: parse_labels;
            1: accept;
        }
    }
    state parse_option {
        transition select(packet.lookahead<bit<8>>()) {
            1: parse_short;
            2: parse_long;
        }
    }
    state parse_short { packet.extract(h.option.short); transition accept; }
    state parse_long { packet.extract(h.option.long); transition accept; }
    state parse_options {
        transition select(packet.lookahead<bit<8>>()) {
            1: next_short;
            2: next_long;
            default: accept;
        }
    }
    state next_short { packet.extract(h.options.next.short); transition parse_options; }
    state next_long { packet.extract(h.options.next.long); transition parse_options; }
    state read_last_of_none { m.last = h.labels.last.ttl; transition accept; }
}

control TheVerify(inout headers_t h, inout metadata_t m) { apply {} }

control TheIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        h.answer.setValid();
        h.answer.value = m.last;
        h.answer.last_index = m.last_index;
        if (sm.parser_error == error.NoError) { h.answer.error_code = 0; }
        else if (sm.parser_error == error.StackOutOfBounds) { h.answer.error_code = 1; }
        else if (sm.parser_error == error.PacketTooShort) { h.answer.error_code = 2; }
        else if (sm.parser_error == error.NoMatch) { h.answer.error_code = 3; }
        else { h.answer.error_code = 4; }

        if (h.command.op == 0x11) { h.labels.push_front(1); h.labels[0].setValid(); h.labels[0].value = 0x55; }
        else if (h.command.op == 0x12) { h.labels.pop_front(1); }
        else if (h.command.op == 0x13) { h.labels.push_front(3); }
        else if (h.command.op == 0x14) { h.labels.pop_front(3); }
        else if (h.command.op == 0x15) { h.labels[h.command.arg].ttl = 0xee; }
        else if (h.command.op == 0x16) { h.answer.value = h.labels[h.command.arg].ttl; }
        else if (h.command.op == 0x17) { h.spare = h.labels; h.labels[0].ttl = 0x77; }
        else if (h.command.op == 0x18) { h.labels[1].setInvalid(); }
        else if (h.command.op == 0x19) { h.labels[3] = h.labels[0]; h.labels[0] = h.labels[2]; }
        else if (h.command.op == 0x1a) { h.labels.pop_front(4); }
        else if (h.command.op == 0x1b && h.labels[0] == h.labels[1]) { h.answer.value = 0xcc; }
        else if (h.command.op == 0x1c) { h.labels[h.command.arg].ttl = h.labels[h.labels[0].ttl].ttl + 1; }
        else if (h.command.op == 0x21) { h.option.long.setValid(); h.option.long.tag = 9; }
        else if (h.command.op == 0x22) { h.option.short.setValid(); h.option.short.tag = 8; }
        else if (h.command.op == 0x23) { h.option.short.setInvalid(); }
        else if (h.command.op == 0x31) { h.options[1].long.setValid(); h.options[1].long.tag = 7; }
        else if (h.command.op == 0x32) { h.options[2].short = h.options[0].short; }

        h.answer.valid = 0;
        if (h.option.isValid()) { h.answer.valid = h.answer.valid + 1; }
        if (h.options[1].long.isValid()) { h.answer.valid = h.answer.valid + 2; }
        if (h.options[0].short.isValid()) { h.answer.valid = h.answer.valid + 4; }
        if (h.labels[2].isValid()) { h.answer.valid = h.answer.valid + 8; }
    }
}

control TheEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { h.answer.packet_length = (bit<16>)sm.packet_length; }
}
control TheCompute(inout headers_t h, inout metadata_t m) { apply {} }
control TheDeparser(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(TheParser(), TheVerify(), TheIngress(), TheEgress(), TheCompute(), TheDeparser()) main;
