# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.controller.agent`: one access point's agent, against a real apswitch on the same
cores.

200 and 1000 active flows share the uplink unevenly, and what they offer swings around what it carries, so that every
term is at work: counters are read, feedback is computed, entries are written. CPU is that of the whole controller, and
stays what it is on a machine that is busy with other things; the time of a tick does not. With `--beside DIR` the
controller of another checkout is measured in the same run, in turn. The results are merged into
out/bench/summary.json.
"""

import contextlib
import math
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from accesspoint.checks.bench.report import Row, merge, run, show
from accesspoint.checks.harness.switches import (
    ROOT,
    SERVER,
    STATION,
    Controller,
    SwitchLab,
    lab,
    missing,
    udp,
    wait_for,
)
from accesspoint.topologies.requirements import LabError

PACKETS_PER_SECOND = 4000
"""Rate of all flows together."""
UNEVEN = 4
"""The first flow of an access point sends so many times what its last one does."""
SWING = 0.5
SWING_SECONDS = 2.0
"""The load swings around the capacity, so that feedback rises and falls all the time."""
SIZE = 1000
SECONDS = 12.0
"""More than the 1000 ticks that the controller's percentiles are over."""
SETTLE_SECONDS = 3.0
"""Time from all flows being known to their rates being known."""

SENDER = "--send"


@dataclass(frozen=True)
class Setting:
    """A number of active flows; `name` begins the names of the results, `goals` are their upper bounds."""

    name: str
    flows: int
    goals: dict[str, float]


SETTINGS = (
    Setting("agent_200", 200, {"cores": 0.15, "p99_ms": 5.0, "missed": 0.001}),
    Setting("agent_1000", 1000, {"p99_ms": 10.0, "missed": 0.001}),
)
CAPACITY_BPS = PACKETS_PER_SECOND * SIZE * 8
"""Capacity of the uplink: the mean of the offered load."""
PORTS = [
    {"port": 1, "role": "station", "capacity_bps": 10 * CAPACITY_BPS},
    {"port": 2, "role": "uplink", "capacity_bps": CAPACITY_BPS},
]
LINK = f"2:rate={CAPACITY_BPS}bit,limit=1000"


