# SPDX-License-Identifier: Apache-2.0
"""Every experiment by its name: what modules of this package's folders declare as `EXPERIMENT` or `EXPERIMENTS`, and
the files that the environment's ACCESSPOINT_EXPERIMENTS names, parted by colons."""

import functools
import importlib
import importlib.util
import os
import pkgutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from accesspoint.experiments.experiment import Experiment, Setting, Value
from accesspoint.topologies.links.profiles import ProfileError

OWN = "ACCESSPOINT_EXPERIMENTS"


@functools.cache
def experiments() -> dict[str, Experiment]:
    """Name -> experiment, areas in the order of their names. Raises ProfileError."""
    found: dict[str, Experiment] = {}
    for module in (*_here(), *_own()):
        for experiment in getattr(module, "EXPERIMENTS", [getattr(module, "EXPERIMENT", None)]):
            if experiment is None:
                continue
            if experiment.name in found:
                raise ProfileError(f"two experiments are called {experiment.name}: give yours another name")
            found[experiment.name] = experiment
    return found


def on_own_links() -> list[str]:
    """Names of the experiments that take links of the user's own."""
    return [name for name, experiment in experiments().items() if experiment.under]


def together() -> list[str]:
    """Names of the experiments that have links of their own and are not `apart`: all that can be run without a
    question."""
    return [name for name, experiment in experiments().items() if not experiment.under and not experiment.apart]


def _here() -> Iterator[ModuleType]:
    for area in sorted(path.parent for path in (Path(__file__).parents[1] / "catalogue").glob("*/__init__.py")):
        for name in sorted(module.name for module in pkgutil.iter_modules([str(area)])):
            yield importlib.import_module(f"accesspoint.experiments.catalogue.{area.name}.{name}")


def _own() -> Iterator[ModuleType]:
    for path in filter(None, os.environ.get(OWN, "").split(":")):
        file = Path(path).resolve()
        spec = importlib.util.spec_from_file_location(f"experiment_{zlib.crc32(bytes(file)):08x}", file)
        if not file.is_file() or not spec or not spec.loader:
            raise ProfileError(f"{OWN} names {path}, which is no Python file: correct it")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def add(file: Path) -> None:
    """Register the experiments of a file, for this process and those that it starts."""
    known = [path for path in os.environ.get(OWN, "").split(":") if path]
    if str(file.resolve()) not in known:
        os.environ[OWN] = ":".join([*known, str(file.resolve())])
        experiments.cache_clear()


def find(name: str) -> Experiment:
    """The experiment of that name. Raises ProfileError."""
    if name not in experiments():
        known = ", ".join([*on_own_links(), *(name for name in experiments() if name not in on_own_links())])
        raise ProfileError(f"experiment '{name}' is unknown: choose one of {known}")
    return experiments()[name]


def under(name: str, setting: Mapping[str, Value], target: str) -> Experiment:
    """Return the experiment as a plan asks for it: with its target, and on links of the user's own. Raises
    ProfileError."""
    found = find(name)
    if found.under:
        return found.under(Setting.of(setting, target))
    for word in setting:
        raise ProfileError(f"--{word} is for {', '.join(on_own_links())}: '{name}' names its own links")
    return found
