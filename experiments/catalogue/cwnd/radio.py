# SPDX-License-Identifier: Apache-2.0
"""Paper 002 in a simulated cell of 802.11g: uploads of one to ten terminals, all of them with the middleware or none;
and some with it beside some without."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from statistics import fmean

from accesspoint.experiments.experiment import (
    OURS,
    Arm,
    Bars,
    Curves,
    Experiment,
    Goal,
    Measure,
    Point,
    Quick,
    Reported,
    Traffic,
)
from accesspoint.experiments.measure.run_data import Of, Raw, jain, least, mean, rate, total
from accesspoint.experiments.scenes.cells import Bounding, Cell, Transfer
from accesspoint.topologies.kernels.kernel import SIMULATED

SECONDS = 60.0
SETTLED = 20.0  # s: the paper's figures show the control at work by then
TERMINALS = tuple(range(1, 11))
DELAYS = (4, 256)
QUEUES = 64, 256, 1000  # packets, of the access point
RADIO: Mapping[str, str | float] = {"standard": "802.11g", "manager": "ns3::ArfWifiManager", "ap_queue": 256}
INTERVAL = 0.5  # s between two looks at a sender, the tool's of the paper
HIGH = 10  # times the run's smallest: what the claims read as "highly delayed"
ON = 6.0  # the ratio at which the middleware's control begins


def ratios(raw: Raw) -> dict[str, list[float]]:
    return {name: raw.values("rtt_ratio", name) for name in raw.sources("rtt_ratio")}


def largest_ratio(raw: Raw) -> float | None:
    return max((max(values) for values in ratios(raw).values() if values), default=None)


def kept_ratio(raw: Raw) -> float | None:
    """The mean ratio after the first crossing of 6; over the whole run where it is never crossed. Of all terminals."""
    found: list[float] = []
    for values in ratios(raw).values():
        first = next((place for place, value in enumerate(values) if value > ON), 0)
        found += values[first:]
    return fmean(found) if found else None


def interruptions(raw: Raw) -> float | None:
    """Fast recoveries and timeouts per terminal and minute."""
    terminals = len(raw.sources("timeouts"))
    # Counted at the run's end.
    count = (total("timeouts")(raw) or 0.0) + (total("recoveries")(raw) or 0.0)
    return count / terminals / raw.seconds * 60 if terminals else None


def bursts(raw: Raw) -> float | None:
    """Mean number of consecutive round trips above ten times the run's smallest; 0 without any."""
    smallest = min(raw.values("min_rtt_ms"), default=math.inf)
    rows: list[int] = []
    for name in raw.sources("rtt_ms"):
        row = 0
        for value in [*raw.values("rtt_ms", name), 0.0]:
            if value > HIGH * smallest:
                row += 1
            elif row:
                rows.append(row)
                row = 0
    return fmean(rows) if rows else 0.0


