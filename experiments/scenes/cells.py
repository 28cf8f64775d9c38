# SPDX-License-Identifier: Apache-2.0
"""Scenes of 802.11 in ns-3 (accesspoint.topologies.ns3.cell): contention, rate control, queues in stations, in
simulated time.

    Cell(4, 60, (Transfer(1, "up"), Transfer(2, "up")), radio={"manager": "ns3::ArfWifiManager"})

They run without a lab, without root, and whatever the machine does beside them; a seed makes the same run to the byte.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, NoReturn

from accesspoint.experiments.experiment import PLAIN, Arm, Point, Traffic
from accesspoint.experiments.measure.samples import Sample
from accesspoint.topologies.features import configured
from accesspoint.topologies.kernels.kernel import Kernel
from accesspoint.topologies.requirements import LabError

OPENED = 2.0  # s of the timeline: by then every connection is open, and none has sent
SPREAD = 0.5  # s after it within which terminals begin to send
EACH = 0.05  # s between two terminals that connect
LIMIT = 1000  # packets that each port of our access point holds
HELD = 4  # packets that its radio holds: what else waits, waits where the switch can order and filter it
RADIO, UPLINK = 1, 2  # ports of our access point


class CellStage:
    """The stage for traffic in `prepare`."""

    def __init__(self, cell: Any, arm: Arm, seconds: float, scale: float, seed: int) -> None:
        """cell: an accesspoint.topologies.ns3.cell.Cell. seconds: of the run; scale: of it per second of the
        timeline."""
        self.cell, self.arm, self.seconds, self.scale = cell, arm, seconds, scale
        self._seed = seed

    def random(self, name: str) -> float:
        """A number from 0 to 1, of this run and this name."""
        return Random(f"{self._seed} {name}").random()


@dataclass(frozen=True)
class Transfer(Traffic):
    """TCP between a station and the server, from `start` to `end` of the timeline (None: to its end): as much as goes,
    or `length` bytes every `period` s of the run, which are sessions of one connection.

    It connects on the empty cell, as paper 002 says of its smallest round trip, or at its start where that is later.
    Samples of source `sta3`: `rate_mbps`; `cwnd` twice a second, and `rtt_ms`, `rtt_ratio`, `min_rtt_ms`, `recovering`
    where its windows can be bounded; `session_s` or `unfinished_s`, and `response_s`; at the run's end `timeouts`,
    `recoveries`.
    transport: the TypeId of its congestion control, with attributes; None: the arm's option `transport`, or CUBIC. The
    arm's option `quick_acks` has receivers acknowledge so many segments each by itself after a pause, as Linux does.
    """

    station: int
    direction: Literal["up", "down"]
    start: float = 0.0
    end: float | None = None
    length: int = 0
    period: float = 10.0
    transport: str | None = None

    def prepare(self, stage: CellStage) -> None:
        name = f"sta{self.station}"
        transport = self.transport or stage.arm.options.get("transport", "ns3::TcpBoundedCubic")
        late = self.start * stage.scale
        connect = max(late, 0.5 + EACH * self.station)
        send = max(late, OPENED + SPREAD * stage.random(name))
        first = {"first": send + self.period * stage.random(f"{name} session")} if self.length else {}
        stop = {} if self.end is None else {"stop": self.end * stage.scale}
        if self.length:
            stop = {"stop": stage.seconds if self.end is None else self.end * stage.scale}
        stage.cell.add(
            "flow", name=name, station=self.station, up=self.direction == "up", start=connect, send=send,
            length=self.length, period=self.period, transport=transport, ecn=stage.arm.ecn,
            quick_acks=int(stage.arm.options.get("quick_acks", 0)), **first, **stop,
        )  # fmt: skip


@dataclass(frozen=True)
class Datagrams(Traffic):
    """UDP at a rate above the cell's, shared by so many stations of a direction: samples `rate_mbps`."""

    station: int
    direction: Literal["up", "down"]
    mbps: float
    size: int = 1472

    def prepare(self, stage: CellStage) -> None:
        name = f"sta{self.station}"
        send = OPENED + SPREAD * stage.random(name)
        stage.cell.add(
            "stream", name=name, station=self.station, up=self.direction == "up", start=send, mbps=self.mbps,
            bytes=self.size,
        )  # fmt: skip


