// SPDX-License-Identifier: Apache-2.0
// lanes: how many packets wait in the lane that a packet is about to join, as the last one left it, and by what number the lane
// distinguishes its flow. Addresses and ports, and not the flow's index: a flow that gets known stays in order.
//
//   ingress:  addresses, ports -> intrinsic_metadata_lane_flow
//             lane_depth[egress port ++ lane] -> lane_depth; without a lane the most, as nobody else's is known
//   egress:   packets behind the one that leaves -> lane_depth[egress port ++ lane]
//
// `mark` spares who has no queue of its own. A switch without lanes has one queue for all, and its depth is everybody's.
#ifndef V1MODEL_LANES_P4
#define V1MODEL_LANES_P4

// Per egress port ++ lane; egress writes it, ingress reads it.
@id(REGISTER_LANE_DEPTH)
register<bit<19>>(LANES_SIZE) lane_depth;

control LaneDepth(in headers_t hdr, inout metadata_t meta) {
    ConnectionHash() connection_hash;

    apply {
        meta.lane_depth = 0x7FFFF;
        if (meta.intrinsic_metadata_lane != 0) {
            connection_hash.apply(hdr, meta, false, meta.intrinsic_metadata_lane_flow);
            lane_depth.read(meta.lane_depth, (bit<32>)(meta.egress_port ++ meta.intrinsic_metadata_lane));
        }
    }
}

control LaneLeave(in metadata_t meta, in port_t egress_port, in bit<19> left) {
    apply {
        if (meta.queue == 0 && meta.intrinsic_metadata_lane != 0) {
            lane_depth.write((bit<32>)(egress_port ++ meta.intrinsic_metadata_lane), left);
        }
    }
}

#endif
