// SPDX-License-Identifier: Apache-2.0
// classify: what kind of packet this is -> class (whose traffic the feedback counts it to) and queue.
//
//   pure_ack: TCP flags, data offset, length, first option word -> pure ACK, supersedable ACK
//   classify: direction, flow's class, DSCP, protocol, ports, pure ACK, sparse, known, IP, control, scalable
//             -> class, queue, regulated
//
// No architecture extern.
#ifndef CLASSIFY_P4
#define CLASSIFY_P4

control PureAck(in headers_t hdr, inout metadata_t meta) {
    // An ACK that carries no data and opens or ends nothing.
    @id(ACTION_PURE_ACK)
    action pure_ack_seen() {
        meta.pure_ack = 1;
    }

    // A pure ACK whose whole message a newer one repeats that says the same of ECN: no flag but ACK and those of ECN, no
    // option but timestamps, so never SACK, SYN, FIN or RST (RFC 3449, 5.2.1). `ack_filter` compares what they say of ECN.
    @id(ACTION_SUPERSEDABLE_ACK)
    action supersedable_ack_seen() {
        meta.pure_ack = 1;
        meta.supersedable = 1;
    }

    @id(TABLE_PURE_ACK)
    table pure_ack {
        key = {
            hdr.tcp.flags: ternary @name("flags");
            hdr.tcp.reserved: ternary @name("reserved");
            hdr.tcp.data_offset: ternary @name("data_offset");
            meta.transport_length: ternary @name("transport_length");
            hdr.tcp_option_word.value: ternary @name("option_word");
        }
        actions = { pure_ack_seen; supersedable_ack_seen; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (0x10 &&& 0x3F, 0 &&& 0xE, 5, 20, _): supersedable_ack_seen();
            (0x10 &&& 0x3F, 0 &&& 0xE, 8, 32, TCP_OPTION_WORD_TIMESTAMPS): supersedable_ack_seen();
            (0x10 &&& 0x17, _, 5, 20, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 6, 24, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 7, 28, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 8, 32, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 9, 36, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 10, 40, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 11, 44, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 12, 48, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 13, 52, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 14, 56, _): pure_ack_seen();
            (0x10 &&& 0x17, _, 15, 60, _): pure_ack_seen();
        }
    }

    apply {
        // Not in the parser: the two fields lie differently in their bytes, which hardware's parser does not mend.
        if (hdr.ipv4.isValid()) {
            meta.dscp = hdr.ipv4.dscp;
            meta.ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            meta.dscp = hdr.ipv6.dscp;
            meta.ecn = hdr.ipv6.ecn;
        }
        if (hdr.tcp.isValid()) {
            if (hdr.ipv4.isValid()) {
                meta.transport_length = hdr.ipv4.total_length - 20;
            } else {
                meta.transport_length = hdr.ipv6.payload_length;
            }
            pure_ack.apply();
        }
    }
}

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
