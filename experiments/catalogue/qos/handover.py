# SPDX-License-Identifier: Apache-2.0
"""Paper 004 with terminals that come, go and move, in simulated cells of 802.11g: one that walks from an access point
with two others to one with six, alone along the path, and one that stops and comes back."""

from collections.abc import Mapping
from dataclasses import replace
from math import fsum
from statistics import fmean

from accesspoint.experiments.catalogue.qos.radio import (
    BUFFER,
    DIFFERENCES,
    MAX_THROUGHPUT,
    MOBILE_BUFFER,
    OURS_ARM,
    PLAIN_ARM,
    QOS,
    RADIO,
    RENO,
    fair_shares,
)  # fmt: skip
from accesspoint.experiments.experiment import (
    OURS,
    Arm,
    Curves,
    Experiment,
    Goal,
    Measure,
    Medians,
    Point,
    Quick,
    Timeline,
    Traffic,
)
from accesspoint.experiments.measure.run_data import Of, Raw, rate, total
from accesspoint.experiments.scenes.cells import Cell, Datagrams, Transfer
from accesspoint.topologies.kernels.kernel import SIMULATED

HERE, BEYOND = 3, 6  # terminals at the first access point, the mobile one among them, and at the second
LEAVES, OUTAGE, SECONDS = 14.0, 10.0, 44.0  # s; the outage is the paper's
BACK = LEAVES + OUTAGE
NEAR_FIRST, NEAR_SECOND = (4.0, 9.0), (34.0, SECONDS)
SHARE = 0.3  # of what a cell carries: "30% (about twice of fair-share)"
REACHABLE = round(SHARE * MAX_THROUGHPUT * 1000)  # kbit/s
TOLERANCE = 0.05
# Not stated in the paper, fixed before the first run. Indoors the paper adjusted the power for the channel to be
# well attenuated at the point of handover: of whole dBm it is that at which one terminal alone, without bursts, gets
# nearest to half on the last two metres of what it gets near (22.4 Mb/s at 1, 18.6 at 0, 9.2 at -1; near 24.2).
# Outdoors the loss is that of a street. A terminal loses bursts of 50 ms every 2 s in the devices' cells, with their
# five retries, and outdoors another network takes a third of the air at either access point.
POWER = -1
DEVICES: Mapping[str, str | float] = {"retries": 5, "burst_every": 2, "burst_ms": 50}
PLACES: Mapping[str, Mapping[str, str | float]] = {
    "simulation": {"apart": 20, "power_dbm": POWER},
    "indoor": {"apart": 20, "power_dbm": POWER, **DEVICES},
    "outdoor": {"apart": 100, "path_loss": 2.2, "foreign_share": 0.33, **DEVICES},
}
WALK: Mapping[str, str | float] = {
    **RADIO, "distance": 0.3, "ap_queue": MOBILE_BUFFER, "leaves": LEAVES, "outage": OUTAGE, "arrives": SECONDS,
}  # fmt: skip


def handover(point: Point, arm: Arm) -> Cell:
    """The first terminal walks, and may have a target. The terminals that it leaves stop then, as they have no further
    effect; those at the second access point begin when it leaves, and have the outage to settle."""
    terminals = HERE + BEYOND
    traffic = (
        Transfer(1, "up", transport=str(arm.options["first"])),
        *(Transfer(n, "up", end=LEAVES, transport=RENO) for n in range(2, HERE + 1)),
        *(Transfer(n, "up", LEAVES, transport=RENO) for n in range(HERE + 1, terminals + 1)),
    )
    radio = {**WALK, **PLACES[str(point["place"])], "beyond": BEYOND}
    if "burst_ms" in point:
        radio["burst_ms"] = float(point["burst_ms"])
    return Cell(terminals, SECONDS, traffic, 4, radio)


def path(point: Point, arm: Arm) -> Cell:
    """The mobile terminal alone; the second access point has one silent terminal."""
    traffic: Traffic = Transfer(1, "up", transport=RENO) if point["protocol"] == "TCP" else Datagrams(1, "up", 40)
    return Cell(2, SECONDS, (traffic,), 4, {**WALK, **PLACES[str(point["place"])], "beyond": 1})


def fair(start: float, end: float | None) -> Of:
    """The mobile terminal's rate over the fair share where it is: a third at the first access point, or a seventh."""

    def of(raw: Raw) -> float | None:
        names = [
            f"sta{n}" for n in (range(1, HERE + 1) if start < LEAVES else (1, *range(HERE + 1, HERE + BEYOND + 1)))
        ]
        return next(iter(fair_shares([raw.rate(name, start, end) for name in names])), None)

    return of


def between(raw: Raw) -> float | None:
    """The mean of both sides of the handover, in fair shares."""
    found = [fair(NEAR_FIRST[1], LEAVES)(raw), fair(BACK, NEAR_SECOND[0])(raw)]
    known = [value for value in found if value is not None]
    return fmean(known) if known else None


def lowest_after(raw: Raw) -> float | None:
    """The lowest rate after the handover among the six terminals that were there before, over the fair share."""
    rates = [raw.rate(f"sta{n}", BACK) for n in (1, *range(HERE + 1, HERE + BEYOND + 1))]
    return min(fair_shares(rates)[1:], default=None)


