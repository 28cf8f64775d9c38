// SPDX-License-Identifier: Apache-2.0
// Everything at odd widths: every operator on fields of up to 300 bits and signed ones of up to 201, wide keys of every
// kind, action parameters, registers, digests, hashes, checksums, value sets, and a varbit between fields.
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header command_t { bit<8> op; bit<8> arg; }
// Ends in the middle of bytes but for the last field.
header operands_t {
    bit<200> a;
    bit<200> b;
    int<100> x;
    int<100> y;
    bit<1>   bit_;
    bit<9>   nine;
    int<201> z;
    bit<65>  c;
    bit<4>   nibble;
}
header results_t {
    bit<300> u;
    bit<200> v;
    int<100> s;
    int<201> t;
    bit<65>  w;
    bit<1>   flag;
    bit<5>   five;
}
header mixed_t {
    bit<3>       kind;
    varbit<1024> data;
    bit<133>     tail;
}
header item_t { bit<136> key; bit<1> more; bit<7> count; }
header sum_t { bit<16> own; bit<128> wide; int<16> signed; }
header_union choice_t { item_t item; sum_t sum; }

struct headers_t {
    command_t  command;
    operands_t x;
    mixed_t    mixed;
    item_t[3]  items;
    choice_t[2] choices;
    results_t  y;
    sum_t      sum;
}
struct metadata_t {
    @field_list(1) bit<200> kept;
    bit<200> unkept;
    int<100> signed;
    bit<144> next;
    error    reason;
    bit<2>   colour;
}
struct sample_t { bit<8> op; bit<200> a; bit<65> c; bit<1> flag; }

parser TheParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<136>>(4) known;
    state start {
        packet.extract(h.command);
        transition select(h.command.op) {
            0x80: parse_mixed;
            0x81: parse_items;
            0x82: parse_choice;
            0x83: look;
            default: parse_operands;
        }
    }
    state parse_operands {
        packet.extract(h.x);
        m.signed = h.x.x - 1;
        verify(h.x.bit_ == 1 || h.x.nibble != 0, h.x.nine == 0 ? error.Even : error.Odd);
        transition select(h.x.a, h.x.x, h.x.bit_) {
            (0, 0, _): accept;
            (0xffffff00000000000000000000000000000000000000000000 &&& 0xffffff00000000000000000000000000000000000000000000, _, 1): odd;
            (_, 7, _): odd;
            default: accept;
        }
    }
    state odd { m.reason = error.Odd; transition accept; }
    state parse_mixed {
        packet.extract(h.mixed, (bit<32>)h.command.arg << 3);
        transition accept;
    }
    state parse_items {
        packet.extract(h.items.next);
        transition select(h.items.last.key) {
            known: odd;
            default: go_on;
        }
    }
    state go_on {
        transition select(h.items.last.more) {
            1: parse_items;
            default: accept;
        }
    }
    state parse_choice {
        transition select(packet.lookahead<bit<1>>()) {
            1: parse_item;
            default: parse_sum;
        }
    }
    state parse_item { packet.extract(h.choices.next.item); transition accept; }
    state parse_sum { packet.extract(h.choices.next.sum); transition accept; }
    state look {
        m.next = packet.lookahead<bit<144>>();
        m.signed = packet.lookahead<int<100>>();
        packet.advance(8 * (bit<32>)h.command.arg);
        packet.extract(h.items.next);
        h.items[1].key = packet.lookahead<bit<136>>();
        transition accept;
    }
}

control TheVerify(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.mixed.isValid(), { h.mixed.kind, h.mixed.data, h.mixed.tail, 4w0 }, h.command.arg,
                        HashAlgorithm.xor16);
    }
}

control TheIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    register<bit<200>>(8) cells;
    register<int<100>>(8) signed_cells;
    register<bit<1>>(8) flags;
    direct_meter<bit<2>>(MeterType.packets) limit;
    direct_counter(CounterType.packets_and_bytes) hits;

    action note(bit<200> value, int<100> signed) { h.y.v = value; h.y.s = signed; }
    action note_long(bit<300> value, bit<1> flag) { h.y.u = value; h.y.flag = flag; }
    action flag(bool value) { h.y.flag = value ? 1w1 : 1w0; }

    table exact_keys {
        key = { h.x.a: exact; h.x.y: exact; }
        actions = { note; note_long; NoAction; }
        counters = hits;
        size = 64;
    }
    table prefixes {
        key = { h.x.a: lpm; h.x.bit_: exact; }
        actions = { note; note_long; @defaultonly NoAction; }
        default_action = NoAction;
        size = 64;
    }
    table masks {
        key = { h.x.b: ternary; h.x.nine: ternary; h.x.x: ternary; }
        actions = { note; note_long; NoAction; }
        size = 256;
    }
    table ranges {
        key = { h.x.c: range; h.x.a: range; h.x.nibble: ternary; h.x.b[150:3]: optional; }
        actions = { note; note_long; NoAction; }
        size = 64;
    }
    action metered() { limit.read(m.colour); }
    table meters {
        key = { h.x.c: exact; }
        actions = { metered; NoAction; }
        meters = limit;
        size = 16;
    }
    // More than a thousand bits.
    table everything {
        key = {
            h.x.a: exact; h.x.b: exact; h.x.x: exact; h.x.y: exact; h.x.z: exact; h.x.c: exact; m.kept: exact;
            m.unkept: exact; m.signed: exact; m.next: exact;
        }
        actions = { note; NoAction; }
        size = 64;
    }
    table constants {
        key = { h.x.a: ternary; h.x.z: exact; }
        actions = { note; note_long; NoAction; }
        const entries = {
            (0xff000000000000000000000000000000000000000000000000 &&& 0xff000000000000000000000000000000000000000000000000, 5):
                note(0xabcdef0123456789abcdef0123456789abcdef0123456789, 0x123456789abcdef0123456789);
            (_, 0): note_long(0x5000000000000000000000000000000000000000000000000000000000000000000000000a, 1);
        }
    }

    apply {
        sm.egress_spec = 2;
        h.y.setValid();
        h.y.five = (bit<5>)h.command.op;
        bit<8> op = h.command.op;
        if (h.x.isValid()) {
            if (op == 0) { h.y.v = h.x.a + h.x.b; h.y.s = h.x.x + h.x.y; h.y.t = h.x.z + (int<201>)h.x.x; h.y.w = h.x.c + 1; }
            if (op == 1) { h.y.v = h.x.a - h.x.b; h.y.s = h.x.x - h.x.y; h.y.t = h.x.z - (int<201>)h.x.y; h.y.w = 0 - h.x.c; }
            if (op == 2) { h.y.v = h.x.a * h.x.b; h.y.s = h.x.x * h.x.y; h.y.t = h.x.z * h.x.z; h.y.u = (bit<300>)h.x.a * (bit<300>)h.x.c; }
            if (op == 3) { h.y.v = h.x.a |+| h.x.b; h.y.s = h.x.x |+| h.x.y; h.y.t = h.x.z |+| (int<201>)h.x.x; h.y.w = h.x.c |+| 0x1ffffffffffffff00; }
            if (op == 4) { h.y.v = h.x.a |-| h.x.b; h.y.s = h.x.x |-| h.x.y; h.y.t = h.x.z |-| (int<201>)h.x.y; h.y.w = h.x.c |-| 0x0ffffffffffffff00; }
            if (op == 5) { h.y.v = h.x.a << h.command.arg; h.y.s = h.x.x << h.command.arg; h.y.t = h.x.z << h.x.nine[7:0]; h.y.w = h.x.c << 64; }
            if (op == 6) { h.y.v = h.x.a >> h.command.arg; h.y.s = h.x.x >> h.command.arg; h.y.t = h.x.z >> h.x.nine[7:0]; h.y.w = h.x.c >> 64; }
            if (op == 7) { h.y.v = h.x.a & h.x.b; h.y.s = h.x.x | h.x.y; h.y.t = h.x.z ^ (int<201>)h.x.x; h.y.w = ~h.x.c; }
            if (op == 8) { h.y.v = ~h.x.a; h.y.s = -h.x.x; h.y.t = ~h.x.z; h.y.w = -h.x.c; }
            if (op == 9) { h.y.u = h.x.a ++ (bit<100>)h.x.x; h.y.v = (bit<100>)h.x.y ++ (bit<35>)h.x.c ++ h.x.c; h.y.w = h.x.nibble ++ h.x.nine ++ 52w0xf0f0f0f0f0f0f; }
            if (op == 10) { h.y.w = h.x.a[164:100]; h.y.v[130:1] = h.x.b[199:70]; h.y.u[255:255] = h.x.bit_; h.y.flag = h.x.c[64:64]; }
            if (op == 11) { flag(h.x.a < h.x.b); }
            if (op == 12) { flag(h.x.x < h.x.y); }
            if (op == 13) { flag(h.x.z >= (int<201>)h.x.x); }
            if (op == 14) { flag(h.x.a == h.x.b || (h.x.x != h.x.y && !(h.x.c > 0x10000000000000000))); }
            if (op == 15) { h.y.v = h.x.a > h.x.b ? h.x.a : h.x.b; h.y.s = h.x.x <= h.x.y ? h.x.x : h.x.y; }
            if (op == 16) { h.y.s = (int<100>)h.x.z; h.y.t = (int<201>)h.x.x; h.y.u = (bit<300>)(bit<201>)h.x.z; h.y.w = (bit<65>)(bit<100>)h.x.x; }
            if (op == 17) { h.y.s = (int<100>)(int<7>)h.x.y; h.y.v = (bit<200>)(bit<7>)h.x.a; h.y.t = (int<201>)(bit<201>)h.x.a; h.y.flag = (bit<1>)h.x.a; }
            if (op == 18) { h.y.v = h.x.a + (bit<200>)h.x.bit_; h.y.w = (bit<65>)h.x.nine * (bit<65>)h.x.nibble; h.y.s = (int<100>)(int<1>)h.x.bit_; }
            if (op == 19) {
                bit<200> before;
                bit<32> at = (bit<32>)h.command.arg;
                cells.read(before, at);
                h.y.v = before;
                cells.write(at, before + h.x.a);
            }
            if (op == 20) {
                int<100> before = -5;
                bit<1> set;
                bit<32> at = (bit<32>)h.command.arg;
                signed_cells.read(before, at);
                h.y.s = before;
                signed_cells.write(at, before - h.x.x);
                flags.read(set, at);
                h.y.flag = set;
                flags.write(at, ~set);
            }
            if (op == 21) {
                bit<200> result;
                hash(result, HashAlgorithm.crc32, 32w0, { h.x.a, h.x.x, h.x.bit_, h.x.z, 137w0x123456789abcdef0123456789abcdef }, 64w0xffffffffffffffff);
                h.y.v = result;
                hash(h.y.s, HashAlgorithm.crc16, 8w5, { h.x.z, h.x.c }, 16w0xffff);
                hash(h.y.w, HashAlgorithm.identity, 64w7, { h.x.b }, 64w0xffffffff00000000);
                hash(h.y.t, HashAlgorithm.csum16, 16w0, { h.x.y, 3w5 }, 17w0x10000);
            }
            if (op == 22) { digest<sample_t>(1, { op, h.x.a, h.x.c, h.x.bit_ }); }
            if (op == 23) { log_msg("values {} {} {}", { h.x.a, h.x.x, h.x.z }); }
            if (op == 24) { exact_keys.apply(); }
            if (op == 25) { prefixes.apply(); }
            if (op == 26) { masks.apply(); }
            if (op == 27) { if (ranges.apply().hit) { h.y.flag = 1; } }
            if (op == 28) { m.kept = h.x.b; m.unkept = h.x.a; m.next = h.x.a[143:0]; everything.apply(); }
            if (op == 29) { constants.apply(); }
            if (op == 30) { meters.apply(); h.y.five = (bit<5>)m.colour; }
            if (op == 31 && sm.instance_type == 0) { m.kept = h.x.a; m.unkept = h.x.b; resubmit_preserving_field_list(1); }
            if (op == 31 && sm.instance_type != 0) { h.y.v = m.kept; h.y.flag = m.unkept == 0 ? 1w1 : 1w0; }
            if (op == 32) { m.kept = h.x.b; clone_preserving_field_list(CloneType.I2E, 2, 1); }
            if (op == 33) { assert(h.x.a != 0); assume(h.x.z != -1); h.y.flag = 1; }
            if (m.reason == error.Odd) { h.y.u[7:0] = 0x0d; }
            if (sm.parser_error == error.Odd) { h.y.u[15:8] = 1; }
            if (sm.parser_error == error.Even) { h.y.u[15:8] = 2; }
        }
        if (h.items[0].isValid()) {
            h.y.v = (bit<200>)h.items[0].key;
            if (h.items[1].isValid()) {
                h.items[1].key = h.items[0].key + h.items[1].key;
                flag(h.items[0] == h.items[1]);
                // Wide fields of an element that the packet chooses.
                bit<2> at = h.items[1].count[1:0];
                if (at < 2) {
                    h.items[at].key = h.items[at].key |-| 0x80000000000000000000000000000000ff;
                    h.y.u = (bit<300>)h.items[at].key;
                    cells.write(0, (bit<200>)h.items[at].key);
                }
            }
        }
        if (h.choices[0].sum.isValid()) {
            h.choices[1].item.setValid();
            h.choices[1].item.key = h.choices[0].sum.wide ++ 8w1;
            flag(h.choices[0] == h.choices[1]);
            h.choices[1] = h.choices[0];
        }
        if (h.command.op == 0x83) { h.y.v = (bit<200>)m.next; h.y.s = m.signed; }
        if (h.mixed.isValid()) { h.mixed.tail = h.mixed.tail + 1; h.y.flag = sm.checksum_error; }
        h.sum.setValid();
        h.sum.signed = -1;
    }
}

control TheEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        if (sm.instance_type == 1) { h.y.setValid(); h.y.v = m.kept; h.y.w = (bit<65>)m.unkept; }
    }
}
control TheCompute(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.y.isValid(), { h.y.u, h.y.v, h.y.s, h.y.t, h.y.w, h.y.flag, h.y.five }, h.sum.own, HashAlgorithm.csum16);
        update_checksum_with_payload(h.mixed.isValid(), { h.mixed.data, h.mixed.tail, 3w0 }, h.sum.wide, HashAlgorithm.crc32);
        update_checksum(h.x.isValid(), { h.x.z, 7w0 }, h.sum.signed, HashAlgorithm.crc16);
    }
}
control TheDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.y);
        packet.emit(h.sum);
        packet.emit(h.mixed);
        packet.emit(h.items);
        packet.emit(h.choices);
    }
}
V1Switch(TheParser(), TheVerify(), TheIngress(), TheEgress(), TheCompute(), TheDeparser()) main;
