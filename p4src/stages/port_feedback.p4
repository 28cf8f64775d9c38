// SPDX-License-Identifier: Apache-2.0
// port_feedback: the part of the feedback that needs no class, so that hardware adds it in parallel to classification; `mark`
// adds the class's part, and decides.
//
//   random + flow + port feedback, saturating -> total
//
// No architecture extern.
#ifndef PORT_FEEDBACK_P4
#define PORT_FEEDBACK_P4

control PortFeedback(inout metadata_t meta, in feedback_t random_number) {
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
        if (meta.ecn == ECN_ECT1) {
            meta.total = random_number |+| meta.scalable_feedback;
        } else {
            meta.total = random_number |+| meta.feedback;
        }
        port_feedback.apply();
    }
}

#endif
