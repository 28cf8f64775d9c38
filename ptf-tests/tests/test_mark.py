# SPDX-License-Identifier: Apache-2.0
"""mark: feedback sets CE, or drops what is not ECN-capable, with exactly the probability that was asked for."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from math import sqrt

from finsy import P4TableEntry
from scapy.layers.inet import ICMP, IP, TCP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6ExtHdrFragment
from scapy.packet import Packet, Raw

from accesspoint.ptf_tests.lib.base import ALWAYS, OTHER_STATION, STATION, UPLINK, HostsTest, class_entry, entry
from accesspoint.ptf_tests.lib.packets import (
    CE,
    ECT0,
    ECT1,
    NOT_ECT,
    build_ack,
    build_arp,
    build_ethernet,
    build_ip,
    build_tcp,
    build_udp,
    set_ecn,
)
from accesspoint.ptf_tests.model.policy import THINNED
from accesspoint.ptf_tests.tests.test_flows import flow_entry

KINDS = (NOT_ECT, ECT1, ECT0)
PIECE = 200  # packets; the socket that receives them holds so many, however late they are fetched


def port_feedback(
    feedback: int, port: int = UPLINK, ecn: Iterable[int] = KINDS, depth: int | None = None
) -> list[P4TableEntry]:
    """Entries that mark a port's egress packets of these codepoints with this probability (65535 = always).

    depth: packets from which on they mark the bulk of a lane.
    """
    action = "add_port_feedback" if depth is None else "add_port_feedback_above"
    parameters = {"feedback": feedback} if depth is None else {"feedback": feedback, "depth": depth}
    return [entry("port_feedback", {"egress_port": port, "ecn": kind}, action, **parameters) for kind in ecn]


def class_feedback(
    feedback: int, class_id: int = 0, mark_only: int = 0, port: int = UPLINK, ecn: Iterable[int] = KINDS
) -> list[P4TableEntry]:
    """Entries that mark a class's egress packets of these codepoints with this probability; `mark_only`: never drop."""
    match = {"egress_port": port, "class_id": class_id}
    action = {"feedback": feedback, "mark_only": mark_only}
    return [entry("class_feedback", {**match, "ecn": kind}, "add_class_feedback", **action) for kind in ecn]


class EctBecomesCe(HostsTest):
    """ECT(0) and ECT(1) become CE, the header checksum stays right, nothing else changes."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS))
        for version in (4, 6):
            self.reset_counts()
            packets = [
                build(STATION, UPLINK, ecn=ecn, version=version, dscp=dscp)
                for build in (build_udp, build_tcp)
                for ecn in (ECT0, ECT1)
                for dscp in (0, 46, 63)
            ]
            for packet in packets:
                self.send(STATION, packet)
                self.expect(UPLINK, set_ecn(packet, CE))
            size = sum(map(len, packets))
            self.expect_counts(UPLINK, arrived=(12, size), sent=(12, size), marked=(12, size))
        self.expect_nothing()


class ChecksumWrapsRight(HostsTest):
    """The updated IPv4 checksum is the recomputed one, also where the sum wraps (RFC 1624, section 3)."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS))
        for ecn in (ECT0, ECT1):
            for checksum in (0x0000, 0x0001, 0x0002, 0x0003, 0x00FF, 0x0100, 0x7FFF, 0x8000, 0xFFFD, 0xFFFE):
                packet = build_udp(STATION, UPLINK, ecn=ecn, id=1)
                base = IP(bytes(packet)[14:34]).chksum
                # One's complement: the sum grows by what the checksum shall shrink.
                packet = build_udp(STATION, UPLINK, ecn=ecn, id=(1 + base - checksum) % 0xFFFF)
                self.assertEqual(IP(bytes(packet)[14:34]).chksum, checksum)
                self.send(STATION, packet)
                self.expect(UPLINK, set_ecn(packet, CE))
        self.expect_nothing()


class WrongChecksumStaysWrong(HostsTest):
    """A damaged header is not made good: its receiver still sees the damage."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS))
        good = build_udp(STATION, UPLINK, ecn=ECT0, id=77)
        right, marked = IP(bytes(good)[14:34]).chksum, IP(set_ecn(good, CE)[14:34]).chksum
        damaged = build_udp(STATION, UPLINK, ecn=ECT0, id=77, chksum=right ^ 0x1000)
        self.assertEqual(right - marked, 1)
        expected = build_udp(STATION, UPLINK, ecn=CE, id=77, chksum=(right ^ 0x1000) - 1)
        self.send_and_expect(STATION, damaged, UPLINK, expected=expected)


class CeStaysCe(HostsTest):
    """A packet that carries CE is forwarded unchanged and does not count as marked."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS))
        for version in (4, 6):
            self.send_and_expect(STATION, build_udp(STATION, UPLINK, ecn=CE, version=version), UPLINK)
        self.expect_counts(UPLINK, arrived=2, sent=2)


