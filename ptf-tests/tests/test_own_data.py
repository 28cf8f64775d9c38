# SPDX-License-Identifier: Apache-2.0
"""own_data: in a connection that carries data both ways ACKs do not overtake its own data too far (RFC 5961, 5.2)."""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import SLOW, STATION, HostsTest, poll
from accesspoint.ptf_tests.lib.packets import build_ack, build_tcp
from accesspoint.ptf_tests.tests.test_ack import prioritise_entry
from accesspoint.ptf_tests.tests.test_flows import flow_entry

BEFORE = 2000  # what `build_tcp` acknowledges
WINDOW = 512  # what `build_ack` tells, unscaled
SHIFT = 7
MSS, SACK_OK, STAMP = ("MSS", 1460), ("SAckOK", b""), ("Timestamp", (1, 0))
NOP, SCALE = ("NOP", None), ("WScale", SHIFT)
LAYOUTS = {
    "Linux": [MSS, SACK_OK, STAMP, NOP, SCALE],
    "Linux without timestamps": [MSS, NOP, NOP, SACK_OK, NOP, SCALE],
    "Windows": [MSS, NOP, SCALE, NOP, NOP, SACK_OK],
    "Darwin": [MSS, NOP, SCALE, NOP, NOP, STAMP, SACK_OK, ("EOL", None)],
    "no SACK and no timestamps": [MSS, NOP, SCALE],
}


class OwnDataTest(HostsTest):
    """ACKs that leave the slow port go first; data of the same flow waits there."""

    index = 0
    version = 4

    def prepare(self) -> None:
        super().prepare()
        self.insert(
            prioritise_entry(7, port=SLOW),
            flow_entry(STATION, SLOW, protocol=6, flow_index=self.index, version=self.version),
        )

    def ack(self, number: int, **fields: Any) -> Packet:
        """An ACK of the flow."""
        return build_ack(STATION, SLOW, number, version=self.version, **fields)

    def send_behind_data(self, *packets: Packet, first: Callable[[], None] | None = None) -> list[Packet]:
        """Send packets into the slow port while data waits there, of which a segment has left; return the data.

        first: called before the packets. Begin anew where the machine stood still until no data waited."""
        data = [build_tcp(STATION, SLOW, size=1000 + number, version=self.version) for number in range(3)]
        size = sum(map(len, data))

        def try_it() -> bool:
            before = self.read_counts(SLOW)

            def since(name: str) -> tuple[int, int]:
                counts = self.read_counts(SLOW)
                return counts[name][0] - before[name][0], counts[name][1] - before[name][1]

            self.send(STATION, *data)
            self.assertTrue(poll(lambda: since("arrived")[0] == len(data)))
            self.assertTrue(poll(lambda: since("sent")[0] >= 1))
            if first:
                first()
            self.send(STATION, *packets)
            self.assertTrue(poll(lambda: since("arrived")[0] == len(data) + len(packets)))
            if since("sent")[1] < size:
                return True
            for _ in (*data, *packets):
                self.assertIsNotNone(self.receive(SLOW))
            return False

        self.assertTrue(poll(try_it))
        return data

    def expect_ahead(self, ack: Packet, data: list[Packet], ahead: bool) -> None:
        """The ACK leaves before the last of the data, or behind all of it."""
        left = [self.receive(SLOW) for _ in (*data, ack)]
        self.assertEqual([frame for frame in left if frame != bytes(ack)], [bytes(frame) for frame in data])
        self.assertEqual(left.index(bytes(ack)) < len(data), ahead)
        self.expect_nothing()

    def expect_behind_others(self, said: Iterable[int], number: int, ahead: bool) -> None:
        """An ACK of that number goes ahead, or not, while own data that says `said` waits behind another flow's."""
        others = [build_tcp(STATION, SLOW, size=1000 + place, sport=9) for place in range(3)]
        own = [build_tcp(STATION, SLOW, size=1010 + place, number=one) for place, one in enumerate(said)]
        ack = self.ack(number)
        self.send(STATION, *others, *own, ack)
        self.expect_ahead(ack, [*others, *own], ahead)

    def expect_window(self, window: int) -> None:
        """An ACK goes ahead of its own data by so much, and not by more."""
        for more, ahead in ((0, True), (1, False)):
            ack = self.ack(BEFORE + window + more)
            data = self.send_behind_data(ack)
            self.expect_ahead(ack, data, ahead)


class AckWithinTheWindowGoesFirst(OwnDataTest):
    """An ACK that is not further ahead of what left last than its window goes first; else it keeps its order."""

    index = 600

    def runTest(self) -> None:
        self.expect_window(WINDOW)


