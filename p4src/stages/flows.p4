// SPDX-License-Identifier: Apache-2.0
// flows: 5-tuple, ports, VLAN -> flow index, class, flow feedback; counts the flow and colours the packet by the flow's sparse rate.
//
//   hit:  direct counter, direct meter; `sparse` (the architecture's) makes the flow's colour of the packets'
//   miss: report, and the controller adds the flow; a packet whose source is new reports that instead
//
// A flow is one direction of a connection, between two ports: when a host moves, or somebody takes its address, packets
// on the new way are of new flows, and those on the old way keep theirs. A protocol without ports, such as GRE and ESP,
// has port numbers 0. Group traffic leaves through many ports and is no flow.
#ifndef FLOWS_P4
#define FLOWS_P4

control Flows(in headers_t hdr, inout metadata_t meta) {
    @id(COUNTER_FLOWS_IPV4)
    DIRECT_COUNTER() flows_ipv4_counter;
    @id(METER_FLOWS_IPV4)
    DIRECT_METER() flows_ipv4_meter;
    @id(COUNTER_FLOWS_IPV6)
    DIRECT_COUNTER() flows_ipv6_counter;
    @id(METER_FLOWS_IPV6)
    DIRECT_METER() flows_ipv6_meter;

    @id(ACTION_SET_FLOW_IPV4)
    action set_flow_ipv4(@id(1) flow_index_t flow_index, @id(2) bit<8> generation, @id(3) class_t flow_class,
                         @id(4) feedback_t feedback, @id(5) feedback_t scalable_feedback) {
        flows_ipv4_counter.count();
        READ_DIRECT_METER(flows_ipv4_meter, meta.color);
        meta.known_flow = 1;
        meta.flow_index = flow_index;
        meta.generation = generation;
        meta.flow_class = flow_class;
        meta.feedback = feedback;
        meta.scalable_feedback = scalable_feedback;
    }

    @id(ACTION_SET_FLOW_IPV6)
    action set_flow_ipv6(@id(1) flow_index_t flow_index, @id(2) bit<8> generation, @id(3) class_t flow_class,
                         @id(4) feedback_t feedback, @id(5) feedback_t scalable_feedback) {
        flows_ipv6_counter.count();
        READ_DIRECT_METER(flows_ipv6_meter, meta.color);
        meta.known_flow = 1;
        meta.flow_index = flow_index;
        meta.generation = generation;
        meta.flow_class = flow_class;
        meta.feedback = feedback;
        meta.scalable_feedback = scalable_feedback;
    }

    @id(ACTION_UNKNOWN_FLOW)
    action unknown_flow() {
        meta.known_flow = 0;
    }

    @id(TABLE_FLOWS_IPV4)
    @entry_restriction("protocol == 6 || protocol == 17 || (src_port == 0 && dst_port == 0)")
    table flows_ipv4 {
        key = {
            hdr.ipv4.src_addr: exact @id(1) @name("src_addr") @format(IPV4_ADDRESS);
            hdr.ipv4.dst_addr: exact @id(2) @name("dst_addr") @format(IPV4_ADDRESS);
            meta.protocol: exact @id(3) @name("protocol");
            meta.src_port: exact @id(4) @name("src_port");
            meta.dst_port: exact @id(5) @name("dst_port");
            meta.ingress_port: exact @id(6) @name("ingress_port");
            meta.egress_port: exact @id(7) @name("egress_port");
            meta.outer_vid: exact @id(8) @name("outer_vid");
            meta.inner_vid: exact @id(9) @name("inner_vid");
        }
        actions = { set_flow_ipv4; @defaultonly unknown_flow; }
        const default_action = unknown_flow();
        COUNTED_BY(flows_ipv4_counter);
        METERED_BY(flows_ipv4_meter);
        size = FLOWS_SIZE;
        FLOW_TIMEOUT
    }

    @id(TABLE_FLOWS_IPV6)
    @entry_restriction("protocol == 6 || protocol == 17 || (src_port == 0 && dst_port == 0)")
    table flows_ipv6 {
        key = {
            hdr.ipv6.src_addr: exact @id(1) @name("src_addr") @format(IPV6_ADDRESS);
            hdr.ipv6.dst_addr: exact @id(2) @name("dst_addr") @format(IPV6_ADDRESS);
            meta.protocol: exact @id(3) @name("protocol");
            meta.src_port: exact @id(4) @name("src_port");
            meta.dst_port: exact @id(5) @name("dst_port");
            meta.ingress_port: exact @id(6) @name("ingress_port");
            meta.egress_port: exact @id(7) @name("egress_port");
            meta.outer_vid: exact @id(8) @name("outer_vid");
            meta.inner_vid: exact @id(9) @name("inner_vid");
        }
        actions = { set_flow_ipv6; @defaultonly unknown_flow; }
        const default_action = unknown_flow();
        COUNTED_BY(flows_ipv6_counter);
        METERED_BY(flows_ipv6_meter);
        size = FLOWS_IPV6_SIZE;
        FLOW_TIMEOUT
    }

    apply {
        if (hdr.ipv4.isValid()) {
            flows_ipv4.apply();
        } else if (hdr.ipv6.isValid()) {
            flows_ipv6.apply();
        }
        if (meta.known_flow == 0 && meta.unicast == 1 && meta.report == REPORT_NONE) {
            if (hdr.ipv4.isValid()) {
                meta.report = REPORT_FLOW_IPV4;
            } else if (hdr.ipv6.isValid()) {
                meta.report = REPORT_FLOW_IPV6;
            }
        }
    }
}

#endif
