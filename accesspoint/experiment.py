# SPDX-License-Identifier: Apache-2.0
"""Experiments of one's own: declared as data, run in fresh labs, ended in medians, figures and verdicts.

    EXPERIMENT = Experiment(name="mine", ..., scene=AccessPoint(PROFILES["wlan"], 12, (Flow("download", "down"),)))
    if __name__ == "__main__":
        summary = run(__file__, "mine", quick=True)

docs/experiments.md explains the parts.
"""

import json
from pathlib import Path
from typing import Any

from accesspoint.experiments.__main__ import main
from accesspoint.experiments.experiment import (
    OURS,
    PLAIN,
    Arm,
    Bars,
    Curves,
    Experiment,
    Goal,
    Measure,
    Quick,
    Reported,
    Timeline,
)
from accesspoint.experiments.measure.run_data import Raw, jain, least, mean, quantile, rate
from accesspoint.experiments.runs import registry
from accesspoint.experiments.scenes.scene import AccessPoint, At, Effect, Flow, Multihomed, Probe, Program
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile, ProfileError, link_profile

__all__ = [
    "OURS",
    "PLAIN",
    "PROFILES",
    "AccessPoint",
    "Arm",
    "At",
    "Bars",
    "Curves",
    "Effect",
    "Experiment",
    "Flow",
    "Goal",
    "LinkProfile",
    "Measure",
    "Multihomed",
    "Probe",
    "Program",
    "Quick",
    "Raw",
    "Reported",
    "Timeline",
    "jain",
    "least",
    "link_profile",
    "mean",
    "quantile",
    "rate",
    "run",
]


def run(file: str | Path, name: str, quick: bool = False, out: str | Path = "out", **options: object) -> dict[str, Any]:
    """Runs an experiment that a file declares as `EXPERIMENT` or in `EXPERIMENTS`, and returns its summary
    (`summary.json`, docs/experiments.md). As root.

    name: the experiment's. quick: its quick form. out: where results and pages go.
    options: those of `python -m accesspoint.experiments run`, as seconds=10, arms="plain,ours", repeats=2,
    side_by_side=2.
    Earlier results of the same name are replaced. Raises RuntimeError when it cannot be run; why is printed.
    """
    try:
        registry.add(Path(file))
    except ProfileError as error:
        raise RuntimeError(str(error)) from None
    words = ["run", name, "--fresh", "--out", str(Path(out).resolve()), *(["--quick"] if quick else [])]
    for option, value in options.items():
        words += [f"--{option.replace('_', '-')}", str(value)]
    if main(words):
        raise RuntimeError(f"the experiment {name} could not be run")
    summary = Path(out) / name / ("quick" if quick else "full") / "summary.json"
    return dict(json.loads(summary.read_text()))
