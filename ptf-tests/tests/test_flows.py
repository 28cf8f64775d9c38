# SPDX-License-Identifier: Apache-2.0
"""flows: an unknown flow is reported, a known one is counted, an unused one ages."""

from functools import partial

from finsy import P4DirectCounterEntry, P4TableEntry
from scapy.layers.inet import ICMP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import (
    OTHER_STATION,
    PATIENCE,
    PORTS,
    STATION,
    UNTAGGED,
    UPLINK,
    HostsTest,
    class_entry,
    entry,
    forward_entry,
    learn_entry,
)
from accesspoint.ptf_tests.lib.packets import build_arp, build_ip, build_tcp, build_udp, ipv4, ipv6


def flow_entry(
    source: int,
    target: int,
    *,
    version: int = 4,
    protocol: int = 17,
    sport: int = 1111,
    dport: int = 2222,
    place: dict[str, int] = UNTAGGED,
    **action: int,
) -> P4TableEntry:
    """The flow of `build_udp` and, with protocol 6, of `build_tcp`; by default index 1, no class, no feedback.

    `place`: its VLAN, and its ports where they are not those of the hosts.
    """
    address = ipv4 if version == 4 else ipv6
    match = {
        "src_addr": address(source),
        "dst_addr": address(target),
        "protocol": protocol,
        "src_port": sport,
        "dst_port": dport,
        "ingress_port": source,
        "egress_port": target,
        **UNTAGGED,
        **place,
    }
    parameters = {"flow_index": 1, "generation": 1, "flow_class": 0, "feedback": 0, "scalable_feedback": 0} | action
    return entry(f"flows_ipv{version}", match, f"set_flow_ipv{version}", **parameters)


class FlowsTest(HostsTest):
    """A flows test: unknown flows are reported."""

    def prepare(self) -> None:
        super().prepare()
        self.subscribe("flow_ipv4_digest_t", "flow_ipv6_digest_t")

    def expect_flow(
        self,
        version: int,
        source: int,
        target: int,
        protocol: int,
        sport: int,
        dport: int,
        ingress_port: int,
        egress_port: int,
    ) -> None:
        """The next digest reports this flow."""
        address = ipv4 if version == 4 else ipv6
        self.expect_digest(
            f"flow_ipv{version}_digest_t",
            src_addr=address(source),
            dst_addr=address(target),
            protocol=protocol,
            src_port=sport,
            dst_port=dport,
            ingress_port=ingress_port,
            egress_port=egress_port,
            **UNTAGGED,
        )

    def read_flow(self, flow: P4TableEntry) -> tuple[int, int]:
        """Packets and bytes of a flow's direct counter."""
        (counter,) = self.p4.read(P4DirectCounterEntry(f"{flow.table_id}_counter", table_entry=flow))
        return counter.packet_count, counter.byte_count


class UnknownFlowIsReported(FlowsTest):
    """A digest carries the 5-tuple and both ports, for UDP and TCP, IPv4 and IPv6; the packet is forwarded."""

    def runTest(self) -> None:
        for version in (4, 6):
            self.send_and_expect(STATION, build_udp(STATION, UPLINK, version=version, sport=53, dport=65535), UPLINK)
            self.expect_flow(version, STATION, UPLINK, 17, 53, 65535, STATION, UPLINK)
            self.send_and_expect(UPLINK, build_tcp(UPLINK, STATION, version=version, sport=443, dport=40000), STATION)
            self.expect_flow(version, UPLINK, STATION, 6, 443, 40000, UPLINK, STATION)
        self.expect_no_digest()


class ProtocolWithoutPortsIsAFlow(FlowsTest):
    """A protocol without ports is a flow by its addresses, ports 0: ICMP, GRE, ESP."""

    def runTest(self) -> None:
        self.send_and_expect(STATION, build_ip(STATION, UPLINK) / ICMP() / bytes(40), UPLINK)
        self.expect_flow(4, STATION, UPLINK, 1, 0, 0, STATION, UPLINK)
        self.send_and_expect(STATION, build_ip(STATION, UPLINK, version=6, nh=58) / bytes(40), UPLINK)
        self.expect_flow(6, STATION, UPLINK, 58, 0, 0, STATION, UPLINK)
        for protocol in (47, 50):
            self.send_and_expect(STATION, build_ip(STATION, UPLINK, proto=protocol) / bytes(40), UPLINK)
            self.expect_flow(4, STATION, UPLINK, protocol, 0, 0, STATION, UPLINK)
            self.send_and_expect(STATION, build_ip(STATION, UPLINK, version=6, nh=protocol) / bytes(40), UPLINK)
            self.expect_flow(6, STATION, UPLINK, protocol, 0, 0, STATION, UPLINK)
        self.expect_no_digest()


class UncertainPortsAreZero(FlowsTest):
    """A fragment, IP options or an IPv6 extension header: the flow has no ports that one could trust."""

    def runTest(self) -> None:
        header = UDP(sport=1111, dport=2222) / bytes(64)
        # Each with hosts of its own: a target does not repeat a digest before it has seen the acknowledgment.
        for source, target, build, version, protocol in (
            (STATION, UPLINK, lambda ip: ip(flags="MF") / header, 4, 17),
            (UPLINK, STATION, lambda ip: ip(frag=9, proto=17) / bytes(64), 4, 17),
            (OTHER_STATION, UPLINK, lambda ip: ip(options=[IPOption_Router_Alert()]) / header, 4, 17),
            (STATION, UPLINK, lambda ip: ip() / IPv6ExtHdrFragment(m=1) / header, 6, 44),
            (UPLINK, STATION, lambda ip: ip() / IPv6ExtHdrFragment(offset=9, nh=17) / bytes(64), 6, 44),
            (OTHER_STATION, UPLINK, lambda ip: ip() / IPv6ExtHdrHopByHop() / header, 6, 0),
        ):
            packet = build(partial(build_ip, source, target, version=version))
            self.send_and_expect(source, packet, target)
            self.expect_flow(version, source, target, protocol, 0, 0, source, target)
        self.expect_no_digest()


