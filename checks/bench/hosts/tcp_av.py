# SPDX-License-Identifier: Apache-2.0
"""Throughput of tcp_av against its target, next to the kernel's cubic, with any buffer, with losses and marks, before
and after 10 s without a link; and the time until it gives way where the link cannot carry the target.

A cell is a link of 20 Mbit/s and 20 ms with the buffer of one of paper 004's access points (Table I). Its rate is that
of the bytes that the peer has acknowledged in `SPAN` s from `SETTLE` s after the start, or after the link is back.
Cells run `AT_ONCE` at a time.
"""

import concurrent.futures
import itertools
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.cc_lab import Transfer, kernel_name, loaded, mark
from accesspoint.checks.harness.hosts.cc_lab import rows as lines
from accesspoint.topologies.links.paths import Paths

TARGETS, RIVALS = (6, 10), (4, 9)  # Mbit/s; connections of PEER
BUFFERS = (37, 90, 135, 256, 284)  # packets (Ando, Murase and Oguchi, Table I)
LOSSES = (0.0, 0.005)
MARKS = 0.005  # where ECN is on
PEER = "cubic"
SHARED, NARROW = 20, 8  # Mbit/s
SETTLE, SPAN, OUTAGE = 3.0, 10.0, 10.0  # s; the outage of section IV.B
AT_ONCE = 4
GOAL, GIVES_WAY = 0.95, 2.0  # of the target; s
PATIENCE = 10.0  # s
READING, READINGS = 0.1, 20  # s that reading a socket may take to count; attempts, of which else the shortest counts


@dataclass(frozen=True)
class Cell:
    target: int
    rivals: int
    buffer: int
    loss: float
    ecn: bool

    @property
    def text(self) -> str:
        ecn = "ECN" if self.ecn else "no ECN"
        return f"{self.target} Mbit/s against {self.rivals}, {self.buffer} packets, {self.loss:.1%} lost, {ecn}"


CELLS = [Cell(*values) for values in itertools.product(TARGETS, RIVALS, BUFFERS, LOSSES, (False, True))]


def measure(step: Step) -> Raw:
    """Return Mbit/s of each cell before and after the outage, with a ceiling and by default, and the seconds until
    tcp_av gave way, null where it did not. Raises LabError."""
    found, default = rates_of_all(step, 1), rates_of_all(step, 0)
    narrow = [Cell(10, rivals, buffer, 0.0, ecn) for rivals in RIVALS for buffer in BUFFERS for ecn in (False, True)]
    with loaded("tcp_av", "target=10000", "ceiling=1"), concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        step(f"giving way on {NARROW} Mbit/s")
        waits = dict(zip(narrow, pool.map(gives_way, narrow), strict=True))
    return {
        "mbit_before_and_after": {cell.text: rates for cell, rates in found.items()},
        "mbit_by_default": {cell.text: rates for cell, rates in default.items()},
        "gives_way_s": {cell.text: wait if math.isfinite(wait) else None for cell, wait in waits.items()},
    }


def rows(raw: Raw) -> list[Row]:
    """Make rows of the worst cells, and of how many keep the goal."""
    cells = {cell.text: cell for cell in CELLS}
    parts = parts_of({cells[text]: rates for text, rates in raw["mbit_before_and_after"].items()})
    default = parts_of({cells[text]: rates for text, rates in raw["mbit_by_default"].items()})
    waits = {text: PATIENCE if wait is None else wait for text, wait in raw["gives_way_s"].items()}
    worst, default_worst, slowest = worst_of(parts), worst_of(default), max(waits, key=lambda text: waits[text])
    of_default = f"the same with the default ceiling, none: {default_worst.text}"
    most = max(map(max, parts.values()))
    slow = f"s from the start until it gives way on {NARROW} Mbit/s, the slowest: {slowest}"
    if raw["gives_way_s"][slowest] is None:
        slow += ", which did not, and was given up"
    return [
        Row(
            "tcp_av_worst_of_target", f"of its target, the worst of {len(parts)}: {worst.text}", min(parts[worst]), GOAL
        ),
        Row("tcp_av_cells_held", f"part of the {len(parts)} that keep {GOAL} of it, outage included", held(parts)),
        Row("tcp_av_default_worst_of_target", of_default, min(default[default_worst]), GOAL),
        Row("tcp_av_default_cells_held", f"part that keeps {GOAL} of it, with the default ceiling", held(default)),
        Row("tcp_av_most_of_target", "of its target, the most, with a ceiling", most, 1.05, at_least=False),
        Row("tcp_av_gives_way_s", slow, waits[slowest], GIVES_WAY, at_least=False),
    ]