@dataclass(frozen=True)
class Bounding(Traffic):
    """The middleware of paper 002 on these stations, whose transfers come before it.

    bandwidth: BW_max, Mb/s. exponent: of f(n). turns: with what hosts/src/cwnd adds to the paper's rule.
    """

    stations: tuple[int, ...]
    bandwidth: float
    exponent: float
    turns: bool = False

    def prepare(self, stage: CellStage) -> None:
        for station in self.stations:
            stage.cell.add(
                "middleware", station=station, bandwidth=self.bandwidth, exponent=self.exponent, turns=self.turns
            )


class Simulation:
    """Base of scenes that a simulator alone has: all that a plan needs of them
    (accesspoint.experiments.experiment.Scene). simulator: its name among the versions of a run."""

    simulator = "ns-3"

    @property
    def load(self) -> float:
        return 1.0

    @property
    def solo(self) -> bool:
        return False

    @property
    def early(self) -> float:
        return 0.0

    def require(self, arm: Arm, target: str) -> None:
        from accesspoint.topologies.ns3 import build

        build.library()

    def kernel(self) -> Kernel | None:
        return None

    def lab(self, arm: Arm, target: str, directory: Path, seed: int | None = None) -> NoReturn:
        """Raise LabError: a simulation has no lab, and `simulate` makes its runs."""
        raise LabError("a simulated cell is no lab: leave CLOCK out")


WALK = ("leaves", "outage", "arrives")
"""Parameters of a cell's radio that are times of the timeline, as those of its traffic are (s)."""


@dataclass(frozen=True)
class Cell(Simulation):
    """Stations around an access point, and a server behind its wire.

    delay: of the wire, there and back (ms). radio: what the cell is told beside it, as
    topologies/ns3/cells/cell.cc names it, with the defaults there.
    """

    stations: int
    seconds: float
    traffic: tuple[Traffic, ...]
    delay: float = 4.0
    radio: Mapping[str, str | float] = field(default_factory=dict)

    def require(self, arm: Arm, target: str) -> None:
        if arm.features != PLAIN and "uplink_mbps" not in arm.options:
            raise LabError(f"arm '{arm.name}' does not say how fast its access point's uplink is: give uplink_mbps")
        super().require(arm, target)

    def simulate(
        self, arm: Arm, point: Point, seconds: float, seed: int, directory: Path
    ) -> tuple[list[Sample], dict[str, Any]]:
        """Simulate one run; return its samples, and other findings. Raises LabError."""
        from accesspoint.topologies.ns3.cell import Cell as Simulation

        ours: dict[str, str | float] = {}
        if arm.features != PLAIN:
            kbit = round(float(arm.options["uplink_mbps"]) * 1e3)
            ours = {"ours_radio": f"limit={LIMIT}", "held": HELD, "ours_uplink": f"rate={kbit}kbit,limit={LIMIT}"}
            ours["ours_options"] = f"--cpu-port 510 --seed {seed}"
        scale = seconds / self.seconds
        radio = {name: float(value) * scale if name in WALK else value for name, value in self.radio.items()}
        with Simulation(stations=self.stations, delay_ms=self.delay, seed=seed, **radio, **ours) as cell:
            if ours:
                cell.control(_configuration(arm, kbit * 1000))
            stage = CellStage(cell, arm, seconds, scale, seed)
            for part in self.traffic:
                part.prepare(stage)
            return [Sample(*reading) for reading in cell.run(seconds)], {}


def _configuration(arm: Arm, uplink: int) -> dict[str, Any]:
    """uplink: bit/s, below what the cell carries: so uploads wait here, and not in stations. What the radio carries is
    learned."""
    ports = [
        {"port": RADIO, "role": "station", "capacity_bps": "auto", "queue_limit": LIMIT, "roaming": True},
        {"port": UPLINK, "role": "uplink", "capacity_bps": uplink, "queue_limit": LIMIT},
    ]
    return {"name": "ap", **configured(ports, arm.features, arm.controller)}
