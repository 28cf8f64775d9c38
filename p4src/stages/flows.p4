// SPDX-License-Identifier: Apache-2.0
// flows: 5-tuple -> flow index, class, flow feedback; counts the flow and says whether it is sparse.
//
//   hit:  direct counter, direct meter; within its sparse rate for SPARSE_HOLD -> sparse
//   miss: digest, and the controller adds the flow; a packet whose source is new reports that instead
//
// A flow is one direction of a connection. The meter colours single packets; a flow whose packets took both the
// sparse and the bulk queue in turn would be reordered, so one packet above the rate makes the flow bulk for the
// whole hold time, which must exceed the bulk queue's delay.
#ifndef FLOWS_P4
#define FLOWS_P4

// In microseconds, the clock of v1model.
const bit<32> SPARSE_HOLD = 1000000;

control Flows(in headers_t hdr, inout metadata_t meta, in bit<32> now) {
    @id(COUNTER_FLOWS_IPV4)
    direct_counter(CounterType.packets_and_bytes) flows_ipv4_counter;
    @id(METER_FLOWS_IPV4)
    direct_meter<color_t>(MeterType.bytes) flows_ipv4_meter;
    @id(COUNTER_FLOWS_IPV6)
    direct_counter(CounterType.packets_and_bytes) flows_ipv6_counter;
    @id(METER_FLOWS_IPV6)
    direct_meter<color_t>(MeterType.bytes) flows_ipv6_meter;

    // Per flow index: when the flow last exceeded its sparse rate.
    @id(REGISTER_LAST_BUSY)
    register<bit<32>>(FLOWS_SIZE) last_busy;

    @id(ACTION_SET_FLOW_IPV4)
    action set_flow_ipv4(flow_index_t flow_index, bit<8> generation, class_t flow_class, feedback_t feedback) {
        flows_ipv4_counter.count();
        flows_ipv4_meter.read(meta.color);
        meta.known_flow = 1;
        meta.flow_index = flow_index;
        meta.generation = generation;
        meta.flow_class = flow_class;
        meta.feedback = feedback;
    }

    @id(ACTION_SET_FLOW_IPV6)
    action set_flow_ipv6(flow_index_t flow_index, bit<8> generation, class_t flow_class, feedback_t feedback) {
        flows_ipv6_counter.count();
        flows_ipv6_meter.read(meta.color);
        meta.known_flow = 1;
        meta.flow_index = flow_index;
        meta.generation = generation;
        meta.flow_class = flow_class;
        meta.feedback = feedback;
    }

    @id(ACTION_UNKNOWN_FLOW)
    action unknown_flow() {
        meta.known_flow = 0;
    }

    @id(TABLE_FLOWS_IPV4)
    table flows_ipv4 {
        key = {
            hdr.ipv4.src_addr: exact @name("src_addr");
            hdr.ipv4.dst_addr: exact @name("dst_addr");
            meta.protocol: exact @name("protocol");
            meta.src_port: exact @name("src_port");
            meta.dst_port: exact @name("dst_port");
        }
        actions = { set_flow_ipv4; @defaultonly unknown_flow; }
        const default_action = unknown_flow();
        counters = flows_ipv4_counter;
        meters = flows_ipv4_meter;
        size = FLOWS_SIZE;
        support_timeout = true;
    }

    @id(TABLE_FLOWS_IPV6)
    table flows_ipv6 {
        key = {
            hdr.ipv6.src_addr: exact @name("src_addr");
            hdr.ipv6.dst_addr: exact @name("dst_addr");
            meta.protocol: exact @name("protocol");
            meta.src_port: exact @name("src_port");
            meta.dst_port: exact @name("dst_port");
        }
        actions = { set_flow_ipv6; @defaultonly unknown_flow; }
        const default_action = unknown_flow();
        counters = flows_ipv6_counter;
        meters = flows_ipv6_meter;
        size = FLOWS_SIZE;
        support_timeout = true;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            flows_ipv4.apply();
            if (meta.known_flow == 0 && meta.source_reported == 0) {
                digest<flow_ipv4_digest_t>(1, { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.protocol,
                    meta.src_port, meta.dst_port, meta.ingress_port, meta.egress_port });
            }
        } else if (hdr.ipv6.isValid()) {
            flows_ipv6.apply();
            if (meta.known_flow == 0 && meta.source_reported == 0) {
                digest<flow_ipv6_digest_t>(1, { hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.protocol,
                    meta.src_port, meta.dst_port, meta.ingress_port, meta.egress_port });
            }
        }

        if (meta.known_flow == 1) {
            if (meta.color != COLOR_GREEN) {
                last_busy.write((bit<32>)meta.flow_index, now);
            } else {
                bit<32> busy;
                last_busy.read(busy, (bit<32>)meta.flow_index);
                if (now - busy > SPARSE_HOLD) {
                    meta.sparse = 1;
                }
            }
        }
    }
}

#endif
