# SPDX-License-Identifier: Apache-2.0
"""Is this lab fit to measure in? Timer lateness, CPU saturation, and the TCP that was really in use."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from experiments import window
from experiments.metrics import percentile

MAX_LATE_P99 = 5.0  # ms; a packet on the slowest link takes 12
MAX_CPU = 0.9  # of the machine
MAX_STEAL = 0.05  # of the machine, taken by other virtual machines
_TICKS = os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """CPU use since it was made: of the machine, and of some processes."""

    def __init__(self, processes: dict[str, int]) -> None:
        """processes: name -> process id."""
        self._processes = processes
        self._before = self._machine()
        self._own = {name: self._process(pid) for name, pid in processes.items()}
        self._started = os.times().elapsed

    @staticmethod
    def _machine() -> list[int]:
        # proc(5) /proc/stat: user nice system idle iowait irq softirq steal
        return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]

    @staticmethod
    def _process(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])  # utime, stime

    def read(self) -> dict[str, float]:
        """`cpu_busy` and `cpu_steal` (parts of the machine), `<name>_cpu` (cores)."""
        spent = [after - before for before, after in zip(self._before, self._machine(), strict=True)]
        total = max(1, sum(spent))
        elapsed = max(1e-3, os.times().elapsed - self._started)
        # Niced processes give way to the lab: what they take counts as idle.
        result = {"cpu_busy": 1 - (spent[1] + spent[3] + spent[4] + spent[7]) / total, "cpu_steal": spent[7] / total}
        for name, pid in self._processes.items():
            result[f"{name}_cpu"] = (self._process(pid) - self._own[name]) / _TICKS / elapsed
        return {name: round(value, 3) for name, value in result.items()}


def check(
    cpu: dict[str, float],
    late: Sequence[float],
    unanswered: int,
    tcp: dict[str, list[str]],
    cc: str,
    ecn: bool,
    radio_drops: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """The self-check of an arm, with `problems`: empty when fit.

    late: of the probe's timer (s). tcp: flow -> what ss said about its connection, some times.
    radio_drops: radio -> frames that it threw away.
    """
    late_p99 = percentile(late, 0.99) * 1e3 if late else None
    problems = []
    if late_p99 is None:
        problems.append("the probe got no answer")
    elif late_p99 > MAX_LATE_P99:
        problems.append(f"timers were late by {late_p99:.1f} ms (p99): the machine is too busy to measure delays")
    if cpu["cpu_busy"] > MAX_CPU:
        problems.append(
            f"the CPU was {cpu['cpu_busy']:.0%} busy: throughput may be the machine's limit, not the link's"
        )
    if cpu["cpu_steal"] > MAX_STEAL:
        problems.append(f"{cpu['cpu_steal']:.0%} of the CPU went to other virtual machines")
    used, negotiated, windows = {}, {}, {}
    for flow, texts in tcp.items():
        windows[flow] = window.judge(texts)
        problems += [found for found in [window.problem(flow, windows[flow])] if found]
        words = next((text.split() for text in reversed(texts) if text.strip()), [])
        used[flow] = cc if cc in words else next((word for word in words if word in _CONTROLS), None)
        negotiated[flow] = "ecn" in words
        if words and used[flow] != cc:
            problems.append(f"{flow} used congestion control {used[flow]}, not {cc}")
        if words and negotiated[flow] != ecn:
            problems.append(f"{flow} {'did not negotiate' if ecn else 'negotiated'} ECN")
    for name, drops in radio_drops.items():
        if drops:
            problems.append(f"the radio of {name} dropped {drops} frames: it carries less than the link's rate")
    return {
        **cpu,
        "timer_late_p99_ms": None if late_p99 is None else round(late_p99, 3),
        "probes_unanswered": unanswered,
        "congestion_control": used,
        "ecn": negotiated,
        "window": windows,
        "radio_drops": dict(radio_drops),
        "problems": problems,
    }


_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
