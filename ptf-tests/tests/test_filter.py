# SPDX-License-Identifier: Apache-2.0
"""ack filter: an ACK that a newer one of its flow supersedes is not sent (RFC 3449, section 5.2.1)."""

from functools import partial
from typing import Any

from finsy import P4TableEntry

from accesspoint.ptf_tests.lib.base import SILENCE, SLOW, STATION, UPLINK, HostsTest, class_entry, meter_config, poll
from accesspoint.ptf_tests.lib.packets import TIMESTAMPS, TIMESTAMPS_FIRST, build_ack, build_tcp, build_udp
from accesspoint.ptf_tests.tests.test_ack import ACK_SIZE, prioritise_entry
from accesspoint.ptf_tests.tests.test_flows import flow_entry

SACK = [("NOP", None), ("NOP", None), ("SAck", (3000, 4000))]
# ACKs of the slow port wait behind data in a queue of theirs: one that the data does not share, BMv2 serves at once.
ONE_QUEUE = prioritise_entry(7, filter=1, port=SLOW), class_entry(0, queue=7)
SLOW_QUEUE = 64  # packets that the queues of the slow port hold


def ack_flow(index: int, **fields: Any) -> P4TableEntry:
    """The flow of `build_ack`. The registers outlive a test, so every test has indices of its own."""
    return flow_entry(STATION, UPLINK, protocol=6, flow_index=index, **fields)


