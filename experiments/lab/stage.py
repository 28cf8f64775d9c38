# SPDX-License-Identifier: Apache-2.0
"""A lab with a clock: the stage that traffic is prepared on, and that plays it."""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Literal

from accesspoint.experiments.experiment import Arm, Point, Scene
from accesspoint.experiments.lab import selfcheck, traffic
from accesspoint.experiments.measure.samples import Sample, by_direction
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.requirements import LabError

WARM_UP = 1.5  # s before the clock starts: probing begins, addresses are learned
WARM_UP_EACH = 0.05  # s more for each part of the traffic
TICK = 0.1  # s between two looks at the clock
STAGGER = 0.1  # s within which a flow starts: some round trips, and a part of what is not averaged
LOOKS = 5  # at each flow's connections
READY_TIMEOUT = 10.0  # s
REPORT_TIMEOUT = 10.0  # s after the end; hosts wait for half of it for a server
SENDERS = ("iperf3", "hosts")  # the kernel's names of programs
RECENT = 1.0  # s that the live line is of
MAX_RECENT = 200  # samples read for it
FORWARDERS = ("packets", "simple_switch_g")  # of threads that keep the links' time


@dataclass(frozen=True)
class Flow:
    """TCP between a station and the server, as much as goes, from `start` to `end` (None: the scene's end).

    It starts up to STAGGER seconds of the run later, as the run's seed has it, so that repeats are not one run
    made again. Its samples are `rate_mbps` of source `name`. streams: parallel connections, sampled as one. each: every
    one of them is sampled, too, as `stream_mbps` of source `name/number`. cc: of its sender, None: the arm's. window:
    bytes of its socket buffers (None: the kernel's own). cwnd_limited: the self-check expects the congestion window to
    limit it; without `window` it does.
    """

    name: str
    direction: Literal["down", "up"]
    start: float = 0.0
    end: float | None = None
    station: int = 1
    streams: int = 1
    each: bool = False
    cc: str | None = None
    window: int | None = None
    cwnd_limited: bool = True

    def prepare(self, stage: "Stage") -> None:
        options = ["-C", self.cc] if self.cc else []
        if self.window:
            options += ["-w", str(self.window)]
        stage.transfer(self, options)


class PathLab:
    """Hosts by name and links in order, as a stage needs them."""

    def __init__(self, hosts: dict[str, Any], links: list[Any]) -> None:
        self.hosts, self.links = hosts, links
        self.stations, self.server = list(hosts.values())[:-1], list(hosts.values())[-1]
        self.address = links[0].b_ip


class Program:
    """A command in a host, from now until the run ends. It may end by itself only if it `may_end`, and has to when the
    run does if it `reports`."""

    def __init__(
        self, host: Any, command: tuple[str, ...], take: Callable[[str], None] | None, may_end: bool, reports: bool
    ) -> None:
        self.name = f"{command[0].rpartition('/')[2]} {' '.join(command[1:3])} at {host.name}"
        self._take, self._may_end, self.reports = take, may_end or reports, reports
        self._said: list[str] = []
        self._news = threading.Condition()
        self.process = traffic.popen(host, list(command))
        self._reader = traffic.Reader(self.process, self._hear)

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

    def await_end(self, deadline: float) -> None:
        """Return when all that it printed has been taken. deadline: of `time.monotonic`. Raises LabError."""
        self._reader.join(max(0.0, deadline - time.monotonic()))
        if self._reader.is_alive():
            raise LabError(f"{self.name} did not end with the run: {self._last()}")
        if self.process.wait():
            raise LabError(f"{self.name} failed: {self._last()}")

    def _last(self) -> str:
        return next((line.strip() for line in reversed(self._said) if line.strip()), "no output")


