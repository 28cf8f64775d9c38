# SPDX-License-Identifier: Apache-2.0
"""Every experiment by its name: what modules of the catalogue's folders declare as `EXPERIMENT` or `EXPERIMENTS`, and
files of the user's own, which the environment's ACCESSPOINT_EXPERIMENTS names, parted by colons."""

import functools
import importlib
import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from accesspoint.experiments.experiment import Experiment, Setting, Value
from accesspoint.own_file import load
from accesspoint.topologies.links.profiles import ProfileError

OWN = "ACCESSPOINT_EXPERIMENTS"
NAME = re.compile(r"[A-Za-z0-9][\w-]*")  # it names folders
SEEDED = re.compile(r"(.+)-seed-(0|[1-9]\d*)")
"""Name of an experiment whose points are drawn from another seed than its own: its results have a folder of theirs."""
CATALOGUE = Path(__file__).resolve().parents[1] / "catalogue"


@dataclass(frozen=True)
class Broken:
    """A file whose experiments cannot be used."""

    file: Path
    why: str

    def __str__(self) -> str:
        return f"{self.file} is broken: {self.why}"


@dataclass
class Found:
    """Experiments by name, the file of each, and the broken files."""

    experiments: dict[str, Experiment]
    files: dict[str, Path]
    broken: tuple[Broken, ...] = ()


class _Unusable(Exception):
    """A declaration that is no experiment; why."""


@functools.cache
def _found() -> Found:
    found = Found({}, {})
    for file in (*_catalogue(), *own_files()):
        try:
            own = _declared(_module(file))
            for experiment in own:
                _check(experiment, found)
                if not file.is_relative_to(CATALOGUE):  # tests build each scene of the catalogue
                    _build(experiment)
        except (Exception, SystemExit) as error:
            found.broken += (Broken(file, _why(error, file)),)
            continue
        for experiment in own:
            found.experiments[experiment.name], found.files[experiment.name] = experiment, file
    return found


def experiments() -> dict[str, Experiment]:
    """Name -> experiment, areas in the order of their names, files of the user's own last."""
    return _found().experiments


def broken() -> tuple[Broken, ...]:
    """Files whose experiments cannot be used."""
    return _found().broken


def on_own_links() -> list[str]:
    """Names of the experiments that take links of the user's own."""
    return [name for name, experiment in experiments().items() if experiment.under]


def together() -> list[str]:
    """Names of the experiments that have links of their own and are not `apart`: all that can be run without a
    question."""
    return [name for name, experiment in experiments().items() if not experiment.under and not experiment.apart]


def drawing() -> list[str]:
    """Names of the experiments whose points are drawn from a seed."""
    return [name for name, experiment in experiments().items() if experiment.seed is not None]


def seeded(name: str, seed: int) -> str:
    """Return the name of the experiment with its points drawn from that seed. Raises ProfileError."""
    find(name)
    declared = declared_name(name)
    if declared not in drawing():
        raise ProfileError(f"--seed is for {', '.join(drawing())}: '{name}' draws nothing")
    return declared if seed == experiments()[declared].seed else f"{declared}-seed-{seed}"


def seed_of(name: str) -> int | None:
    """Return the seed in the name of an experiment; None: its points are as declared."""
    match = None if name in experiments() else SEEDED.fullmatch(name)
    known = experiments().get(match[1]) if match else None
    # Its own seed has its own name alone: two folders for the same results would differ one day.
    return int(match[2]) if match and known and known.seed not in (None, int(match[2])) else None


def declared_name(name: str) -> str:
    """Return the name under which the experiment is declared."""
    return name if seed_of(name) is None else name[: name.rindex("-seed-")]


def with_seeds(out: Path) -> list[str]:
    """Names of all experiments, and of those of other seeds that have a folder in `out`."""
    others = sorted(path.name for path in out.glob("*-seed-*") if path.is_dir() and seed_of(path.name) is not None)
    return [*experiments(), *others]


def own_files() -> list[Path]:
    """Files of the user's own."""
    return [Path(path).resolve() for path in os.environ.get(OWN, "").split(":") if path]


def file(name: str) -> Path:
    """Return the file that declares the experiment. Raises ProfileError."""
    find(name)
    return _found().files[declared_name(name)]