def repaired(quantity: str) -> Of:
    """Loss repairs of a terminal at the second access point, per minute."""

    def of(raw: Raw) -> float:
        # Counted at the run's end.
        counts = [total(quantity, f"sta{n}")(raw) or 0.0 for n in range(HERE + 1, HERE + BEYOND + 1)]
        return sum(counts) / BEYOND / (SECONDS - LEAVES) * 60

    return of


def over_target(start: float, end: float | None) -> Of:
    return lambda raw: raw.rate("sta1", start, end) * 1000 / REACHABLE


def targeted(name: str, label: str, target: int, mbps: float | None = None) -> Arm:
    options = {"first": f"ns3::TcpAv[Target={target}]"}
    if mbps is None:
        return Arm(name, f"{label}, bridges", "paper", ecn=False, options=options)
    return Arm(name, f"this access point, {label}", "ours", OURS, options={**options, "uplink_mbps": mbps})


ARMS = (
    Arm("tcp", "Reno, bridges", "plain", ecn=False, options={"first": RENO}),
    Arm("qos", "TCP-AV for 23 Mb/s, bridges", "paper", ecn=False, options={"first": QOS}),
)
REACHABLE_ARMS = (
    targeted("qos-30", "TCP-AV for 30 %", REACHABLE),
    targeted("ours-30", "TCP-AV for 30 %", REACHABLE, MAX_THROUGHPUT),
)
MEASURES = (
    Measure("near_first", "1", "the mobile terminal near the first access point, of its fair share", fair(*NEAR_FIRST)),
    Measure("between", "1", "between both", between),
    Measure("near_second", "1", "near the second", fair(*NEAR_SECOND)),
    Measure("after", "1", "from the handover on", fair(BACK, None)),
    Measure("after_mbps", "Mb/s", "the same in Mb/s", rate("sta1", BACK)),
    Measure("others", "1", "the lowest of the six others, of the fair share, then", lowest_after),
    Measure("first_target", "1", "of a target of 30 %, at the first", over_target(*NEAR_FIRST)),
    Measure("second_target", "1", "of a target of 30 %, near the second", over_target(*NEAR_SECOND)),
    Measure("timeouts", "1/min", "timeouts of a terminal at the second", repaired("timeouts")),
    Measure("recoveries", "1/min", "fast recoveries", repaired("recoveries")),
)
ASSUMED = (
    *DIFFERENCES[1:],
    "the cells are ns-3's 802.11g (Yans) at a fixed 54 Mb/s on channels of their own; fixed terminals are 0.3 m from "
    "their access point, and the mobile one walks straight, at a speed that the paper does not state: 44 s in all; "
    "those of the second cell begin when it leaves the first",
    "how much power, path loss, interference and burst errors there is, the paper does not state: here bursts of 50 ms "
    "every 2 s a terminal, -1 dBm indoors, outdoors a path loss exponent of 2.2 and another "
    "network with a third of the air at either access point, fixed before the first run; cell-bursts has other bursts",
    "Fig. 7-11 are pictures in the source: their values are not known",
)


def on_target(place: str, where: str, said: str) -> tuple[Goal, ...]:
    def value(m: Medians) -> float | None:
        return m(where, "ours-30", place=place)

    text = f"{place}, {said}: with a target of 30 % behind this access point {{value}} of it"
    return (
        Goal(f"{text} (at least {{limit}})", value, at_least=1 - TOLERANCE),
        Goal(f"{text} (at most {{limit}})", value, at_most=1 + TOLERANCE),
    )