def tenth(place: int) -> Of:
    """Mean rate (Mb/s) of a terminal in the intervals of 0.5 s whose round trips are in a tenth of all, from 1, the
    smallest, to 10."""

    def of(raw: Raw) -> float | None:
        pairs: list[tuple[float, float]] = []
        for name in raw.sources("rtt_ms"):
            rates = [(sample.time, sample.value) for sample in raw.of("rate_mbps", name)]
            ends = [time for time, _ in rates]
            for sample in raw.of("rtt_ms", name):
                own = rates[bisect_left(ends, sample.time - INTERVAL) : bisect_left(ends, sample.time)]
                if own:
                    pairs.append((sample.value, fmean(rate for _, rate in own)))
        pairs.sort()
        part = pairs[(place - 1) * len(pairs) // 10 : place * len(pairs) // 10]
        return fmean(rate for _, rate in part) if part else None

    return of


def smallest(raw: Raw) -> float | None:
    """The smallest round trip that TCP saw, over the wire's."""
    assert raw.point
    found = raw.values("min_rtt_ms")
    return min(found) / float(raw.point["delay"]) if found else None


MEASURES = (
    Measure("total", "Mb/s", "all terminals together", rate("sta*", SETTLED)),
    Measure("jain", "1", "Jain's index over the terminals", jain("sta*", SETTLED)),
    Measure("least", "Mb/s", "the terminal that got least", least("sta*", SETTLED)),
    Measure("rtt", "ms", "round trip of the uploads, mean", mean("rtt_ms", SETTLED), "{:.0f}"),
    Measure(
        "most_rtt", "s", "largest round trip of the uploads", lambda raw: max(raw.values("rtt_ms"), default=0) / 1e3
    ),
    Measure("ratio", "1", "RTT over the smallest RTT, mean", mean("rtt_ratio", SETTLED)),
    Measure("kept_ratio", "1", "the same, mean after it was first above 6", kept_ratio),
    Measure("largest_ratio", "1", "the same, largest of any terminal", largest_ratio),
    Measure("smallest", "1", "smallest RTT over the wire's", smallest),
    Measure("interruptions", "1/min", "fast recoveries and timeouts of a terminal", interruptions),
    Measure("recovering", "1", "share of the time in fast retransmission", mean("recovering"), "{:.3f}"),
    Measure("bursts", "1", "consecutive round trips above ten times the smallest", bursts),
)
TENTHS = tuple(
    Measure(f"tenth-{place}", "Mb/s", f"a terminal while its round trip is in tenth {place} of all", tenth(place))
    for place in range(1, 11)
)
PLAIN_ARM = Arm("plain", "plain terminals, bridge", "plain", ecn=False)
PAPER_ARM = Arm("middleware", "the paper's middleware, bridge", "paper", ecn=False, options={"middleware": True})
TURNS_ARM = Arm(
    "turns",
    "this project's (hosts/), which takes turns, bridge",
    "ours",
    ecn=False,
    options={"middleware": True, "turns": True},
)
# Largest total of the arm `plain` in its quick form (all repeats, both delays), and `exponent` of its means at these
# terminals. Taken before any arm with the middleware was run. A test compares.
BANDWIDTH, EXPONENT = 24.1, -1.26
FITTED = (1, 4, 7, 10)
DIFFERENCES = (
    "the cell is ns-3's 802.11g (Yans) of 5 m, without noise; rate control is ARF, the paper names none",
    "terminals are ns-3's CUBIC with SACK behind a FIFO of 1000 packets, as Linux 3.0 had; the access point holds 256",
    "frames have no lifetime below a minute; in ns-3's default they are dropped after half a second",
    "connections are opened on the empty cell, one after the other, and send from the second second on: the paper's "
    "smallest round trip is one of small load",
    "length and repeats of the paper's runs are not stated",
    "Fig. 6-17 are pictures in the source: of their values only the gain of 3.35 is known",
)


def uploads(point: Point, arm: Arm, bounding: int = 0, **radio: str | float) -> Cell:
    """The first `bounding` of the point's terminals have the middleware; with the arm's option, all of them."""
    terminals = int(point["terminals"])
    stations = tuple(range(1, terminals + 1))
    with_it = stations if arm.options.get("middleware") else stations[:bounding]
    traffic: list[Traffic] = [Transfer(number, "up") for number in stations]
    if with_it:
        turns = bool(arm.options.get("turns"))
        traffic.append(Bounding(with_it, BANDWIDTH, EXPONENT, turns))
    return Cell(terminals, SECONDS, tuple(traffic), float(point["delay"]), {**RADIO, **radio})


def exponent(totals: Mapping[int, float]) -> float:
    """f(n) fitted to plain throughput, as paper 002 has it of its own cell: n to the power that comes closest, by least
    squares of logarithms, to what n terminals carry over what one carries. totals: Mb/s by terminals."""
    rows = [(math.log(n), math.log(total / totals[1])) for n, total in totals.items() if n > 1]
    return math.fsum(x * y for x, y in rows) / math.fsum(x * x for x, _ in rows)


def curves(x: str, xlabel: str, **fixed: int) -> tuple[Curves, ...]:
    text = ", ".join(f"{value} ms" if name == "delay" else f"{value} {name}" for name, value in fixed.items())
    return tuple(
        Curves(
            f"{measure}-{'-'.join(map(str, fixed.values()))}", caption, measure, x, xlabel, label, point=fixed, log=log
        )
        for measure, caption, label, log in (
            ("total", f"All terminals together, {text}.", "throughput (Mb/s)", False),
            ("jain", f"Jain's index, {text}.", "Jain's index", False),
            ("kept_ratio", f"RTT over the smallest RTT, {text}; the middleware begins at 6.", "ratio", True),
        )
    )


ALL = Experiment(
    name="cell-terminals",
    title="Uploads through a simulated cell of 802.11g",
    paper="002, Performance Evaluation, Fig. 6-14",
    question="Terminals that upload fill the access point with ACKs and the cell with collisions. What do bounded "
    "congestion windows change then?",
    sweep={"terminals": TERMINALS, "delay": DELAYS},
    scene=uploads,
    arms=(PLAIN_ARM, PAPER_ARM, TURNS_ARM),
    measures=(*MEASURES, *TENTHS),
    reported=(
        Reported("total", "plain", 19.0, "Basic Scalability Test: BW_max", {"terminals": 1, "delay": 4}),
        Reported("jain", "middleware", 1.0, "Fig. 14: about 1", {"terminals": 10, "delay": 256}),
    ),
    figures=(*curves("terminals", "terminals", delay=4), *curves("terminals", "terminals", delay=256)),
    repeats=10,
    quick=Quick(seconds=30, arms=("plain", "middleware")),
    differences=DIFFERENCES,
    clock=SIMULATED,
    apart=True,
)


def a_terminal(bounding: bool) -> Callable[[Raw], float | None]:
    """Mb/s of a terminal with the middleware, or of one without it, mean; None where there is none."""

    def of(raw: Raw) -> float | None:
        assert raw.point
        first = int(raw.point["with"])
        own = range(1, first + 1) if bounding else range(first + 1, int(raw.point["terminals"]) + 1)
        return fmean(raw.rate(f"sta{number}", SETTLED) for number in own) if own else None

    return of


def mixed(terminals: int, figure: int, quick: tuple[int, ...]) -> Experiment:
    """Fig. 15, 16 or 17."""
    return Experiment(
        name=f"cell-mixed-{terminals}",
        title=f"{terminals} terminals in a simulated cell, some of them with the middleware",
        paper=f"002, Case of Coexistence, Fig. {figure}",
        question="Does it help when only some of the terminals bound their windows, and whom?",
        sweep={"terminals": (terminals,), "delay": (256,), "with": tuple(range(terminals + 1))},
        scene=lambda point, arm: uploads(point, arm, int(point["with"])),
        arms=(Arm("mixed", "bridge", "paper", ecn=False),),
        measures=(
            *MEASURES[:3],
            Measure("with", "Mb/s", "a terminal with the middleware", a_terminal(True)),
            Measure("without", "Mb/s", "a terminal without it", a_terminal(False)),
        ),
        figures=tuple(
            Curves(
                f"{measure}-{terminals}",
                f"{caption}, {terminals} in all.",
                measure,
                "with",
                "terminals with the middleware",
                "throughput (Mb/s)",
                point={"terminals": terminals, "delay": 256},
            )
            for measure, caption in (
                ("total", "All terminals together"),
                ("with", "A terminal with the middleware"),
                ("without", "A terminal without it"),
            )
        ),
        repeats=10,
        quick=Quick(seconds=30, sweep={"with": quick}),
        differences=DIFFERENCES,
        clock=SIMULATED,
        apart=True,
    )


MIXED = (mixed(4, 15, (0, 1, 2, 4)), mixed(7, 16, (0, 1, 4, 7)), mixed(10, 17, (0, 1, 5, 10)))

SENSITIVE = Experiment(
    name="cell-settings",
    title="Left open by the paper: rate control and the access point's queue",
    paper="002, Performance Evaluation, Fig. 11 with 10 terminals",
    question="How much of what ten terminals get hangs on the rate control of all radios, and on what the access point "
    "holds?",
    sweep={
        "terminals": (10,),
        "delay": DELAYS,
        "manager": ("Arf", "Aarf", "Minstrel", "ConstantRate"),
        "ap_queue": QUEUES,
    },
    scene=lambda point, arm: uploads(
        point, arm, manager=f"ns3::{point['manager']}WifiManager", ap_queue=int(point["ap_queue"])
    ),
    arms=(PLAIN_ARM, PAPER_ARM),
    measures=MEASURES,
    figures=tuple(
        Curves(
            f"total-{delay}-{queue}",
            f"All terminals together: {delay} ms, {queue} packets in the access point's queue.",
            "total",
            "manager",
            "rate control of all radios",
            "throughput (Mb/s)",
            point={"terminals": 10, "delay": delay, "ap_queue": queue},
        )
        for delay in DELAYS
        for queue in QUEUES
    ),
    repeats=10,
    quick=Quick(seconds=20, sweep={"delay": (256,), "ap_queue": (256,)}),
    differences=DIFFERENCES,
    clock=SIMULATED,
    apart=True,
)


PIPES = {"equal": 0, "own": 1}  # s between two delays; 0: there is one
OWN_DELAYS = Experiment(
    name="cell-delays",
    title="Ten terminals with delays of their own that change, in a simulated cell of 802.11g",
    paper="002, section Discussions",
    question="Does the round trip of many terminals hang on whether their wires have one delay, or each its own that "
    "changes?",
    sweep={"terminals": (10,), "delay": (256,), "pipes": tuple(PIPES)},
    scene=lambda point, arm: uploads(point, arm, pipes_every=PIPES[str(point["pipes"])]),
    arms=(PLAIN_ARM, PAPER_ARM),
    measures=MEASURES,
    figures=(
        Bars("rtt-equal", "Round trips, 256 ms for all.", ("rtt",), "round trip (ms)", point={"pipes": "equal"}),
        Bars("rtt-own", "Round trips, delays of their own.", ("rtt",), "round trip (ms)", point={"pipes": "own"}),
    ),
    repeats=10,
    quick=Quick(seconds=30),
    differences=(
        *DIFFERENCES,
        "the paper states neither how many terminals nor which delays, nor how they change: here ten, and for each a "
        "mean from 128 to 384 ms there and back; another delay is drawn every second, from 0 to twice the mean",
    ),
    clock=SIMULATED,
    apart=True,
)


def limited(mbps: int) -> Arm:
    """This access point: uploads wait at its uplink, which carries `mbps`, and get ECN marks there; their ACKs go ahead
    of the other packets that wait for the radio."""
    return Arm(f"ours-{mbps}", f"this access point, {mbps} Mb/s up", "ours", OURS, options={"uplink_mbps": mbps})


def total_beside_the_middleware(arm: str, delay: int) -> Goal:
    return Goal(
        f"{arm} at {delay} ms: {{value}} times the middleware's total (at least {{limit}})",
        lambda m: _over(*(m("total", each, terminals=10, delay=delay) for each in (arm, "middleware"))), at_least=1.0,
        why=WHY,
    )  # fmt: skip


def fairness(arm: str, delay: int) -> Goal:
    return Goal(
        f"{arm} at {delay} ms: Jain's index {{value}} (at least {{limit}})",
        lambda m: m("jain", arm, terminals=10, delay=delay), at_least=0.97, why=WHY,
    )  # fmt: skip


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


WHY = (
    "ARF begins at the lowest rate and takes collisions for a bad channel, so ten terminals that begin together hardly "
    "come up from there; with other rate control nothing collapses (cell-settings). The access point regulates what "
    "comes through, and not what waits in stations"
)
CROWD = Experiment(
    name="cell-ours",
    title="Ten terminals behind this access point, in a simulated cell of 802.11g",
    paper="none: the cell of 002, Fig. 11 with 10 terminals",
    question="Does a cell carry more when its access point lets less through, so that uploads wait there and not in "
    "stations that contend?",
    sweep={"terminals": (10,), "delay": DELAYS},
    scene=uploads,
    arms=(PLAIN_ARM, PAPER_ARM, *map(limited, (4, 8, 12, 16, 20))),
    measures=MEASURES,
    figures=(
        Bars(
            "total-4",
            "All terminals together, 4 ms.",
            ("total",),
            "throughput (Mb/s)",
            point={"terminals": 10, "delay": 4},
        ),
        Bars(
            "total-256",
            "All terminals together, 256 ms.",
            ("total",),
            "throughput (Mb/s)",
            point={"terminals": 10, "delay": 256},
        ),
    ),
    goals=tuple(
        goal(f"ours-{mbps}", delay)
        for mbps in (4, 8, 16)
        for delay in DELAYS
        for goal in (total_beside_the_middleware, fairness)
    ),
    repeats=10,
    quick=Quick(seconds=30, arms=("plain", "middleware", "ours-4", "ours-8", "ours-16")),
    differences=(
        *DIFFERENCES,
        "the uplink's limit is swept: no rule gives it; behind this access point terminals use ECN",
    ),
    clock=SIMULATED,
    apart=True,
)

EXPERIMENTS = [ALL, *MIXED, SENSITIVE, OWN_DELAYS, CROWD]
