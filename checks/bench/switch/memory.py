# SPDX-License-Identifier: Apache-2.0
"""Memory of a switch whose table of flows is full."""

from __future__ import annotations

from pathlib import Path

from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw

from .lab import VethBench, resident_bytes
from .switching import running, targets

NAMES = ("memory_mb", "memory_mb_of_beside")
FLOWS = 65536


def measure(step: Step, beside: Path | None) -> Raw:
    """Return the resident bytes of apswitch with all flows, and of another build. Raises LabError."""
    resident: dict[str, int] = {}
    for target in targets(beside):
        if target.name in ("apswitch", "beside"):
            step(f"memory with {FLOWS} flows: {target.name}")
            with VethBench() as where, running(where, target, FLOWS) as process:
                resident[target.name] = resident_bytes(process.pid)
    return {"resident_bytes": resident}


def rows(raw: Raw) -> list[Row]:
    """Make rows of the resident bytes."""
    own, other = (raw["resident_bytes"].get(name) for name in ("apswitch", "beside"))
    text = f"resident memory of apswitch with {FLOWS} flows, MB"
    found = [Row("memory_mb", text, own / 1e6, 200, at_least=False)]
    if other:
        found.append(Row("memory_mb_of_beside", "that memory, times that of the other build", own / other))
    return found
