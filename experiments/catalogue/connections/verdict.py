# SPDX-License-Identifier: Apache-2.0
"""Compares scenarios behind this access point with the same behind the FIFO. Pure.

A scenario is a defect when its median time exceeds `limit` of the FIFO's, unless figures show that its upload had more
than a fair share of the uplink behind the FIFO, and that the fair share explains the time that it takes here.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from accesspoint.experiments.catalogue.connections.host import LIMIT
from accesspoint.experiments.catalogue.connections.scenario import LINKS, MODES, SEED, link, scenario
from accesspoint.experiments.experiment import Compared, Grid, Pair
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import percentile

ARMS = ("fifo", "ours")
TIMES = ("first", "last")
MAX_RATIO, MAX_ADDED = 1.1, 20.0  # of the FIFO's time; ms
FAIR = 0.5  # of the uplink, with one other upload
WORDS = {"first": "first byte", "last": "last byte"}

Figures = dict[str, float]
"""`first` and `last`, ms; LIMIT for what never came."""


def limit(fifo: float) -> float:
    """Returns the longest time (ms) that is no defect."""
    return MAX_RATIO * fifo + MAX_ADDED


def exceeding(fifo: Mapping[str, Figures], ours: Mapping[str, Figures]) -> set[str]:
    """Return the scenarios that exceed their limit in one time at least."""
    both = fifo.keys() & ours.keys()
    return {key for key in both if any(ours[key][what] > limit(fifo[key][what]) for what in TIMES)}


@dataclass
class Played:
    """A scenario behind one arm, all repeats. times: ms by `first` and `last`. shares: of the uplink's payload that was
    its own, with another upload. stalled: how often it never ended."""

    times: dict[str, list[float]] = field(default_factory=lambda: {what: [] for what in TIMES})
    shares: list[float] = field(default_factory=list)
    stalled: int = 0
    lacking: bool = False
    retransmitted: list[float] = field(default_factory=list)
    challenge_acks: list[float] = field(default_factory=list)

    def median(self, what: str) -> float:
        return median(self.times[what])


def played(runs: Sequence[Raw]) -> dict[str, dict[str, Played]]:
    """Returns every scenario, as `017 alone`, by arm."""
    found: dict[str, dict[str, Played]] = defaultdict(lambda: defaultdict(Played))
    for run in runs:
        values: dict[str, Figures] = defaultdict(dict)
        for sample in run.samples:
            if sample.source.endswith(MODES):
                values[sample.source][sample.quantity] = sample.value
        for source, own in values.items():
            one = found[source][run.arm]
            for what in TIMES:
                one.times[what].append(own.get(f"{what}_ms", LIMIT * 1e3))
            one.stalled += "last_ms" not in own
            one.lacking |= "lacking" in own
            one.retransmitted.append(own.get("retransmitted", 0.0))
            one.challenge_acks.append(own.get("challenge_acks", 0.0))
            if own.get("up_bytes") and own.get("other_bytes"):
                one.shares.append(own["up_bytes"] / (own["up_bytes"] + own["other_bytes"]))
    return {key: dict(arms) for key, arms in sorted(found.items())}


def excess(fifo: Played, ours: Played) -> list[str]:
    """Return the scenario's median times that exceed the limit."""
    return [what for what in TIMES if ours.median(what) > limit(fifo.median(what))]


def at_fair_share(fifo: Played) -> float | None:
    """Returns the time (ms) to the last byte that a fair share of the uplink takes, for a scenario that had more of it
    behind the FIFO; None for any other."""
    if not fifo.shares or fifo.stalled or (share := median(fifo.shares)) <= FAIR:
        return None
    return fifo.median("last") * share / FAIR


def excused(fifo: Played, ours: Played) -> bool:
    """Return whether the share behind the FIFO explains all that exceeds the limit."""
    fair = at_fair_share(fifo)
    return excess(fifo, ours) == ["last"] and fair is not None and ours.median("last") <= limit(fair)


def judge(runs: Sequence[Raw]) -> Compared:
    """Return the verdicts over all runs, tables and a pair of times for each scenario."""
    all_ = {key: arms for key, arms in played(runs).items() if set(ARMS) <= arms.keys()}
    if not all_:
        return Compared()
    defects: list[str] = []
    fair: list[str] = []
    once: list[str] = []
    pairs: dict[str, list[Pair]] = {mode: [] for mode in MODES}
    for key, arms in all_.items():
        fifo, ours = (arms[arm] for arm in ARMS)
        exceeded = excess(fifo, ours)
        excuse = excused(fifo, ours)
        if exceeded:
            (fair if excuse else defects).append(key)
        elif any(value > limit(fifo.median(what)) for what in TIMES for value in ours.times[what]):
            once.append(key)
        pairs[key.split()[1]].append(
            Pair(round(fifo.median("last"), 2), round(ours.median("last"), 2), bool(exceeded) and not excuse)
        )
    stalled = sum(arms["ours"].stalled > len(arms["ours"].times["last"]) / 2 for arms in all_.values())
    before = sum(arms["fifo"].stalled > len(arms["fifo"].times["last"]) / 2 for arms in all_.values())
    verdicts = (
        _verdict(
            not defects,
            f"no scenario takes longer than {MAX_RATIO} times the FIFO's time + {MAX_ADDED:g} ms: {len(defects)} of "
            f"{len(all_)} do",
        ),
        _verdict(stalled == 0, f"no scenario stalls: {stalled} do, and {before} behind the FIFO"),
    )
    grids = (
        _overall(all_),
        _listed("Defects", "None.", defects, all_),
        _shares(fair, all_),
        _listed("Too slow once, but not in the median of the repeats", "None.", once, all_),
    )
    return Compared(verdicts, (*grids, _links(all_)), pairs)


