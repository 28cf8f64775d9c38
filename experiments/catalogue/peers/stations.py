# SPDX-License-Identifier: Apache-2.0
"""Shares of stations: of one that opens many connections, of two with weights, of 64 on one link."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from accesspoint.experiments.catalogue.peers import (
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    SET_ARMS,
    STATION_ARMS,
    by_classes,
    ping_added,
)
from accesspoint.experiments.experiment import Arm, Bars, Experiment, Goal, Measure, Medians, Point, Quick, Timeline
from accesspoint.experiments.measure.run_data import Of, Raw, jain, mean, rate
from accesspoint.experiments.scenes.bulk import Uploads
from accesspoint.experiments.scenes.scene import AccessPoint, Flow, Probe
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.addresses import of_station
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile
from accesspoint.topologies.links.station_classes import StationClass

SECONDS, OTHER, SETTLED = 60, 5, 25
"""s: of the timeline; from when on the other station sends; from when on counts."""
TESTBED = PROFILES["testbed"]
SHARED = replace(TESTBED, name="testbed-shared", shared=True)
MANY = 32
ECN = ("on", "off")
WEIGHTS = 3, 1
STATIONS, MAX_UPLOADS, COUNTED = 64, 8, 30
LINK_OF_64 = LinkProfile("stations-64", 50_000_000, 10_000_000, rtt=0.02)
Way = Literal["up", "down"]


def share(name: str, start: float, end: float | None = None) -> Of:
    """Return the part of one flow in what all flows carry."""

    def of(raw: Raw) -> float | None:
        one, all_of_them = raw.rate(name, start, end), raw.rate("*", start, end)
        return one / all_of_them if all_of_them else None

    return of


def _of_ecn(medians: Medians, *measures: str) -> Iterable[float]:
    """This access point's figures with ECN and without."""
    return (medians(measure, "ours", ecn=ecn) for measure in measures for ecn in ECN)


def _ping(source: str) -> Of:
    return mean("ping_ms", SETTLED, source=source)


def _isolation(way: Way, what: str) -> AccessPoint:
    flows = (
        Flow("one", way, station=1, cwnd_limited=False),
        Flow(what, way, OTHER, station=2, streams=MANY, cwnd_limited=False),
    )
    profile = TESTBED if way == "up" else SHARED
    return AccessPoint(profile, SECONDS, (*flows, Probe(1, "one"), Probe(2, "many")), stations=2, peers=PEERS)


def _isolation_measures(what: str) -> tuple[Measure, ...]:
    return (
        Measure("one", "Mb/s", f"the one {what[:-1]}", rate("one", SETTLED)),
        Measure(what, "Mb/s", f"the other station's {MANY} {what} together", rate(what, SETTLED)),
        Measure("both", "Mb/s", "both stations together", rate("*", SETTLED)),
        Measure("share", "", f"the one {what[:-1]}'s part of both", share("one", SETTLED)),
        Measure("share_starting", "", f"its part in the first {SETTLED - OTHER} s", share("one", OTHER, SETTLED)),
        Measure("ping_one", "ms", "ping of the station with one, mean", _ping("one"), "{:.1f}"),
        Measure("ping_many", "ms", f"ping of the one with {MANY}, mean", _ping("many"), "{:.1f}"),
        ping_added(SETTLED),
    )  # fmt: skip


def _isolation_goals(what: str, least: float) -> tuple[Goal, ...]:
    return (
        Goal(
            f"the station with one {what[:-1]} has {{value}} of what both send (at least {{limit}})",
            lambda medians: min(_of_ecn(medians, "share")), at_least=0.45,
        ),
        Goal(
            f"the station with one {what[:-1]} has no more than its half: {{value}} (at most {{limit}})",
            lambda medians: max(_of_ecn(medians, "share")), at_most=0.55,
        ),
        Goal(
            "both stations together get {value} (at least {limit})",
            lambda medians: min(_of_ecn(medians, "both")), at_least=least, shown="{:.2f} Mb/s",
        ),
    )  # fmt: skip


def _isolation_figures(what: str) -> tuple[Timeline | Bars, ...]:
    return (
        Timeline("throughput", "Throughput over time, with ECN.", ("one", what), point={"ecn": "on"}),
        *(Bars(f"rates-{ecn}", f"Throughput of each station, ECN {ecn}.", ("one", what), "throughput (Mb/s)",
               point={"ecn": ecn}) for ecn in ECN),
    )  # fmt: skip


HOSTS = Experiment(
    name="hosts",
    title="A station with one upload and one with 32",
    paper="none: what CAKE calls isolation of hosts (dual-srchost)",
    question="Does a station get more of the uplink by opening more connections, and do they delay its own sparse "
    "flows, or another's?",
    scene=_isolation("up", "uploads"),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=_isolation_measures("uploads"),
    sweep={"ecn": ECN},
    goals=(
        *_isolation_goals("uploads", 0.85),
        Goal(
            "ping of either station takes {value} (at most {limit})",
            lambda medians: max(_of_ecn(medians, "ping_one", "ping_many")), at_most=12.0, shown="{:.1f} ms",
        ),
    ),
    figures=_isolation_figures("uploads"),
    repeats=5,
    quick=Quick(arms=STATION_ARMS),
    differences=DIFFERENCES,
    clock=VIRTUAL,
)  # fmt: skip

