# SPDX-License-Identifier: Apache-2.0
"""Tags and PPPoE: what they carry is treated as it would be without them, and every VLAN is a network of its own."""

from collections.abc import Callable, Sequence
from functools import partial

from scapy.layers.l2 import Dot1AD, Dot1Q
from scapy.packet import Packet, Raw

from accesspoint.ptf_tests.lib.base import (
    ALWAYS,
    OTHER_STATION,
    PORTS,
    SLOW,
    STATION,
    UNTAGGED,
    UPLINK,
    AccessPointTest,
    HostsTest,
    class_entry,
    forward_entry,
    learn_entry,
)
from accesspoint.ptf_tests.lib.packets import (
    BROADCAST,
    CE,
    ECT0,
    TIMESTAMPS,
    build_ack,
    build_arp,
    build_tcp,
    build_udp,
    ipv4,
    mac,
    set_ecn,
)
from accesspoint.ptf_tests.tests.test_filter import ONE_QUEUE
from accesspoint.ptf_tests.tests.test_flows import flow_entry
from accesspoint.ptf_tests.tests.test_mark import port_feedback

PPP = {0x0800: b"\0\x21", 0x86DD: b"\0\x57"}


def inside(frame: Packet, *tags: Packet, pppoe: bool = False, types: Sequence[int] = ()) -> Packet:
    """The frame with tags (outermost first) and a PPPoE session around what it carries. types: other TPIDs."""
    ethernet, payload, ether_type = frame.copy(), frame.payload, frame.type
    ethernet.remove_payload()
    body = bytes(payload)
    if pppoe:
        body = b"\x11\0\0\7" + (len(body) + 2).to_bytes(2) + PPP[ether_type] + body
        ether_type = 0x8864
    # One after the other, as scapy would correct types that it does not know.
    usual = [0x88A8 if isinstance(tag, Dot1AD) else 0x8100 for tag in tags]
    for tag, of_tag in zip(reversed(tags), reversed(types or usual), strict=True):
        inner = tag.copy()
        inner.type = ether_type
        body, ether_type = bytes(inner) + body, of_tag
    ethernet.type = ether_type
    return ethernet / Raw(body)


# How a frame is wrapped, and the VLAN that it is in.
WRAPS: tuple[tuple[Callable[[Packet], Packet], dict[str, int]], ...] = (
    (partial(inside), {}),
    (lambda frame: inside(frame, Dot1Q(vlan=5, prio=3)), {"outer_vid": 5}),
    (lambda frame: inside(frame, Dot1AD(vlan=4094), Dot1Q(vlan=5)), {"outer_vid": 4094, "inner_vid": 5}),
    (lambda frame: inside(frame, Dot1Q(vlan=6), Dot1Q(vlan=1, prio=7)), {"outer_vid": 6, "inner_vid": 1}),
    (
        lambda frame: inside(frame, Dot1Q(vlan=10), Dot1Q(vlan=11), types=(0x9100, 0x9100)),
        {"outer_vid": 10, "inner_vid": 11},
    ),
    (
        lambda frame: inside(frame, Dot1Q(vlan=12), Dot1Q(vlan=13), types=(0x9200, 0x9200)),
        {"outer_vid": 12, "inner_vid": 13},
    ),
    (lambda frame: inside(frame, pppoe=True), {}),
    (lambda frame: inside(frame, Dot1Q(vlan=7), pppoe=True), {"outer_vid": 7}),
    (lambda frame: inside(frame, Dot1AD(vlan=8), Dot1Q(vlan=9), pppoe=True), {"outer_vid": 8, "inner_vid": 9}),
)
OTHER_VLANS = [vlan for number, (_, vlan) in enumerate(WRAPS) if vlan and vlan not in [w[1] for w in WRAPS[:number]]]


