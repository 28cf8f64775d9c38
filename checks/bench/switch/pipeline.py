# SPDX-License-Identifier: Apache-2.0
"""Cost of the program without any port (`switch/benches`), in CPU time: other work on the machine counts little."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path

from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.topologies.requirements import ROOT, LabError

NAMES = ("memory_mpps", "compiled_of_interpreter", "trace_watched", "load_ms")
BATCH = 64  # packets of an iteration, but the reference's
BATCHES = ("1_flow", "1000_flows", "1000_flows_traced", "65536_flows")
REFERENCE = "1_flow_reference"


def nanoseconds(criterion: Path, name: str) -> list[float]:
    """Criterion's samples of a benchmark, ns an iteration."""
    sample = json.loads((criterion / name / "new/sample.json").read_text())
    return [time / times for time, times in zip(sample["times"], sample["iters"], strict=True)]


def measure(step: Step, _beside: Path | None) -> Raw:
    """Return samples of CPU time in ns, of a packet (compiled, and the reference's) and of loading. Raises LabError."""
    step("the program without ports")
    command = ["cargo", "run", "--release", "--quiet", "--package", "apswitch-benches", "--", "--bench", "--noplot"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise LabError(f"`{' '.join(command)}` failed: {(result.stderr.strip() or 'no message').splitlines()[-1]}")
    criterion = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "criterion"
    packets = {name: [time / BATCH for time in nanoseconds(criterion / "pipeline", name)] for name in BATCHES}
    packets[REFERENCE] = nanoseconds(criterion / "pipeline", REFERENCE)
    return {"packet_ns": packets, "load_ns": nanoseconds(criterion, "load")}


def rows(raw: Raw) -> list[Row]:
    """Make rows of medians."""
    packet = {name: statistics.median(times) for name, times in raw["packet_ns"].items()}
    rates = tuple(1e3 / time for time in raw["packet_ns"]["1000_flows"])
    loads = tuple(time / 1e6 for time in raw["load_ns"])
    traced = "that rate while a client traces one of the flows by two fields, of the rate without"
    return [
        Row(
            "memory_mpps",
            "million packets/s of one core without ports, 1000 flows",
            1e3 / packet["1000_flows"],
            3,
            rounds=rates,
        ),
        Row(
            "compiled_of_interpreter",
            "times the reference interpreter's rate, 1 flow",
            packet[REFERENCE] / packet["1_flow"],
            8,
        ),
        Row("trace_watched", traced, packet["1000_flows"] / packet["1000_flows_traced"], 0.5),
        Row("load_ms", "from the program's JSON to native code, ms", statistics.median(loads), rounds=loads),
    ]
