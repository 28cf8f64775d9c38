# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.controller.fleet`: one replica of the service with a thousand agents.

What the agents say once a second, and their history every ten, is said by one process over a real engine, as each of
them would; switches there are none. Meanwhile somebody asks REST, and a page is open. Rows and samples are kept in
out/bench/controller.json.

Apart from that: two agents of one switch with a thousand active flows, one of which is killed.
"""

import asyncio
import contextlib
import json
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from accesspoint.checks.bench import summary
from accesspoint.checks.bench.controller.agent import CAPACITY_BPS, SETTINGS, p99
from accesspoint.checks.bench.controller.agent import SETTLE_SECONDS as FLOWS_SETTLE_SECONDS
from accesspoint.checks.bench.report import Row, run, show
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.switches import SERVER, STATION, udp
from accesspoint.controller.agent.local_backend import LocalBackend
from accesspoint.controller.config import AccessPointConfig, Ncr
from accesspoint.controller.fleet.credentials import Credentials
from accesspoint.controller.fleet.engine import Engine, Unavailable
from accesspoint.controller.fleet.messages import Samples, Seen, parse, text
from accesspoint.controller.observation import Observation
from accesspoint.controller.samples import FLUSH_SECONDS, Recorder
from accesspoint.topologies.fleet import Fleet, Part, engine, missing
from accesspoint.topologies.namespaces.namespace import Namespace
from accesspoint.topologies.requirements import LabError

AGENTS = 1000
SEEN_SECONDS = 60.0
"""Bound on the time until the service has received the state of all access points."""
SETTLE_SECONDS = 15.0
"""After that, until history is on its way, too."""
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
REPLICA = f"fleet_{AGENTS}"
FLOWS = SETTINGS[1].flows
TAKEOVER_SECONDS = 30.0
FAILOVER = "agent_failover_seconds"
FAILOVER_GOAL = 0.5
TEXT_FAILOVER = f"from a primary agent's kill -9 to its backup's first tick, {FLOWS} active flows, seconds"


def config(number: int) -> AccessPointConfig:
    """Configuration of an access point."""
    ports = [
        {"port": 1, "role": "station", "capacity_bps": 14_000_000},
        {"port": 2, "role": "uplink", "capacity_bps": 1_000_000},
    ]
    return AccessPointConfig.model_validate({"name": f"ap{number}", "ports": ports})


async def seen() -> Observation:
    """Return an observation as an agent publishes it."""
    backend = LocalBackend(lambda name: None)
    backend.desire("ap0", 1, config(0).model_copy(update={"enabled": False}))
    backend.start()
    while not backend.access_points:
        await asyncio.sleep(0)
    found = backend.observe("ap0")
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
    unsent: asyncio.Queue[tuple[str, bytes, str]] = asyncio.Queue()
    keeping = asyncio.create_task(keep(there, unsent))
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
                await there.publish(f"ap.{name}.seen", text(said))
                if (turn + number) % FLUSH_SECONDS == 0:
                    message = text(Samples.of(recorder.take()))
                    unsent.put_nowait((f"ap.{name}.history", message, f"{name}-{turn}"))
            turn += 1
    finally:
        for task in (running, keeping):
            task.cancel()


async def keep(there: Engine, unsent: "asyncio.Queue[tuple[str, bytes, str]]") -> None:
    """Bring history to the engine, for ever; as agents do it, again until the engine takes it."""
    while True:
        subject, data, once = await unsent.get()
        while True:
            try:
                await there.log(subject, data, once)
                break
            except Unavailable:
                await asyncio.sleep(0.1)


def cpu_and_memory(process: int) -> tuple[float, float]:
    """Seconds of CPU so far, and MB of memory."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line
    )
    return (int(fields[11]) + int(fields[12])) / 100, int(status["VmRSS"].split()[0]) / 1000