class TagsTest(HostsTest):
    """A tags test: hosts are known in every VLAN of `WRAPS`."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(
            *(forward_entry(port, port, **vlan) for vlan in OTHER_VLANS for port in PORTS),
            *(learn_entry(port, port, **vlan) for vlan in OTHER_VLANS for port in PORTS),
        )


class TaggedIsClassifiedAsUntagged(TagsTest):
    """DSCP, protocol, ports, pure ACKs and known flows are found behind tags and PPPoE; no bit is changed."""

    def runTest(self) -> None:
        for wrap, vlan in WRAPS:
            for version in (4, 6):
                known = flow_entry(STATION, UPLINK, version=version, sport=7, flow_class=6, place=vlan)
                self.insert(known)
                for match, frame in (
                    ({"dscp": 46}, build_udp(STATION, UPLINK, dscp=46, version=version)),
                    (
                        {"protocol": 17, "dst_port": "5000...5000"},
                        build_udp(STATION, UPLINK, dport=5000, version=version),
                    ),
                    ({"pure_ack": 1}, build_ack(STATION, UPLINK, options=TIMESTAMPS, version=version)),
                    ({"flow_class": 6, "known_flow": 1}, build_udp(STATION, UPLINK, sport=7, version=version)),
                    ({"ip": 1, "control": 0}, build_tcp(STATION, UPLINK, version=version)),
                ):
                    with self.subTest(vlan=vlan, version=version, match=match):
                        self.reset_counts()
                        selected = class_entry(3, **match)
                        self.insert(selected)
                        self.send(STATION, wrap(frame))
                        self.expect(UPLINK, wrap(frame))
                        size = len(wrap(frame))
                        self.expect_counts(UPLINK, 3, arrived=(1, size), sent=(1, size))
                        self.delete(selected)
                self.delete(known)
        self.expect_nothing()


class TaggedIsMarkedAsUntagged(TagsTest):
    """Feedback sets CE behind tags and PPPoE, with the right checksum, and drops what is not ECN-capable."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS))
        for wrap, vlan in WRAPS:
            for version in (4, 6):
                with self.subTest(vlan=vlan, version=version):
                    frame = build_udp(STATION, UPLINK, ecn=ECT0, version=version)
                    plain = bytes(wrap(frame))
                    header = plain.index(bytes(frame)[14:])
                    marked = plain[:header] + set_ecn(frame, CE)[14:]
                    self.send(STATION, plain)
                    self.expect(UPLINK, marked)
                    self.send(STATION, wrap(build_udp(STATION, UPLINK, version=version)))
        self.expect_nothing()
        self.expect_counts(
            UPLINK, arrived=2 * len(WRAPS), sent=2 * len(WRAPS), marked=2 * len(WRAPS), dropped=2 * len(WRAPS)
        )


class TaggedAcksAreFiltered(TagsTest):
    """A superseded ACK that waits behind data is not sent, whatever is around it."""

    def runTest(self) -> None:
        self.insert(*ONE_QUEUE)
        for index, (wrap, vlan) in enumerate(WRAPS[1:4] + WRAPS[5:6], 360):
            self.insert(flow_entry(STATION, SLOW, protocol=6, flow_index=index, place=vlan))
            bulk = [wrap(build_udp(STATION, SLOW, size=1000, sport=port)) for port in range(2)]
            acks = [wrap(build_ack(STATION, SLOW, number)) for number in (1000, 2000, 3000)]
            self.send(STATION, *bulk, *acks)
            self.expect(SLOW, *bulk, acks[-1])
        self.expect_nothing()
        self.expect_counts(SLOW, arrived=5 * 4, sent=3 * 4, filtered=2 * 4)


class EachVlanIsLearnedApart(AccessPointTest):
    """A source is reported with its VLAN; known in one VLAN it is unknown in the others."""

    def runTest(self) -> None:
        self.insert(forward_entry(UPLINK, UPLINK), *(forward_entry(UPLINK, UPLINK, **vlan) for vlan in OTHER_VLANS))
        self.subscribe("source_digest_t")
        self.insert(learn_entry(STATION, STATION))
        for wrap, vlan in WRAPS:
            if vlan not in OTHER_VLANS:
                continue
            frame = wrap(build_udp(STATION, UPLINK))
            self.send_and_expect(STATION, frame, UPLINK)
            found = UNTAGGED | vlan
            self.expect_digest("source_digest_t", src_addr=mac(STATION), ingress_port=STATION, **found)
            self.insert(learn_entry(STATION, STATION, **vlan))
            self.send_and_expect(STATION, frame, UPLINK)
            self.expect_no_digest()


