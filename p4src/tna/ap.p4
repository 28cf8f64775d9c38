// SPDX-License-Identifier: Apache-2.0
// The access point for Tofino 1 (TNA). This file is the table of contents: `apply` lists the stages, and each has a file of
// its own, shared with v1model/ap.p4 where it touches no extern of the architecture; the others are in tna/.
//
// The gate comes first, for its stateful ALUs run beside the flow tables: a packet that it refuses is not marked.
#include <core.p4>
#include <tna.p4>

#include "tna/externs.p4"
#include "ids.p4"
#include "headers.p4"
#include "tna/headers.p4"
#include "parser.p4"
#include "stages/roles.p4"
#include "stages/packet_io.p4"
#include "stages/learn.p4"
#include "stages/forward.p4"
#include "stages/flows.p4"
#include "tna/sparse.p4"
#include "stages/pure_ack.p4"
#include "stages/port_feedback.p4"
#include "stages/classify.p4"
#include "stages/ack.p4"
#include "stages/queue_meter.p4"
#include "stages/mark.p4"
#include "tna/ack_filter.p4"
#include "tna/gate.p4"
#include "stages/prune.p4"

parser ApIngressParser(packet_in packet, out tna_headers_t hdr, out tna_metadata_t meta,
                       out ingress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta.session = ACK_SESSION ++ 2w0;
        FrameParser.apply(packet, hdr.wire, meta.stages, intrinsic.ingress_port);
        transition accept;
    }
}

