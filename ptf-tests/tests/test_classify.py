# SPDX-License-Identifier: Apache-2.0
"""classify: what a packet is decides its class and queue."""

from finsy import P4TableAction, P4TableEntry
from scapy.layers.inet import ICMP, UDP, IPOption_Router_Alert

from accesspoint.ptf_tests.lib.base import ALWAYS, STATION, UP, UPLINK, HostsTest, class_entry, meter_config
from accesspoint.ptf_tests.lib.packets import (
    CE,
    ECT0,
    build_ack,
    build_arp,
    build_ethernet,
    build_ip,
    build_tcp,
    build_udp,
    set_ecn,
)
from accesspoint.ptf_tests.tests.test_flows import flow_entry
from accesspoint.ptf_tests.tests.test_mark import port_feedback


class UnmatchedPacketHasClassZero(HostsTest):
    """By default a packet is of class 0 and waits in queue 0."""

    def runTest(self) -> None:
        packet = build_udp(STATION, UPLINK, size=300)
        self.send_and_expect(STATION, packet, UPLINK)
        self.expect_counts(UPLINK, 0, arrived=(1, 300), sent=(1, 300))
        self.expect_queued(UPLINK, {0: 1})


class EachKeySelects(HostsTest):
    """A packet that matches gets the class and queue, one that differs in that part alone does not."""

    def runTest(self) -> None:
        udp = build_udp(STATION, UPLINK)
        opaque = build_ethernet(STATION, UPLINK, type=0x8847) / bytes(60)
        self.insert(flow_entry(STATION, UPLINK, sport=7, flow_class=6, flow_index=200))
        for match, matching, other in (
            ({"dscp": 46}, build_udp(STATION, UPLINK, dscp=46), build_udp(STATION, UPLINK, dscp=44)),
            ({"dscp": "8/&0x38"}, build_udp(STATION, UPLINK, dscp=10), build_udp(STATION, UPLINK, dscp=18)),
            ({"dscp": 46}, build_udp(STATION, UPLINK, dscp=46, version=6), build_udp(STATION, UPLINK, version=6)),
            ({"protocol": 17}, udp, build_tcp(STATION, UPLINK)),
            ({"protocol": 1}, build_ip(STATION, UPLINK) / ICMP(), udp),
            ({"src_port": "1000...1111"}, udp, build_udp(STATION, UPLINK, sport=1112)),
            ({"src_port": "1111...1111"}, udp, build_udp(STATION, UPLINK, sport=1110)),
            ({"dst_port": "2222...65535"}, udp, build_udp(STATION, UPLINK, dport=2221)),
            ({"pure_ack": 1}, build_ack(STATION, UPLINK), build_tcp(STATION, UPLINK)),
            ({"direction": UP, "dscp": 1}, build_udp(STATION, UPLINK, dscp=1), udp),
            ({"known_flow": 1}, build_udp(STATION, UPLINK, sport=7), udp),
            ({"known_flow": 0}, udp, build_udp(STATION, UPLINK, sport=7)),
            ({"flow_class": 6}, build_udp(STATION, UPLINK, sport=7), udp),
            ({"ip": 1}, udp, opaque),
            ({"ip": 1}, build_ip(STATION, UPLINK, options=[IPOption_Router_Alert()]) / UDP(), opaque),
            ({"control": 1}, build_arp(STATION, UPLINK), udp),
        ):
            with self.subTest(match=match):
                self.reset_counts()
                selected = class_entry(3, queue=2, **match)
                self.insert(selected)
                self.send(STATION, matching, other)
                self.expect(UPLINK, matching, other)
                self.expect_counts(UPLINK, 3, arrived=1, sent=1)
                self.expect_counts(UPLINK, 0, arrived=1, sent=1)
                self.expect_queued(UPLINK, {2: 1, 0: 1})
                self.delete(selected)
        self.expect_nothing()


class HigherPriorityWins(HostsTest):
    """The matching entry of highest priority decides, in any order of insertion."""

    def runTest(self) -> None:
        self.insert(
            class_entry(3, priority=20, protocol=17),
            class_entry(4, priority=30, dscp=46),
            class_entry(5, priority=10),
        )
        self.send_and_expect(STATION, build_udp(STATION, UPLINK, dscp=46), UPLINK)
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.send_and_expect(STATION, build_tcp(STATION, UPLINK), UPLINK)
        for class_id in (3, 4, 5):
            self.expect_counts(UPLINK, class_id, arrived=1, sent=1)
        self.expect_counts(UPLINK, 0)


class DefaultClassCanChange(HostsTest):
    """The default class is an operator's choice and can be taken back."""

    def runTest(self) -> None:
        default = P4TableEntry("classify", is_default_action=True)
        default.action = P4TableAction("set_class", class_id=7, queue=3, regulated=1)
        self.p4.modify(default)
        self.addCleanup(self.p4.modify, P4TableEntry("classify", is_default_action=True))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_counts(UPLINK, 7, arrived=1, sent=1)
        self.expect_queued(UPLINK, {3: 1})
        self.p4.modify(P4TableEntry("classify", is_default_action=True))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_counts(UPLINK, 0, arrived=1, sent=1)


class UnregulatedClassHasNoFeedback(HostsTest):
    """A class that is not regulated is neither marked nor dropped."""

    def runTest(self) -> None:
        self.insert(
            class_entry(3, regulated=0, dscp=46),
            *port_feedback(ALWAYS),
        )
        for ecn in range(4):
            self.send_and_expect(STATION, build_udp(STATION, UPLINK, dscp=46, ecn=ecn), UPLINK)
        self.expect_counts(UPLINK, 3, arrived=4, sent=4)
        regulated = build_udp(STATION, UPLINK, ecn=ECT0)
        self.send_and_expect(STATION, regulated, UPLINK, expected=set_ecn(regulated, CE))


class DemotedPacketIsRegulated(HostsTest):
    """A packet above its queue's meter waits with the bulk, and has the bulk's feedback, with any class."""

    def runTest(self) -> None:
        self.insert(
            class_entry(3, queue=6, regulated=0, dscp=46),
            *port_feedback(ALWAYS),
        )
        packet = build_udp(STATION, UPLINK, dscp=46, ecn=ECT0)
        self.set_queue_meter(UPLINK, 6, meter_config(1, len(packet) + 1))
        self.send_and_expect(STATION, packet, UPLINK)
        self.send_and_expect(STATION, packet, UPLINK, expected=set_ecn(packet, CE))
        self.expect_queued(UPLINK, {6: 1, 0: 1})
        self.expect_counts(UPLINK, 3, arrived=2, sent=2, marked=1)
