# SPDX-License-Identifier: Apache-2.0
"""learn: a source that is not known behind its port is reported, and its entry ages."""

from scapy.layers.l2 import Ether

from accesspoint.ptf_tests.lib.base import (
    OTHER_STATION,
    STATION,
    UNTAGGED,
    UPLINK,
    AccessPointTest,
    forward_entry,
    learn_entry,
)
from accesspoint.ptf_tests.lib.packets import BROADCAST, build_arp, build_udp, ipv4, mac


class LearnTest(AccessPointTest):
    """A learn test: hosts can be reached, but are not known as sources."""

    def prepare(self) -> None:
        self.insert(*(forward_entry(port, port) for port in (STATION, OTHER_STATION, UPLINK)))
        self.subscribe("source_digest_t")

    def expect_source(self, host: int, port: int) -> None:
        """The next digest reports the host behind the port."""
        self.expect_digest("source_digest_t", src_addr=mac(host), ingress_port=port, **UNTAGGED)


class UnknownSourceIsReported(LearnTest):
    """An unknown source is reported with its port; its packet is forwarded all the same."""

    def runTest(self) -> None:
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_source(STATION, STATION)
        self.send_and_expect(UPLINK, build_arp(UPLINK, STATION), STATION)
        self.expect_source(UPLINK, UPLINK)
        self.expect_no_digest()


class SourceOfFloodIsReported(LearnTest):
    """The first packet of a host is often a broadcast: its source is reported too."""

    def runTest(self) -> None:
        self.add_flood_group()
        self.send(STATION, build_arp(STATION, UPLINK, dst=BROADCAST))
        self.expect_source(STATION, STATION)
        self.expect_no_digest()


class KnownSourceIsNotReported(LearnTest):
    """An entry ends the reports."""

    def runTest(self) -> None:
        self.insert(learn_entry(STATION, STATION))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_no_digest()


class SourceIsReportedBeforeItsFlow(LearnTest):
    """A packet causes one digest: that of its source, and once that is known, that of its flow."""

    def runTest(self) -> None:
        self.subscribe("flow_ipv4_digest_t")
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_source(STATION, STATION)
        self.expect_no_digest()
        self.insert(learn_entry(STATION, STATION))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_digest(
            "flow_ipv4_digest_t",
            src_addr=ipv4(STATION),
            dst_addr=ipv4(UPLINK),
            protocol=17,
            src_port=1111,
            dst_port=2222,
            ingress_port=STATION,
            egress_port=UPLINK,
            **UNTAGGED,
        )
        self.expect_no_digest()


class MovedStationIsReported(LearnTest):
    """A known source behind another port is reported again, and its traffic moves with the entries."""

    def runTest(self) -> None:
        known = learn_entry(STATION, STATION)
        self.insert(known, learn_entry(UPLINK, UPLINK))
        self.send_and_expect(OTHER_STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_source(STATION, OTHER_STATION)

        self.delete(known)
        self.insert(learn_entry(STATION, OTHER_STATION))
        self.modify(forward_entry(STATION, OTHER_STATION))
        self.send_and_expect(OTHER_STATION, build_udp(STATION, UPLINK), UPLINK)
        self.send_and_expect(UPLINK, build_udp(UPLINK, STATION), OTHER_STATION)
        self.expect_no_digest()


class GroupAddressIsNoSource(LearnTest):
    """A group address as source is never reported (IEEE 802.1Q, 8.7)."""

    def runTest(self) -> None:
        for group in ("01:00:5e:00:00:01", "33:33:00:00:00:01", BROADCAST):
            self.send_and_expect(STATION, Ether(src=group, dst=mac(UPLINK), type=0x88B5) / bytes(50), UPLINK)
        self.expect_no_digest()


class UnusedSourceAges(LearnTest):
    """A source that sends nothing for its idle timeout is reported as idle; one that sends is not."""

    def runTest(self) -> None:
        idle, busy = learn_entry(STATION, STATION), learn_entry(OTHER_STATION, OTHER_STATION)
        for source in (idle, busy):
            source.idle_timeout_ns = 3_000_000_000
        self.insert(idle, busy)
        packet = build_udp(OTHER_STATION, UPLINK)

        def talk() -> None:
            self.send(OTHER_STATION, packet)
            self.expect(UPLINK, packet)

        self.expect_idle(idle, busy=busy, meanwhile=talk)
        self.expect_no_digest()
