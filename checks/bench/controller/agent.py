# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.bench.controller.agent`: one access point's agent, against a real apswitch on the same
cores.

200 and 1000 active flows share the uplink unevenly, and what they offer swings around what it carries, so that every
term is at work: counters are read, feedback is computed, entries are written. CPU is that of the whole controller, and
stays what it is on a machine that is busy with other things; the time of a tick does not. With `--beside DIR` the
controller of another checkout is measured in the same run, in turn. Rows and samples are kept in
out/bench/controller.json.
"""

import contextlib
import math
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from accesspoint.checks.bench import summary
from accesspoint.checks.bench.report import Row, run, show
from accesspoint.checks.bench.summary import Raw
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
from accesspoint.topologies.processes import family
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


def ticks(setting: Setting, directory: Path, root: Path) -> dict[str, Any]:
    """Let the controller of a checkout run; return its counters at the start and at the end, percentiles of its ticks,
    CPU time of its processes and of the switch, s, and how late timers of this machine were meanwhile, ms."""
    with lab("apswitch", directory) as made:
        made.start_switch(LINK)
        controller = made.controller(ports=PORTS, root=root)
        made.introduce(controller)
        with sending(made, setting.flows):
            wait_until_learned(controller, setting.flows)
            assert made.switch is not None
            own, switch = controller.process.pid, made.switch.pid
            before, start = controller.get()["loop"], time.monotonic()
            used = {process: cpu_seconds(process) for process in (*family(own), switch)}
            late = late_timers(SECONDS)
            elapsed = time.monotonic() - start
            cpu = {process: cpu_seconds(process) - seconds for process, seconds in used.items()}
            after = controller.get()["loop"]
            active = sum(port["flows_active"] for port in controller.get("ports"))
    if active < setting.flows * 0.9:
        raise SystemExit(f"error: only {active} flows were active: the machine is too busy to send them")
    return {
        "seconds": elapsed,
        "switch_cpu_s": cpu.pop(switch),
        "cpu_s": list(cpu.values()),
        **{count: after[count] - before[count] for count in ("ticks", "missed", "late")},
        **{name: after[name] for name in ("tick_ms_p50", "tick_ms_p99")},
        "timer_late_ms": late,
    }


def results(sample: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of the rows by the ends of their names."""
    cpu, due = sum(sample["cpu_s"]), sample["ticks"] + sample["missed"]
    return {
        "cores": cpu / sample["seconds"],
        "p50_ms": sample["tick_ms_p50"],
        "p99_ms": sample["tick_ms_p99"],
        "missed": sample["missed"] / due,
        "late": sample["late"] / sample["ticks"],
        "us": cpu / sample["ticks"] * 1e6,
        "switch_cores": sample["switch_cpu_s"] / sample["seconds"],
        "timer_late_ms_p99": p99(sample["timer_late_ms"]),
    }


def p99(values: list[float]) -> float:
    """Return the 99th percentile: a value that is there."""
    return sorted(values)[int(0.99 * len(values))]


def late_timers(seconds: float) -> list[float]:
    """Let time pass; return by how many ms this machine woke a sleeping process too late, each time."""
    late = []
    finish = time.monotonic() + seconds
    while (now := time.monotonic()) < finish:
        time.sleep(0.01)
        late.append(round((time.monotonic() - now - 0.01) * 1000, 3))
    return late


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


OWN, BESIDE = "own", "beside"
PREFIXES = {OWN: "", BESIDE: "beside_"}
"""The controller of this checkout, and that of another -> what the names of its rows begin with."""


def rows(raw: Raw) -> list[Row]:
    """Make rows. raw: settings, and the failover, by name -> `ticks`, or seconds, by controller."""
    found = []
    left_out: dict[str, list[float]] = {place: [] for place in PREFIXES}
    for setting in SETTINGS:
        for place, sample in raw.get(setting.name, {}).items():
            values = results(sample)
            left_out[place].append(values["missed"])
            goals = setting.goals if place == OWN else {}
            found += [
                Row(f"{PREFIXES[place]}{setting.name}_{name}", TEXTS[name], value, goals.get(name), at_least=False)
                for name, value in values.items()
            ]
    for place, parts in left_out.items():
        if parts:
            goal = 0.001 if place == OWN else None
            found.append(Row(f"{PREFIXES[place]}{MISSED}", TEXTS["missed"], max(parts), goal, at_least=False))
    for place, took in raw.get(FAILOVER, {}).items():
        goal = FAILOVER_GOAL if place == OWN else None
        found.append(Row(f"{PREFIXES[place]}{FAILOVER}", TEXT_FAILOVER, took, goal, at_least=False))
    return found


def measure(roots: Mapping[str, Path], only: str | None = None) -> Raw:
    """Measure controllers of these checkouts, in turn; show their rows as they come. Return the samples of `rows`."""
    raw: dict[str, dict[str, Any]] = {}
    for setting in (setting for setting in SETTINGS if only in (None, setting.name)):
        for place, root in roots.items():
            with tempfile.TemporaryDirectory() as directory:
                sample = ticks(setting, Path(directory), root)
            raw.setdefault(setting.name, {})[place] = sample
            show(f"One access point, {setting.flows} active flows, {root}", rows({setting.name: {place: sample}})[:-1])
            if p99(sample["timer_late_ms"]) > BUSY_MS:
                print("caution: timers were late: the machine is too busy for all but the figures of CPU to count")
    for place, root in roots.items() if only in (None, FAILOVER) else ():
        with tempfile.TemporaryDirectory() as directory:
            took = failover(Path(directory), root)
        raw.setdefault(FAILOVER, {})[place] = took
        show(f"Failover, {root}", rows({FAILOVER: {place: took}}))
    return raw


def main(
    out: Annotated[Path, typer.Option(help="Folder whose controller.json gets rows and samples.")] = Path("out/bench"),
    only: Annotated[
        str | None, typer.Option(help="agent_200, agent_1000 or failover_seconds alone, which are not kept.")
    ] = None,
    beside: Annotated[Path | None, typer.Option(help="Another checkout, whose controller is measured in turn.")] = None,
    sender: Annotated[str | None, typer.Option(SENDER, hidden=True)] = None,
    flows: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Measure an agent's ticks and a failover."""
    if sender:
        send(flows, sender)
    if reason := missing("apswitch"):
        raise LabError(reason)
    begun = summary.begin(out / "controller.json", beside is not None)
    raw = measure({OWN: ROOT} | ({BESIDE: beside.resolve()} if beside else {}), only)
    if only is None:
        summary.keep(out / "controller.json", "agent", summary.find("controller", "agent"), raw, begun)


if __name__ == "__main__":
    run(lambda: typer.run(main))