class FilterTest(HostsTest):
    """A filter test: pure ACKs that leave the uplink port go first and are filtered."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(prioritise_entry(7, filter=1))

    def expect_sent(self, *numbers: int, **fields: Any) -> None:
        """ACKs with these numbers are sent."""
        for number in numbers:
            packet = build_ack(STATION, UPLINK, number, **fields)
            self.send(STATION, packet)
            self.expect(UPLINK, packet)

    def expect_filtered(self, *numbers: int, **fields: Any) -> None:
        """ACKs with these numbers are not sent."""
        for number in numbers:
            self.send(STATION, build_ack(STATION, UPLINK, number, **fields))
        self.expect_nothing()


class OlderAckIsFiltered(FilterTest):
    """Older numbers are filtered; equal ones are duplicates that TCP needs, and newer ones are news."""

    def runTest(self) -> None:
        for version, index in ((4, 300), (6, 301)):
            self.insert(ack_flow(index, version=version))
            self.reset_counts()
            size = len(build_ack(STATION, UPLINK, version=version))
            self.expect_sent(1000, 5000, version=version)
            self.expect_filtered(4999, 2000, version=version)
            self.expect_sent(5000, 5000, 6000, version=version)
            self.expect_filtered(5000, version=version)
            self.expect_counts(UPLINK, arrived=(8, 8 * size), sent=(5, 5 * size), filtered=(3, 3 * size))
            self.expect_queued(UPLINK, {7: 8})


class SupersededAckLeavesTheQueue(FilterTest):
    """ACKs that wait behind data are filtered when they leave the queue: only the newest is sent."""

    def runTest(self) -> None:
        self.insert(*ONE_QUEUE, flow_entry(STATION, SLOW, protocol=6, flow_index=302))
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(2)]
        acks = [build_ack(STATION, SLOW, number) for number in (1000, 2000, 3000)]
        self.send(STATION, *bulk, *acks)
        self.expect(SLOW, *bulk, acks[-1])
        self.expect_nothing()
        self.expect_counts(SLOW, arrived=5, sent=3, filtered=2)


class TimestampsAreSuperseded(FilterTest):
    """An ACK whose only option is timestamps in the usual layout is filtered like one without."""

    def runTest(self) -> None:
        self.insert(ack_flow(303))
        self.expect_sent(1000, 5000, options=TIMESTAMPS)
        self.expect_filtered(4000, options=TIMESTAMPS)
        self.expect_filtered(4000)


class TimestampsMayStandBeforeTheirPadding(FilterTest):
    """Some stacks pad a header to its end, as RFC 9293 allows: ns-3 is one."""

    def runTest(self) -> None:
        for version, first in ((4, 390), (6, 392)):
            for index, options in enumerate(TIMESTAMPS_FIRST, first):
                with self.subTest(version=version, options=options):
                    flow = ack_flow(index, version=version)
                    self.insert(flow)
                    self.expect_sent(1000, 5000, version=version, options=options)
                    self.expect_filtered(4000, version=version, options=options)
                    self.expect_filtered(4000, version=version)
                    self.expect_sent(4000, version=version, options=SACK)
                    self.delete(flow)


ECN: tuple[dict[str, str], ...] = (
    {},
    {"flags": "AE"},
    {"flags": "AC"},
    {"flags": "AEC"},
    {"flags": "AN"},
    {"flags": "AECN"},
)  # N is AE


class EcnIsNeverLost(FilterTest):
    """An ACK is superseded by one that says the same of ECN, in ECE (RFC 3168) or by its counter (RFC 9768)."""

    def runTest(self) -> None:
        for version, first in ((4, 344), (6, 344 + len(ECN))):
            for index, said in enumerate(ECN, first):
                with self.subTest(version=version, **said):
                    flow = ack_flow(index, version=version)
                    self.insert(flow)
                    self.expect_sent(1000, 5000, version=version, **said)
                    for options in ((), TIMESTAMPS):
                        self.expect_filtered(4000, version=version, options=options, **said)
                    for other in ECN:
                        if other != said:
                            self.expect_sent(4000, version=version, **other)
                    self.expect_sent(4000, version=version, options=SACK, **said)
                    self.delete(flow)


class EachChangeOfEcnIsKept(FilterTest):
    """ACKs that wait before a change of ECN are all sent: marked bytes stay apart from unmarked ones."""

    def runTest(self) -> None:
        self.insert(*ONE_QUEUE, flow_entry(STATION, SLOW, protocol=6, flow_index=380))
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(2)]
        said = ("A", "A", "AE", "AE", "A", "A", "A")
        acks = [build_ack(STATION, SLOW, 1000 * number, flags=flags) for number, flags in enumerate(said, 1)]
        self.send(STATION, *bulk, *acks)
        self.expect(SLOW, *bulk, *acks[:4], acks[-1])
        self.expect_nothing()
        self.expect_counts(SLOW, arrived=9, sent=7, filtered=2)


class AckWithMoreToSayIsKept(FilterTest):
    """SACK, CWR, AE, PSH, URG or another option: an older ACK that says more than its number is kept."""

    def runTest(self) -> None:
        for version, index in ((4, 304), (6, 305)):
            self.insert(ack_flow(index, version=version))
            self.expect_sent(1000, 5000, version=version)
            kept: tuple[dict[str, Any], ...] = (
                {"options": SACK},
                {"options": TIMESTAMPS + SACK},
                {"options": [("NOP", None)] * 12},
                {"options": [("NOP", None)] * 4},
                *(
                    {"flags": flags, "options": options}
                    for flags in ("AC", "AEC", "AP", "AU")
                    for options in ((), TIMESTAMPS)
                ),
                {"reserved": 1},
                {"reserved": 1, "options": TIMESTAMPS},
            )
            for fields in kept:
                with self.subTest(version=version, **fields):
                    self.expect_sent(4000, version=version, **fields)
            self.expect_filtered(4000, version=version)


class OtherSegmentsAreKept(FilterTest):
    """FIN and data with an older number are kept."""

    def runTest(self) -> None:
        self.insert(ack_flow(306))
        self.expect_sent(1000, 5000)
        self.expect_sent(4000, flags="FA")
        data = build_tcp(STATION, UPLINK)  # acknowledges 2000
        self.send_and_expect(STATION, data, UPLINK)
        self.expect_filtered(4000)


class KeptAckSupersedesToo(FilterTest):
    """An ACK that is kept for what it says still makes older ones superfluous; data does not."""

    def runTest(self) -> None:
        self.insert(ack_flow(307))
        self.expect_sent(1000)
        self.expect_sent(5000, flags="AP")
        self.expect_filtered(4000)
        self.expect_sent(6000, options=SACK)
        self.expect_filtered(5500)
        data = build_tcp(STATION, UPLINK)
        self.send_and_expect(STATION, data, UPLINK)
        self.expect_sent(6000)


class FilterOffKeepsAll(HostsTest):
    """Priority without filter keeps older ACKs; so does a port without entry."""

    def runTest(self) -> None:
        self.insert(ack_flow(308), prioritise_entry(7, filter=0))
        for number in (5000, 4000, 3000):
            self.send_and_expect(STATION, build_ack(STATION, UPLINK, number), UPLINK)
        self.expect_counts(UPLINK, arrived=3, sent=3)
        self.expect_queued(UPLINK, {7: 3})
        self.send_and_expect(UPLINK, build_ack(UPLINK, STATION, 5000), STATION)
        self.send_and_expect(UPLINK, build_ack(UPLINK, STATION, 4000), STATION)


class UnknownFlowKeepsAll(FilterTest):
    """Without a flow entry there is no memory of ACK numbers, and nothing is filtered."""

    def runTest(self) -> None:
        self.expect_sent(5000, 4000, 3000)
        self.expect_counts(UPLINK, arrived=3, sent=3)


class NotAllAreFiltered(FilterTest):
    """At most fifteen waiting ACKs in a row are filtered."""

    def runTest(self) -> None:
        self.insert(*ONE_QUEUE, flow_entry(STATION, SLOW, protocol=6, flow_index=343))
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(6)]
        acks = [build_ack(STATION, SLOW, number) for number in range(1, 41)]
        self.send(STATION, *bulk, *acks)
        # A target may spend the time of each filtered ACK.
        self.expect(SLOW, *bulk, acks[15], acks[31], acks[39], timeout=20)
        self.expect_nothing()


class WhatIsRememberedWronglyIsForgotten(FilterTest):
    """Once fifteen have been filtered in a row the next is the newest: no history stops a connection."""

    def runTest(self) -> None:
        self.insert(ack_flow(381))
        self.expect_sent(1000, 0x20000000)
        self.expect_filtered(*range(0x10000001, 0x10000010))
        self.expect_sent(*range(0x10000010, 0x10000030))
        self.expect_filtered(0x10000020)


class WhoIsAWindowBehindIsAhead(FilterTest):
    """No window of TCP is as large as 2^30 bytes: a number that is further behind is of bytes that nobody saw."""

    def runTest(self) -> None:
        self.insert(ack_flow(382))
        self.expect_sent(1000, 0x50000000, 0x10000000, 0x10000001)
        self.expect_filtered(0x10000000)
        self.expect_sent(0x90000000, 0x90000001)


class WhoIsAWindowAheadBeginsARun(FilterTest):
    """A number that is 2^30 bytes ahead says nothing of those between; a run is never longer than that."""

    def runTest(self) -> None:
        self.insert(ack_flow(384), *ONE_QUEUE)
        self.expect_sent(1000, 0x40000000 + 1000, 0x40000000 + 999)
        self.insert(flow_entry(STATION, SLOW, protocol=6, flow_index=385))
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(2)]
        acks = [build_ack(STATION, SLOW, number) for number in (0x10000000, 0x40000000, 0x60000000)]
        self.send(STATION, *bulk, *acks)
        self.expect(SLOW, *bulk, acks[0], acks[2])
        self.expect_nothing()


class FilterCanComeBack(HostsTest):
    """Switched off and on again, the filter stops no connection, however far that went in between."""

    def have_left(self, count: int) -> bool:
        """Return whether this number of ACKs has been sent or filtered."""
        counts = self.read_counts(UPLINK)
        return counts["sent"][0] + counts["filtered"][0] == count

    def runTest(self) -> None:
        on, off = prioritise_entry(7, filter=1), prioritise_entry(7, filter=0)
        self.insert(on, flow_entry(STATION, UPLINK, protocol=6, flow_index=383))
        number = 10_000
        for gone in (0x10000000, 0x40000000, 0x80000000, 0xC0000000, (1 << 32) - 5_000):
            with self.subTest(gone=gone):
                for _ in range(2):
                    number = (number + 10_000) % (1 << 32)
                    self.send_and_expect(STATION, build_ack(STATION, UPLINK, number), UPLINK)
                self.modify(off)
                number = (number + gone) % (1 << 32)
                self.send_and_expect(STATION, build_ack(STATION, UPLINK, number), UPLINK)
                self.modify(on)
                acks = [build_ack(STATION, UPLINK, (number + more) % (1 << 32)) for more in range(30)]
                before = self.read_counts(UPLINK)["arrived"][0]
                # One at a time, or none is forgotten while others wait.
                for count, ack in enumerate(acks, before + 1):
                    self.send(STATION, ack)
                    self.assertTrue(poll(partial(self.have_left, count)))
                # Counted is not yet sent.
                left = self.receive_all(UPLINK, SILENCE)
                self.assertGreaterEqual(len(left), 15)
                self.send_and_expect(STATION, build_ack(STATION, UPLINK, (number + 100) % (1 << 32)), UPLINK)


class NumbersWrap(FilterTest):
    """ACK numbers are compared as serial numbers (RFC 9293, section 3.4)."""

    def runTest(self) -> None:
        self.insert(ack_flow(309))
        self.expect_sent(0xFFFFFF00, 0xFFFFFFFF, 0x00000000, 0x00000100)
        self.expect_filtered(0xFFFFFFFF, 0x00000000, 0xFFFFFF00)
        self.expect_sent(0x00000100 + 0x3FFFFFFF)
        self.expect_filtered(0x00000100)


class NewUserOfAnIndexStartsAnew(FilterTest):
    """ACKs of an earlier user of the flow index filter none of the next user's."""

    def runTest(self) -> None:
        first = ack_flow(310, generation=1)
        self.insert(first)
        self.expect_sent(1000, 5000)
        self.expect_filtered(4000)
        self.modify(ack_flow(310, generation=2))
        self.expect_sent(3000, 4000)
        self.expect_filtered(3500)
        self.delete(first)
        self.insert(ack_flow(310, generation=3, sport=9))
        self.expect_sent(900, 1000, sport=9)
        self.expect_filtered(999, sport=9)


