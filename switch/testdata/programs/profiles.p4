// SPDX-License-Identifier: Apache-2.0
// Action profiles and selectors, alone and shared, and entries that a table starts with. Every packet leaves through port 2, with what became of it in front.
#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8>  table_number;
    bit<8>  key;
    bit<32> flow;
    bit<16> port;
}
header answer_t {
    bit<32> value;
    bit<8>  hit;
}
struct headers_t { answer_t answer; request_t request; }
struct metadata_t {}

parser TheParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { packet.extract(h.request); transition accept; }
}
control TheVerify(inout headers_t h, inout metadata_t m) { apply {} }

control TheIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    action answer(bit<32> value) { h.answer.value = value; }
    action both(bit<32> value, bit<8> hit) { h.answer.value = value; h.answer.hit = hit; }

    action_profile(4) members;
    action_selector(HashAlgorithm.crc16, 8, 16) selector;
    direct_counter(CounterType.packets) uses;

    table plain {
        key = { h.request.key: exact; }
        actions = { answer; both; NoAction; }
        implementation = members;
        size = 8;
    }
    table chosen {
        key = { h.request.key: exact; h.request.flow: selector; h.request.port: selector; }
        actions = { answer; both; NoAction; }
        implementation = selector;
        counters = uses;
        size = 8;
    }
    table chosen_too {
        key = { h.request.key: ternary; h.request.flow: selector; h.request.port: selector; }
        actions = { NoAction; both; answer; }
        implementation = selector;
        size = 8;
    }
    table started {
        key = { h.request.key: exact; }
        actions = { answer; both; NoAction; }
        entries = {
            1: answer(11);
            2: both(22, 3);
        }
        size = 4;
    }
    apply {
        sm.egress_spec = 2;
        h.answer.setValid();
        if (h.request.table_number == 1) {
            if (plain.apply().hit) { h.answer.hit = h.answer.hit | 0x80; }
        } else if (h.request.table_number == 2) {
            if (chosen.apply().hit) { h.answer.hit = h.answer.hit | 0x80; }
        } else if (h.request.table_number == 4) {
            started.apply();
        } else if (h.request.table_number == 5) {
            hash(h.answer.value, HashAlgorithm.random, 32w0, { h.request.flow }, 32w0xffffffff);
        } else if (h.request.table_number == 6) {
            hash(h.answer.value, HashAlgorithm.crc32_custom, 32w0, { h.request.flow }, 64w0x100000000);
        } else if (h.request.table_number == 7) {
            hash(h.answer.value, HashAlgorithm.crc16_custom, 32w0, { h.request.flow }, 32w0x10000);
        } else {
            switch (chosen_too.apply().action_run) {
                answer: { h.answer.hit = 1; }
                both: { h.answer.hit = h.answer.hit + 2; }
                default: { h.answer.hit = 4; }
            }
        }
    }
}

control TheEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) { apply {} }
control TheCompute(inout headers_t h, inout metadata_t m) { apply {} }
control TheDeparser(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(TheParser(), TheVerify(), TheIngress(), TheEgress(), TheCompute(), TheDeparser()) main;
