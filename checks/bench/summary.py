# SPDX-License-Identifier: Apache-2.0
"""Summary of a component's benchmarks, out/bench/COMPONENT.json: the last measurement of each of its parts, by name.

commit   of the checkout; `-dirty` follows where files differed from it
started  UTC
machine  system, processor, cores, memory, kernel
load     load average of a minute, at the start and at the end
beside   another build was measured in turn
raw      samples, round by round; `not_measured`, the reason, and `rows`, their names, where there are none
rows     name, text, value, goal, at_least, rounds: all of it follows from `raw`
"""

import importlib
import importlib.util
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from accesspoint.checks.bench.report import Row
from accesspoint.experiments.runs import provenance
from accesspoint.experiments.runs.store import write
from accesspoint.topologies.requirements import LabError

Raw = Mapping[str, Any]
Record = dict[str, Any]
NOT_MEASURED = "not_measured"


class Checked(BaseModel):
    """A part of a file, with these fields and no others, each of its type."""

    model_config = ConfigDict(strict=True, extra="forbid")


class KeptMachine(Checked):
    """`machine` of a file."""

    system: str
    processor: str
    cores: int
    memory: str
    kernel: str


class KeptRow(Checked):
    """A row of a file: fields of `Row`."""

    name: str
    text: str
    value: float | None
    goal: float | None
    at_least: bool
    rounds: list[float]


class KeptRecord(Checked):
    """The measurement of a part in a file."""

    commit: str
    started: str
    machine: KeptMachine
    load: list[float] = Field(min_length=2, max_length=2)
    beside: bool
    raw: Record
    rows: list[KeptRow]


class Kept(RootModel[dict[str, KeptRecord]]):
    """A file: the measurements, by the names of their parts."""


class Part(Protocol):
    """A module of a component's benchmarks."""

    def rows(self, raw: Raw) -> list[Row]:
        """Make rows of samples alone."""


def find(component: str, name: str) -> Part:
    """Return a part by its name. Raises LabError."""
    module = f"accesspoint.checks.bench.{component}.{name}"
    if not name.isidentifier() or importlib.util.find_spec(module) is None:
        raise LabError(f"this checkout has no benchmark {module}")
    return importlib.import_module(module)


def rows(part: Part, raw: Raw) -> list[Row]:
    """Make a part's rows of its samples, in six significant digits."""
    if why := raw.get(NOT_MEASURED):
        return [Row(name, f"not measured: {why}", None) for name in raw["rows"]]
    return [
        replace(
            row,
            value=None if row.value is None else _rounded(row.value),
            rounds=tuple(map(_rounded, row.rounds)) if len(row.rounds) > 1 else (),
        )
        for row in part.rows(raw)
    ]


def as_json(found: list[Row]) -> list[dict[str, Any]]:
    """Return rows as a summary has them."""
    return [asdict(row) | {"rounds": list(row.rounds)} for row in found]


def begin(file: Path, beside: bool = False) -> Record:
    """Return the provenance of a measurement that begins, for `keep`. Raises LabError where the summary is damaged."""
    if file.exists():
        read(file)
    return {
        "commit": provenance.commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": provenance.machine() | {"kernel": platform.release()},
        "load": [os.getloadavg()[0]],
        "beside": beside,
    }


def keep(file: Path, name: str, part: Part, raw: Raw, begun: Record) -> list[Row]:
    """Put the samples of a part into the summary, in place of earlier ones, with their rows, which are returned."""
    own = json.loads(json.dumps(raw), parse_float=_rounded)
    record: Record = begun | {"load": [*begun["load"], os.getloadavg()[0]], "raw": own, "rows": []}
    file.parent.mkdir(parents=True, exist_ok=True)
    others = read(file) if file.exists() else {}
    # Samples of an hour are there also when no rows follow from them.
    store(file, others | {name: record})
    made = rows(part, own)
    store(file, others | {name: record | {"rows": as_json(made)}})
    return made


def store(file: Path, records: Mapping[str, Record]) -> None:
    """Write a summary: the file has all of it, or is as it was before."""
    write(file, json.dumps(records, indent=1) + "\n")


def read(file: Path) -> dict[str, Record]:
    """Read a summary. Raises LabError, which names the file."""
    try:
        return {name: one.model_dump() for name, one in Kept.model_validate_json(file.read_bytes()).root.items()}
    except ValidationError as error:
        first = error.errors()[0]
        why = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    except OSError as error:
        why = str(error)
    raise LabError(f"{file} is damaged: {why}; remove it and run `make bench` again")


def _rounded(value: float | str) -> float:
    return float(f"{float(value):.6g}")
