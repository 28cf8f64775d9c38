# SPDX-License-Identifier: Apache-2.0
"""own_data: in a connection that carries data both ways ACKs do not overtake its own data too far (RFC 5961, 5.2)."""

from lib.base import SLOW, STATION, HostsTest, poll
from lib.packets import build_ack, build_tcp
from test_ack import prioritise_entry
from test_flows import flow_entry

BEFORE = 2000  # what `build_tcp` acknowledges
MAX_OVERTAKEN = 60 << 10  # bytes


class OwnDataTest(HostsTest):
    """ACKs that leave the slow port go first; data of the same flow waits there."""

    index = 0

    def prepare(self):
        super().prepare()
        self.insert(prioritise_entry(7, port=SLOW), flow_entry(STATION, SLOW, protocol=6, flow_index=self.index))

    def send_data(self, count):
        """Send segments of data into the slow port; return them once the first one has left."""
        before = self.read_counts(SLOW)
        data = [build_tcp(STATION, SLOW, size=1000 + number) for number in range(count)]
        self.send(STATION, *data)
        arrived, sent = before["arrived"][0] + count, before["sent"][0] + 1
        self.assertTrue(poll(lambda: self.read_counts(SLOW)["arrived"][0] == arrived))
        self.assertTrue(poll(lambda: self.read_counts(SLOW)["sent"][0] >= sent))
        return data

    def expect_ahead(self, ack, data, ahead):
        """The ACK leaves before the last of the data, or behind all of it."""
        left = self.receive_all(SLOW, 1.0)
        self.assertEqual([frame for frame in left if frame != bytes(ack)], [bytes(frame) for frame in data])
        self.assertEqual(left.index(bytes(ack)) < len(data), ahead)


class AckWithinTheWindowGoesFirst(OwnDataTest):
    """An ACK that is not further ahead of what left last than any host's window goes first."""

    index = 600

    def runTest(self):
        for number in (BEFORE, BEFORE + MAX_OVERTAKEN, BEFORE - 1000):
            data = self.send_data(4)
            ack = build_ack(STATION, SLOW, number)
            self.send(STATION, ack)
            self.expect_ahead(ack, data, True)


class AckBeyondTheWindowKeepsItsOrder(OwnDataTest):
    """An ACK that is further ahead waits behind the data, or that would be discarded where it arrives."""

    index = 601

    def runTest(self):
        data = self.send_data(4)
        ack = build_ack(STATION, SLOW, BEFORE + MAX_OVERTAKEN + 1)
        self.send(STATION, ack)
        self.expect_ahead(ack, data, False)


class WhatPassedCountsAsTold(OwnDataTest):
    """Data that comes behind an ACK says as much as that one did, even if nothing of it has left."""

    index = 602

    def runTest(self):
        for ahead in (True, False):
            told = build_ack(STATION, SLOW, BEFORE + (MAX_OVERTAKEN if ahead else 0))
            self.send_and_expect(STATION, told, SLOW)
            data = self.send_data(4)
            ack = build_ack(STATION, SLOW, BEFORE + 2 * MAX_OVERTAKEN - (0 if ahead else 1))
            self.send(STATION, ack)
            self.expect_ahead(ack, data, ahead)


class DataOfOthersIsOvertaken(OwnDataTest):
    """Whoever else waits is no reason to wait, and neither is what an earlier owner of the flow index left behind."""

    index = 603

    def runTest(self):
        data = self.send_data(4)
        self.insert(flow_entry(STATION, SLOW, protocol=6, sport=9, flow_index=604))
        ack = build_ack(STATION, SLOW, BEFORE + 2 * MAX_OVERTAKEN, sport=9)
        self.send(STATION, ack)
        self.expect_ahead(ack, data, True)
        data = self.send_data(4)
        self.modify(flow_entry(STATION, SLOW, protocol=6, flow_index=self.index, generation=2))
        ack = build_ack(STATION, SLOW, BEFORE + 2 * MAX_OVERTAKEN)
        self.send(STATION, ack)
        self.expect_ahead(ack, data, True)
