# SPDX-License-Identifier: Apache-2.0
"""ack filter: an ACK that a newer one of its flow supersedes is not sent (RFC 3449, section 5.2.1)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from finsy import P4TableEntry
from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import (
    LONG_SILENCE,
    SLOW,
    STATION,
    UPLINK,
    HostsTest,
    class_entry,
    meter_config,
    poll,
)
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


def slow_flow(index: int, **fields: Any) -> P4TableEntry:
    """Return the flow of the same segments to the station behind the slow link."""
    return flow_entry(STATION, SLOW, protocol=6, flow_index=index, **fields)


def slow_bulk(count: int = 2) -> list[Packet]:
    """Return data for the slow link, behind which what comes next waits."""
    return [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(count)]


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


class WaitingTest(FilterTest):
    """A filter test of ACKs that wait together behind data: an ACK supersedes others only while it waits itself."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(*ONE_QUEUE)

    def expect_left(self, arrived: Sequence[Packet], sent: Sequence[Packet]) -> None:
        """Send these segments in this order behind data, and expect `sent` of them."""
        bulk = slow_bulk()
        self.send(STATION, *bulk, *arrived)
        self.expect(SLOW, *bulk, *sent)
        self.expect_nothing()

    def expect_left_of(self, numbers: Sequence[int], sent: Sequence[int], **fields: Any) -> None:
        """Send ACKs with these numbers behind data, and expect those with the numbers `sent`."""
        arrived, left = ([build_ack(STATION, SLOW, one, **fields) for one in some] for some in (numbers, sent))
        self.expect_left(arrived, left)


class OlderAckIsFiltered(WaitingTest):
    """Older numbers are filtered; equal ones are duplicates that TCP needs, and newer ones are news."""

    def runTest(self) -> None:
        for version, index in ((4, 300), (6, 301)):
            self.insert(slow_flow(index, version=version))
            self.reset_counts()
            self.expect_left_of((1000, 5000, 4999, 2000, 5000), (5000, 5000), version=version)
            self.expect_left_of((4000, 6000, 5000), (6000,), version=version)
            self.expect_counts(SLOW, arrived=12, sent=7, filtered=5)
            self.expect_queued(SLOW, {7: 12})


class AckBehindTheNewestIsKept(FilterTest):
    """An ACK that arrives after the newest one has left is sent whatever its number, as a FIFO would."""

    def runTest(self) -> None:
        for version, index in ((4, 386), (6, 387)):
            self.insert(ack_flow(index, version=version))
            self.reset_counts()
            size = len(build_ack(STATION, UPLINK, version=version))
            # The fourth is 4 GiB less 50,001 bytes after the third: serial numbers make it the older one.
            self.expect_sent(1000, 60_000, 100_000, 49_999, 50_100, 50_000, 50_000, version=version)
            self.expect_counts(UPLINK, arrived=(7, 7 * size), sent=(7, 7 * size), filtered=(0, 0))
            self.expect_queued(UPLINK, {7: 7})


class AckForAnotherQueueIsKept(WaitingTest):
    """The newest ACK that waits elsewhere, as where the station was before, supersedes none of those in this queue."""

    def runTest(self) -> None:
        self.insert(slow_flow(388), ack_flow(388))
        bulk = slow_bulk()
        waiting = [build_ack(STATION, SLOW, number) for number in (1000, 5000)]
        elsewhere = build_ack(STATION, UPLINK, 4000)
        self.send(STATION, *bulk, *waiting, elsewhere)
        self.expect(UPLINK, elsewhere)
        self.expect(SLOW, *bulk, *waiting)
        self.expect_queued(SLOW, {7: 4})
        self.expect_nothing()


class SupersededAckLeavesTheQueue(WaitingTest):
    """ACKs that wait behind data are filtered when they leave the queue: only the newest is sent."""

    def runTest(self) -> None:
        self.insert(slow_flow(302))
        self.expect_left_of((1000, 2000, 3000), (3000,))
        self.expect_counts(SLOW, arrived=5, sent=3, filtered=2)


class TimestampsAreSuperseded(WaitingTest):
    """An ACK whose only option is timestamps in the usual layout is filtered like one without."""

    def runTest(self) -> None:
        self.insert(slow_flow(303))
        plain, timed = (partial(build_ack, STATION, SLOW, options=options) for options in ((), TIMESTAMPS))
        self.expect_left([timed(1000), timed(5000), timed(4000), plain(4000)], [timed(5000)])


