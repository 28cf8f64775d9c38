# SPDX-License-Identifier: Apache-2.0
"""Laws from outside the package: files that the environment's ACCESSPOINT_LAWS names, parted by colons, and entry
points of the group `accesspoint.laws`.

Services, agents and labs take them from their environment, and nobody gives them one over REST: a law is code.
"""

import math
import os
import re
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from accesspoint.own_file import load

from .base import Law

FILES = "ACCESSPOINT_LAWS"
GROUP = "accesspoint.laws"
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")  # it stands in a configuration and on the page


class LawError(Exception):
    """A file or entry point that offers no law, and why."""


def add(laws: dict[str, Law]) -> list[str]:
    """Add the user's laws to these; return a line for each file or entry point that cannot be used."""
    broken = []
    for path in filter(None, os.environ.get(FILES, "").split(":")):
        try:
            laws |= of_file(Path(path), laws)
        except LawError as error:
            broken.append(str(error))
    for entry in entry_points(group=GROUP):
        where = f"entry point {entry.name} of {entry.value}"
        try:
            laws |= _checked([entry.load()], where, laws)
        except LawError as error:
            broken.append(str(error))
        except Exception as error:  # code of others
            broken.append(f"{where} is broken: {type(error).__name__}: {error}")
    return broken


def of_file(path: Path, known: dict[str, Law]) -> dict[str, Law]:
    """Return the laws that a Python file defines, by name. Raises LawError."""
    path = path.resolve()
    try:
        module = load(path)
    except (Exception, SystemExit) as error:
        raise LawError(f"{path} is broken: {type(error).__name__}: {error}") from None
    if module is None:
        raise LawError(f"{path} is no Python file")
    return _checked(_classes(module), str(path), known)


def _classes(module: ModuleType) -> list[object]:
    return [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]


def _checked(values: list[object], where: str, known: dict[str, Law]) -> dict[str, Law]:
    """Return the laws among these, by name. Raises LawError."""
    found = dict[str, Law]()
    for value in values:
        if not (isinstance(value, type) and issubclass(value, Law)):
            continue
        if not NAME.fullmatch(value.name):
            raise LawError(f"{where}: name of {value.__name__} must match {NAME.pattern}, it is '{value.name}'")
        if value.name in known or value.name in found:
            raise LawError(f"{where}: there is a law '{value.name}' already")
        for name, parameter in value.parameters.items():
            bounds = (parameter.least, parameter.default, parameter.most)
            if not (name.isidentifier() and all(map(math.isfinite, bounds)) and sorted(bounds) == [*bounds]):
                raise LawError(f"{where}: parameter {name} of '{value.name}' must have least <= default <= most")
        try:
            found[value.name] = value()
        except Exception as error:  # code of others
            raise LawError(f"{where}: {value.__name__}() is broken: {type(error).__name__}: {error}") from None
    if not found:
        raise LawError(f"{where} defines no subclass of accesspoint.controller.law.Law")
    return found
