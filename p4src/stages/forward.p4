// SPDX-License-Identifier: Apache-2.0
// forward: destination MAC and VLAN -> port, or every port of the access point (`prune` keeps the packet from going back,
// unless it came from a radio). What is meant for one neighbour is not flooded to all.
//
// No architecture extern: `unicast` with `egress_port`, or not and GROUP_PORT (flood), or `drop`.
#ifndef FORWARD_P4
#define FORWARD_P4

control Forward(in headers_t hdr, inout metadata_t meta) {
    @id(ACTION_FORWARD_TO)
    action forward_to(@id(1) port_t egress_port) {
        meta.egress_port = egress_port;
        meta.unicast = 1;
    }

    // Its bulk waits in the lane of who gets it, within the rate that the station may receive with.
    @id(ACTION_FORWARD_TO_STATION)
    action forward_to_station(@id(1) port_t egress_port, @id(2) lane_t lane, @id(3) weight_t weight, @id(4) rate_t rate) {
        meta.egress_port = egress_port;
        meta.unicast = 1;
        meta.intrinsic_metadata_lane = lane;
        meta.intrinsic_metadata_lane_weight = weight;
        meta.intrinsic_metadata_lane_rate = rate;
    }

    @id(ACTION_FLOOD)
    action flood() {
        meta.egress_port = GROUP_PORT;
        meta.unicast = 0;
    }

    @id(TABLE_FORWARD)
    table forward {
        key = {
            hdr.ethernet.dst_addr: exact @id(1) @name("dst_addr") @format(MAC_ADDRESS);
            meta.outer_vid: exact @id(2) @name("outer_vid");
            meta.inner_vid: exact @id(3) @name("inner_vid");
        }
        actions = { forward_to; forward_to_station; flood; }
        const default_action = flood();
        size = STATIONS_SIZE;
    }

    apply {
        forward.apply();
        if (meta.unicast == 1 && meta.egress_port == meta.ingress_port && meta.ingress_role != ROLE_RADIO) {
            meta.drop = 1;
        }
#ifdef FLOODS_NO_NEIGHBOUR
        if (meta.unicast == 0 && meta.never_flooded == 1 && hdr.ethernet.dst_addr[40:40] == 0) {
            meta.drop = 1;
        }
#endif
    }
}

#endif
