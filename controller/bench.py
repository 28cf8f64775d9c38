# SPDX-License-Identifier: Apache-2.0
"""`python -m controller.bench`: ticks of the loop, against real apswitches on the same cores.

Two settings: one access point with 1000 active flows, and 50 access points with 20 each. The flows share the uplinks
unevenly, and what they offer swings around what these carry, so that every term is at work: counters are read,
feedback is computed, entries are written. Goals: the 99th percentile of a tick is at most the 10 ms between two, and
fewer than one tick in a thousand is missed. The ratios are merged into out/bench/summary.json.
"""

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.report import Row, show
from topologies import targets
from topologies.namespace import end_with_parent

from .tests.switches import (
    ROOT,
    SERVER,
    STATION,
    Controller,
    Wire,
    end,
    free_port,
    lab,
    missing,
    udp,
    wait_for,
    wires_apart,
)

PACKETS_PER_SECOND = 4000
"""Of all flows together."""
UNEVEN = 4
"""The first flow of an access point sends so many times what its last one does."""
SWING = 0.5
SWING_SECONDS = 2.0
"""The load swings around the capacity, so that feedback rises and falls all the time."""
SIZE = 1000
SECONDS = 12.0
"""More than the 1000 ticks that the controller's percentiles are over."""
SETTLE_SECONDS = 3.0
"""After all flows are known, until their rates are."""
INTERVAL_MS = 10.0

SENDER = "--send"


@dataclass(frozen=True)
class Setting:
    """So many access points with so many active flows each; `name` begins the names of the results."""

    name: str
    access_points: int
    flows: int

    @property
    def capacity_bps(self) -> int:
        """What each uplink carries: the mean of what is offered."""
        return PACKETS_PER_SECOND * SIZE * 8 // self.access_points


SETTINGS = (Setting("tick_1000", 1, 1000), Setting("tick_50x20", 50, 20))


