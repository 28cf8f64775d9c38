# SPDX-License-Identifier: Apache-2.0
"""The testbed's upload beside its download, behind what Linux offers: FIFO, fq_codel, CAKE, CAKE and its ACK filter."""

from accesspoint.experiments.catalogue.peers import (
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    goals_beside_cake,
    measured_before,
    ping_added,
)
from accesspoint.experiments.experiment import Arm, Bars, Experiment, Goal, Measure, Quick, Timeline
from accesspoint.experiments.measure.run_data import mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

SECONDS, UP, DOWN_AGAIN = 180, 60, 120
BURSTS = Arm(
    "cake-rtt", "CAKE with its ACK filter, and rtt 1s on the downlink", "peer", options={"peer": "cake-rtt"}
)  # fmt: skip
"""ACKs that a frame of the upload has held back arrive at once, and what they release waits longer in the downlink's
queue than the target of 5 ms: by default CAKE marks that."""

EXPERIMENT = Experiment(
    name="peers-testbed",
    title="A download during an upload, behind queue disciplines of Linux",
    paper="none: the traffic of 000, sections 2 and 4.5",
    question="Do today's queue disciplines keep a download alive during an upload as well as this access point does, "
    "and what do they leave of the upload and of the delay?",
    scene=AccessPoint(
        PROFILES["testbed"], SECONDS, (Flow("download", "down"), Flow("upload", "up", UP, DOWN_AGAIN)),
        peers=(*PEERS, BURSTS.name),
    ),
    arms=(FIFO, *PEER_ARMS, BURSTS, OUR_ARM),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download during the upload", rate("download", UP, DOWN_AGAIN)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
        Measure("ping_mean", "ms", "ping under load, mean", mean("ping_ms", UP, DOWN_AGAIN), "{:.1f}"),
        Measure("ping_p99", "ms", "ping under load, p99", quantile("ping_ms", 0.99, UP, DOWN_AGAIN), "{:.1f}"),
        ping_added(UP, DOWN_AGAIN),
    ),
    reported=measured_before(
        ("download_alone", "download_during", "upload_during", "ping_mean"),
        {
            "tc-fifo": (13.39, 2.00, 0.92, 582),
            "fq_codel": (13.36, 13.37, 0.65, 15),
            "cake": (13.25, 12.69, 0.67, 11),
            "cake-ack-filter": (13.31, 13.02, 0.85, 12),
        },
    ),
    goals=(
        Goal(
            "the switch's FIFO is as good as the kernel's: downloads alone differ by {value}x (at most {limit})",
            lambda medians: max(
                medians("download_alone", "fifo") / medians("download_alone", "tc-fifo"),
                medians("download_alone", "tc-fifo") / medians("download_alone", "fifo"),
            ), at_most=1.03,
        ),
        Goal(
            "this access point keeps {value} of the download (at least {limit})",
            lambda medians: medians("download_during", "ours") / medians("download_alone", "ours"),
            at_least=0.998, shown="{:.1%}",
        ),
        Goal(
            "the upload gets {value} (at least {limit})",
            lambda medians: medians("upload_during", "ours"), at_least=0.93, shown="{:.2f} Mb/s",
        ),
        Goal(
            "ping takes {value} (at most {limit})",
            lambda medians: medians("ping_mean", "ours"), at_most=10.9, shown="{:.1f} ms",
        ),
        *goals_beside_cake(),
        Goal(
            "mean ping is {value} of that with CAKE and its ACK filter (at most {limit})",
            lambda medians: medians("ping_mean", "ours") / medians("ping_mean", "cake-ack-filter"),
            at_most=1.0, shown="{:.0%}",
        ),
    ),
    figures=(
        Timeline("throughput", "Throughput over time.", ("download", "upload")),
        Bars("during", "While both run.", ("download_during", "upload_during"), "throughput (Mb/s)"),
        Bars("ping", "Ping while both run.", ("ping_mean", "ping_p99"), "round trip (ms)", log=True),
    ),
    repeats=5,
    quick=Quick(seconds=18),
    differences=DIFFERENCES,
    clock=VIRTUAL,
)  # fmt: skip
