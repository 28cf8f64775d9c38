// SPDX-License-Identifier: Apache-2.0
// step: the native AQM of L4S (RFC 9332, section 2.4): a packet with ECT(1) that waited in a priority queue for longer
// than its port's threshold gets CE as it leaves, so that scalable senders keep their own queue short.
//
//   step: egress port -> threshold
//
// In the bulk's queue nobody could keep to it: there the feedback of `mark` is all.
#ifndef V1MODEL_STEP_P4
#define V1MODEL_STEP_P4

// `waited`: in microseconds.
control Step(inout headers_t hdr, inout metadata_t meta, in bit<32> waited) {
    bit<1> above = 0;

    @id(ACTION_MARK_ABOVE)
    action mark_above(@id(1) bit<32> threshold) {
        above = waited > threshold ? 1w1 : 1w0;
    }

    @id(TABLE_STEP)
    table step {
        key = { meta.egress_port: exact @id(1) @name("egress_port"); }
        actions = { mark_above; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    apply {
        if (meta.queue != 0 && meta.pure_ack == 0) {
            step.apply();
            if (above == 1) {
                // RFC 1624, as in `mark`.
                if (hdr.ipv4.isValid() && hdr.ipv4.ecn == ECN_ECT1) {
                    hdr.ipv4.ecn = ECN_CE;
                    hdr.ipv4.checksum = hdr.ipv4.checksum - (hdr.ipv4.checksum < 2 ? 16w3 : 16w2);
                    meta.stepped = 1;
                } else if (hdr.ipv6.isValid() && hdr.ipv6.ecn == ECN_ECT1) {
                    hdr.ipv6.ecn = ECN_CE;
                    meta.stepped = 1;
                }
            }
        }
    }
}

#endif
