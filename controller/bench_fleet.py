# SPDX-License-Identifier: Apache-2.0
"""`python -m controller.bench_fleet`: one replica of the service with a thousand agents.

What the agents say once a second, and their history every ten, is said by one process over a real engine, as each of
them would; switches there are none. Meanwhile somebody asks REST, and a page is open. The results are merged into
out/bench/summary.json.
"""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import httpx
import typer

from bench.report import Row, merge, run, show
from topologies.fleet import Fleet, engine
from topologies.requirements import LabError

from .agent.control import Control
from .config import AccessPointConfig
from .fleet.credentials import Credentials
from .fleet.engine import Engine
from .fleet.messages import Samples, Seen, text
from .observation import Observation
from .samples import FLUSH_SECONDS, Recorder

AGENTS = 1000
SETTLE_SECONDS = 15.0
SECONDS = 20.0
REQUESTS_PER_SECOND = 20
PATHS = ("", "/ports", "/feedback", "/classes", "/history", "/config")
PAGE = 100

GOALS = {"api_ms_p99": 100.0, "mb": 2000.0, "metrics_seconds": 1.0, "cores": 2.0}
TEXTS = {
    "seen": f"of {AGENTS} agents, how many the service shows as ready",
    "api_ms_p99": f"an answer at {REQUESTS_PER_SECOND} requests/s, 99th percentile, ms",
    "mb": "memory of the replica, MB",
    "metrics_seconds": "/metrics with all of them, longest of five, seconds",
    "cores": "CPU of the replica, cores",
}
SENDER = "--send"


def config(number: int) -> AccessPointConfig:
    """One of them."""
    ports = [
        {"port": 1, "role": "station", "capacity_bps": 14_000_000},
        {"port": 2, "role": "uplink", "capacity_bps": 1_000_000},
    ]
    return AccessPointConfig.model_validate({"name": f"ap{number}", "ports": ports})


async def seen() -> Observation:
    """What an agent tells."""
    control = Control(lambda name: None)
    control.prepare([config(0)])
    found = control.observe("ap0")
    found["state"] = "ready"
    return found


def send(keys: Path, server: str) -> None:
    """Be all agents, for ever."""
    asyncio.run(_send(keys, server))


async def _send(keys: Path, server: str) -> None:
    there = Engine([server], keys / "ca.pem", Credentials.load(keys / "service.creds"), "agents")
    running = asyncio.create_task(there.run())
    await there.reconnected.wait()
    observation, recorders = await seen(), [Recorder() for _ in range(AGENTS)]
    start, turn = time.monotonic(), 0
    try:
        while True:
            for number, recorder in enumerate(recorders):
                due = start + turn + number / AGENTS
                if (ahead := due - time.monotonic()) > 0.005:
                    await asyncio.sleep(ahead)
                name = f"ap{number}"
                of_this = {**observation, "name": name, "time": time.time(), "ticks": 100 * turn}
                recorder.add(of_this)
                said = Seen.model_construct(
                    version=1, agent=name, revision=1, lost=0, problem=None, observation=of_this
                )
                await there.say(f"ap.{name}.seen", text(said))
                if (turn + number) % FLUSH_SECONDS == 0:
                    message = text(Samples.of(recorder.take()))
                    await there.log(f"ap.{name}.history", message, f"{name}-{turn}")
            turn += 1
    finally:
        running.cancel()


def cpu_and_memory(process: int) -> tuple[float, float]:
    """Seconds of CPU so far, and MB of memory."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line
    )
    return (int(fields[11]) + int(fields[12])) / 100, int(status["VmRSS"].split()[0]) / 1000


async def ask(url: str, token: str) -> tuple[list[float], list[float]]:
    """Ask REST at the rate, with a page open; returns how long answers took, and those of /metrics."""
    took: list[float] = []
    metrics: list[float] = []
    headers = {"authorization": f"Bearer {token}"}
    limits = httpx.Limits(max_connections=50)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits) as client:

        async def page() -> None:
            # One that reads too slowly is ended by the service.
            with contextlib.suppress(httpx.HTTPError):
                async with client.stream("GET", "/api/v1/events", timeout=None) as stream:
                    async for _ in stream.aiter_raw():
                        pass

        async def one(path: str, due: float) -> None:
            (await client.get(f"/api/v1/access-points{path}")).raise_for_status()
            took.append(time.monotonic() - due)

        open_page = asyncio.create_task(page())
        start, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as tasks:
            while (due := start + number / REQUESTS_PER_SECOND) < start + SECONDS:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                listed = f"?limit={PAGE}&offset={number * PAGE % AGENTS}"
                path = listed if number % 10 == 0 else f"/ap{number * 7 % AGENTS}{PATHS[number % len(PATHS)]}"
                tasks.create_task(one(path, due))
                number += 1
        for _ in range(5):
            began = time.monotonic()
            (await client.get("/metrics")).raise_for_status()
            metrics.append(time.monotonic() - began)
        open_page.cancel()
        await asyncio.gather(open_page, return_exceptions=True)
    return took, metrics


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A folder, while the block runs."""
    directory = Path(tempfile.mkdtemp(prefix="fleet-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def replica(directory: Path) -> Iterator[Fleet]:
    """An engine and one replica that knows of all of them."""
    path = directory / "access-points.json"
    entries = [config(number).model_dump(mode="json", exclude_unset=True) for number in range(AGENTS)]
    path.write_text(json.dumps({"access_points": entries}))
    with Fleet(directory, agents=0, rest=(0,), traffic=False, config=path) as made:
        yield made


def measure(directory: Path) -> dict[str, float]:
    """All of it."""
    with replica(directory) as fleet:
        server = f"tls://127.0.0.1:{fleet.engine_port}"
        words = [sys.executable, "-m", "controller.bench_fleet", SENDER, server, "--keys", str(directory / "engine")]
        fleet.part("agents", words)
        process = fleet.parts["service1"].pid
        time.sleep(SETTLE_SECONDS)
        before, start = cpu_and_memory(process)[0], time.monotonic()
        took, metrics = asyncio.run(ask(fleet.urls[0], fleet.token))
        elapsed = time.monotonic() - start
        cpu, memory = cpu_and_memory(process)
        shown = [
            entry["state"]
            for offset in range(0, AGENTS, PAGE)
            for entry in fleet.ask("GET", f"/access-points?limit={PAGE}&offset={offset}").json()
        ]
    return {
        "seen": shown.count("ready"),
        "api_ms_p99": sorted(took)[int(0.99 * len(took))] * 1000,
        "mb": memory,
        "metrics_seconds": max(metrics),
        "cores": (cpu - before) / elapsed,
    }


def main(
    out: Annotated[Path, typer.Option(help="Folder whose summary.json gets the ratios.")] = Path("out/bench"),
    sender: Annotated[str | None, typer.Option(SENDER, hidden=True)] = None,
    keys: Annotated[Path, typer.Option(hidden=True)] = Path(),
) -> None:
    """Measure one replica with a thousand agents."""
    if sender:
        send(keys, sender)
    if engine() is None:
        raise LabError("nats-server is missing: tools/install.sh fleet")
    with place() as directory:
        results = measure(directory)
    rows = [
        Row(f"fleet_{AGENTS}_{name}", TEXTS[name], value, GOALS.get(name), at_least=False)
        for name, value in results.items()
    ]
    rows[0] = Row(rows[0].name, rows[0].text, rows[0].value, AGENTS, at_least=True)
    show(f"A replica with {AGENTS} agents", rows)
    merge(out, rows)


if __name__ == "__main__":
    run(lambda: typer.run(main))
