# SPDX-License-Identifier: Apache-2.0
"""A download during an upload and beside multicast, which an access point floods to every port."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accesspoint.experiments.catalogue.peers import (
    CAKE_AND_OURS,
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    ping_added,
)
from accesspoint.experiments.experiment import Bars, Experiment, Goal, Measure, Quick, Timeline
from accesspoint.experiments.measure.run_data import mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

SECONDS, UP, DOWN_AGAIN = 180, 60, 120
PROFILE = PROFILES["testbed"]
PART = 0.3  # of the downlink
GROUP, PORT = "239.1.2.3", "5004"


@dataclass(frozen=True)
class Multicast:
    """Multicast from the server to the first station, `part` of the downlink's rate, from `start` to `end` of the
    timeline. Samples are `rate_mbps` of source `name`."""

    name: str
    part: float
    start: float
    end: float

    def prepare(self, stage: "Stage") -> None:
        words = (sys.executable, "-m", "accesspoint.experiments.scenes.steady")
        station, server = stage.station(1), stage.server
        receive = (*words, "receive", station.IP(), GROUP, PORT)
        stage.program(station, *receive, take=lambda line: stage.take_rate(line, self.name)).await_line("ready")
        rate, seconds = self.part * PROFILE.down, (self.end - self.start) * stage.scale
        send = (*words, "send", server.IP(), GROUP, PORT, str(rate), str(seconds))

        def begin() -> None:
            stage.program(server, *send, may_end=True)

        stage.at(self.start, begin)


EXPERIMENT = Experiment(
    name="flood",
    title="A download during an upload and multicast",
    paper="none: the traffic of 000, sections 2 and 4.5, and what a switch floods",
    question="Are download and delay protected while 30 % of the downlink is multicast, which belongs to no flow of a "
    "station's?",
    scene=AccessPoint(
        PROFILE,
        SECONDS,
        (
            Flow("download", "down"),
            Flow("upload", "up", UP, DOWN_AGAIN),
            Multicast("multicast", PART, UP, DOWN_AGAIN),
        ),
        peers=PEERS,
    ),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        Measure("download_alone", "Mb/s", "download, before both", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download during both", rate("download", UP, DOWN_AGAIN)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
        Measure("multicast", "Mb/s", "multicast that arrives", rate("multicast", UP, DOWN_AGAIN)),
        Measure("ping_mean", "ms", "ping under load, mean", mean("ping_ms", UP, DOWN_AGAIN), "{:.1f}"),
        Measure("ping_p99", "ms", "ping under load, p99", quantile("ping_ms", 0.99, UP, DOWN_AGAIN), "{:.1f}"),
        ping_added(UP, DOWN_AGAIN),
    ),
    goals=(
        Goal(
            "this access point keeps {value} of what the multicast leaves of the download (at least {limit})",
            lambda medians: medians("download_during", "ours") / (1 - PART) / medians("download_alone", "ours"),
            at_least=0.98, shown="{:.1%}",
        ),
        Goal(
            "ping takes {value} (at most {limit})",
            lambda medians: medians("ping_mean", "ours"), at_most=20.0, shown="{:.1f} ms",
        ),
    ),
    figures=(
        Timeline("throughput", "Throughput over time.", ("download", "upload", "multicast")),
        Bars("during", "While all run.", ("download_during", "multicast", "upload_during"), "throughput (Mb/s)"),
        Bars("ping", "Ping while all run.", ("ping_mean", "ping_p99"), "round trip (ms)", log=True),
    ),
    repeats=5,
    quick=Quick(seconds=18, arms=CAKE_AND_OURS),
    differences=DIFFERENCES,
    clock=VIRTUAL,
)  # fmt: skip
