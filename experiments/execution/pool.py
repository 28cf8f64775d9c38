# SPDX-License-Identifier: Apache-2.0
"""Runs side by side, each in a process of its own (accesspoint.experiments.execution.worker)."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from accesspoint.experiments.runs.plan import PER_CORE, Needs, Order
from accesspoint.experiments.runs.store import Run, Store
from accesspoint.topologies.requirements import ROOT

PAUSE = 0.25  # s between two looks at the runs


@dataclass(frozen=True)
class Outcome:
    """Result of an order: a run, or the line that says why there is none."""

    order: Order
    run: Run | None = None
    error: str = ""


class Pool(Protocol):
    """Makes runs: on this machine, or on the workers of a cluster."""

    def places(self) -> int:
        """Return the largest number of runs of a load of 1 at a time."""

    def room(self, needs: Needs, running: Sequence[Needs]) -> bool:
        """Return whether a run may begin while the running ones last."""

    def start(self, order: Order, store: Store) -> None: ...

    def finished(self) -> Sequence[Outcome]:
        """Return the runs that ended since the last call; waits a little."""

    def running(self) -> dict[str, float]:
        """Order's key -> seconds since its start."""

    def stop(self) -> None:
        """Stop all running runs."""


class LocalPool:
    """Processes of this machine."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._running: dict[str, tuple[Order, Store, Path, subprocess.Popen[str], float]] = {}

    def places(self) -> int:
        return self._places

    def room(self, needs: Needs, running: Sequence[Needs]) -> bool:
        if not running:
            return True
        if self._places == 1 or (needs.solo and any(each.solo for each in running)):
            return False
        return needs.load + sum(each.load for each in running) <= self._places

    def start(self, order: Order, store: Store) -> None:
        part = store.part(order)
        self._running[order.key] = (order, store, part, spawn(order, part), time.monotonic())

    def finished(self) -> list[Outcome]:
        time.sleep(PAUSE)
        done = [entry for entry in self._running.values() if entry[3].poll() is not None]
        return [self._end(*entry[:4]) for entry in done]

    def _end(self, order: Order, store: Store, part: Path, process: "subprocess.Popen[str]") -> Outcome:
        del self._running[order.key]
        error = reason(process).replace(str(part), order.id)
        return Outcome(order, error=error) if error else Outcome(order, store.keep(order, part))

    def running(self) -> dict[str, float]:
        return {name: time.monotonic() - entry[4] for name, entry in self._running.items()}

    def stop(self) -> None:
        from accesspoint.topologies.namespaces.contain import stop_process

        for _, _, _, process, _ in self._running.values():
            process.terminate()
        for _, _, _, process, _ in self._running.values():
            stop_process(process)
        self._running.clear()


def spawn(order: Order, directory: Path) -> "subprocess.Popen[str]":
    """Starts a run. Its errors are one line in `reason`."""
    words = [
        sys.executable,
        "-m",
        "accesspoint.experiments.execution.worker",
        json.dumps(asdict(order)),
        str(directory),
    ]
    return subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def reason(process: "subprocess.Popen[str]") -> str:
    """Return why a run failed, in a line; an empty string when it succeeded."""
    assert process.stderr
    said = process.stderr.read().strip()
    if process.returncode == 0:
        return ""
    # ns-3 says what it ends for before it says that it ends.
    lines = [line for line in said.splitlines() if line.startswith("NS_ASSERT failed")] or said.splitlines()
    return lines[-1].removeprefix("error: ") if lines else f"its process ended with {process.returncode}"


def side_by_side(of: int | None = None) -> int:
    """Return how many runs of a load of 1 that many processors carry; None: this machine's."""
    return int(PER_CORE * (of or cores()))


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))
