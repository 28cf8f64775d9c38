# SPDX-License-Identifier: Apache-2.0
"""Results for other programs: figures as CSV, samples as Parquet, runs as Flent's data files.

NAME.csv                figure of a run a row: experiment, form, arm, swept values, repeat, measure, unit, value
NAME.parquet            sample a row: run, arm, swept values, repeat, time_s, quantity, source, value, span_s
NAME_RUN.flent.gz       run, as Flent's test tcp_bidirectional (accesspoint.experiments.runs.flent)
"""

import csv
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from accesspoint.experiments.experiment import Experiment
from accesspoint.experiments.measure.samples import by_direction
from accesspoint.experiments.runs import archive, flent
from accesspoint.experiments.runs.plan import Plan
from accesspoint.experiments.runs.store import Run, Store, counted

COLUMNS = ("experiment", "form", "arm", "repeat", "measure", "unit", "value")


def export(kept: Store, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the results of a store into a folder; return the files."""
    plan = kept.plan()
    assert plan
    folder.mkdir(parents=True, exist_ok=True)
    return [path for name in formats for path in FORMATS[name](kept, plan, folder)]


def _csv(kept: Store, plan: Plan, folder: Path) -> list[Path]:
    experiment, summary = plan.declared(), kept.summary()
    swept = [name for name in experiment.sweep if name not in COLUMNS]
    path = folder / f"{experiment.name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS[:3], *swept, *COLUMNS[3:]])
        for cell in summary["cells"]:
            start = [experiment.name, summary["form"], cell["arm"], *(cell["point"].get(name, "") for name in swept)]
            unit = experiment.measure(cell["measure"]).unit
            writer.writerows([*start, repeat, cell["measure"], unit, value] for repeat, value in cell["values"].items())
    return [path]


def _parquet(kept: Store, plan: Plan, folder: Path) -> list[Path]:
    import pyarrow.parquet as pq

    path = folder / f"{plan.experiment}.parquet"
    pq.write_table(archive.table(counted(plan, kept.runs(plan)), columns=True), path, compression="zstd")
    return [path]


def _flent(kept: Store, plan: Plan, folder: Path) -> list[Path]:
    """A run without flows of its scene has no file: Flent's test is of a download and an upload."""
    experiment, found = plan.declared(), []
    for run in counted(plan, kept.runs(plan)):
        path = folder / f"{experiment.name}_{run.order.id}.flent.gz"
        made = run.directory / "run.flent.gz"
        if made.exists():
            shutil.copyfile(made, path)
        elif ways := _directions(experiment, run):
            seconds = run.facts["seconds"]
            samples = by_direction(run.samples(), ways, seconds)
            title = f"{experiment.name} {run.order.id}"
            flent.write(path, flent.data(samples, title, run.facts["started"], seconds))
        else:
            continue
        found.append(path)
    return found


def _directions(experiment: Experiment, run: Run) -> dict[str, str]:
    """Flow -> down or up."""
    scene = experiment.scene_of(run.order.point, experiment.arm(run.order.arm))
    found = ((getattr(part, "name", None), getattr(part, "direction", None)) for part in scene.traffic)
    return {name: way for name, way in found if name and way in ("down", "up")}


FORMATS: Mapping[str, Callable[[Store, Plan, Path], list[Path]]] = {"csv": _csv, "parquet": _parquet, "flent": _flent}
