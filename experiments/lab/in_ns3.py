# SPDX-License-Identifier: Apache-2.0
"""A scene of an access point on wires, in ns-3: the same links, switch, controller and timeline as in a lab of real
hosts, with ns-3's TCP in place of Linux's. Flows and probes are all that its hosts can do."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from accesspoint.experiments.experiment import Arm, Point, Scene
from accesspoint.experiments.lab.stage import WARM_UP, Flow, empty_pings, start_of
from accesspoint.experiments.measure.samples import INTERVAL, Sample
from accesspoint.topologies import targets
from accesspoint.topologies.features import Features
from accesspoint.topologies.links.profiles import LinkProfile
from accesspoint.topologies.requirements import LabError

if TYPE_CHECKING:
    from accesspoint.topologies.ns3.lab import Ns3Lab, Probe, Transfer


class Wires(Scene, Protocol):
    """The attributes that a simulation needs of a scene (accesspoint.experiments.scenes.scene.AccessPoint)."""

    @property
    def kind(self) -> str: ...
    @property
    def peers(self) -> tuple[str, ...]: ...
    @property
    def stations(self) -> int: ...
    def traced(self, directory: Path, seed: int | None) -> LinkProfile: ...


class SimulatedStage:
    """The stage for traffic in `prepare`, as far as ns-3's hosts have it (accesspoint.experiments.lab.stage.Stage)."""

    def __init__(self, lab: "Ns3Lab", scene: Scene, arm: Arm, point: Point, seconds: float, seed: int) -> None:
        self.lab, self.arm, self.point = lab, arm, point
        self.seconds, self.scale = seconds, seconds / scene.seconds
        self.seed = seed
        self.started = WARM_UP
        """s of the simulation."""
        self.found: dict[str, Any] = {}
        self._scene = scene
        self._flows: list[tuple[Flow, float, Transfer]] = []
        self._probes: list[tuple[str, Probe]] = []

    def __getattr__(self, name: str) -> Any:
        raise LabError(f"the scene needs real hosts, for `{name}` of its stage: leave LAB=ns3 out")

    def transfer(self, flow: Flow, options: list[str], address: str = "") -> None:
        """Plan a flow, as Stage.transfer does."""
        end = self._scene.seconds if flow.end is None else flow.end
        start = start_of(flow, self.seed, self.scale)
        made = self.lab.transfer(
            flow.direction, self.started + start, self.started + end * self.scale, flow.station,
            flow.cc or self.arm.cc, self.arm.ecn, flow.streams, flow.window or 0, interval=INTERVAL,
        )  # fmt: skip
        self._flows.append((flow, start, made))

    def probe(self, station: int, source: str = "") -> None:
        """Probe the round trip, as Stage.probe does."""
        self._probes.append((source, self.lab.probe(station)))

    def play(self) -> list[Sample]:
        """Prepare the traffic and play the timeline; return the samples. Raises LabError."""
        for part in self._scene.traffic:
            part.prepare(self)
        self.lab.run(self.started + self.seconds)
        samples = [sample for flow, start, made in self._flows for sample in self._rates(flow, start, made)]
        for source, probe in self._probes:
            samples += self._trips(source, probe)
        samples += [Sample(0.0, "empty_ping_ms", value) for value in empty_pings(samples)]
        return sorted((s for s in samples if 0 <= s.time <= self.seconds), key=lambda s: s.time)

    def _rates(self, flow: Flow, start: float, made: "Transfer") -> list[Sample]:
        samples = [Sample(start, "streams", float(flow.streams), source=flow.name)]

        def add(quantity: str, source: str, rates: Any) -> None:
            for number, rate in enumerate(rates.tolist()):
                first = number * INTERVAL - self.started
                if first + INTERVAL > start:
                    samples.append(Sample(first + INTERVAL / 2, quantity, rate, INTERVAL, source))

        add("rate_mbps", flow.name, made.rates())
        for stream in range(flow.streams if flow.each else 0):
            add("stream_mbps", f"{flow.name}/{stream}", made.rates(stream))
        return samples

    def _trips(self, source: str, probe: "Probe") -> list[Sample]:
        quantities: list[tuple[str, Callable[[Any], float]]] = [
            ("ping_ms", lambda row: row[1]), ("delay_up_ms", lambda row: row[2]), ("delay_down_ms", lambda row: row[3]),
        ]  # fmt: skip
        rows = probe.answers()[0].tolist()
        return [
            Sample(row[0] - self.started, quantity, of(row) * 1e3, source=source)
            for row in rows
            for quantity, of in quantities
        ]


def require(scene: Wires, arm: Arm, target: str = targets.DEFAULT) -> None:
    """Raises LabError for what a lab in ns-3 does not have."""
    if target != targets.DEFAULT:
        raise LabError(f"target '{target}' is not in ns-3, which has {targets.DEFAULT} alone: leave TARGET out")
    from accesspoint.topologies.lab_kinds import WIRED
    from accesspoint.topologies.ns3 import build, lab

    build.library()
    lab.congestion(arm.cc)
    if arm.controls:
        raise LabError(f"arm '{arm.name}' loads congestion controls in BPF, which ns-3 has not: leave LAB=ns3 out")
    if scene.kind != WIRED or scene.peers or "peer" in arm.options:
        raise LabError("the scene has radios or queue disciplines of Linux, which ns-3 has not: leave LAB=ns3 out")
    for part in scene.traffic:
        if type(part).__name__ not in ("Flow", "Probe"):
            raise LabError(f"the scene needs real hosts for its {type(part).__name__}: leave LAB=ns3 out")


def simulate(
    scene: Wires, arm: Arm, point: Point, seconds: float, seed: int, directory: Path
) -> tuple[list[Sample], dict[str, Any]]:
    """One run: its samples, and what was found that is no sample. Raises LabError."""
    from accesspoint.topologies.ns3 import lab as labs

    require(scene, arm)
    profile = scene.traced(directory, seed)
    ports = 1 if profile.shared else scene.stations
    rates = dict.fromkeys(range(1, ports + 1), (profile.down, profile.down_limit))
    rates[ports + 1] = (profile.up, profile.up_limit)
    told = {number: (arm.options.get("capacity") or rate, limit) for number, (rate, limit) in rates.items()}
    down, up = (
        ",".join(f"{name}={value}" for name, value in model.items())
        for model in (profile.down_model(), profile.up_model())
    )
    with labs.wired(seed, scene.stations, down, up, profile.shared) as lab:
        lab.control(labs.config(told, asdict(Features(**arm.features)), arm.controller))
        stage = SimulatedStage(lab, scene, arm, point, seconds, seed)
        return stage.play(), stage.found
