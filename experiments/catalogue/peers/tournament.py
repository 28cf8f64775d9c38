# SPDX-License-Identifier: Apache-2.0
"""A tournament: scenarios drawn from a seed, each behind CAKE at its best and behind this access point.

    python -m accesspoint.experiments run tournament --quick
    python -m accesspoint.experiments run tournament --seed 7

A few of its scenarios, in a file of one's own:

    EXPERIMENT = replace(tournament.EXPERIMENT, name="three", sweep={"seed": (1,), "scenario": (17, 23, 40)})
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from accesspoint.experiments.catalogue.peers import DIFFERENCES, OUR_ARM, ping_added, standing
from accesspoint.experiments.catalogue.peers.drawing import QUIC, TUNNELLED, Flows, Scenario, scenario
from accesspoint.experiments.experiment import (
    SEED,
    Arm,
    Compared,
    Experiment,
    Measure,
    Medians,
    Point,
    Quick,
    Ranked,
    Traffic,
)
from accesspoint.experiments.measure.run_data import Of, Raw, quantile
from accesspoint.experiments.measure.samples import Sample, percentile
from accesspoint.experiments.scenes.calls import Call
from accesspoint.experiments.scenes.datagrams import Datagrams
from accesspoint.experiments.scenes.encapsulated import InTunnel, Tunnel
from accesspoint.experiments.scenes.scene import AccessPoint, Flow, Probe
from accesspoint.topologies.kernels.kernel import VIRTUAL

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

SCENARIOS, QUICK_SCENARIOS = 300, 40
DEFAULT_SEED = 1
QUIC_PORT, CALL_PORT = 4433, 6001
CAKES = (
    Arm("cake-hosts", "CAKE for stations, rtt 100 ms", "peer", options={"peer": "cake-hosts"}),
    Arm("cake-path", "CAKE for stations, rtt of the links", "peer", options={"peer": "cake-path"}),
)


def drawn(point: Point) -> Scenario:
    """Return the scenario of a point."""
    return scenario(int(point[SEED]), int(point["scenario"]))


@dataclass(frozen=True)
class Digest:
    """A figure for each station in place of all samples, which the checkout has no room for: at the middle of what
    counts `down_mbps`, `up_mbps`, `ping_ms` (mean) and `ping_p99_ms` of source `sta3`, and `empty_ping_ms`."""

    scenario: Scenario

    def prepare(self, stage: "Stage") -> None:
        stage.digest = lambda samples: self.of(Raw(samples, stage.seconds, stage.scale))

    def of(self, raw: Raw) -> list[Sample]:
        """A flow that never came up has carried nothing; a ping without any answer took as long as what counts."""
        start, end = raw.span(self.scenario.settled, None)
        found = []

        def keep(quantity: str, value: float, station: int) -> None:
            found.append(Sample((start + end) / 2, quantity, round(value, 6), end - start, f"sta{station}"))

        for flows in ("down", "up"):
            for station in self.scenario.senders(flows):
                keep(f"{flows}_mbps", raw.rate(f"{flows} sta{station} *", self.scenario.settled), station)
        for station in self.scenario.pings:
            pings = raw.values("ping_ms", f"sta{station}", self.scenario.settled) or [1e3 * (end - start)]
            keep("ping_ms", fmean(pings), station)
            keep("ping_p99_ms", percentile(pings, 0.99), station)
        empty = raw.values("empty_ping_ms")
        return found + ([Sample(0.0, "empty_ping_ms", percentile(empty, 0.5))] if empty else [])


def ping(quantity: str) -> Of:
    """Return the longest ping of a station, on the links' own round trip in place of what the run's empty links took:
    a frame takes its time on the switch's links, and none behind CAKE, which has only those after it wait."""

    def of(raw: Raw) -> float | None:
        longest, empty = max(raw.values(quantity), default=None), raw.values("empty_ping_ms")
        return longest - empty[0] + drawn(raw.point or {}).rtt if longest is not None and empty else None

    return of