class EachVlanIsForwardedApart(HostsTest):
    """A host is where its VLAN says; in a VLAN that nobody has learned it in its frames are flooded."""

    def runTest(self) -> None:
        self.add_flood_group()
        self.insert(
            forward_entry(UPLINK, OTHER_STATION, outer_vid=5), forward_entry(UPLINK, SLOW, outer_vid=5, inner_vid=6)
        )
        frame = build_udp(STATION, UPLINK)
        self.send_and_expect(STATION, frame, UPLINK)
        self.send_and_expect(STATION, inside(frame, Dot1Q(vlan=5)), OTHER_STATION)
        self.send_and_expect(STATION, inside(frame, Dot1AD(vlan=5), Dot1Q(vlan=6)), SLOW)
        for tags in ((Dot1Q(vlan=6),), (Dot1AD(vlan=5), Dot1Q(vlan=7)), (Dot1Q(vlan=6), Dot1Q(vlan=5))):
            self.send_and_expect(STATION, inside(frame, *tags), (OTHER_STATION, UPLINK, SLOW))


class PriorityTagIsNoVlan(HostsTest):
    """VID 0 says a priority alone (IEEE 802.1Q, 9.6): the frame is of the VLAN of untagged ones."""

    def runTest(self) -> None:
        self.insert(class_entry(3, known_flow=1), flow_entry(STATION, UPLINK))
        self.send_and_expect(STATION, inside(build_udp(STATION, UPLINK), Dot1Q(vlan=0, prio=5)), UPLINK)
        self.expect_counts(UPLINK, 3, arrived=1, sent=1)


class EachVlanHasItsFlows(TagsTest):
    """A flow is reported with its VLAN, and its entry is for that one alone."""

    def expect_flow(self, **vlan: int) -> None:
        """The next digest reports the flow of `build_udp` in this VLAN."""
        self.expect_digest(
            "flow_ipv4_digest_t",
            src_addr=ipv4(STATION),
            dst_addr=ipv4(UPLINK),
            protocol=17,
            src_port=1111,
            dst_port=2222,
            ingress_port=STATION,
            egress_port=UPLINK,
            **(UNTAGGED | vlan),
        )

    def runTest(self) -> None:
        self.subscribe("flow_ipv4_digest_t")
        frame = build_udp(STATION, UPLINK)
        self.insert(flow_entry(STATION, UPLINK))
        for wrap, vlan in (WRAPS[1], WRAPS[2], WRAPS[5]):
            self.send_and_expect(STATION, wrap(frame), UPLINK)
            self.expect_flow(**vlan)
            self.insert(flow_entry(STATION, UPLINK, place=vlan))
            self.send_and_expect(STATION, wrap(frame), UPLINK)
            self.expect_no_digest()


class DeeperIsOpaque(TagsTest):
    """A third tag, other codes and versions of PPPoE, and its payloads other than IP, are not parsed."""

    def runTest(self) -> None:
        self.insert(class_entry(3, ip=0, control=0), class_entry(4, control=1), class_entry(5, ip=1))
        datagram = build_udp(STATION, UPLINK)
        session = bytes(inside(datagram, pppoe=True))
        for class_id, frame in (
            (3, bytes(inside(datagram, Dot1Q(vlan=5), Dot1Q(vlan=0), Dot1Q(vlan=5)))),
            (3, session[:14] + b"\x12" + session[15:]),
            (3, session[:15] + b"\xa7" + session[16:]),
            (3, session[:20] + b"\0\x29" + session[22:]),
            (4, session[:20] + b"\xc0\x21" + session[22:]),
            (5, session),
        ):
            with self.subTest(class_id=class_id, frame=frame[:30].hex()):
                self.reset_counts()
                self.send_and_expect(STATION, frame, UPLINK)
                self.expect_counts(UPLINK, class_id, arrived=1, sent=1)


class TaggedGroupIsFlooded(HostsTest):
    """Broadcast in a VLAN leaves every port but its own, tags and all."""

    def runTest(self) -> None:
        self.add_flood_group()
        frame = inside(build_arp(STATION, UPLINK, dst=BROADCAST), Dot1Q(vlan=5))
        self.send_and_expect(STATION, frame, (OTHER_STATION, UPLINK, SLOW))
