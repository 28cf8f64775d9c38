# SPDX-License-Identifier: Apache-2.0
"""A download while one station makes many uploads."""

from accesspoint.experiments.catalogue.peers import (
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    ping_added,
)
from accesspoint.experiments.experiment import Arm, Curves, Experiment, Goal, Measure, Point, Quick
from accesspoint.experiments.measure.run_data import jain, mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

SECONDS, UP, SETTLED = 70, 10, 30
"""s: of the timeline; from when on uploads send; from when on counts: 200 initial windows are 24 s of the uplink."""
STREAMS = (32, 200)


def _many(point: Point, arm: Arm) -> AccessPoint:
    uploads = Flow("uploads", "up", UP, streams=int(point["uploads"]), each=True, cwnd_limited=False)
    return AccessPoint(PROFILES["testbed"], SECONDS, (Flow("download", "down"), uploads), peers=PEERS)


def _goals(number: int) -> tuple[Goal, ...]:
    return (
        Goal(
            f"during {number} uploads this access point keeps {{value}} of the download (at least {{limit}})",
            lambda medians: medians("download_during", "ours", uploads=number)
            / medians("download_alone", "ours", uploads=number),
            at_least=0.98, shown="{:.1%}",
        ),
        Goal(
            f"{number} uploads together get {{value}} (at least {{limit}})",
            lambda medians: medians("uploads", "ours", uploads=number), at_least=0.75, shown="{:.2f} Mb/s",
        ),
        Goal(
            f"{number} uploads of one station get {{value}} of the uplink (at least {{limit}})",
            lambda medians: medians("uploads", "ours", uploads=number), at_least=0.80, shown="{:.2f} Mb/s",
        ),
        Goal(
            f"during {number} uploads half of the pings take at most {{value}} (at most {{limit}})",
            lambda medians: medians("ping_p50", "ours", uploads=number), at_most=15.0, shown="{:.1f} ms",
        ),
        Goal(
            f"{number} uploads share evenly: Jain's index {{value}} (at least {{limit}})",
            lambda medians: medians("fair", "ours", uploads=number), at_least=0.9,
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="many",
    title="A download during many uploads",
    paper="none: the traffic of 000, sections 2 and 4.5, with more uploads",
    question="What do 32 and 200 uploads leave of one download, how evenly do they share, and how long does a sparse "
    "flow take?",
    scene=_many,
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the uploads", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download during the uploads", rate("download", SETTLED)),
        Measure("download_starting", "Mb/s", "download in their first 20 s", rate("download", UP, SETTLED)),
        Measure("uploads", "Mb/s", "uploads together", rate("uploads", SETTLED)),
        Measure("uploads_in_all", "Mb/s", "uploads together, from their first packet on", rate("uploads", UP)),
        Measure("fair", "", "Jain's index of the uploads", jain("uploads*", SETTLED, quantity="stream_mbps")),
        Measure("ping_p50", "ms", "ping under load, median", quantile("ping_ms", 0.5, SETTLED), "{:.1f}"),
        Measure("ping_mean", "ms", "ping under load, mean", mean("ping_ms", SETTLED), "{:.1f}"),
        ping_added(SETTLED),
    ),
    sweep={"uploads": STREAMS},
    goals=tuple(goal for number in STREAMS for goal in _goals(number)),
    figures=(
        Curves("kept", "Throughput of the download.", "download_during", "uploads", "uploads", "throughput (Mb/s)"),
        Curves("together", "Throughput of all uploads together.", "uploads", "uploads", "uploads", "throughput (Mb/s)"),
        Curves("ping", "Ping during the uploads.", "ping_p50", "uploads", "uploads", "round trip (ms)", log=True),
    ),
    repeats=5,
    quick=Quick(arms=("cake-hosts", "ours")),
    differences=(
        *DIFFERENCES,
        "payload counts when it is there in order: some of what 200 uploads sent in their first 20 s counts later, so "
        "they may get more than the link's 0.96 Mb/s of payload together",
    ),
    clock=VIRTUAL,
)  # fmt: skip
