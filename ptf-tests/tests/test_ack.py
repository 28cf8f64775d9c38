# SPDX-License-Identifier: Apache-2.0
"""ack: pure ACKs go first, as long as they keep within the rate of their queue."""

from finsy import P4TableEntry
from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import (
    BURST,
    LONG_SILENCE,
    SLOW,
    STATION,
    UPLINK,
    HostsTest,
    class_entry,
    entry,
    meter_config,
    poll,
)
from accesspoint.ptf_tests.lib.packets import build_ack, build_tcp, build_udp
from accesspoint.ptf_tests.tests.test_flows import flow_entry

ACK_SIZE = 54  # bytes, IPv4 without options


def prioritise_entry(queue: int, *, filter: int = 0, port: int = UPLINK) -> P4TableEntry:
    """Pure ACKs that leave the port join the queue; superseded ones are dropped when `filter` is 1."""
    return entry("ack_priority", {"egress_port": port}, "prioritise", queue=queue, filter=filter)


class PureAckJoinsItsQueue(HostsTest):
    """Pure ACKs join the priority queue, everything else stays where `classify` put it."""

    def runTest(self) -> None:
        self.insert(prioritise_entry(7))
        acks = [build_ack(STATION, UPLINK, version=version) for version in (4, 6)]
        others = [build_tcp(STATION, UPLINK), build_udp(STATION, UPLINK), build_ack(STATION, UPLINK, flags="FA")]
        for packet in (*acks, *others):
            self.send(STATION, packet)
            self.expect(UPLINK, packet)
        self.expect_nothing()
        self.expect_queued(UPLINK, {7: 2, 0: 3})
        self.expect_counts(UPLINK, arrived=5, sent=5)


class OtherPortsHaveNoPriority(HostsTest):
    """The entry is the port's: an ACK that leaves another port waits with the rest."""

    def runTest(self) -> None:
        self.insert(prioritise_entry(7))
        self.send_and_expect(UPLINK, build_ack(UPLINK, STATION), STATION)
        self.expect_queued(STATION, {0: 1})


class PriorityOverridesClass(HostsTest):
    """A pure ACK keeps its class and leaves the class's queue."""

    def runTest(self) -> None:
        self.insert(class_entry(3, queue=2), prioritise_entry(7))
        self.send_and_expect(STATION, build_ack(STATION, UPLINK), UPLINK)
        self.send_and_expect(STATION, build_tcp(STATION, UPLINK), UPLINK)
        self.expect_queued(UPLINK, {7: 1, 2: 1})
        self.expect_counts(UPLINK, 3, arrived=2, sent=2)


class BusyPortTest(HostsTest):
    """A test of what leaves the slow port, and when."""

    def begin(self) -> None:
        """Have counters at zero, and all else as it was."""
        self.reset_counts()

    def receive_behind(self, bulk: list[Packet], *acks: Packet) -> tuple[list[bytes | None], int]:
        """Send ACKs into the slow port once bulk waits there; return all in the order in which it left, and how many
        frames had left when the ACKs had come. Begin anew where the machine stood still until no bulk waited."""
        found: list[tuple[list[bytes | None], int]] = []

        def try_it() -> bool:
            self.begin()
            self.send(STATION, *bulk)
            self.assertTrue(poll(lambda: self.read_counts(SLOW)["arrived"][0] == len(bulk)))
            self.send(STATION, *acks)
            self.assertTrue(poll(lambda: self.read_counts(SLOW)["arrived"][0] == len(bulk) + len(acks)))
            gone = self.read_counts(SLOW)["sent"][0]
            left = [self.receive(SLOW) for _ in range(len(bulk) + len(acks))]
            if gone < len(bulk):
                found.append((left, gone))
            return bool(found)

        self.assertTrue(poll(try_it))
        return found[0]


class AckOvertakesBulk(BusyPortTest):
    """On a busy port an ACK leaves before the data that waited when it came."""

    def runTest(self) -> None:
        self.insert(prioritise_entry(7, port=SLOW))
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(5)]
        ack = build_ack(STATION, SLOW)
        left, gone = self.receive_behind(bulk, ack)
        self.assertEqual([frame for frame in left if frame != bytes(ack)], [bytes(frame) for frame in bulk])
        self.assertIn(bytes(ack), left[: gone + 1])
        self.expect_nothing()


