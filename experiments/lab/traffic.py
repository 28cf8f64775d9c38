# SPDX-License-Identifier: Apache-2.0
"""Starts iperf3 and the probe in a lab's hosts and turns what they print into samples."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from accesspoint.experiments.lab.probe import PER_SECOND
from accesspoint.experiments.measure.samples import INTERVAL, Sample
from accesspoint.topologies.requirements import ROOT, LabError

IPERF_PORT = 5201
PROBE_PORT = 8620
LISTEN_TIMEOUT = 5.0  # s
PATIENCE = 86_400_000  # ms without data, the most that iperf3 takes: a flow that gets nothing is a result
LATE = 8  # intervals in which the lines of all streams come
GRACE = 1.0  # s before the end in which a probe may be under way
_INTERVAL_LINE = re.compile(r"\[\s*\d+\]\s+([\d.]+)-([\d.]+)\s+sec\s+[\d.]+ \w+\s+([\d.]+) Kbits/sec\s*$")
_FAIR = ("chrt", "--other", "0")  # not real-time like who starts it: accesspoint.experiments.lab.stage.put_first
_ERROR = re.compile(r"iperf3: (?:parameter )?error - (.*)")


def parse_interval(line: str) -> tuple[float, float, float] | None:
    """Return (start s, end s, Mb/s) of an interval line of `iperf3 -f k`; None for any other line, totals too."""
    match = _INTERVAL_LINE.search(line)
    if not match:
        return None
    start, end, rate = float(match[1]), float(match[2]), float(match[3]) / 1e3
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


def _report(port: int) -> list[str]:
    return ["-p", str(port), "-i", str(INTERVAL), "-f", "k", "--forceflush"]


class Transfer:
    """A flow at work: iperf3 at both ends of each stream, sampled where its data arrives.

    sender, receiver: hosts; `address` is the sender's. quantity, source: of the samples, which go to `samples`.
    started: the arm's start, s since the epoch. port: of the first stream, the others have the next ones. each: single
    streams are sampled, too. options: more of the receiver's. stops: which end does in `end`; what a sender's socket
    has is still sent.

    The receiver connects (`-R`), and each stream has an iperf3 of its own. A client that sends spins from its
    connection on until the server's word to begin comes, and a server that sends until its last stream has come: in
    virtual time a process that spins keeps all others from the clock.
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
        self._receiver, self._address = receiver, address
        self._ports = range(port, port + streams)
        self._each = each
        self._options = options
        self._sampled = quantity, source
        self._samples = samples
        self._arm_started = started
        self._first = dict.fromkeys(self._ports, float("inf"))
        self._sums: dict[int, float] = {}
        """Rates of all streams in the intervals whose lines still come, by their numbers."""
        self._adds = threading.Lock()
        self._ended = False
        self.error = ""
        self._listening = threading.Semaphore(0)
        senders = [popen(sender, ["iperf3", "-s", "-1", *_report(port)]) for port in self._ports]
        for process in senders:
            Reader(process, self._note)
        self._stops = senders if stops == "sender" else []

    def await_listening(self) -> None:
        """Raises LabError when the servers do not come up."""
        for _ in self._ports:
            if not self._listening.acquire(timeout=LISTEN_TIMEOUT):
                raise LabError(f"iperf3 did not start at the sender: {self.error or 'no output'}")

    def begin(self, seconds: float) -> None:
        """Start to send; `end` stops it, after `seconds` at the latest."""
        receivers = []
        for port in self._ports:
            command = [*_FAIR, "iperf3", "-c", self._address, "-R", *_report(port), "-t", str(round(seconds) + 10)]
            receives = popen(self._receiver, [*command, "--rcv-timeout", str(PATIENCE), *self._options])
            Reader(receives, partial(self._take, port))
            receivers.append(receives)
        self._stops = self._stops or receivers

    def end(self) -> None:
        self._ended = True
        for process in self._stops:
            process.terminate()
        with self._adds:
            self._give(len(self._sums))

    def _take(self, port: int, line: str) -> None:
        interval = parse_interval(line)
        if not interval:
            self._note(line)
            return
        # iperf3 counts from its own start. A line comes after its interval, or later: the earliest decides.
        start, end, rate = interval
        self._first[port] = min(self._first[port], time.time() - end)
        middle = self._first[port] - self._arm_started + (start + end) / 2
        quantity, source = self._sampled
        if self._each:
            self._samples.append(Sample(middle, "stream_mbps", rate, end - start, f"{source}/{port - self._ports[0]}"))
        if len(self._ports) == 1:
            self._samples.append(Sample(middle, quantity, rate, end - start, source))
            return
        with self._adds:
            number = round(middle / INTERVAL)
            self._sums[number] = self._sums.get(number, 0.0) + rate * (end - start) / INTERVAL
            self._give(len(self._sums) - LATE)

    def _give(self, most: int) -> None:
        """Sample the first intervals, `most` of them."""
        quantity, source = self._sampled
        for number in sorted(self._sums)[: max(0, most)]:
            self._samples.append(Sample(number * INTERVAL, quantity, self._sums.pop(number), INTERVAL, source))

    def _note(self, line: str) -> None:
        if line.startswith("Server listening"):
            self._listening.release()
        elif (match := _ERROR.search(line)) and not self._ended:
            self.error = match[1]

    def require_alive(self) -> None:
        """Raises LabError when iperf3 reported an error."""
        if self.error:
            raise LabError(f"iperf3 ({self.name}) failed: {self.error}")

    def tcp_info(self) -> str:
        """Return what the sending kernel reports of the connection; with -o also what was negotiated."""
        first, last = self._ports[0], self._ports[-1]
        ports = (f"( {end} >= :{first} and {end} <= :{last} )" for end in ("sport", "dport"))
        return str(self.sender.run("ss", "-tionH", f"( {' or '.join(ports)} )"))


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
