# SPDX-License-Identifier: Apache-2.0
"""Transports whose ACKs cannot be seen: an access point that puts ACKs first has nothing to put first."""

from accesspoint.experiments.catalogue.peers import (
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    QUICK_ARMS,
    ping_added,
)
from accesspoint.experiments.experiment import Bars, Experiment, Goal, Measure, Quick, Timeline
from accesspoint.experiments.measure.run_data import mean, rate
from accesspoint.experiments.scenes.datagrams import Datagrams
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

SECONDS, UP, DOWN_AGAIN = 180, 60, 120
PORT = 4433

EXPERIMENT = Experiment(
    name="unseen-acks",
    title="A download like QUIC's during an upload",
    paper="none: the traffic of 000, sections 2 and 4.5, over another transport",
    question="What is left of a download during an upload when its ACKs are datagrams like any other (QUIC, VPNs)?",
    scene=AccessPoint(
        PROFILES["testbed"],
        SECONDS,
        (Datagrams("download", "down", station=1, port=PORT), Flow("upload", "up", UP, DOWN_AGAIN)),
        peers=PEERS,
    ),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download during the upload", rate("download", UP, DOWN_AGAIN)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
        Measure("ping_mean", "ms", "ping under load, mean", mean("ping_ms", UP, DOWN_AGAIN), "{:.1f}"),
        ping_added(UP, DOWN_AGAIN),
    ),
    goals=(
        Goal(
            "the download is no worse than with a plain FIFO: {value} times it (at least {limit})",
            lambda medians: medians("download_during", "ours") / medians("download_during", "fifo"), at_least=1.0,
        ),
        Goal(
            "this access point keeps the download: {value} of alone (at least {limit})",
            lambda medians: medians("download_during", "ours") / medians("download_alone", "ours"),
            at_least=0.97, shown="{:.1%}",
        ),
        Goal(
            "the upload gets {value} (at least {limit})",
            lambda medians: medians("upload_during", "ours"), at_least=0.60, shown="{:.2f} Mb/s",
            why="as long as every ACK of the download is sent, both together would take 1.1 times the link",
        ),
        Goal(
            "ping takes {value} (at most {limit})",
            lambda medians: medians("ping_mean", "ours"), at_most=11.0, shown="{:.1f} ms",
        ),
    ),
    figures=(
        Timeline("throughput", "Throughput over time.", ("download", "upload")),
        Bars("during", "While both run.", ("download_during", "upload_during"), "throughput (Mb/s)"),
    ),
    repeats=5,
    quick=Quick(seconds=18, arms=QUICK_ARMS),
    differences=(
        *DIFFERENCES,
        "the transport has QUIC's packets, ACK frequency and congestion control (NewReno), and no encryption: "
        "nothing on the way looks inside",
    ),
    clock=VIRTUAL,
)  # fmt: skip
