// SPDX-License-Identifier: Apache-2.0
// Headers on the wire, headers between switch and controller, and what the stages hand to each other.
#ifndef HEADERS_P4
#define HEADERS_P4

#include "ids.p4"

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_CTAG = 0x8100;              // IEEE 802.1Q: the tag of a customer's VLAN
const bit<16> ETHERTYPE_STAG = 0x88A8;              // IEEE 802.1ad: that of a provider
const bit<16> ETHERTYPE_QINQ = 0x9100;              // what many bridges wrote for a provider's before 802.1ad
const bit<16> ETHERTYPE_QINQ_OTHER = 0x9200;
const bit<16> ETHERTYPE_PPPOE_DISCOVERY = 0x8863;
const bit<16> ETHERTYPE_PPPOE_SESSION = 0x8864;
const bit<16> ETHERTYPE_EAPOL = 0x888E;             // IEEE 802.1X
const bit<16> ETHERTYPE_PREAUTHENTICATION = 0x88C7; // IEEE 802.11, 12.6.10.2: EAPOL by way of another access point
const bit<16> ETHERTYPE_WLAN = 0x890D;              // IEEE 802.11, annex H: TDLS, fast transition
const bit<16> ETHERTYPE_PTP = 0x88F7;               // IEEE 1588, annex F
const bit<16> PPP_IPV4 = 0x0021;
const bit<16> PPP_IPV6 = 0x0057;
const bit<8>  PROTOCOL_TCP = 6;
const bit<8>  PROTOCOL_UDP = 17;
const bit<8>  PROTOCOL_ICMPV6 = 58;
const bit<8>  TCP_SYN = 0x02;
const bit<8>  TCP_ACK = 0x10;

// Group addresses of the protocols between neighbours, which no bridge forwards (IEEE 802.1Q, 8.6.3). The first one is that of
// spanning trees: a bridge that takes part in none forwards it, or a loop through it is seen by nobody.
const mac_t RESERVED_ADDRESSES = 0x0180C2000000;
const mac_t SPANNING_TREE_ADDRESS = 0x0180C2000000;
const mac_t RESERVED_MASK = 0xFFFFFFFFFFF0;

// Field order of RFC 3168: the six DSCP bits, then the two ECN bits.
typedef bit<2> ecn_t;
const ecn_t ECN_NOT_ECT = 0;
const ecn_t ECN_ECT1 = 1;
const ecn_t ECN_ECT0 = 2;
const ecn_t ECN_CE = 3;

// The option layouts of a supersedable ACK with twelve bytes of options: NOP NOP Timestamps(kind 8, length 10), which is most
// stacks' (RFC 7323, appendix A), or the same with the padding behind it (RFC 9293, 3.1), of which this is the kind and length.
const bit<32> TCP_OPTION_WORD_TIMESTAMPS = 0x0101080A;
const bit<32> TCP_OPTION_WORD_TIMESTAMPS_FIRST = 0x080A0000;
const bit<32> TCP_OPTION_WORD_KIND_AND_LENGTH = 0xFFFF0000;

header ethernet_t {
    mac_t   dst_addr;
    mac_t   src_addr;
    bit<16> ether_type;
}

// IEEE 802.1Q, 9.6. VID 0 says a priority and no VLAN: such a frame is of the VLAN of untagged ones.
header vlan_tag_t {
    bit<3>  priority;
    bit<1>  drop_eligible;
    bit<12> vid;
    bit<16> ether_type;
}

// RFC 2516, with the protocol of PPP behind it.
header pppoe_t {
    bit<8>  version_type;
    bit<8>  code;
    bit<16> session_id;
    bit<16> length;
    bit<16> protocol;
}

// RFC 791. Options stay in the payload: nothing here needs them.
header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    ecn_t   ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<1>  reserved;
    bit<1>  dont_fragment;
    bit<1>  more_fragments;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

// RFC 8200.
header ipv6_t {
    bit<4>   version;
    bit<6>   dscp;
    ecn_t    ecn;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> src_addr;
    bit<128> dst_addr;
}

