# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.switch`: measure, print each row as it comes, keep all of them in
out/bench/summary.json.

Every speed is a ratio to something measured in the same run on the same machine; the goals are next to it.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from accesspoint.checks.bench.report import Measured, Row, Step, merge, run, show, tell
from accesspoint.topologies.requirements import ROOT, LabError

from . import beside_writes, p4runtime, pipeline
from .lab import SWITCH, TRAFFIC
from .switching import FLOWS, Target, measure, memory_bytes

MANY_FLOWS = 65536


def switch_rows(measured: list[Target]) -> list[Row]:
    """Ratios of medians over the rounds."""
    by_name = {target.name: target for target in measured}
    forwarder, switch = by_name["forwarder"], by_name["apswitch"]
    latency = statistics.median(switch.latency_p50) / statistics.median(forwarder.latency_p50)
    overload = (
        f"of its peak that is left when offered {min(switch.offered):.2f} times as much "
        f"(worst round {min(switch.overload):.2f})"
    )
    rows = [
        Row(
            "switch_of_forwarder",
            f"packet rate of the bare forwarder that is left, 60 bytes, {FLOWS} flows",
            switch.peak() / forwarder.peak(),
            0.85,
        ),
        Row("switch_of_forwarder_1500", "the same with 1500 bytes", switch.peak(1500) / forwarder.peak(1500)),
        Row("overload_of_peak", overload, statistics.median(switch.overload), 0.95),
        Row("latency_of_forwarder", "median latency, times the bare forwarder's, idle", latency, 1.3, at_least=False),
    ]
    if bmv2 := by_name.get("bmv2"):
        rows.append(
            Row(
                "switch_of_bmv2",
                "times BMv2's best packet rate, same program and entries",
                switch.peak() / bmv2.peak(),
                10,
            )
        )
    if beside := by_name.get("beside"):
        text = "packet rate, times that of the other build"
        other = statistics.median(beside.latency_p50)
        rows += [
            Row("switch_of_beside", f"{text}, 60 bytes", switch.peak() / beside.peak()),
            Row("switch_of_beside_1500", f"{text}, 1500 bytes", switch.peak(1500) / beside.peak(1500)),
            Row("latency_of_beside", "median latency, times its", statistics.median(switch.latency_p50) / other),
        ]
    return rows


def raw(target: Target) -> dict[str, object]:
    return {
        "peak_pps": {str(size): values for size, values in target.peaks.items()},
        "offered_of_peak": target.offered,
        "overload_of_peak": target.overload,
        "latency_p50_us": target.latency_p50,
        "latency_p99_us": target.latency_p99,
    }


def show_rates(measured: list[Target]) -> None:
    rates = Table(title="Packet rates on veth (median of the rounds)")
    for heading in ("", "60 bytes, packets/s", "1500 bytes, packets/s", "latency p50, µs", "p99, µs"):
        rates.add_column(heading, justify="right" if heading else "left")
    for target in measured:
        peaks = (f"{target.peak(size):,.0f}" for size in target.peaks)
        latencies = (f"{statistics.median(times):.0f}" for times in (target.latency_p50, target.latency_p99))
        rates.add_row(target.name, *peaks, *latencies)
    Console().print(rates)


def switching(step: Step, beside: Path | None) -> Measured:
    """Packet rates, overload and latency."""
    measured = measure(step, beside)
    show_rates(measured)
    return Measured(switch_rows(measured), {target.name: raw(target) for target in measured})


def memory(step: Step, beside: Path | None) -> Measured:
    """Measure the memory of a switch whose table of flows is full."""
    step(f"memory with {MANY_FLOWS} flows")
    own = memory_bytes(MANY_FLOWS) / 1e6
    text = f"resident memory of apswitch with {MANY_FLOWS} flows, MB"
    rows = [Row("memory_mb", text, own, 200, at_least=False)]
    if beside:
        other = memory_bytes(MANY_FLOWS, beside) / 1e6
        rows.append(Row("memory_mb_of_beside", "that memory, times that of the other build", own / other))
    return Measured(rows)


