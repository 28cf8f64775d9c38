# SPDX-License-Identifier: Apache-2.0
"""Gain of the switch's I/O threads (`--io-threads`), as far as two cores can show it.

Sender and switch fill both cores already, so threads cannot make it faster here. With enough cores the busiest thread
would bound the rate: its CPU time per packet is measured instead.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from pathlib import Path

from accesspoint.checks.bench.report import Measured, Row, Step

from .lab import SWITCH, Lab
from .program import write_frames
from .switching import FLOWS, LOAD_SECONDS, ROUNDS, Target, find_peak, offer, p4_switch, running

THREADS = (0, 1, 2)
LOAD = 0.8  # of the smallest peak: all carry it, and none sleeps long
FRAME_BYTES = 60


def thread_times(pid: int) -> Counter[str]:
    """CPU time of each thread of a process so far, by its name, ns (/proc/PID/task/TID/schedstat)."""
    times: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        times[(task / "comm").read_text().strip()] += int((task / "schedstat").read_text().split()[0])
    return times


def measure(step: Step) -> Measured:
    """Peaks with and without threads, in turn, and the threads' CPU time per packet; only the sender is pinned."""
    targets = {n: Target(f"{n} threads", p4_switch(SWITCH, "--io-threads", str(n)), programmable=True) for n in THREADS}
    micros: dict[int, list[Counter[str]]] = {n: [] for n in THREADS}
    with tempfile.TemporaryDirectory() as scratch, Lab() as where:
        frames = Path(scratch) / "frames.pcap"
        write_frames(frames, FLOWS, FRAME_BYTES)
        most, _ = offer(where, frames, 0, LOAD_SECONDS)
        for number in range(ROUNDS):
            for n, target in targets.items():
                step(f"I/O threads, round {number + 1}/{ROUNDS}: peak with {n}")
                with running(where, target, FLOWS, core=None):
                    target.peaks.setdefault(FRAME_BYTES, []).append(find_peak(where, frames, most)[1])
        rate = LOAD * min(target.peak(FRAME_BYTES) for target in targets.values())
        for number in range(ROUNDS):
            for n, target in targets.items():
                step(f"I/O threads, round {number + 1}/{ROUNDS}: CPU time with {n}")
                with running(where, target, FLOWS, core=None) as process:
                    before, received = thread_times(process.pid), where.received()
                    offer(where, frames, rate, LOAD_SECONDS)
                    packets = where.received() - received
                    spent = thread_times(process.pid) - before
                    micros[n].append(Counter({name: ns / 1e3 / packets for name, ns in spent.items()}))
    peaks = {n: target.peak(FRAME_BYTES) for n, target in targets.items()}
    busiest = {n: statistics.median(max(run.values()) for run in runs) for n, runs in micros.items()}
    rows = [
        Row(
            "io_threads_of_none",
            "packet rate with --io-threads 1, of the one without; sender and switch on the same two cores",
            peaks[1] / peaks[0],
        ),
        *(
            Row(
                f"busiest_thread_us_{n}",
                f"CPU time per packet of the switch's busiest thread with --io-threads {n}, µs "
                f"({micros[n][0].most_common(1)[0][0]})",
                busiest[n],
            )
            for n in THREADS
        ),
        Row("busiest_thread_of_none", f"the same with {THREADS[-1]}, of the one without", busiest[2] / busiest[0]),
    ]
    raw = {
        "peak_pps": {str(n): target.peaks[FRAME_BYTES] for n, target in targets.items()},
        "thread_us": {str(n): [dict(run) for run in runs] for n, runs in micros.items()},
        "rate_pps": rate,
    }
    return Measured(rows, raw)