class KnownFlowIsCounted(FlowsTest):
    """An entry ends the reports and counts packets and bytes of its flow alone; both directions are two flows."""

    def runTest(self) -> None:
        for version in (4, 6):
            flow = flow_entry(STATION, UPLINK, version=version)
            self.insert(flow)
            for size in (70, 100, 1500):
                self.send(STATION, build_udp(STATION, UPLINK, version=version, size=size))
                self.expect(UPLINK, build_udp(STATION, UPLINK, version=version, size=size))
            self.expect_no_digest()
            self.assertEqual(self.read_flow(flow), (3, 1670))

            self.send_and_expect(UPLINK, build_udp(UPLINK, STATION, version=version, sport=2222, dport=1111), STATION)
            self.expect_flow(version, UPLINK, STATION, 17, 2222, 1111, UPLINK, STATION)
            self.assertEqual(self.read_flow(flow), (3, 1670))


class FlowIsItsFiveTuple(FlowsTest):
    """A packet that differs in any part of the 5-tuple is of another flow."""

    def take_digest(self, packet: Packet) -> None:
        """The packet caused a digest."""
        digest = self.p4.receive("digest", PATIENCE)
        self.assertIsNotNone(digest, f"not reported: {packet.summary()}")
        self.p4.send(digest.ack())

    def runTest(self) -> None:
        flow = flow_entry(STATION, UPLINK)
        self.insert(flow)
        for packet in (
            build_udp(STATION, UPLINK, sport=1112),
            build_udp(STATION, UPLINK, dport=2223),
            build_tcp(STATION, UPLINK),
            build_udp(STATION, OTHER_STATION),
            build_udp(STATION, UPLINK, version=6),
        ):
            self.send(STATION, packet)
            self.take_digest(packet)
        self.send(OTHER_STATION, build_udp(OTHER_STATION, UPLINK))
        self.take_digest(build_udp(OTHER_STATION, UPLINK))
        self.expect_no_digest()
        self.assertEqual(self.read_flow(flow), (0, 0))


class FlowIsBetweenTwoPorts(FlowsTest):
    """A host that takes another's address, or moves, has another flow: the old path's flow keeps its own counts."""

    def runTest(self) -> None:
        flow = flow_entry(STATION, UPLINK)
        self.insert(flow, learn_entry(STATION, OTHER_STATION))
        packet = build_udp(STATION, UPLINK)
        self.send_and_expect(OTHER_STATION, packet, UPLINK)
        self.expect_flow(4, STATION, UPLINK, 17, 1111, 2222, OTHER_STATION, UPLINK)
        self.modify(forward_entry(UPLINK, OTHER_STATION))
        self.send_and_expect(STATION, packet, OTHER_STATION)
        self.expect_flow(4, STATION, UPLINK, 17, 1111, 2222, STATION, OTHER_STATION)
        self.modify(forward_entry(UPLINK, UPLINK))
        self.send_and_expect(STATION, packet, UPLINK)
        self.expect_no_digest()
        self.assertEqual(self.read_flow(flow), (1, len(packet)))


class FlowCarriesItsClass(FlowsTest):
    """The entry's class reaches `classify`, and a change takes effect at once."""

    def runTest(self) -> None:
        self.insert(class_entry(5, flow_class=2), class_entry(6, flow_class=3))
        flow = flow_entry(STATION, UPLINK, flow_class=2)
        self.insert(flow)
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_counts(UPLINK, 5, arrived=1, sent=1)
        self.modify(flow_entry(STATION, UPLINK, flow_class=3))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_counts(UPLINK, 6, arrived=1, sent=1)


class RemovedFlowIsUnknownAgain(FlowsTest):
    """Once its entry is gone a flow is reported again."""

    def runTest(self) -> None:
        flow = flow_entry(STATION, UPLINK)
        self.insert(flow)
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.delete(flow)
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_flow(4, STATION, UPLINK, 17, 1111, 2222, STATION, UPLINK)


class OnlyUnicastIsAFlow(FlowsTest):
    """A flooded packet and one that is not IP are no flows."""

    def runTest(self) -> None:
        self.add_flood_group()
        others = tuple(port for port in PORTS if port != STATION)
        self.send_and_expect(STATION, build_udp(STATION, 9), others)
        self.send_and_expect(STATION, build_arp(STATION, UPLINK), UPLINK)
        self.expect_no_digest()


class UnusedFlowAges(FlowsTest):
    """A flow without packets for its idle timeout is reported as idle, IPv4 and IPv6; one with packets is not."""

    def runTest(self) -> None:
        idle = [flow_entry(STATION, UPLINK, version=version) for version in (4, 6)]
        busy = flow_entry(STATION, UPLINK, sport=1112)
        for flow in (*idle, busy):
            flow.idle_timeout_ns = 3_000_000_000
        self.insert(*idle, busy)
        packet = build_udp(STATION, UPLINK, sport=1112)

        def talk() -> None:
            self.send(STATION, packet)
            self.expect(UPLINK, packet)

        self.expect_idle(*idle, busy=busy, meanwhile=talk)
        self.expect_nothing()
