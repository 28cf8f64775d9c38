# SPDX-License-Identifier: Apache-2.0
"""gate: a FIFO of `buffer` packets that, once full, takes packets again only when a whole batch fits."""

import time
from collections.abc import Iterable

from finsy import P4RegisterEntry, P4TableEntry
from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import ALWAYS, SLOW, STATION, UPLINK, HostsTest, entry, poll
from accesspoint.ptf_tests.lib.packets import build_ack, build_udp
from accesspoint.ptf_tests.tests.test_filter import ONE_QUEUE, slow_flow
from accesspoint.ptf_tests.tests.test_mark import port_feedback

BUFFER, BATCH = 6, 3  # packets
FORGETS, KEEPS = 1.1, 0.9  # s, GATE_FORGETS and some, and somewhat less


def gate_entry(port: int, buffer: int = BUFFER, batch: int = BATCH) -> P4TableEntry:
    """The port's gate."""
    return entry("gate", {"egress_port": port}, "batch_gate", buffer=buffer, batch=batch)


class GateTest(HostsTest):
    """A gate test: frames that take the slow port a fifth of a second each, and carry their order."""

    def prepare(self) -> None:
        super().prepare()
        self.sent_frames: list[Packet] = []

    def tearDown(self) -> None:
        # A failed test leaves packets in the queue, which are not the next one's.
        poll(lambda: self.waiting() == 0)
        super().tearDown()

    def send_frames(self, count: int) -> None:
        """Send frames to the slow port; return once each was admitted or refused."""
        before = self.count("arrived") + self.count("refused")
        first = len(self.sent_frames)
        frames = [build_udp(STATION, SLOW, size=1000, sport=first + number) for number in range(count)]
        self.sent_frames += frames
        self.send(STATION, *frames)
        self.assertTrue(poll(lambda: self.count("arrived") + self.count("refused") == before + count))
        self.sent_at = time.monotonic()

    def count(self, name: str) -> int:
        """Packets of a counter of the slow port."""
        return self.read_counts(SLOW)[name][0]

    def since(self, before: dict[str, tuple[int, int]], name: str) -> int:
        """Packets of a counter of the slow port since it was read."""
        return self.count(name) - before[name][0]

    def drain(self, before: dict[str, tuple[int, int]], received: int = 0) -> None:
        """Wait until nothing waits, and take what has left since the counters were read, but for the frames received.

        A frame that was counted is on its way for a fifth of a second."""
        self.assertTrue(poll(lambda: self.waiting() == 0))
        for _ in range(self.since(before, "sent") - received):
            self.assertIsNotNone(self.receive(SLOW))

    def waiting(self) -> int:
        """Packets that were admitted to the slow port and have not left it."""
        counts = self.read_counts(SLOW)
        return counts["arrived"][0] - counts["sent"][0] - counts["filtered"][0]

    def expect_frames(self, numbers: Iterable[int]) -> None:
        """These of the sent frames leave the slow port, and no other."""
        self.expect(SLOW, *(self.sent_frames[number] for number in numbers))
        self.expect_nothing()


class GateClosesAtItsBuffer(GateTest):
    """A burst fills the buffer, and the rest of it is refused and counted."""

    def runTest(self) -> None:
        self.insert(gate_entry(SLOW))
        self.send_frames(2 * BUFFER)
        counts = self.read_counts(SLOW)
        admitted, refused = counts["arrived"][0], counts["refused"][0]
        # Packets that have left meanwhile made room in the open gate.
        self.assertIn(admitted - BUFFER, range(counts["sent"][0] + 1))
        self.assertEqual(counts["refused"], (refused, 1000 * refused))
        self.expect_frames(range(admitted))
        self.expect_counts(SLOW, arrived=admitted, sent=admitted, refused=refused)
        self.expect_queued(SLOW, {0: admitted})


