# SPDX-License-Identifier: Apache-2.0
"""One attack against one server: what it costs the server, and what another client and the packets notice.

Everything runs on one machine here, where it would not outside. So the attacker runs last and the other client and the
source of the packets first: what they wait for is the server.
"""

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accesspoint.checks.hostile.attack import Attack
from accesspoint.checks.hostile.bystander import PATIENCE
from accesspoint.checks.hostile.servers import SERVERS, START, Packets, Server
from accesspoint.topologies.requirements import ROOT, LabError

CALM = 2.0  # s before the attack, for what is compared with
SHORT = 2.0  # s of an attack in the tests
GRACE = 2.0  # s that an attack may take beyond its time
ENDED_ABOVE = 3 << 30  # bytes: no server may take the whole machine's memory
SAMPLE = 0.01  # s
UNANSWERED = 10_000.0  # ms: what a request counts that is refused or never answered
FIRST, LAST = ("nice", "-n", "-10"), ("nice", "-n", "15")


@dataclass
class Result:
    """Measurements during an attack. Times in ms; carried: as a part of the packets carried without it, None where
    there are none; refused: code, text, count."""

    attack: str
    server: str
    text: str
    peak_mb: float = 0.0
    calm_mb: float = 0.0
    other_p50: float = 0.0
    other_p99: float = 0.0
    calm_p99: float = 0.0
    requests: int = 0
    carried: float | None = None
    refused: list[tuple[str, str, int]] = field(default_factory=list)
    seconds: float = 0.0
    died: str = ""


def percentile(values: Sequence[float], part: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


class Memory:
    """The resident memory of some processes, looked at all the time, as a context manager."""

    def __init__(self, server: Server) -> None:
        self.peak = 0
        self.killed = False
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, resident(self._server.pids()))
            if self.peak > ENDED_ABOVE and not self.killed:
                self.killed = True
                self._server.kill()
            if self._ended.wait(SAMPLE):
                return


def resident(pids: list[int]) -> int:
    """Bytes in memory of all of them."""
    total = 0
    for pid in pids:
        with suppress(OSError, IndexError):  # it may end meanwhile
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return total


