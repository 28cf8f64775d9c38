# SPDX-License-Identifier: Apache-2.0
"""Overview of traffic that is protected, beside CAKE with its ACK filter, and that is not: every goal of the
comparisons with peers as a row, from the results in docs/results/summaries. Pure but for `kept`."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accesspoint.experiments.experiment import Experiment, Goal, Medians, Value
from accesspoint.experiments.runs import registry
from accesspoint.experiments.verdict.audit import Audit
from accesspoint.experiments.verdict.goals import Decision, Verdict, decide

CAKES = ("cake-ack-filter", "cake-rtt", "cake-hosts", "cake-inside", "cake-autorate")
"""Set-ups of CAKE; the best one for the goal's traffic is shown."""
CLASSES = "htb"
"""Peer for settings of stations, of which CAKE has none; it is shown where an experiment has it."""
REPEATS = 5
ORDER = (
    "peers-testbed", "unseen-acks", "quic", "tunnel", "l4s", "many", "hosts", "hosts-down", "weights", "limits",
    "stations-64", "vlan", "flood", "rrul", "rrul-be", "rrul-50-up", "changing",
)  # fmt: skip
HEAD = (
    "# Compared with CAKE",
    "",
    "Traffic that this access point protects, and traffic that it does not, compared with CAKE with its ACK filter.",
    "Every goal of the [comparisons](../peers.md) is a row. All arms of a row ran in one kernel and",
    f"clock, {REPEATS} times at least; the figure in a goal is the worse end of the interval over the repeats, and it",
    "decides. CAKE's is its median by the same measure, of the best of its set-ups there; it is missing where the goal",
    "itself is a comparison with it. Stations with weights or limits have HTB in its place, as CAKE has neither.",
    "",
)


@dataclass(frozen=True)
class Row:
    """A goal of an experiment. text: with measured figures; missed: by how much and why. ours, cake: printed."""

    experiment: Experiment
    text: str
    word: Verdict
    missed: str = ""
    ours: str = ""
    cake: str = ""


def kept(directory: Path) -> dict[str, dict[str, Any]]:
    """The summaries of a folder of results, by experiment."""
    found = (json.loads(path.read_text()) for path in sorted((directory / "summaries").glob("*.json")))
    return {str(one["experiment"]): one for one in found}


def rows(summaries: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    for name in ORDER:
        experiment = registry.find(name)
        for goal in experiment.goals:
            yield _row(experiment, goal, summaries.get(name))


def _row(experiment: Experiment, goal: Goal, summary: Mapping[str, Any] | None) -> Row:
    decision = decide(goal, summary["cells"]) if summary else None
    if summary is None or decision is None or decision.n < REPEATS or not _together(summary):
        limit = goal.at_most if goal.at_least is None else goal.at_least
        text = goal.text.format(value="-", limit=goal.shown.format(limit))
        return Row(experiment, text, "inconclusive" if decision else "not run")
    missed = "" if decision.holds else decision.missed
    return Row(
        experiment, decision.said, decision.verdict, missed, _shown(decision), _of_cake(experiment, goal, summary)
    )


def _together(summary: Mapping[str, Any]) -> bool:
    """Return whether all arms ran in one kernel and by one clock: figures of others cannot be compared."""
    kernels = summary.get("kernels") or summary["versions"]["kernel"].split(", ")
    return len(kernels) == 1 and len(summary["clocks"]) == 1


def _shown(decision: Decision) -> str:
    """`0.61 Mb/s (0.60 to 0.62)`"""
    number = decision.goal.shown.partition("}")[0] + "}"
    low, high = number.format(decision.low), number.format(decision.high)
    return f"{decision.goal.shown.format(decision.value)} ({low} to {high})"


def _of_cake(experiment: Experiment, goal: Goal, summary: Mapping[str, Any]) -> str:
    """The goal's figure with CAKE in this access point's place, of the set-up with the best one; empty where the goal
    compares with CAKE already."""
    known = {arm.name for arm in experiment.arms}
    arms = (CLASSES,) if CLASSES in known else CAKES
    found = [one for arm in arms if (one := _with(arm, experiment, goal, summary))]
    if not found:
        return ""
    best = (min if goal.at_least is None else max)(found, key=lambda one: one.value)
    return ("HTB " if CLASSES in known else "") + goal.shown.format(best.value)


def _with(cake: str, experiment: Experiment, goal: Goal, summary: Mapping[str, Any]) -> Decision | None:
    """Decide the goal with another arm in this access point's place; None where it was not run."""
    ours = {arm.name for arm in experiment.arms if arm.role == "ours"}
    compared: set[str] = set()

    def instead(medians: Medians) -> Any:
        def of_cake(measure: str, arm: str, **point: Value) -> Any:
            compared.add(arm)
            return medians(measure, cake if arm in ours else arm, **point)

        return goal.value(of_cake)

    found = decide(replace(goal, value=instead), summary["cells"])
    return found if compared <= ours else None


def page(summaries: Mapping[str, Mapping[str, Any]], audits: Mapping[str, Audit]) -> str:
    """Make docs/results/peers.md."""
    unaudited = [name for name in ORDER if name in audits and not audits[name].complete]
    mark = f"**Not audited**, for the reason at the head of its page: {', '.join(unaudited)}."
    lines = [
        *HEAD,
        *([mark, ""] if unaudited else []),
        "| experiment | goal | verdict | this access point | CAKE |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for row in rows(summaries):
        name = row.experiment.name
        link = f"[{name}]({name}.md)" if name in summaries else name
        word = f"**fail** by {row.missed}" if row.missed else row.word
        lines.append(f"| {link} | {row.text} | {word} | {row.ours} | {row.cake} |")
    return "\n".join(lines) + "\n"
