# SPDX-License-Identifier: Apache-2.0
"""An experiment's summary from its runs: every repeat's figures, medians with intervals, and words: for the claims of a
paper that it answers, else for its goals.

Pure: what comes in decides what comes out. The summary is all that reports need, except samples over time.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from accesspoint.experiments.experiment import Experiment, Goal, Point, Value
from accesspoint.experiments.measure.intervals import of_median
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.runs import measures, registry
from accesspoint.experiments.runs.plan import Order, Plan, make
from accesspoint.experiments.runs.provenance import parameters
from accesspoint.experiments.runs.store import Run, Store, counted
from accesspoint.experiments.runs.store import write as write_file
from accesspoint.experiments.verdict import judge
from accesspoint.experiments.verdict.goals import Cell, Table, decide, word
from accesspoint.topologies.requirements import LabError

Summary = dict[str, Any]
Values = Mapping[str, float]  # of a run, by measure


def summarise(experiment: Experiment, plan: Plan, runs: Sequence[Run]) -> Summary:
    """Cells (arm, point, measure), verdicts, and unfit runs."""
    those = counted(plan, runs)
    points = list(experiment.points(plan.quick))
    cells = figures(experiment, plan.arms, points, [(run.order, measures.of_run(experiment, run)) for run in those])
    found = {
        "experiment": experiment.name,
        "form": "quick" if plan.quick else "full",
        "arms": list(plan.arms),
        "points": [dict(point) for point in points],
        "repeats": plan.repeats,
        "command": command(experiment, plan),
        "target": plan.target,
        "setting": dict(plan.setting),
        "target_differences": list(dict.fromkeys(t for run in those for t in run.facts.get("target_differences", ()))),
        "runs": sum(run.fit for run in those),
        **_provenance(experiment, plan, those),
        "wanted": len(plan.orders()),
        "unfit": [
            {"run": run.order.id, "problems": run.problems, "counted": run in those} for run in runs if not run.fit
        ],
        "cells": cells,
    }
    if experiment.compared:
        found |= compared(experiment, [run.raw() for run in those])
    found |= tallied(experiment, found)
    return found | judged(experiment, found)


def compared(experiment: Experiment, runs: Iterable[Raw]) -> Summary:
    """Comparison of all runs, for experiments that declare one."""
    return {"compared": asdict(experiment.compared(list(runs)))} if experiment.compared else {}


def tallied(experiment: Experiment, found: Summary) -> Summary:
    """Comparison of the medians at all points, for experiments that declare one, of a summary that has its cells."""
    return {"compared": asdict(experiment.tally(Table(found["cells"]), found["points"]))} if experiment.tally else {}


def judged(experiment: Experiment, found: Summary) -> Summary:
    """Verdicts and the word for them, of a summary that has all else."""
    verdicts = [verdict(goal, found["cells"]) for goal in experiment.goals]
    verdicts += found.get("compared", {}).get("verdicts", ())
    verdicts = verdicts or judge.verdicts(experiment.number, found)
    return {"verdicts": verdicts, "word": word(verdicts)}


def figures(
    experiment: Experiment, arms: Sequence[str], points: Sequence[Point], known: Iterable[tuple[Order, Values]]
) -> list[Cell]:
    """Cells: the figures of each arm at each point. known: of each run."""
    by_place: dict[tuple[str, tuple[tuple[str, Value], ...]], list[tuple[int, Values]]] = defaultdict(list)
    for order, values in known:
        by_place[order.arm, tuple(sorted(order.point.items()))].append((order.repeat, values))
    cells = []
    for point in points:
        for arm in arms:
            own = by_place[arm, tuple(sorted(point.items()))]
            for measure in experiment.measures:
                found = {repeat: each[measure.name] for repeat, each in own if measure.name in each}
                if found:
                    cells.append(_cell(arm, point, measure.name, found))
    return cells


def _provenance(experiment: Experiment, plan: Plan, runs: Sequence[Run]) -> Summary:
    """Provenance of the figures. claims: those that stood when the runs were made, empty where runs had several. A
    run's run.json has its scene and all else of its own."""
    facts = [run.facts for run in runs]
    versions = [one["versions"] for one in facts if "versions" in one]
    stood = {one.get("claims", "") for one in facts}
    points = list(experiment.points(plan.quick))
    scenes = [experiment.scene_of(point, experiment.arm(arm)) for point in points for arm in plan.arms]
    links = [parameters(getattr(scene, "profile", None) or getattr(scene, "links", None)) for scene in scenes]
    seeds: list[dict[str, int]] = [{} for _ in points]
    for order in plan.orders():
        seeds[points.index(order.point)][str(order.repeat)] = order.seed
    return {
        "versions": {
            name: ", ".join(sorted({each[name] for each in versions if name in each}))
            for name in dict.fromkeys(name for each in versions for name in each)
        },
        "clocks": sorted({one["clock"] for one in facts if "clock" in one}),
        "claims": stood.pop() if len(stood) == 1 else "",
        "parameters": {
            "arms": [parameters(experiment.arm(name)) for name in plan.arms],
            "links": [each for place, each in enumerate(links) if each not in links[:place]],
        },
        "seeds": [{"point": dict(point), "of": own} for point, own in zip(points, seeds, strict=True)],
    }


