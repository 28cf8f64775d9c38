# SPDX-License-Identifier: Apache-2.0
"""Scenes of 802.11 in ns-2 (accesspoint.topologies.ns2.cell): its radios, queues and TCPs, in simulated time.

    Cell(2, 60, (Transfer(1, "down"), Transfer(2, "up", Tcp("Vegas"))), Radio(plcp=11, basic=11))

They run without a lab and without root; a seed makes the same run to the byte.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from accesspoint.experiments.experiment import Arm, Point, Traffic
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.scenes.cells import Simulation
from accesspoint.topologies.ns2 import cell
from accesspoint.topologies.ns2.cell import Radio, Tcp, Udp


@dataclass(frozen=True)
class Transfer(Traffic):
    """TCP or UDP between a station and the server, from `start` to `end` of the timeline (None: to its end): as much as
    goes, or of TCP `length` bytes every `period` s of the run, which are sessions of one connection.

    It starts up to `within` s of the run later, by the run's seed. Samples of source `name`, or `sta3`: `rate_mbps`,
    `cwnd`; `session_s` or `unfinished_s`.
    """

    station: int
    direction: Literal["up", "down"]
    source: Tcp | Udp = Tcp()
    start: float = 0.0
    end: float | None = None
    within: float = 0.0
    length: int = 0
    period: float = 10.0
    name: str = ""

    def prepare(self, stage: "Stage") -> None:
        name = self.name or f"sta{self.station}"
        start = self.start * stage.scale + self.within * Random(f"{stage.seed} {name}").random()
        stop = 0.0 if self.end is None else self.end * stage.scale
        up = self.direction == "up"
        stage.flows.append(cell.Flow(name, self.station, up, self.source, start, stop, self.length, self.period))


@dataclass
class Stage:
    """The stage for traffic in `prepare`. scale: s of the run for a second of the timeline."""

    scale: float
    seed: int
    flows: list[cell.Flow] = field(default_factory=list)


@dataclass(frozen=True)
class Cell(Simulation):
    """Stations around an access point, and a server behind its wire, in ns-2."""

    stations: int
    seconds: float
    traffic: tuple[Transfer, ...]
    radio: Radio = Radio()

    simulator = "ns-2"

    def require(self, arm: Arm, target: str) -> None:
        cell.version()

    def simulate(
        self, arm: Arm, point: Point, seconds: float, seed: int, directory: Path
    ) -> tuple[list[Sample], dict[str, Any]]:
        """Simulate one run; return its samples, and other findings. Raises LabError."""
        stage = Stage(seconds / self.seconds, seed)
        for part in self.traffic:
            part.prepare(stage)
        readings = cell.simulate(self.radio, stage.flows, self.stations, seconds, seed)
        return [Sample(*reading) for reading in readings], {}
