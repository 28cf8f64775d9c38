# SPDX-License-Identifier: Apache-2.0
"""scalable, step: a flow with the identifier of L4S (RFC 9331) waits ahead of the bulk, whole, and in a short queue."""

import time

from finsy import P4TableEntry
from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import (
    ALWAYS,
    SLOW,
    STATION,
    UPLINK,
    HostsTest,
    class_entry,
    entry,
    meter_config,
    poll,
)
from accesspoint.ptf_tests.lib.packets import CE, ECT0, ECT1, NOT_ECT, build_ack, build_udp, set_ecn
from accesspoint.ptf_tests.tests.test_flows import flow_entry

HOLD = 1.0  # s, SCALABLE_HOLD
QUEUE = 3
THRESHOLD = 100_000  # us, half of what a frame of 1000 bytes takes on the slow link
SCALABLE, BULK = 3, 4  # classes


def step_entry(threshold: int, port: int = SLOW) -> P4TableEntry:
    """ECT(1) that waited longer than `threshold` microseconds gets CE."""
    return entry("step", {"egress_port": port}, "mark_above", threshold=threshold)


class ScalableTest(HostsTest):
    """A test of scalable flows: they are of one class and queue, all others of another."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(class_entry(SCALABLE, queue=QUEUE, scalable=1), class_entry(BULK, scalable=0))

    def expect_scalable(self, scalable: int, bulk: int) -> None:
        """Expect these numbers of packets of scalable flows and of others, since the last time."""
        self.expect_queued(UPLINK, {QUEUE: scalable, 0: bulk})
        self.reset_counts()

    def send_udp(self, *kinds: int, **fields: int) -> None:
        """Send datagrams of one flow with these codepoints and see them arrive as they are."""
        for ecn in kinds:
            packet = build_udp(STATION, UPLINK, ecn=ecn, size=200, **fields)
            self.send(STATION, packet)
            self.expect(UPLINK, packet)

    def expect_behind(self, before: Packet, packet: Packet, expected: Packet | bytes) -> None:
        """Behind a frame of the same queue, which takes 0.2 s of the slow port, a packet leaves like this."""
        self.expect_nothing()  # the port is idle
        self.send(STATION, before, packet)
        self.expect(SLOW, before, expected)


class IdentifierDecides(ScalableTest):
    """ECT(1) of a known flow is scalable; ECT(0), what is not ECN-capable, and an unknown flow are not."""

    def runTest(self) -> None:
        for version in (4, 6):
            self.send_udp(ECT1, version=version)
            self.expect_scalable(0, 1)
            self.insert(flow_entry(STATION, UPLINK, version=version, flow_index=110 + version))
            self.send_udp(ECT1, ECT1, version=version)
            self.expect_scalable(2, 0)
            self.send_udp(ECT0, NOT_ECT, version=version)
            self.expect_scalable(0, 2)


class CeGoesWithItsFlow(ScalableTest):
    """A packet that was marked on its way is not parted from its flow."""

    def runTest(self) -> None:
        self.insert(flow_entry(STATION, UPLINK, flow_index=120))
        self.send_udp(ECT1, CE, CE)
        self.expect_scalable(3, 0)
        self.send_udp(ECT0, CE, CE)
        self.expect_scalable(0, 3)


class NewOwnerOfAnIndexIsNotScalable(ScalableTest):
    """An earlier owner of the flow index decides nothing about the next one's CE."""

    def runTest(self) -> None:
        for version in (4, 6):
            index = 140 + version
            first = flow_entry(STATION, UPLINK, version=version, flow_index=index, generation=1)
            self.insert(first)
            self.send_udp(ECT1, CE, version=version)
            self.expect_scalable(2, 0)
            self.delete(first)
            self.insert(flow_entry(STATION, UPLINK, version=version, flow_index=index, generation=2, sport=9))
            self.send_udp(CE, version=version, sport=9)
            self.expect_scalable(0, 1)


class UnresponsiveFlowIsBulk(ScalableTest):
    """A flow of which every packet is marked waits with the bulk."""

    def runTest(self) -> None:
        flow = flow_entry(STATION, UPLINK, flow_index=121, scalable_feedback=ALWAYS)
        self.insert(flow)
        packet = build_udp(STATION, UPLINK, ecn=ECT1, size=200)
        self.send_and_expect(STATION, packet, UPLINK, expected=set_ecn(packet, CE))
        self.expect_scalable(0, 1)
        self.modify(flow_entry(STATION, UPLINK, flow_index=121, scalable_feedback=0))
        self.send_udp(ECT1)
        self.expect_scalable(1, 0)