class TimestampsMayStandBeforeTheirPadding(WaitingTest):
    """Some stacks pad a header to its end, as RFC 9293 allows: ns-3 is one."""

    def runTest(self) -> None:
        for version, first in ((4, 390), (6, 392)):
            acks = partial(build_ack, STATION, SLOW, version=version)
            for index, options in enumerate(TIMESTAMPS_FIRST, first):
                with self.subTest(version=version, options=options):
                    flow = slow_flow(index, version=version)
                    self.insert(flow)
                    self.expect_left(
                        [
                            acks(1000, options=options),
                            acks(5000, options=options),
                            acks(4000, options=options),
                            acks(4000),
                            acks(4000, options=SACK),
                        ],
                        [acks(5000, options=options), acks(4000, options=SACK)],
                    )
                    self.delete(flow)


ECN: tuple[dict[str, Any], ...] = (
    {},
    {"flags": "AE"},
    {"flags": "AC"},
    {"flags": "AEC"},
    {"flags": "AN"},
    {"flags": "AECN"},
)  # N is AE


class EcnIsNeverLost(WaitingTest):
    """An ACK is superseded by one that says the same of ECN, in ECE (RFC 3168) or by its counter (RFC 9768)."""

    def runTest(self) -> None:
        for version, first in ((4, 344), (6, 344 + len(ECN))):
            acks = partial(build_ack, STATION, SLOW, version=version)
            for index, said in enumerate(ECN, first):
                with self.subTest(version=version, **said):
                    flow = slow_flow(index, version=version)
                    self.insert(flow)
                    others = [acks(4000, **other) for other in ECN if other != said]
                    kept = [acks(5000, **said), *others, acks(4000, options=SACK, **said)]
                    superseded = [acks(4000, options=options, **said) for options in ((), TIMESTAMPS)]
                    self.expect_left([acks(1000, **said), kept[0], *superseded, *kept[1:]], kept)
                    self.delete(flow)


class EachChangeOfEcnIsKept(WaitingTest):
    """ACKs that wait before a change of ECN are all sent: marked bytes stay apart from unmarked ones."""

    def runTest(self) -> None:
        self.insert(slow_flow(380))
        said = ("A", "A", "AE", "AE", "A", "A", "A")
        acks = [build_ack(STATION, SLOW, 0x60000000 + 1000 * number, flags=flags) for number, flags in enumerate(said)]
        self.expect_left(acks, [*acks[:4], acks[-1]])
        self.expect_counts(SLOW, arrived=9, sent=7, filtered=2)