def own_file(name: str) -> Path | None:
    """Return the user's own file that declares the experiment; None for one of the catalogue. Raises ProfileError."""
    return None if (declared := file(name)).is_relative_to(CATALOGUE) else declared


def named(words: Sequence[str]) -> list[str]:
    """Names of experiments, in place of a file those that it declares: it is registered for this process and those that
    it starts. Raises ProfileError."""
    names = [name for word in words for name in (add(Path(word)) if _is_a_file(word) else [word])]
    return list(dict.fromkeys(names))


def _is_a_file(word: str) -> bool:
    return word.endswith(".py") or os.sep in word


def add(file: Path) -> list[str]:
    """Register a file for this process and those that it starts, and return the names of its experiments. Raises
    ProfileError."""
    file = file.resolve()
    if ":" in str(file):
        raise ProfileError(f"{file} has a colon in its path, which parts paths in {OWN}: move it")
    if not file.is_relative_to(CATALOGUE) and file not in own_files():
        os.environ[OWN] = ":".join([*map(str, own_files()), str(file)])
        forget()
    for each in broken():
        if each.file == file:
            raise ProfileError(str(each))
    return [name for name, of in _found().files.items() if of == file]


def forget() -> None:
    """Forget what was found, after a change of the environment."""
    _found.cache_clear()


def _catalogue() -> Iterator[Path]:
    for area in sorted(path.parent for path in CATALOGUE.glob("*/__init__.py")):
        yield from (path for path in sorted(area.glob("*.py")) if path.name != "__init__.py")


def _module(file: Path) -> ModuleType:
    if file.is_relative_to(CATALOGUE):
        return importlib.import_module(f"accesspoint.experiments.catalogue.{file.parent.name}.{file.stem}")
    if not file.is_file():
        raise _Unusable("it does not exist")
    module = load(file)
    if module is None:
        raise _Unusable("it is no Python file")
    return module


def _declared(module: ModuleType) -> list[Experiment]:
    """Return the experiments of a module; only modules of the catalogue may have none."""
    if hasattr(module, "EXPERIMENTS"):
        found = list(module.EXPERIMENTS)
    elif hasattr(module, "EXPERIMENT"):
        found = [module.EXPERIMENT]
    elif module.__name__.startswith("accesspoint."):
        found = []
    else:
        raise _Unusable("it declares no EXPERIMENT")
    for each in found:
        if not isinstance(each, Experiment):
            raise _Unusable(f"EXPERIMENT is an {type(each).__name__}, and not an Experiment")
    return found


def _check(experiment: Experiment, found: Found) -> None:
    """Raises _Unusable for a name that is none, or another's."""
    if not NAME.fullmatch(experiment.name):
        raise _Unusable(f"'{experiment.name}' is no name: use letters, digits, - and _")
    if experiment.name in found.experiments:
        raise _Unusable(f"another experiment is called {experiment.name}: rename one")


def _build(experiment: Experiment) -> None:
    """Raises _Unusable for a scene that cannot be built."""
    for point in experiment.points():
        for arm in experiment.arms:
            try:
                experiment.scene_of(point, arm)
            except Exception as error:
                at = "".join(f" {name} {value}" for name, value in point.items())
                raise _Unusable(
                    f"{experiment.name}: its scene{' at' if at else ''}{at}: {type(error).__name__}: {error}"
                ) from error


def _why(error: BaseException, file: Path) -> str:
    """`line 3: NameError: name 'x' is not defined`"""
    if isinstance(error, _Unusable):
        return str(error)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(file) else (lines or [None])[-1]
    text = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    return f"line {line}: {text}" if line else text


def find(name: str) -> Experiment:
    """The experiment of that name; of `NAME-seed-N` with points drawn from that seed. Raises ProfileError."""
    if (seed := seed_of(name)) is not None:
        return experiments()[declared_name(name)].of_seed(seed, name)
    if name not in experiments():
        known = ", ".join([*on_own_links(), *(name for name in experiments() if name not in on_own_links())])
        others = "".join(f"; {each}" for each in broken())
        raise ProfileError(f"experiment '{name}' is unknown: choose one of {known}{others}")
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
