# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.hosts [NAME ...]`: measure what the hosts' transports cost and reach, into
tables and out/bench/.

Every NAME is a module of this package with `measure(step: Step) -> Measured`.
"""

import argparse
import importlib
import json
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from accesspoint.checks.bench.report import Measured, Step, merge, run, show
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
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench", help="folder for hosts-NAME.json")
    options = parser.parse_args()
    if unknown := set(options.name) - set(names()):
        raise LabError(f"nothing measures {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
    if os.geteuid() != 0:
        raise LabError("making network namespaces needs root; run as root")
    if not (ROOT / "target/release/hosts").exists():
        raise LabError("target/release/hosts is missing; build it with: make hosts")
    for name in options.name or names():
        started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, transient=True) as progress:
            measured: Measured = importlib.import_module(f"accesspoint.checks.bench.hosts.{name}").measure(
                _stepper(progress, name)
            )
        show(f"hosts {name}", measured.rows)
        summary = {
            "started": started,
            "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
            "rows": [asdict(row) | {"met": row.met} for row in measured.rows],
            "raw": measured.raw,
        }
        options.out.mkdir(parents=True, exist_ok=True)
        written = options.out / f"hosts-{name}.json"
        written.write_text(json.dumps(summary, indent=2) + "\n")
        merge(options.out, measured.rows)
        print(f"written: {written}, and its rows into {options.out / 'summary.json'}")


if __name__ == "__main__":
    run(main)
