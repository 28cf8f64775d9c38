# SPDX-License-Identifier: Apache-2.0
"""A run from start to end at a terminal: live progress, every arm, results, and an honest end when interrupted."""

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from experiments import results, tables
from experiments.live import LiveExperiment
from experiments.runner import ArmRun, Setting, run_arm
from topologies import labs
from topologies.lab import fail
from topologies.requirements import LabError

RECENT = 1.0  # s: the live figures are the mean of what came within


class Session:
    """One run of an experiment."""

    def __init__(
        self, experiment: LiveExperiment, setting: Setting, arms: list[str], directory: Path, console: Console
    ) -> None:
        """arms: names of those to run. directory: where results go."""
        self.experiment = experiment
        self.setting = setting
        self.runs = [ArmRun(arm) for arm in experiment.arms if arm.name in arms]
        self.directory = directory
        self.console = console

    def run(self) -> int:
        """Runs every arm and returns the exit code. An interrupted run keeps its samples and claims no summary."""
        results.clear(self.directory)
        profile, versions = self.setting.profile, labs.versions(self.setting.lab)
        self.console.print(
            f"[bold]{self.experiment.title}[/]: {profile.name}, {profile.describe()}, TCP {self.setting.cc}, "
            f"{len(self.runs)} arms of {self.setting.seconds} s",
            highlight=False,
        )
        if self.setting.lab == labs.WIRELESS:
            self.console.print(f"On radios: {', '.join(f'{n} {v}' for n, v in versions.items())}", highlight=False)
        tables.show_target(self.console, results.target(self.experiment, self.setting))
        try:
            self._measure()
            with self.console.status("drawing"):
                summary, decided, known = results.write_all(self.experiment, self.setting, self.runs, self.directory)
        except (LabError, OSError) as error:
            self._keep_partial()
            return fail(error)
        except (KeyboardInterrupt, SystemExit):
            self._keep_partial()
            self.console.print("interrupted: there is no summary", style="bold yellow")
            raise
        tables.show(self.console, self.experiment, summary, decided, known)
        self.console.print(f"\nresults: {self.directory / 'report.html'}", highlight=False, soft_wrap=True)
        return 0

    def _measure(self) -> None:
        columns = (
            TextColumn("{task.description:<13}"),
            BarColumn(bar_width=12),
            TextColumn("{task.completed:.0f}/{task.total:.0f} s"),
            TextColumn("{task.fields[live]}"),
        )
        with Progress(
            *columns, console=self.console, refresh_per_second=4, disable=not self.console.is_terminal
        ) as progress:
            tasks = [
                progress.add_task(run.arm.name, total=self.setting.seconds, live="", start=False) for run in self.runs
            ]
            for run, task in zip(self.runs, tasks, strict=True):
                progress.start_task(task)
                progress.update(task, live="[dim]the lab comes up")
                directory = self.directory / "logs" / run.arm.name
                run_arm(self.experiment, run, self.setting, directory, partial(self._show, progress, run, task))
                progress.update(task, completed=self.setting.seconds, live=self._outcome(run))
                if not self.console.is_terminal:
                    self.console.print(f"{run.arm.name}: {self._outcome(run)}", highlight=False)

    def _show(self, progress: Progress, run: ArmRun, task: TaskID) -> None:
        now = run.elapsed
        latest = {}
        for quantity in ("downlink_mbps", "uplink_mbps", "ping_ms"):
            values = [s.value for s in run.samples[-200:] if s.quantity == quantity and s.time > now - RECENT]
            latest[quantity] = sum(values) / len(values) if values else 0.0
        live = "down {downlink_mbps:4.1f}  up {uplink_mbps:4.2f} Mb/s  ping {ping_ms:.0f} ms".format(**latest)
        progress.update(task, completed=min(now, self.setting.seconds), live=live)

    @staticmethod
    def _outcome(run: ArmRun) -> str:
        assert run.summary
        down, up, ping = run.summary["downlink_mbps"], run.summary["uplink_mbps"], run.summary["ping_ms"]
        p50 = "-" if ping["p50"] is None else f"{ping['p50']:.0f} ms"
        return f"down {down['before']:.1f} → {down['during']:.1f}  up {up['during']:.2f} Mb/s  ping {p50}"

    def _keep_partial(self) -> None:
        measured = [run for run in self.runs if run.samples]
        if measured:
            results.write_samples(measured, self.directory)
            self.console.print(
                f"samples so far: {self.directory / 'samples.csv'}", highlight=False, soft_wrap=True, style="dim"
            )
