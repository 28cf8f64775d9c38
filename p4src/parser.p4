// SPDX-License-Identifier: Apache-2.0
// From bytes to headers, the same for every architecture; the architecture's own parser calls it.
//
//   (packet_out) - ethernet - (one tag or two) - (pppoe) -+- ipv4 -+- tcp - (first option word)
//                                                         +- ipv6 -+- udp
//                                                         +- anything else: payload
//
// What a tag or PPPoE carries is read as if it were untagged. What keeps the network itself going is `control`: ARP,
// neighbour and router discovery, DHCP, mDNS, 802.1X, what 802.11 carries in Ethernet frames, PTP, and what PPP negotiates.
// Neither IP nor control: opaque.
//
// A transport header is parsed only where it is certainly one: not in a fragment, not behind IP options or
// IPv6 extension headers. Such packets keep port numbers 0 and are classified by addresses, protocol and DSCP.
// What is cut short keeps the headers that were whole.
#ifndef PARSER_P4
#define PARSER_P4

#include "headers.p4"

parser FrameParser(packet_in packet, out headers_t hdr, inout metadata_t meta, in port_t ingress_port) {
    state start {
        transition select(ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_CTAG: parse_outer_tag;
            ETHERTYPE_STAG: parse_outer_tag;
            ETHERTYPE_QINQ: parse_outer_tag;
            ETHERTYPE_QINQ_OTHER: parse_outer_tag;
            ETHERTYPE_IPV4: check_ipv4;
            ETHERTYPE_IPV6: check_ipv6;
            ETHERTYPE_PPPOE_SESSION: parse_pppoe;
            ETHERTYPE_ARP: mark_control;
            ETHERTYPE_PPPOE_DISCOVERY: mark_control;
            ETHERTYPE_PREAUTHENTICATION: mark_control;
            ETHERTYPE_WLAN: mark_control;
            ETHERTYPE_PTP: mark_control;
            ETHERTYPE_EAPOL: mark_eapol;
            default: accept;
        }
    }

    state parse_outer_tag {
        packet.extract(hdr.outer_tag);
        meta.outer_vid = hdr.outer_tag.vid;
        transition select(hdr.outer_tag.ether_type) {
            ETHERTYPE_CTAG: parse_inner_tag;
            ETHERTYPE_STAG: parse_inner_tag;
            ETHERTYPE_QINQ: parse_inner_tag;
            ETHERTYPE_QINQ_OTHER: parse_inner_tag;
            ETHERTYPE_IPV4: check_ipv4;
            ETHERTYPE_IPV6: check_ipv6;
            ETHERTYPE_PPPOE_SESSION: parse_pppoe;
            ETHERTYPE_ARP: mark_control;
            ETHERTYPE_PPPOE_DISCOVERY: mark_control;
            ETHERTYPE_PREAUTHENTICATION: mark_control;
            ETHERTYPE_WLAN: mark_control;
            ETHERTYPE_PTP: mark_control;
            ETHERTYPE_EAPOL: mark_eapol;
            default: accept;
        }
    }

    state parse_inner_tag {
        packet.extract(hdr.inner_tag);
        meta.inner_vid = hdr.inner_tag.vid;
        transition select(hdr.inner_tag.ether_type) {
            ETHERTYPE_IPV4: check_ipv4;
            ETHERTYPE_IPV6: check_ipv6;
            ETHERTYPE_PPPOE_SESSION: parse_pppoe;
            ETHERTYPE_ARP: mark_control;
            ETHERTYPE_PPPOE_DISCOVERY: mark_control;
            ETHERTYPE_PREAUTHENTICATION: mark_control;
            ETHERTYPE_WLAN: mark_control;
            ETHERTYPE_PTP: mark_control;
            ETHERTYPE_EAPOL: mark_eapol;
            default: accept;
        }
    }

    // Version 1, type 1, code 0: data of a session. PPP's own protocols have the first bit set (RFC 1661, section 2).
    state parse_pppoe {
        packet.extract(hdr.pppoe);
        transition select(hdr.pppoe.version_type, hdr.pppoe.code, hdr.pppoe.protocol) {
            (0x11, 0, PPP_IPV4): check_ipv4;
            (0x11, 0, PPP_IPV6): check_ipv6;
            (0x11, 0, 0x8000 &&& 0x8000): mark_control;
            default: accept;
        }
    }

    // For the neighbour's own ears (IEEE 802.1X, 11.1.1): keys of one station's are not flooded to all.
    state mark_eapol {
        meta.never_flooded = 1;
        transition mark_control;
    }

    state mark_control {
        meta.is_control = 1;
        transition accept;
    }

    // A wrong version or a header length below 20 bytes: not an IPv4 header, so nothing may be rewritten in it.
    state check_ipv4 {
        transition select(packet.lookahead<bit<8>>()) {
            0x45: parse_ipv4;
            0x46 &&& 0xFE: parse_ipv4_with_options;
            0x48 &&& 0xF8: parse_ipv4_with_options;
            default: accept;
        }
    }

    state parse_ipv4_with_options {
        packet.extract(hdr.ipv4);
        meta.ip = 1;
        meta.protocol = hdr.ipv4.protocol;
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        meta.ip = 1;
        meta.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_TCP): parse_tcp;
            (0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state check_ipv6 {
        transition select(packet.lookahead<bit<4>>()) {
            6: parse_ipv6;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        meta.ip = 1;
        meta.protocol = hdr.ipv6.next_header;
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_TCP: parse_tcp;
            PROTOCOL_UDP: parse_udp;
            PROTOCOL_ICMPV6: check_icmpv6;
            default: accept;
        }
    }

    // Solicitations and advertisements of routers and neighbours, and redirects (RFC 4861).
    state check_icmpv6 {
        transition select(packet.lookahead<bit<8>>()) {
            133: mark_control;
            134: mark_control;
            135: mark_control;
            136: mark_control;
            137: mark_control;
            default: accept;
        }
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        meta.src_port = hdr.tcp.src_port;
        meta.dst_port = hdr.tcp.dst_port;
#ifdef READS_WINDOW_SCALE
        transition select(hdr.tcp.flags, hdr.tcp.data_offset) {
            (TCP_SYN &&& TCP_SYN, 7 &&& 0xF): parse_syn_options;
            (TCP_SYN &&& TCP_SYN, 8 &&& 0x8): parse_syn_options;
            (_, 8): parse_tcp_option_word;
            default: accept;
        }
    }

    state parse_syn_options {
        packet.extract(hdr.syn_options);
        transition select(hdr.tcp.data_offset) {
            7: accept;
            default: parse_syn_option;
        }
    }

    state parse_syn_option {
        packet.extract(hdr.syn_option);
        transition select(hdr.tcp.data_offset) {
            8: accept;
            9: accept;
            default: parse_syn_options_end;
        }
    }

    state parse_syn_options_end {
        packet.extract(hdr.syn_options_end);
        transition accept;
    }
#else
        transition select(hdr.tcp.data_offset) {
            8: parse_tcp_option_word;
            default: accept;
        }
    }
#endif

    state parse_tcp_option_word {
        packet.extract(hdr.tcp_option_word);
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.src_port, hdr.udp.dst_port) {
            (68, 67): mark_control;     // DHCP: client to server, back, from a relay
            (67, 68): mark_control;
            (67, 67): mark_control;
            (546, 547): mark_control;   // DHCPv6
            (547, 546): mark_control;
            (547, 547): mark_control;
            (_, 5353): mark_control;    // mDNS
            default: accept;
        }
    }
}

#endif
