# SPDX-License-Identifier: Apache-2.0
"""`python -m bench`: measure, print the table, write out/bench/summary.json.

Every speed is a ratio to something measured in the same run on the same machine; the goals stand beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from topologies.requirements import ROOT, LabError

from . import beside_writes, io_threads, p4runtime, pipeline
from .lab import SWITCH, TRAFFIC
from .report import Row, run, show
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench", help="folder for summary.json")
    out: Path = parser.parse_args().out
    if os.geteuid() != 0:
        raise LabError("making network namespaces needs root; run as root")
    for binary in (SWITCH, TRAFFIC):
        if not binary.exists():
            raise LabError(f"{binary.relative_to(ROOT)} is missing; build it with: make switch")
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), transient=True) as progress:
        task = progress.add_task("starting")

        def step(text: str) -> None:
            progress.update(task, description=text)

        measured = measure(step)
        rows = switch_rows(measured)
        step(f"memory with {MANY_FLOWS} flows")
        memory = memory_bytes(MANY_FLOWS) / 1e6
        rows.append(
            Row("memory_mb", f"resident memory of apswitch with {MANY_FLOWS} flows, MB", memory, 200, at_least=False)
        )
        threads = io_threads.measure(step)
        rows += threads.rows
        step("the program without ports")
        compiled = pipeline.measure()
        rows += compiled.rows
        control = p4runtime.measure(step)
        rows += control.rows
        beside = beside_writes.measure(step)
        rows += beside.rows
    show_rates(measured)
    show("Results", rows)
    out.mkdir(parents=True, exist_ok=True)
    summary = {
        "started": started,
        "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
        "ratios": {row.name: row.value for row in rows},
        "goals": {row.name: {"goal": row.goal, "met": row.met} for row in rows if row.goal is not None},
        "raw": {target.name: raw(target) for target in measured}
        | {"io_threads": threads.raw, "pipeline": compiled.raw, "p4runtime": control.raw, "beside_writes": beside.raw},
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"written: {(out / 'summary.json')}")


if __name__ == "__main__":
    run(main)
