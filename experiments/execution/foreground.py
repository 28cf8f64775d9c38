# SPDX-License-Identifier: Apache-2.0
"""One run of each arm of an experiment, in a setting that people choose: shown while it runs, with every caution, and
with an honest end when it is interrupted."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from accesspoint.experiments.execution import phases, terminal
from accesspoint.experiments.execution.phases import Summary
from accesspoint.experiments.experiment import Arm, Experiment, Setting
from accesspoint.experiments.lab.stage import Stage
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.render import figures, site
from accesspoint.experiments.runs import flent, measures, store
from accesspoint.experiments.runs.plan import Order
from accesspoint.experiments.runs.store import Run
from accesspoint.experiments.verdict.goals import Cell
from accesspoint.experiments.verdict.summary import figures as cells_of
from accesspoint.topologies import lab_kinds
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.lab import fail
from accesspoint.topologies.requirements import LabError

GENERATED = ("summary.json", "samples.csv", "report.html", "*.flent.gz", "*.png", "*.svg")
RECENT = 1.0  # s: the live figures are the mean of what came within
SHOWN = 200  # of the latest samples are read for them


@dataclass(frozen=True)
class Made(Run):
    """A run in the foreground, whose folder is that of its lab's logs. by_way: its samples by direction
    (Stage.both_ways)."""

    measured: Sequence[Sample] = ()
    by_way: Sequence[Sample] = ()

    @property
    def logs(self) -> Path:
        return self.directory

    def samples(self) -> list[Sample]:
        return list(self.measured)


class Foreground:
    """An experiment at a terminal. directory: where its results go."""

    def __init__(
        self,
        experiment: Experiment,
        setting: Setting,
        arms: Sequence[str],
        seconds: float,
        directory: Path,
        console: Console,
    ) -> None:
        self._experiment, self._setting = experiment, setting
        self._arms = [experiment.arm(name) for name in arms]
        self._seconds, self._directory, self._console = seconds, directory, console
        self._made: list[Made] = []
        self._playing: tuple[str, Stage] | None = None

    def require(self) -> None:
        """Raises LabError when the lab or the target cannot give what one of the arms needs."""
        for arm in self._arms:
            self._experiment.scene_of({}, arm).require(arm, self._setting.target)

    def run(self) -> int:
        """Runs every arm and returns the exit code. An interrupted run keeps its samples and claims no summary."""
        clear(self._directory)
        profile, setting = self._setting.profile, self._setting
        self._say(
            f"[bold]{self._experiment.title}[/]: {profile.name}, {profile.describe()}, TCP {setting.cc}, "
            f"{len(self._arms)} arms of {self._seconds:g} s"
        )
        if setting.lab == lab_kinds.WIRELESS:
            self._say(f"On radios: {', '.join(f'{n} {v}' for n, v in lab_kinds.versions(setting.lab).items())}")
        terminal.show_target(self._console, phases.target(self._experiment, setting))
        try:
            self._measure()
            with self._console.status("drawing"):
                summary, cells = write(self._experiment, setting, self._made, self._directory)
        except (LabError, OSError) as error:
            self._keep_partial()
            return fail(error)
        except (KeyboardInterrupt, SystemExit):
            self._keep_partial()
            self._console.print("interrupted: there is no summary", style="bold yellow")
            raise
        terminal.show(self._console, self._experiment, summary, cells)
        self._console.print(f"\nresults: {self._directory / 'report.html'}", highlight=False, soft_wrap=True)
        return 0

    def _measure(self) -> None:
        columns = (
            TextColumn("{task.description:<13}"),
            BarColumn(bar_width=12),
            TextColumn("{task.completed:.0f}/{task.total:.0f} s"),
            TextColumn("{task.fields[live]}"),
        )
        with Progress(
            *columns, console=self._console, refresh_per_second=4, disable=not self._console.is_terminal
        ) as progress:
            tasks = [progress.add_task(arm.name, total=self._seconds, live="", start=False) for arm in self._arms]
            for arm, task in zip(self._arms, tasks, strict=True):
                progress.start_task(task)
                progress.update(task, live="[dim]the lab comes up")
                made = self._play(arm, progress, task)
                self._made.append(made)
                told = outcome(self._experiment, made)
                progress.update(task, completed=self._seconds, live=told)
                if not self._console.is_terminal:
                    self._say(f"{arm.name}: {told}")

    def _play(self, arm: Arm, progress: Progress, task: TaskID) -> Made:
        order = Order(self._experiment.name, arm.name, {}, 1, self._seconds, self._setting.target, clock=kernel.clock())
        scene, logs = self._experiment.scene_of({}, arm), self._directory / "logs" / arm.name
        with scene.lab(arm, order.target, logs, order.seed) as lab:
            stage = Stage(lab, scene, arm, {}, self._seconds, order.seed, logs)
            self._playing = arm.name, stage
            stage.play(partial(self._show, progress, task, stage))
        self._playing = None
        facts = {
            "seconds": self._seconds, "scale": stage.scale, "started": stage.started, "found": stage.found,
            "self_check": stage.report,
        }  # fmt: skip
        return Made(order, logs, facts, stage.samples, stage.both_ways())

    def _show(self, progress: Progress, task: TaskID, stage: Stage) -> None:
        now = max(0.0, stage.now())
        recent = [s for s in stage.samples[-SHOWN:] if s.time > now - RECENT]
        rates = {}
        for way in ("downlink", "uplink"):
            own: dict[str, list[float]] = {}
            for s in recent:
                if s.quantity == "rate_mbps" and s.source.startswith(way):
                    own.setdefault(s.source, []).append(s.value)
            rates[way] = sum(map(_mean, own.values()))
        ping = _mean([s.value for s in recent if s.quantity == "ping_ms"])
        live = f"down {rates['downlink']:4.1f}  up {rates['uplink']:4.2f} Mb/s  ping {ping:.0f} ms"
        progress.update(task, completed=min(now, self._seconds), live=live)

    def _keep_partial(self) -> None:
        measured = {run.order.arm: run.by_way for run in self._made}
        if self._playing:
            name, stage = self._playing
            measured[name] = stage.both_ways()
        if any(measured.values()):
            write_samples(measured, self._directory)
            self._console.print(
                f"samples so far: {self._directory / 'samples.csv'}", highlight=False, soft_wrap=True, style="dim"
            )

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False)


def clear(directory: Path) -> None:
    """Removes an earlier run's results, so that they cannot be taken for this run's."""
    for path in [path for pattern in GENERATED for path in directory.glob(pattern)]:
        path.unlink()


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def outcome(experiment: Experiment, run: Run) -> str:
    """A finished arm in a line."""
    figures = phases.by_phase(experiment, run)
    down, up, ping = figures["downlink_mbps"], figures["uplink_mbps"], figures["ping_ms"]
    p50 = "-" if ping["p50"] is None else f"{ping['p50']:.0f} ms"
    return f"down {down['before']:.1f} → {down['during']:.1f}  up {up['during']:.2f} Mb/s  ping {p50}"


def write(
    experiment: Experiment, setting: Setting, runs: Sequence[Made], directory: Path
) -> tuple[Summary, list[Cell]]:
    """Write samples, Flent files, pictures, report, and last the summary: its presence marks a complete run."""
    arms = [run.order.arm for run in runs]
    taken = [(run.order, measures.values(measures.take(experiment.measures, run.raw()))) for run in runs]
    cells = cells_of(experiment, arms, [{}], taken)
    summary = phases.summarise(experiment, setting, runs, cells)
    write_samples({run.order.arm: run.by_way for run in runs}, directory)
    for run in runs:
        title = f"{run.order.arm}, {setting.profile.name} {setting.profile.describe()}"
        content = flent.data(run.by_way, title, run.facts["started"], run.facts["seconds"])
        flent.write(directory / f"{run.order.arm}.flent.gz", content)
    known = {"arms": arms, "points": [{}], "cells": cells}
    drawn = figures.write_all(experiment, known, runs, directory, png=True)
    site.write_report(experiment, summary, terminal.peers(experiment), drawn, directory)
    store.write(directory / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary, cells


def write_samples(measured: dict[str, Sequence[Sample]], directory: Path) -> None:
    """Every sample as one row: arm, time (s), quantity, value, span (s)."""
    with (directory / "samples.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arm", "time_s", "quantity", "value", "span_s"])
        for arm, samples in measured.items():
            for s in samples:
                writer.writerow([arm, f"{s.time:.4f}", s.quantity, f"{s.value:.4f}", f"{s.span:.4f}"])