def send(flows: int, interfaces: list[str]) -> None:
    """Send so many flows into each interface for ever, uneven, all interfaces in turn."""
    packets = [udp(STATION, SERVER, 10_000 + number, 2000, SIZE) for number in range(flows)]
    turns = [
        packet for number, packet in enumerate(packets) for _ in range(1 + (UNEVEN - 1) * (flows - number) // flows)
    ]
    with contextlib.ExitStack() as stack:
        wires = []
        for interface in interfaces:
            wire = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
            wire.bind((interface, 0))
            wires.append(wire)
        now, owed, sent = time.monotonic(), 0.0, 0
        while True:
            last, now = now, time.monotonic()
            owed += (now - last) * PACKETS_PER_SECOND * (1 + SWING * math.sin(2 * math.pi * now / SWING_SECONDS))
            for _ in range(int(owed)):
                wires[sent % len(wires)].send(turns[sent // len(wires) * 7919 % len(turns)])
                sent += 1
            owed %= 1
            time.sleep(0.005)


def cpu_seconds(process: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@contextlib.contextmanager
def laboratory(setting: Setting, directory: Path) -> Iterator[tuple[Controller, list[subprocess.Popen[bytes]], Any]]:
    """Switches, one controller and one sender; everything is gone at the end."""
    with contextlib.ExitStack() as stack:
        switches, access_points, senders, servers = [], [], [], []
        apart = wires_apart()
        stack.callback(apart.close)
        for number in range(setting.access_points):
            wires = {port: Wire(2 * number + port, apart) for port in (1, 2)}
            for wire in wires.values():
                stack.callback(wire.close)
            # Nobody reads what comes out.
            wires[1].socket.close()
            senders.append(wires[1].far)
            servers.append(wires[2])
            address = f"127.0.0.1:{free_port()}"
            wiring = targets.Wiring(
                {port: wire.near for port, wire in wires.items()},
                address,
                free_port(),
                links={2: f"rate={setting.capacity_bps}bit,limit=1000"},
            )
            log = stack.enter_context((directory / f"switch{number}.log").open("wb"))
            command = targets.TARGETS["apswitch"].command(wiring)
            switch = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=end_with_parent)
            stack.callback(end, switch)
            switches.append(switch)
            ports = [
                {"port": 1, "role": "station", "capacity_bps": 10 * setting.capacity_bps},
                {"port": 2, "role": "uplink", "capacity_bps": setting.capacity_bps},
            ]
            access_points.append({"name": f"ap{number + 1}", "address": address, "ports": ports})
        config = directory / "config.json"
        config.write_text(json.dumps({"access_points": access_points}))
        controller = Controller(config)
        stack.callback(end, controller.process)
        for _ in access_points:
            assert controller.line().startswith("ready "), controller.errors.read_text()
        command = [sys.executable, "-m", "controller.bench", "--flows", str(setting.flows)]
        for interface in senders:
            command += [SENDER, interface]
        sender = apart.popen(*command, cwd=ROOT)
        stack.callback(sender.wait)
        stack.callback(sender.kill)
        for wire in servers:
            # The server behind the uplink has to be learned.
            wire.send(udp(SERVER, STATION, 9, 9))
            wire.socket.close()
        yield controller, switches, sender


def state(controller: Controller) -> list[dict[str, Any]]:
    """All access points."""
    answer = controller.request("GET", "/api/v1/access-points?limit=100")
    answer.raise_for_status()
    found: list[dict[str, Any]] = answer.json()
    return found


def measure(setting: Setting, directory: Path) -> dict[str, float]:
    """Let it run; returns the results by name."""
    with laboratory(setting, directory) as (controller, switches, _):
        wait_until_learned(controller, setting)
        groups = {
            "loop_cores": children(controller.process.pid),
            "service_cores": [controller.process.pid],
            "switch_cores": [switch.pid for switch in switches],
        }
        before, start = state(controller), time.monotonic()
        used = {name: sum(map(cpu_seconds, processes)) for name, processes in groups.items()}
        lateness = late_timers(SECONDS)
        elapsed = time.monotonic() - start
        used = {name: (sum(map(cpu_seconds, processes)) - used[name]) / elapsed for name, processes in groups.items()}
        after = state(controller)
        active = 0
        for access_point in after:
            ports = controller.request("GET", f"/api/v1/access-points/{access_point['name']}/ports").json()
            active += sum(port["flows_active"] for port in ports)
    if active < setting.access_points * setting.flows * 0.9:
        raise SystemExit(f"error: only {active} flows were active: the machine is too busy to send them")

    def grown(count: str) -> int:
        return sum(new["loop"][count] - old["loop"][count] for new, old in zip(after, before, strict=True))

    ticks, missed_ticks = grown("ticks"), grown("missed")
    per_tick = {name: used[f"{name}_cores"] * elapsed / ticks * 1e6 for name in ("loop", "service", "switch")}
    p99 = [access_point["loop"]["tick_ms_p99"] for access_point in after]
    p50 = [access_point["loop"]["tick_ms_p50"] for access_point in after]
    return {
        "ms_p50": sorted(p50)[len(p50) // 2],
        "ms_p99": sorted(p99)[len(p99) // 2],
        "p99_of_interval": max(p99) / INTERVAL_MS,
        "missed": missed_ticks / (ticks + missed_ticks),
        "late": grown("late") / ticks,
        **used,
        **{f"{name}_us": value for name, value in per_tick.items()},
        "timer_late_ms_p99": lateness,
    }


def late_timers(seconds: float) -> float:
    """Let time pass; returns by how many ms this machine wakes a sleeping process too late, 99th percentile."""
    late = []
    finish = time.monotonic() + seconds
    while (now := time.monotonic()) < finish:
        time.sleep(0.01)
        late.append(time.monotonic() - now - 0.01)
    return sorted(late)[int(0.99 * len(late))] * 1000


def wait_until_learned(controller: Controller, setting: Setting) -> None:
    """All flows known, and their rates settled."""
    deadline = time.monotonic() + 60
    while sum(access_point["flows"] for access_point in state(controller)) < setting.access_points * setting.flows:
        if time.monotonic() > deadline:
            raise SystemExit("error: the flows were not learned within 60 s: the machine is too busy")
        time.sleep(0.2)
    time.sleep(SETTLE_SECONDS)


def failover(directory: Path) -> float:
    """Kill a primary with 1000 active flows; returns after how many seconds its backup ticks."""
    with lab("apswitch", directory) as made:
        made.start_switch(f"2:rate={SETTINGS[0].capacity_bps}bit,limit=1000")
        ports = [
            {"port": 1, "role": "station", "capacity_bps": 10 * SETTINGS[0].capacity_bps},
            {"port": 2, "role": "uplink", "capacity_bps": SETTINGS[0].capacity_bps},
        ]
        primary = made.controller(election_id=2, ports=ports)
        made.introduce(primary)
        backup = made.controller(election_id=1, ports=ports, ready=False)
        command = [sys.executable, "-m", "controller.bench", "--flows", str(SETTINGS[0].flows)]
        sender = made.apart.popen(*command, SENDER, made.wires[1].far, cwd=ROOT)
        try:
            wait_until_learned(primary, SETTINGS[0])
            wait_for(lambda: backup.get()["state"] == "backup")
            start = time.monotonic()
            primary.process.kill()
            wait_for(lambda: backup.get()["loop"]["ticks"])
            took = time.monotonic() - start
        finally:
            sender.kill()
            sender.wait()
    return took


BUSY_MS = 2.0
GOALS = {"p99_of_interval": 1.0, "missed": 0.001}  # at most
FAILOVER = "failover_seconds"
FAILOVER_GOAL = 1.0
TEXTS = {
    "ms_p50": "a tick from begin to end, median, ms",
    "ms_p99": "the same, 99th percentile, ms; median of the access points",
    "p99_of_interval": "that of the worst access point, of the 10 ms between two ticks",
    "missed": "ticks left out, of those that were due",
    "late": "ticks begun more than 5 ms late",
    "loop_cores": "CPU of the loop's processes, cores",
    "service_cores": "CPU of the rest of the controller, cores",
    "switch_cores": "CPU of the switches, which run on the same cores, packets and P4Runtime, cores",
    "loop_us": "CPU of the loop's processes for one tick, µs",
    "service_us": "CPU of the rest of the controller for one tick, µs",
    "switch_us": "CPU of the switches for one tick, µs",
    "timer_late_ms_p99": "lateness of a sleeping process's timer on this machine, 99th percentile, ms",
}


def keep(summary: dict[str, Any], rows: list[Row]) -> None:
    """Put results where those of all benchmarks are."""
    summary.setdefault("ratios", {}).update({row.name: row.value for row in rows})
    summary.setdefault("goals", {}).update(
        {row.name: {"goal": row.goal, "met": row.met} for row in rows if row.goal is not None}
    )


def main(
    out: Annotated[Path, typer.Option(help="Folder whose summary.json gets the ratios.")] = Path("out/bench"),
    only: Annotated[str | None, typer.Option(help="tick_1000, tick_50x20 or failover_seconds alone.")] = None,
    sender: Annotated[list[str] | None, typer.Option(SENDER, hidden=True)] = None,
    flows: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Measure the controller's ticks and a failover."""
    if sender:
        send(flows, sender)
    reason = missing("apswitch")
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        raise typer.Exit(2)
    path = out / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else {}
    for setting in SETTINGS:
        if only not in (None, setting.name):
            continue
        with tempfile.TemporaryDirectory() as directory:
            results = measure(setting, Path(directory))
        rows = [
            Row(f"{setting.name}_{name}", TEXTS[name], value, GOALS.get(name), at_least=False)
            for name, value in results.items()
        ]
        show(f"Controller, {setting.access_points} x {setting.flows} active flows", rows)
        if results["timer_late_ms_p99"] > BUSY_MS:
            print("caution: timers were late: the machine is too busy for the tick's figures to count")
        keep(summary, rows)
    if only in (None, FAILOVER):
        with tempfile.TemporaryDirectory() as directory:
            took = failover(Path(directory))
        text = "from the primary's kill -9 to its backup's first tick, 1000 active flows, seconds"
        rows = [Row(FAILOVER, text, took, FAILOVER_GOAL, at_least=False)]
        show("Failover", rows)
        keep(summary, rows)
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    application.command()(main)
    application()
