# SPDX-License-Identifier: Apache-2.0
"""Modelled connections behind PTF: `run.py --connections N --target bmv2`. apswitch runs them in virtual time instead.

Time is real here, and no two runs have the same. So the model's time is the number of frames that have left the slow
port: each takes one unit, whatever its size, as BMv2 paces packets. Frames of the model come long before the next one
leaves, as a rule; a few packets of tolerance are for a busy machine.
"""

import time
from collections.abc import Callable
from typing import Any

from finsy import P4TableEntry
from hypothesis import strategies as st
from ptf.testutils import test_params_get

from accesspoint.ptf_tests.lib.base import SLOW, STATION, HostsTest
from accesspoint.ptf_tests.lib.ports import OTHER_STATION, PORTS, UPLINK
from accesspoint.ptf_tests.model.connections import Run
from accesspoint.ptf_tests.model.script import MILLISECOND, Case, cases
from accesspoint.ptf_tests.model.search import Tally, search
from accesspoint.ptf_tests.model.segments import Way
from accesspoint.ptf_tests.tests.test_ack import prioritise_entry
from accesspoint.ptf_tests.tests.test_flows import flow_entry
from accesspoint.ptf_tests.tests.test_model import INDICES_OF_OTHERS

FLOWS = 65536
INDICES_OF_A_CASE = 8
# Packets that leave before the model's next frame has come; and beside a full queue of ACKs, as BMv2 paces each queue
# by itself, and what is filtered takes its time there.
TOLERANCE = 4 + 15
PASSING = 1000  # packets that leave the slow port while a target takes one to another port, where nothing waits
LIMIT = 56  # packets: those of SLOW_QUEUE, less what may differ
UNIT = {port: MILLISECOND if port == SLOW else MILLISECOND // 1000 for port in PORTS}  # of a frame on the wire
SILENCE = 0.05  # s without a frame: the counters are asked whether one waits
PATIENCE = 3.0  # s, for a frame that waits; one that its queue had no room for never comes
TRIES = 3  # of a case that fails: a busy machine is late once, and a program always
TCP = 6
REPORT_EVERY = 10.0  # s


class PtfNetwork:
    """The target behind PTF as the network of connections."""

    def __init__(self, test: HostsTest) -> None:
        self.test = test
        self.now = 0
        self.first_index = INDICES_OF_OTHERS
        self.waits = dict.fromkeys(PORTS, 0)
        self.free_at = dict.fromkeys(PORTS, 0)
        self.lost = 0  # frames of the slow port that no counter has
        self.owed = test.read_counts(SLOW)["arrived"][0]  # what that counter says once all have come

    def next_case(self) -> None:
        """Begin a case."""
        self.first_index += INDICES_OF_A_CASE
        if self.first_index + INDICES_OF_A_CASE > FLOWS:
            self.first_index = INDICES_OF_OTHERS
        self.waits = dict.fromkeys(PORTS, 0)
        while self.poll() is not None:
            pass  # of the case before

    def wire_time(self, port: int) -> Callable[[int], int]:
        """Return the time of a frame on the port's wire, by its bytes."""
        return lambda size: UNIT[port]

    def bulk_time(self, port: int) -> int:
        """Return how much later than a FIFO's a frame may leave the port."""
        return (TOLERANCE if port == SLOW else PASSING) * MILLISECOND

    def flow(self, way: Way, index: int = 0, generation: int = 0) -> P4TableEntry:
        """Return the entry of a flow."""
        return flow_entry(
            way.source,
            way.target,
            version=way.version,
            protocol=TCP,
            sport=way.source_port,
            dport=way.target_port,
            flow_index=index,
            generation=generation,
        )

    def set_flows(self, gone: list[Way], learned: list[tuple[Way, int, int]]) -> None:
        """Delete and insert flows."""
        if gone:
            self.test.p4.delete(*(self.flow(way) for way in gone))
        if learned:
            self.test.p4.insert(*(self.flow(way, self.first_index + index, age) for way, index, age in learned))

    def receive(self, port: int, frame: bytes) -> None:
        """A frame arrives at a port, now."""
        target = frame[5]  # a host's address ends with its port
        if not self.waits[target]:
            self.free_at[target] = max(self.free_at[target], self.now)
        self.waits[target] += 1
        self.owed += target == SLOW
        self.test.send(port, frame)

    def block(self, port: int) -> None:
        """A target's port cannot be blocked; the FIFO's is, and so owes less."""

    def unblock(self, port: int) -> None:
        """See `block`."""

    def advance(self, to: int) -> list[tuple[int, int, bytes]]:
        """Let time pass until a frame leaves, at most until `to`."""
        due = min((self.free_at[port] + UNIT[port] for port in PORTS if self.waits[port]), default=to)
        if not any(self.waits.values()) or due > to:
            self.now = to
            return []
        polled = self.poll()
        if polled is None:
            self.waits = dict.fromkeys(PORTS, 0)  # the others were filtered, or lost
            self.now = to
            return []
        port = polled.port
        self.waits[port] = max(0, self.waits[port] - 1)
        self.free_at[port] = max(self.free_at[port] + UNIT[port], self.now)
        self.now = max(self.now, min(self.free_at[port], to))
        return [(self.now, port, polled.packet)]

    def poll(self) -> Any:
        """Return the next frame; None when no more waits, as far as counters and silence tell."""
        end = time.monotonic() + PATIENCE
        while True:
            polled = self.test.dataplane.poll(device_number=0, timeout=SILENCE)
            if isinstance(polled, self.test.dataplane.PollSuccess):
                return polled
            counts = self.test.read_counts(SLOW)
            on_its_way = counts["arrived"][0] < self.owed or any(self.waits[port] for port in PORTS if port != SLOW)
            if on_its_way and time.monotonic() < end:
                continue
            self.owed = counts["arrived"][0]
            inside = counts["arrived"][0] - counts["sent"][0] - counts["filtered"][0]
            self.lost = min(self.lost, inside)  # what has left was not lost
            if inside <= self.lost or time.monotonic() > end:
                self.lost = max(self.lost, inside)
                return None


class EachEndKnowsAsMuchAsBehindAFifo(HostsTest):
    """Judge scripts whose servers are behind the slow port, by model/judge.py."""

    def prepare(self) -> None:
        super().prepare()
        stations = (prioritise_entry(7, port=port) for port in (STATION, OTHER_STATION, UPLINK))
        self.insert(prioritise_entry(7, filter=1, port=SLOW), *stations)

    def runTest(self) -> None:
        asked = test_params_get()
        network, tally, number = PtfNetwork(self), Tally(), asked["seed"]
        strategy: st.SearchStrategy[Case] = cases(servers=(SLOW,), limits=(LIMIT,), strict=asked["strict"])

        def begin(case: Case) -> Run:
            network.next_case()
            return Run(case, network)

        told = time.monotonic()
        while tally.connections < asked["connections"]:
            found = search(number, strategy, begin, tally, tries=TRIES)
            if found:
                summary = found.report.splitlines()[-1]
                self.fail(f"{found.report}\ncase {number} (alone: --connections 1 --seed {number}): {summary}")
            number += 1
            if time.monotonic() - told > REPORT_EVERY:
                told = time.monotonic()
                print(f"{tally.connections} of {asked['connections']} connections", flush=True)
        print(
            f"{tally.connections} connections in {tally.cases} cases from seed {asked['seed']}, {tally.frames} frames"
        )
