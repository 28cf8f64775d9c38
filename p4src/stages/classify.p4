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
    action set_class(@id(1) class_t class_id, @id(2) queue_t queue, @id(3) bit<1> regulated) {
        meta.class_id = class_id;
        meta.queue = queue;
        meta.regulated = regulated;
    }

    @id(TABLE_CLASSIFY)
    @entry_restriction("direction::mask == 3 -> direction::value != 3;
        pure_ack::value == 1 -> (protocol::mask == 0 || protocol::value == 6)")
    table classify {
        key = {
            meta.direction: ternary @id(1) @name("direction");
            meta.flow_class: ternary @id(2) @name("flow_class");
            meta.dscp: ternary @id(3) @name("dscp");
            meta.protocol: ternary @id(4) @name("protocol");
            meta.src_port: range @id(5) @name("src_port");
            meta.dst_port: range @id(6) @name("dst_port");
            meta.pure_ack: ternary @id(7) @name("pure_ack");
            meta.sparse: ternary @id(8) @name("sparse");
            meta.known_flow: ternary @id(9) @name("known_flow");
            meta.ip: ternary @id(10) @name("ip");
            meta.is_control: ternary @id(11) @name("control");
            meta.scalable: ternary @id(12) @name("scalable");
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