async def ask(url: str, token: str) -> tuple[list[float], list[float]]:
    """Ask REST at the rate, with a page open; return how long answers took, ms, and those of /metrics, s."""
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

        async def get(path: str) -> None:
            try:
                answer = await client.get(path)
            except httpx.HTTPError as error:
                raise LabError(f"GET {path}: no answer: {str(error) or type(error).__name__}") from None
            if not answer.is_success:
                raise LabError(f"GET {path}: {answer.status_code}: {answer.text[:500]}")

        async def one(path: str, due: float) -> None:
            await get(f"/api/v1/access-points{path}")
            took.append(round((time.monotonic() - due) * 1000, 3))

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
            await get("/metrics")
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


def ready(fleet: Fleet) -> int:
    """Count the access points that the service shows as ready."""
    return sum(
        entry["state"] == "ready"
        for offset in range(0, AGENTS, PAGE)
        for entry in fleet.ask("GET", f"/access-points?limit={PAGE}&offset={offset}").json()
    )


def wait_until_seen(fleet: Fleet, agents: Part) -> None:
    """Wait until the service shows all access points as ready. Raises LabError."""
    deadline = time.monotonic() + SEEN_SECONDS
    while (number := ready(fleet)) < AGENTS:
        if agents.process is None or agents.process.poll() is not None:
            raise LabError(f"the process that is all agents has ended: {last_line(agents)}")
        if time.monotonic() > deadline:
            raise LabError(f"of {AGENTS} agents the service sees {number} after {SEEN_SECONDS:.0f} s")
        time.sleep(0.5)


def first(error: BaseException) -> LabError:
    """Return the first error of several concurrent requests, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return LabError(" ".join(str(error).split()) or type(error).__name__)


def load(directory: Path) -> dict[str, Any]:
    """Measure a replica: agents that it shows, answers, ms and s, memory, MB, CPU, s, and how long that took."""
    with replica(directory) as fleet:
        server = f"tls://127.0.0.1:{fleet.engine_port}"
        words = [
            sys.executable,
            "-m",
            "accesspoint.checks.bench.controller.fleet",
            SENDER,
            server,
            "--keys",
            str(directory / "engine"),
        ]
        agents, process = fleet.part("agents", words), fleet.parts["service1"].pid
        wait_until_seen(fleet, agents)
        time.sleep(SETTLE_SECONDS)
        before, start = cpu_and_memory(process)[0], time.monotonic()
        try:
            took, metrics = asyncio.run(ask(fleet.urls[0], fleet.token))
        except* LabError as group:
            raise first(group) from None
        elapsed = time.monotonic() - start
        cpu, memory = cpu_and_memory(process)
        shown = ready(fleet)
    return {
        "seen": shown,
        "answers_ms": took,
        "metrics_s": metrics,
        "memory_mb": memory,
        "cpu_s": cpu - before,
        "seconds": elapsed,
    }


def failover(directory: Path) -> float:
    """Kill a primary agent with 1000 active flows; returns after how many seconds its backup ticks."""
    rates = {1: 10 * CAPACITY_BPS, 2: CAPACITY_BPS}
    with Fleet(directory, agents=1, backups=1, rest=(0,), traffic=False, rates=rates) as fleet:
        agents = [fleet.access_points[0].parts[name] for name in ("agent1", "agent2")]
        primary, backup = sorted(agents, key=lambda part: not part.said("ready ap1"))
        words = [
            sys.executable,
            "-m",
            "accesspoint.checks.bench.controller.agent",
            "--flows",
            str(FLOWS),
            SENDER,
            "eth0",
        ]
        fleet.part("sender", words, fleet.access_points[0].station)

        def learned() -> bool:
            # A flow is known when both of its ends are.
            send_one(fleet.access_points[0].server, udp(SERVER, STATION, 9, 9))
            return bool((fleet.get("/access-points/ap1") or {"flows": 0})["flows"] >= FLOWS)

        fleet.looking(learned, "all flows are learned")
        time.sleep(FLOWS_SETTLE_SECONDS)
        start = time.time()
        assert primary.process is not None
        primary.process.kill()
        try:
            return asyncio.run(first_tick(fleet, start)) - start
        except TimeoutError:
            raise LabError(f"the backup did not take over: {last_line(backup)}") from None


def send_one(within: Namespace, frame: bytes) -> None:
    """Send a frame from there."""
    with within.entered():
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with wire:
        wire.bind(("eth0", 0))
        wire.send(frame)


async def first_tick(fleet: Fleet, killed: float) -> float:
    """Return the time at which the loop of the access point resumed its ticks, by its agent's report a second later: 10
    ms too late at most. In seconds since the epoch; raises TimeoutError."""
    keys = fleet.directory / "engine"
    server = f"tls://127.0.0.1:{fleet.engine_port}"
    client = Engine([server], keys / "ca.pem", Credentials.load(keys / "service.creds"), "benchmark")
    said: asyncio.Queue[Observation] = asyncio.Queue()
    await client.subscribe("ap.ap1.seen", lambda subject, data: said.put_nowait(parse(Seen, data).observation))
    running = asyncio.create_task(client.run())
    try:
        async with asyncio.timeout(TAKEOVER_SECONDS):
            while True:
                seen = await said.get()
                if seen["time"] > killed and seen["state"] == "ready" and seen["ticks"]:
                    interval = Ncr().device_interval
                    return float(seen["time"] - (seen["ticks"] + seen["missed"] - 1) * interval)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def last_line(part: Part) -> str:
    """Return the last line of a process's log."""
    return part.log.read_text(errors="replace").strip().rpartition("\n")[2]