class NotEctIsDropped(HostsTest):
    """A packet that is not ECN-capable is dropped instead, and counted."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS))
        for version in (4, 6):
            self.send_and_expect_drop(STATION, build_udp(STATION, UPLINK, ecn=NOT_ECT, version=version, size=200))
        self.expect_counts(UPLINK, dropped=(2, 400))
        self.expect_queued(UPLINK, {})


class ThinnedIsDropped(HostsTest):
    """A thinned flow loses short datagrams whatever their ECN field says, by the feedback for what cannot be marked
    (RFC 3168, section 7). Others are marked."""

    def runTest(self) -> None:
        for version in (4, 6):
            self.insert(flow_entry(STATION, UPLINK, version=version, flow_class=THINNED, flow_index=version))
        packets = {
            length: [
                build_udp(STATION, UPLINK, ecn=ecn, version=version, size=14 + header + length)
                for version, header in ((4, 20), (6, 40))
                for ecn in (ECT0, ECT1, CE)
            ]
            for length in (255, 256)
        }
        self.insert(*port_feedback(ALWAYS, ecn=[ECT0, ECT1]))
        for packet in packets[255]:
            self.send_and_expect(STATION, packet, UPLINK)
        self.insert(*port_feedback(ALWAYS, ecn=[NOT_ECT]))
        for packet in packets[255]:
            self.send_and_expect_drop(STATION, packet)
        for packet in (*packets[256], build_udp(STATION, UPLINK, ecn=ECT0, sport=7)):
            self.send_and_expect(STATION, packet, UPLINK, expected=set_ecn(packet, CE))


class MarkOnlySparesNotEct(HostsTest):
    """A class that may only be marked keeps what is not ECN-capable; ECT is marked all the same."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS), *class_feedback(0, mark_only=1))
        for version in (4, 6):
            self.send_and_expect(STATION, build_udp(STATION, UPLINK, ecn=NOT_ECT, version=version), UPLINK)
            packet = build_udp(STATION, UPLINK, ecn=ECT1, version=version)
            self.send_and_expect(STATION, packet, UPLINK, expected=set_ecn(packet, CE))
        self.expect_counts(UPLINK, arrived=4, sent=4, marked=2)


class PureAckIsSpared(HostsTest):
    """A pure ACK is neither marked nor dropped, whatever its codepoint."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS), *class_feedback(ALWAYS))
        for version in (4, 6):
            for ecn in (NOT_ECT, ECT0, ECT1, CE):
                self.send_and_expect(STATION, build_ack(STATION, UPLINK, ecn=ecn, version=version), UPLINK)
        self.expect_counts(UPLINK, arrived=8, sent=8)
        self.send_and_expect_drop(STATION, build_ack(STATION, UPLINK, flags="FA"))
        self.expect_counts(UPLINK, arrived=8, sent=8, dropped=1)


class ConnectionBoundaryIsSpared(HostsTest):
    """A SYN or RST without data is neither marked nor dropped; with data it is as any other segment."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS), *class_feedback(ALWAYS))
        for version in (4, 6):
            for flags in ("S", "SA", "SEC", "R", "RA"):
                for ecn in (NOT_ECT, ECT0, ECT1):
                    bare = build_ack(STATION, UPLINK, flags=flags, ecn=ecn, version=version)
                    self.send_and_expect(STATION, bare, UPLINK)
            # 63 bytes of header and data are the most without; 64 are the least with.
            header = 34 if version == 4 else 54
            for flags in ("S", "R"):
                for size, spared in ((63, True), (64, False), (1000, False)):
                    segment = build_tcp(STATION, UPLINK, flags=flags, size=header + size, version=version)
                    if spared:
                        self.send_and_expect(STATION, segment, UPLINK)
                    else:
                        self.send_and_expect_drop(STATION, segment)
        self.expect_counts(UPLINK, arrived=34, sent=34, dropped=8)