HOSTS_DOWN = Experiment(
    name="hosts-down",
    title="A station with one download and one with 32, on one downlink",
    paper="none: what CAKE calls isolation of hosts (dual-dsthost)",
    question="Does a station get more of a downlink that it shares by opening more connections?",
    scene=_isolation("down", "downloads"),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=_isolation_measures("downloads"),
    sweep={"ecn": ECN},
    goals=_isolation_goals("downloads", 13.0),
    figures=_isolation_figures("downloads"),
    repeats=5,
    quick=Quick(arms=STATION_ARMS),
    differences=(*DIFFERENCES, "both stations are behind one port, and share its 14 Mb/s and its queue"),
    clock=VIRTUAL,
)  # fmt: skip


def _weights(point: Point, arm: Arm) -> AccessPoint:
    way: Way = "up" if point["way"] == "up" else "down"
    flows = tuple(
        Flow(name, way, station=number, cwnd_limited=False) for number, name in enumerate(("heavy", "light"), start=1)
    )
    return AccessPoint(TESTBED if way == "up" else SHARED, SECONDS, flows, stations=2, peers=(*PEERS, "htb"))


def _weighted(way: Way) -> tuple[Goal, Goal]:
    return (
        Goal(
            f"{way}: the station with weight 3 has {{value}} of the link (at least {{limit}})",
            lambda medians: medians("share", "ours", way=way), at_least=0.72,
        ),
        Goal(
            f"{way}: the station with weight 3 has no more than {{value}} of the link (at most {{limit}})",
            lambda medians: medians("share", "ours", way=way), at_most=0.78,
        ),
    )  # fmt: skip


WEIGHTED = {
    "stations": {of_station(number)["mac"]: {"weight": weight} for number, weight in enumerate(WEIGHTS, start=1)}
}
RATES: tuple[tuple[Way, int], ...] = (("up", TESTBED.up), ("down", TESTBED.down))
CLASSES = tuple(
    StationClass(number, way, rate * weight // sum(WEIGHTS), rate)
    for way, rate in RATES
    for number, weight in enumerate(WEIGHTS, start=1)
)

WEIGHTS_OF_TWO = Experiment(
    name="weights",
    title="Two stations with weights of 3 and 1",
    paper="none: the settings of stations (docs/controller/stations.md)",
    question="Does a station with three times the weight get three quarters of a full link, up and down?",
    scene=_weights,
    arms=(FIFO, *PEER_ARMS, by_classes(*CLASSES), replace(OUR_ARM, controller=WEIGHTED)),
    measures=(
        Measure("heavy", "Mb/s", "the station with weight 3", rate("heavy", SETTLED)),
        Measure("light", "Mb/s", "the one with weight 1", rate("light", SETTLED)),
        Measure("share", "", "part of the station with weight 3", share("heavy", SETTLED)),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", SETTLED), "{:.1f}"),
        ping_added(SETTLED),
    ),
    sweep={"way": ("up", "down")},
    goals=(*_weighted("up"), *_weighted("down")),
    figures=tuple(
        Bars(f"rates-{way}", f"Throughput of each station, {way}.", ("heavy", "light"), "throughput (Mb/s)",
             point={"way": way})
        for way in ("up", "down")
    ),
    repeats=5,
    quick=Quick(arms=SET_ARMS),
    differences=(
        *DIFFERENCES,
        "down: both stations are behind one port, and share its 14 Mb/s and its queue",
        "CAKE has no weights of hosts: it shows what stations have without. HTB assures 3/4 and 1/4 of the link",
    ),
    clock=VIRTUAL,
)  # fmt: skip


def of_share(pick: Literal["least", "most"]) -> Of:
    """Return the rate of the station that has least, or most, by the equal share of what all carry."""

    def of(raw: Raw) -> float | None:
        rates = raw.rates("up*", SETTLED)
        total = sum(rates)
        return (min if pick == "least" else max)(rates) * len(rates) / total if total else None

    return of


STATIONS_64 = Experiment(
    name="stations-64",
    title="64 stations with 1 to 8 uploads each",
    paper="none: many stations of unlike use on one uplink",
    question="Does each of 64 stations have its share of the uplink, however many connections it opens?",
    scene=AccessPoint(
        LINK_OF_64,
        SETTLED + COUNTED,
        (Uploads(tuple(1 + number % MAX_UPLOADS for number in range(STATIONS))),),
        stations=STATIONS,
        peers=PEERS,
    ),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        Measure("uploads", "Mb/s", "all uploads together", rate("up*", SETTLED)),
        Measure("least", "", "the station that has least, by its share", of_share("least")),
        Measure("most", "", "the one that has most, by its share", of_share("most")),
        Measure("fair", "", "Jain's index of the stations", jain("up*", SETTLED)),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", SETTLED), "{:.1f}"),
        ping_added(SETTLED),
    ),
    goals=(
        Goal(
            "each of 64 stations has at least {value} of its share (at least {limit})",
            lambda medians: medians("least", "ours"), at_least=0.8,
        ),
        Goal(
            "each of 64 stations has at most {value} of its share (at most {limit})",
            lambda medians: medians("most", "ours"), at_most=1.2,
        ),
    ),
    figures=(Bars("shares", "The stations that have least and most.", ("least", "most"), "part of an equal share"),),
    repeats=5,
    quick=Quick(arms=STATION_ARMS[1:]),
    differences=(*DIFFERENCES, "50 Mb/s down, 10 Mb/s up, 20 ms; every station has a port of its own"),
    clock=VIRTUAL,
)  # fmt: skip

EXPERIMENTS = (HOSTS, HOSTS_DOWN, WEIGHTS_OF_TWO, STATIONS_64)