class WindowsAreScaled(OwnDataTest):
    """A SYN says how windows are scaled, wherever hosts put the option; another connection's says nothing."""

    index = 601

    def runTest(self) -> None:
        for system, options in LAYOUTS.items():
            with self.subTest(system=system):
                self.send_and_expect(STATION, self.ack(0, flags="S", options=options), SLOW)
                self.send_and_expect(STATION, self.ack(0, flags="S", sport=9), SLOW)
                self.expect_window(WINDOW << SHIFT)
        self.send_and_expect(STATION, self.ack(0, flags="S", options=[MSS]), SLOW)
        self.expect_window(WINDOW)


class WindowsAreScaledOfIpv6(OwnDataTest):
    """Windows are scaled over IPv6, too."""

    index, version = 602, 6

    def runTest(self) -> None:
        self.send_and_expect(STATION, self.ack(0, flags="S", options=LAYOUTS["Linux"]), SLOW)
        self.expect_window(WINDOW << SHIFT)


class BothEndsScaleOrNone(OwnDataTest):
    """A SYN-ACK without the option takes back what the SYN said (RFC 7323, 2.2)."""

    index = 603

    def runTest(self) -> None:
        self.send_and_expect(STATION, self.ack(0, flags="S", options=LAYOUTS["Linux"]), SLOW)
        for options, window in ((LAYOUTS["Linux"], WINDOW << SHIFT), ([MSS], WINDOW)):
            answer = build_ack(SLOW, STATION, 1, flags="SA", sport=2222, dport=1111, options=options)
            self.send_and_expect(SLOW, answer, STATION)
            self.expect_window(window)


class WhatWaitsSaysNoLessThanItsFirst(OwnDataTest):
    """The oldest own data counts while nothing of it has left."""

    index = 604

    def runTest(self) -> None:
        for more, ahead in ((0, True), (1, False)):
            self.expect_behind_others((BEFORE, BEFORE + 10), BEFORE + WINDOW + more, ahead)


class LateDataCountsUntilItHasLeft(OwnDataTest):
    """A segment that the network brought late says less than one before it."""

    index = 609

    def runTest(self) -> None:
        for more, ahead in ((0, True), (1, False)):
            self.expect_behind_others((BEFORE + 10, BEFORE + 20, BEFORE), BEFORE + WINDOW + more, ahead)


class DataThatHasLeftIsNotWaitedFor(OwnDataTest):
    """Once all own data has left, any ACK overtakes others'; what comes then says how far the next may go."""

    index = 610

    def runTest(self) -> None:
        for number in (BEFORE, BEFORE + 2 * WINDOW):
            self.send_and_expect(STATION, build_tcp(STATION, SLOW, size=1000, number=number), SLOW)
            self.expect_behind_others((), number + 2 * WINDOW, True)
        self.expect_behind_others((number + 2 * WINDOW,), number + 3 * WINDOW, True)


class WindowOfTheSynCounts(OwnDataTest):
    """A receiver may have been told more than the ACK's window: at least what the SYN said, which is not scaled."""

    index = 607

    def runTest(self) -> None:
        told = 4 * WINDOW
        self.send_and_expect(STATION, self.ack(0, flags="S", options=[MSS], window=told), SLOW)
        self.expect_window(told)
        # A SYN-ACK without the option takes back the scale, but not that.
        self.send_and_expect(STATION, self.ack(0, flags="S", options=LAYOUTS["Linux"], window=told), SLOW)
        self.expect_window(WINDOW << SHIFT)
        answer = build_ack(SLOW, STATION, 1, flags="SA", sport=2222, dport=1111, options=[MSS])
        self.send_and_expect(SLOW, answer, STATION)
        self.expect_window(told)


class ConnectionOnUsedPortsOwesNothing(OwnDataTest):
    """Data of the connection before, waiting or gone, says nothing of the next one."""

    index = 608

    def runTest(self) -> None:
        syn = self.ack(0, flags="S")
        ack = self.ack(BEFORE + 2 * WINDOW)
        data = self.send_behind_data(syn, ack)
        self.expect_ahead(ack, [*data, syn], True)
        own = build_tcp(STATION, SLOW, size=1010, number=BEFORE - 2 * WINDOW)
        ack = self.ack(BEFORE - WINDOW + 1)
        data = self.send_behind_data(syn, own, ack)
        self.expect_ahead(ack, [*data, syn, own], False)


class DataOfOthersIsOvertaken(OwnDataTest):
    """Data of other flows is no reason to wait, and neither is that of an earlier owner of the flow index."""

    index = 605

    def runTest(self) -> None:
        self.insert(flow_entry(STATION, SLOW, protocol=6, sport=9, flow_index=606))
        ack = self.ack(BEFORE + 2 * WINDOW, sport=9)
        self.expect_ahead(ack, self.send_behind_data(ack), True)
        generations = count(2)

        def change_owner() -> None:
            generation = next(generations)
            self.modify(flow_entry(STATION, SLOW, protocol=6, flow_index=self.index, generation=generation))

        ack = self.ack(BEFORE + 2 * WINDOW)
        self.expect_ahead(ack, self.send_behind_data(ack, first=change_owner), True)
