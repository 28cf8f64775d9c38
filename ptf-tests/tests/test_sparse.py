# SPDX-License-Identifier: Apache-2.0
"""flows: a flow within its sparse rate goes first; one packet above makes it bulk for the hold time of 1 s."""

import time
from functools import partial

from finsy import P4DirectMeterEntry

from accesspoint.ptf_tests.lib.base import STATION, UPLINK, HostsTest, class_entry, meter_config, poll
from accesspoint.ptf_tests.lib.packets import build_udp
from accesspoint.ptf_tests.tests.test_flows import flow_entry

HOLD = 1.0  # s, SPARSE_HOLD
SPARSE, BULK = 3, 4  # classes


class SparseTest(HostsTest):
    """A sparse test: sparse packets are of one class and queue, bulk packets of another."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(class_entry(SPARSE, queue=6, sparse=1), class_entry(BULK, sparse=0))

    def send_udp(self, count: int = 1, **fields: int) -> None:
        """Send datagrams of 200 bytes and see them arrive."""
        packet = build_udp(STATION, UPLINK, size=200, **fields)
        for _ in range(count):
            self.send(STATION, packet)
            self.expect(UPLINK, packet)

    def expect_sparse(self, sparse: int, bulk: int) -> None:
        """Expect these numbers of sparse and of bulk packets."""
        self.expect_counts(UPLINK, SPARSE, arrived=sparse, sent=sparse)
        self.expect_counts(UPLINK, BULK, arrived=bulk, sent=bulk)
        self.expect_queued(UPLINK, {6: sparse, 0: bulk})


class FlowWithinItsRateIsSparse(SparseTest):
    """Without a meter, or within it, a known flow is sparse."""

    def runTest(self) -> None:
        self.insert(flow_entry(STATION, UPLINK, flow_index=100))
        self.send_udp(3)
        self.expect_sparse(3, 0)
        metered = flow_entry(STATION, UPLINK, sport=1112, flow_index=101)
        metered.meter_config = meter_config(100_000, 10_000)
        self.insert(metered)
        self.send_udp(3, sport=1112)
        self.expect_sparse(6, 0)
        self.expect_nothing()


class UnknownFlowIsNotSparse(SparseTest):
    """Only a known flow can be sparse."""

    def runTest(self) -> None:
        self.send_udp(2)
        self.expect_sparse(0, 2)


class FlowAboveItsRateIsBulkForTheHold(SparseTest):
    """Above its rate a flow is bulk, and stays so until the hold has passed without another such packet."""

    def runTest(self) -> None:
        for version, index in ((4, 102), (6, 103)):
            flow = flow_entry(STATION, UPLINK, version=version, flow_index=index)
            flow.meter_config = meter_config(400, 500)
            self.insert(flow)
            self.assertTrue(poll(partial(self.try_hold, version)))

    def try_hold(self, version: int) -> bool:
        """Send above the rate, and then within it. False, with nothing judged, where the machine stood still for so
        long that the hold may have passed."""
        self.reset_counts()
        began = time.monotonic()
        packet = build_udp(STATION, UPLINK, size=200, version=version)
        self.send(STATION, *[packet] * 3)  # 600 bytes, within the 0.25 s until there is room for the third
        self.expect(UPLINK, *[packet] * 3)
        time.sleep(0.4)  # the meter is green again, the hold goes on
        self.send_udp(1, version=version)
        held = time.monotonic() - began < HOLD
        if held:
            self.expect_sparse(2, 2)
        time.sleep(HOLD + 0.1)
        if held:
            self.send_udp(1, version=version)
            self.expect_sparse(3, 2)
        return held


class NewOwnerOfAnIndexIsSparse(SparseTest):
    """An earlier owner of the flow index that was above its rate holds up nobody else."""

    def runTest(self) -> None:
        first = flow_entry(STATION, UPLINK, flow_index=105, generation=1)
        first.meter_config = meter_config(1, 100)
        self.insert(first)
        self.send_udp(1)
        self.expect_sparse(0, 1)
        self.delete(first)
        self.insert(flow_entry(STATION, UPLINK, flow_index=105, generation=2, sport=9))
        self.send_udp(1, sport=9)
        self.expect_sparse(1, 1)


class SparseRateCanChange(SparseTest):
    """The rate of a flow can also be written by its direct meter alone."""

    def runTest(self) -> None:
        flow = flow_entry(STATION, UPLINK, flow_index=104)
        self.insert(flow)
        self.send_udp(2)
        self.expect_sparse(2, 0)
        self.modify(P4DirectMeterEntry(table_entry=flow, config=meter_config(1, 100)))
        self.send_udp(2)
        self.expect_sparse(2, 2)
