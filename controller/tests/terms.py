# SPDX-License-Identifier: Apache-2.0
"""Effect of each difference between the laws: `pi2` with the choice of `paper` in one row of the table in
docs/controller/laws.md, over the packet simulation.

`.venv/bin/python -m accesspoint.controller.tests.terms` writes docs/results/law-terms.md, and from there the last
column of the table; with names of scenarios it runs only those again. All are some minutes of a processor. Scenarios,
seeds and the criterion of a difference were fixed before the first run.
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from accesspoint.controller.config import Ncr
from accesspoint.controller.law import paper
from accesspoint.controller.law.base import DeviceTerm, Law
from accesspoint.controller.law.pi2 import MAX_ERROR, Pi2, Pi2DeviceTerm
from accesspoint.controller.law.simulation import SCENARIOS as ALL_SCENARIOS
from accesspoint.controller.law.simulation import Result, Sender, simulate

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/results/law-terms.md"
LAWS_PAGE = ROOT / "docs/controller/laws.md"
SEEDS = range(1, 6)

SCENARIOS: dict[str, tuple[Callable[[], list[Sender]], float, float]] = {
    **{
        name: ALL_SCENARIOS[name]
        for name in (
            "one upload, 1 Mb/s, 4 ms",
            "five uploads, 1 Mb/s, 4 ms",
            "one download, 14 Mb/s, 50 ms",
            "four downloads, 30 Mb/s, 20-80 ms",
            "fifty uploads, 3 Mb/s, 90 ms",
            "Reno without ECN, 14 Mb/s, 20 ms",
        )
    },
    # For the rows on what is dropped and on stations, which the others cannot show.
    "five uploads without ECN, 1 Mb/s, 4 ms": (lambda: [Sender(n, 0.004, ecn=False) for n in range(5)], 1e6, 30),
    "stations with one and four downloads, 14 Mb/s, 50 ms": (
        lambda: [Sender(n, 0.05, station=min(n, 1)) for n in range(5)], 14e6, 30,
    ),
}  # fmt: skip
"""As in `simulation`: senders, bits/s, seconds, of which the first five are not measured."""


class Linear(Pi2):
    """Feedback is the pressure. What `pi2` makes of squares is squared, so the root of it is that."""

    def shares(self, *args: Any, **given: Any) -> tuple[list[float], list[float]]:
        """As `Law.shares`."""
        before, *rest = args
        given["limit"] **= 2
        feedback, desired = super().shares([value * value for value in before], *rest, **given)
        return [math.sqrt(value) for value in feedback], desired

    def device(self) -> DeviceTerm:
        """As `Law.device`."""
        return LinearTerm()


class LinearTerm(Pi2DeviceTerm):
    """As `Linear`."""

    def update(self, *args: Any, **given: Any) -> float:
        """As `DeviceTerm.update`."""
        given["limit"] **= 2
        return math.sqrt(super().update(*args, **given))

    def resume(self, feedback: float) -> None:
        """As `DeviceTerm.resume`."""
        super().resume(feedback * feedback)


class GrowthSummed(Pi2DeviceTerm):
    """Sums (25) as it stands; kappa1 is 1."""

    def summed(self, error: float, growth: float) -> float:
        """As `Pi2DeviceTerm.summed`."""
        return min(growth + error, MAX_ERROR)


class ErrorUnbounded(Pi2DeviceTerm):
    """Sums the distance however large it is."""

    def summed(self, error: float, growth: float) -> float:
        """As `Pi2DeviceTerm.summed`."""
        return error


class BurstsCount(Pi2DeviceTerm):
    """Counts a queue from its first packet on."""

    def is_burst(self, fullness: float, elapsed: float) -> bool:
        """As `Pi2DeviceTerm.is_burst`."""
        return False


class GoesOnAtLimit(Pi2DeviceTerm):
    """Sums on while the term is at its limit; the sum itself stays within it."""

    def stands_still(self, error: float, pressure: float, most: float) -> bool:
        """As `Pi2DeviceTerm.stands_still`."""
        return False


class NeverForgets(Pi2DeviceTerm):
    """Never sees an empty queue, or a second without traffic."""

    def update(self, *args: Any, **given: Any) -> float:
        """As `DeviceTerm.update`."""
        now, queue, target, _ = args
        return super().update(now, max(queue, 1e-9), target, True, **given)


class WithTerm(Pi2):
    """`pi2` with another device term."""

    def __init__(self, term: Callable[[], DeviceTerm]) -> None:
        self._term = term

    def device(self) -> DeviceTerm:
        """As `Law.device`."""
        return self._term()


class SharesOfPaper(Pi2):
    """D of the paper, of the demands that `pi2` has."""

    def desired(self, capacity: float, demands: list[float], weights: list[float]) -> list[float]:
        """As `Pi2.desired`."""
        return paper.desired_volumes(capacity, demands, weights)


class NoProbe(Pi2):
    """Nobody asks for more than what arrives."""

    def shares(self, *args: Any, **given: Any) -> tuple[list[float], list[float]]:
        """As `Law.shares`."""
        before, elapsed, capacity, rates, weights, elastic = args
        return super().shares(before, elapsed, capacity, rates, weights, [0.0] * len(elastic), **given)


class OneInterval(Pi2):
    """M is what one interval carried, whatever the capacity."""

    def averaging(self, seconds: float) -> float:
        """As `Law.averaging`."""
        return 0.0

    def measured(self, capacity: float, rates: list[float]) -> list[float]:
        """As `Pi2.measured`."""
        return rates


class AlwaysGrows(Pi2):
    """Flow terms grow without a queue, too."""

    def shares(self, *args: Any, **given: Any) -> tuple[list[float], list[float]]:
        """As `Law.shares`."""
        return super().shares(*args, **{**given, "fullness": math.inf})


class DropsAll(Pi2):
    """A drop is a mark."""

    def dropped(self, feedback: float) -> float:
        """As `Law.dropped`."""
        return feedback


@dataclass(frozen=True)
class Choice:
    """A law, and what is not its default."""

    law: Law = field(default_factory=Pi2)
    parameters: dict[str, Any] = field(default_factory=dict)


AS_IS = "`pi2` as it is"
ROWS: dict[str, Choice] = {
    "form of each term": Choice(Linear()),
    "errors that are summed": Choice(WithTerm(GrowthSummed)),
    "kappa2": Choice(parameters={"kappa2": 1.0}),
    "the sum's error": Choice(WithTerm(ErrorUnbounded)),
    "a queue after a gap": Choice(WithTerm(BurstsCount)),
    "the sum while the term is at its limit": Choice(WithTerm(GoesOnAtLimit)),
    "the sum while the queue is empty": Choice(WithTerm(NeverForgets)),
    "q*": Choice(parameters={"queue_target_packets": 50, "queue_target_ms": 1.0}),
    "D, what is wanted": Choice(SharesOfPaper()),
    "demand of an elastic flow": Choice(NoProbe()),
    "M, what is measured": Choice(OneInterval()),
    "when flow and class terms grow": Choice(AlwaysGrows()),
    "T_n": Choice(parameters={"flow_interval": 0.01}),
    "limits of terms": Choice(parameters={"flow_limit": 1.0, "class_limit": 1.0}),
    "device term of what is not ECN-capable": Choice(DropsAll()),
    "shares by station": Choice(parameters={"isolate_stations": False}),
}
"""By the first column of the table in laws.md."""

WHOLE = {
    "`paper`, all rows": Choice(
        paper.Paper(),
        {
            "law": "paper", "kappa2": 1.0, "flow_interval": 0.01, "queue_target_ms": 1.0, "queue_target_packets": 50,
            "isolate_stations": False,
        },
    )
}  # fmt: skip
"""Section 4.1; for comparison."""

NOT_SIMULATED = {
    "scalable senders, ECT(1)": "the simulation has none, and one queue; measured in the lab: "
    "[decision 21](../decisions/0021-l4s.md)",
    "what is written": "in the simulation every change is written, at no cost to the target",
}

FIGURES = {"link used": (0.01, True), "p50, ms": (1.0, False), "p95, ms": (1.0, False), "Jain's index": (0.01, True)}
"""The least difference of medians that counts, and whether more is better."""
MIN_PART = 0.1
"""Delays differ when they differ by this part, too."""

CELL = re.compile(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)")
TABLE = re.compile(r"(<!-- last column made by .*? -->\n).*?(<!-- end -->)", re.S)


@dataclass(frozen=True)
class Figure:
    """Over all seeds, as it is written."""

    middle: float
    least: float
    most: float


def measured(senders: list[Sender], result: Result) -> list[float]:
    """Return the figures of one run; Jain's index over stations, where there are some."""
    owners: dict[int, int] = {}
    for sender in senders:
        owner = sender.name if sender.station is None else sender.station
        owners[owner] = owners.get(owner, 0) + result.per_sender[sender.name]
    sums = owners.values()
    jain = sum(sums) ** 2 / (len(sums) * sum(one * one for one in sums)) if any(sums) else 0.0
    return [result.utilisation, result.delay(0.5) * 1000, result.delay(0.95) * 1000, jain]


