# SPDX-License-Identifier: Apache-2.0
"""A lab with a clock: what traffic is prepared on, and what plays it."""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import selfcheck, traffic
from experiments.experiment import Arm, Point, Scene
from experiments.samples import Sample, summed_up
from experiments.scene import Flow, PathLab
from topologies import kernel
from topologies.requirements import LabError

WARM_UP = 1.5  # s before the clock starts: probing begins, addresses are learned
WARM_UP_EACH = 0.05  # s more for each part of the traffic
TICK = 0.1  # s between two looks at the clock
LOOKS = 5  # at each flow's connections
READY_TIMEOUT = 10.0  # s
SENDERS = ("iperf3", "hosts")  # the kernel's names of programs
FORWARDERS = ("packets", "simple_switch_g")  # of threads that keep the links' time


class Program:
    """A command in a host, from now until the run ends. It may end by itself only if it `may_end`."""

    def __init__(self, host: Any, command: tuple[str, ...], take: Callable[[str], None] | None, may_end: bool) -> None:
        self.name = f"{command[0].rpartition('/')[2]} {' '.join(command[1:3])} at {host.name}"
        self._take, self._may_end = take, may_end
        self._said: list[str] = []
        self._news = threading.Condition()
        self.process = traffic.popen(host, list(command))
        traffic.Reader(self.process, self._hear)

    def _hear(self, line: str) -> None:
        with self._news:
            self._said.append(line)
            del self._said[:-50]
            self._news.notify_all()
        if self._take:
            self._take(line)

    def await_line(self, start: str) -> None:
        """Returns when it has printed a line that begins so. Raises LabError."""
        with self._news:
            if not self._news.wait_for(lambda: any(line.startswith(start) for line in self._said), READY_TIMEOUT):
                raise LabError(f"{self.name} is not ready: {self._last()}")

    def require_alive(self) -> None:
        """Raises LabError when it has ended and may not, or failed."""
        code = self.process.poll()
        if code is not None and (code or not self._may_end):
            raise LabError(f"{self.name} ended in the middle of the run: {self._last()}")

    def _last(self) -> str:
        return next((line.strip() for line in reversed(self._said) if line.strip()), "no output")


