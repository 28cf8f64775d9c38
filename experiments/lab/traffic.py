# SPDX-License-Identifier: Apache-2.0
"""Starts iperf3 and the probe in a lab's hosts and turns what they print into samples."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from accesspoint.experiments.lab.probe import PER_SECOND
from accesspoint.experiments.measure.samples import INTERVAL, Sample
from accesspoint.topologies.requirements import ROOT, LabError

IPERF_PORT = 5201
PROBE_PORT = 8620
LISTEN_TIMEOUT = 5.0  # s
PATIENCE = 86_400_000  # ms without data, the most that iperf3 takes: a flow that gets nothing is a result
GRACE = 1.0  # s before the end in which a probe may be under way
_INTERVAL_LINE = re.compile(r"\[\s*(\d+|SUM)\]\s+([\d.]+)-([\d.]+)\s+sec\s+[\d.]+ \w+\s+([\d.]+) Kbits/sec\s*$")
_FAIR = ("chrt", "--other", "0")  # not real-time like who starts it: accesspoint.experiments.lab.stage.put_first
_ERROR = re.compile(r"iperf3: (?:parameter )?error - (.*)")


def parse_interval(line: str, streams: int = 1) -> tuple[float, float, float] | None:
    """(start s, end s, Mb/s) of an interval line of `iperf3 -f k`; None for any other line, totals too."""
    interval = _interval(line)
    return interval[1:] if interval and (interval[0] == "SUM") == (streams > 1) else None


def _interval(line: str) -> tuple[str, float, float, float] | None:
    """Return (stream or SUM, start s, end s, Mb/s) of an interval line, of one stream or of all; None for any other
    line."""
    match = _INTERVAL_LINE.search(line)
    if not match:
        return None
    start, end, rate = float(match[2]), float(match[3]), float(match[4]) / 1e3
    return (match[1], start, end, rate) if end > start else None


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
    """A flow at work: iperf3 at both ends, sampled where its data arrives.

    sender, receiver: hosts; `address` is the sender's. quantity, source: of the samples, which go to `samples`.
    started: the arm's start, s since the epoch. each: single streams are sampled, too. options: more of the receiver's.
    stops: which end does in `end`; what a sender's socket has is still sent.

    The receiver connects (`-R`). A client that sends spins from its connection on until the server's word to begin
    comes, and that word may wait behind an upload: in virtual time each second of it takes minutes.
    """

    def __init__(
        self,
        sender: Any,
        receiver: Any,
        address: str,
        samples: list[Sample],
        started: float,
        *,
        quantity: str,
        source: str = "",
        port: int = IPERF_PORT,
        streams: int = 1,
        each: bool = False,
        options: Sequence[str] = (),
        stops: Literal["sender", "receiver"] = "receiver",
    ) -> None:
        self.name = source or quantity
        self.sender = sender
        self._receiver, self._address, self._port = receiver, address, port
        self._streams, self._each = streams, each
        self._options = options
        self._sampled = quantity, source
        self._samples = samples
        self._arm_started = started
        self._first = float("inf")
        self._stops: subprocess.Popen[str] | None = None
        self._ended = False
        self.error = ""
        self.listening = threading.Event()
        self._report = ["-p", str(port), "-i", str(INTERVAL), "-f", "k", "--forceflush"]
        sends = popen(sender, ["iperf3", "-s", "-1", *self._report])
        Reader(sends, self._note)
        if stops == "sender":
            self._stops = sends

    def await_listening(self) -> None:
        """Raises LabError when the server does not come up."""
        if not self.listening.wait(LISTEN_TIMEOUT):
            raise LabError(f"iperf3 did not start at the sender: {self.error or 'no output'}")

    def begin(self, seconds: float) -> None:
        """Start to send; `end` stops it, after `seconds` at the latest."""
        command = [*_FAIR, "iperf3", "-c", self._address, "-R", *self._report, "-t", str(round(seconds) + 10)]
        command += ["-P", str(self._streams), "--rcv-timeout", str(PATIENCE), *self._options]
        receives = popen(self._receiver, command)
        Reader(receives, self._take)
        self._stops = self._stops or receives

    def end(self) -> None:
        self._ended = True
        if self._stops:
            self._stops.terminate()

    def _take(self, line: str) -> None:
        interval = _interval(line)
        if not interval:
            self._note(line)
            return
        # iperf3 counts from its own start. A line comes after its interval, or later: the earliest decides.
        stream, start, end, rate = interval
        self._first = min(self._first, time.time() - end)
        middle = self._first - self._arm_started + (start + end) / 2
        quantity, source = self._sampled
        if (stream == "SUM") == (self._streams > 1):
            self._samples.append(Sample(middle, quantity, rate, end - start, source))
        if stream != "SUM" and self._each:
            self._samples.append(Sample(middle, "stream_mbps", rate, end - start, f"{source}/{stream}"))

    def _note(self, line: str) -> None:
        if line.startswith("Server listening"):
            self.listening.set()
        elif (match := _ERROR.search(line)) and not self._ended:
            self.error = match[1]

    def require_alive(self) -> None:
        """Raises LabError when iperf3 reported an error."""
        if self.error:
            raise LabError(f"iperf3 ({self.name}) failed: {self.error}")

    def tcp_info(self) -> str:
        """Return what the sending kernel reports of the connection; with -o also what was negotiated."""
        return str(self.sender.run("ss", "-tionH", f"( sport = :{self._port} or dport = :{self._port} )"))


class Probe:
    """A round-trip probe between two hosts."""

    def __init__(
        self,
        asker: Any,
        reflector: Any,
        address: str,
        samples: list[Sample],
        started: float,
        seconds: float,
        seed: int | None = None,
        source: str = "",
        port: int = PROBE_PORT,
    ) -> None:
        """asker, reflector: hosts; `address` is the reflector's. samples: where new ones go, of `source`. started: as
        a transfer's. seed: of the times at which it asks; None: others each time. port: one for each probe of a
        reflector."""
        self._samples = samples
        self._source = source
        self._started = started
        self.late: list[float] = []  # s
        self._answered: set[int] = set()
        self._due = round((seconds - GRACE) * PER_SECOND)
        module = [sys.executable, "-m", "accesspoint.experiments.lab.probe"]
        words = [address, str(port)]
        self._reflector = popen(reflector, [*module, "reflect", *words])
        self._process = popen(asker, [*module, "send", *words, str(seconds), *([] if seed is None else [str(seed)])])
        Reader(self._process, self._take)

    def _take(self, line: str) -> None:
        fields = line.split()
        if len(fields) != 6 or not fields[0].isdecimal():
            return  # not an answer
        sent, rtt, up, down, late = map(float, fields[1:])
        self._answered.add(int(fields[0]))
        self.late.append(late)
        for quantity, value in (("ping_ms", rtt), ("delay_up_ms", up), ("delay_down_ms", down)):
            self._samples.append(Sample(sent - self._started, quantity, value * 1e3, source=self._source))

    @property
    def unanswered(self) -> int:
        """Number of probes that were lost, or are late by over a second at the end."""
        return self._due - sum(sequence < self._due for sequence in self._answered)


def popen(host: Any, command: list[str]) -> "subprocess.Popen[str]":
    """Starts a command in a host, with its output readable line by line."""
    process: subprocess.Popen[str] = host.popen(
        *command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
        cwd=ROOT,
    )
    return process
