// SPDX-License-Identifier: Apache-2.0
// Every number the control plane may rely on: P4Runtime ids, sizes, widths and well-known ports.
// Digests have no id here: p4c derives theirs from the struct's name.
// An id is never reused and never changes its meaning: controllers outlive programs.
#ifndef IDS_P4
#define IDS_P4

// Tables (P4Ids.Prefix 0x02)
#define TABLE_INGRESS_ROLES   0x02000001
#define TABLE_EGRESS_ROLES    0x02000002
#define TABLE_PUNT            0x02000003
#define TABLE_LEARN           0x02000004
#define TABLE_FORWARD         0x02000005
#define TABLE_FLOWS_IPV4      0x02000006
#define TABLE_FLOWS_IPV6      0x02000007
#define TABLE_PURE_ACK        0x02000008
#define TABLE_CLASSIFY        0x02000009
#define TABLE_MARK            0x0200000C
#define TABLE_ACK_PRIORITY    0x0200000D
#define TABLE_GATE            0x0200000E
#define TABLE_CLASS_FEEDBACK  0x0200000F   // 0x0200000A and 0x0200000B knew no ECN
#define TABLE_PORT_FEEDBACK   0x02000010
#define TABLE_STEP            0x02000011   // v1model

// Actions (0x01)
#define ACTION_SET_INGRESS_ROLE   0x01000001
#define ACTION_SET_EGRESS_ROLE    0x01000002
#define ACTION_SEND_TO_CPU        0x01000003
#define ACTION_COPY_TO_CPU        0x01000004
#define ACTION_KNOWN_SOURCE       0x01000005
#define ACTION_UNKNOWN_SOURCE     0x01000006
#define ACTION_FORWARD_TO         0x01000007
#define ACTION_FLOOD              0x01000008
#define ACTION_UNKNOWN_FLOW       0x0100000B
#define ACTION_PURE_ACK           0x0100000C
#define ACTION_SUPERSEDABLE_ACK   0x0100000D
#define ACTION_SET_CLASS          0x0100000E
#define ACTION_ADD_CLASS_FEEDBACK 0x0100000F
#define ACTION_ADD_PORT_FEEDBACK  0x01000010
#define ACTION_MARK_IPV6          0x01000013
#define ACTION_DROP_NOT_ECT       0x01000014
#define ACTION_PRIORITISE         0x01000015
#define ACTION_BATCH_GATE         0x01000016
#define ACTION_MARK_IPV4          0x01000017
#define ACTION_BATCH_WINDOW       0x01000018   // TNA
#define ACTION_SET_FLOW_IPV4      0x01000019   // 0x01000009 and 0x0100000A had no scalable_feedback
#define ACTION_SET_FLOW_IPV6      0x0100001A
#define ACTION_MARK_ABOVE         0x0100001B   // v1model
#define ACTION_CONNECTION_BOUNDARY 0x0100001C
#define ACTION_BARE_BOUNDARY 0x0100001D
#define ACTION_KNOWN_STATION 0x0100001E
#define ACTION_FORWARD_TO_STATION 0x0100001F
#define ACTION_ADD_PORT_FEEDBACK_ABOVE 0x01000020   // v1model