def send(flows: int, interface: str) -> None:
    """Send so many flows into an interface for ever, uneven."""
    packets = [udp(STATION, SERVER, 10_000 + number, 2000, SIZE) for number in range(flows)]
    turns = [
        packet for number, packet in enumerate(packets) for _ in range(1 + (UNEVEN - 1) * (flows - number) // flows)
    ]
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


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@contextlib.contextmanager
def sending(made: SwitchLab, flows: int) -> Iterator[None]:
    """Keep `flows` flows active while the block runs."""
    command = [
        sys.executable,
        "-m",
        "accesspoint.checks.bench.controller.agent",
        "--flows",
        str(flows),
        SENDER,
        made.wires[1].far,
    ]
    sender = made.apart.popen(*command, cwd=ROOT)
    try:
        yield
    finally:
        sender.kill()
        sender.wait()


def measure(setting: Setting, directory: Path, root: Path) -> dict[str, float]:
    """Let the controller of a checkout run; returns the results by name."""
    with lab("apswitch", directory) as made:
        made.start_switch(LINK)
        controller = made.controller(ports=PORTS, root=root)
        made.introduce(controller)
        with sending(made, setting.flows):
            wait_until_learned(controller, setting.flows)
            assert made.switch is not None
            own, switch = controller.process.pid, made.switch.pid
            before, start = controller.get()["loop"], time.monotonic()
            used = {process: cpu_seconds(process) for process in (own, *children(own), switch)}
            lateness = late_timers(SECONDS)
            elapsed = time.monotonic() - start
            cores = {process: (cpu_seconds(process) - seconds) / elapsed for process, seconds in used.items()}
            after = controller.get()["loop"]
            active = sum(port["flows_active"] for port in controller.get("ports"))
    if active < setting.flows * 0.9:
        raise SystemExit(f"error: only {active} flows were active: the machine is too busy to send them")
    grown = {count: after[count] - before[count] for count in ("ticks", "missed", "late")}
    of_switch = cores.pop(switch)
    return {
        "cores": sum(cores.values()),
        "p50_ms": after["tick_ms_p50"],
        "p99_ms": after["tick_ms_p99"],
        "missed": grown["missed"] / (grown["ticks"] + grown["missed"]),
        "late": grown["late"] / grown["ticks"],
        "us": sum(cores.values()) * elapsed / grown["ticks"] * 1e6,
        "switch_cores": of_switch,
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


def wait_until_learned(controller: Controller, flows: int) -> None:
    """All flows known, and their rates settled."""
    deadline = time.monotonic() + 60
    while controller.get()["flows"] < flows:
        if time.monotonic() > deadline:
            raise SystemExit("error: the flows were not learned within 60 s: the machine is too busy")
        time.sleep(0.2)
    time.sleep(SETTLE_SECONDS)


def failover(directory: Path, root: Path) -> float:
    """Kill a primary with 1000 active flows; returns after how many seconds its backup ticks."""
    with lab("apswitch", directory) as made:
        made.start_switch(LINK)
        primary = made.controller(election_id=2, ports=PORTS, root=root)
        made.introduce(primary)
        backup = made.controller(election_id=1, ports=PORTS, ready=False, root=root)
        with sending(made, SETTINGS[1].flows):
            wait_until_learned(primary, SETTINGS[1].flows)
            wait_for(lambda: backup.get()["state"] == "backup")
            start = time.monotonic()
            primary.process.kill()
            wait_for(lambda: backup.get()["loop"]["ticks"])
            return time.monotonic() - start


BUSY_MS = 2.0
FAILOVER = "failover_seconds"
FAILOVER_GOAL = 0.5
MISSED = "agent_missed"
TEXTS = {
    "cores": "CPU of the controller, cores",
    "p50_ms": "a tick from begin to end, median, ms",
    "p99_ms": "the same, 99th percentile, ms",
    "missed": "ticks left out, of those that were due",
    "late": "ticks begun more than 5 ms late",
    "us": "CPU of the controller for one tick, µs",
    "switch_cores": "CPU of the switch, which runs on the same cores, packets and P4Runtime, cores",
    "timer_late_ms_p99": "lateness of a sleeping process's timer on this machine, 99th percentile, ms",
}
TEXT_FAILOVER = "from the primary's kill -9 to its backup's first tick, 1000 active flows, seconds"


def main(
    out: Annotated[Path, typer.Option(help="Folder whose summary.json gets the ratios.")] = Path("out/bench"),
    only: Annotated[str | None, typer.Option(help="agent_200, agent_1000 or failover_seconds alone.")] = None,
    beside: Annotated[Path | None, typer.Option(help="Another checkout, whose controller is measured in turn.")] = None,
    sender: Annotated[str | None, typer.Option(SENDER, hidden=True)] = None,
    flows: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Measure an agent's ticks and a failover."""
    if sender:
        send(flows, sender)
    if reason := missing("apswitch"):
        raise LabError(reason)
    roots = {"": ROOT} | ({"beside_": beside.resolve()} if beside else {})
    left_out: dict[str, list[float]] = {prefix: [] for prefix in roots}
    for setting in SETTINGS:
        for prefix, root in roots.items():
            if only not in (None, setting.name):
                continue
            with tempfile.TemporaryDirectory() as directory:
                results = measure(setting, Path(directory), root)
            left_out[prefix].append(results["missed"])
            goals = {} if prefix else setting.goals
            rows = [
                Row(f"{prefix}{setting.name}_{name}", TEXTS[name], value, goals.get(name), at_least=False)
                for name, value in results.items()
            ]
            show(f"One access point, {setting.flows} active flows, {root}", rows)
            if results["timer_late_ms_p99"] > BUSY_MS:
                print("caution: timers were late: the machine is too busy for all but the figures of CPU to count")
            merge(out, rows)
    for prefix, found in left_out.items():
        if found:
            goal = None if prefix else 0.001
            merge(out, [Row(f"{prefix}{MISSED}", TEXTS["missed"], max(found), goal, at_least=False)])
    if only in (None, FAILOVER):
        for prefix, root in roots.items():
            with tempfile.TemporaryDirectory() as directory:
                took = failover(Path(directory), root)
            row = Row(f"{prefix}{FAILOVER}", TEXT_FAILOVER, took, None if prefix else FAILOVER_GOAL, at_least=False)
            show(f"Failover, {root}", [row])
            merge(out, [row])


if __name__ == "__main__":
    run(lambda: typer.run(main))
