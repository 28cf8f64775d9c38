# SPDX-License-Identifier: Apache-2.0
"""Sealed proxies over two links of a kind that people have, compared with kernel MPTCP on links like them; and what one
link's faults leave of what the other one carries alone.

An upload counts from its first SYN to the receiver's word that all is there. The bytes of a fault are those that reach
the server from 2 s after the fault on; a connection that breaks fails the measurement.
"""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accesspoint.checks.bench.hosts.batcp import IPPROTO_MPTCP, stream
from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.batcp import Daemon
from accesspoint.checks.harness.hosts.proxies import KEY, SINK, WRITER, Scene
from accesspoint.topologies.links.paths import PathLink, Paths
from accesspoint.topologies.requirements import LabError

ROUNDS = 3
SECONDS = 8.0  # of an upload, about
SETTLED, OBSERVED = 2.0, 4.0  # s after a fault, and for how long
MBIT = 20
Model = dict[str, Any]


def link(mbit: int, delay: int, **more: Any) -> Model:
    return {"rate": f"{mbit}mbit", "delay": f"{delay}ms", "limit": 200, **more}


@dataclass(frozen=True)
class Pair:
    """Two links; `mbit` that both carry, and the goal of the ratio to MPTCP."""

    name: str
    text: str
    models: tuple[Model, Model]
    mbit: int
    goal: float


PAIRS = (
    Pair("batcp_even", "20 + 20 Mbit/s, 10 and 30 ms", (link(20, 5), link(20, 15)), 40, 1.0),
    Pair("batcp_lossy", "the first with 5 % of loss", (link(20, 5, loss=0.05), link(20, 15)), 30, 1.0),
    Pair("batcp_apart", "50 + 1 Mbit/s, 10 and 40 ms", (link(50, 5), link(1, 20)), 40, 2.5),
    Pair("batcp_far", "10 + 10 Mbit/s, 600 ms", (link(10, 300, limit=1000), link(10, 300, limit=1000)), 15, 0.9),
)


def shorter_mtu(first: PathLink) -> None:
    """Drop longer packets than 1300 octets without a word, both ways."""
    assert first._namespace
    for port in ("port1", "port2"):
        first._namespace.ip("link", "set", port, "mtu", "1300")


def other_address(first: PathLink) -> None:
    first.a.ip("address", "flush", "dev", first.a_if)
    first.a.ip("address", "add", f"{first.a_ip.rpartition('.')[0]}.9/24", "dev", first.a_if)


def gone_and_back(first: PathLink) -> None:
    first.blackhole()
    threading.Timer(SETTLED, first.restore).start()


GOOD = link(MBIT, 10)
# Name, what happens, the first link, what is done to it after a second, and whether its subflows may die of it.
FAULTS: tuple[tuple[str, str, Model, Callable[[PathLink], None] | None, bool], ...] = (
    ("mtu", "its MTU falls to 1300, longer packets vanish", GOOD, shorter_mtu, True),
    ("queue", "it has 0.7 s of queue at 5 Mbit/s", link(5, 10, limit=300), None, False),
    ("loss_1", "it loses 1 %", link(MBIT, 10, loss=0.01), None, False),
    ("loss_10", "it loses 10 %", link(MBIT, 10, loss=0.1), None, False),
    ("gone", "it is a black hole for 2 s", GOOD, gone_and_back, True),
    ("address", "its address changes", GOOD, other_address, True),
)


def scene(paths: Paths, folder: Path, models: tuple[Model, ...]) -> Scene:
    a, b, c = (paths.host(name) for name in "abc")
    links = [paths.link(a, b, **model) for model in models]
    key = folder / "key"
    key.touch(0o600)
    key.write_text(KEY + "\n")
    return Scene(paths, a, b, c, links, paths.wire(b, c), folder)


def began(running: Scene, octets: int) -> tuple[Daemon, ThreadPoolExecutor, Any]:
    """Start proxies, and an upload through them; the local proxy and the upload's result, kbit/s. Raises LabError."""
    running.remote()
    local = running.local("--spare", "0")
    running.serve(SINK, "9001")
    file = running.directory / "upload"
    file.write_bytes(os.urandom(octets))

    def upload() -> float:
        started = time.monotonic()
        said = running.a.run(sys.executable, "-c", WRITER, running.server, "9001", file).strip()
        if said != str(octets):
            raise LabError(f"the upload ended with {said}: {local.log}")
        return octets * 8e-3 / (time.monotonic() - started)

    pool = ThreadPoolExecutor(1)
    return local, pool, pool.submit(upload)


