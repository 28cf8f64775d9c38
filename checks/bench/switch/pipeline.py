# SPDX-License-Identifier: Apache-2.0
"""Cost of the program without any port (`switch/benches`), in CPU time: other work on the machine counts little."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from accesspoint.checks.bench.report import Measured, Row
from accesspoint.topologies.requirements import ROOT, LabError


def nanoseconds(criterion: Path, name: str) -> float:
    """Criterion's median for a benchmark, ns an iteration."""
    report = json.loads((criterion / name / "new/estimates.json").read_text())
    return float(report["median"]["point_estimate"])


def measure() -> Measured:
    """Rates of the compiled form, how many times the reference's it is, and the time that a program takes to load."""
    command = ["cargo", "run", "--release", "--quiet", "--package", "apswitch-benches", "--", "--bench", "--noplot"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise LabError(f"`{' '.join(command)}` failed: {(result.stderr.strip() or 'no message').splitlines()[-1]}")
    criterion = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "criterion"
    batch = 64
    names = ("1_flow", "1000_flows", "1000_flows_traced", "65536_flows")
    packet = {name: nanoseconds(criterion / "pipeline", name) / batch for name in names}
    reference = nanoseconds(criterion / "pipeline", "1_flow_reference")
    load = nanoseconds(criterion, "load") / 1e6
    rows = [
        Row("memory_mpps", "million packets/s of one core without ports, 1000 flows", 1e3 / packet["1000_flows"], 3),
        Row(
            "compiled_of_interpreter", "times the reference interpreter's rate, 1 flow", reference / packet["1_flow"], 8
        ),
        Row(
            "trace_watched",
            "that rate while a client traces one of the flows by two fields, of the rate without",
            packet["1000_flows"] / packet["1000_flows_traced"],
            0.5,
        ),
        Row("load_ms", "from the program's JSON to native code, ms", load),
    ]
    return Measured(rows, {"packet_ns": packet, "reference_packet_ns": reference, "load_ms": load})
