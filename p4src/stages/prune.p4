// SPDX-License-Identifier: Apache-2.0
// prune: no packet goes back through the port it came from (the copies of a flood), unless that is a radio.
//
// No architecture extern.
#ifndef PRUNE_P4
#define PRUNE_P4

control Prune(inout metadata_t meta, in port_t egress_port) {
    apply {
        if (egress_port == meta.ingress_port && meta.ingress_role != ROLE_RADIO) {
            meta.drop = 1;
        }
    }
}

#endif
