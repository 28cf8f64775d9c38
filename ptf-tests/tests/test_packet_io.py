# SPDX-License-Identifier: Apache-2.0
"""packet_io: packets from the controller to the wire and back."""

from finsy import P4TableEntry
from scapy.layers.inet import ICMP
from scapy.layers.l2 import Ether

from accesspoint.ptf_tests.lib.base import (
    OTHER_STATION,
    PATIENCE,
    PORTS,
    STATION,
    UPLINK,
    AccessPointTest,
    HostsTest,
    cpu_session,
    entry,
)
from accesspoint.ptf_tests.lib.packets import BROADCAST, build_arp, build_ip, build_tcp, build_udp, mac
from accesspoint.ptf_tests.tests.test_mark import port_feedback


def punt_entry(action: str, *, priority: int = 1, **match: int | str) -> P4TableEntry:
    """A punt entry: `ether_type=0x0806`, `protocol=17, dst_port=53`, ..."""
    return entry("punt", match, action, priority=priority)


class PuntSendsToController(HostsTest):
    """A punted packet reaches the controller alone: unknown to every later stage, counted nowhere."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(punt_entry("send_to_cpu", ether_type=0x0806))
        self.subscribe("source_digest_t")

    def runTest(self) -> None:
        request = build_arp(STATION, UPLINK)
        self.send(STATION, request)
        self.expect_packet_in(request, STATION)
        self.expect_nothing()
        self.expect_no_packet_in()
        self.expect_no_digest()
        self.expect_counts(UPLINK)


class PuntSelectsPackets(HostsTest):
    """Each part of the key selects; what does not match goes its way."""

    def runTest(self) -> None:
        udp = build_udp(STATION, UPLINK, dport=53)
        for match, port, to, other in (
            ({"ingress_port": STATION}, OTHER_STATION, UPLINK, udp),
            ({"dst_addr": mac(UPLINK)}, STATION, OTHER_STATION, build_udp(STATION, OTHER_STATION, dport=53)),
            ({"ether_type": 0x0800}, STATION, UPLINK, build_udp(STATION, UPLINK, dport=53, version=6)),
            ({"protocol": 17}, STATION, UPLINK, build_tcp(STATION, UPLINK, dport=53)),
            ({"protocol": 17, "dst_port": 53}, STATION, UPLINK, build_udp(STATION, UPLINK, dport=54)),
        ):
            punt = punt_entry("send_to_cpu", **match)
            self.insert(punt)
            self.send(STATION, udp)
            self.expect_packet_in(udp, STATION)
            self.expect_nothing()
            self.send_and_expect(port, other, to)
            self.expect_no_packet_in()
            self.delete(punt)


class PuntCopiesToController(HostsTest):
    """A copied packet is forwarded as without the copy; the controller gets it as it came."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(cpu_session(), punt_entry("copy_to_cpu", protocol=1))

    def runTest(self) -> None:
        echo = build_ip(OTHER_STATION, UPLINK) / ICMP() / bytes(40)
        self.send(OTHER_STATION, echo)
        self.expect_packet_in(echo, OTHER_STATION)
        self.expect(UPLINK, echo)
        self.expect_nothing()
        self.expect_counts(UPLINK, arrived=(1, len(echo)), sent=(1, len(echo)))


class PuntCopiesFlood(AccessPointTest):
    """A flooded packet can be copied too."""

    def runTest(self) -> None:
        self.add_flood_group()
        self.insert(cpu_session(), punt_entry("copy_to_cpu", ether_type=0x0806))
        request = build_arp(STATION, UPLINK, dst=BROADCAST)
        self.send(STATION, request)
        self.expect_packet_in(request, STATION)
        for port in PORTS:
            if port != STATION:
                self.expect(port, request)
        self.expect_nothing()


class PuntFollowsPriority(HostsTest):
    """The matching entry of higher priority acts."""

    def runTest(self) -> None:
        self.insert(
            cpu_session(),
            punt_entry("send_to_cpu", priority=1),
            punt_entry("copy_to_cpu", priority=2, protocol=17),
        )
        udp, tcp = build_udp(STATION, UPLINK), build_tcp(STATION, UPLINK)
        self.send_and_expect(STATION, udp, UPLINK)
        self.expect_packet_in(udp, STATION)
        self.send_and_expect_drop(STATION, tcp)
        self.expect_packet_in(tcp, STATION)


class PacketOutLeavesItsPort(AccessPointTest):
    """A packet-out leaves the port that it names, untouched, whatever the tables say."""

    def runTest(self) -> None:
        self.add_hosts()
        for port in PORTS:
            for packet in (
                build_udp(UPLINK, STATION, ecn=2),
                build_udp(STATION, OTHER_STATION, version=6, size=1500),
                Ether(src=mac(9), dst=mac(port), type=0x88CC) / bytes(46),
            ):
                self.send_out(packet, port)
                self.expect(port, packet)
        self.expect_nothing()


class PacketOutIsNotSeen(HostsTest):
    """No stage sees a packet-out: it is not learnt, marked or counted."""

    def runTest(self) -> None:
        self.subscribe("source_digest_t", "flow_ipv4_digest_t")
        self.insert(*port_feedback(65535))
        packet = build_udp(STATION, UPLINK, ecn=2)
        self.send_out(packet, UPLINK)
        self.expect(UPLINK, packet)
        self.expect_nothing()
        self.expect_no_digest()
        self.expect_counts(UPLINK)


class PacketOutTooShortForEthernet(AccessPointTest):
    """A packet-out that is no Ethernet frame does no harm."""

    def runTest(self) -> None:
        for size in (1, 5, 13):
            self.send_out(bytes(size), STATION)
        packet = build_udp(UPLINK, STATION)
        self.send_out(packet, STATION)
        self.expect(STATION, packet)
        self.expect_nothing()


class PuntedPacketGoesOutAgain(HostsTest):
    """A punted packet goes out again unchanged: the controller can answer for the network."""

    def runTest(self) -> None:
        self.insert(punt_entry("send_to_cpu", ingress_port=STATION))
        packet = build_tcp(STATION, UPLINK, size=600, ecn=1)
        self.send(STATION, packet)
        received = self.p4.receive("packet", PATIENCE)
        self.send_out(received.payload, OTHER_STATION)
        self.expect(OTHER_STATION, packet)
        self.expect_nothing()
