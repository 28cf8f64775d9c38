# SPDX-License-Identifier: Apache-2.0
"""Files over real QUIC, HTTP/3 of aioquic, beside a TCP upload."""

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
    goals_beside_cake,
    ping_added,
)
from accesspoint.experiments.experiment import Bars, Experiment, Measure, Quick, Timeline
from accesspoint.experiments.measure.run_data import mean, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

SECONDS, UP, DOWN_AGAIN = 180, 60, 120
PORT = 4433
FILE = 1_000_000  # bytes


@dataclass(frozen=True)
class Files:
    """Files of `FILE` bytes that the first station loads from the server, two at a time
    (accesspoint.experiments.scenes.http3). Samples are `rate_mbps` of source `name`."""

    name: str

    def prepare(self, stage: "Stage") -> None:
        words = (sys.executable, "-m", "accesspoint.experiments.scenes.http3")
        stage.program(stage.server, *words, "serve", stage.address, str(PORT)).await_line("ready")

        def begin() -> None:
            get = (*words, "get", stage.address, str(PORT), str(FILE))
            stage.program(stage.station(1), *get, take=lambda line: stage.take_rate(line, self.name))

        stage.at(0, begin)


EXPERIMENT = Experiment(
    name="quic",
    title="Files over QUIC during an upload",
    paper="none: the traffic of 000, sections 2 and 4.5, over QUIC (RFC 9000) and HTTP/3 (RFC 9114)",
    question="How much do a download over QUIC, whose ACKs are encrypted, and a TCP upload leave each other?",
    scene=AccessPoint(
        PROFILES["testbed"], SECONDS, (Files("download"), Flow("upload", "up", UP, DOWN_AGAIN)), peers=PEERS
    ),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        Measure("download_alone", "Mb/s", "files, before the upload", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "files during the upload", rate("download", UP, DOWN_AGAIN)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
        Measure("ping_mean", "ms", "ping under load, mean", mean("ping_ms", UP, DOWN_AGAIN), "{:.1f}"),
        ping_added(UP, DOWN_AGAIN),
    ),
    goals=goals_beside_cake(),
    figures=(
        Timeline("throughput", "Throughput over time.", ("download", "upload")),
        Bars("during", "While both run.", ("download_during", "upload_during"), "throughput (Mb/s)"),
    ),
    repeats=5,
    quick=Quick(seconds=18, arms=CAKE_AND_OURS),
    differences=(
        *DIFFERENCES,
        "QUIC is aioquic with NewReno, which does not use ECN: what is marked for others is dropped for it",
    ),
    clock=VIRTUAL,
)  # fmt: skip