class OtherThanIpIsDropped(HostsTest):
    """A frame other than IP cannot be marked: feedback drops it, unless its class is not regulated or only marked."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS), class_entry(3, regulated=0, control=1))
        opaque = build_ethernet(STATION, UPLINK, type=0x8847) / bytes(60)
        self.send_and_expect_drop(STATION, opaque)
        self.send_and_expect(STATION, build_arp(STATION, UPLINK), UPLINK)
        self.insert(*class_feedback(0, mark_only=1))
        self.send_and_expect(STATION, opaque, UPLINK)
        self.expect_counts(UPLINK, arrived=1, sent=1, dropped=1)
        self.expect_counts(UPLINK, 3, arrived=1, sent=1)


class EveryIpPacketIsRegulated(HostsTest):
    """Fragments, IP options, extension headers and other protocols are marked like any packet."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS))
        payload = Raw(bytes(64))
        for packet in (
            build_ip(STATION, UPLINK, ecn=ECT0, flags="MF") / TCP(flags="A") / payload,
            build_ip(STATION, UPLINK, ecn=ECT0, frag=8) / payload,
            build_ip(STATION, UPLINK, ecn=ECT1, options=[IPOption_Router_Alert()]) / TCP(flags="A"),
            build_ip(STATION, UPLINK, ecn=ECT0, options=[IPOption_Router_Alert()] * 10) / payload,
            build_ip(STATION, UPLINK, ecn=ECT0) / ICMP() / payload,
            build_ip(STATION, UPLINK, ecn=ECT1, version=6) / IPv6ExtHdrFragment(m=1) / payload,
            build_ip(STATION, UPLINK, ecn=ECT0, version=6, nh=0) / bytes.fromhex("0600050200000100") / TCP(flags="A"),
        ):
            self.send(STATION, packet)
            self.expect(UPLINK, set_ecn(packet, CE))
        self.expect_nothing()


class FeedbackHasItsPlace(HostsTest):
    """Feedback acts on its port, class and flow alone."""

    def runTest(self) -> None:
        self.insert(
            class_entry(2, dscp=46),
            *class_feedback(ALWAYS, class_id=2),
            *port_feedback(ALWAYS, port=OTHER_STATION),
            flow_entry(STATION, UPLINK, sport=7, feedback=ALWAYS),
            flow_entry(STATION, UPLINK, sport=8, feedback=ALWAYS, version=6),
        )
        for source, target, fields, expected_ecn in (
            (STATION, UPLINK, {"dscp": 46}, CE),
            (STATION, UPLINK, {}, ECT0),
            (UPLINK, STATION, {"dscp": 46}, ECT0),
            (STATION, OTHER_STATION, {}, CE),
            (STATION, UPLINK, {"sport": 7}, CE),
            (STATION, UPLINK, {"sport": 7, "version": 6}, ECT0),
            (STATION, UPLINK, {"sport": 8, "version": 6}, CE),
        ):
            packet = build_udp(source, target, ecn=ECT0, **fields)
            self.send_and_expect(source, packet, target, expected=set_ecn(packet, expected_ecn))


class FeedbackIsExactAtItsEnds(HostsTest):
    """Feedback 0 never acts and 65535 always does, in 1000 packets each."""

    def runTest(self) -> None:
        packet = build_udp(STATION, UPLINK, ecn=ECT0)
        feedback = [*port_feedback(0), *class_feedback(0)]
        self.insert(*feedback)
        for number in range(PIECE, 1001, PIECE):
            self.send_many(STATION, packet, PIECE, to=UPLINK)
            self.expect_counts(UPLINK, arrived=number, sent=number)
            self.expect(UPLINK, *[packet] * PIECE)

        self.modify(*port_feedback(ALWAYS))
        for number in range(PIECE, 1001, PIECE):
            self.send_many(STATION, packet, PIECE, to=UPLINK)
            self.expect_counts(UPLINK, arrived=1000 + number, sent=1000 + number, marked=number)
            self.expect(UPLINK, *[set_ecn(packet, CE)] * PIECE)
        self.expect_nothing()


class EachKindHasItsFeedback(HostsTest):
    """Each term's feedback is apart for ECT(1), ECT(0) and packets that are not ECN-capable."""

    def expect_marked(self, *kinds: int) -> None:
        """Expect feedback on these kinds of packets, and none on the others of the three."""
        for version in (4, 6):
            for ecn in KINDS:
                packet = build_udp(STATION, UPLINK, ecn=ecn, version=version)
                if ecn in kinds and ecn == NOT_ECT:
                    self.send_and_expect_drop(STATION, packet)
                else:
                    expected = set_ecn(packet, CE) if ecn in kinds else packet
                    self.send_and_expect(STATION, packet, UPLINK, expected=expected)

    def runTest(self) -> None:
        for ecn in KINDS:
            for terms in (port_feedback(ALWAYS, ecn=[ecn]), class_feedback(ALWAYS, ecn=[ecn])):
                self.insert(*terms)
                self.expect_marked(ecn)
                self.delete(*terms)
        for flow, kinds in (
            (partial(flow_entry, scalable_feedback=ALWAYS), [ECT1]),
            (partial(flow_entry, feedback=ALWAYS), [ECT0, NOT_ECT]),
        ):
            flows = [flow(STATION, UPLINK, version=version) for version in (4, 6)]
            self.insert(*flows)
            self.expect_marked(*kinds)
            self.delete(*flows)