def program_alone(step: Step, _beside: Path | None) -> Measured:
    """The program without ports."""
    step("the program without ports")
    return pipeline.measure()


@dataclass(frozen=True)
class Group:
    """Rows that are measured together. rows: their names; of another build there are more."""

    rows: tuple[str, ...]
    measure: Callable[[Step, Path | None], Measured]


GROUPS = {
    "switching": Group(
        ("switch_of_forwarder", "switch_of_forwarder_1500", "overload_of_peak", "latency_of_forwarder",
         "switch_of_bmv2", "switch_of_beside", "switch_of_beside_1500", "latency_of_beside"),
        switching,
    ),
    "memory": Group(("memory_mb", "memory_mb_of_beside"), memory),
    "pipeline": Group(("memory_mpps", "compiled_of_interpreter", "trace_watched", "load_ms"), program_alone),
    "p4runtime": Group(
        tuple(f"{row}{of}" for of in ("", "_of_beside")
              for row in ("inserts_per_s", "modify_200_ms", "read_1000_ms", "million_mb")),
        p4runtime.measure,
    ),
    "beside_writes": Group(
        ("loss_beside_writes", "throughput_beside_writes"), lambda step, _: beside_writes.measure(step)
    ),
}  # fmt: skip


def chosen(words: list[str]) -> dict[str, set[str]]:
    """The rows to be shown, by group: names and patterns of rows and of groups; all without any. Raises LabError."""
    patterns = [pattern.strip() for word in words for pattern in word.split(",")]
    found: dict[str, set[str]] = {}
    for pattern in patterns or ["*"]:
        matched = {
            name: {row for row in group.rows if fnmatch(row, pattern) or fnmatch(name, pattern)}
            for name, group in GROUPS.items()
        }
        if not any(matched.values()):
            known = "; ".join(f"{name}: {', '.join(group.rows)}" for name, group in GROUPS.items())
            raise LabError(f"there is no row or group {pattern}; there are {known}")
        for name, rows in matched.items():
            found.setdefault(name, set()).update(rows)
    return {name: found[name] for name in GROUPS if found[name]}


def measure_group(name: str, wanted: set[str], step: Step, beside: Path | None) -> Measured:
    """A group's rows, of those that are wanted; when it cannot be measured they say why."""
    try:
        measured = GROUPS[name].measure(step, beside)
    except LabError as error:
        of_peers = ("_of_beside", "_of_bmv2")
        missing = [row for row in GROUPS[name].rows if row in wanted and not any(of in row for of in of_peers)]
        return Measured([Row(row, f"not measured: {error}", None) for row in missing])
    return Measured([row for row in measured.rows if row.name in wanted], measured.raw)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench", help="folder for summary.json")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="rows or groups; repeated")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="FILE",
        help="another build of apswitch, or another checkout with another program, measured in turn with it",
    )
    options = parser.parse_args()
    groups = chosen(options.only)
    if os.geteuid() != 0:
        raise LabError("making network namespaces needs root; run as root")
    for binary in (SWITCH, TRAFFIC):
        if not binary.exists():
            raise LabError(f"{binary.relative_to(ROOT)} is missing; build it with: make switch")
    if options.beside and not os.access(options.beside, os.X_OK):
        raise LabError(f"--beside {options.beside}: this is neither a program nor a checkout")
    out: Path = options.out
    if not options.only:
        (out / "summary.json").unlink(missing_ok=True)
    about = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
    }
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

            for name, wanted in groups.items():
                measured = measure_group(name, wanted, step, options.beside.resolve() if options.beside else None)
                for row in measured.rows:
                    tell(row)
                rows += measured.rows
                merge(out, measured.rows, {name: measured.raw}, **about)
    finally:
        if rows:
            show("Results", rows)
            print(f"written: {out / 'summary.json'}", flush=True)


if __name__ == "__main__":
    run(main)
