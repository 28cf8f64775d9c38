# SPDX-License-Identifier: Apache-2.0
"""Cost of the CWND middleware with 100 connections that send through one congested uplink.

All of its work is done in its own system calls (the BPF program runs inside the daemon's read of the iterator, nothing
hangs on a hook), so the CPU time of daemon and guardian is everything. Compared with it, in the same rounds: reading
the same connections as text, as `ss` prints them, at the same pace.
"""

import resource
import statistics
import subprocess
import time
from pathlib import Path

from accesspoint.checks.bench.report import Row, Step, of_medians
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.cell import Cell, Terminal
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.processes import children
from accesspoint.topologies.requirements import LabError

CONNECTIONS = 100
SECONDS = 10.0
ROUNDS = 3
READING = 0.5  # s


def cpu(pid: int) -> float:
    """CPU time of a process with one thread and of its children that run, s: the first field of schedstat, ns."""
    own = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return own + sum(cpu(child) for child in children(pid))


def middleware(terminal: Terminal, *options: str) -> tuple[float, int]:
    """Part of a core that it takes, and how many connections it bounds at the end."""
    daemon = terminal.middleware(*options)
    time.sleep(2 * READING)
    start, before = time.monotonic(), cpu(daemon.pid)
    time.sleep(SECONDS)
    part = (cpu(daemon.pid) - before) / (time.monotonic() - start)
    connections = terminal.status()["connections"]
    daemon.terminate()
    daemon.wait()
    if len(connections) != CONNECTIONS:
        raise LabError(f"{len(connections)} of {CONNECTIONS} connections are left: the measurement says nothing")
    return part, sum(connection["bound"] is not None for connection in connections)


def text(terminal: Terminal) -> float:
    """Part of a core that `ss` takes, run as often as the middleware reads."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start, before = time.monotonic(), spent()
    for number in range(1, round(SECONDS / READING) + 1):
        command = ["nsenter", f"--net=/proc/{terminal.host.pid}/ns/net", "ss", "-tinH"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        time.sleep(max(0.0, start + number * READING - time.monotonic()))
    return (spent() - before) / (time.monotonic() - start)


def measure(step: Step) -> Raw:
    """Return parts of a core, of the middleware that bounds or only reads, and of text, and how many connections were
    bounded, round by round. Raises LabError."""
    controlled, bounded, observed, as_text = [], [], [], []
    step("making the cell")
    with Cell(1, rate="20mbit", limit=2000) as cell:
        terminal = cell.terminals[0]
        flow = terminal.connect("--count", str(CONNECTIONS)).go()
        if not eventually(lambda: statistics.median(flow.ratios()) > 6, 30):
            raise LabError("the uplink's buffer did not fill within 30 s: the machine is too busy")
        for number in range(1, ROUNDS + 1):
            step(f"round {number} of {ROUNDS}: reading and bounding")
            part, count = middleware(terminal, "--bandwidth", "20")
            controlled.append(part)
            bounded.append(count)
            step(f"round {number} of {ROUNDS}: only reading")
            observed.append(middleware(terminal, "--observe")[0])
            step(f"round {number} of {ROUNDS}: as text")
            as_text.append(text(terminal))
    return {"controlled": controlled, "bounded": bounded, "observed": observed, "text": as_text}


def rows(raw: Raw) -> list[Row]:
    """Make rows of medians."""
    found = []
    for name, key, text in (
        ("cwnd_percent", "controlled", f"of a core, {CONNECTIONS} connections bounded"),
        ("cwnd_observe_percent", "observed", "of a core, the same connections only read"),
    ):
        percent = tuple(100 * part for part in raw[key])
        found.append(Row(name, text, statistics.median(percent), 1, False, percent))
    text = "CPU of reading and bounding, part of reading as text by ss"
    bounded = tuple(raw["bounded"])
    return [
        *found,
        of_medians("cwnd_of_text", text, raw["controlled"], raw["text"]),
        Row(
            "cwnd_bounded",
            "connections bounded at the end of a round (median)",
            statistics.median(bounded),
            rounds=bounded,
        ),
    ]
