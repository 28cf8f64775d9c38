# SPDX-License-Identifier: Apache-2.0
"""lanes: the bulk of a station waits in a queue of its own, and marks spare one that holds nothing.

Where a target has no lanes, all bulk is one queue, and entries and marks are the same.
"""

import time

from finsy import P4TableEntry
from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import (
    ALWAYS,
    OTHER_STATION,
    SLOW,
    STATION,
    UNTAGGED,
    UPLINK,
    HostsTest,
    class_entry,
    entry,
    mac,
    poll,
)
from accesspoint.ptf_tests.lib.packets import CE, ECT0, build_udp, set_ecn
from accesspoint.ptf_tests.tests.test_mark import port_feedback

LANE, OTHER_LANE, LAST_LANE = 5, 6, 64
FAR_STATION = 9  # behind the slow port, too
WAITING = 6  # frames of 1000 bytes
BUSY = 2 + WAITING
DEPTH = 2  # packets of a lane, from which on its bulk is marked
PRIORITY = 46  # DSCP of what waits ahead of the bulk


def sends_in(host: int, lane: int = LANE, weight: int = 100, rate: int = 0) -> P4TableEntry:
    """The entry of a station behind its port whose bulk waits in a lane."""
    match = {"src_addr": mac(host), "ingress_port": host} | UNTAGGED
    return entry("learn", match, "known_station", lane=lane, weight=weight, rate=rate)


def gets_in(host: int, port: int, lane: int = LANE, weight: int = 100, rate: int = 0) -> P4TableEntry:
    """The entry of a station behind a port for whom bulk waits in a lane."""
    match = {"dst_addr": mac(host)} | UNTAGGED
    return entry("forward", match, "forward_to_station", egress_port=port, lane=lane, weight=weight, rate=rate)


class StationWithLane(HostsTest):
    """A station with a lane is learned, and forwarded to, as one without."""

    def runTest(self) -> None:
        for lane in (LANE, LAST_LANE):
            self.modify(sends_in(STATION, lane, rate=1000), gets_in(STATION, STATION, lane, rate=1000))
            for ingress, egress in ((STATION, UPLINK), (UPLINK, STATION)):
                packet = build_udp(ingress, egress)
                self.send(ingress, packet)
                self.expect(egress, packet)
            self.expect_nothing()


class MarksSpareALaneWithoutAQueue(HostsTest):
    """Feedback above a depth is for bulk without a lane, and for what is no bulk."""

    def runTest(self) -> None:
        self.modify(sends_in(STATION), gets_in(STATION, STATION))
        for ingress, egress in ((STATION, UPLINK), (UPLINK, STATION)):
            spared = build_udp(ingress, egress, ecn=ECT0)
            self.insert(*port_feedback(ALWAYS, egress, depth=1))
            self.send(ingress, spared)
            self.expect(egress, spared)
        without_lane, no_bulk = (build_udp(source, UPLINK, ecn=ECT0) for source in (OTHER_STATION, STATION))
        self.send(OTHER_STATION, without_lane)
        self.expect(UPLINK, set_ecn(without_lane, CE))
        self.insert(class_entry(0, queue=3))
        self.send(STATION, no_bulk)
        self.expect(UPLINK, set_ecn(no_bulk, CE))


class MarksFromNoDepthOn(HostsTest):
    """Feedback above depth 0 is for all."""

    def runTest(self) -> None:
        self.modify(sends_in(STATION))
        self.insert(*port_feedback(ALWAYS, depth=0))
        packet = build_udp(STATION, UPLINK, ecn=ECT0)
        self.send(STATION, packet)
        self.expect(UPLINK, set_ecn(packet, CE))


class LaneOfTheReceiverCounts(HostsTest):
    """Between two stations bulk waits in the lane of the one that gets it, if its entry names one."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS, OTHER_STATION, depth=1))
        packet = build_udp(STATION, OTHER_STATION, ecn=ECT0)
        for sender, receiver, spared in ((LANE, None, True), (LANE, 0, False), (0, LANE, True)):
            self.modify(sends_in(STATION, sender))
            if receiver is not None:
                self.modify(gets_in(OTHER_STATION, OTHER_STATION, receiver))
            self.send(STATION, packet)
            self.expect(OTHER_STATION, packet if spared else set_ecn(packet, CE))


class SlowLanesTest(HostsTest):
    """A test of what waits for the slow port: 0.2 s for each frame of 1000 bytes."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(class_entry(1, queue=3, dscp=PRIORITY), *port_feedback(ALWAYS, SLOW, [ECT0], depth=DEPTH))

    def keep_busy(self, source: int, dscp: int = 0) -> None:
        """Send frames to the slow port, and see the first two leave."""
        frames = [build_udp(source, SLOW, size=1000, sport=number, dscp=dscp) for number in range(BUSY)]
        self.send(source, *frames)
        self.expect(SLOW, *frames[:2])

    def receive_rest(self, others: int) -> list[bytes]:
        """The frames that `keep_busy` left behind, and so many others, in the order in which they leave."""
        return [frame for _ in range(WAITING + others) if (frame := self.receive(SLOW)) is not None]


