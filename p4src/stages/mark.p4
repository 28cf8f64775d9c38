// SPDX-License-Identifier: Apache-2.0
// mark: the computed feedback meets the packet (NCR, section 3.1), decided once from one random number.
//
//   total of `port_feedback` + class feedback, saturating -> at the top: CE, or drop when not ECN-capable
//
// Each term has a value for scalable senders, whose packets carry ECT(1) (RFC 9331), and one for classic ones; those of
// ports and classes have one for what is not ECN-capable, too, for a drop is more than a mark.
// Each addition is a table of its own and the decision a small ternary table: what a hardware stage can do.
// Short datagrams of a thinned flow are dropped in any case (RFC 3168, section 7).
// A pure ACK is never marked or dropped here, nor a SYN or RST without data: none slows down for it (RFC 3168, 6.1.1),
// and who lost its SYN waits a second (RFC 6298, 2.1). With data they do not pass, or a flood would. `random` is of 0..65534, so 65535 marks always and 0 never.
// No architecture extern.
#ifndef MARK_P4
#define MARK_P4

control Mark(inout headers_t hdr, inout metadata_t meta) {
    @id(ACTION_ADD_CLASS_FEEDBACK)
    action add_class_feedback(@id(1) feedback_t feedback, @id(2) bit<1> mark_only) {
        meta.total = meta.total |+| feedback;
        meta.mark_only = mark_only;
    }

    @id(TABLE_CLASS_FEEDBACK)
    @entry_restriction("ecn != 3")   // CE cannot be marked again, and what can be is not dropped
    table class_feedback {
        key = {
            meta.egress_port: exact @id(1) @name("egress_port");
            meta.class_id: exact @id(2) @name("class_id");
            meta.ecn: exact @id(3) @name("ecn");
        }
        actions = { add_class_feedback; @defaultonly NoAction; }
        const default_action = NoAction();
        size = CLASSES_SIZE * ECN_SIZE;
    }

    // HC' = ~(~HC + m) (RFC 1624, eqn. 3) is HC - m, and one less where that borrows; m is 1 from ECT(0), 2 from ECT(1).
    // Added as 2^16 - m, for hardware does not subtract what an entry says.
    @id(ACTION_MARK_IPV4)
    action mark_ipv4(@id(1) bit<16> addend) {
        hdr.ipv4.ecn = ECN_CE;
        hdr.ipv4.checksum = hdr.ipv4.checksum + addend;
        meta.marked = 1;
    }

    @id(ACTION_MARK_IPV6)
    action mark_ipv6() {
        hdr.ipv6.ecn = ECN_CE;
        meta.marked = 1;
    }

    // RFC 3168 and RFC 7567: a drop is the same signal to a sender that cannot read a mark. What is not IP cannot have one.
    @id(ACTION_DROP_NOT_ECT)
    action drop_not_ect() {
        meta.drop = 1;
    }

    @id(TABLE_MARK)
    table mark {
        key = {
            hdr.ipv4.isValid(): exact @id(1) @name("ipv4_valid");
            meta.ecn: exact @id(2) @name("ecn");
            hdr.ipv4.checksum: ternary @id(3) @name("ipv4_checksum");
            meta.mark_only: ternary @id(4) @name("mark_only");
        }
        actions = { mark_ipv4; mark_ipv6; drop_not_ect; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (true, ECN_ECT0, 0, _): mark_ipv4(0xFFFE);
            (true, ECN_ECT0, _, _): mark_ipv4(0xFFFF);
            (true, ECN_ECT1, 0 &&& 0xFFFE, _): mark_ipv4(0xFFFD);
            (true, ECN_ECT1, _, _): mark_ipv4(0xFFFE);
            (false, ECN_ECT0, _, _): mark_ipv6();
            (false, ECN_ECT1, _, _): mark_ipv6();
            (true, ECN_NOT_ECT, _, 0): drop_not_ect();
            (false, ECN_NOT_ECT, _, 0): drop_not_ect();
        }
    }

    apply {
        if (meta.regulated == 1 && meta.spared == 0) {
#ifdef MEASURES_LANES
            if (meta.queue != 0 || meta.lane_depth >= meta.standing_depth) {
                meta.total = meta.total |+| meta.standing_feedback;
            }
#endif
            class_feedback.apply();
            if (meta.total == FEEDBACK_ALWAYS) {
                mark.apply();
            }
        }
    }
}

#endif
