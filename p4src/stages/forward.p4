// SPDX-License-Identifier: Apache-2.0
// forward: destination MAC -> port, or every port of the access point (`prune` keeps the packet from going back).
//
// No architecture extern: `unicast` with `egress_port`, or neither (flood), or `drop`.
#ifndef FORWARD_P4
#define FORWARD_P4

control Forward(in headers_t hdr, inout metadata_t meta) {
    @id(ACTION_FORWARD_TO)
    action forward_to(port_t egress_port) {
        meta.egress_port = egress_port;
        meta.unicast = 1;
    }

    @id(ACTION_FLOOD)
    action flood() {
        meta.unicast = 0;
    }

    @id(TABLE_FORWARD)
    table forward {
        key = { hdr.ethernet.dst_addr: exact @name("dst_addr"); }
        actions = { forward_to; flood; }
        const default_action = flood();
        size = STATIONS_SIZE;
    }

    apply {
        forward.apply();
        if (meta.unicast == 1 && meta.egress_port == meta.ingress_port) {
            meta.drop = 1;
        }
    }
}

#endif
