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
from dataclasses import dataclass, field
from pathlib import Path

from accesspoint.checks.bench.report import Step
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.requirements import ROOT, LabError

from .lab import SWITCH, TRAFFIC, VethBench, on, resident_bytes
from .program import STATION_PORT, UPLINK_PORT, write_frames

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

    compiled: the folder of its program, if it is programmable. Rates in packets/s, latencies in µs.
    """

    name: str
    command: list[str | Path]
    programmable: bool
    compiled: Path = ROOT / "p4src/compiled"
    peaks: dict[int, list[float]] = field(default_factory=dict)
    overload: list[float] = field(default_factory=list)
    offered: list[float] = field(default_factory=list)
    latency_p50: list[float] = field(default_factory=list)
    latency_p99: list[float] = field(default_factory=list)

    def peak(self, frame_bytes: int = 60) -> float:
        return statistics.median(self.peaks[frame_bytes])


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


def overload(where: VethBench, frames: Path, peak: float) -> tuple[float, float]:
    """Twice the peak: offered and carried, as parts of the peak. `peak`: that with the sender, packets/s.

    All of it is injected: measured against the peak with the sender, which is lower, the switch would look too good.
    Peak and overload in turn, and the median of the pairs: the best of several runs is more than another one can have.
    """
    at_peak, _ = find_peak(where, frames, peak, INJECTED_LOADS, INJECTOR)
    offered, carried = [], []
    for _ in range(PAIRS):
        peak = offer(where, frames, at_peak, LOAD_SECONDS, INJECTOR)[1]
        rates = offer(where, frames, OVERLOAD * peak, LOAD_SECONDS, INJECTOR)
        offered.append(rates[0] / peak)
        carried.append(rates[1] / peak)
    return statistics.median(offered), statistics.median(carried)


def measure(step: Step, beside: Path | None = None) -> list[Target]:
    """All targets, in turn within each round, so that a slow minute of the machine hits all of them. beside: another
    build of apswitch, as one more of them."""
    measured = targets(beside)
    with tempfile.TemporaryDirectory() as scratch, VethBench() as where:
        frames = {size: Path(scratch) / f"{size}.pcap" for size in FRAME_BYTES}
        for size, path in frames.items():
            write_frames(path, FLOWS, size)
        most = {size: offer(where, path, 0, LOAD_SECONDS)[0] for size, path in frames.items()}
        for round_number in range(ROUNDS):
            for target in measured:
                step(f"round {round_number + 1}/{ROUNDS}: {target.name}")
                with running(where, target, FLOWS):
                    best = {size: find_peak(where, path, most[size]) for size, path in frames.items()}
                    for size, (_, carried) in best.items():
                        target.peaks.setdefault(size, []).append(carried)
                    offered, left = overload(where, frames[60], best[60][1])
                    target.offered.append(offered)
                    target.overload.append(left)
                    p50, p99 = latency(where, frames[60])
                    target.latency_p50.append(p50)
                    target.latency_p99.append(p99)
                rates = ", ".join(f"{peaks[-1]:,.0f} packets/s of {size}" for size, peaks in target.peaks.items())
                step(f"round {round_number + 1}/{ROUNDS}: {target.name}: {rates} bytes, latency {p50:.0f} µs")
    return measured


def memory_bytes(flows: int, beside: Path | None = None) -> int:
    """Return the resident bytes of apswitch, or of what it is compared with, with that many flows installed."""
    target = target_beside(beside) if beside else Target("apswitch", p4_switch(SWITCH), programmable=True)
    with VethBench() as where, running(where, target, flows) as process:
        return resident_bytes(process.pid)
