# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.switch`: measure, print each row as it comes, keep all of them in
out/bench/switch.json, with the samples that they follow from.

Every speed is a ratio to something measured in the same run on the same machine; the goals are next to it.
"""

from __future__ import annotations

import argparse
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from accesspoint.checks.bench import summary
from accesspoint.checks.bench.report import Row, Step, run, show, tell
from accesspoint.checks.bench.summary import Raw
from accesspoint.topologies.requirements import ROOT, LabError

from . import beside_writes, memory, p4runtime, pipeline, switching
from .lab import SWITCH, TRAFFIC

OF_PEERS = ("_of_beside", "_of_bmv2")  # in names of rows that only a run with these has


class Part(Protocol):
    """A module whose rows are measured together."""

    @property
    def NAMES(self) -> tuple[str, ...]:
        """Names of all rows; those of peers that are not there are missing in a run."""

    def measure(self, step: Step, beside: Path | None, /) -> Raw:
        """Return samples, round by round, also of another build of apswitch. Raises LabError."""

    def rows(self, raw: Raw) -> list[Row]:
        """Make rows of samples alone."""


PARTS: dict[str, Part] = {
    "switching": switching,
    "memory": memory,
    "pipeline": pipeline,
    "p4runtime": p4runtime,
    "beside_writes": beside_writes,
}


def chosen(words: list[str]) -> dict[str, set[str]]:
    """The rows to be shown, by part: names and patterns of rows and of parts; all without any. Raises LabError."""
    patterns = [pattern.strip() for word in words for pattern in word.split(",")]
    found: dict[str, set[str]] = {}
    for pattern in patterns or ["*"]:
        matched = {
            name: {row for row in part.NAMES if fnmatch(row, pattern) or fnmatch(name, pattern)}
            for name, part in PARTS.items()
        }
        if not any(matched.values()):
            known = "; ".join(f"{name}: {', '.join(part.NAMES)}" for name, part in PARTS.items())
            raise LabError(f"there is no row or group {pattern}; there are {known}")
        for name, rows in matched.items():
            found.setdefault(name, set()).update(rows)
    return {name: found[name] for name in PARTS if found[name]}


def measured(part: Part, step: Step, beside: Path | None) -> Raw:
    """Return a part's samples; where it cannot be measured, the reason."""
    try:
        return part.measure(step, beside)
    except LabError as error:
        names = [name for name in part.NAMES if not any(of in name for of in OF_PEERS)]
        return {summary.NOT_MEASURED: str(error), "rows": names}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench", help="folder for switch.json")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="rows or groups; repeated")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="FILE",
        help="another build of apswitch, or another checkout with another program, measured in turn with it",
    )
    options = parser.parse_args()
    parts = chosen(options.only)
    if os.geteuid() != 0:
        raise LabError("making network namespaces needs root; run as root")
    for binary in (SWITCH, TRAFFIC):
        if not binary.exists():
            raise LabError(f"{binary.relative_to(ROOT)} is missing; build it with: make switch")
    if options.beside and not os.access(options.beside, os.X_OK):
        raise LabError(f"--beside {options.beside}: this is neither a program nor a checkout")
    file: Path = options.out / "switch.json"
    beside: Path | None = options.beside and options.beside.resolve()
    if not options.only:
        file.unlink(missing_ok=True)
    rows: list[Row] = []
    console = Console()
    try:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("starting")

            def step(text: str) -> None:
                progress.update(task, description=text)
                if not console.is_terminal:
                    print(text, flush=True)

            for name, wanted in parts.items():
                begun = summary.begin(file, beside is not None)
                found = summary.keep(file, name, PARTS[name], measured(PARTS[name], step, beside), begun)
                rows += (own := [row for row in found if row.name in wanted])
                for row in own:
                    tell(row)
    finally:
        if rows:
            show("Results", rows)
            print(f"written: {file}", flush=True)


if __name__ == "__main__":
    run(main)
