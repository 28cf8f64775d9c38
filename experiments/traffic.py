# SPDX-License-Identifier: Apache-2.0
"""Starts iperf3 and the probe in a lab's hosts and turns what they print into samples."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments.experiment import Flow
from experiments.probe import PER_SECOND
from topologies.network import Lab
from topologies.requirements import ROOT, LabError

IPERF_PORT = 5201
PROBE_PORT = 8620
INTERVAL = 0.25  # s
GRACE = 1.0  # s before the end in which a probe may be under way
_INTERVAL_LINE = re.compile(r"\[\s*(\d+|SUM)\]\s+([\d.]+)-([\d.]+)\s+sec\s+[\d.]+ \w+\s+([\d.]+) Kbits/sec\s*$")
_ERROR = re.compile(r"iperf3: error - (.*)")


@dataclass(frozen=True)
class Sample:
    """One measurement. time: s since the arm's start, the middle of `span` (s; 0: a point)."""

    time: float
    quantity: str
    value: float
    span: float = 0.0


def parse_interval(line: str, streams: int = 1) -> tuple[float, float, float] | None:
    """(start s, end s, Mb/s) of an interval line of `iperf3 -f k`; None for any other line, totals too."""
    match = _INTERVAL_LINE.search(line)
    if not match or (match[1] == "SUM") != (streams > 1):
        return None
    start, end, rate = float(match[2]), float(match[3]), float(match[4]) / 1e3
    return (start, end, rate) if end > start else None


class Reader(threading.Thread):
    """Hands each line that a process prints to `take`."""

    def __init__(self, process: "subprocess.Popen[str]", take: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._process, self._take = process, take
        self.start()

    def run(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._take(line)


class Transfer:
    """A flow at work: iperf3 at both ends, sampled where its data arrives."""

    def __init__(self, lab: Lab, flow: Flow, index: int, samples: list[Sample], started: float) -> None:
        """samples: where new ones go. started: the arm's start, s since the epoch."""
        self.flow = flow
        self.port = IPERF_PORT + index
        self.sender = lab.server if flow.direction == "down" else lab.stations[flow.station - 1]
        self._lab = lab
        self._samples = samples
        self._arm_started = started
        self._first = float("inf")
        self._client: subprocess.Popen[str] | None = None
        self._ended = False
        self.error = ""
        self.listening = threading.Event()
        report = ["-p", str(self.port), "-i", str(INTERVAL), "-f", "k", "--forceflush"]
        self._report = report
        self._server = popen(lab.server, ["iperf3", "-s", "-1", *report])
        Reader(self._server, self._take if flow.direction == "up" else self._note)

    def begin(self, seconds: float) -> None:
        """Starts to send; `end` stops it, after `seconds` at the latest."""
        station = self._lab.stations[self.flow.station - 1]
        command = ["iperf3", "-c", self._lab.server.IP(), *self._report, "-t", str(round(seconds) + 10)]
        command += ["-P", str(self.flow.streams)] + (["-R"] if self.flow.direction == "down" else [])
        self._client = popen(station, command)
        Reader(self._client, self._take if self.flow.direction == "down" else self._note)

    def end(self) -> None:
        self._ended = True
        if self._client:
            self._client.terminate()

    def _take(self, line: str) -> None:
        interval = parse_interval(line, self.flow.streams)
        if not interval:
            self._note(line)
            return
        # iperf3 counts from its own start. A line comes when its interval is over, or later: the earliest tells.
        start, end, rate = interval
        self._first = min(self._first, time.time() - end)
        middle = self._first - self._arm_started + (start + end) / 2
        self._samples.append(Sample(middle, self.flow.quantity, rate, end - start))

    def _note(self, line: str) -> None:
        if line.startswith("Server listening"):
            self.listening.set()
        elif (match := _ERROR.search(line)) and not self._ended:
            self.error = match[1]

    def tcp_info(self) -> str:
        """What the sending kernel says about the connection; with -o also what was negotiated."""
        return self.sender.run("ss", "-tionH", f"( sport = :{self.port} or dport = :{self.port} )")


class Probe:
    """The round-trip probe between the first station and the server."""

    def __init__(self, lab: Lab, samples: list[Sample], started: float, seconds: float) -> None:
        self._samples = samples
        self._started = started
        self.late: list[float] = []  # s
        self._answered: set[int] = set()
        self._due = round((seconds - GRACE) * PER_SECOND)
        module = [sys.executable, "-m", "experiments.probe"]
        address = [lab.server.IP(), str(PROBE_PORT)]
        self._reflector = popen(lab.server, [*module, "reflect", *address])
        self._process = popen(lab.stations[0], [*module, "send", *address, str(seconds)])
        Reader(self._process, self._take)

    def _take(self, line: str) -> None:
        fields = line.split()
        if len(fields) != 6 or not fields[0].isdecimal():
            return  # not an answer
        sent, rtt, up, down, late = map(float, fields[1:])
        self._answered.add(int(fields[0]))
        self.late.append(late)
        for quantity, value in (("ping_ms", rtt), ("delay_up_ms", up), ("delay_down_ms", down)):
            self._samples.append(Sample(sent - self._started, quantity, value * 1e3))

    @property
    def unanswered(self) -> int:
        """How many probes were lost, or are late by over a second at the end."""
        return self._due - sum(sequence < self._due for sequence in self._answered)


def popen(host: Any, command: list[str]) -> "subprocess.Popen[str]":
    """Starts a command in a host, with its output readable line by line."""
    process: subprocess.Popen[str] = host.popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
        cwd=ROOT,
    )
    return process


def require_alive(transfers: list[Transfer]) -> None:
    """Raises LabError when iperf3 reported an error."""
    for transfer in transfers:
        if transfer.error:
            raise LabError(f"iperf3 ({transfer.flow.quantity}) failed: {transfer.error}")
