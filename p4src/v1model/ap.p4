// SPDX-License-Identifier: Apache-2.0
// The access point for v1model (BMv2, apswitch). This file is the table of contents: `apply` lists the stages, and each has
// a file of its own. Stages that touch an extern of the architecture are in v1model/; tna/ap.p4 is the same for Tofino.
#include <core.p4>
#include <v1model.p4>

#include "v1model/externs.p4"
#include "ids.p4"
#include "headers.p4"
#include "parser.p4"
#include "stages/roles.p4"
#include "stages/packet_io.p4"
#include "stages/learn.p4"
#include "stages/forward.p4"
#include "stages/flows.p4"
#include "v1model/sparse.p4"
#include "v1model/scalable.p4"
#include "stages/pure_ack.p4"
#include "stages/port_feedback.p4"
#include "stages/classify.p4"
#include "stages/ack.p4"
#include "stages/queue_meter.p4"
#include "stages/mark.p4"
#include "v1model/demote.p4"
#include "v1model/ack_filter.p4"
#include "v1model/window_scale.p4"
#include "v1model/own_data.p4"
#include "v1model/lanes.p4"
#include "v1model/gate.p4"
#include "stages/prune.p4"
#include "v1model/step.p4"
#include "v1model/report.p4"

parser ApParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    state start {
        FrameParser.apply(packet, hdr, meta, standard_metadata.ingress_port);
        transition accept;
    }
}

// Per egress port ++ class: got CE, as it entered the queue or as it left.
@id(COUNTER_MARKED)
COUNTER(CLASSES_SIZE) marked;

// A frame from a port of the access point.
control Frame(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Per egress port ++ class; that of group traffic is GROUP_PORT.
    @id(COUNTER_ARRIVED)
    COUNTER(CLASSES_SIZE) arrived;   // entered the queue
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

    apply {
        IngressRole.apply(meta);
        Punt.apply(hdr, meta);
        if (meta.copy_to_cpu == 1) {
            clone_preserving_field_list(CloneType.I2E, CPU_CLONE_SESSION, FIELD_LIST_PACKET_IN);
        }
        if (meta.to_cpu == 1) {
            standard_metadata.egress_spec = CPU_PORT;
            return;
        }
        if (hdr.ethernet.dst_addr == SPANNING_TREE_ADDRESS) {
            meta.is_control = 1;
        } else if ((hdr.ethernet.dst_addr & RESERVED_MASK) == RESERVED_ADDRESSES) {
            mark_to_drop(standard_metadata);
            return;
        }
        Learn.apply(hdr, meta);
        Forward.apply(hdr, meta);
        if (meta.drop == 1) {
            mark_to_drop(standard_metadata);
            return;
        }
        if (meta.unicast == 1) {
            standard_metadata.egress_spec = meta.egress_port;
            EgressRole.apply(meta);
            Flows.apply(hdr, meta);
            Sparse.apply(meta, standard_metadata.ingress_global_timestamp);
        } else {
            standard_metadata.mcast_grp = FLOOD_GROUP;
        }
        PureAck.apply(hdr, meta);
        Scalable.apply(meta, standard_metadata.ingress_global_timestamp);
        feedback_t random_number;
        random(random_number, 0, 65534);
        PortFeedback.apply(hdr, meta, random_number);
        Classify.apply(meta);

        AckForget.apply(meta);
        OwnForget.apply(meta);
        AckPriority.apply(meta);
        WindowScale.apply(hdr, meta);
        OwnOrder.apply(hdr, meta);
        queue_t asked = meta.queue;
        QueueMeter.apply(meta);
        Demote.apply(meta, asked, standard_metadata.ingress_global_timestamp);
        ScalableHold.apply(meta, standard_metadata.ingress_global_timestamp);

        bit<12> index = meta.egress_port ++ meta.class_id;
        LaneDepth.apply(hdr, meta);
        Mark.apply(hdr, meta);
        if (meta.drop == 1) {
            dropped.count((bit<32>)index);
            mark_to_drop(standard_metadata);
            return;
        }
        if (meta.marked == 1) {
            marked.count((bit<32>)index);
        }
        Gate.apply(meta, standard_metadata.ingress_global_timestamp);
        if (meta.drop == 1) {
            refused.count((bit<32>)index);
            mark_to_drop(standard_metadata);
            return;
        }
        AckRemember.apply(hdr, meta);
        OwnEnter.apply(hdr, meta);
        standard_metadata.priority = meta.queue;
        arrived.count((bit<32>)index);
        queued.count((bit<32>)(meta.egress_port ++ meta.queue));
        if (meta.unicast == 0) {
            group_arrived.count((bit<32>)meta.ingress_port);
        }
    }
}

control ApIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        meta.ingress_port = standard_metadata.ingress_port;
        if (hdr.packet_out.isValid()) {
            PacketOut.apply(hdr, standard_metadata.egress_spec);
        } else if (hdr.ethernet.isValid()) {
            Frame.apply(hdr, meta, standard_metadata);
            if (meta.report != REPORT_NONE) {
                Report.apply(hdr, meta);
            }
        } else {
            mark_to_drop(standard_metadata);
        }
    }
}

control ApEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Both per egress port ++ class, so that arrived - sent - filtered is what the queue holds.
    @id(COUNTER_SENT)
    COUNTER(CLASSES_SIZE) sent;
    @id(COUNTER_FILTERED)
    COUNTER(CLASSES_SIZE) filtered;   // superseded ACKs
    // Per egress port.
    @id(COUNTER_GROUP_SENT)
    PORT_COUNTER() group_sent;        // of group traffic

    apply {
        if (standard_metadata.egress_port == CPU_PORT) {
            PacketIn.apply(hdr, meta);
            return;
        }
        LaneLeave.apply(meta, standard_metadata.egress_port, standard_metadata.deq_qdepth);
        GateRelease.apply(meta, standard_metadata.egress_global_timestamp);
        Prune.apply(meta, standard_metadata.egress_port);
        if (meta.drop == 1) {
            mark_to_drop(standard_metadata);
            return;
        }
        if (meta.unicast == 1) {
            bit<12> index = meta.egress_port ++ meta.class_id;
            OwnLeave.apply(hdr, meta);
            AckFilter.apply(hdr, meta);
            if (meta.drop == 1) {
                filtered.count((bit<32>)index);
                mark_to_drop(standard_metadata);
                return;
            }
            Step.apply(hdr, meta, standard_metadata.deq_timedelta);
            if (meta.stepped == 1) {
                marked.count((bit<32>)index);
            }
            sent.count((bit<32>)index);
        } else {
            group_sent.count((bit<32>)standard_metadata.egress_port);
        }
    }
}

// IP checksums are neither verified (an access point is no router) nor recomputed: `mark` updates them (RFC 1624).
control ApVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ApComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ApDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.outer_tag);
        packet.emit(hdr.inner_tag);
        packet.emit(hdr.pppoe);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.tcp);
        packet.emit(hdr.tcp_option_word);
        packet.emit(hdr.syn_options);
        packet.emit(hdr.syn_option);
        packet.emit(hdr.syn_options_end);
        packet.emit(hdr.udp);
    }
}

V1Switch(ApParser(), ApVerifyChecksum(), ApIngress(), ApEgress(), ApComputeChecksum(), ApDeparser()) main;