class GateAdmitsInBatches(GateTest):
    """Closed, the gate refuses every packet until a batch fits; then it takes the batch and closes again."""

    def runTest(self) -> None:
        self.insert(gate_entry(SLOW))
        # The port goes on while this looks: a packet is judged by what was so before it and after it.
        self.refusals = self.batches = 0
        self.closed = False
        self.assertTrue(poll(self.try_one), f"{self.refusals} refusals, {self.batches} batches")
        admitted = self.count("arrived")
        left = [self.receive(SLOW) for _ in range(admitted)]
        numbers = [number for number, frame in enumerate(self.sent_frames) if bytes(frame) in left]
        self.assertEqual(left, [bytes(self.sent_frames[number]) for number in numbers])
        self.expect_nothing()

    def close(self) -> bool:
        """Fill the buffer; return whether the gate refuses then."""
        self.send_frames(BUFFER + 2)
        before = self.count("refused")
        self.send_frames(1)
        return self.count("refused") > before

    def try_one(self) -> bool:
        """Send a packet to the closed gate, and when it was admitted the rest of the batch and one more.

        Nothing is judged where the machine stood still for so long that the gate may have forgotten that it closed, and
        it is closed again where it may be within a batch."""
        if not self.closed:
            self.closed = self.close()
            return False
        last_sent_at = self.sent_at
        before = self.read_counts(SLOW)
        room = BUFFER - before["arrived"][0] + before["sent"][0]
        self.send_frames(1)
        admitted = self.count("arrived") - before["arrived"][0]
        room_after = BUFFER - self.waiting() + admitted
        if admitted:
            self.send_frames(BATCH)
        after = self.read_counts(SLOW)
        self.closed = time.monotonic() - last_sent_at <= KEEPS
        if not self.closed:
            return False
        if room >= BATCH:
            self.assertEqual(admitted, 1, f"refused with room for {room}")
        elif room_after < BATCH:
            self.assertEqual(admitted, 0, f"admitted with room for {room}")
        if admitted:
            taken, left = (after[name][0] - before[name][0] for name in ("arrived", "sent"))
            if taken != BATCH:
                # It closes at a packet that finds it full: one that leaves within a batch makes room for one more.
                self.assertIn(taken, range(BATCH, room + left + 1), f"admitted of a batch of {BATCH}")
                self.closed = False
        self.refusals += not admitted
        self.batches += admitted
        return bool(self.refusals and self.batches)


class OpenGateAdmitsSinglePackets(GateTest):
    """A gate that was never full delays and drops nothing."""

    def runTest(self) -> None:
        self.insert(gate_entry(SLOW))
        self.send_frames(BUFFER - 1)
        self.expect_frames(range(BUFFER - 1))
        self.expect_counts(SLOW, arrived=BUFFER - 1, sent=BUFFER - 1)


class WithoutGateNothingIsRefused(GateTest):
    """The gate is the port's: without an entry a burst waits in the queue."""

    def runTest(self) -> None:
        self.insert(gate_entry(UPLINK, buffer=1, batch=1))
        self.send_frames(BUFFER + 3)
        self.expect_frames(range(BUFFER + 3))
        self.expect_counts(SLOW, arrived=BUFFER + 3, sent=BUFFER + 3)


class BatchAboveTheBufferReopens(GateTest):
    """A batch that never fits waits until the buffer is empty; the gate is not shut for good."""

    def runTest(self) -> None:
        self.insert(gate_entry(SLOW, buffer=2, batch=5))
        self.send_frames(5)
        admitted = self.count("arrived")
        self.expect_frames(range(admitted))
        self.send_frames(1)
        self.expect_frames([5])


class FilteredAckGivesBackItsPlace(GateTest):
    """An ACK that is filtered when it leaves the queue was in the buffer, and is no longer."""

    def runTest(self) -> None:
        self.insert(gate_entry(SLOW, buffer=3, batch=1), *ONE_QUEUE, slow_flow(320))
        for _ in range(5):
            self.assertTrue(poll(self.try_acks))

    def try_acks(self) -> bool:
        """Send two ACKs behind data: the first one is filtered. False, with nothing judged, where the machine stood
        still so long that it may have left before the second one came."""
        before = self.read_counts(SLOW)
        self.send_frames(1)
        acks = [build_ack(STATION, SLOW, 1000 * len(self.sent_frames) + more) for more in (0, 500)]
        self.send(STATION, *acks)
        self.assertTrue(poll(lambda: self.since(before, "arrived") + self.since(before, "refused") == 3))
        if self.since(before, "sent") > 1:
            self.drain(before)
            return False
        self.expect(SLOW, self.sent_frames[-1], acks[-1])
        self.assertTrue(poll(lambda: self.waiting() == 0))
        of_these = {name: self.since(before, name) for name in ("arrived", "sent", "filtered", "refused")}
        self.assertEqual(of_these, {"arrived": 3, "sent": 2, "filtered": 1, "refused": 0})
        self.expect_nothing()
        return True


