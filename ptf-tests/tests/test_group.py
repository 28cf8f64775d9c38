# SPDX-License-Identifier: Apache-2.0
"""Group traffic, control packets and what is of no flow: classified, metered, counted, and never out of order."""

import time
from collections.abc import Sequence
from functools import partial

from scapy.layers.inet import UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
)
from scapy.layers.l2 import Dot1Q
from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import (
    ALWAYS,
    DEMOTE_HOLD,
    GROUP_PORT,
    OTHER_STATION,
    SLOW,
    STATION,
    UPLINK,
    HostsTest,
    class_entry,
    forward_entry,
    meter_config,
    poll,
)
from accesspoint.ptf_tests.lib.packets import (
    BROADCAST,
    CE,
    ECT0,
    build_arp,
    build_ethernet,
    build_ip,
    build_udp,
    set_ecn,
)
from accesspoint.ptf_tests.tests.test_mark import port_feedback

CONTROL, OTHER = 3, 4  # classes
ENDS = ("arrived", "dropped")  # counters of what becomes of a packet
MULTICAST = "01:00:5e:00:00:09"


def build_opaque(source: int, target: int, size: int = 60, **fields: str) -> Packet:
    """A frame of a type that the program does not read."""
    return build_ethernet(source, target, type=0x88B5, **fields) / bytes(size - 14)


class GroupTest(HostsTest):
    """A group test: what has no known egress port is flooded."""

    def prepare(self) -> None:
        super().prepare()
        self.add_flood_group()


class GroupTrafficIsClassified(GroupTest):
    """Multicast, broadcast and unknown unicast get class and queue, under a port number of their own."""

    def runTest(self) -> None:
        self.insert(class_entry(CONTROL, queue=4, control=1), class_entry(OTHER, queue=2, dscp=46))
        others = (OTHER_STATION, UPLINK, SLOW)
        arp = build_arp(STATION, UPLINK, dst=BROADCAST)
        unknown = build_udp(STATION, 9, dscp=46)
        multicast = build_udp(STATION, UPLINK)
        multicast.dst = MULTICAST
        for frame in (arp, unknown, multicast):
            self.send_and_expect(STATION, frame, others)
        self.expect_queued(GROUP_PORT, {4: 1, 2: 1, 0: 1})
        for class_id, frame in ((CONTROL, arp), (OTHER, unknown), (0, multicast)):
            self.expect_counts(GROUP_PORT, class_id, arrived=(1, len(frame)))
        for port in others:
            self.expect_counts(port)
            self.expect_queued(port, {})


class GroupTrafficIsCountedByPort(GroupTest):
    """A frame to the group enters the queues of all other ports and is counted when it leaves them."""

    def runTest(self) -> None:
        self.send_and_expect(STATION, build_udp(STATION, 9, size=300), (OTHER_STATION, UPLINK, SLOW))
        self.send_and_expect(UPLINK, build_udp(UPLINK, 9, size=200), (STATION, OTHER_STATION, SLOW))
        self.expect_group(
            arrived={STATION: (1, 300), UPLINK: (1, 200)},
            sent={STATION: (1, 200), OTHER_STATION: (2, 500), UPLINK: (1, 300), SLOW: (2, 500)},
        )
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_counts(UPLINK, arrived=1, sent=1)
        self.expect_group(
            arrived={STATION: (1, 300), UPLINK: (1, 200)},
            sent={STATION: (1, 200), OTHER_STATION: (2, 500), UPLINK: (1, 300), SLOW: (2, 500)},
        )


class GroupQueueIsTheDifference(GroupTest):
    """A port's queue is the frames that came in through other ports and have not left: it falls with each that does."""

    def runTest(self) -> None:
        self.insert(class_entry(0))
        frames = [build_udp(STATION, 9, size=1000, sport=number) for number in range(4)]
        self.send(STATION, *frames)
        self.expect(SLOW, *frames)
        self.expect_group(
            arrived={STATION: (4, 4000)}, sent={OTHER_STATION: (4, 4000), UPLINK: (4, 4000), SLOW: (4, 4000)}
        )
        self.expect(UPLINK, *frames)
        self.expect(OTHER_STATION, *frames)
        self.expect_nothing()


class GroupTrafficIsMetered(GroupTest):
    """Above the rate of its queue group traffic waits with the bulk, whatever single ports may take."""

    def runTest(self) -> None:
        self.insert(class_entry(CONTROL, queue=4, control=1))
        arp = build_arp(STATION, UPLINK, dst=BROADCAST)
        self.set_queue_meter(GROUP_PORT, 4, meter_config(1, len(arp) + 1))
        for _ in range(3):
            self.send_and_expect(STATION, arp, (OTHER_STATION, UPLINK, SLOW))
        self.expect_queued(GROUP_PORT, {4: 1, 0: 2})
        self.send_and_expect(STATION, build_arp(STATION, UPLINK), UPLINK)
        self.expect_queued(UPLINK, {4: 1})


