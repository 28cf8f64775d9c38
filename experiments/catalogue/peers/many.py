# SPDX-License-Identifier: Apache-2.0
"""Many uploads at once: beside a download, and of one station beside the one upload of another."""

from accesspoint.experiments.catalogue.peers import (
    CAKE_AND_OURS,
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    ping_added,
)
from accesspoint.experiments.experiment import Arm, Bars, Curves, Experiment, Goal, Measure, Point, Quick, Timeline
from accesspoint.experiments.measure.run_data import Of, Raw, jain, mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

SECONDS, UP = 90, 20
STREAMS = (32, 200)
MAX_STREAMS = 100
"""Streams of one iperf3, which takes 128."""
NAMES = "uploads*"


def _uploads(number: int, station: int = 1) -> tuple[Flow, ...]:
    parts = [min(MAX_STREAMS, number - start) for start in range(0, number, MAX_STREAMS)]
    return tuple(
        Flow(f"uploads{place}", "up", UP, station=station, streams=part, each=True, cwnd_limited=False)
        for place, part in enumerate(parts, start=1)
    )


def _many(point: Point, arm: Arm) -> AccessPoint:
    return AccessPoint(
        PROFILES["testbed"], SECONDS, (Flow("download", "down"), *_uploads(int(point["uploads"]))), peers=PEERS
    )


UNEVEN = {
    32: "in one repeat an upload has more than twice its even share (seen, not explained)",
    200: "the initial windows of the program that begins first fill the uplink's 1000 packets, 12 s of it; its ACKs "
    "let its own next packets in, and what the other one sends is dropped until the first marks come back, as late as "
    "that (lock-out, RFC 2309, section 2): the quick form's uploads last 14 s. Those that send share evenly",
}


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
            f"during {number} uploads half of the pings take at most {{value}} (at most {{limit}})",
            lambda medians: medians("ping_p50", "ours", uploads=number), at_most=15.0, shown="{:.1f} ms",
        ),
        Goal(
            f"{number} uploads share evenly: Jain's index {{value}} (at least {{limit}})",
            lambda medians: medians("fair", "ours", uploads=number), at_least=0.9, why=UNEVEN[number],
        ),
    )  # fmt: skip


def _share(start: float) -> Of:
    def of(raw: Raw) -> float | None:
        one, all_of_them = raw.rate("one", start), raw.rate("*", start)
        return one / all_of_them if all_of_them else None

    return of


MANY = Experiment(
    name="many",
    title="A download during many uploads",
    paper="none: the traffic of 000, sections 2 and 4.5, with more uploads",
    question="What do 32 and 200 uploads leave of one download, how evenly do they share, and how long does a sparse "
    "flow take?",
    scene=_many,
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the uploads", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download during the uploads", rate("download", UP)),
        Measure("uploads", "Mb/s", "uploads together", rate(NAMES, UP)),
        Measure("fair", "", "Jain's index of the uploads", jain(NAMES, UP, quantity="stream_mbps")),
        Measure("ping_p50", "ms", "ping under load, median", quantile("ping_ms", 0.5, UP), "{:.1f}"),
        Measure("ping_mean", "ms", "ping under load, mean", mean("ping_ms", UP), "{:.1f}"),
        ping_added(UP),
    ),
    sweep={"uploads": STREAMS},
    goals=tuple(goal for number in STREAMS for goal in _goals(number)),
    figures=(
        Curves("kept", "Throughput of the download.", "download_during", "uploads", "uploads", "throughput (Mb/s)"),
        Curves("together", "Throughput of all uploads together.", "uploads", "uploads", "uploads", "throughput (Mb/s)"),
        Curves("ping", "Ping during the uploads.", "ping_p50", "uploads", "uploads", "round trip (ms)", log=True),
    ),
    repeats=5,
    quick=Quick(seconds=18, arms=CAKE_AND_OURS),
    differences=DIFFERENCES,
    clock=VIRTUAL,
)  # fmt: skip

HOSTS = Experiment(
    name="hosts",
    title="A station with one upload and one with 32",
    paper="none: what CAKE calls isolation of hosts (triple-isolate)",
    question="Does a station get more of the uplink by opening more connections?",
    scene=AccessPoint(
        PROFILES["testbed"],
        SECONDS,
        (Flow("one", "up", station=1, cwnd_limited=False), *_uploads(32, station=2)),
        stations=2,
        peers=PEERS,
    ),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        Measure("one", "Mb/s", "the one upload", rate("one", UP)),
        Measure("uploads", "Mb/s", "the other station's 32 uploads together", rate(NAMES, UP)),
        Measure("share", "", "the one upload's part of both", _share(UP)),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", UP), "{:.1f}"),
        ping_added(UP),
    ),
    goals=(
        Goal(
            "the station with one upload has {value} of what both send (at least {limit})",
            lambda medians: medians("share", "ours"), at_least=0.45,
            why="no window falls below two segments: 32 of them hold the queue whatever is fed back, and strict "
            "priorities cannot serve stations in turn",
        ),
        Goal(
            "the station with one upload has no more than its half: {value} (at most {limit})",
            lambda medians: medians("share", "ours"), at_most=0.55,
        ),
    ),
    figures=(
        Timeline("throughput", "Throughput over time.", ("one", "uploads1")),
        Bars("rates", "Throughput of each station.", ("one", "uploads"), "throughput (Mb/s)"),
    ),
    repeats=5,
    quick=Quick(seconds=18, arms=CAKE_AND_OURS),
    differences=DIFFERENCES,
    clock=VIRTUAL,
)  # fmt: skip

EXPERIMENTS = (MANY, HOSTS)
