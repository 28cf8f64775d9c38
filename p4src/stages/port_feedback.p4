// SPDX-License-Identifier: Apache-2.0
// port_feedback: the part of the feedback that needs no class, so that hardware adds it in parallel to classification; `mark`
// adds the class's part, and decides.
//
//   random + flow + port feedback, saturating -> total
//
// No architecture extern.
#ifndef PORT_FEEDBACK_P4
#define PORT_FEEDBACK_P4

control PortFeedback(in headers_t hdr, inout metadata_t meta, in feedback_t random_number) {
    @id(ACTION_ADD_PORT_FEEDBACK)
    action add_port_feedback(@id(1) feedback_t feedback) {
        meta.total = meta.total |+| feedback;
    }

#ifdef MEASURES_LANES
    // Not for bulk whose lane holds less than `depth` packets: marks are for who makes the queue.
    @id(ACTION_ADD_PORT_FEEDBACK_ABOVE)
    action add_port_feedback_above(@id(1) feedback_t feedback, @id(2) bit<19> depth) {
        meta.standing_feedback = feedback;
        meta.standing_depth = depth;
    }
#endif

    @id(TABLE_PORT_FEEDBACK)
    @entry_restriction("ecn != 3")   // CE cannot be marked again, and what can be is not dropped
    table port_feedback {
        key = {
            meta.egress_port: exact @id(1) @name("egress_port");
            meta.ecn: exact @id(2) @name("ecn");
        }
        actions = {
            add_port_feedback;
#ifdef MEASURES_LANES
            add_port_feedback_above;
#endif
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = PORTS_SIZE * ECN_SIZE;
    }

    apply {
        // Short datagrams of a thinned flow are ACKs, and no mark makes those fewer.
        if (meta.flow_class == FLOW_CLASS_THINNED && hdr.udp.isValid() && hdr.udp.length[15:8] == 0) {
            meta.ecn = ECN_NOT_ECT;
            meta.total = random_number |+| meta.feedback;
        } else if (meta.ecn == ECN_ECT1) {
            meta.total = random_number |+| meta.scalable_feedback;
        } else {
            meta.total = random_number |+| meta.feedback;
        }
        port_feedback.apply();
    }
}

#endif