class AckWithMoreToSayIsKept(WaitingTest):
    """SACK, CWR, AE, PSH, URG or another option: an older ACK that says more than its number is kept."""

    def runTest(self) -> None:
        more: tuple[dict[str, Any], ...] = (
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
        for version, index in ((4, 304), (6, 305)):
            self.insert(slow_flow(index, version=version))
            acks = partial(build_ack, STATION, SLOW, version=version)
            kept = [acks(5000), *(acks(4000, **fields) for fields in more)]
            self.expect_left([acks(1000), *kept, acks(4000)], kept)


class OtherSegmentsAreKept(WaitingTest):
    """FIN and data with an older number are kept."""

    def runTest(self) -> None:
        self.insert(slow_flow(306))
        acks = partial(build_ack, STATION, SLOW)
        kept = [acks(5000), acks(4000, flags="FA"), build_tcp(STATION, SLOW)]  # data acknowledges 2000
        self.expect_left([acks(1000), *kept, acks(4000)], kept)


class KeptAckSupersedesToo(WaitingTest):
    """An ACK that is kept for what it says still makes older ones superfluous; data does not."""

    def runTest(self) -> None:
        self.insert(slow_flow(307))
        acks = partial(build_ack, STATION, SLOW)
        pushed, selective, data, last = (
            acks(5000, flags="AP"),
            acks(6000, options=SACK),
            build_tcp(STATION, SLOW),
            acks(6000),
        )
        self.expect_left(
            [acks(1000), pushed, acks(4000), selective, acks(5500), data, last], [pushed, selective, data, last]
        )


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
        self.insert(*ONE_QUEUE, slow_flow(343))
        bulk = slow_bulk(6)
        acks = [build_ack(STATION, SLOW, number) for number in range(1, 41)]
        self.send(STATION, *bulk, *acks)
        self.expect(SLOW, *bulk, acks[15], acks[31], acks[39])
        self.expect_nothing()


class WhatIsRememberedWronglyIsForgotten(FilterTest):
    """An ACK number of long ago stops no connection, however far behind it the next ones seem."""

    def runTest(self) -> None:
        self.insert(ack_flow(381))
        self.expect_sent(1000, 0x20000000, *range(0x10000001, 0x10000014), 0x10000012)


class WhoIsAWindowBehindIsAhead(WaitingTest):
    """No window of TCP is as large as 2^30 bytes: a number that is further behind is of bytes that nobody saw."""

    def runTest(self) -> None:
        self.insert(slow_flow(382))
        numbers = (1000, 0x50000000, 0x10000000, 0x10000001, 0x10000000)
        self.expect_left_of(numbers, (1000, 0x50000000, 0x10000001))


class WhoIsAWindowAheadBeginsARun(WaitingTest):
    """A number that is 2^30 bytes ahead says nothing of those between; a run is never longer than that."""

    def runTest(self) -> None:
        self.insert(slow_flow(385))
        self.expect_left_of((0x10000000, 0x40000000, 0x60000000), (0x10000000, 0x60000000))
        ahead = (1000, 0x40000000 + 1000, 0x40000000 + 999)
        self.expect_left_of(ahead, ahead)


class FilterCanComeBack(FilterTest):
    """Switched off and on again, the filter stops no connection, however far that went in between."""

    def runTest(self) -> None:
        on, off = prioritise_entry(7, filter=1), prioritise_entry(7, filter=0)
        self.insert(ack_flow(383))
        number = 10_000
        for gone in (0x10000000, 0x40000000, 0x80000000, 0xC0000000, (1 << 32) - 5_000):
            with self.subTest(gone=gone):
                self.expect_sent(*((number + more) % (1 << 32) for more in (0, 10_000)))
                self.modify(off)
                number = (number + gone) % (1 << 32)
                self.expect_sent(number)
                self.modify(on)
                self.expect_sent(*((number + more) % (1 << 32) for more in range(5)))


class NumbersWrap(WaitingTest):
    """ACK numbers are compared as serial numbers (RFC 9293, section 3.4)."""

    def runTest(self) -> None:
        self.insert(slow_flow(309))
        self.expect_left_of((0xFFFFFF00, 0xFFFFFFFF, 0, 0x100, 0xFFFFFFFF, 0, 0xFFFFFF00), (0x100,))
        self.expect_left_of((0xFFFFFF00, 0x100, 0x100 + 0x3FFFFE00, 0x100), (0x100 + 0x3FFFFE00,))


class NewUserOfAnIndexStartsAnew(WaitingTest):
    """ACKs of an earlier user of the flow index filter none of the next user's."""

    def runTest(self) -> None:
        first = slow_flow(310, generation=1)
        self.insert(first)
        self.expect_left_of((1000, 5000, 4000), (5000,))
        self.modify(slow_flow(310, generation=2))
        self.expect_left_of((3000, 4000, 3500), (4000,))
        self.delete(first)
        self.insert(slow_flow(310, generation=3, sport=9))
        self.expect_left_of((900, 1000, 999), (1000,), sport=9)


class NewUserOfAnIndexSparesTheQueue(FilterTest):
    """ACKs of the earlier user that still wait are not compared with the next one's, nor the other way round."""

    def runTest(self) -> None:
        self.insert(*ONE_QUEUE)
        self.generation = 0
        self.assertTrue(poll(self.try_new_user))

    def try_new_user(self) -> bool:
        """Let ACKs of both users wait behind data. False, with nothing judged, where the machine stood still for so
        long that some of the earlier one's had left before the next one's came."""
        earlier = slow_flow(313, generation=self.generation + 1)
        self.generation += 2
        next_one = slow_flow(313, generation=self.generation, sport=9)
        bulk = slow_bulk(6)
        waiting = [build_ack(STATION, SLOW, number) for number in (500, 1000)]
        later = [build_ack(STATION, SLOW, number, sport=9) for number in (998, 999)]
        self.reset_counts()
        self.insert(earlier)
        self.send(STATION, *bulk, *waiting)
        self.expect_queued(SLOW, {7: len(bulk) + 2})
        self.delete(earlier)
        self.insert(next_one)
        self.send(STATION, *later)
        self.expect_queued(SLOW, {7: len(bulk) + 4})
        if self.read_counts(SLOW)["sent"][0] > len(bulk):
            self.delete(next_one)
            self.receive_all(SLOW, LONG_SILENCE)
            return False
        self.expect(SLOW, *bulk, *waiting, later[1])
        self.expect_nothing()
        return True


class ConnectionOnUsedPortsStartsAnew(WaitingTest):
    """A SYN, a SYN-ACK or an RST ends what is remembered: the next connection's numbers may be any."""

    def runTest(self) -> None:
        for version, index in ((4, 314), (6, 315)):
            self.insert(slow_flow(index, version=version))
            acks = partial(build_ack, STATION, SLOW, version=version)
            for flags in ("S", "SA", "SEC", "R", "RA"):
                with self.subTest(version=version, flags=flags):
                    before = [acks(number) for number in (1_000_000, 9_000_000, 8_000_000)]
                    after = [acks(number) for number in (5_000_000, 5_000_100, 5_000_000)]
                    # The newest of the connection before is forgotten, and no more than the run of the next one counts.
                    kept = [*before, acks(0, flags=flags), after[1]]
                    self.expect_left([*before, acks(0, flags=flags), *after], kept)


class StragglerOfAnEarlierConnectionIsForgotten(WaitingTest):
    """An ACK of the connection before, behind the SYN of the next one, stops neither it nor its filter."""

    def runTest(self) -> None:
        self.insert(slow_flow(316))
        acks = partial(build_ack, STATION, SLOW)
        before, next_one = [acks(1_000_000), acks(9_000_000)], [acks(5_000_000 + more) for more in (0, 100, 200, 100)]
        kept = [*before, acks(0, flags="S"), before[1], next_one[2]]
        self.expect_left([*before, acks(0, flags="S"), before[1], *next_one], kept)


class LostAckSupersedesNothing(FilterTest):
    """A newer ACK that the full queue dropped is no reason to drop the older one in the queue."""

    def runTest(self) -> None:
        self.insert(*ONE_QUEUE, slow_flow(317))
        bulk = build_udp(STATION, SLOW, size=1000)
        others = [build_ack(STATION, SLOW, number, sport=5000) for number in range(2 * SLOW_QUEUE)]
        older, newer = build_ack(STATION, SLOW, 1000), build_ack(STATION, SLOW, 2000)
        self.send(STATION, build_ack(STATION, SLOW, 900), bulk, older, *others, newer)
        left = self.receive_all(SLOW, LONG_SILENCE)
        self.assertTrue(bytes(older) in left or bytes(newer) in left, "neither the newest ACK nor the one before it")
        # Those that were lost count as waiting until the next one leaves.
        self.send_and_expect(STATION, build_ack(STATION, SLOW, 3000), SLOW)


class AckInTheBulksQueueSupersedesNothing(FilterTest):
    """ACKs that wait with the bulk, whose queue may be full, filter none."""

    def runTest(self) -> None:
        self.modify(prioritise_entry(0, filter=1))
        self.insert(ack_flow(318))
        self.expect_sent(1000, 5000, 4000, 2000)


class FlowsDoNotMix(WaitingTest):
    """Each flow remembers its own number."""

    def runTest(self) -> None:
        self.insert(slow_flow(311), slow_flow(312, sport=9))
        one, other = partial(build_ack, STATION, SLOW), partial(build_ack, STATION, SLOW, sport=9)
        arrived = [one(1000), one(5000), other(100), other(1000), one(4000), other(500), other(2000)]
        self.expect_left(arrived, [one(5000), other(2000)])


class DemotedAckSupersedesNothing(FilterTest):
    """An ACK above its queue's meter waits with the bulk: older ones arrive before it, so they are kept."""

    def runTest(self) -> None:
        self.insert(ack_flow(340))
        self.expect_sent(900)
        self.set_queue_meter(UPLINK, 7, meter_config(1, ACK_SIZE + 1))
        self.expect_sent(1000, 3000, 2000)
        self.expect_queued(UPLINK, {7: 2, 0: 2})
        self.expect_sent(999, 998)