HANDOVER = Experiment(
    name="cell-handover",
    title="A terminal with a target walks from one cell to another, in simulated cells",
    paper="004, section IV.B, Fig. 9-11",
    question="Does QoS-TCP hold its target when its terminal leaves an access point with two others, has no link for "
    "ten seconds, and joins one with six?",
    sweep={"place": tuple(PLACES)},
    scene=handover,
    arms=ARMS,
    measures=MEASURES,
    figures=tuple(
        Timeline(f"walk-{place}", f"The mobile terminal, {place}; no link from 14 to 24 s.", ("sta1",),
                 point={"place": place})
        for place in PLACES
    ),
    repeats=10,
    quick=Quick(),
    differences=ASSUMED,
    clock=SIMULATED,
    apart=True,
)  # fmt: skip
TARGET_30 = Experiment(
    name="cell-target",
    title="A target within reach through a handover, in simulated cells",
    paper="none: the walk of 004, Fig. 9-11, with the 30 % of Fig. 10",
    question="Does a walking terminal hold a target of 30 % of a cell's capacity, behind bridge and access point?",
    sweep={"place": tuple(PLACES)},
    scene=handover,
    arms=REACHABLE_ARMS,
    measures=MEASURES,
    figures=tuple(
        Timeline(f"walk-{place}", f"The mobile terminal, {place}; no link from 14 to 24 s.", ("sta1",),
                 point={"place": place})
        for place in PLACES
    ),
    goals=tuple(
        goal
        for place in PLACES
        for where, said in (("first_target", "before"), ("second_target", "after"))
        for goal in on_target(place, where, said)
    ),
    repeats=10,
    quick=Quick(),
    differences=ASSUMED,
    clock=SIMULATED,
    apart=True,
)  # fmt: skip
BURSTS = Experiment(
    name="cell-bursts",
    title="Left open by Ando et al.: how long bursts of errors are",
    paper="004, section IV.C and V",
    question="How much of what a terminal gets after the handover hangs on the length of burst errors?",
    sweep={"place": ("indoor",), "burst_ms": (5, 20, 100, 200)},
    scene=handover,
    arms=ARMS,
    measures=MEASURES,
    figures=(
        Curves("after", "The mobile terminal after the handover.", "after", "burst_ms", "burst (ms)",
               "of the fair share", point={"place": "indoor"}, log_x=True),
    ),
    repeats=10,
    quick=Quick(sweep={"burst_ms": (5, 20, 200)}),
    differences=(*ASSUMED, "bursts of 50 ms are on the page of cell-handover"),
    clock=SIMULATED,
    apart=True,
)  # fmt: skip
PATH = Experiment(
    name="cell-path",
    title="Throughput of one terminal along the path between two access points",
    paper="004, section IV.B.3, Fig. 7, 8",
    question="How good is the channel along the path that the mobile terminal walks, indoors and outdoors?",
    sweep={"place": ("indoor", "outdoor"), "protocol": ("TCP", "UDP")},
    scene=path,
    arms=(Arm("alone", "one terminal, bridges", "plain", ecn=False),),
    measures=(
        Measure("near", "Mb/s", "near the first access point", rate("sta1", *NEAR_FIRST)),
        Measure("edge", "Mb/s", "on the last metres before the handover", rate("sta1", LEAVES - 3, LEAVES)),
        Measure("mean", "Mb/s", "along the path, while there is a link", lambda raw: along(raw)),
    ),
    figures=tuple(
        Timeline(f"path-{place}", f"Alone along the path, {place}, TCP; no link from 14 to 24 s.", ("sta1",),
                 point={"place": place, "protocol": "TCP"})
        for place in ("indoor", "outdoor")
    ),
    repeats=10,
    quick=Quick(),
    differences=ASSUMED,
    clock=SIMULATED,
    apart=True,
)  # fmt: skip


def along(raw: Raw) -> float:
    lengths = LEAVES - NEAR_FIRST[0], SECONDS - BACK
    rates = raw.rate("sta1", NEAR_FIRST[0], LEAVES), raw.rate("sta1", BACK)
    return fsum(length * rate for length, rate in zip(lengths, rates, strict=True)) / sum(lengths)


PICTURE = "Fig. 6 is a picture in the source: its values are not known"
# Its timeline in s.
JOINS, STOPS, RESUMES, END = 360.0, 1260.0, 1440.0, 1800.0


def joining(point: Point, arm: Arm) -> Cell:
    """Five terminals: four begin, the second comes later, and the first stops and comes back."""
    traffic = [
        Transfer(1, "up", end=STOPS, transport=RENO),
        Transfer(2, "up", JOINS, transport=RENO),
        *(Transfer(n, "up", transport=RENO) for n in (3, 4, 5)),
        Transfer(1, "up", RESUMES, transport=RENO),
    ]
    return Cell(5, END, tuple(traffic), 4, {**RADIO, "ap_queue": BUFFER, "distance": 0.3})


def shares(start: float, end: float | None, terminals: tuple[int, ...]) -> Of:
    """The lowest rate of these terminals over their fair share."""

    def of(raw: Raw) -> float | None:
        return min(fair_shares([raw.rate(f"sta{n}", start, end) for n in terminals]), default=None)

    return of


JOINING = Experiment(
    name="cell-joining",
    title="A terminal comes, another goes and comes back, in a simulated cell",
    paper="004, section IV.A.2, Fig. 6",
    question="Does a terminal that came last and got nothing recover when another one leaves?",
    scene=joining,
    arms=(PLAIN_ARM, replace(OURS_ARM)),
    measures=(
        Measure("four", "1", "the lowest of the first four, of the fair share", shares(JOINS / 3, JOINS, (1, 3, 4, 5))),
        Measure("five", "1", "the lowest of five", shares(JOINS, STOPS, (1, 2, 3, 4, 5))),
        Measure("without", "1", "the lowest of four, after the first stopped", shares(STOPS, RESUMES, (2, 3, 4, 5))),
        Measure("again", "1", "the lowest of five, when it is back", shares(RESUMES, None, (1, 2, 3, 4, 5))),
        Measure("total", "Mb/s", "all together, while five send", rate("sta*", JOINS, STOPS)),
    ),
    figures=(Timeline("joining", "All terminals over time.", ("sta1", "sta2", "sta3", "sta4", "sta5")),),
    repeats=10,
    quick=Quick(seconds=75),
    differences=(*DIFFERENCES, "the paper's half hour is the full form; the quick one has the same in 75 s", PICTURE),
    clock=SIMULATED,
    apart=True,
)

EXPERIMENTS = [HANDOVER, TARGET_30, PATH, BURSTS, JOINING]