// RFC 9293; `reserved` holds the AE bit of accurate ECN.
header tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> sequence;
    bit<32> acknowledgment;
    bit<4>  data_offset;
    bit<4>  reserved;
    bit<8>  flags;   // CWR ECE URG ACK PSH RST SYN FIN
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent_pointer;
}

// The first word of the TCP options; parsed where it tells timestamps from SACK.
header tcp_option_word_t {
    bit<32> value;
}

// The first five words of the options of a SYN, as far as it has them; parsed where somebody reads its window scale.
header syn_options_t {
    bit<32> first;
    bit<32> second;
}
header syn_option_t {
    bit<32> third;
}
header syn_options_end_t {
    bit<32> fourth;
    bit<32> fifth;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

@controller_header("packet_in")
header packet_in_t {
    @id(2) @padding bit<7> pad;
    @id(1) port_t ingress_port;
}

@controller_header("packet_out")
header packet_out_t {
    @id(2) @padding bit<7> pad;
    @id(1) port_t egress_port;
}

struct headers_t {
    packet_out_t      packet_out;
    packet_in_t       packet_in;
    ethernet_t        ethernet;
    vlan_tag_t        outer_tag;
    vlan_tag_t        inner_tag;
    pppoe_t           pppoe;
    ipv4_t            ipv4;
    ipv6_t            ipv6;
    tcp_t             tcp;
    tcp_option_word_t tcp_option_word;
    syn_options_t     syn_options;
    syn_option_t      syn_option;
    syn_options_end_t syn_options_end;
    udp_t             udp;
}

// Fields that survive the clone of a packet to the controller.
#define FIELD_LIST_PACKET_IN 1

// Each field: who sets it, who reads it. What nobody has set is 0.
struct metadata_t {
    // Set first of all; read by `roles`, `learn`, `forward`, `flows`, `prune`, the digests and packet-in.
    @field_list(FIELD_LIST_PACKET_IN)
    port_t       ingress_port;
    // Set by `forward`, GROUP_PORT when not unicast; read by every stage behind it.
    port_t       egress_port;
    // Set by `forward`: one known egress port, else every port of the access point; read by `flows` and the architecture.
    bit<1>       unicast;
    // Set by `forward`, `mark`, `gate`, `prune` and `ack_filter`; the architecture drops the packet.
    bit<1>       drop;
    // Set by the parser, with inner_vid the packet's VLAN, 0 without such a tag; read by `learn`, `forward`, `flows`.
    bit<12>      outer_vid;
    bit<12>      inner_vid;
    // Set by the parser: the packet is of a flow, known or not; one that is not is opaque. Read by `classify`.
    bit<1>       ip;
    // Set by the parser and the architecture: it keeps the network itself going, as ARP, DHCP and BPDUs do. Read by `classify`
    // and `demote`.
    bit<1>       is_control;
    // Set by the parser: to one neighbour only; v1model drops it when nobody knows where that is, on a Tofino no stage is left.
    bit<1>       never_flooded;
    // Set by `roles`; read by `forward` and `prune` (a radio may return a frame) and, both, for the direction.
    role_t       ingress_role;
    role_t       egress_role;
    // Set by `roles`; read by `classify`.
    direction_t  direction;
    // Set by the parser, 0 when there is no transport header to trust; read by `punt`, `flows`, `classify`.
    bit<16>      src_port;
    bit<16>      dst_port;
    bit<8>       protocol;
    // Set by `pure_ack` from the IP header; dscp is read by `classify`.
    bit<6>       dscp;
    // ECN_NOT_ECT when not IP and, by `port_feedback`, for what is thinned; read by `scalable`, `port_feedback`, `mark`.
    ecn_t        ecn;
    // Set and read by `pure_ack`: bytes of transport header and payload that the IP header claims.
    bit<16>      transport_length;
    // Set by `punt`: to the controller instead of anywhere else, or as well; the architecture sends it.
    bit<1>       to_cpu;
    bit<1>       copy_to_cpu;
    // Set by `learn` and `flows`; the architecture sends one digest for a packet: a new source first, its flow later.
    report_t     report;
    // These seven are set by `flows`. known_flow is read by whatever has cells for a flow, with flow_index and generation, which
    // tells the owners of one index apart.
    bit<1>       known_flow;
    flow_index_t flow_index;
    bit<8>       generation;
    // Read by `port_feedback` and `classify`; 0: the flow asks for none.
    class_t      flow_class;
    // Read by `sparse`.
    color_t      color;
    // Read by `port_feedback`; the second one for ECT(1), which `scalable` reads, too.
    feedback_t   feedback;
    feedback_t   scalable_feedback;
    // Set by `sparse`; read by `classify`.
    bit<1>       sparse;
    // Set by `scalable`: of a scalable flow (RFC 9331) that may wait with those; read by `classify` and its own hold.
    bit<1>       scalable;
    // Set by `pure_ack`; the first is read by `classify`, `ack`, the second by `ack_filter`.
    bit<1>       pure_ack;
    bit<1>       supersedable;
    // Set by `pure_ack`: SYN or RST; read by `ack_filter`.
    bit<1>       boundary;
    // Set by `pure_ack` and `scalable`: no signal would slow its sender down, or a drop would cost it a timeout; read by `mark`.
    bit<1>       spared;
    // Set by `ack`: a newer ACK may take this one's place; read by `ack_filter`.
    bit<1>       filter;
    // Set by `ack_filter` and `own_data` at ingress, read there at egress: the packet's place among those of its queue, and among
    // those of its flow in the bulk's queue; 0: it has none.
    bit<32>      ack_place;
    bit<16>      own_place;
    // Set by `classify`: whose traffic it is; read by `mark` and every counter of a port's classes.
    class_t      class_id;
    // Set by `classify`, `ack`, `own_data`, `queue_meter`, `demote`; the architecture's queue, 7 served first.
    queue_t      queue;
    // Set by `forward` or `learn`: a lane of queue 0 and what it gets of it; the last one by `lanes`: who shares it. By these names
    // the architecture reads them, where it has lanes; `lanes` reads the first, too.
    lane_t       intrinsic_metadata_lane;
    weight_t     intrinsic_metadata_lane_weight;
    rate_t       intrinsic_metadata_lane_rate;
    bit<32>      intrinsic_metadata_lane_flow;
    // Set by `port_feedback` for who is above a depth, and by `lanes` the depth of its lane; read by `mark`.
    feedback_t   standing_feedback;
    bit<19>      standing_depth;
    bit<19>      lane_depth;
    // Set by `queue_meter` and `demote`: above its queue's meter, so it waits with the bulk; read by `own_data` and the holds.
    bit<1>       demoted;
    // Set by `classify`, `queue_meter`, `demote`: feedback applies; read by `mark`.
    bit<1>       regulated;
    // Set and read by `mark`, from the class's entry.
    bit<1>       mark_only;
    // Set by `port_feedback` and `mark`: a random number of 0..65534 and all feedback, saturating; at the top `mark` acts.
    feedback_t   total;
    // Set by `mark`, and by `step` as the packet leaves; read by the counter of marks.
    bit<1>       marked;
    bit<1>       stepped;
    // Set by `gate` at ingress, read there at egress: this packet holds a place in the gate's buffer.
    bit<1>       gated;
}

struct source_digest_t {
    mac_t   src_addr;
    port_t  ingress_port;
    bit<12> outer_vid;
    bit<12> inner_vid;
}

struct flow_ipv4_digest_t {
    bit<32> src_addr;
    bit<32> dst_addr;
    bit<8>  protocol;
    bit<16> src_port;
    bit<16> dst_port;
    port_t  ingress_port;
    port_t  egress_port;
    bit<12> outer_vid;
    bit<12> inner_vid;
}

struct flow_ipv6_digest_t {
    bit<128> src_addr;
    bit<128> dst_addr;
    bit<8>   protocol;
    bit<16>  src_port;
    bit<16>  dst_port;
    port_t   ingress_port;
    port_t   egress_port;
    bit<12>  outer_vid;
    bit<12>  inner_vid;
}

#endif