class Stage:
    """The stage that `prepare` gets: the lab, the arm, the point, the clock; and where samples go.

    seconds: how long the run takes, scale: seconds of it per second of the timeline. started: when the clock starts, s
    since the epoch. samples: times count from then.
    """

    def __init__(
        self,
        lab: Any,
        scene: Scene,
        arm: Arm,
        point: Point,
        seconds: float,
        seed: int,
        directory: Path,
        repeat: int = 1,
    ) -> None:
        self.lab, self.arm, self.point = lab, arm, point
        self.seconds, self.scale = seconds, seconds / scene.seconds
        self.seed, self.directory, self.repeat = seed, directory, repeat
        self.samples: list[Sample] = []  # of the run that was played, in order; what comes later is none
        self._arriving: list[Sample] = []
        self.problems: list[str] = []  # what makes the run unfit, for people
        self.report: dict[str, Any] = {}
        self.found: dict[str, Any] = {}  # what parts of the traffic found out that is no sample
        self.digest: Callable[[list[Sample]], list[Sample]] | None = None  # of all samples; the run's are its results
        self._scene = scene
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._always: list[Callable[[], None]] = []
        self._count = itertools.count()
        self._programs: list[Program] = []
        self._flows: list[tuple[Flow, traffic.Transfer, list[str]]] = []
        self._probes: list[traffic.Probe] = []
        self._over = False
        parts = len(scene.traffic) + len(lab.stations)
        self.started = time.time() + WARM_UP + WARM_UP_EACH * parts + scene.early

    # For traffic.

    def station(self, number: int) -> Any:
        """A host: `run(*command)`, `popen(*command)`, `name`."""
        return self.lab.stations[number - 1]

    @property
    def server(self) -> Any:
        return self.lab.server

    @property
    def address(self) -> str:
        """The server's address."""
        return str(self.lab.address if isinstance(self.lab, PathLab) else self.lab.server.IP())

    def now(self) -> float:
        """s since the clock's start; negative before."""
        return time.time() - self.started

    def at(self, second: float, action: Callable[[], None]) -> None:
        """Does something at a second of the timeline."""
        self._events.append((second * self.scale, next(self._count), action))

    def always(self, action: Callable[[], None]) -> None:
        """Does something some times a second, from before the clock's start to the end."""
        self._always.append(action)

    def finish(self) -> None:
        """End the run early: all that there is to measure has been measured."""
        self._over = True

    def sample(self, when: float, quantity: str, value: float, span: float = 0.0, source: str = "") -> None:
        """Keeps a measurement. when: s since the clock's start, the middle of `span`."""
        self._arriving.append(Sample(when, quantity, value, span, source))

    def program(
        self,
        host: Any,
        *command: str,
        take: Callable[[str], None] | None = None,
        may_end: bool = False,
        reports: bool = False,
    ) -> Program:
        """Starts a command in a host now; it ends with the run. take: gets each line that it prints. reports: it ends
        by itself when the run does, and what it prints then is waited for."""
        program = Program(host, command, take, may_end, reports)
        self._programs.append(program)
        return program

    def transfer(self, flow: Flow, options: list[str], address: str = "") -> None:
        """Plans a flow: iperf3 at both ends, looked at some times on its way. address: of who sends, where it has
        another one for this flow."""
        sender, receiver = self.ends(flow.direction, flow.station)
        port = traffic.IPERF_PORT + sum(before.streams for before, _, _ in self._flows)
        made = traffic.Transfer(
            sender, receiver, address or self._address_of(flow), self._arriving, self.started, quantity="rate_mbps",
            source=flow.name, port=port, streams=flow.streams, each=flow.each,
            options=options, stops="sender" if flow.direction == "up" else "receiver",
        )  # fmt: skip
        looks: list[str] = []
        self._flows.append((flow, made, looks))
        end = self._scene.seconds if flow.end is None else flow.end
        early = 0.0 if flow.start else self._scene.early
        start = start_of(flow, self.seed, self.scale) - early
        self.at(start / self.scale, lambda: self._begin(flow, made, (end - flow.start) * self.scale + early))
        for look in range(LOOKS):
            self.at(flow.start + (end - flow.start) * (look + 0.5) / LOOKS, lambda: looks.append(made.tcp_info()))
        self.at(end, made.end)

    def ends(self, direction: str, station: int) -> tuple[Any, Any]:
        """Returns the hosts of a transfer: who sends, who receives. direction: "up" or "down"."""
        ends = self.server, self.station(station)
        return ends[::-1] if direction == "up" else ends

    def take_rate(self, line: str, name: str = "", span: float = 0.25) -> None:
        """Keeps a line `time Mb/s` or `time Mb/s name`, of a program that prints one at the end of each `span` (s), as
        a sample of flow `name`; other lines are none."""
        fields = line.split()
        if len(fields) in (2, 3):
            at, name = float(fields[0]) - self.started - span / 2, fields[2] if len(fields) == 3 else name
            self.sample(at, "rate_mbps", float(fields[1]), span, name)

    def _address_of(self, flow: Flow) -> str:
        """The address of the host that sends."""
        if flow.direction == "down":
            return self.address
        station = self.station(flow.station)
        if not isinstance(self.lab, PathLab):
            return str(station.IP())
        return next(str(link.a_ip) for link in self.lab.links if link.a is station)

    def _begin(self, flow: Flow, made: traffic.Transfer, seconds: float) -> None:
        """Start a flow, and keep a sample that it was started: a flow that never comes up has no other."""
        self.sample(max(0.0, self.now()), "streams", float(flow.streams), source=flow.name)
        made.begin(seconds)

    def probe(self, station: int, source: str = "") -> None:
        """Probes the round trip from now to the end; samples are of `source`."""
        seconds, before = self.seconds + self.started - time.time(), len(self._probes)
        made = traffic.Probe(
            self.station(station), self.server, self.address, self._arriving, self.started, seconds, self.seed + before,
            source, traffic.PROBE_PORT + before,
        )  # fmt: skip
        self._probes.append(made)

    # For the runner.

    def play(self, tick: Callable[[], None] = lambda: None) -> None:
        """Prepares the traffic, waits for the clock, plays the timeline, and checks the lab. Raises LabError."""
        for part in self._scene.traffic:
            part.prepare(self)
        for _, transfer, _ in self._flows:
            transfer.await_listening()
        left = -self._scene.early - self.now()
        if left < 0:
            self.problems.append(f"the traffic was ready {-left:.1f} s late")
        time.sleep(max(0.0, left))
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
                for each in (*self._always, tick):
                    each()
                self._require_running()
            if self._over:
                break
            action()
        load = cpu.read() | {"runner_cpu": round((time.process_time() - runner) / self.now(), 4)}
        dropped = drops.since()
        self._await_reports()
        self._check(load, late, dropped)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        arrived = list(self._arriving)
        arrived += [Sample(0.0, "empty_ping_ms", value) for value in empty_pings(arrived, -self._scene.early)]
        self.samples = sorted((s for s in arrived if 0 <= s.time <= self.seconds), key=lambda s: s.time)

    def live(self) -> str:
        """Return the rates and the round trip of the last second, in a line."""
        since, means = self.now() - RECENT, {"down": 0.0, "up": 0.0}
        recent = [s for s in self._arriving[-MAX_RECENT:] if s.time > since]
        for flow, _, _ in self._flows:
            means[flow.direction] += _mean(
                [s.value for s in recent if (s.quantity, s.source) == ("rate_mbps", flow.name)]
            )
        ping = _mean([s.value for s in recent if s.quantity == "ping_ms"])
        return f"down {means['down']:.1f}  up {means['up']:.2f} Mb/s  ping {ping:.0f} ms"

    @property
    def has_flows(self) -> bool:
        return bool(self._flows)

    def both_ways(self) -> list[Sample]:
        """The flows' rates by direction, `downlink_mbps` and `uplink_mbps`, summed up where several go the same way;
        and the probe's samples, of the run that was played."""
        ways = {flow.name: flow.direction for flow, _, _ in self._flows}
        return by_direction(self.samples, ways, self.seconds)

    def _check(self, load: dict[str, float], late: list[float], drops: dict[str, int]) -> None:
        # The probes' timers if they have any answer: a queue may hold all of their packets.
        late = [each for probe in self._probes for each in probe.late] or late
        realtime = os.sched_getscheduler(0) == os.SCHED_RR
        machine, problems = selfcheck.check_machine(load, late, realtime)
        radios = {} if isinstance(self.lab, PathLab) else self.lab.radio_drops()
        held = selfcheck.held_back(kernel.clock(), bool(radios))
        flows = {}
        for flow, _, looks in self._flows:
            flows[flow.name], found = selfcheck.check_flow(
                flow.name, looks, flow.cc or self.arm.cc, self.arm.ecn,
                limited=flow.cwnd_limited and not flow.window, held=held,
            )  # fmt: skip
            problems += found
        problems += selfcheck.check_ecn([looks for _, _, looks in self._flows], self.arm.ecn)
        # Radios count the frames that they drop; their hosts' interfaces count others, too.
        drops = drops if not radios else {}
        problems += [f"{name} dropped {count} packets on their way to the link" for name, count in drops.items()]
        problems += [
            f"the radio of {name} dropped {count} frames: it carries less than the link's rate"
            for name, count in radios.items()
            if count
        ]
        problems += self.problems
        unanswered = sum(probe.unanswered for probe in self._probes) if self._probes else None
        self.report = {
            "realtime": realtime,
            **machine,
            "probes_unanswered": unanswered,
            "flows": flows,
            "drops": drops,
            "radio_drops": radios,
            "problems": problems,
        }

    def _await_reports(self) -> None:
        """Hear what programs have to say at the end of a run that was not ended early. Raises LabError."""
        deadline = time.monotonic() + REPORT_TIMEOUT
        for program in self._programs:
            if program.reports and not self._over:
                program.await_end(deadline)

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


def _mean(values: list[float]) -> float:
    return fmean(values) if values else 0.0


def start_of(flow: Flow, seed: int, scale: float) -> float:
    """Return a flow's start, in seconds of the run."""
    return flow.start * scale + STAGGER * Random(f"{seed} {flow.name}").random()


def empty_pings(samples: list[Sample], end: float = 0.0) -> list[float]:
    """Round trips (ms) of the probes before `end` (s of the clock), when nobody else sends.

    Those that a source sent before its first answer are left out: they waited for the path, whose addresses were not
    known yet.
    """
    before = [s for s in samples if s.quantity == "ping_ms" and s.time < end]
    answers: dict[str, float] = {}
    for sample in before:
        answers[sample.source] = min(sample.time + sample.value / 1000, answers.get(sample.source, end))
    return [s.value for s in before if s.time >= answers[s.source]]


def put_first() -> None:
    """Give real-time priority, where permitted, to all that runs in this lab, and so to what is started from now on. A
    fair scheduler makes timers late by its slices, whatever the niceness: 11 ms (p99) on a busy machine, where this
    leaves 1 ms. The kernel keeps 5 % of the time for others.

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
