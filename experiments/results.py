# SPDX-License-Identifier: Apache-2.0
"""Writes what a run leaves behind, `summary.json` last: where it stands, the run is complete."""

import csv
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments import flent, plots, report, tables
from experiments.live import LiveExperiment, Summary
from experiments.metrics import Verdict, ratios, verdicts
from experiments.runner import ArmRun, Setting
from topologies import labs, targets
from topologies.requirements import ROOT

_GENERATED = ("summary.json", "samples.csv", "report.html", "*.flent.gz", "*.png", "*.svg")


def clear(directory: Path) -> None:
    """Removes an earlier run's results, so that they cannot be taken for this run's."""
    for pattern in _GENERATED:
        for path in directory.glob(pattern):
            path.unlink()


def write_samples(runs: Sequence[ArmRun], directory: Path) -> None:
    """Every sample as one row: arm, time (s), quantity, value, span (s)."""
    with (directory / "samples.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arm", "time_s", "quantity", "value", "span_s"])
        for run in runs:
            for s in list(run.samples):
                writer.writerow([run.arm.name, f"{s.time:.4f}", s.quantity, f"{s.value:.4f}", f"{s.span:.4f}"])


def summarise(experiment: LiveExperiment, setting: Setting, runs: Sequence[ArmRun]) -> tuple[Summary, list[Verdict]]:
    """The summary of finished arms, and the verdicts in it."""
    arms = {run.arm.name: run.summary for run in runs if run.summary is not None}
    decided = verdicts(experiment, setting.profile, setting.cc, arms, setting.target)
    summary: Summary = {
        "experiment": experiment.name,
        "started": datetime.fromtimestamp(runs[0].started, UTC).isoformat(timespec="seconds"),
        "seconds": setting.seconds,
        "cc": setting.cc,
        "ecn": setting.ecn,
        "target": target(experiment, setting),
        "lab": {"name": setting.lab, "air": setting.air} if setting.lab == labs.WIRELESS else {"name": setting.lab},
        "profile": setting.profile.as_dict(),
        "arms": arms,
        "ratios": ratios(experiment, setting.profile, arms),
        "verdicts": [{"arm": v.arm, "text": v.text, "met": v.met} for v in decided],
        "versions": versions(setting.target) | labs.versions(setting.lab),
        "machine": machine(),
    }
    return summary, decided


def write_all(
    experiment: LiveExperiment, setting: Setting, runs: Sequence[ArmRun], directory: Path
) -> tuple[Summary, list[Verdict], dict[str, Any] | None]:
    """Everything: samples, Flent files, pictures, report, summary. Returns what a table needs."""
    summary, decided = summarise(experiment, setting, runs)
    known = tables.peers(setting.profile, setting.cc)
    write_samples(runs, directory)
    for run in runs:
        title = f"{run.arm.name}, {setting.profile.name} {setting.profile.describe()}"
        flent.write(
            directory / f"{run.arm.name}.flent.gz", flent.data(run.samples, title, run.started, setting.seconds)
        )
    pictures = plots.write_all(experiment, setting, runs, summary, directory)
    report.write(experiment, summary, decided, known, pictures, directory)
    unfinished = directory / "summary.json.part"
    unfinished.write_text(json.dumps(summary, indent=2) + "\n")
    os.replace(unfinished, directory / "summary.json")
    return summary, decided, known


def versions(switch: str = targets.DEFAULT) -> dict[str, str]:
    """Of what took part in the measurement. switch: the target's name."""
    return {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "iperf3": _first_line(["iperf3", "--version"]),
        **{name: targets.TARGETS[name].version() for name in dict.fromkeys((switch, targets.DEFAULT))},
        "commit": _first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
    }


def target(experiment: LiveExperiment, setting: Setting) -> dict[str, Any]:
    """The switch under test: name, version, and where it is not what the profile asks for."""
    switch = targets.TARGETS[setting.target]
    ports = labs.lab_class(setting.lab).switch_ports(setting.profile, experiment.stations)
    return {"name": switch.name, "version": switch.version(), "differences": switch.differences(ports)}


def machine() -> dict[str, Any]:
    """The computer, as far as it matters for a measurement."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")), "")
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    return {
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"),
        "processor": model or platform.machine(),
        "cores": os.cpu_count(),
        "memory": f"{memory} MiB",
    }


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.split("\n")[0].strip() or "unknown"