def _parts(flows: Flows, port: int) -> list[Traffic]:
    """Traffic of some equal flows. port: of the first datagram's transfer."""
    name = f"{flows.way} sta{flows.station} {flows.kind}"
    if flows.kind == QUIC:
        return [Datagrams(f"{name} {n}", flows.way, flows.station, port + n) for n in range(flows.count)]
    kind, control = (InTunnel, None) if flows.kind == TUNNELLED else (Flow, flows.kind)
    return [kind(name, flows.way, station=flows.station, streams=flows.count, cc=control, cwnd_limited=False)]


def _scene(point: Point, arm: Arm) -> AccessPoint:
    own = drawn(point)
    traffic: list[Traffic] = [Digest(own)]
    if own.tunnel:
        traffic.append(Tunnel(own.tunnel))
    port = QUIC_PORT
    for flows in own.flows:
        traffic += _parts(flows, port)
        port += flows.count
    traffic += [Call(station, CALL_PORT + place) for place, station in enumerate(own.calls)]
    traffic += [Probe(station, f"sta{station}") for station in own.pings]
    peers = tuple(str(cake.options["peer"]) for cake in CAKES)
    return AccessPoint(own.profile, own.seconds, tuple(traffic), stations=own.stations, peers=peers)


def _tally(medians: Medians, points: Sequence[Point]) -> Compared:
    return standing.tally(medians, points, [arm.name for arm in CAKES], lambda point: drawn(point).describe())


EXPERIMENT = Experiment(
    name="tournament",
    title="Drawn scenarios, behind CAKE at its best and behind this access point",
    paper="none: scenarios drawn from a seed",
    question="In how many of many unlike networks is the worst-off station better off behind this access point than "
    "behind CAKE, in how many worse off, and in which?",
    scene=_scene,
    adapt=lambda arm, point: replace(arm, ecn=drawn(point).ecn),
    arms=(*CAKES, OUR_ARM),
    measures=(
        Measure("download", "Mb/s", "download, worst-off station", quantile("down_mbps", 0.0)),
        Measure("upload", "Mb/s", "upload, worst-off station", quantile("up_mbps", 0.0)),
        Measure("ping_mean", "ms", "ping, mean, worst-off station", ping("ping_ms"), "{:.1f}"),
        Measure("ping_p99", "ms", "ping, p99, worst-off station", ping("ping_p99_ms"), "{:.1f}"),
        ping_added(),
    ),
    sweep={SEED: (DEFAULT_SEED,), "scenario": tuple(range(1, SCENARIOS + 1))},
    tally=_tally,
    figures=(
        Ranked(
            "ratios", "Ratios of all scenarios, sorted: this access point's figure over CAKE's, for pings CAKE's over "
            "this access point's. Above 1 this access point is ahead; level is shaded.",
            "how much better (ratio)",
            inverted=tuple(one.text for one in standing.JUDGED if one.less), level=standing.LEVEL,
        ),
    ),
    repeats=1,
    quick=Quick(repeats=1, sweep={"scenario": tuple(range(1, QUICK_SCENARIOS + 1))}),
    differences=(
        *DIFFERENCES,
        "CAKE runs twice, as tc-cake(8) has it for stations behind one link (ack-filter and dual-srchost up, "
        "dual-dsthost down): with its default rtt of 100 ms, and with the links' own, at least `metro`'s 10 ms; "
        "inside a tunnel it sees no station and no ACK, as no device does",
        "all stations share one downlink and one uplink; the switch's queues hold a round trip of packets, at least "
        "1000, and CAKE sizes its own",
        "each scenario counts from second 20 on, plus twice what all initial windows take on their link; then for "
        "20 s, or 1000 frames of the uplink: slow links run longer, for every arm alike",
        "a scenario has one to three kinds of flows; DCTCP is drawn with ECN only, without it is Reno; at most 8 flows "
        "are like QUIC (NewReno in datagrams, no encryption), and those in a tunnel are CUBIC of the first station",
        "a ping is what the load adds to that of the run's empty links, and the links' round trip: without load it is "
        "the same behind all arms",
        "calls (50 small datagrams a second each way, no DSCP) and pings take at most a fifth and a tenth of the "
        "uplink, or one ping: where it is slow some stations have none, and pings that are lost do not count",
        "all flows start within a tenth of a second, last, and have one round trip; no losses, no radio",
        "each run keeps a figure for each station in the checkout; all samples stay next to the runs (`all.parquet`)",
    ),
    clock=VIRTUAL,
    apart=True,
)  # fmt: skip
