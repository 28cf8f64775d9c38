# SPDX-License-Identifier: Apache-2.0
"""Check that a lab is fit to measure in: timer lateness, CPU saturation, and the TCP that was really in use."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accesspoint.experiments.lab import window
from accesspoint.experiments.measure.samples import percentile
from accesspoint.topologies.kernels.kernel import REAL

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
        self._waited = {name: self._wait(pid) for name, pid in processes.items()}
        self._started = os.times().elapsed

    @staticmethod
    def _machine() -> list[int]:
        # proc(5) /proc/stat: user nice system idle iowait irq softirq steal
        return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]

    @staticmethod
    def _process(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])  # utime, stime

    @staticmethod
    def _wait(pid: int) -> float:
        """Return the time (s) that all threads of a process spent on a run queue (sched-stats.rst of the kernel's
        documentation)."""
        files = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[1]) for file in files) / 1e9

    def read(self) -> dict[str, float]:
        """`cpu_busy` and `cpu_steal` (parts of the machine), `<name>_cpu` (cores), `<name>_wait` (part of the time that
        it waited for a processor)."""
        spent = [after - before for before, after in zip(self._before, self._machine(), strict=True)]
        total = max(1, sum(spent))
        elapsed = max(1e-3, os.times().elapsed - self._started)
        # Niced processes give way to the lab: what they take counts as idle.
        result = {"cpu_busy": 1 - (spent[1] + spent[3] + spent[4] + spent[7]) / total, "cpu_steal": spent[7] / total}
        for name, pid in self._processes.items():
            result[f"{name}_cpu"] = (self._process(pid) - self._own[name]) / _TICKS / elapsed
            result[f"{name}_wait"] = (self._wait(pid) - self._waited[name]) / elapsed
        return {name: round(value, 3) for name, value in result.items()}


def check_machine(
    cpu: Mapping[str, float], late: Sequence[float], realtime: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Return figures of the whole machine, and its problems. late: of timers (s). realtime: the lab has real-time
    priority, so that the load of others does not matter."""
    late_p99 = percentile(late, 0.99) * 1e3 if late else None
    problems = []
    if late_p99 is None:
        problems.append("nothing says how late timers were")
    elif late_p99 > MAX_LATE_P99:
        problems.append(f"timers were late by {late_p99:.1f} ms (p99): the machine is too busy to measure delays")
    if cpu["cpu_busy"] > MAX_CPU and not realtime:
        problems.append(
            f"the CPU was {cpu['cpu_busy']:.0%} busy: throughput may be the machine's limit, not the link's"
        )
    if cpu["cpu_steal"] > MAX_STEAL:
        problems.append(f"{cpu['cpu_steal']:.0%} of the CPU went to other virtual machines")
    return {**cpu, "timer_late_p99_ms": None if late_p99 is None else round(late_p99, 3)}, problems


def held_back(clock: str, radios: bool) -> bool:
    """Return whether a machine or a radio can keep a flow from filling its window. In virtual time no machine does, and
    a wire has no radio: a window that is not full then tells of the law or of the losses that are studied."""
    return clock == REAL or radios


def check_flow(
    flow: str, texts: Sequence[str], cc: str, ecn: bool, limited: bool = True, held: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """Return the TCP that a flow really used, and its problems. texts: outputs of ss on it. limited: its congestion
    window should be what limits it. held: `held_back`."""
    judged = window.judge(texts)
    problem = window.problem(flow, judged, held) if limited else None
    problems = [problem] if problem else []
    words = _established(texts)
    used = cc if cc in words else next((word for word in words if word in _CONTROLS), None)
    if words and used != cc:
        problems.append(f"{flow} used congestion control {used}, not {cc}")
    if "ecn" in words and not ecn:
        problems.append(f"{flow} negotiated ECN")
    return {"window": judged, "congestion_control": used, "ecn": "ecn" in words}, problems


def check_ecn(flows: Iterable[Sequence[str]], ecn: bool) -> list[str]:
    """Return a problem if no flow of hosts with ECN negotiated it; one flow that loses its first packet to a queue
    retries without ECN (RFC 3168, section 6.1.1.1). flows: outputs of ss on each."""
    negotiated = ["ecn" in words for texts in flows if (words := _established(texts))]
    return ["no flow negotiated ECN"] if ecn and negotiated and not any(negotiated) else []


def _established(texts: Sequence[str]) -> list[str]:
    """Return the words of the last output on an established connection: before, nothing has been negotiated."""
    return next((text.split() for text in reversed(texts) if "ESTAB" in text), [])


class Drops:
    """Packets that hosts' interfaces and the switch's threw away since this was made: on wires that have no limit."""

    def __init__(self, lab: Any) -> None:
        self._files = {host.name: Path(f"/proc/{host.pid}/net/dev") for host in [*lab.stations, lab.server]}
        self._before = self._read()

    def _read(self) -> dict[str, int]:
        return {name: sum(map(_dropped, file.read_text().splitlines()[2:])) for name, file in self._files.items()}

    def since(self) -> dict[str, int]:
        """Host -> packets; only those that dropped some."""
        counts = {name: count - self._before[name] for name, count in self._read().items()}
        return {name: count for name, count in counts.items() if count}


def _dropped(line: str) -> int:
    # proc(5) /proc/net/dev: bytes packets errs drop fifo frame compressed multicast, received and then sent.
    fields = line.rpartition(":")[2].split()
    return int(fields[3]) + int(fields[11])


_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
