// SPDX-License-Identifier: Apache-2.0
// One of everything that P4Runtime can reach, in tables that are small enough to fill. `op` chooses the table.
#include "frame.p4"

// 70 of each.
#define TEN(M, d) M(d##0) M(d##1) M(d##2) M(d##3) M(d##4) M(d##5) M(d##6) M(d##7) M(d##8) M(d##9)
#define MANY(M) TEN(M, 1) TEN(M, 2) TEN(M, 3) TEN(M, 4) TEN(M, 5) TEN(M, 6) TEN(M, 7)
// Groups, as a long sum is a deep tree.
#define GROUP(d) + (p##d##0 + p##d##1 + p##d##2 + p##d##3 + p##d##4 + p##d##5 + p##d##6 + p##d##7 + p##d##8 + p##d##9)
#define NAMED(word) @name(#word)
#define KEY(n) hdr.request.a: exact NAMED(key##n);
#define PARAMETER(n) , bit<8> p##n

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    answer_t     answer;
    request_t    request;
}

struct metadata_t {
    bit<2>  colour;
    bit<1>  in_set;
}

struct source_t {
    bit<8>  a;
    bit<16> b;
    bit<32> c;
}

parser EntitiesParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<bit<8>>(4) members;

    state start {
        meta.in_set = 0;
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
        transition select(hdr.request.a) {
            members: is_member;
            default: accept;
        }
    }
    state is_member {
        meta.in_set = 1;
        transition accept;
    }
}

control EntitiesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) exact_counter;
    direct_meter<bit<2>>(MeterType.packets) exact_meter;
    direct_counter(CounterType.packets_and_bytes) constant_counter;
    counter(8, CounterType.packets_and_bytes) requests;
    counter(8, CounterType.packets) others;
    meter(8, MeterType.packets) rates;
    register<bit<32>>(8) cells;
    register<int<8>>(2) levels;
    action_profile(4) profile;
    action_selector(HashAlgorithm.crc16, 8, 8) group_selector;

    action say(bit<32> value) {
        hdr.answer.value = value;
    }
    action say_both(bit<32> value, bit<8> hit) {
        hdr.answer.value = value;
        hdr.answer.hit = hit;
    }
    action count_and_say(bit<32> value) {
        exact_counter.count();
        exact_meter.read(meta.colour);
        hdr.answer.value = value;
    }
    action count_constant(bit<32> value) {
        constant_counter.count();
        hdr.answer.value = value;
    }
    action send_to(bit<9> port) {
        std.egress_spec = port;
    }
    action small(bit<4> nibble, bit<12> twelve) {
        hdr.answer.value = (bit<32>)(nibble ++ twelve);
    }

    action sum(bit<8> p MANY(PARAMETER)) {
        hdr.answer.value = (bit<32>)(p GROUP(1) GROUP(2) GROUP(3) GROUP(4) GROUP(5) GROUP(6) GROUP(7));
    }

    table exact_table {
        key = { hdr.request.a: exact; hdr.request.b: exact; }
        actions = { count_and_say; @defaultonly NoAction; }
        default_action = NoAction();
        counters = exact_counter;
        meters = exact_meter;
        size = 4;
        support_timeout = true;
    }
    table lpm_table {
        key = { hdr.request.c: lpm; }
        actions = { say; @tableonly say_both; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table ternary_table {
        key = { hdr.request.c: ternary; hdr.request.a: exact; }
        actions = { say; say_both; NoAction; }
        default_action = say(7);
        size = 16;
    }
    table range_table {
        key = { hdr.request.b: range; }
        actions = { say; NoAction; }
        size = 16;
    }
    table optional_table {
        key = { hdr.request.b: optional; hdr.request.a: optional; }
        actions = { say; NoAction; }
        size = 16;
    }
    table mixed_table {
        key = { hdr.request.c: lpm; hdr.request.b: ternary; hdr.request.a: exact; }
        actions = { say; NoAction; }
        size = 16;
    }
    table constant_table {
        key = { hdr.request.b: ternary; }
        actions = { count_constant; @defaultonly NoAction; }
        default_action = NoAction();
        const entries = {
            0x0800: count_constant(100);
            0x8000 &&& 0x8000: count_constant(200);
        }
        counters = constant_counter;
    }
    table fixed_default_table {
        key = { hdr.request.a: exact; }
        actions = { say; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 8;
    }
    table keyless_table {
        actions = { say; NoAction; }
        default_action = NoAction();
    }
    table narrow_table {
        key = { hdr.request.b[11:0]: exact @name("twelve"); }
        actions = { small; NoAction; }
        size = 8;
    }
    table port_table {
        key = { hdr.request.a: exact; }
        actions = { send_to; NoAction; }
        size = 8;
    }
    table many_table {
        key = { MANY(KEY) }
        actions = { sum; NoAction; }
        size = 8;
    }
    table profile_table {
        key = { hdr.request.a: exact; }
        actions = { say; say_both; NoAction; }
        implementation = profile;
        size = 8;
    }
    table selector_table {
        key = { hdr.request.a: exact; hdr.request.c: selector; }
        actions = { say; say_both; NoAction; }
        implementation = group_selector;
        size = 8;
    }

    apply {
        bit<8> op = hdr.request.op;
        bit<32> index = (bit<32>)hdr.request.a;
        std.egress_spec = std.ingress_port;
        hdr.answer.setValid();
        hdr.answer.value = 0;
        hdr.answer.hit = 0;
        if (hdr.packet_out.isValid() && hdr.packet_out.egress_port != 0) {
            std.egress_spec = hdr.packet_out.egress_port;
            op = 0;
        }
        // 26: several tables, one after the other.
        if (op == 1 || op == 26) {
            if (exact_table.apply().hit) { hdr.answer.hit = (bit<8>)meta.colour + 1; }
            else { hdr.answer.hit = (bit<8>)meta.colour; }
        }
        if (op == 2 || op == 26) { lpm_table.apply(); }
        if (op == 3) { ternary_table.apply(); }
        if (op == 4) { range_table.apply(); }
        if (op == 5) { optional_table.apply(); }
        if (op == 6) { mixed_table.apply(); }
        if (op == 7) { constant_table.apply(); }
        if (op == 9) { fixed_default_table.apply(); }
        if (op == 10 || op == 26) { keyless_table.apply(); }
        if (op == 11) { narrow_table.apply(); }
        if (op == 12) { port_table.apply(); }
        if (op == 13) { if (profile_table.apply().hit) { hdr.answer.hit = hdr.answer.hit + 1; } }
        if (op == 14) { if (selector_table.apply().hit) { hdr.answer.hit = hdr.answer.hit + 1; } }
        if (op == 15 || op == 26) { requests.count(index); }
        if (op == 16) { rates.execute_meter(index, meta.colour); hdr.answer.value = (bit<32>)meta.colour; }
        if (op == 17) { cells.write(index, hdr.request.c); levels.write(1, -2); }
        if (op == 18) { cells.read(hdr.answer.value, index); }
        if (op == 19) { digest<source_t>(1, { hdr.request.a, hdr.request.b, hdr.request.c }); }
        if (op == 20) { std.mcast_grp = hdr.request.b; }
        if (op == 21) { clone(CloneType.I2E, (bit<32>)hdr.request.b); }
        if (op == 22) { hdr.answer.value = (bit<32>)meta.in_set; }
        if (op == 23) { others.count(index); }
        if (op == 25) { many_table.apply(); }
        if (op == 24) { std.egress_spec = CPU_PORT; }
    }
}

control EntitiesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        hdr.answer.setValid();
        hdr.answer.instance_type = (bit<8>)std.instance_type;
        hdr.answer.replica = std.egress_rid;
        hdr.answer.error_code = 0;
        hdr.answer.ingress_port = (bit<16>)std.ingress_port;
        hdr.answer.packet_length = 0;
        if (std.instance_type == INGRESS_CLONE) {
            hdr.answer.value = 0;
            hdr.answer.hit = 0;
        }
        if (hdr.packet_out.isValid() && hdr.packet_out.egress_port != 0) {
            hdr.answer.setInvalid();
        }
        hdr.packet_out.setInvalid();
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.reason = hdr.request.a[6:0];
        }
    }
}

control EntitiesDeparser(packet_out packet, in headers_t hdr) {
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

V1Switch(EntitiesParser(), NoChecksum(), EntitiesIngress(), EntitiesEgress(), NoChecksum(), EntitiesDeparser()) main;