def run(choice: Choice, scenario: str) -> str:
    """Return the cells of one row of the page."""
    make, capacity, seconds = SCENARIOS[scenario]
    runs = []
    for seed in SEEDS:
        senders = make()
        parameters = Ncr(**choice.parameters)
        runs.append(
            measured(senders, simulate(senders, capacity, seconds, parameters=parameters, law=choice.law, seed=seed))
        )
    cells = []
    for name, values in zip(FIGURES, zip(*runs, strict=True), strict=True):
        places = 1 if name.endswith("ms") else 3
        cells.append(f"{median(values):.{places}f} ({min(values):.{places}f} to {max(values):.{places}f})")
    return " | ".join(cells)


def heading(scenario: str) -> str:
    """As a title."""
    return scenario[0].upper() + scenario[1:]


def section(scenario: str) -> str:
    """Return one scenario: a row for each choice."""
    lines = [f"## {heading(scenario)}", ""]
    lines += [f"| the paper's choice in | {' | '.join(FIGURES)} |", "| --- |" + " ---: |" * len(FIGURES)]
    for name, choice in {AS_IS: Choice(), **ROWS, **WHOLE}.items():
        lines.append(f"| {name} | {run(choice, scenario)} |")
    return "\n".join(lines) + "\n"


HEAD = """# law-terms: What each difference from the paper's law does by itself

These figures are **simulated**, not measured in the lab. `controller/law/simulation.py` is one FIFO port with packets
of 1514 bytes and senders like TCP's: CUBIC, or Reno where that is said; windows of two packets at least; ACKs on a path
without a queue; neither timeouts nor retransmissions. All senders are of one class, so there are no class terms. The
controller reads counters every 10 ms, and its writes take effect a tick later.

Each row is `pi2` with the paper's choice in one row of
[the table of differences](../controller/laws.md#differences-of-pi2), all else as it is. No gain is tuned to it: a
choice of the paper's may well want other gains than those of `pi2`. Each figure is the median of five seeds, with the
least and the most of them in parentheses. Runs take 30 s, or 40 s with round trips of 90 ms; the first 5 are not
counted. Delay is that of the port's queue. Jain's index is over senders, in the last scenario over stations.

A figure counts as different when the ranges of the five seeds do not overlap and the medians are apart by 0.01 (link
used, Jain's index), or by 1 ms and a tenth (delays).
`.venv/bin/python -m accesspoint.controller.tests.terms` makes this page again.
"""