def command(experiment: Experiment, plan: Plan) -> str:
    """Command that makes these runs again. Seeds follow from experiment, point and repeat."""
    own = make(experiment, plan.quick)
    if file := registry.own_file(experiment.name):
        return _command_of_a_file(file, plan, own)
    seed = registry.seed_of(plan.experiment)
    words = ["make experiment", f"NAME={registry.declared_name(plan.experiment)}"]
    words += [] if seed is None else [f"SEED={seed}"]
    words += ["QUICK=1"] if plan.quick else []
    words += [f"REPEATS={plan.repeats}"] if plan.repeats != own.repeats else []
    words += [f"ARMS={','.join(plan.arms)}"] if plan.arms != own.arms else []
    words += [f"SECONDS={plan.seconds:g}"] if plan.seconds else []
    words += [f"TARGET={plan.target}"] if plan.target != own.target else []
    words += [f"{name.upper()}={int(value) if value is True else value}" for name, value in plan.setting.items()]
    return " ".join([*words, f"CLOCK={plan.clock}"])


def _command_of_a_file(file: Path, plan: Plan, own: Plan) -> str:
    words = ["python -m accesspoint.experiments run", str(file), *(["--quick"] if plan.quick else [])]
    words += [f"--seed {seed}"] if (seed := registry.seed_of(plan.experiment)) is not None else []
    words += [f"--repeats {plan.repeats}"] if plan.repeats != own.repeats else []
    words += [f"--arms {','.join(plan.arms)}"] if plan.arms != own.arms else []
    words += [f"--seconds {plan.seconds:g}"] if plan.seconds else []
    words += [f"--target {plan.target}"] if plan.target != own.target else []
    return " ".join([*words, f"--clock {plan.clock}"])


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
    result = summarise(plan.declared(), plan, runs) | {"machine": store.machine(), "runner": store.runner()}
    result |= {"started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds")}
    write_file(store.directory / "summary.json", json.dumps(result, indent=1) + "\n")
    return result


def _cell(arm: str, point: Point, measure: str, values: Mapping[int, float]) -> Cell:
    """confidence: of the interval; 0 for a single value, which has none."""
    found = of_median(list(values.values()))
    figures = {"median": float(np.median(list(values.values())))}
    figures |= {"low": found.low, "high": found.high} if found else dict.fromkeys(("low", "high"), figures["median"])
    return {
        "arm": arm,
        "point": dict(point),
        "measure": measure,
        **{name: _rounded(value) for name, value in figures.items()},
        "confidence": round(found.confidence, 4) if found else 0.0,
        "n": len(values),
        "values": {str(repeat): _rounded(value) for repeat, value in sorted(values.items())},
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def verdict(goal: Goal, cells: Sequence[Cell]) -> dict[str, Any]:
    decision = decide(goal, cells)
    if decision is None:
        limit = goal.at_most if goal.at_least is None else goal.at_least
        text = goal.text.format(value="-", limit=goal.shown.format(limit))
        return {"kind": "goal", "word": "not run", "text": text}
    return {"kind": "goal", "word": decision.verdict, "text": decision.text}
