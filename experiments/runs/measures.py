# SPDX-License-Identifier: Apache-2.0
"""The measures of runs. They are computed at a run's end and kept beside its samples, so that a report over many runs
reads a row of each, and no samples. A measure whose definition has changed is computed again.

measures.json: measure -> {"value": number or null, "definition": checksum}
"""

import contextlib
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from accesspoint.experiments.experiment import Experiment, Measure
from accesspoint.experiments.measure import run_data, samples
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.runs.store import Run, write

FILE = "measures.json"
Row = dict[str, dict[str, Any]]
_BASE = b"".join(Path(module.__file__ or "").read_bytes() for module in (run_data, samples))


@functools.cache
def definition(measure: Measure) -> str:
    """A checksum of a measure's definition: its function, all that the function closes over and calls, and the raw
    data's own arithmetic. Another release of Python has another."""
    digest = hashlib.sha256(_BASE)
    for word in _words(measure.of, set()):
        digest.update(f"{word}\n".encode())
    return digest.hexdigest()[:16]


def _words(value: Any, seen: set[int]) -> Iterable[str]:
    if isinstance(value, FunctionType):
        if id(value) not in seen:
            seen.add(id(value))
            yield from _words(value.__code__, seen)
            yield from _words([value.__defaults__, value.__kwdefaults__], seen)
            yield from _words([cell.cell_contents for cell in value.__closure__ or ()], seen)
            names = sorted(set(_names(value.__code__)) & value.__globals__.keys())
            yield from _words([value.__globals__[name] for name in names], seen)
    elif isinstance(value, CodeType):
        yield value.co_code.hex()
        yield from _words([*value.co_names, *value.co_consts], seen)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _words(each, seen)
    elif isinstance(value, Mapping):
        yield from _words(list(value.items()), seen)
    elif isinstance(value, (set, frozenset)):
        yield from sorted(map(repr, value))
    elif isinstance(value, (type, ModuleType)):
        yield value.__name__
    else:
        yield repr(value)


def _names(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def take(measures: Sequence[Measure], of: Raw) -> Row:
    """The rows of a run."""
    found = {measure: measure.of(of) for measure in measures}
    return {
        measure.name: {
            "value": float(value) if value is not None and math.isfinite(value) else None,
            "definition": definition(measure),
        }
        for measure, value in found.items()
    }


def values(rows: Row) -> dict[str, float]:
    """Return the measures that have a value."""
    return {name: row["value"] for name, row in rows.items() if row["value"] is not None}


def keep(rows: Row, directory: Path) -> None:
    """Puts them into a run's folder."""
    write(directory / FILE, json.dumps(rows, indent=1) + "\n")


def of_run(experiment: Experiment, run: Run) -> dict[str, float]:
    """Return the measures of a run that have a value. Measures that are not kept are computed from its samples. Raises
    LabError when these cannot be read."""
    kept = _kept(run.directory / FILE)
    wanted = {measure.name: definition(measure) for measure in experiment.measures}
    rows = {name: row for name, row in kept.items() if row["definition"] == wanted.get(name)}
    if missing := [measure for measure in experiment.measures if measure.name not in rows]:
        rows |= take(missing, run.raw())
        with contextlib.suppress(OSError):  # another user's results: only time is lost
            keep(rows, run.directory)
    return values(rows)


def _kept(file: Path) -> Row:
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError):
        return {}