def _verdict(holds: bool, text: str) -> dict[str, str]:
    return {"kind": "goal", "word": "pass" if holds else "fail", "text": text}


def _overall(all_: Mapping[str, Mapping[str, Played]]) -> Grid:
    """Ratios of this access point's times to the FIFO's, over all scenarios of a mode."""
    rows = []
    for mode in MODES:
        own = [arms for key, arms in all_.items() if key.endswith(mode)]
        for what in TIMES if own else ():
            ratios = [arms["ours"].median(what) / arms["fifo"].median(what) for arms in own]
            row = [mode, WORDS[what], str(len(own))]
            row += [f"{median(arms[arm].median(what) for arms in own):.0f}" for arm in ARMS]
            row += [f"{percentile(ratios, fraction):.2f}" for fraction in (0.1, 0.5, 0.9, 1.0)]
            rows.append(tuple(row))
    sums = [
        f"{what} behind the FIFO {sum(fmean(getattr(arms['fifo'], name)) for arms in all_.values()):.0f}, behind this "
        f"access point {sum(fmean(getattr(arms['ours'], name)) for arms in all_.values()):.0f}"
        for what, name in (("segments sent again", "retransmitted"), ("challenge ACKs", "challenge_acks"))
    ]
    lacking = sorted({key.split()[0] for key, arms in all_.items() if any(one.lacking for one in arms.values())})
    text = f"Seed {SEED}; loaded: while another station uploads. In all: {'; '.join(sums)}."
    if lacking:
        text += f" {len(lacking)} scenarios ask for what this kernel lacks (below)."
    headings = ("", "time to the", "scenarios", "FIFO, median (ms)", "this access point, median (ms)")
    return Grid("All scenarios", (*headings, "ratio, p10", "p50", "p90", "max"), tuple(rows), text)


def _listed(title: str, none: str, keys: Sequence[str], all_: Mapping[str, Mapping[str, Played]]) -> Grid:
    """List scenarios with every repeat's times: no measured time is left out."""
    rows = []
    for key in keys:
        fifo, ours = (all_[key][arm] for arm in ARMS)
        slow = [what for what in TIMES if any(value > limit(fifo.median(what)) for value in ours.times[what])]
        for what in slow:
            rows.append(
                (
                    key, _what(key), WORDS[what], _each(fifo, what), _each(ours, what),
                    f"{limit(fifo.median(what)):.0f}", f"{ours.median(what) / fifo.median(what):.2f}",
                    _each_count(ours.challenge_acks),
                )
            )  # fmt: skip
    headings = (
        "scenario",
        "connection",
        "time to the",
        "FIFO (ms)",
        "this access point (ms)",
        "limit (ms)",
        "ratio of medians",
    )
    text = "" if keys else none
    return Grid(title, (*headings, "challenge ACKs, this access point"), tuple(rows), text)


def _shares(keys: Sequence[str], all_: Mapping[str, Mapping[str, Played]]) -> Grid:
    rows = []
    for key in keys:
        fifo, ours = (all_[key][arm] for arm in ARMS)
        rows.append(
            (
                key, _what(key), _each(fifo, "last"), _each(ours, "last"), f"{median(fifo.shares):.0%}",
                f"{median(ours.shares or [0.0]):.0%}", f"{at_fair_share(fifo) or 0.0:.0f}",
            )
        )  # fmt: skip
    headings = (
        "scenario",
        "connection",
        "FIFO (ms)",
        "this access point (ms)",
        "its share behind the FIFO",
        "behind this access point",
    )
    text = (
        "While another station uploads: those that had more than half of the uplink's payload behind the FIFO, and "
        f"take no longer than {MAX_RATIO} times what half of it takes + {MAX_ADDED:g} ms."
    )
    return Grid(
        "More than a fair share behind the FIFO", (*headings, "time at half (ms)"), tuple(rows),
        text if keys else f"{text} None.",
    )  # fmt: skip


def _links(all_: Mapping[str, Mapping[str, Played]]) -> Grid:
    """The links that scenarios were played on."""
    there = sorted({int(key.split()[0]) % LINKS + 1 for key in all_})
    rows = []
    for place in there:
        profile = link(SEED, place)
        count = len({key.split()[0] for key in all_ if int(key.split()[0]) % LINKS + 1 == place})
        rows.append((str(place), profile.describe(), f"{profile.down_limit}/{profile.up_limit}", str(count)))
    return Grid("Links", ("link", "down/up, RTT", "queues, down/up (packets)", "scenarios"), tuple(rows), "")


def _what(key: str) -> str:
    one = scenario(SEED, int(key.split()[0]))
    return f"link {one.link}: {one.describe()}"


def _each(one: Played, what: str) -> str:
    """`95, 6012, 97`, in their order."""
    return ", ".join(f"{value:.0f}" if value < LIMIT * 1e3 else "stalled" for value in one.times[what])


def _each_count(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values)