def rows(raw: Raw) -> list[Row]:
    """Make rows. raw: the samples of `load` and the seconds of `failover`, by the names of their rows."""
    found = []
    if sample := raw.get(REPLICA):
        values = {
            "seen": sample["seen"],
            "api_ms_p99": p99(sample["answers_ms"]),
            "mb": sample["memory_mb"],
            "metrics_seconds": max(sample["metrics_s"]),
            "cores": sample["cpu_s"] / sample["seconds"],
        }
        for name, value in values.items():
            rounds = tuple(sample["metrics_s"]) if name == "metrics_seconds" else ()
            goal = AGENTS if name == "seen" else GOALS[name]
            found.append(Row(f"{REPLICA}_{name}", TEXTS[name], value, goal, name == "seen", rounds))
    if FAILOVER in raw:
        found.append(Row(FAILOVER, TEXT_FAILOVER, raw[FAILOVER], FAILOVER_GOAL, at_least=False))
    return found


def measure(only: str | None = None) -> Raw:
    """Measure a replica and a failover; show their rows as they come. Return the samples of `rows`."""
    raw: dict[str, Any] = {}
    for name, title, sample in (
        (REPLICA, f"A replica with {AGENTS} agents", load),
        (FAILOVER, "Failover of an agent", failover),
    ):
        if only in (None, name):
            with place() as directory:
                raw[name] = sample(directory)
            show(title, rows({name: raw[name]}))
    return raw


def main(
    out: Annotated[Path, typer.Option(help="Folder whose controller.json gets rows and samples.")] = Path("out/bench"),
    only: Annotated[str | None, typer.Option(help=f"{REPLICA} or {FAILOVER} alone, which are not kept.")] = None,
    sender: Annotated[str | None, typer.Option(SENDER, hidden=True)] = None,
    keys: Annotated[Path, typer.Option(hidden=True)] = Path(),
) -> None:
    """Measure one replica with a thousand agents, and how soon a backup takes over from an agent."""
    if sender:
        send(keys, sender)
    if engine() is None:
        raise LabError("nats-server is missing: tools/install.sh fleet")
    if only != REPLICA and (reason := missing()):
        raise LabError(reason)
    begun = summary.begin(out / "controller.json")
    raw = measure(only)
    if only is None:
        summary.keep(out / "controller.json", "fleet", summary.find("controller", "fleet"), raw, begun)


if __name__ == "__main__":
    run(lambda: typer.run(main))
