# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.controller.service`: the API under load beside a real apswitch, and what a day
of history takes.

Goals: 99 % of the answers within 50 ms at 200 requests/s while ticks stay as they are without; a day of history of 50
access points with four ports below 1 GB, an hour of it as a chart within 200 ms. The ratios are merged into
out/bench/summary.json.
"""

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Annotated

import httpx
import typer

from accesspoint.checks.bench.report import Row, merge, run, show
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
    """Ask at the rate, whatever the answers take; returns how long each took, in seconds."""
    took: list[float] = []
    headers = {"authorization": f"Bearer {controller.token}"}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=20) as client:

        async def one(path: str, due: float) -> None:
            (await client.get(f"/api/v1/access-points/ap1{path}")).raise_for_status()
            took.append(time.monotonic() - due)

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


def api(made: SwitchLab) -> dict[str, float]:
    """Measure the API under load, and the ticks meanwhile."""
    made.start_switch()
    controller = made.controller()
    made.introduce(controller)
    time.sleep(SECONDS)
    without = controller.get()["loop"]["tick_ms_p99"]
    took = sorted(asyncio.run(ask(controller)))
    beside = controller.get()["loop"]["tick_ms_p99"]
    return {"api_ms_p99": took[int(0.99 * len(took))] * 1000, "ticks_beside_api_of_without": beside / without}


def history(directory: Path) -> dict[str, float]:
    """Measure the size of a day of busy ports in the history, and the time to read an hour of it."""
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
        took.append(time.monotonic() - start)
        if len(found) != PORTS or len(found[0]["time"]) != HOUR // 10:
            raise LabError("history has gaps")
    return {"history_gb_a_day": size / WRITTEN * ACCESS_POINTS / 1e9, "chart_ms": sorted(took)[2] * 1000}


def main(
    out: Annotated[Path, typer.Option(help="Folder whose summary.json gets the ratios.")] = Path("out/bench"),
) -> None:
    """Measure the API beside the loop, and history."""
    if reason := missing("apswitch"):
        raise LabError(reason)
    with tempfile.TemporaryDirectory() as directory:
        results = history(Path(directory))
        with lab("apswitch", Path(directory)) as made:
            results |= api(made)
    rows = [Row(name, TEXTS[name], value, GOALS[name], at_least=False) for name, value in results.items()]
    show("Service", rows)
    merge(out, rows)


if __name__ == "__main__":
    run(lambda: typer.run(main))
