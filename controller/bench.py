# SPDX-License-Identifier: Apache-2.0
"""`python -m controller.bench`: one tick of the loop with 200 active flows, against a real apswitch.

200 flows share an uplink of 20 Mb/s, unevenly, and what they offer swings around what it carries, so that every term is
at work: counters are read, feedback is computed, entries are written. Goals: the 99th percentile of a tick is at most
the 10 ms between two, and the controller takes less than half a core. The ratios are merged into
out/bench/summary.json.
"""

import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from bench.report import Row, show

from .tests.switches import ROOT, SERVER, STATION, Controller, Lab, lab, missing, udp

FLOWS = 200
PACKETS_PER_SECOND = 2500
SWING = 0.5
SWING_SECONDS = 2.0
"""The load swings around the capacity, so that feedback rises and falls all the time."""
SIZE = 1000
CAPACITY_BPS = 20_000_000
SECONDS = 12.0
"""More than the 1000 ticks that the controller's percentiles are over."""

SENDER = "--send"


def send(interface: str) -> None:
    """Send the flows for ever; the first ones ten times as often as the last."""
    packets = [udp(STATION, SERVER, 10_000 + number, 2000, SIZE) for number in range(FLOWS)]
    turns = [packet for number, packet in enumerate(packets) for _ in range(1 + 9 * (FLOWS - number) // FLOWS)]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))
        now, owed, sent = time.monotonic(), 0.0, 0
        while True:
            last, now = now, time.monotonic()
            owed += (now - last) * PACKETS_PER_SECOND * (1 + SWING * math.sin(2 * math.pi * now / SWING_SECONDS))
            for _ in range(int(owed)):
                wire.send(turns[sent * 7919 % len(turns)])
                sent += 1
            owed %= 1
            time.sleep(0.005)


def cpu_seconds(process: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(made: Lab) -> dict[str, float]:
    """Let it run; returns the results by name."""
    made.start_switch(f"2:rate={CAPACITY_BPS // 1_000_000}mbit,limit=1000")
    ports = [
        {"port": 1, "role": "station", "capacity_bps": 10 * CAPACITY_BPS},
        {"port": 2, "role": "uplink", "capacity_bps": CAPACITY_BPS},
    ]
    controller = made.controller(ports=ports)
    made.introduce(controller)
    sender = subprocess.Popen([sys.executable, "-m", "controller.bench", SENDER, made.wires[1].far], cwd=ROOT)
    try:
        wait_until_learned(controller)
        before, start, ticks = cpu_seconds(controller.process.pid), time.monotonic(), controller.get()["loop"]["ticks"]
        lateness = late_timers(SECONDS)
        elapsed = time.monotonic() - start
        used = cpu_seconds(controller.process.pid) - before
        loop = controller.get()["loop"]
        ports_now = controller.get("ports")
        active = next(port["flows_active"] for port in ports_now if port["port"] == 2)
    finally:
        sender.kill()
        sender.wait()
    if active < FLOWS * 0.9:
        raise SystemExit(f"error: only {active} of {FLOWS} flows were active: the machine is too busy to send them")
    return {
        "tick_ms_p50": loop["tick_ms_p50"],
        "tick_ms_p99": loop["tick_ms_p99"],
        "tick_p99_of_interval": loop["tick_ms_p99"] / 10,
        "controller_cores": used / elapsed,
        "controller_ticks_of_due": (loop["ticks"] - ticks) / (elapsed * 100),
        "timer_late_ms_p99": lateness,
    }


def late_timers(seconds: float) -> float:
    """Let time pass; returns by how many ms this machine wakes a sleeping process too late, 99th percentile."""
    late = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        time.sleep(0.01)
        late.append(time.monotonic() - now - 0.01)
    return sorted(late)[int(0.99 * len(late))] * 1000


def wait_until_learned(controller: Controller) -> None:
    """All flows known, and their rates settled."""
    deadline = time.monotonic() + 20
    while controller.get()["flows"] < FLOWS:
        if time.monotonic() > deadline:
            raise SystemExit("error: the flows were not learned within 20 s: the machine is too busy")
        time.sleep(0.1)
    time.sleep(2)


BUSY_MS = 2.0
GOALS = {"tick_p99_of_interval": 1.0, "controller_cores": 0.5}  # at most
TEXTS = {
    "tick_ms_p50": f"a tick with {FLOWS} active flows, median, ms",
    "tick_ms_p99": "the same, 99th percentile, ms",
    "tick_p99_of_interval": "that, of the 10 ms between two ticks",
    "controller_cores": "CPU of the controller, cores",
    "controller_ticks_of_due": "ticks done of those that were due",
    "timer_late_ms_p99": "lateness of a sleeping process's timer on this machine, 99th percentile, ms",
}


def main(
    out: Annotated[Path, typer.Option(help="Folder whose summary.json gets the ratios.")] = Path("out/bench"),
    sender: Annotated[str | None, typer.Option(SENDER, hidden=True)] = None,
) -> None:
    """Measure a tick of the controller with 200 active flows."""
    if sender:
        send(sender)
    reason = missing("apswitch")
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        raise typer.Exit(2)
    with tempfile.TemporaryDirectory() as directory, lab("apswitch", Path(directory)) as made:
        results = measure(made)
    rows = [Row(name, TEXTS[name], value, GOALS.get(name), at_least=False) for name, value in results.items()]
    show("Controller", rows)
    if results["timer_late_ms_p99"] > BUSY_MS:
        print("caution: timers were late: the machine is too busy for the tick's figures to count")
    path = out / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else {}
    summary.setdefault("ratios", {}).update(results)
    summary.setdefault("goals", {}).update(
        {row.name: {"goal": row.goal, "met": row.met} for row in rows if row.goal is not None}
    )
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    application.command()(main)
    application()
