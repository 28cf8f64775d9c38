# SPDX-License-Identifier: Apache-2.0
"""The known hard cases, in the manner of Flent's tests of the same names: realtime response under load on 20/3 Mb/s
with 90 ms, and fifty uploads against a download."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accesspoint.experiments.catalogue.peers import (
    CAKE_AND_OURS,
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    measured_before,
    ping_added,
)
from accesspoint.experiments.experiment import Bars, Experiment, Goal, Measure, Quick, Timeline
from accesspoint.experiments.measure.run_data import jain, mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import LinkProfile

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

PROFILE = LinkProfile("rrul", 20_000_000, 3_000_000, 0.090, 1000, 1000)
MARKS = ("cs0", "cs1", "cs5", "ef")  # as Flent's rrul: best effort, background, video, voice
SECONDS = 40
UPLOADS, FROM, SECONDS_50 = 50, 5, 45  # the download has 5 s to 43 s of the uploads' time
WINDOWS = ((5, 15), (15, 25), (25, 43))


@dataclass(frozen=True)
class MarkedFlow(Flow):
    """A flow with a DSCP, by name."""

    dscp: str = "cs0"

    def prepare(self, stage: "Stage") -> None:
        stage.transfer(self, ["--dscp", self.dscp])


def _four_each_way(marks: Sequence[str]) -> tuple[Flow, ...]:
    return tuple(
        MarkedFlow(f"{way}{number}", "down" if way == "download" else "up", dscp=mark, cwnd_limited=False)
        for way in ("download", "upload")
        for number, mark in enumerate(marks, start=1)
    )


def _rrul(name: str, title: str, marks: Sequence[str]) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        paper=f"none: Flent's {name.replace('-', '_')}",
        question="With four downloads and four uploads at once, how much of the link is used, how evenly, and how "
        "long does a sparse flow take?",
        scene=AccessPoint(PROFILE, SECONDS, _four_each_way(marks), peers=PEERS),
        arms=(FIFO, *PEER_ARMS, OUR_ARM),
        measures=(
            Measure("download", "Mb/s", "four downloads", rate("download*", 5)),
            Measure("upload", "Mb/s", "four uploads", rate("upload*", 5)),
            Measure("fair_down", "", "Jain's index of the downloads", jain("download*", 5)),
            Measure("fair_up", "", "Jain's index of the uploads", jain("upload*", 5)),
            Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", 5), "{:.1f}"),
            Measure("ping_p99", "ms", "ping, p99", quantile("ping_ms", 0.99, 5), "{:.1f}"),
            ping_added(5),
        ),
        goals=(
            Goal(
                "both directions are used: {value} of the downlink (at least {limit})",
                lambda medians: medians("download", "ours") * 1e6 / PROFILE.down, at_least=0.85, shown="{:.0%}",
            ),
            Goal(
                "a sparse flow takes {value} ms longer than on empty links (at most {limit})",
                lambda medians: medians("ping_added", "ours"), at_most=4.0, shown="{:.1f}",
            ),
            Goal(
                "the downloads together get at least those of CAKE with its ACK filter: {value} of them",
                lambda medians: medians("download", "ours") / medians("download", "cake-ack-filter"),
                at_least=1.0, shown="{:.0%}",
            ),
        ),
        figures=(
            Timeline("throughput", "Throughput over time.", ("download*", "upload*")),
            Bars("rates", "Throughput of each arm.", ("download", "upload"), "throughput (Mb/s)"),
            Bars("ping", "Ping under load; the empty links take 90 ms.", ("ping_mean", "ping_p99"), "round trip (ms)"),
        ),
        repeats=5,
        # A FIFO is still filling when a quick run ends.
        quick=Quick(seconds=20, arms=CAKE_AND_OURS),
        differences=(*DIFFERENCES, "Flent's UDP probes are one here, of best effort, and its ICMP ping is left out"),
        clock=VIRTUAL,
    )  # fmt: skip


FIFTY = Experiment(
    name="rrul-50-up",
    title="Fifty uploads against a download",
    paper="none: after Flent's rrul_50_up",
    question="What is left of one download, and of a sparse flow's delay, when fifty uploads fill the slow direction?",
    scene=AccessPoint(
        PROFILE,
        SECONDS_50,
        (
            Flow("uploads", "up", streams=UPLOADS, cwnd_limited=False),
            Flow("download", "down", FROM, WINDOWS[-1][1], cwnd_limited=False),
        ),
        peers=PEERS,
    ),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        *(
            Measure(f"download_{start}", "Mb/s", f"download, second {start} to {end}", rate("download", start, end))
            for start, end in WINDOWS
        ),
        Measure("upload", "Mb/s", "fifty uploads", rate("uploads", *WINDOWS[-1])),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", *WINDOWS[-1]), "{:.1f}"),
        Measure("ping_max", "ms", "ping, longest", quantile("ping_ms", 1.0, *WINDOWS[-1]), "{:.0f}"),
        ping_added(*WINDOWS[-1]),
    ),
    reported=measured_before(
        ("download_5", "download_15", "download_25", "upload", "ping_mean", "ping_max"),
        {
            "fq_codel": (5.8, 7.3, 6.7, 2.74, 94.5, 235),
            "cake": (5.5, 7.7, 7.7, 2.75, 92.6, 125),
            "cake-ack-filter": (7.3, 9.0, 6.7, 2.78, 94.2, 243),
        },
    ),
    goals=(
        Goal(
            "the download is more than that of CAKE with its ACK filter: {value} times it (at least {limit})",
            lambda medians: medians("download_25", "ours") / medians("download_25", "cake-ack-filter"), at_least=1.0,
        ),
        Goal(
            "the download gets {value} (at least {limit})",
            lambda medians: medians("download_25", "ours"), at_least=18.5, shown="{:.1f} Mb/s",
            why="the slow start over 90 ms of round trip leaves 34 to 86 packets waiting; marks of more than one round "
            "trip answer it, CUBIC takes 0.7 for each, and grows back for ten seconds; after that a queue of 15 ms is "
            "less than what one mark takes away (seen in the loop's record, second by second)",
        ),
        Goal(
            "the uploads get {value} (at least {limit})",
            lambda medians: medians("upload", "ours"), at_least=2.7, shown="{:.2f} Mb/s",
        ),
        Goal(
            "a sparse flow takes {value} ms longer than on empty links (at most {limit})",
            lambda medians: medians("ping_added", "ours"), at_most=4.0, shown="{:.1f}",
        ),
    ),
    figures=(
        Timeline("throughput", "Throughput over time.", ("download", "uploads")),
        Bars("rates", "From second 25 on.", ("download_25", "upload"), "throughput (Mb/s)"),
        Bars("ping", "Ping; the empty links take 90 ms.", ("ping_mean", "ping_max"), "round trip (ms)", log=True),
    ),
    repeats=5,
    quick=Quick(seconds=30, arms=CAKE_AND_OURS),
    differences=DIFFERENCES,
    clock=VIRTUAL,
)  # fmt: skip

EXPERIMENTS = (
    _rrul("rrul", "Four downloads and four uploads, each with another mark", MARKS),
    _rrul("rrul-be", "Four downloads and four uploads of best effort", ("cs0",) * 4),
    FIFTY,
)