class NewUserOfAnIndexSparesTheQueue(FilterTest):
    """An ACK of the earlier user that still waits is not compared with the number of the next one."""

    def runTest(self) -> None:
        earlier = flow_entry(STATION, SLOW, protocol=6, flow_index=313, generation=1)
        self.insert(*ONE_QUEUE, earlier)
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(3)]
        waiting, later = build_ack(STATION, SLOW, 1000), build_ack(STATION, SLOW, 5000, sport=9)
        self.send(STATION, *bulk, waiting)
        self.expect_queued(SLOW, {7: 4})
        self.delete(earlier)
        self.insert(flow_entry(STATION, SLOW, protocol=6, flow_index=313, generation=2, sport=9))
        self.send(STATION, later)
        self.expect(SLOW, *bulk, waiting, later)
        self.expect_nothing()


class ConnectionOnUsedPortsStartsAnew(FilterTest):
    """A SYN, a SYN-ACK or an RST ends what is remembered: the next connection's numbers may be any."""

    def runTest(self) -> None:
        for version, index in ((4, 314), (6, 315)):
            self.insert(ack_flow(index, version=version))
            for flags in ("S", "SA", "SEC", "R", "RA"):
                with self.subTest(version=version, flags=flags):
                    self.expect_sent(1_000_000, 9_000_000, version=version)
                    self.expect_filtered(5_000_000, version=version)
                    self.expect_sent(0, flags=flags, version=version)
                    self.expect_sent(5_000_000, 5_000_100, version=version)
                    self.expect_filtered(5_000_000, version=version)
                    self.expect_sent(0, flags="R", version=version)


