// SPDX-License-Identifier: Apache-2.0
// roles: what is behind a port, and from both ports the direction of a packet.
//
//   ingress port -> role ; egress port -> role ; station -> uplink = uplink, uplink -> station = downlink, else local
//   a radio is a station in all this
//
// No architecture extern.
#ifndef ROLES_P4
#define ROLES_P4

control IngressRole(inout metadata_t meta) {
    @id(ACTION_SET_INGRESS_ROLE)
    action set_ingress_role(@id(1) role_t role) {
        meta.ingress_role = role;
    }

    @id(TABLE_INGRESS_ROLES)
    table ingress_roles {
        key = { meta.ingress_port: exact @id(1) @name("ingress_port"); }
        actions = { set_ingress_role; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    apply {
        ingress_roles.apply();
    }
}

// After forwarding, when the egress port is known.
control EgressRole(inout metadata_t meta) {
    @id(ACTION_SET_EGRESS_ROLE)
    action set_egress_role(@id(1) role_t role) {
        meta.egress_role = role;
    }

    @id(TABLE_EGRESS_ROLES)
    table egress_roles {
        key = { meta.egress_port: exact @id(1) @name("egress_port"); }
        actions = { set_egress_role; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    apply {
        egress_roles.apply();
        if (meta.ingress_role[0:0] == ROLE_STATION[0:0] && meta.egress_role == ROLE_UPLINK) {
            meta.direction = DIRECTION_UPLINK;
        } else if (meta.ingress_role == ROLE_UPLINK && meta.egress_role[0:0] == ROLE_STATION[0:0]) {
            meta.direction = DIRECTION_DOWNLINK;
        }
    }
}

#endif