class SumSaturates(HostsTest):
    """Terms that add up to more than 1 act always: the sum does not wrap."""

    def runTest(self) -> None:
        packet = build_udp(STATION, UPLINK, ecn=ECT0)
        flow = flow_entry(STATION, UPLINK, feedback=40000)
        for terms in (
            [flow, *class_feedback(40000)],
            [*class_feedback(40000), *port_feedback(40000)],
            [flow, *port_feedback(40000)],
        ):
            self.insert(*terms)
            self.reset_counts()
            self.send_many(STATION, packet, 200, to=UPLINK)
            self.expect_counts(UPLINK, arrived=200, sent=200, marked=200)
            self.expect(UPLINK, *[set_ecn(packet, CE)] * 200)
            self.delete(*terms)
        self.expect_nothing()


class FeedbackIsAProbability(HostsTest):
    """Near 1, a quarter, and a quarter as the sum of three terms: within 5 standard deviations of the binomial."""

    COUNT = 4000

    def expect_share(self, probability: float, packet: Packet, counter: str) -> None:
        """About this share of the packets was marked or dropped, and the frames that leave are the others."""
        self.reset_counts()
        left: Counter[bytes | None] = Counter()
        for _ in range(self.COUNT // PIECE):
            self.send_many(STATION, packet, PIECE, to=UPLINK)
            gone = self.read_counts(UPLINK)["arrived"][0] - left.total()
            left.update(self.receive(UPLINK) for _ in range(gone))
        acted = self.read_counts(UPLINK)[counter][0]
        deviation = sqrt(self.COUNT * probability * (1 - probability))
        self.assertLessEqual(abs(acted - self.COUNT * probability), 5 * deviation, f"{acted} of {self.COUNT} {counter}")
        marked = {set_ecn(packet, CE): acted} if counter == "marked" else {}
        self.assertEqual(left, marked | {bytes(packet): self.COUNT - acted})

    def runTest(self) -> None:
        one = ALWAYS + 1
        self.insert(*port_feedback(one - one // 64))
        self.expect_share(63 / 64, build_udp(STATION, UPLINK, ecn=ECT0), "marked")
        self.modify(*port_feedback(one // 4))
        self.expect_share(1 / 4, build_udp(STATION, UPLINK, ecn=NOT_ECT), "dropped")
        self.modify(*port_feedback(one // 16))
        self.insert(flow_entry(STATION, UPLINK, scalable_feedback=one // 8), *class_feedback(one // 16))
        self.expect_share(1 / 4, build_udp(STATION, UPLINK, ecn=ECT1), "marked")
        self.expect_nothing()


class WhatIsSentAgainPasses(HostsTest):
    """Data that an ECN-capable connection sends again is never dropped (RFC 3168, 6.1.5); that of others is."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS, ecn=[NOT_ECT]))
        for version in (4, 6):
            send = partial(build_tcp, STATION, UPLINK, version=version)
            for index, capable in ((140 + version, ECT0), (150 + version, ECT1)):
                flow = partial(flow_entry, STATION, UPLINK, version=version, protocol=6, sport=index, flow_index=index)
                again, new = send(sport=index, ecn=NOT_ECT), send(sport=index, ecn=capable)
                # Nobody knows of its connection yet, or has seen it be ECN-capable.
                self.send_and_expect_drop(STATION, again)
                self.insert(flow())
                self.send_and_expect_drop(STATION, again)
                self.send_and_expect(STATION, new, UPLINK)
                self.send_and_expect(STATION, again, UPLINK)
                # Another connection on its ports, whose SYN is spared, and another owner of its index, may be another.
                self.send_and_expect(
                    STATION, build_ack(STATION, UPLINK, sport=index, flags="S", version=version), UPLINK
                )
                self.send_and_expect_drop(STATION, again)
                self.send_and_expect(STATION, new, UPLINK)
                self.modify(flow(generation=2))
                self.send_and_expect_drop(STATION, again)
            # A sender of datagrams that ends ECN has ended it.
            self.insert(flow_entry(STATION, UPLINK, version=version, flow_index=160 + version))
            self.send_and_expect(STATION, build_udp(STATION, UPLINK, ecn=ECT0, version=version), UPLINK)
            self.send_and_expect_drop(STATION, build_udp(STATION, UPLINK, ecn=NOT_ECT, version=version))