class Stage:
    """What traffic knows in `prepare`: the lab, the arm, the point, the clock; and where its samples go.

    seconds: how long the run takes, scale: seconds of it per second of the timeline. started: when the clock starts, s
    since the epoch. samples: times count from then.
    """

    def __init__(
        self, lab: Any, scene: Scene, arm: Arm, point: Point, seconds: float, seed: int, directory: Path
    ) -> None:
        self.lab, self.arm, self.point = lab, arm, point
        self.seconds, self.scale = seconds, seconds / scene.seconds
        self.seed, self.directory = seed, directory
        self.samples: list[Sample] = []
        self.problems: list[str] = []  # what makes the run unfit, for people
        self.cut: set[str] = set()  # hosts whose link something takes away: what they then drop is meant
        self.report: dict[str, Any] = {}
        self._scene = scene
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._programs: list[Program] = []
        self._flows: list[tuple[Flow, traffic.Transfer, list[str]]] = []
        self._probe: traffic.Probe | None = None
        self._over = False
        parts = len(scene.traffic) + len(lab.stations)
        self.started = time.time() + WARM_UP + WARM_UP_EACH * parts

    # What traffic may use.

    def station(self, number: int) -> Any:
        """A host: `run(*command)`, `popen(*command)`, `name`."""
        return self.lab.stations[number - 1]

    @property
    def server(self) -> Any:
        return self.lab.server

    @property
    def address(self) -> str:
        """The server's."""
        return str(self.lab.address if isinstance(self.lab, PathLab) else self.lab.server.IP())

    def now(self) -> float:
        """s since the clock's start; negative before."""
        return time.time() - self.started

    def at(self, second: float, action: Callable[[], None]) -> None:
        """Does something at a second of the timeline."""
        self._events.append((second * self.scale, next(self._count), action))

    def finish(self) -> None:
        """All that there is to measure has been: the run need not take as long as it may."""
        self._over = True

    def sample(self, when: float, quantity: str, value: float, span: float = 0.0, source: str = "") -> None:
        """Keeps a measurement. when: s since the clock's start, the middle of `span`."""
        self.samples.append(Sample(when, quantity, value, span, source))

    def program(
        self, host: Any, *command: str, take: Callable[[str], None] | None = None, may_end: bool = False
    ) -> Program:
        """Starts a command in a host now; it ends with the run. take: gets each line that it prints."""
        program = Program(host, command, take, may_end)
        self._programs.append(program)
        return program

    def transfer(self, flow: Flow, options: list[str]) -> None:
        """Plans a flow: iperf3 at both ends, looked at some times on its way."""
        made = traffic.Transfer(
            self.station(flow.station), self.server, self.address, flow.direction, self.samples, self.started,
            quantity="rate_mbps", source=flow.name, port=traffic.IPERF_PORT + len(self._flows), streams=flow.streams,
            each=flow.each, options=options,
        )  # fmt: skip
        looks: list[str] = []
        self._flows.append((flow, made, looks))
        end = self._scene.seconds if flow.end is None else flow.end
        self.at(flow.start, lambda: made.begin((end - flow.start) * self.scale))
        for look in range(LOOKS):
            self.at(flow.start + (end - flow.start) * (look + 0.5) / LOOKS, lambda: looks.append(made.tcp_info()))
        self.at(end, made.end)

    def probe(self, station: int) -> None:
        """Probes the round trip from now to the end."""
        seconds = self.seconds + self.started - time.time()
        self._probe = traffic.Probe(
            self.station(station), self.server, self.address, self.samples, self.started, seconds
        )

    # What the runner uses.

    def play(self, tick: Callable[[], None] = lambda: None) -> None:
        """Prepares the traffic, waits for the clock, plays the timeline, and checks the lab. Raises LabError."""
        for part in self._scene.traffic:
            part.prepare(self)
        for _, transfer, _ in self._flows:
            transfer.await_listening()
        if self.now() > 0:
            self.problems.append(f"the traffic was ready {self.now():.1f} s late")
        time.sleep(max(0.0, -self.now()))
        put_first()
        cpu, runner = selfcheck.CpuMeter(self._processes()), time.process_time()
        drops = selfcheck.Drops(self.lab)
        late: list[float] = []
        for due, _, action in [*sorted(self._events, key=lambda event: event[:2]), (self.seconds, 0, lambda: None)]:
            while (left := due - self.now()) > 0 and not self._over:
                planned = min(left, TICK)
                before = time.monotonic()
                time.sleep(planned)
                late.append(time.monotonic() - before - planned)
                tick()
                self._require_running()
            if self._over:
                break
            action()
        load = cpu.read() | {"runner_cpu": round((time.process_time() - runner) / self.now(), 4)}
        lost = {name: count for name, count in drops.since().items() if name not in self.cut}
        self._check(load, late, lost)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        self.samples[:] = sorted((s for s in list(self.samples) if 0 <= s.time <= self.seconds), key=lambda s: s.time)

    @property
    def has_flows(self) -> bool:
        return bool(self._flows)

    def both_ways(self) -> list[Sample]:
        """The flows' rates summed up by direction, `downlink_mbps` and `uplink_mbps`, and the probe's samples."""
        ways = {flow.name: f"{flow.direction}link_mbps" for flow, _, _ in self._flows}
        rates = [replace(s, quantity=ways[s.source]) for s in self.samples if s.source in ways]
        probes = [s for s in self.samples if s.quantity == "ping_ms"]
        return summed_up([*rates, *probes], set(ways.values()), self.seconds)

    def _check(self, load: dict[str, float], late: list[float], drops: dict[str, int]) -> None:
        late = self._probe.late if self._probe else late
        realtime = os.sched_getscheduler(0) == os.SCHED_RR
        machine, problems = selfcheck.check_machine(load, late, realtime)
        flows = {}
        for flow, _, looks in self._flows:
            flows[flow.name], found = selfcheck.check_flow(
                flow.name, looks, flow.cc or self.arm.cc, self.arm.ecn,
                limited=flow.cwnd_limited and not flow.window,
            )  # fmt: skip
            problems += found
        problems += [f"{name} dropped {count} packets on their way to the link" for name, count in drops.items()]
        problems += self.problems
        unanswered = self._probe.unanswered if self._probe else None
        self.report = {
            "realtime": realtime,
            **machine,
            "probes_unanswered": unanswered,
            "flows": flows,
            "drops": drops,
            "problems": problems,
        }

    def _processes(self) -> dict[str, int]:
        if isinstance(self.lab, PathLab) or not self.lab.controller:
            return {}
        return {"switch": self.lab.access_point.process.pid, "controller": self.lab.controller.pid}

    def _require_running(self) -> None:
        for _, transfer, _ in self._flows:
            transfer.require_alive()
        for program in self._programs:
            program.require_alive()
        if not isinstance(self.lab, PathLab):
            self.lab.require_running()


def put_first() -> None:
    """Puts what runs in this lab before all else that the machine does, where that is permitted, and so what is started
    from now on. A fair scheduler makes timers late by its slices, whatever the niceness: 11 ms (p99) on a busy machine,
    where this leaves 1 ms. The kernel keeps 5 % of the time for others.

    Not before all of it runs: programs that start take a processor for a second, and other labs may be measuring. And
    without what sends: iperf3 spins while it waits for the other end to begin, and buffers spare it and `hosts` from
    being in time. What keeps the links' time comes first of all.
    """
    if os.getpid() != 1 or kernel.inside():
        return  # there is more here than a lab; or a user-mode kernel, which comes first as a whole
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):
            name = (task / "comm").read_text().strip()
            if name not in SENDERS:
                os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(2 if name in FORWARDERS else 1))