class ControlOvertakesBulk(GroupTest):
    """On a busy port a broadcast ARP request leaves before the data that waited when it came."""

    def runTest(self) -> None:
        self.insert(class_entry(CONTROL, queue=4, control=1))
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(4)]
        arp = build_arp(STATION, SLOW, dst=BROADCAST)
        self.send(STATION, *bulk, arp)
        left = [self.receive(SLOW) for _ in range(5)]
        self.assertEqual([frame for frame in left if frame != bytes(arp)], [bytes(frame) for frame in bulk])
        self.assertIn(bytes(arp), left[:3])


class ControlIsKnown(HostsTest):
    """ARP, EAPOL, 802.11's own, PTP, PPPoE discovery, what PPP negotiates, ND, DHCP and mDNS; tagged, too."""

    def runTest(self) -> None:
        self.insert(
            class_entry(CONTROL, control=1), class_entry(OTHER, control=0), forward_entry(UPLINK, UPLINK, outer_vid=5)
        )
        self.insert(forward_entry(UPLINK, UPLINK, outer_vid=6, inner_vid=5))

        def udp(version: int, sport: int, dport: int) -> Packet:
            return build_ip(STATION, UPLINK, version=version) / UDP(sport=sport, dport=dport) / bytes(40)

        def icmpv6(message: Packet) -> Packet:
            return build_ip(STATION, UPLINK, version=6, nh=58) / message

        session = b"\x11\0\0\1\0\x0a"
        control = [
            build_arp(STATION, UPLINK),
            *(
                build_ethernet(STATION, UPLINK, type=kind) / bytes(46)
                for kind in (0x888E, 0x88C7, 0x890D, 0x88F7, 0x8863)
            ),
            build_ethernet(STATION, UPLINK, type=0x8864) / (session + b"\xc0\x21" + bytes(40)),
            build_ethernet(STATION, UPLINK, type=0x8864) / (session + b"\x80\x57" + bytes(40)),
            *(icmpv6(kind()) for kind in (ICMPv6ND_RS, ICMPv6ND_RA, ICMPv6ND_NS, ICMPv6ND_NA, ICMPv6ND_Redirect)),
            *(udp(4, *ports) for ports in ((68, 67), (67, 68), (67, 67), (5353, 5353), (40000, 5353))),
            *(udp(6, *ports) for ports in ((546, 547), (547, 546), (547, 547), (5353, 5353))),
        ]
        other = [
            build_opaque(STATION, UPLINK),
            build_ethernet(STATION, UPLINK, type=0x8864) / (session + b"\0\x21" + bytes(40)),
            icmpv6(ICMPv6EchoRequest()),
            *(udp(4, *ports) for ports in ((68, 53), (1111, 67), (5353, 2222), (547, 548))),
        ]
        for class_id, frames in ((CONTROL, control), (OTHER, other)):
            for frame in frames:
                tagged = build_ethernet(STATION, UPLINK) / Dot1Q(vlan=5, type=frame.type) / bytes(frame)[14:]
                with self.subTest(class_id=class_id, frame=frame.summary()):
                    self.reset_counts()
                    twice = build_ethernet(STATION, UPLINK) / Dot1Q(vlan=6, type=0x8100) / bytes(tagged)[14:]
                    for sent in (frame, tagged, twice):
                        self.send(STATION, sent)
                        self.expect(UPLINK, sent)
                    self.expect_counts(UPLINK, class_id, arrived=3, sent=3)
        self.expect_nothing()


class BridgesAddressesAreNotForwarded(GroupTest):
    """01:80:C2:00:00:01 to 0F go nowhere (IEEE 802.1Q, 8.6.3), with an entry or without; their neighbours do."""

    def runTest(self) -> None:
        for last in (0x01, 0x02, 0x03, 0x0E, 0x0F):
            self.send_and_expect_drop(STATION, build_opaque(STATION, UPLINK, dst=f"01:80:c2:00:00:{last:02x}"))
        self.expect_group({}, {})
        for group in ("01:80:c2:00:00:10", "01:80:c2:00:01:00", "01:80:c3:00:00:00"):
            self.send_and_expect(STATION, build_opaque(STATION, UPLINK, dst=group), (OTHER_STATION, UPLINK, SLOW))


class SpanningTreePassesThrough(GroupTest):
    """BPDUs are flooded, as control, for the access point takes part in no spanning tree: a loop through it is seen."""

    def runTest(self) -> None:
        self.insert(class_entry(CONTROL, queue=4, control=1))
        bpdu = build_opaque(STATION, UPLINK, dst="01:80:c2:00:00:00")
        self.send_and_expect(STATION, bpdu, (OTHER_STATION, UPLINK, SLOW))
        self.expect_queued(GROUP_PORT, {4: 1})