// Counters (0x12), direct counters (0x13), meters (0x14), direct meters (0x15), registers (0x16): v1model's; those of
// TNA have ids of p4c's own making, so a controller goes by the names in the P4Info.
#define COUNTER_ARRIVED        0x12000001
#define COUNTER_SENT           0x12000002
#define COUNTER_MARKED         0x12000003
#define COUNTER_DROPPED        0x12000004
#define COUNTER_REFUSED        0x12000005
#define COUNTER_FILTERED       0x12000006
#define COUNTER_QUEUED         0x12000007
#define COUNTER_GROUP_ARRIVED  0x12000008
#define COUNTER_GROUP_SENT     0x12000009
#define COUNTER_FLOWS_IPV4     0x13000001
#define COUNTER_FLOWS_IPV6     0x13000002
#define METER_QUEUE            0x14000001
#define METER_FLOWS_IPV4       0x15000001
#define METER_FLOWS_IPV6       0x15000002
#define REGISTER_GATE_ADMITTED 0x16000003
#define REGISTER_GATE_RELEASED 0x16000004
#define REGISTER_GATE_CLOSED   0x16000005
#define REGISTER_LAST_BUSY        0x1600000D   // 0x16000001 had no generation, and 32 bits of time
#define REGISTER_GATE_ADMITTED_AT 0x1600000E   // 0x16000006 and 0x16000007 had 32 bits of time
#define REGISTER_GATE_RELEASED_AT 0x1600000F
#define REGISTER_FILTERED_ACKS    0x16000010   // 0x16000008 had no generation
#define REGISTER_LAST_DEMOTED     0x16000011   // 0x16000009 had 32 bits of time
#define REGISTER_NEWEST_ACK       0x16000012   // 0x16000002 had no ECN flags and no run, 0x1600000A did not say whether it is known
#define REGISTER_SCALABLE_FLOW    0x16000013   // 0x1600000B and 0x1600000C had no generation
#define REGISTER_LAST_ABOVE       0x16000014
#define REGISTER_ACKS_ENTERED     0x16000015
#define REGISTER_ACKS_LEFT        0x16000016
#define REGISTER_OWN_ENTERED      0x16000017
#define REGISTER_OWN_LEFT         0x16000018
#define REGISTER_OWN_FIRST        0x16000019
#define REGISTER_WINDOW_SCALE     0x1600001A
#define REGISTER_LANE_DEPTH       0x1600001B

// Sizes
#define PORTS_SIZE     512     // every value of a 9-bit port
#define STATIONS_SIZE  4096    // MAC addresses behind the access point
#define FLOWS_SIZE     65536   // flow indices; also IPv4 flows
#define CLASSIFY_SIZE  256
#define PUNT_SIZE      64
#define CLASSES_SIZE   4096    // port x class, also port x queue
#define ECN_SIZE       4       // every value of the ECN field
#define SCALES_SIZE    65536   // connections whose window scale is remembered
#define LANES_SIZE     65536   // port x lane

// Well-known values; CPU_PORT and FLOWS_IPV6_SIZE are the architecture's (its externs.p4).
const bit<16> FLOOD_GROUP = 1;        // multicast group with every port of the access point
const bit<9> GROUP_PORT = 511;        // in place of an egress port: group traffic, and what else is flooded
#define CPU_CLONE_SESSION 1           // clone session with the CPU port
#define FLOW_CLASS_THINNED 7          // asked for by a flow that goes ahead and loses what it asks for above its share

typedef bit<9>  port_t;
typedef bit<48> mac_t;
typedef bit<3>  class_t;
typedef bit<3>  queue_t;      // 7 is served first
typedef bit<7>  lane_t;       // a part of queue 0, which shares with the others by weight; 0: none
typedef bit<16> weight_t;
typedef bit<32> rate_t;       // kbit/s; 0: unlimited
typedef bit<16> feedback_t;   // a probability: 0 never, 65535 always
const feedback_t FEEDBACK_ALWAYS = 65535;
typedef bit<16> flow_index_t;

// What is behind a port: 0 nothing known, 1 stations, 2 the uplink, 3 a radio: stations that hear each other only through
// the access point.
typedef bit<2> role_t;
const role_t ROLE_STATION = 1;
const role_t ROLE_UPLINK = 2;
const role_t ROLE_RADIO = 3;

// Which way a packet goes: 0 local, 1 uplink, 2 downlink.
typedef bit<2> direction_t;
const direction_t DIRECTION_UPLINK = 1;
const direction_t DIRECTION_DOWNLINK = 2;

// What the controller is told of a packet; a packet causes one digest at most.
typedef bit<3> report_t;
const report_t REPORT_NONE = 0;
const report_t REPORT_SOURCE = 1;
const report_t REPORT_FLOW_IPV4 = 2;
const report_t REPORT_FLOW_IPV6 = 3;

#endif
