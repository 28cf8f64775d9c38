# SPDX-License-Identifier: Apache-2.0
"""Every experiment by its name: what modules of this package's folders declare as `EXPERIMENT` or `EXPERIMENTS`."""

import functools
import importlib
import pkgutil
from pathlib import Path

from experiments.experiment import Experiment
from topologies.profiles import ProfileError

LIVE = ("headline", "many-stations", "handover")
"""Those of experiments.live: one run of each arm, shown while it runs."""


@functools.cache
def experiments() -> dict[str, Experiment]:
    """Name -> experiment, areas in the order of their names."""
    found: dict[str, Experiment] = {}
    for area in sorted(path.parent for path in Path(__file__).parent.glob("*/__init__.py")):
        if area.name == "tests":
            continue
        for name in sorted(module.name for module in pkgutil.iter_modules([str(area)])):
            module = importlib.import_module(f"experiments.{area.name}.{name}")
            for experiment in getattr(module, "EXPERIMENTS", [getattr(module, "EXPERIMENT", None)]):
                if experiment is None:
                    continue
                if experiment.name in found or experiment.name in LIVE:
                    raise ValueError(f"two experiments are called {experiment.name}")
                found[experiment.name] = experiment
    return found


def find(name: str) -> Experiment:
    """The experiment of that name. Raises ProfileError."""
    if name not in experiments():
        known = ", ".join([*LIVE, *experiments()])
        raise ProfileError(f"experiment '{name}' is unknown: choose one of {known}")
    return experiments()[name]