class MarksAreForWhoMakesTheQueue(SlowLanesTest):
    """Bulk whose lane holds packets is marked, that of another lane is not, and none once the lane has drained."""

    def runTest(self) -> None:
        self.modify(sends_in(STATION), sends_in(OTHER_STATION, OTHER_LANE))
        self.assertTrue(poll(self.try_marks))

    def try_marks(self) -> bool:
        """Send behind a lane that holds packets. False, with nothing judged, where the machine stood still until it may
        have held too few."""
        own, other = build_udp(STATION, SLOW, ecn=ECT0), build_udp(OTHER_STATION, SLOW, ecn=ECT0)
        self.reset_counts()
        self.keep_busy(STATION)
        self.send_at_once((STATION, own), (OTHER_STATION, other))
        self.assertTrue(poll(lambda: self.read_counts(SLOW)["arrived"][0] == BUSY + 2))
        waiting = BUSY - self.read_counts(SLOW)["sent"][0]
        left = self.receive_rest(2)
        if waiting <= DEPTH:
            return False
        self.assertIn(set_ecn(own, CE), left)
        self.assertIn(bytes(other), left)
        self.send(STATION, own)
        self.expect(SLOW, own)
        return True


class DepthIsOfTheBulk(SlowLanesTest):
    """Packets ahead of the bulk wait in no lane."""

    def runTest(self) -> None:
        self.modify(sends_in(STATION))
        self.keep_busy(STATION, dscp=PRIORITY)
        bulk = build_udp(STATION, SLOW, ecn=ECT0)
        self.send(STATION, bulk)
        self.assertIn(bytes(bulk), self.receive_rest(1))


class SharesTest(SlowLanesTest):
    """A test of two lanes that wait for the slow port."""

    def order(self, *ways: tuple[int, int], counts: tuple[int, int], size: int) -> tuple[str, float]:
        """Return the order in which frames of the lanes A and B leave, and the time until the last is received (s).

        Each lane's frames have the source and target of a way. The time begins before another frame of A, the first."""
        # The lane that was alone last keeps what is left of its round: let that be A, whatever was tested before.
        first, began = build_udp(*ways[0], size=size), time.monotonic()
        self.send(ways[0][0], first)
        self.expect(SLOW, first)
        self.keep_busy(UPLINK, dscp=PRIORITY)
        names: dict[bytes, str] = {}
        sent: list[tuple[int, Packet]] = []
        for name, (source, target), count in zip("AB", ways, counts, strict=True):
            frames: list[Packet] = [build_udp(source, target, size=size, sport=number) for number in range(count)]
            sent += [(source, frame) for frame in frames]
            names |= {bytes(frame): name for frame in frames}
        self.send_at_once(*sent)
        order = "".join(names[frame] for frame in self.receive_rest(sum(counts)) if frame in names)
        return order, time.monotonic() - began

    def both_ways(
        self, weights: tuple[int, int], rate: int, counts: tuple[int, int], size: int
    ) -> list[tuple[str, float]]:
        """Return `order` of lanes of senders and of lanes of receivers. rate: of A."""
        self.modify(sends_in(STATION, LANE, weights[0], rate), sends_in(OTHER_STATION, OTHER_LANE, weights[1]))
        up = self.order((STATION, SLOW), (OTHER_STATION, SLOW), counts=counts, size=size)
        self.modify(gets_in(SLOW, SLOW, LANE, weights[0], rate))
        self.insert(gets_in(FAR_STATION, SLOW, OTHER_LANE, weights[1]))
        down = self.order((UPLINK, SLOW), (UPLINK, FAR_STATION), counts=counts, size=size)
        return [up, down]


class LanesShareByWeight(SharesTest):
    """Lanes of a full port share it by the weights in their entries."""

    def runTest(self) -> None:
        for order, _ in self.both_ways((400, 100), rate=0, counts=(24, 24), size=200):
            self.assertEqual((order.count("A"), order.count("B")), (24, 24))
            # In one round of deficit round robin A may send 1514 bytes and B 378.
            self.assertLess(order[: order.rindex("A")].count("B"), 12, order)


class LaneKeepsItsRate(SharesTest):
    """A lane with a rate waits for it, while others go."""

    def runTest(self) -> None:
        # At 250 bytes/s, with a burst of 3028 bytes, A's sixth frame, here the last, leaves when five are paid for,
        # 7.9 s after the first. B's have left after 4 s.
        for order, seconds in self.both_ways((100, 100), rate=2, counts=(5, 7), size=1000):
            self.assertEqual((order.count("A"), order.count("B")), (5, 7))
            self.assertEqual(order[-1], "A", order)
            self.assertGreater(seconds, (5 * 1000 - 3028) / 250, order)


class FlowsOfALaneTakeTurns(SharesTest):
    """Two flows of a lane take turns: who has sent less does not wait for all that the other one has sent before."""

    def runTest(self) -> None:
        for source, target, station in ((STATION, SLOW, sends_in(STATION)), (UPLINK, SLOW, gets_in(SLOW, SLOW))):
            self.modify(station)
            self.keep_busy(OTHER_STATION, dscp=PRIORITY)
            flows = {
                name: [build_udp(source, target, sport=ord(name), size=1000 + number) for number in range(count)]
                for name, count in (("A", 6), ("B", 2))
            }
            names = {bytes(frame): name for name, frames in flows.items() for frame in frames}
            self.send(source, *flows["A"], *flows["B"])
            left = [frame for frame in self.receive_rest(8) if frame in names]
            order = "".join(names[frame] for frame in left)
            self.assertEqual((order.count("A"), order.count("B")), (6, 2), order)
            self.assertLessEqual(order.rindex("B"), 4, order)
            for name, frames in flows.items():
                self.assertEqual([frame for frame in left if names[frame] == name], [bytes(frame) for frame in frames])
