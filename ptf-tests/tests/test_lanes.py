# SPDX-License-Identifier: Apache-2.0
"""lanes: entries of stations forward and learn as others do, and marks spare a lane that holds nothing."""

from finsy import P4TableEntry

from accesspoint.ptf_tests.lib.base import (
    ALWAYS,
    OTHER_STATION,
    STATION,
    UNTAGGED,
    UPLINK,
    HostsTest,
    class_entry,
    entry,
    mac,
)
from accesspoint.ptf_tests.lib.packets import CE, ECT0, build_udp, set_ecn
from accesspoint.ptf_tests.tests.test_mark import KINDS

LANE, LAST_LANE = 5, 64


def station_entries(host: int, port: int, lane: int = LANE, weight: int = 100, rate: int = 0) -> list[P4TableEntry]:
    """Entries of a station with a lane: what it sends and what it gets waits there."""
    match = {"src_addr": mac(host), "ingress_port": port} | UNTAGGED
    of_lane = {"lane": lane, "weight": weight, "rate": rate}
    return [
        entry("learn", match, "known_station", **of_lane),
        entry("forward", {"dst_addr": mac(host)} | UNTAGGED, "forward_to_station", egress_port=port, **of_lane),
    ]


def feedback_above(depth: int, feedback: int = ALWAYS, port: int = UPLINK) -> list[P4TableEntry]:
    """Entries that mark a port's egress packets, bulk in a lane only if that holds so many packets."""
    return [
        entry(
            "port_feedback",
            {"egress_port": port, "ecn": kind},
            "add_port_feedback_above",
            feedback=feedback,
            depth=depth,
        )
        for kind in KINDS
    ]


class StationWithLane(HostsTest):
    """A station with a lane is learned, and forwarded to, as one without."""

    def runTest(self) -> None:
        for lane in (LANE, LAST_LANE):
            entries = station_entries(STATION, STATION, lane, rate=1000)
            self.modify(*entries)
            for ingress, egress in ((STATION, UPLINK), (UPLINK, STATION)):
                packet = build_udp(ingress, egress)
                self.send(ingress, packet)
                self.expect(egress, packet)
            self.expect_nothing()


class MarksSpareALaneWithoutAQueue(HostsTest):
    """Feedback above a depth is for bulk without a lane, in a lane that holds so much, and in no lane at all."""

    def runTest(self) -> None:
        self.modify(*station_entries(STATION, STATION))
        spared, other = build_udp(STATION, UPLINK, ecn=ECT0), build_udp(OTHER_STATION, UPLINK, ecn=ECT0)
        self.insert(*feedback_above(1))
        self.send(STATION, spared)
        self.expect(UPLINK, spared)
        self.send(OTHER_STATION, other)
        self.expect(UPLINK, set_ecn(other, CE))
        self.insert(class_entry(0, queue=3))
        self.send(STATION, spared)
        self.expect(UPLINK, set_ecn(spared, CE))


class MarksFromNoDepthOn(HostsTest):
    """Feedback above depth 0 is for all."""

    def runTest(self) -> None:
        self.modify(*station_entries(STATION, STATION))
        self.insert(*feedback_above(0))
        packet = build_udp(STATION, UPLINK, ecn=ECT0)
        self.send(STATION, packet)
        self.expect(UPLINK, set_ecn(packet, CE))
