// SPDX-License-Identifier: Apache-2.0
// pure_ack: which TCP segments say nothing but how far the other direction came.
//
//   TCP flags, data offset, length, first option word -> pure ACK, supersedable ACK, or the boundary of a connection
//
// No architecture extern.
#ifndef PURE_ACK_P4
#define PURE_ACK_P4

control PureAck(in headers_t hdr, inout metadata_t meta) {
    // An ACK that carries no data and opens or ends nothing.
    @id(ACTION_PURE_ACK)
    action pure_ack_seen() {
        meta.pure_ack = 1;
        meta.spared = 1;
    }

    // A pure ACK whose whole message a newer one repeats that says the same of ECN: no flag but ACK and those of ECN, no
    // option but timestamps, so never SACK, SYN, FIN or RST (RFC 3449, 5.2.1). `ack_filter` compares what they say of ECN.
    // Two bytes of options can also be one of its own, but only in a SYN, or in SCPS-TP, which says it again.
    @id(ACTION_SUPERSEDABLE_ACK)
    action supersedable_ack_seen() {
        meta.pure_ack = 1;
        meta.spared = 1;
        meta.supersedable = 1;
    }

    // Another connection begins on these addresses and ports, or one ends.
    @id(ACTION_CONNECTION_BOUNDARY)
    action connection_boundary() {
        meta.boundary = 1;
    }

    // The same in fewer than 64 bytes of header and data.
    @id(ACTION_BARE_BOUNDARY)
    action bare_boundary() {
        meta.boundary = 1;
        meta.spared = 1;
    }

    @id(TABLE_PURE_ACK)
    table pure_ack {
        key = {
            hdr.tcp.flags: ternary @id(1) @name("flags");
            hdr.tcp.reserved: ternary @id(2) @name("reserved");
            hdr.tcp.data_offset: ternary @id(3) @name("data_offset");
            meta.transport_length: ternary @id(4) @name("transport_length");
            hdr.tcp_option_word.value: ternary @id(5) @name("option_word");
        }
        actions = {
            pure_ack_seen; supersedable_ack_seen; connection_boundary; bare_boundary; @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0x10 &&& 0x3F, 0 &&& 0xE, 5, 20, _): supersedable_ack_seen();
            (0x10 &&& 0x3F, 0 &&& 0xE, 8, 32, TCP_OPTION_WORD_TIMESTAMPS): supersedable_ack_seen();
            (0x10 &&& 0x3F, 0 &&& 0xE, 8, 32, TCP_OPTION_WORD_TIMESTAMPS_FIRST &&& TCP_OPTION_WORD_KIND_AND_LENGTH):
                supersedable_ack_seen();
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
            (0x02 &&& 0x02, _, _, 0 &&& 0xFFC0, _): bare_boundary();
            (0x04 &&& 0x04, _, _, 0 &&& 0xFFC0, _): bare_boundary();
            (0x02 &&& 0x02, _, _, _, _): connection_boundary();
            (0x04 &&& 0x04, _, _, _, _): connection_boundary();
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

#endif
