# SPDX-License-Identifier: Apache-2.0
"""Scenes: the labs of experiments with the traffic in them, as data.

    AccessPoint(PROFILES["testbed"], 180, (Flow("download", "down"), Flow("upload", "up", 60, 120)))
    Multihomed((Link("phone", "server", {"rate": "633kbit"}),), 60, (Program("serve", ...),))

Traffic of one's own is any object with `prepare(stage)`: see accesspoint.experiments.lab.stage.Stage for what it may
do there.
"""

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from accesspoint.experiments.experiment import Arm, Point, Traffic
from accesspoint.experiments.lab.stage import Flow as Flow
from accesspoint.experiments.lab.stage import PathLab, Stage
from accesspoint.experiments.measure.samples import Sample
from accesspoint.topologies import lab_kinds
from accesspoint.topologies.features import Features
from accesspoint.topologies.kernels.kernel import Kernel
from accesspoint.topologies.links.peers import kernel_for
from accesspoint.topologies.links.profiles import LinkProfile
from accesspoint.topologies.requirements import ROOT, LabError

if TYPE_CHECKING:
    from accesspoint.topologies.targets import Port

EARLY = 4.0  # s: programs come up late in a user-mode kernel, where radios mostly are
HOSTS = Path(os.environ.get("HOSTS", ROOT / "target/release/hosts"))


def require_hosts() -> None:
    """Raises LabError when the program `hosts` is missing."""
    if not os.access(HOSTS, os.X_OK):
        raise LabError(f"the program {HOSTS} is missing: build it with `make hosts`")


