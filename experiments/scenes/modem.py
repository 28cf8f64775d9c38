# SPDX-License-Identifier: Apache-2.0
"""A scene of LTE or WiMAX in ns-3 (accesspoint.topologies.ns3.lab): a terminal behind an access point whose uplink is
a modem."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from accesspoint.experiments.experiment import PLAIN, Arm, Point, Traffic
from accesspoint.experiments.lab.in_ns3 import SimulatedStage
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.scenes.cells import Simulation
from accesspoint.topologies.features import Features
from accesspoint.topologies.links.profiles import LinkProfile, link_options


@dataclass(frozen=True)
class Modem(Simulation):
    """A plain arm passes on what comes, which waits in the modem and in the cell; any other holds the links to what it
    is told, so that it waits here.

    profile: rates and queues of the access point's two ports, which are less than the radio carries; the round trip
    beyond the network. queue: of the modem and of the cell, in that network's unit: octets in LTE, packets in WiMAX.
    """

    profile: LinkProfile
    seconds: float
    traffic: tuple[Traffic, ...]
    queue: int
    network: Literal["lte", "wimax"]

    def simulate(
        self, arm: Arm, point: Point, seconds: float, seed: int, directory: Path
    ) -> tuple[list[Sample], dict[str, Any]]:
        """Simulate one run; return its samples, and other findings. Raises LabError."""
        from accesspoint.topologies.ns3 import lab as labs

        ports = {1: (self.profile.down, self.profile.down_limit), 2: (self.profile.up, self.profile.up_limit)}
        down, up = (
            "" if arm.features == PLAIN else link_options({"rate": f"{rate}bit", "limit": limit})
            for rate, limit in ports.values()
        )
        opened = {"lte": labs.lte, "wimax": labs.wimax}[self.network]
        with opened(seed, self.queue, self.profile.rtt / 2, down, up) as lab:
            lab.control(labs.config(ports, asdict(Features(**arm.features)), arm.controller))
            stage = SimulatedStage(lab, self, arm, point, seconds, seed)
            return stage.play(), stage.found
