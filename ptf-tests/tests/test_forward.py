# SPDX-License-Identifier: Apache-2.0
"""forward and prune: destination MAC to port, or every port but the one it came from."""

from scapy.layers.inet import ICMP
from scapy.layers.l2 import LLC, SNAP, Dot1AD, Dot1Q, Dot3

from accesspoint.ptf_tests.lib.base import (
    OTHER_STATION,
    PORTS,
    SLOW,
    STATION,
    UNTAGGED,
    UPLINK,
    AccessPointTest,
    HostsTest,
    entry,
    forward_entry,
)
from accesspoint.ptf_tests.lib.packets import BROADCAST, build_arp, build_ethernet, build_ip, build_tcp, build_udp, mac


class UnicastLeavesOnePort(HostsTest):
    """A frame to a known destination leaves its port alone."""

    def runTest(self) -> None:
        for source in PORTS:
            for target in PORTS:
                if source != target:
                    self.send(source, build_udp(source, target))
                    self.expect(target, build_udp(source, target))
        self.expect_nothing()


class HairpinIsDropped(HostsTest):
    """A frame to a destination behind its own port goes nowhere and counts nowhere."""

    def runTest(self) -> None:
        self.insert(forward_entry(7, STATION))
        self.send_and_expect_drop(STATION, build_udp(STATION, 7))
        self.expect_counts(STATION)


class UnknownDestinationIsFlooded(AccessPointTest):
    """A frame to an unknown destination leaves every port but its own."""

    def runTest(self) -> None:
        self.add_flood_group()
        for source in PORTS:
            others = tuple(port for port in PORTS if port != source)
            self.send_and_expect(source, build_udp(source, 9), others)


class GroupDestinationIsFlooded(HostsTest):
    """Broadcast and multicast leave every port but their own; no class of a port counts them."""

    def runTest(self) -> None:
        self.add_flood_group()
        for group in (BROADCAST, "01:00:5e:00:00:fb", "33:33:00:00:00:01"):
            self.send_and_expect(STATION, build_arp(STATION, UPLINK, dst=group), (OTHER_STATION, UPLINK, SLOW))
        for port in (0, *PORTS):
            self.expect_counts(port)


class FloodCanBeAnEntry(HostsTest):
    """An entry can flood what would be unicast."""

    def runTest(self) -> None:
        self.add_flood_group()
        self.modify(entry("forward", {"dst_addr": mac(UPLINK)} | UNTAGGED, "flood"))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), (OTHER_STATION, UPLINK, SLOW))


class FloodWithoutGroupGoesNowhere(AccessPointTest):
    """Before the controller has made the group a flood is dropped."""

    def runTest(self) -> None:
        self.send_and_expect_drop(STATION, build_udp(STATION, UPLINK))


class AbsentPortGoesNowhere(HostsTest):
    """A frame to a port without interface is dropped; others are not disturbed."""

    def runTest(self) -> None:
        self.insert(forward_entry(9, 9))
        self.send_and_expect_drop(STATION, build_udp(STATION, 9))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)


class EveryKindOfFrameIsForwarded(HostsTest):
    """Frames that the program does not read pass unchanged."""

    def runTest(self) -> None:
        ethernet = build_ethernet(STATION, UPLINK)
        datagram = build_udp(STATION, UPLINK, size=200).payload
        self.insert(
            forward_entry(UPLINK, UPLINK, outer_vid=42), forward_entry(UPLINK, UPLINK, outer_vid=7, inner_vid=42)
        )
        for frame in (
            build_arp(STATION, UPLINK),
            ethernet / Dot1Q(vlan=42, prio=5) / datagram,
            ethernet / Dot1AD(vlan=7) / Dot1Q(vlan=42) / datagram,
            build_ethernet(STATION, UPLINK, type=0x88CC) / bytes(46),
            build_ethernet(STATION, UPLINK, type=0x8847) / bytes.fromhex("00010140") / datagram,
            build_ethernet(STATION, UPLINK, type=0x888E) / bytes(100),
            build_ethernet(STATION, UPLINK, type=0xFFFF) / bytes(100),
            Dot3(src=mac(STATION), dst=mac(UPLINK)) / LLC() / SNAP() / bytes(40),
            build_ip(STATION, UPLINK) / ICMP() / bytes(56),
            build_ip(STATION, UPLINK, version=6, nh=58) / bytes.fromhex("8000000000010001") / bytes(48),
            build_ip(STATION, UPLINK, proto=132) / bytes(60),
            build_udp(STATION, UPLINK),
            build_tcp(STATION, UPLINK, flags="S"),
        ):
            self.send(STATION, frame)
            self.expect(UPLINK, frame)
        self.expect_nothing()


class EverySizeIsForwarded(HostsTest):
    """From a bare Ethernet header to a jumbo frame, bit by bit."""

    def runTest(self) -> None:
        header = bytes(build_ethernet(STATION, UPLINK, type=0x88B5))
        for size in (14, 15, 59, 60, 64, 1514, 1518, 4000, 9000, 9014):
            frame = header + bytes(index * 7 & 0xFF for index in range(size - len(header)))
            self.send(STATION, frame)
            self.expect(UPLINK, frame)
        for size in (60, 1514, 9014):
            for version in (4, 6):
                packet = build_udp(STATION, UPLINK, size=size, version=version)
                self.send(STATION, packet)
                self.expect(UPLINK, packet)
        self.expect_nothing()
