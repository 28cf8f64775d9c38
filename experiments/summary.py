# SPDX-License-Identifier: Apache-2.0
"""From runs to an experiment's summary: medians with confidence intervals, the paper's figures beside them, verdicts.

Pure: what comes in decides what comes out. The summary is all that reports need, except samples over time.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from experiments.experiment import Experiment, Goal, Point, Value
from experiments.plan import Plan
from experiments.raw import Raw
from experiments.store import Run, Store
from experiments.store import write as write_file
from topologies.requirements import LabError

Summary = dict[str, Any]
CONFIDENCE = 0.95
RESAMPLES = 2000


def interval(values: Sequence[float], seed: int = 1) -> tuple[float, float]:
    """The confidence interval of the median: percentile bootstrap (Efron 1979), with a seed of its own."""
    sample = np.asarray(values, dtype=float)
    chosen = np.random.default_rng(seed).integers(0, len(sample), (RESAMPLES, len(sample)))
    medians = np.median(sample[chosen], axis=1)
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def measured(experiment: Experiment, run: Run) -> dict[str, float]:
    """The measures of a run; without those that have no value."""
    order = run.order
    scale = run.facts["scale"]
    raw = Raw(run.samples(), run.facts["seconds"], scale, order.point, order.arm)
    values = {measure.name: measure.of(raw) for measure in experiment.measures}
    return {name: value for name, value in values.items() if value is not None and np.isfinite(value)}


def summarise(experiment: Experiment, plan: Plan, runs: Sequence[Run]) -> Summary:
    """Cells (arm, point, measure), verdicts, and which runs are unfit."""
    fit = [run for run in runs if run.fit]
    figures = [(run.order, measured(experiment, run)) for run in fit]
    cells = []
    for point in experiment.points(plan.quick):
        for arm in plan.arms:
            own = [values for order, values in figures if order.arm == arm and order.point == point]
            for measure in experiment.measures:
                values = [each[measure.name] for each in own if measure.name in each]
                if values:
                    cells.append(_cell(arm, point, measure.name, values))
    medians = Table(cells)
    verdicts = [_verdict(goal, medians) for goal in experiment.goals]
    return {
        "experiment": experiment.name,
        "form": "quick" if plan.quick else "full",
        "arms": list(plan.arms),
        "points": [dict(point) for point in experiment.points(plan.quick)],
        "repeats": plan.repeats,
        "target": plan.target,
        "runs": len(fit),
        "kernels": sorted({run.facts["kernel"] for run in runs if "kernel" in run.facts}),
        "clocks": sorted({run.facts["clock"] for run in runs if "clock" in run.facts}),
        "wanted": len(plan.orders()),
        "unfit": [{"run": run.order.id, "problems": run.problems} for run in runs if not run.fit],
        "cells": cells,
        "verdicts": verdicts,
        "word": word(verdicts),
    }


def write(plan: Plan, store: Store) -> Summary:
    """Summarises what a store has and keeps it there. Raises LabError."""
    known = {arm.name for arm in plan.declared().arms}
    if unknown := [arm for arm in plan.arms if arm not in known]:
        raise LabError(
            f"{store.directory} has results of arm '{unknown[0]}', which {plan.experiment} has no more: "
            f"`run {plan.experiment} --fresh` makes new ones"
        )
    runs = store.runs(plan)
    started = min((run.facts["started"] for run in runs if "started" in run.facts), default=0.0)
    result = summarise(plan.declared(), plan, runs) | store.machine() | {"runner": store.runner()}
    result |= {"started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds")}
    write_file(store.directory / "summary.json", json.dumps(result, indent=1) + "\n")
    return result


def _cell(arm: str, point: Point, measure: str, values: list[float]) -> dict[str, Any]:
    low, high = interval(values)
    figures = {"median": float(np.median(values)), "low": low, "high": high}
    rounded = {name: float(f"{value:.6g}") for name, value in figures.items()}
    return {"arm": arm, "point": dict(point), "measure": measure, **rounded, "n": len(values)}


class Table:
    """The cells of a summary, by measure, arm and point."""

    def __init__(self, cells: Sequence[dict[str, Any]]) -> None:
        self._cells = {(cell["measure"], cell["arm"], _key(cell["point"])): cell for cell in cells}

    def cell(self, measure: str, arm: str, point: Point) -> dict[str, Any] | None:
        return self._cells.get((measure, arm, _key(point)))

    def __call__(self, measure: str, arm: str, **point: Value) -> float | None:
        """The median, or None."""
        cell = self.cell(measure, arm, point)
        return cell["median"] if cell else None


def _key(point: Point) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(point.items()))


def _verdict(goal: Goal, medians: Table) -> dict[str, Any]:
    limit = goal.at_least if goal.at_least is not None else goal.at_most
    assert limit is not None
    try:
        value = float(goal.value(medians))
    except (TypeError, ValueError, ZeroDivisionError):  # a median is missing, or is 0
        return {
            "kind": goal.kind,
            "word": "not measured",
            "text": goal.text.format(value="-", limit=goal.shown.format(limit)),
        }
    holds = value >= limit if goal.at_least is not None else value <= limit
    text = goal.text.format(value=goal.shown.format(value), limit=goal.shown.format(limit))
    return {"kind": goal.kind, "word": goal.kind if holds else f"not {goal.kind}", "text": text}


def word(verdicts: Sequence[dict[str, Any]]) -> str:
    """One word for an experiment: `beaten` when all its goals hold, `met` when those of the paper do, else `not met`;
    `not measured` when nothing decides."""
    words = [verdict["word"] for verdict in verdicts]
    if not words or "not measured" in words:
        return "not measured"
    if "not met" in words:
        return "not met"
    return "beaten" if "not beaten" not in words and "beaten" in words else "met"
