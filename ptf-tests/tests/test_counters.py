# SPDX-License-Identifier: Apache-2.0
"""Counters of the packets and bytes that enter and leave each port's queue, by class."""

from accesspoint.ptf_tests.lib.base import PORTS, SLOW, STATION, UPLINK, HostsTest, class_entry, poll
from accesspoint.ptf_tests.lib.packets import build_udp

FRAMES = 30  # 6 s of the slow port


class EveryClassIsCountedApart(HostsTest):
    """Each port and class has counters of its own, packets and bytes."""

    def runTest(self) -> None:
        self.insert(*(class_entry(class_id, dst_port=f"{class_id}...{class_id}") for class_id in range(8)))
        for target in PORTS[:3]:
            source = PORTS[target % 3]
            for class_id in range(8):
                packets = [build_udp(source, target, dport=class_id, size=100 + target) for _ in range(class_id + 1)]
                self.send(source, *packets)
                self.expect(target, *packets)
        self.expect_nothing()
        for target in PORTS[:3]:
            for class_id in range(8):
                counted = (class_id + 1, (class_id + 1) * (100 + target))
                self.expect_counts(target, class_id, arrived=counted, sent=counted)


class QueueIsTheDifference(HostsTest):
    """`arrived - sent` is what the queue holds: it grows with a burst, falls packet by packet, and ends at zero."""

    def runTest(self) -> None:
        # So many that a machine that stands still for seconds sees some of them wait.
        packets = [build_udp(STATION, SLOW, size=1000, sport=number) for number in range(FRAMES)]
        self.send(STATION, *packets)
        depths: list[int] = []

        def empty() -> bool:
            counts = self.read_counts(SLOW)
            depth = counts["arrived"][0] - counts["sent"][0]
            self.assertEqual(counts["arrived"][1] - counts["sent"][1], 1000 * depth)
            if counts["arrived"][0] == FRAMES:
                depths.append(depth)
            return counts["sent"][0] == FRAMES

        self.assertTrue(poll(empty))
        self.assertGreaterEqual(depths[0], 3)
        self.assertEqual(depths, sorted(depths, reverse=True))
        self.assertGreater(len(set(depths)), 2)  # not each, for a busy machine does not see all
        self.expect(SLOW, *packets)
        self.expect_nothing()


class JumboBytesAreCounted(HostsTest):
    """Bytes are those of the whole frame, whatever its size."""

    def runTest(self) -> None:
        sizes = (60, 1514, 9014)
        for size in sizes:
            self.send(STATION, build_udp(STATION, UPLINK, size=size))
            self.expect(UPLINK, build_udp(STATION, UPLINK, size=size))
        self.expect_counts(UPLINK, arrived=(3, sum(sizes)), sent=(3, sum(sizes)))
