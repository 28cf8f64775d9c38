# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.controller.service`: the API under load beside a real apswitch, and what a day
of history takes.

Goals: 99 % of the answers within 50 ms at 200 requests/s while ticks stay as they are without; a day of history of 50
access points with four ports below 1 GB, an hour of it as a chart within 200 ms. Rows and samples are kept in
out/bench/controller.json.
"""

import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from accesspoint.checks.bench import summary
from accesspoint.checks.bench.controller.agent import p99
from accesspoint.checks.bench.report import Row, run, show
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.switches import Controller, SwitchLab, lab, missing
from accesspoint.controller.samples import DAY, HOUR, MEANS, RETENTION, SUMS, Bucket, Key
from accesspoint.controller.state.database import connect
from accesspoint.controller.state.history import Archive
from accesspoint.topologies.requirements import LabError

REQUESTS_PER_SECOND = 200
SECONDS = 12.0
"""More than the 1000 ticks that the controller's percentiles are over."""
PATHS = ("", "/ports", "/feedback", "/classes", "/flows?active=true", "/stations", "/ncr", "/history")

ACCESS_POINTS = 50
PORTS = 4
WRITTEN = 2
"""Access points that are written; a row takes the same room in all of them."""
NOW = 1_790_000_400

GOALS = {"api_ms_p99": 50.0, "ticks_beside_api_of_without": 1.5, "history_gb_a_day": 1.0, "chart_ms": 200.0}
TEXTS = {
    "api_ms_p99": f"an answer at {REQUESTS_PER_SECOND} requests/s, 99th percentile, ms",
    "ticks_beside_api_of_without": "99th percentile of a tick during API load, over that without",
    "history_gb_a_day": f"history of {ACCESS_POINTS} access points after a day, GB",
    "chart_ms": "an hour of one access point, read for a chart, ms",
}


async def ask(controller: Controller) -> list[float]:
    """Ask at the rate, whatever the answers take; return how long each took, ms."""
    took: list[float] = []
    headers = {"authorization": f"Bearer {controller.token}"}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=20) as client:

        async def one(path: str, due: float) -> None:
            (await client.get(f"/api/v1/access-points/ap1{path}")).raise_for_status()
            took.append(round((time.monotonic() - due) * 1000, 3))

        # The first request of a client loads what it needs: that is not the service's time.
        for path in PATHS:
            await one(path, time.monotonic())
        took.clear()
        start, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as tasks:
            while (due := start + number / REQUESTS_PER_SECOND) < start + SECONDS:
                await asyncio.sleep(due - time.monotonic())
                tasks.create_task(one(PATHS[number % len(PATHS)], due))
                number += 1
    return took


def api(made: SwitchLab) -> dict[str, Any]:
    """Measure the API under load, and the ticks without and during it, ms."""
    made.start_switch()
    controller = made.controller()
    made.introduce(controller)
    time.sleep(SECONDS)
    without = controller.get()["loop"]["tick_ms_p99"]
    took = asyncio.run(ask(controller))
    beside = controller.get()["loop"]["tick_ms_p99"]
    return {"answers_ms": took, "tick_ms_p99_without": without, "tick_ms_p99_beside": beside}


def history(directory: Path) -> dict[str, Any]:
    """Measure the size of a day of busy ports in the history, bytes, and the times to read an hour of it, ms."""
    file = directory / "history.db"
    engine, chance = connect(f"sqlite:///{file}"), random.Random(1)
    archive = Archive(engine)
    for number in range(WRITTEN):
        done: dict[Key, Bucket] = {}
        for resolution, kept in RETENTION.items():
            for port in range(PORTS):
                for when in range(NOW - min(kept, DAY), NOW, resolution):
                    means = [float(chance.randrange(60_000) * resolution) for _ in MEANS]
                    sums = [chance.randrange(2_000_000) * resolution for _ in SUMS]
                    done[resolution, f"ap{number}", port, when] = Bucket(resolution, 90_000, means, sums)
        archive.write(done)
    # The last connection's end brings the write-ahead log into the file.
    engine.dispose()
    size = file.stat().st_size
    took = []
    for _ in range(5):
        start = time.monotonic()
        found = archive.query("ap1", None, NOW - HOUR, NOW, 10)
        took.append((time.monotonic() - start) * 1000)
        if len(found) != PORTS or len(found[0]["time"]) != HOUR // 10:
            raise LabError("history has gaps")
    return {"history_bytes": size, "charts_ms": took}


def measure() -> Raw:
    """Return the samples of `history` and `api`."""
    with tempfile.TemporaryDirectory() as directory:
        raw = history(Path(directory))
        with lab("apswitch", Path(directory)) as made:
            return raw | api(made)


def rows(raw: Raw) -> list[Row]:
    """Make rows of samples alone."""
    values = {
        "history_gb_a_day": raw["history_bytes"] / WRITTEN * ACCESS_POINTS / 1e9,
        "chart_ms": statistics.median(raw["charts_ms"]),
        "api_ms_p99": p99(raw["answers_ms"]),
        "ticks_beside_api_of_without": raw["tick_ms_p99_beside"] / raw["tick_ms_p99_without"],
    }
    rounds = {"chart_ms": tuple(raw["charts_ms"])}
    return [Row(name, TEXTS[name], value, GOALS[name], False, rounds.get(name, ())) for name, value in values.items()]


def main(
    out: Annotated[Path, typer.Option(help="Folder whose controller.json gets rows and samples.")] = Path("out/bench"),
) -> None:
    """Measure the API beside the loop, and history."""
    if reason := missing("apswitch"):
        raise LabError(reason)
    begun = summary.begin(out / "controller.json")
    part = summary.find("controller", "service")
    show("Service", summary.keep(out / "controller.json", "service", part, measure(), begun))


if __name__ == "__main__":
    run(lambda: typer.run(main))