def proxied(models: tuple[Model, ...], octets: int) -> float:
    """kbit/s of an upload through sealed proxies. Raises LabError."""
    with tempfile.TemporaryDirectory() as folder, Paths() as paths:
        _, pool, uploading = began(scene(paths, Path(folder), models), octets)
        with pool:
            return float(uploading.result())


def mptcp(models: tuple[Model, ...], octets: int) -> float:
    """kbit/s of an upload by kernel MPTCP. Raises LabError."""
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        return stream([paths.link(a, b, **model) for model in models], octets, IPPROTO_MPTCP)


def after_fault(models: tuple[Model, ...], fault: Callable[[PathLink], None] | None) -> tuple[float, int]:
    """Mbit/s that reach the server after the fault, and how many subflows died. Raises LabError."""
    octets = int((1 + SETTLED + OBSERVED) * 1e6 * MBIT / 8 * len(models))
    with tempfile.TemporaryDirectory() as folder, Paths() as paths:
        running = scene(paths, Path(folder), models)
        local, pool, uploading = began(running, octets)

        def received() -> int:
            shown = json.loads(running.c.ip("-s", "-j", "link", "show", running.behind.b_if))
            return int(shown[0]["stats64"]["rx"]["bytes"])

        with pool:
            time.sleep(1)
            if fault:
                fault(running.links[0])
            time.sleep(SETTLED)
            at, before = time.monotonic(), received()
            while time.monotonic() - at < OBSERVED and not uploading.done():
                time.sleep(0.05)
            mbit = (received() - before) * 8e-6 / (time.monotonic() - at)
            deaths = sum(path["lost"] for path in local.status()["paths"])
            uploading.result()
    return mbit, deaths


def measure(step: Step, rounds: int = ROUNDS) -> Raw:
    """Return Mbit/s of BATCP and MPTCP by pair of links, and with each fault, alone and of both. Raises LabError."""
    rates: dict[str, dict[str, list[float]]] = {}
    for pair in PAIRS:
        octets = int(pair.mbit * 1e6 / 8 * SECONDS)
        arms = rates.setdefault(pair.name, {"batcp": [], "mptcp": []})
        for turn in range(rounds):
            step(f"{pair.text}, round {turn + 1} of {rounds}")
            arms["batcp"].append(proxied(pair.models, octets) * 1e-3)
            arms["mptcp"].append(mptcp(pair.models, octets) * 1e-3)
    for name, what, first, fault, may_die in FAULTS:
        arms = rates.setdefault(name, {"both": [], "alone": []})
        for turn in range(rounds):
            step(f"{what}, round {turn + 1} of {rounds}")
            alone, _ = after_fault((GOOD,), None)
            mbit, deaths = after_fault((first, GOOD), fault)
            if deaths and not may_die:
                raise LabError(f"{what}: {deaths} subflows died of it")
            arms["both"].append(mbit)
            arms["alone"].append(alone)
    return {"mbit": rates}


def rows(raw: Raw) -> list[Row]:
    """Make rows: medians of the ratios within a round, to MPTCP, and to the other link alone."""

    def ratios(name: str, own: str, other: str) -> tuple[float, ...]:
        rates = raw["mbit"][name]
        return tuple(one / of for one, of in zip(rates[own], rates[other], strict=True))

    found = []
    for pair in PAIRS:
        rounds = ratios(pair.name, "batcp", "mptcp")
        ours, theirs = (statistics.median(raw["mbit"][pair.name][name]) for name in ("batcp", "mptcp"))
        both = f"{ours:.1f} of {theirs:.1f} Mbit/s"
        text = f"sealed proxies of kernel MPTCP, {pair.text}: {both}; {min(rounds):.2f} to {max(rounds):.2f}"
        found.append(Row(pair.name, text, statistics.median(rounds), pair.goal, rounds=rounds))
    for name, what, *_ in FAULTS:
        rounds = ratios(name, "both", "alone")
        text = f"one of two links: {what}; of the other alone; {min(rounds):.2f} to {max(rounds):.2f}"
        found.append(Row(f"batcp_fault_{name}", text, statistics.median(rounds), 0.9, rounds=rounds))
    return found