class KeysOfAStationAreNotFlooded(GroupTest):
    """EAPOL to an address that nobody learned goes nowhere; to one that is known, or to a group, it goes as ever."""

    def runTest(self) -> None:
        for tags in (b"", b"\x81\x00\x00\x05"):
            for address, ports in (
                ("02:aa:aa:aa:aa:aa", ()),
                ("01:00:5e:00:00:09", (OTHER_STATION, UPLINK, SLOW)),
                *(() if tags else ((None, (UPLINK,)),)),
            ):
                named = {} if address is None else {"dst": address}
                head = bytes(build_ethernet(STATION, UPLINK, type=0x888E, **named))
                self.send_and_expect(STATION, head[:12] + tags + head[12:] + bytes(46), ports)


class WhatIsOfNoFlowIsNotSplit(HostsTest):
    """One packet above the meter sends all that is of no known flow to the bulk until the hold has passed."""

    def send_each(self, *packets: Packet) -> None:
        """Send packets and see them arrive."""
        for packet in packets:
            self.send(STATION, packet)
            self.expect(UPLINK, packet)

    def runTest(self) -> None:
        self.insert(
            class_entry(OTHER, queue=1, control=0, regulated=0),
            class_entry(CONTROL, queue=1, priority=2, control=1, regulated=0),
        )
        opaque, unknown = build_opaque(STATION, UPLINK), build_udp(STATION, UPLINK, size=60)
        for first, others in ((opaque, (unknown,)), (unknown, (opaque, build_udp(STATION, UPLINK, sport=7, size=60)))):
            self.assertTrue(poll(partial(self.try_hold, first, others)))
        self.expect_nothing()

    def try_hold(self, first: Packet, others: Sequence[Packet]) -> bool:
        """Send `first` above the meter, and all after it. False, with nothing judged, where the machine stood still
        for so long that the hold may have passed."""
        self.reset_counts()
        self.set_queue_meter(UPLINK, 1, meter_config(1, len(first) + 1))
        began = time.monotonic()
        self.send_each(first, first)
        self.expect_queued(UPLINK, {1: 1, 0: 1})
        # The meter would take them again, but what is before them in the bulk is older.
        self.lift_queue_meter(UPLINK, 1)
        self.send_each(first, *others)
        held = time.monotonic() - began < DEMOTE_HOLD
        if held:
            self.expect_queued(UPLINK, {1: 1, 0: 2 + len(others)})
        self.send_each(build_arp(STATION, UPLINK))
        if held:
            self.expect_queued(UPLINK, {1: 2, 0: 2 + len(others)})
        time.sleep(DEMOTE_HOLD + 0.1)
        if held:
            self.send_each(first)
            self.expect_queued(UPLINK, {1: 3, 0: 2 + len(others)})
        return held


class WhatIsHeldIsRegulated(HostsTest):
    """A packet that waits with the bulk because others do has the bulk's feedback as well."""

    def runTest(self) -> None:
        self.insert(class_entry(OTHER, queue=3, regulated=0), *port_feedback(ALWAYS))
        self.assertTrue(poll(self.try_hold))

    def try_hold(self) -> bool:
        """Send packets above the meter, and after it. False, with nothing judged, where the machine stood still for so
        long that the hold may have passed."""
        packet = build_udp(STATION, UPLINK, ecn=ECT0)
        self.reset_counts()
        self.set_queue_meter(UPLINK, 3, meter_config(1, len(packet) + 1))
        self.send_and_expect(STATION, packet, UPLINK)
        # No silence between these, as the hold goes on.
        began = time.monotonic()
        self.send(STATION, packet)
        self.expect(UPLINK, set_ecn(packet, CE))
        self.lift_queue_meter(UPLINK, 3)
        self.send(STATION, build_opaque(STATION, UPLINK), packet)
        self.assertTrue(poll(lambda: sum(self.read_counts(UPLINK, OTHER)[name][0] for name in ENDS) == 4))
        if time.monotonic() - began >= DEMOTE_HOLD:
            counts = self.read_counts(UPLINK, OTHER)
            self.assertEqual([self.receive(UPLINK) for _ in range(counts["arrived"][0] - 2)].count(None), 0)
            time.sleep(DEMOTE_HOLD + 0.1)
            return False
        self.expect(UPLINK, set_ecn(packet, CE))
        self.expect_nothing()
        self.expect_counts(UPLINK, OTHER, arrived=3, sent=3, marked=2, dropped=1)
        return True


class OpaqueBulkKeepsItsOrder(HostsTest):
    """A burst of opaque frames above the meter of its queue leaves a busy port in order once the first waited."""

    def runTest(self) -> None:
        self.insert(class_entry(OTHER, queue=1, ip=0, regulated=0))
        self.set_queue_meter(SLOW, 1, meter_config(10_000, 1500))
        frames = [build_ethernet(STATION, SLOW, type=0x88B5) / bytes([number] * 486) for number in range(10)]
        for frame in frames:
            self.send(STATION, frame)
            time.sleep(0.02)  # the meter would take one again now and then
        self.assertTrue(poll(lambda: self.read_counts(SLOW, OTHER)["sent"][0] == 10))
        self.expect(SLOW, *frames)
        self.expect_nothing()