class StragglerOfAnEarlierConnectionIsForgotten(FilterTest):
    """An ACK of the connection before, behind the SYN of the next one, stops neither it nor its filter."""

    def runTest(self) -> None:
        self.insert(ack_flow(316))
        self.expect_sent(1_000_000, 9_000_000)
        self.expect_sent(0, flags="S")
        self.expect_sent(9_000_000, 5_000_000, 5_000_100, 5_000_200)
        self.expect_filtered(5_000_100)


class LostAckSupersedesNothing(FilterTest):
    """A newer ACK that the full queue dropped is no reason to drop the older one in the queue."""

    def runTest(self) -> None:
        self.insert(*ONE_QUEUE, flow_entry(STATION, SLOW, protocol=6, flow_index=317))
        bulk = build_udp(STATION, SLOW, size=1000)
        others = [build_ack(STATION, SLOW, number, sport=5000) for number in range(2 * SLOW_QUEUE)]
        older, newer = build_ack(STATION, SLOW, 1000), build_ack(STATION, SLOW, 2000)
        self.send(STATION, build_ack(STATION, SLOW, 900), bulk, older, *others, newer)
        left = self.receive_all(SLOW, 2.0)
        self.assertTrue(bytes(older) in left or bytes(newer) in left, "neither the newest ACK nor the one before it")


class AckInTheBulksQueueSupersedesNothing(FilterTest):
    """ACKs that wait with the bulk, whose queue may be full, filter none."""

    def runTest(self) -> None:
        self.modify(prioritise_entry(0, filter=1))
        self.insert(ack_flow(318))
        self.expect_sent(1000, 5000, 4000, 2000)


class FlowsDoNotMix(FilterTest):
    """Each flow remembers its own number."""

    def runTest(self) -> None:
        self.insert(ack_flow(311), ack_flow(312, sport=9))
        self.expect_sent(1000, 5000)
        self.expect_sent(100, 1000, sport=9)
        self.expect_filtered(4000)
        self.expect_filtered(500, sport=9)
        self.expect_sent(2000, sport=9)


class DemotedAckSupersedesNothing(FilterTest):
    """An ACK above its queue's meter waits with the bulk: older ones arrive before it, so they are kept."""

    def runTest(self) -> None:
        self.insert(ack_flow(340))
        self.expect_sent(900)
        self.set_queue_meter(UPLINK, 7, meter_config(1, ACK_SIZE + 1))
        self.expect_sent(1000, 3000, 2000)
        self.expect_queued(UPLINK, {7: 2, 0: 2})
        self.expect_filtered(999)
