// SPDX-License-Identifier: Apache-2.0
// classify: what kind of packet this is -> class (whose traffic the feedback counts it to) and queue.
//
//   direction, flow's class, DSCP, protocol, ports, pure ACK, sparse, known, IP, control, scalable
//   -> class, queue, regulated
//
// No architecture extern.
#ifndef CLASSIFY_P4
#define CLASSIFY_P4

control Classify(inout metadata_t meta) {
    @id(ACTION_SET_CLASS)
    action set_class(class_t class_id, queue_t queue, bit<1> regulated) {
        meta.class_id = class_id;
        meta.queue = queue;
        meta.regulated = regulated;
    }

    @id(TABLE_CLASSIFY)
    table classify {
        key = {
            meta.direction: ternary @name("direction");
            meta.flow_class: ternary @name("flow_class");
            meta.dscp: ternary @name("dscp");
            meta.protocol: ternary @name("protocol");
            meta.src_port: range @name("src_port");
            meta.dst_port: range @name("dst_port");
            meta.pure_ack: ternary @name("pure_ack");
            meta.sparse: ternary @name("sparse");
            meta.known_flow: ternary @name("known_flow");
            meta.ip: ternary @name("ip");
            meta.is_control: ternary @name("control");
            meta.scalable: ternary @name("scalable");
        }
        actions = { set_class; }
        default_action = set_class(0, 0, 1);
        size = CLASSIFY_SIZE;
    }

    apply {
        classify.apply();
    }
}

#endif