control ApIngress(inout tna_headers_t hdr, inout tna_metadata_t meta,
                  in ingress_intrinsic_metadata_t intrinsic,
                  in ingress_intrinsic_metadata_from_parser_t from_parser,
                  inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                  inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    // Per egress port ++ class; that of group traffic is GROUP_PORT.
    @id(COUNTER_ARRIVED)
    COUNTER(CLASSES_SIZE) arrived;   // entered the queue
    @id(COUNTER_MARKED)
    COUNTER(CLASSES_SIZE) marked;    // got CE
    @id(COUNTER_DROPPED)
    COUNTER(CLASSES_SIZE) dropped;   // dropped by feedback
    @id(COUNTER_REFUSED)
    COUNTER(CLASSES_SIZE) refused;   // dropped by the gate
    // Per egress port ++ queue.
    @id(COUNTER_QUEUED)
    COUNTER(CLASSES_SIZE) queued;    // which queue they entered
    // Per ingress port: what entered the queues of all other ports.
    @id(COUNTER_GROUP_ARRIVED)
    PORT_COUNTER() group_arrived;

    Random<feedback_t>() random;
    feedback_t random_number = 0;
    int<32> now = 0;   // in units of 256 ns
    bit<1> refused_by_gate = 0;
    bit<1> reserved = 0;

    @hidden
    action is_reserved() {
        reserved = 1;
    }

    @hidden
    action is_spanning_tree() {
        meta.stages.is_control = 1;
    }

    // A gateway does not compare so many bits.
    @hidden
    table reserved_addresses {
        key = { hdr.wire.ethernet.dst_addr: ternary; }
        actions = { is_reserved; is_spanning_tree; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            SPANNING_TREE_ADDRESS: is_spanning_tree();
            RESERVED_ADDRESSES &&& RESERVED_MASK: is_reserved();
        }
        size = 2;
    }

    @hidden
    action to_lane() {
        for_tm.qid = (QueueId_t)meta.stages.intrinsic_metadata_lane[4:0] + 7;
    }

    @hidden
    action to_bulk() {
        for_tm.qid = 0;
    }

    // Lane 1 is queue 8.
    @hidden
    table lane_queue {
        key = { meta.stages.intrinsic_metadata_lane: ternary; }
        actions = { to_bulk; to_lane; }
        const default_action = to_lane();
        const entries = {
            0: to_bulk();
        }
        size = 1;
    }

    apply {
        now = (int<32>)intrinsic.ingress_mac_tstamp[39:8];
        random_number = random.get();
        meta.stages.ingress_port = intrinsic.ingress_port;
        if (hdr.wire.packet_out.isValid()) {
            PacketOut.apply(hdr.wire, for_tm.ucast_egress_port);
            for_tm.bypass_egress = 1;
        } else if (!hdr.wire.ethernet.isValid()) {
            for_deparser.drop_ctl = 1;
        } else {
            IngressRole.apply(meta.stages);
            // `forward` needs nothing of the tables before it, and the flow tables, which take five stages, need it.
            Forward.apply(hdr.wire, meta.stages);
            reserved_addresses.apply();
            Punt.apply(hdr.wire, meta.stages);
            random_number = random_number & 0xFFFE;
            if (meta.stages.copy_to_cpu == 1) {
                for_deparser.mirror_type = MIRROR_CPU;
                meta.copy_kind = KIND_CPU_COPY;
                meta.session = CPU_CLONE_SESSION;
            } else {
                meta.session[1:0] = DEVPORT_PIPE(meta.stages.egress_port);
            }
            if (meta.stages.to_cpu == 1) {
                for_tm.ucast_egress_port = CPU_PORT;
            } else if (reserved == 1) {
                for_deparser.drop_ctl = 1;
            } else {
                Learn.apply(hdr.wire, meta.stages);
                if (meta.stages.egress_port == meta.stages.ingress_port && meta.stages.ingress_role != ROLE_RADIO) {
                    for_deparser.drop_ctl = 1;
                } else {
                    if (meta.stages.unicast == 1) {
                        for_tm.ucast_egress_port = meta.stages.egress_port;
                    } else {
                        for_tm.mcast_grp_a = FLOOD_GROUP;
                    }
                    EgressRole.apply(meta.stages);
                    PureAck.apply(hdr.wire, meta.stages);
                    Gate.apply(meta.stages, now, refused_by_gate);
                    Flows.apply(hdr.wire, meta.stages);
                    Sparse.apply(meta.stages, now);
                    PortFeedback.apply(hdr.wire, meta.stages, random_number);
                    Classify.apply(meta.stages);
                    if (refused_by_gate == 1) {
                        refused.count(meta.stages.egress_port ++ meta.stages.class_id);
                        for_deparser.drop_ctl = 1;
                    } else {
                        AckPriority.apply(meta.stages);
                        // Copied as well, and `supersedable` is not set.
                        if (meta.stages.boundary == 1) {
                            meta.stages.filter = 1;
                        }
                        QueueMeter.apply(meta.stages);
                        Mark.apply(hdr.wire, meta.stages);
                        if (meta.stages.queue == 0) {
                            lane_queue.apply();
                        } else {
                            for_tm.qid = (QueueId_t)(bit<5>)meta.stages.queue;
                        }
                        if (meta.stages.drop == 1) {
                            dropped.count(meta.stages.egress_port ++ meta.stages.class_id);
                            for_deparser.drop_ctl = 1;
                        } else {
                            if (meta.stages.marked == 1) {
                                marked.count(meta.stages.egress_port ++ meta.stages.class_id);
                            }
                            arrived.count(meta.stages.egress_port ++ meta.stages.class_id);
                            queued.count(meta.stages.egress_port ++ meta.stages.queue);
                            if (meta.stages.unicast == 0) {
                                group_arrived.count(meta.stages.ingress_port);
                            }
                            if (meta.stages.copy_to_cpu == 0 && meta.stages.filter == 1 && meta.stages.demoted == 0 &&
                                meta.stages.known_flow == 1) {
                                for_deparser.mirror_type = MIRROR_ACK;
                                meta.copy_kind = KIND_ACK_COPY;
                            }
                        }
                    }
                }
            }
            if (meta.stages.report != REPORT_NONE) {
                for_deparser.digest_type = meta.stages.report;
            }
            hdr.frame.setValid();
            hdr.frame.kind = KIND_FRAME;
            hdr.frame.ingress_role = meta.stages.ingress_role;
            hdr.frame.ingress_port = meta.stages.ingress_port;
            hdr.frame.unicast = meta.stages.unicast;
            hdr.frame.class_id = meta.stages.class_id;
            hdr.frame.generation = meta.stages.generation;
            hdr.frame.flow_index = meta.stages.flow_index;
            hdr.frame.acknowledgment = hdr.wire.tcp.acknowledgment;
            hdr.frame.tcp_flags = hdr.wire.tcp.flags;
            hdr.frame.tcp_reserved = hdr.wire.tcp.reserved;
            hdr.frame.filter = meta.stages.filter;
            hdr.frame.supersedable = meta.stages.supersedable;
            hdr.frame.known_flow = meta.stages.known_flow;
        }
    }
}