class RefusedAckSupersedesNothing(GateTest):
    """A newer ACK that the gate refused is no reason to drop the older one in the queue."""

    def runTest(self) -> None:
        self.insert(
            gate_entry(SLOW, buffer=4, batch=4),
            *ONE_QUEUE,
            slow_flow(321),
        )
        self.assertTrue(poll(self.try_burst))

    def try_burst(self) -> bool:
        """Send all at once: of those admitted only the first one leaves before the last one is here. False, with
        nothing judged, where the machine stood still meanwhile."""
        before, at = self.read_counts(SLOW), len(self.sent_frames)
        older, newer = (build_ack(STATION, SLOW, 1000 * (at + more)) for more in (1, 2))
        frames: list[Packet] = [build_udp(STATION, SLOW, size=1000, sport=at + number) for number in range(10)]
        self.sent_frames += frames
        self.send(STATION, *frames[:2], older, *frames[2:], newer)
        self.assertTrue(poll(lambda: self.since(before, "arrived") + self.since(before, "refused") == 12))
        admitted = self.since(before, "arrived")
        if self.since(before, "sent") > 1:
            self.drain(before)
            return False
        self.assertIn(admitted, (4, 5))
        self.expect(SLOW, *frames[:2], older, *frames[2 : admitted - 1])
        self.expect_nothing()
        return True


class LostPacketGivesBackItsPlace(GateTest):
    """Places of packets that never left are free again once the port has done nothing for a second."""

    def runTest(self) -> None:
        self.insert(gate_entry(SLOW))
        # A queue that dropped them; and, the other way round, packets that left and were not counted.
        self.assertTrue(poll(self.try_lost))
        time.sleep(FORGETS)
        self.takes_one()
        self.admit(-1)
        self.takes_one()

    def admit(self, more: int) -> None:
        """Count so many packets as waiting."""
        (released,) = self.p4.read(P4RegisterEntry("gate_released", index=SLOW))
        self.p4.modify(P4RegisterEntry("gate_admitted", index=SLOW, data=(released.data + more) % (1 << 32)))

    def try_lost(self) -> bool:
        """Let as many be lost as the buffer holds, and see the next one refused. False, with nothing judged, where
        that took so long that the gate may have forgotten them."""
        began, before = time.monotonic(), self.read_counts(SLOW)
        self.send_frames(1)
        self.expect(SLOW, self.sent_frames[-1])
        self.admit(BUFFER)
        self.send_frames(1)
        if self.sent_at - began > KEEPS:
            time.sleep(FORGETS)
            self.drain(before, received=1)
            return False
        self.assertEqual(self.since(before, "refused"), 1)
        return True

    def takes_one(self) -> None:
        """The gate takes a packet, and nothing waits once it has left."""
        sent = len(self.sent_frames)
        self.send_frames(1)
        self.expect_frames([sent])
        released, admitted = (
            self.p4.read(P4RegisterEntry(name, index=SLOW))[0] for name in ("gate_released", "gate_admitted")
        )
        self.assertEqual(admitted.data, released.data)


class DroppedPacketTakesNoPlace(GateTest):
    """A packet that feedback drops takes no place in the buffer."""

    def runTest(self) -> None:
        feedback = port_feedback(ALWAYS)
        self.insert(gate_entry(UPLINK, buffer=3, batch=1), *feedback)
        packet = build_udp(STATION, UPLINK)
        self.send(STATION, *[packet] * 10)
        self.expect_counts(UPLINK, dropped=10)
        self.delete(*feedback)
        self.send_and_expect(STATION, packet, UPLINK)
        self.expect_counts(UPLINK, arrived=1, sent=1, dropped=10)