def page(before: str, scenario: str) -> str:
    """Return the page of results with this scenario made again, and the others as before."""
    sections = {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in before.split("\n## ")[1:]}
    print(scenario, file=sys.stderr)
    sections[heading(scenario)] = section(scenario)
    headings = map(heading, SCENARIOS)
    return "\n".join([HEAD, *(sections[title] for title in headings if title in sections)])


def kept(text: str) -> dict[str, dict[str, list[Figure]]]:
    """Read the figures of a page of results: by row, by scenario."""
    rows: dict[str, dict[str, list[Figure]]] = {}
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    for scenario in SCENARIOS:
        for line in parts[heading(scenario)].splitlines():
            figures = [Figure(*map(float, cell)) for cell in CELL.findall(line)]
            if figures:
                rows.setdefault(line.split("|")[1].strip(), {})[scenario] = figures
    return rows


def differs(name: str, as_is: Figure, changed: Figure) -> bool:
    """Return True when no seed of one is within the range of the other, and the medians differ by what counts."""
    apart = abs(changed.middle - as_is.middle)
    if name.endswith("ms") and apart < MIN_PART * as_is.middle:
        return False
    overlap = changed.least <= as_is.most and as_is.least <= changed.most
    return not overlap and apart >= FIGURES[name][0]


def effect(as_is: dict[str, list[Figure]], changed: dict[str, list[Figure]]) -> str:
    """Return the cell of one row: the figures that get worse and better with the paper's choice, by scenarios."""
    said: dict[str, Counter[str]] = {"worse": Counter(), "better": Counter()}
    for scenario in SCENARIOS:
        for name, before, after in zip(FIGURES, as_is[scenario], changed[scenario], strict=True):
            if differs(name, before, after):
                better = (after.middle > before.middle) == FIGURES[name][1]
                said["better" if better else "worse"][name.partition(",")[0]] += 1
    if not any(said.values()):
        return "no figure differs"
    words = {kind: ", ".join(f"{figure} in {times}" for figure, times in of.items()) for kind, of in said.items()}
    return "; ".join(f"**{kind}**: {one}" for kind, one in words.items() if one)


def with_effects(text: str, results: str) -> str:
    """Return the page of the laws with the last column as it is now."""
    rows = kept(results)

    def line(match: re.Match[str]) -> str:
        name = match[2].strip()
        why = NOT_SIMULATED.get(name)
        said = f"not simulated: {why}" if why else effect(rows[AS_IS], rows[name])
        return f"{match[1]} {said} |"

    def table(match: re.Match[str]) -> str:
        head, rule, *lines = match[0].removeprefix(match[1]).removesuffix(match[2]).splitlines()
        lines = [re.sub(r"^(\| (.*?) \|.*\|)[^|]*\|$", line, one) for one in lines]
        return match[1] + "\n".join([head, rule, *lines, ""]) + match[2]

    made, tables = TABLE.subn(table, text)
    assert tables == 1, f"{tables} tables of differences"
    return made


if __name__ == "__main__":
    for one in sys.argv[1:] or SCENARIOS:
        PAGE.write_text(page(PAGE.read_text() if PAGE.exists() else "", one))
    LAWS_PAGE.write_text(with_effects(LAWS_PAGE.read_text(), PAGE.read_text()))