Rates = dict[Cell, Sequence[float]]  # Mbit/s before and after the outage
Parts = dict[Cell, list[float]]  # the same, of the target


def rates_of_all(step: Step, ceiling: int) -> Rates:
    found: Rates = {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for target in TARGETS:
            with loaded("tcp_av", f"target={target * 1000}", f"ceiling={ceiling}"):
                cells = [cell for cell in CELLS if cell.target == target]
                for cell, rates in zip(cells, pool.map(rates_of, cells), strict=True):
                    found[cell] = rates
                    step(f"ceiling {ceiling}, {len(found)} of {len(CELLS)}: {cell.text}")
    return found


def parts_of(found: Rates) -> Parts:
    return {cell: [rate / cell.target for rate in rates] for cell, rates in found.items()}


def worst_of(parts: Parts) -> Cell:
    return min(parts, key=lambda cell: min(parts[cell]))


def held(parts: Parts) -> float:
    """Return the part of the cells that keep the goal before and after the outage."""
    return sum(min(part) >= GOAL for part in parts.values()) / len(parts)


class Running:
    """A cell's connections, all running, on a link of `rate` Mbit/s."""

    def __init__(self, paths: Paths, cell: Cell, rate: int, seconds: float) -> None:
        self.host = paths.host("a")
        loss: dict[str, Any] = {"loss": cell.loss} if cell.loss else {}
        link = paths.link(self.host, paths.host("b"), rate=f"{rate}mbit", limit=cell.buffer, delay="10ms", **loss)
        self.interface = link.a_if
        if cell.ecn:
            mark(link, MARKS)
        self.rivals = [Transfer(link, PEER, f"{seconds}s") for _ in range(cell.rivals)]
        time.sleep(1)
        self.ours = Transfer(link, kernel_name("tcp_av"), f"{seconds}s")

    def acknowledged(self) -> tuple[float, int]:
        """Read when, and how many bytes the peer of the tcp_av connection has acknowledged by then. On a machine with
        other work `ss` may take a second, of which it does not say when it has read."""
        shortest, read = float("inf"), (0.0, 0)
        for _ in range(READINGS):
            begin = time.monotonic()
            said = self.host.run("ss", "-tinHO", "state", "established")
            took = time.monotonic() - begin
            if took < shortest:
                lines = [line for line in said.splitlines() if f" {kernel_name('tcp_av')} " in line]
                found = re.search(r"bytes_acked:(\d+)", lines[0]) if lines else None
                shortest, read = took, (begin + took / 2, int(found[1]) if found else 0)
            if took < READING:
                break
        return read

    def rate(self) -> float:
        """Mbit/s over the next SPAN."""
        start, before = self.acknowledged()
        time.sleep(SPAN)
        end, after = self.acknowledged()
        return (after - before) * 8e-6 / (end - start)

    def abandon(self) -> None:
        for transfer in (self.ours, *self.rivals):
            transfer.abandon()


def rates_of(cell: Cell) -> tuple[float, float]:
    """Mbit/s of tcp_av before and after an outage."""
    with Paths() as paths:
        running = Running(paths, cell, SHARED, 2 * (SETTLE + SPAN) + OUTAGE + 10)
        time.sleep(SETTLE)
        before = running.rate()
        running.host.run("tc", "qdisc", "add", "dev", running.interface, "root", "blackhole")
        time.sleep(OUTAGE)
        running.host.run("tc", "qdisc", "del", "dev", running.interface, "root")
        time.sleep(SETTLE)
        after = running.rate()
        running.abandon()
    return before, after


def gives_way(cell: Cell) -> float:
    """Seconds from its start until tcp_av has given way; infinite: it has not within PATIENCE."""
    with Paths() as paths:
        running = Running(paths, cell, NARROW, PATIENCE + 5)
        started = time.monotonic()
        waited = float("inf")
        while time.monotonic() < started + PATIENCE:
            found = [row for row in lines("status", host=running.host) if row["tcp_state"] == "established"]
            if found and found[0]["detail"]["gave_way"]:
                waited = time.monotonic() - started
                break
            time.sleep(0.05)
        running.abandon()
    return waited
