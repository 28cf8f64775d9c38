// SPDX-License-Identifier: Apache-2.0
// learn: a source MAC not yet seen in its VLAN behind its port -> report; the controller answers with entries here and in
// `forward`, and ages them by this table's idle timeout (IEEE 802.1Q, 8.8). Group addresses are no sources.
//
// A station that the controller has given a lane waits there with its bulk, within the rate that it may send with.
#ifndef LEARN_P4
#define LEARN_P4

control Learn(in headers_t hdr, inout metadata_t meta) {
    @id(ACTION_KNOWN_SOURCE)
    action known_source() {}

    @id(ACTION_KNOWN_STATION)
    action known_station(@id(1) lane_t lane, @id(2) weight_t weight, @id(3) rate_t rate) {
        meta.intrinsic_metadata_lane = lane;
        meta.intrinsic_metadata_lane_weight = weight;
        meta.intrinsic_metadata_lane_rate = rate;
    }

    @id(ACTION_UNKNOWN_SOURCE)
    action unknown_source() {
        meta.report = REPORT_SOURCE;
    }

    @id(TABLE_LEARN)
    table learn {
        key = {
            hdr.ethernet.src_addr: exact @id(1) @name("src_addr") @format(MAC_ADDRESS);
            meta.ingress_port: exact @id(2) @name("ingress_port");
            meta.outer_vid: exact @id(3) @name("outer_vid");
            meta.inner_vid: exact @id(4) @name("inner_vid");
        }
        actions = { known_source; known_station; @defaultonly unknown_source; }
        const default_action = unknown_source();
        size = STATIONS_SIZE;
        IDLE_TIMEOUT;
    }

    apply {
        if (hdr.ethernet.src_addr[40:40] == 0) {
            learn.apply();
        }
    }
}

#endif