class FullPortDropsBulkFirst(HostsTest):
    """A port that is full of bulk loses none of the ACKs, and sends them next."""

    def runTest(self) -> None:
        self.insert(prioritise_entry(7, port=SLOW))
        self.assertTrue(poll(self.try_full))

    def try_full(self) -> bool:
        """Fill the port, and send ACKs. False, with nothing judged, where the machine stood still for so long that it
        was never full, or that no bulk waited any longer."""
        bulk, count = build_udp(STATION, SLOW, size=200), 3 * BURST
        acks = [build_ack(STATION, SLOW, number) for number in range(1, 11)]
        self.reset_counts()
        self.send_many(STATION, bulk, count, to=SLOW)
        self.send(STATION, *acks)
        self.expect_queued(SLOW, {7: len(acks), 0: count})
        gone = self.read_counts(SLOW)["sent"][0]
        left = self.receive_all(SLOW, LONG_SILENCE)
        if len(left) >= count or gone + len(acks) >= len(left):
            return False
        # Bulk that came between two ACKs may have left between them; ACKs that waited then left before all bulk.
        self.assertEqual(
            [frame for frame in left[: gone + len(acks)] if frame != bytes(bulk)], [bytes(ack) for ack in acks]
        )
        return True


class PriorityQueueIsMetered(HostsTest):
    """Above the rate of its queue an ACK joins queue 0; other queues and ports have rates of their own."""

    def runTest(self) -> None:
        self.insert(prioritise_entry(7), class_entry(1, queue=6, dscp=46), flow_entry(STATION, UPLINK, protocol=6))
        self.set_queue_meter(UPLINK, 7, meter_config(1, 2 * ACK_SIZE + 1))
        for _ in range(5):
            self.send(STATION, build_ack(STATION, UPLINK))
            self.expect(UPLINK, build_ack(STATION, UPLINK))
        self.expect_queued(UPLINK, {7: 2, 0: 3})
        for _ in range(3):
            self.send(STATION, build_udp(STATION, UPLINK, dscp=46))
            self.expect(UPLINK, build_udp(STATION, UPLINK, dscp=46))
        self.expect_queued(UPLINK, {7: 2, 6: 3, 0: 3})
        self.expect_nothing()


class QueueMeterCanBeLifted(HostsTest):
    """Without a rate the queue takes every ACK again."""

    def runTest(self) -> None:
        self.insert(prioritise_entry(5), flow_entry(STATION, UPLINK, protocol=6))
        self.set_queue_meter(UPLINK, 5, meter_config(1, 1))
        self.send_and_expect(STATION, build_ack(STATION, UPLINK), UPLINK)
        self.expect_queued(UPLINK, {0: 1})
        self.lift_queue_meter(UPLINK, 5)
        self.send_and_expect(STATION, build_ack(STATION, UPLINK), UPLINK)
        self.expect_queued(UPLINK, {0: 1, 5: 1})


class AckAboveTheRateWaits(BusyPortTest):
    """On a busy port an ACK above the rate of its queue waits with the bulk: nobody buys priority."""

    def begin(self) -> None:
        super().begin()
        self.set_queue_meter(SLOW, 7, meter_config(1, ACK_SIZE + 1))

    def runTest(self) -> None:
        self.insert(prioritise_entry(7, port=SLOW), flow_entry(STATION, SLOW, protocol=6))
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in range(4)]
        first, second = build_ack(STATION, SLOW, 5000), build_ack(STATION, SLOW, 6000)
        left, gone = self.receive_behind(bulk, first, second)
        self.assertIn(bytes(first), left[: gone + 1])
        self.assertEqual([frame for frame in left if frame != bytes(first)], [*map(bytes, bulk), bytes(second)])
        self.expect_queued(SLOW, {7: 1, 0: 5})
        self.expect_nothing()
