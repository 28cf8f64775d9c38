# SPDX-License-Identifier: Apache-2.0
"""Draws scenarios of a whole network: functions of a seed and a number, and of nothing else. Pure.

Rates, their ratio, the round trip and the number of flows are log-uniform between their bounds: each octave is as
likely as any other.
"""

import math
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Literal

from accesspoint.experiments.lab import probe
from accesspoint.experiments.scenes import calls
from accesspoint.topologies.links.encapsulation import TUNNELS
from accesspoint.topologies.links.profiles import LinkProfile

MAX_STATIONS = 12
MAX_FLOWS = 64
MIN_DOWN, MAX_DOWN = 2e6, 200e6  # bit/s
MAX_RATIO = 30.0  # downlink over uplink; the smallest is 1
MIN_RTT, MAX_RTT = 2.0, 200.0  # ms
MAX_CALLS = 3
MAX_KINDS = 3  # in one scenario: some are of one kind alone
MAX_QUIC = 8  # flows, two processes of Python each in a kernel of 1 GiB
CALLS_PART, PINGS_PART = 0.2, 0.1  # of the uplink, at most; one station pings in any case
PING_RATE = 8 * (probe.PACKET.size + 42) * probe.PER_SECOND  # bit/s of Ethernet frames

CONTROLS = ("cubic", "bbr", "reno", "dctcp")
QUIC, TUNNELLED = "quic", "tunnelled"
KINDS = (*CONTROLS, QUIC, TUNNELLED)

FRAME = 8 * 1514  # bits
INITIAL_WINDOW = 10  # frames (RFC 6928)
START_UP = 20.0  # s; after them slow start is over at 200 ms, and BBR has probed the round trip twice
COUNTED = 20.0  # s, two more of BBR's cycles of ten seconds
MIN_FRAMES = 1000  # of the slower link within what counts
MIN_LIMIT = 1000  # packets that a queue of the switch holds

Way = Literal["down", "up"]


@dataclass(frozen=True)
class Flows:
    """So many equal flows of a station. kind: a congestion control of TCP, QUIC or TUNNELLED."""

    station: int
    way: Way
    kind: str
    count: int


@dataclass(frozen=True)
class Scenario:
    """All that was drawn. down, up: bit/s, shared by all stations; rtt: ms. tunnel: kind of the first station's, for
    TUNNELLED flows; empty without one. calls, pings: stations that have one."""

    seed: int
    number: int
    stations: int
    down: int
    up: int
    rtt: float
    ecn: bool
    flows: tuple[Flows, ...]
    tunnel: str
    calls: tuple[int, ...]
    pings: tuple[int, ...]

    @property
    def settled(self) -> float:
        """s from which on counts: what the initial windows of all flows take on their link is start-up, too."""
        windows = (
            self.count(way) * INITIAL_WINDOW * FRAME / rate for way, rate in (("down", self.down), ("up", self.up))
        )
        return math.ceil(START_UP + 2 * max(windows))

    @property
    def seconds(self) -> float:
        """Length of the timeline, the same for all arms: a slow link takes longer to carry what can be counted."""
        return self.settled + math.ceil(max(COUNTED, MIN_FRAMES * FRAME / self.up))

    @property
    def profile(self) -> LinkProfile:
        """Links, whose queues hold what is under way in a round trip, at least MIN_LIMIT."""
        down, up = (max(MIN_LIMIT, math.ceil(rate * self.rtt / 1e3 / FRAME)) for rate in (self.down, self.up))
        name = f"tournament-{self.seed}-{self.number}"
        return LinkProfile(name, self.down, self.up, self.rtt / 1e3, down, up, shared=True)

    def count(self, way: str) -> int:
        """Number of flows of a direction."""
        return sum(flows.count for flows in self.flows if flows.way == way)

    def senders(self, way: Way) -> list[int]:
        """Stations that have flows of a direction."""
        return sorted({flows.station for flows in self.flows if flows.way == way})

    def describe(self) -> str:
        """`3 stations, 14.2/1.1 Mb/s, 35 ms, ECN on; down: 3 cubic, 1 quic; up: 4 bbr; 2 calls, 3 pings`"""
        words = [
            f"{self.stations} station{'s' * (self.stations > 1)}, {self.down / 1e6:.3g}/{self.up / 1e6:.3g} Mb/s, "
            f"{self.rtt:g} ms, ECN {'on' if self.ecn else 'off'}"
        ]
        for way in ("down", "up"):
            kinds: Counter[str] = Counter()
            for flows in self.flows:
                kinds[flows.kind] += flows.count if flows.way == way else 0
            named = [f"{kinds[kind]} {self.tunnel if kind == TUNNELLED else kind}" for kind in KINDS if kinds[kind]]
            words += [f"{way}: {', '.join(named)}"] if named else []
        return "; ".join([*words, f"{len(self.calls)} calls, {len(self.pings)} pings"])


def scenario(seed: int, number: int) -> Scenario:
    """Return the scenario of that number, from 1."""
    random = Random(f"tournament {seed} {number}")
    stations = random.randint(1, MAX_STATIONS)
    down = _whole(_spread(random, MIN_DOWN, MAX_DOWN))
    up = min(down, _whole(down / _spread(random, 1.0, MAX_RATIO)))
    rtt = round(_spread(random, MIN_RTT, MAX_RTT), 1)
    ecn = random.random() < 0.5
    total = round(_spread(random, 1, MAX_FLOWS))
    # DCTCP without ECN is Reno.
    kinds = random.sample([kind for kind in KINDS if ecn or kind != "dctcp"], random.randint(1, MAX_KINDS))
    ways = random.uniform(0.2, 0.8)
    counts: Counter[tuple[int, Way, str]] = Counter()
    for _ in range(total):
        kind, way = random.choice(kinds), "down" if random.random() < ways else "up"
        if kind == QUIC and sum(count for (_, _, one), count in counts.items() if one == QUIC) == MAX_QUIC:
            kind = "cubic"
        station = 1 if kind == TUNNELLED else random.randint(1, stations)
        counts[station, way, kind] += 1  # type: ignore[index]
    flows = tuple(Flows(*key, count) for key, count in sorted(counts.items()))
    fit = min(MAX_CALLS, stations, int(CALLS_PART * up / calls.RATE))
    pings = max(1, min(stations, int(PINGS_PART * up / PING_RATE)))
    everyone = range(1, stations + 1)
    tunnel = random.choice(TUNNELS)
    return Scenario(
        seed, number, stations, down, up, rtt, ecn, flows,
        tunnel=tunnel if any(each.kind == TUNNELLED for each in flows) else "",
        calls=tuple(sorted(random.sample(everyone, random.randint(0, fit)))),
        pings=tuple(sorted(random.sample(everyone, pings))),
    )  # fmt: skip


def _spread(random: Random, least: float, most: float) -> float:
    return math.exp(random.uniform(math.log(least), math.log(most)))


def _whole(rate: float) -> int:
    """Return a rate in whole kbit/s, not below it."""
    return math.ceil(rate / 1e3) * 1000
