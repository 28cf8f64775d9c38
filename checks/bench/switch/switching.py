# SPDX-License-Identifier: Apache-2.0
"""Packet rate, overload, latency and memory of a switch on veth, compared with a bare forwarder on the same veths."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from accesspoint.checks.bench.report import Row, Step, of_medians
from accesspoint.checks.bench.summary import Raw
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.requirements import ROOT, LabError

from .lab import SWITCH, TRAFFIC, VethBench, on
from .program import STATION_PORT, UPLINK_PORT, write_frames

NAMES = (
    "switch_of_forwarder", "switch_of_forwarder_1500", "overload_of_peak", "latency_of_forwarder", "switch_of_bmv2",
    "switch_of_beside", "switch_of_beside_1500", "latency_of_beside",
)  # fmt: skip
FLOWS = 1000
FRAME_BYTES = (60, 1500)
ADDRESS = "127.0.0.1:9559"
SENDER_CORE, SWITCH_CORE = 0, 1
LOAD_SECONDS = 1.0
ROUNDS, PAIRS = 3, 3
SENDER = (TRAFFIC, "send", "gen")
NICENESS = ("nice", "-n", "-10")  # that of apswitch's packet thread
INJECTOR = (
    sys.executable,
    "-m",
    "accesspoint.checks.bench.switch.inject",
    "left",
)  # offers twice the peak, which the sender cannot
# Offered loads of the search for the peak, as parts of what the sender can offer; with the injector, as parts of the
# peak with the sender, which is lower.
LOADS = (0.3, 0.45, 0.6, 0.8, 1.0)
INJECTED_LOADS = (0.85, 1.0, 1.2, 1.45, 1.75, 2.1)
OVERLOAD = 2.0  # times the peak


@dataclass
class Target:
    """Something that carries packets from `left` to `right`.

    compiled: the folder of its program, if it is programmable.
    """

    name: str
    command: list[str | Path]
    programmable: bool
    compiled: Path = ROOT / "p4src/compiled"


def p4_switch(binary: str | Path, *options: str) -> list[str | Path]:
    """Return the command line of a switch: both take the arguments of simple_switch_grpc. The lab's loopback is its
    own, so the port is free."""
    ports = ["-i", f"{STATION_PORT}@left", "-i", f"{UPLINK_PORT}@right"]
    return [binary, "--device-id", "1", *ports, *options, "--no-p4", "--", "--grpc-server-addr", ADDRESS]


def target_beside(beside: Path) -> Target:
    """Return another build of apswitch, or another checkout with its program and, if it is built, its apswitch."""
    if not beside.is_dir():
        return Target("beside", p4_switch(beside), programmable=True)
    built = beside / SWITCH.relative_to(ROOT)
    binary = built if built.exists() else SWITCH
    return Target("beside", p4_switch(binary), programmable=True, compiled=beside.resolve() / "p4src/compiled")


def targets(beside: Path | None = None) -> list[Target]:
    """Return the bare forwarder, apswitch, what it is compared with, and BMv2 where it is on PATH."""
    found = [
        Target("forwarder", [*NICENESS, TRAFFIC, "forward", "left", "right"], programmable=False),
        Target("apswitch", p4_switch(SWITCH), programmable=True),
    ]
    if beside:
        found.append(target_beside(beside))
    if bmv2 := shutil.which("simple_switch_grpc"):
        found.append(Target("bmv2", [*NICENESS, *p4_switch(bmv2)], programmable=True))
    return found


def offer(
    where: VethBench, frames: Path, rate: float, seconds: float, source: Sequence[str | Path] = SENDER
) -> tuple[float, float]:
    """(offered, carried) packets/s; rate 0 offers as much as the source can."""
    before = where.received()
    options = (frames, "--rate", str(int(rate)), "--seconds", str(seconds))
    report = json.loads(where.run(*on(SENDER_CORE), *source, *options))
    time.sleep(0.2)
    return report["packets"] / report["seconds"], (where.received() - before) / report["seconds"]


def latency(where: VethBench, frames: Path) -> tuple[float, float]:
    """(p50, p99) µs from `gen` to `sink`, one packet at a time."""
    prober = where.start(TRAFFIC, "latency", "gen", "sink", frames, "--count", "5000", core=SENDER_CORE)
    output, _ = prober.communicate(timeout=60)
    if prober.returncode:
        raise LabError(f"{TRAFFIC.name} latency failed with exit code {prober.returncode}")
    report = json.loads(output)
    return report["p50_us"], report["p99_us"]


@contextlib.contextmanager
def running(
    where: VethBench, target: Target, flows: int, core: int | None = SWITCH_CORE
) -> Iterator[subprocess.Popen[bytes]]:
    """The target, started, with its program and flows installed."""
    process = where.start(*target.command, core=core)
    try:
        if target.programmable:
            where.run(
                sys.executable, "-m", "accesspoint.checks.bench.switch.program", ADDRESS, str(flows), target.compiled
            )
        else:
            time.sleep(0.5)
        if process.poll() is not None:
            raise LabError(f"{target.name} ended at once with exit code {process.returncode}")
        yield process
    finally:
        stop_process(process)


def find_peak(
    where: VethBench,
    frames: Path,
    full: float,
    loads: Sequence[float] = LOADS,
    source: Sequence[str | Path] = SENDER,
) -> tuple[float, float]:
    """(offered, carried) packets/s where it carries most, of these parts of `full` packets/s."""
    offers = (offer(where, frames, full * load, LOAD_SECONDS, source) for load in loads)
    return max(offers, key=lambda rates: rates[1])


def overload(where: VethBench, frames: Path, peak: float) -> list[tuple[float, float, float]]:
    """(peak, offered, carried) packets/s with twice the peak offered, of each pair. `peak`: that with the sender.

    All of it is injected: measured against the peak with the sender, which is lower, the switch would look too good.
    Peak and overload in turn, and the median of the pairs: the best of several runs is more than another one can have.
    """
    at_peak, _ = find_peak(where, frames, peak, INJECTED_LOADS, INJECTOR)
    pairs = []
    for _ in range(PAIRS):
        peak = offer(where, frames, at_peak, LOAD_SECONDS, INJECTOR)[1]
        pairs.append((peak, *offer(where, frames, OVERLOAD * peak, LOAD_SECONDS, INJECTOR)))
    return pairs


def measure(step: Step, beside: Path | None) -> Raw:
    """All targets, in turn within each round, so that a slow minute of the machine hits all of them. beside: another
    build of apswitch, as one more of them. Return of each target, round by round, peaks by octets of a frame,
    packets/s, pairs of `overload`, and latencies, µs. Raises LabError."""
    measured = targets(beside)
    raw: dict[str, dict[str, Any]] = {
        target.name: {
            "peak_pps": {str(size): [] for size in FRAME_BYTES},
            "overload_pps": [],
            "latency_p50_us": [],
            "latency_p99_us": [],
        }
        for target in measured
    }
    with tempfile.TemporaryDirectory() as scratch, VethBench() as where:
        frames = {size: Path(scratch) / f"{size}.pcap" for size in FRAME_BYTES}
        for size, path in frames.items():
            write_frames(path, FLOWS, size)
        most = {size: offer(where, path, 0, LOAD_SECONDS)[0] for size, path in frames.items()}
        for round_number in range(ROUNDS):
            for target in measured:
                own = raw[target.name]
                step(f"round {round_number + 1}/{ROUNDS}: {target.name}")
                with running(where, target, FLOWS):
                    best = {size: find_peak(where, path, most[size]) for size, path in frames.items()}
                    for size, (_, carried) in best.items():
                        own["peak_pps"][str(size)].append(carried)
                    own["overload_pps"].append(overload(where, frames[60], best[60][1]))
                    p50, p99 = latency(where, frames[60])
                    own["latency_p50_us"].append(p50)
                    own["latency_p99_us"].append(p99)
                peaks = ", ".join(f"{values[-1]:,.0f} packets/s of {size}" for size, values in own["peak_pps"].items())
                step(f"round {round_number + 1}/{ROUNDS}: {target.name}: {peaks} bytes, latency {p50:.0f} µs")
    show_rates(raw)
    return raw


def overview(raw: Raw) -> list[tuple[str, ...]]:
    """Return a table of the targets, heading first: median packet rates and latencies."""
    table: list[tuple[str, ...]] = [("", "60 bytes, packets/s", "1500 bytes, packets/s", "latency p50, µs", "p99, µs")]
    for name, own in raw.items():
        peaks = (f"{statistics.median(values):,.0f}" for values in own["peak_pps"].values())
        latencies = (f"{statistics.median(own[f'latency_{part}_us']):.0f}" for part in ("p50", "p99"))
        table.append((name, *peaks, *latencies))
    return table


def show_rates(raw: Raw) -> None:
    """Print the table of the targets."""
    headings, *lines = overview(raw)
    table = Table(title="Packet rates on veth (median of the rounds)")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    for line in lines:
        table.add_row(*line)
    Console().print(table)


def rows(raw: Raw) -> list[Row]:
    """Make rows: quotients of medians over the rounds."""
    pairs = [
        [(offered / peak, carried / peak) for peak, offered, carried in of] for of in raw["apswitch"]["overload_pps"]
    ]
    offered, left = ([statistics.median(pair[place] for pair in of) for of in pairs] for place in (0, 1))
    overloaded = f"of its peak that is left when offered {min(offered):.2f} times as much (worst round {min(left):.2f})"

    def peaks(target: str, size: int = 60) -> list[float]:
        return list(raw[target]["peak_pps"][str(size)])

    def latencies(target: str) -> list[float]:
        return list(raw[target]["latency_p50_us"])

    idle = "median latency, times the bare forwarder's, idle"
    found = [
        of_medians(
            "switch_of_forwarder",
            f"packet rate of the bare forwarder that is left, 60 bytes, {FLOWS} flows",
            peaks("apswitch"),
            peaks("forwarder"),
            0.85,
        ),
        of_medians(
            "switch_of_forwarder_1500", "the same with 1500 bytes", peaks("apswitch", 1500), peaks("forwarder", 1500)
        ),
        Row("overload_of_peak", overloaded, statistics.median(left), 0.95, rounds=tuple(left)),
        of_medians("latency_of_forwarder", idle, latencies("apswitch"), latencies("forwarder"), 1.3, at_least=False),
    ]
    if "bmv2" in raw:
        text = "times BMv2's best packet rate, same program and entries"
        found.append(of_medians("switch_of_bmv2", text, peaks("apswitch"), peaks("bmv2"), 10))
    if "beside" in raw:
        text = "packet rate, times that of the other build"
        found += [
            of_medians("switch_of_beside", f"{text}, 60 bytes", peaks("apswitch"), peaks("beside")),
            of_medians("switch_of_beside_1500", f"{text}, 1500 bytes", peaks("apswitch", 1500), peaks("beside", 1500)),
            of_medians("latency_of_beside", "median latency, times its", latencies("apswitch"), latencies("beside")),
        ]
    return found
