# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.hosts [NAME ...]`: measure what the hosts' transports cost and reach, into
tables and out/bench/hosts.json.

Every NAME is a module of this package with `measure(step: Step) -> Raw` and `rows(raw: Raw) -> list[Row]`.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from accesspoint.checks.bench import summary
from accesspoint.checks.bench.report import Step, run, show
from accesspoint.topologies.requirements import ROOT, LabError


def names() -> list[str]:
    """The modules that measure something."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("__"))


def _stepper(progress: Progress, name: str) -> Step:
    task = progress.add_task(name)
    return lambda text: progress.update(task, description=f"{name}: {text}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.checks.bench.hosts", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("name", nargs="*", help=f"what to measure, all by default: {', '.join(names())}")
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench", help="folder for hosts.json")
    options = parser.parse_args()
    if unknown := set(options.name) - set(names()):
        raise LabError(f"nothing measures {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
    if os.geteuid() != 0:
        raise LabError("making network namespaces needs root; run as root")
    if not (ROOT / "target/release/hosts").exists():
        raise LabError("target/release/hosts is missing; build it with: make hosts")
    file: Path = options.out / "hosts.json"
    for name in options.name or names():
        begun = summary.begin(file)
        part: Any = summary.find("hosts", name)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, transient=True) as progress:
            raw = part.measure(_stepper(progress, name))
        show(f"hosts {name}", summary.keep(file, name, part, raw, begun))
        print(f"written: {file}")


if __name__ == "__main__":
    run(main)