class Bystander:
    """Another client: one small request after the other, each timed. What it says is read here as it comes."""

    def __init__(self, server: Server) -> None:
        command = [
            *FIRST,
            sys.executable,
            "-m",
            "accesspoint.checks.hostile.bystander",
            server.bystander,
            server.address,
        ]
        self._process = subprocess.Popen(
            [*command, json.dumps(server.places)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        self._asked: list[tuple[float, float, str]] = []  # begun (s), took (ms), why there was no answer
        self._pace = 0.05
        self.ready = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "pace" in told:
                self._pace = told["pace"]
                self.ready.set()
            else:
                self._asked.append((told["begun"], told["ms"], told.get("failed", "")))

    def waits(self, begin: float, end: float) -> list[float]:
        """Return the latencies of the requests between two times, ms.

        A client that asks at regular times asks nothing while it waits: what it would have waited is counted as well
        (coordinated omission), also of a request that is still under way."""
        asked = [one for one in list(self._asked) if one[0] <= end]
        found = []
        last = begin
        for begun, took, failed in asked:
            last = max(last, begun + took / 1e3)
            if begun + took / 1e3 >= begin:
                found += self._spread(UNANSWERED if failed else took, begun, begin)
        if end - last > 2 * self._pace:
            found += self._spread((end - last) * 1e3, last, begin)
        return found

    def failures(self, begin: float, end: float) -> dict[str, int]:
        """Count the requests without an answer, by reason."""
        found: dict[str, int] = {}
        for begun, _, failed in list(self._asked):
            if failed and begin <= begun <= end:
                found[failed] = found.get(failed, 0) + 1
        return found

    def _spread(self, took: float, begun: float, begin: float) -> list[float]:
        step = self._pace * 1e3
        late = max(0.0, (begin - begun) * 1e3)  # of one that began in the calm only what lies in the attack
        values = [took - late]
        while values[-1] > step and len(values) < 10_000:
            values.append(values[-1] - step)
        return values

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()


def measure(attack: Attack, seed: int, directory: Path, short: bool = False) -> Result:
    """Run an attack and return its measurements. short: without the calm that figures are compared with."""
    result = Result(attack.name, attack.server, attack.text)
    seconds = min(attack.seconds, SHORT) if short else attack.seconds
    server = SERVERS[attack.server](directory, attack.options)
    bystander: Bystander | None = None
    try:
        server.start()
        bystander = Bystander(server)
        if not bystander.ready.wait(60):
            result.died = "the other client is not served before the attack"
            return result
        begin, sent = time.monotonic(), server.packets()
        time.sleep(0.3 if short else CALM)
        calm = server.packets() - sent
        result.calm_p99 = percentile(bystander.waits(begin, time.monotonic()), 0.99)
        result.calm_mb = resident(server.pids()) / 1e6
        with Memory(server) as memory:
            begun: list[tuple[float, Packets]] = []

            def begins(begun: list[tuple[float, Packets]] = begun) -> None:
                begun.append((time.monotonic(), server.packets()))

            # Where times are not judged, an attacker that never has its turn would be no attack.
            result.refused = strike(attack, seed, seconds, server, begins, () if short else LAST)
            end = time.monotonic()
            begin, sent = begun[0] if begun else (end, server.packets())
            result.died = recovered(server) if not memory.killed else ""
            settled = server.packets(settle=True) - sent
        result.seconds = end - begin
        if result.seconds < seconds / 4 and not result.died:
            text = f"ended after {result.seconds:.1f} of {seconds:g} s"
            result.refused.append(("attacker", text, 1))
        waits = bystander.waits(begin, end)
        result.requests = len(waits)
        result.other_p50, result.other_p99 = percentile(waits, 0.5), percentile(waits, 0.99)
        for why, count in bystander.failures(begin, end).items():
            result.refused.append(("other client", why, count))
        result.peak_mb = max(memory.peak, server.high_water()) / 1e6
        if attack.carries and calm.sent and settled.sent:
            result.carried = settled.part / max(calm.part, 1e-9)
        if memory.killed:
            result.died = f"ended from outside at {ENDED_ABOVE >> 30} GiB"
        return result
    except LabError as error:
        result.died = str(error)
        return result
    finally:
        if bystander:
            bystander.close()
        server.close()


def strike(
    attack: Attack, seed: int, seconds: float, server: Server, begins: Callable[[], None], turn: Sequence[str]
) -> list[tuple[str, str, int]]:
    """The attack, in a process of its own; what it was refused. begins: called when it begins. turn: put before its
    command, for whose turn it is."""
    told = {"address": server.address, "seconds": seconds, "seed": seed, "places": server.places}
    command = [*turn, sys.executable, "-m", "accesspoint.checks.hostile.attacker", attack.name, json.dumps(told)]
    with (server.directory / "attacker.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    last: list[Any] = []
    begun = threading.Event()

    def read() -> None:
        nonlocal last
        assert process.stdout is not None
        for line in process.stdout:
            begun.set()
            with suppress(ValueError):
                last = json.loads(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    if begun.wait(START):
        begins()
    deadline = time.monotonic() + seconds + GRACE
    while process.poll() is None and time.monotonic() < deadline and server.alive():
        time.sleep(0.02)
    failed = process.poll() not in (None, 0) or not begun.is_set()
    process.kill()
    process.wait()
    reader.join()
    found = [(code, text, count) for code, text, count in last]
    if failed:
        found.append(("attacker", f"ended with {process.returncode}: see attacker.log", 1))
    return found


def recovered(server: Server) -> str:
    """Return the reason why a new client is not served after the attack; empty when it is."""
    if server.alive() and (why := server.refuses()) and server.alive():
        return f"a new client is not served for {PATIENCE:g} s after the attack: {why}"
    return "" if server.alive() else f"the server ended: {server.ending()}"