@dataclass(frozen=True)
class Sessions:
    """The traffic of paper 001: half of `users` send all the time, the others `length` bytes every `period` seconds of
    the run, user n from or to station n.

    Samples of source `sta3`, at a session's start: `session_s`, what it took from start to end; or `unfinished_s`, the
    time that it had; and `session_bytes`, what it carried.
    """

    users: int
    length: int
    direction: Literal["down", "up"]
    period: float = 10.0

    def prepare(self, stage: Stage) -> None:
        require_hosts()
        words = ["--nodes", self.users, "--length", self.length, "--period", self.period]
        model = stage.directory / "sessions.json"
        words += ["--direction", self.direction, "--seconds", f"{stage.seconds:.3f}"]
        done = subprocess.run([str(HOSTS), "sessions", "model", *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            raise LabError(done.stderr.strip().removeprefix("error: "))
        model.write_text(done.stdout)
        serve = [str(HOSTS), "sessions", "serve", "--listen", "[::]:8640", "--open", "--congestion", stage.arm.cc]
        listening = stage.program(stage.server, *serve)
        listening.await_line("listening on")
        for user in (user["name"] for user in json.loads(done.stdout)["users"]):
            host = stage.station(int(user.removeprefix("sta")))
            command = [str(HOSTS), "sessions", "run", str(model), "--to", stage.address, "--user", user, "--json"]
            command += ["--at", f"{stage.started:.6f}", "--congestion", stage.arm.cc]
            stage.program(host, *command, take=lambda line: self._take(stage, line), reports=True)

    def _take(self, stage: Stage, line: str) -> None:
        session: dict[str, Any] = json.loads(line) if line.startswith("{") else {"kind": "error"}
        if session["kind"] == "error" or session.get("outcome") == "failed":
            stage.problems.append(f"sessions: {line.strip()}")
        if session["kind"] != "session":
            return
        start, user = session["start"], session["user"]
        if session["outcome"] == "finished":
            stage.sample(start, "session_s", session["finish"], source=user)
        elif session["outcome"] == "unfinished":
            stage.sample(start, "unfinished_s", session["elapsed"], source=user)
        stage.sample(start, "session_bytes", session["bytes"], source=user)


@dataclass(frozen=True)
class Program:
    """A command in some hosts for the whole run, started before the clock: a middleware, a proxy.

    stations: by number. command: its words; "{hosts}" is the program `hosts`, "{server}" the server's address,
    "{directory}" the run's own. ready: what the line that says it runs begins with; None: nobody waits.
    """

    stations: Sequence[int]
    command: Sequence[str]
    ready: str | None = None

    def prepare(self, stage: Stage) -> None:
        known = {"hosts": str(HOSTS), "server": stage.address, "directory": str(stage.directory)}
        started = [
            stage.program(stage.station(number), *(word.format(**known) for word in self.command))
            for number in self.stations
        ]
        for program in started:
            if self.ready is not None:
                program.await_line(self.ready)


@dataclass(frozen=True)
class At:
    """Something that happens at a time."""

    second: float
    do: Callable[[Stage], None]

    def prepare(self, stage: Stage) -> None:
        stage.at(self.second, lambda: self.do(stage))


@dataclass(frozen=True)
class Walk:
    """The first station walks from the first access point to the last, from `start` to `end`. What a run found has the
    access points that stations were behind: `from` before, `to` at the timeline's end."""

    start: float
    end: float

    def prepare(self, stage: Stage) -> None:
        stage.found["from"] = stage.lab.associations()
        start, end = self.start * stage.scale, self.end * stage.scale
        stage.always(lambda: stage.lab.walk(min(1.0, max(0.0, (stage.now() - start) / (end - start)))))
        stage.at(stage.seconds / stage.scale, lambda: stage.found.update(to=stage.lab.associations()))


@dataclass(frozen=True)
class Probe:
    """A round-trip probe between a station and the server, 20 times a second: samples `ping_ms`, `delay_up_ms`,
    `delay_down_ms` of `source`. It is also how late timers are."""

    station: int = 1
    source: str = ""

    def prepare(self, stage: Stage) -> None:
        stage.probe(self.station, self.source)


@dataclass(frozen=True)
class Effect:
    """A wireless link's effect in place of its rate (accesspoint.topologies.links.effects): a trace in the run's
    folder, from the run's seed.

    rate: bit/s. seconds: after which it begins again. own: parameters of the effect. number: of several in one run,
    whose traces differ.
    """

    name: str
    rate: float
    seconds: float = 60.0
    number: int = 0
    own: Mapping[str, float] = field(default_factory=dict)

    def trace(self, directory: Path, seed: int | None) -> tuple[Path, float]:
        """Write the trace; return its file and its mean rate (bit/s). seed: None for another one each time. Raises
        TraceError."""
        from accesspoint.topologies.links import effects

        directory.mkdir(parents=True, exist_ok=True)
        chosen = (secrets.randbits(32) if seed is None else seed) + self.number
        trace = effects.generate(self.name, self.rate, self.seconds, chosen, **self.own)
        file = directory / f"{self.name}-{self.rate / 1e3:.0f}kbit-{chosen}.trace"
        trace.write(file)
        return file.resolve(), trace.rate


@dataclass(frozen=True)
class AccessPoint:
    """An access point, its stations and a server behind its uplink: accesspoint.topologies.mininet.network.Lab, as
    each arm sets it.

    seconds: length of the timeline. A probe of the first station belongs to it, unless not `probed`. peers: the queue
    disciplines of Linux (accesspoint.topologies.links.peers) that arms name as their option `peer`; then all arms run
    in one kernel that has them. up_effect, down_effect: take the place of the uplink's and of the downlink's rate.
    told_means: who is told rates, controller or peer, is told the mean of each run's own trace in place of the
    profile's; an arm whose option `capacity` is "auto" is told none. kind: of lab (accesspoint.topologies.lab_kinds);
    on radios there may be several access_points, places tells at which one each station begins (none: all at the
    first), air is what radios do to frames, and wpa2 whether stations have a key.
    """

    profile: LinkProfile
    seconds: float
    traffic: tuple[Traffic, ...]
    stations: int = 1
    probed: bool = True
    peers: tuple[str, ...] = ()
    up_effect: Effect | None = None
    down_effect: Effect | None = None
    told_means: bool = False
    kind: str = lab_kinds.WIRED
    access_points: int = 1
    places: tuple[int, ...] = ()
    air: str = "plain"
    wpa2: bool = False

    def __post_init__(self) -> None:
        if self.probed and not any(isinstance(one, Probe) for one in self.traffic):
            object.__setattr__(self, "traffic", (*self.traffic, Probe()))

    @property
    def load(self) -> float:
        return 2.0 if self.solo else 0.96 + 0.04 * self.stations

    @property
    def solo(self) -> bool:
        # A user-mode kernel's timers are late as soon as it has to wait for its processor.
        return bool(self.peers) or self.kind == lab_kinds.WIRELESS

    @property
    def early(self) -> float:
        return EARLY if self.kind == lab_kinds.WIRELESS else 0.0

    def ports(self) -> "dict[int, Port]":
        """Ports of the switch, as the kind of lab has them."""
        return lab_kinds.lab_class(self.kind).switch_ports(self.profile, self.stations)

    def require(self, arm: Arm, target: str) -> None:
        from accesspoint.topologies import targets

        if self.access_points > 1 and self.kind != lab_kinds.WIRELESS:
            raise LabError(f"the experiment needs more than one access point: give LAB={lab_kinds.WIRELESS}")
        targets.find(target).check(self.ports(), asdict(Features(**arm.features)))
        self.kernel()

    def kernel(self) -> Kernel | None:
        if self.kind == lab_kinds.WIRELESS:
            return lab_kinds.kernel_of_radios(self.air, self.wpa2)
        return kernel_for(list(self.peers)) if self.peers else None

    def lab(self, arm: Arm, target: str, directory: Path, seed: int | None = None) -> AbstractContextManager[Any]:
        made = lab_kinds.lab_class(self.kind)  # before anything else imports Mininet
        profile = self.traced(directory, seed)
        if "peer" in arm.options:
            from accesspoint.topologies.mininet.peer_network import PeerLab

            peer, classes = arm.options["peer"], arm.options.get("classes", ())
            return PeerLab(profile, directory, self.stations, cc=arm.cc, ecn=arm.ecn, peer=peer, classes=classes)
        features = Features(**arm.features)
        radios: dict[str, Any] = {}
        if self.kind == lab_kinds.WIRELESS:
            radios = {"access_points": self.access_points, "places": self.places, "air": self.air, "wpa2": self.wpa2}
        return made(
            profile, directory, self.stations, features, arm.cc, arm.ecn, stats=True, target=target,
            settings=arm.controller, seed=seed, capacity=arm.options.get("capacity"), **radios,
        )  # fmt: skip

    def traced(self, directory: Path, seed: int | None) -> LinkProfile:
        """The links of one run, with traces in place of rates where the scene has effects. Raises TraceError."""
        profile = self.profile
        if self.up_effect:
            file, mean = self.up_effect.trace(directory, seed)
            profile = replace(profile, up_trace=str(file), up=round(mean) if self.told_means else profile.up)
        if self.down_effect:
            file, mean = self.down_effect.trace(directory, seed)
            profile = replace(profile, down_trace=str(file), down=round(mean) if self.told_means else profile.down)
        return profile

    def simulate(
        self, arm: Arm, point: Point, seconds: float, seed: int, directory: Path
    ) -> tuple[list[Sample], dict[str, Any]]:
        """Simulate one run in ns-3 (accesspoint.experiments.lab.in_ns3); return its samples, and findings that are no
        samples. Raises LabError."""
        from accesspoint.experiments.lab import in_ns3

        return in_ns3.simulate(self, arm, point, seconds, seed, directory)


@dataclass(frozen=True)
class Link:
    """A link of a multihomed scene: `model` is how packets travel from `a` to `b`
    (accesspoint.topologies.links.paths.Paths.link),
    `back` what differs on the way back. effect: takes the place of its rate from `a` to `b`."""

    a: str
    b: str
    model: Mapping[str, Any]
    back: Mapping[str, Any] = field(default_factory=dict)
    effect: Effect | None = None


@dataclass(frozen=True)
class Multihomed:
    """Hosts joined by links of their own: accesspoint.topologies.links.paths.Paths. Hosts are made as links name them;
    the last one named is the server, the others stations in this order."""

    links: tuple[Link, ...]
    seconds: float
    traffic: tuple[Traffic, ...]

    @property
    def load(self) -> float:
        return 0.3  # no switch, no controller

    @property
    def solo(self) -> bool:
        return False

    @property
    def early(self) -> float:
        return 0.0

    def require(self, arm: Arm, target: str) -> None:
        if target != "apswitch":
            raise LabError(f"target '{target}' is not possible here: there is no access point; leave TARGET out")

    def kernel(self) -> Kernel | None:
        return None

    @contextmanager
    def lab(self, arm: Arm, target: str, directory: Path, seed: int | None = None) -> Iterator[PathLab]:
        from accesspoint.topologies.links.paths import Paths

        directory.mkdir(parents=True, exist_ok=True)
        with Paths(seed) as paths:
            names = dict.fromkeys(name for link in self.links for name in (link.a, link.b))
            server = self.links[-1].b
            hosts = {name: paths.host(name) for name in [*(n for n in names if n != server), server]}
            links = []
            for link in self.links:
                wire = {"trace": link.effect.trace(directory, seed)[0]} if link.effect else {}
                links.append(paths.link(hosts[link.a], hosts[link.b], back=dict(link.back), **link.model, **wire))
            for made in links:
                for host, interface, address in ((made.a, made.a_if, made.a_ip), (made.b, made.b_if, made.b_ip)):
                    host.set("net.ipv4.tcp_ecn", int(arm.ecn))
                    # By route: a namespace may make its default only what the whole machine allows.
                    network = f"{address.rpartition('.')[0]}.0/24"
                    host.ip("route", "change", network, "dev", interface, "src", address, "congctl", arm.cc)
            yield PathLab(hosts, links)