class FlowAboveTheMeterIsBulkForTheHold(ScalableTest):
    """One packet above its queue's meter makes that flow bulk until the hold has passed, and no other."""

    def runTest(self) -> None:
        self.insert(*(flow_entry(STATION, UPLINK, sport=port, flow_index=port) for port in (1, 2)))
        self.assertTrue(poll(self.try_hold))

    def try_hold(self) -> bool:
        """Send a flow above the meter, then another, and it again. False, with nothing judged, where the machine stood
        still for so long that the hold may have passed."""
        self.reset_counts()
        self.set_queue_meter(UPLINK, QUEUE, meter_config(1_000, 450))
        began = time.monotonic()
        packet = build_udp(STATION, UPLINK, ecn=ECT1, size=200, sport=1)
        self.send(STATION, *[packet] * 3)  # 600 bytes, before there is room for them
        self.expect(UPLINK, *[packet] * 3)
        self.expect_queued(UPLINK, {QUEUE: 2, 0: 1})
        time.sleep(0.4)  # the meter has room for two again, the hold goes on
        self.send_udp(ECT1, sport=2)
        self.expect_queued(UPLINK, {QUEUE: 3, 0: 1})
        self.send_udp(ECT1, sport=1)
        if time.monotonic() - began >= HOLD:
            time.sleep(HOLD + 0.1)
            return False
        self.expect_scalable(3, 2)
        time.sleep(HOLD + 0.1)
        self.send_udp(ECT1, sport=1)
        self.expect_scalable(1, 0)
        return True


class FlowStaysInOrder(ScalableTest):
    """While the bulk waits, a flow that is turned away stays behind its own packets, also once the meter has room."""

    def runTest(self) -> None:
        self.insert(flow_entry(STATION, SLOW, sport=1, flow_index=122))
        self.assertTrue(poll(self.try_hold))

    def try_hold(self) -> bool:
        """Send a flow of which a packet is turned away behind bulk. False, with nothing judged, where the machine stood
        still for so long that the hold may have passed."""
        self.reset_counts()
        self.set_queue_meter(SLOW, QUEUE, meter_config(1_000, 250))
        bulk = [build_udp(STATION, SLOW, size=1000, sport=port) for port in (50, 51, 52)]
        flow = [build_udp(STATION, SLOW, ecn=ECT1, size=200, sport=1, id=number) for number in range(3)]
        began = time.monotonic()
        self.send(STATION, *bulk, flow[0], flow[1])
        time.sleep(0.2)  # room for one more
        self.send(STATION, flow[2])
        classes = SCALABLE, BULK
        self.assertTrue(poll(lambda: sum(self.read_counts(SLOW, one)["arrived"][0] for one in classes) == 6))
        held = time.monotonic() - began < HOLD
        left = [self.receive(SLOW) for _ in range(6)]
        if not held:
            time.sleep(HOLD + 0.1)
            return False
        # The first of the flow overtakes what is not on the wire yet.
        self.assertIn(bytes(flow[0]), left[:2])
        left.remove(bytes(flow[0]))
        self.assertEqual(left, [bytes(packet) for packet in (*bulk, *flow[1:])])
        self.expect_nothing()
        self.expect_queued(SLOW, {QUEUE: 1, 0: 5})
        return True


class WaitingTooLongIsMarked(ScalableTest):
    """ECT(1) in a priority queue gets CE as it leaves, when it waited for longer than its port's threshold."""

    def runTest(self) -> None:
        self.insert(step_entry(THRESHOLD))
        for version, index in ((4, 123), (6, 124)):
            self.insert(flow_entry(STATION, SLOW, version=version, flow_index=index))
            self.reset_counts()
            packet = build_udp(STATION, SLOW, ecn=ECT1, size=1000, version=version)
            self.expect_behind(packet, packet, set_ecn(packet, CE))
            self.expect_counts(SLOW, SCALABLE, arrived=2, sent=2, marked=1)
        self.expect_nothing()


class StepSparesOthers(ScalableTest):
    """Neither ECT(0), nor a pure ACK, nor ECT(1) with the bulk, nor a port without a threshold is marked so."""

    def runTest(self) -> None:
        self.insert(
            class_entry(5, queue=6, priority=2, dscp=46),
            flow_entry(STATION, SLOW, sport=70, flow_index=125),
        )
        scalable = build_udp(STATION, SLOW, ecn=ECT1, size=1000, sport=70)
        self.expect_behind(scalable, scalable, scalable)
        self.insert(step_entry(THRESHOLD))
        for version in (4, 6):
            ahead = build_udp(STATION, SLOW, ecn=ECT0, size=1000, dscp=46, version=version)
            bulk = build_udp(STATION, SLOW, ecn=ECT1, size=1000, sport=71, version=version)
            for before, packet in (
                (ahead, ahead),
                (ahead, build_ack(STATION, SLOW, ecn=ECT1, dscp=46, version=version)),
                (bulk, bulk),
            ):
                self.expect_behind(before, packet, packet)
        self.expect_nothing()


class StepKeepsTheChecksumRight(ScalableTest):
    """The updated IPv4 checksum is the recomputed one, also where the sum wraps."""

    def runTest(self) -> None:
        self.insert(step_entry(THRESHOLD), flow_entry(STATION, SLOW, flow_index=126))
        before = build_udp(STATION, SLOW, ecn=ECT1, size=1000)
        base = build_udp(STATION, SLOW, ecn=ECT1, id=1)
        right = int.from_bytes(bytes(base)[24:26])
        for checksum in (0x0000, 0x0001, 0x0002, 0x0003, 0x7FFF, 0xFFFE):
            packet = build_udp(STATION, SLOW, ecn=ECT1, id=(1 + right - checksum) % 0xFFFF)
            self.assertEqual(int.from_bytes(bytes(packet)[24:26]), checksum)
            self.expect_behind(before, packet, set_ecn(packet, CE))
        self.expect_nothing()