control ApIngressDeparser(packet_out packet, inout tna_headers_t hdr, in tna_metadata_t meta,
                          in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    @name("source_digest_t")
    Digest<source_digest_t>(REPORT_SOURCE) source_digest;
    @name("flow_ipv4_digest_t")
    Digest<flow_ipv4_digest_t>(REPORT_FLOW_IPV4) flow_ipv4_digest;
    @name("flow_ipv6_digest_t")
    Digest<flow_ipv6_digest_t>(REPORT_FLOW_IPV6) flow_ipv6_digest;
    Mirror() cpu_mirror;
    Mirror() ack_mirror;

    apply {
        if (for_deparser.digest_type == REPORT_SOURCE) {
            source_digest.pack({ hdr.wire.ethernet.src_addr, meta.stages.ingress_port, meta.stages.outer_vid,
                meta.stages.inner_vid });
        }
        if (for_deparser.digest_type == REPORT_FLOW_IPV4) {
            flow_ipv4_digest.pack({ hdr.wire.ipv4.src_addr, hdr.wire.ipv4.dst_addr, meta.stages.protocol,
                meta.stages.src_port, meta.stages.dst_port, meta.stages.ingress_port, meta.stages.egress_port,
                meta.stages.outer_vid, meta.stages.inner_vid });
        }
        if (for_deparser.digest_type == REPORT_FLOW_IPV6) {
            flow_ipv6_digest.pack({ hdr.wire.ipv6.src_addr, hdr.wire.ipv6.dst_addr, meta.stages.protocol,
                meta.stages.src_port, meta.stages.dst_port, meta.stages.ingress_port, meta.stages.egress_port,
                meta.stages.outer_vid, meta.stages.inner_vid });
        }
        if (for_deparser.mirror_type == MIRROR_CPU) {
            cpu_mirror.emit<cpu_copy_h>(meta.session, { meta.copy_kind, 0, meta.stages.ingress_port });
        }
        if (for_deparser.mirror_type == MIRROR_ACK) {
            ack_mirror.emit<ack_copy_h>(meta.session, { meta.copy_kind, 0, meta.stages.boundary, meta.stages.generation,
                meta.stages.flow_index, hdr.wire.tcp.acknowledgment });
        }
        packet.emit(hdr.frame);
        packet.emit(hdr.wire.ethernet);
        packet.emit(hdr.wire.outer_tag);
        packet.emit(hdr.wire.inner_tag);
        packet.emit(hdr.wire.pppoe);
        packet.emit(hdr.wire.ipv4);
        packet.emit(hdr.wire.ipv6);
        packet.emit(hdr.wire.tcp);
        packet.emit(hdr.wire.tcp_option_word);
        packet.emit(hdr.wire.udp);
    }
}

// The frame itself is payload here.
parser ApEgressParser(packet_in packet, out tna_headers_t hdr, out tna_metadata_t meta,
                      out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        transition select(packet.lookahead<kind_t>()) {
            KIND_FRAME: parse_frame;
            KIND_CPU_COPY: parse_cpu_copy;
            KIND_ACK_COPY: parse_ack_copy;
            default: reject;
        }
    }

    state parse_frame {
        packet.extract(hdr.frame);
        meta.stages.generation = hdr.frame.generation;
        meta.stages.flow_index = hdr.frame.flow_index;
        meta.acknowledgment = hdr.frame.acknowledgment;
        transition accept;
    }

    state parse_cpu_copy {
        packet.extract(hdr.cpu_copy);
        transition accept;
    }

    state parse_ack_copy {
        packet.extract(hdr.ack_copy);
        meta.stages.generation = hdr.ack_copy.generation;
        meta.stages.flow_index = hdr.ack_copy.flow_index;
        meta.acknowledgment = hdr.ack_copy.acknowledgment;
        transition accept;
    }
}

control ApEgress(inout tna_headers_t hdr, inout tna_metadata_t meta,
                 in egress_intrinsic_metadata_t intrinsic,
                 in egress_intrinsic_metadata_from_parser_t from_parser,
                 inout egress_intrinsic_metadata_for_deparser_t for_deparser,
                 inout egress_intrinsic_metadata_for_output_port_t for_port) {
    // Both per egress port ++ class, so that arrived - sent - filtered is what the queue holds.
    @id(COUNTER_SENT)
    COUNTER(CLASSES_SIZE) sent;
    @id(COUNTER_FILTERED)
    COUNTER(CLASSES_SIZE) filtered;   // superseded ACKs
    // Per egress port.
    @id(COUNTER_GROUP_SENT)
    PORT_COUNTER() group_sent;        // of group traffic

    apply {
        // Not in the parser, which cannot shift.
        if (hdr.frame.isValid()) {
            meta.stages.ingress_port = hdr.frame.ingress_port;
            meta.stages.ingress_role = hdr.frame.ingress_role;
        } else {
            meta.stages.ingress_port = hdr.cpu_copy.ingress_port;
        }
        if (intrinsic.egress_port == CPU_PORT) {
            PacketIn.apply(hdr.wire, meta.stages);
        } else {
            bit<12> index = intrinsic.egress_port ++ hdr.frame.class_id;
            Prune.apply(meta.stages, intrinsic.egress_port);
            bit<1> superseded = 0;
            AckFilter.apply(hdr, meta, superseded);
            if (hdr.ack_copy.isValid() || meta.stages.drop == 1) {
                for_deparser.drop_ctl = 1;
            } else if (superseded == 1) {
                filtered.count(index, sizeInBytes(hdr.frame));
                for_deparser.drop_ctl = 1;
            } else if (hdr.frame.unicast == 1) {
                sent.count(index, sizeInBytes(hdr.frame));
            } else {
                group_sent.count(intrinsic.egress_port, sizeInBytes(hdr.frame));
            }
        }
    }
}

control ApEgressDeparser(packet_out packet, inout tna_headers_t hdr, in tna_metadata_t meta,
                         in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply {
        packet.emit(hdr.wire.packet_in);
    }
}

Pipeline(ApIngressParser(), ApIngress(), ApIngressDeparser(), ApEgressParser(), ApEgress(), ApEgressDeparser()) pipe;

@pa_auto_init_metadata
Switch(pipe) main;
