# SPDX-License-Identifier: Apache-2.0
"""The paper's simulations of a download beside an upload: a wireless LAN (ns-2), WiMAX (OPNET) and LTE (ns-3)."""

from experiments.experiment import OURS, Arm, Bars, Experiment, Goal, Measure, Medians, Quick, Reported, Timeline
from experiments.ncr.testbed import NCR_ALONE, PAPER_NCR, kept
from experiments.raw import quantile, rate
from experiments.scene import AccessPoint, Flow
from topologies.profiles import PROFILES

ARMS = (
    Arm("fifo", "plain FIFO", "plain"),
    Arm("ncr-paper", "NCR, the paper's parameters", "paper", NCR_ALONE, PAPER_NCR),
    Arm("ncr-mark", "NCR by mark", "paper", NCR_ALONE),
    Arm("ours", "our access point", "ours", OURS),
)


def starved(at_most: float) -> Goal:
    return Goal(
        "met", "an upload takes from the download behind a plain FIFO: {value} of it is left (at most {limit})",
        lambda medians: kept(medians, "fifo"), at_most=at_most, shown="{:.0%}",
    )  # fmt: skip


def kept_by_ours(medians: Medians) -> float:
    return kept(medians, "ours")


BEATEN_DOWN = Goal(
    "beaten", "ours keeps the download: {value} of alone (at least {limit})",
    kept_by_ours, at_least=0.99, shown="{:.1%}",
)  # fmt: skip


def cell(
    name: str,
    title: str,
    paper: str,
    timeline: tuple[float, float, float, float],
    reported: tuple[Reported, ...],
    goals: tuple[Goal, ...],
    differences: tuple[str, ...],
    quick: float,
) -> Experiment:
    """timeline: when the download starts, the upload starts and ends, the download ends (s)."""
    first, up, alone_again, seconds = timeline
    return Experiment(
        name=name,
        title=title,
        paper=paper,
        question="How much of a download is left while an upload runs beside it, and what do both carry together?",
        scene=AccessPoint(
            PROFILES[name.removeprefix("ncr-")],
            seconds,
            (Flow("download", "down", first), Flow("upload", "up", up, alone_again)),
        ),
        arms=ARMS,
        measures=(
            Measure("download_alone", "Mb/s", "download, before the upload", rate("download", first, up)),
            Measure("download_during", "Mb/s", "download beside the upload", rate("download", up, alone_again)),
            Measure("upload_during", "Mb/s", "upload", rate("upload", up, alone_again)),
            Measure("total_during", "Mb/s", "both together", rate("*load", up, alone_again)),
            Measure("download_after", "Mb/s", "download, after the upload", rate("download", alone_again)),
            Measure("ping_during", "ms", "ping beside both", quantile("ping_ms", 0.5, up, alone_again), "{:.1f}"),
        ),
        reported=reported,
        goals=goals,
        figures=(
            Timeline(
                "throughput", "Throughput over time; dashed: the paper's figures.", ("download", "upload"),
                levels={
                    "download_alone": (first, up), "download_during": (up, alone_again),
                    "upload_during": (up, alone_again), "download_after": (alone_again, seconds),
                },
            ),
            Bars(
                "during", "While both run: what each arm carries. Lines across: the paper's figures.",
                ("download_during", "upload_during", "total_during"), "throughput (Mb/s)",
            ),
            Bars("ping", "Ping while both run.", ("ping_during",), "round trip (ms)", log=True),
        ),
        repeats=10,
        quick=Quick(seconds=quick),
        differences=differences,
    )  # fmt: skip


WIRED = "the links are models of the rates that the paper names, not a simulated radio; queues are those of the profile"

EXPERIMENTS = [
    cell(
        "ncr-wlan", "A download beside an upload, in a wireless LAN", "000, section 4.1.1, Fig. 6", (0, 20, 40, 60),
        (
            Reported("download_alone", "fifo", 3.29, "Fig. 6"),
            Reported("download_during", "fifo", 0.765, "Fig. 6"),
            Reported("upload_during", "fifo", 0.870, "Fig. 6"),
            Reported("download_after", "fifo", 3.35, "Fig. 6"),
            Reported("download_alone", "ncr-paper", 3.29, "section 4.1.1"),
            Reported("download_during", "ncr-paper", 3.08, "section 4.1.1"),
            Reported("upload_during", "ncr-paper", 0.164, "section 4.1.1"),
            Reported("download_after", "ncr-paper", 3.35, "section 4.1.1"),
        ),
        (
            starved(0.60),
            Goal(
                "met", "NCR alone keeps {value} times as much of it as a plain FIFO (at least {limit})",
                lambda medians: kept(medians, "ncr-mark") / kept(medians, "fifo"), at_least=1.2,
            ),
            Goal(
                "met", "and both directions together carry {value} of plain (at least {limit})",
                lambda medians: medians("total_during", "ncr-mark") / medians("total_during", "fifo"), at_least=1.1,
            ),
            BEATEN_DOWN,
            Goal(
                "beaten", "and the upload: {value} (at least {limit})",
                lambda medians: medians("upload_during", "ours"), at_least=0.85, shown="{:.2f} Mb/s",
            ),
        ),
        (WIRED, "the paper's NCR keeps 94 % of the download and leaves the upload 0.164 Mb/s; here it keeps less, and "
         "the upload has nearly all of its link"), 18,
    ),
    cell(
        "ncr-wimax", "A download beside an upload, on WiMAX", "000, section 4.1.2, Fig. 8-10", (10, 200, 400, 600),
        (
            Reported("download_alone", "fifo", 4.28, "Fig. 8"),
            Reported("download_during", "fifo", 1.52, "Fig. 8"),
            Reported("download_alone", "ncr-paper", 4.33, "Fig. 8"),
            Reported("download_during", "ncr-paper", 3.17, "Fig. 8"),
        ),
        (
            starved(0.60),
            Goal(
                "met", "NCR alone keeps more of it than the paper's {limit}: {value}",
                lambda medians: kept(medians, "ncr-mark"), at_least=3.17 / 4.33, shown="{:.0%}",
            ),
            Goal(
                "met", "and takes more than the paper's 47 % off the round trip: {value} is left (at most {limit})",
                lambda medians: medians("ping_during", "ncr-mark") / medians("ping_during", "fifo"),
                at_most=0.53, shown="{:.0%}",
            ),
            Goal(
                "met", "both directions together carry {value} of plain (the paper's: {limit})",
                lambda medians: medians("total_during", "ncr-mark") / medians("total_during", "fifo"),
                at_least=1.28, shown="{:.2f}",
            ),
            BEATEN_DOWN,
            Goal(
                "beaten", "with a round trip below that of either: {value} of NCR's own (at most {limit})",
                lambda medians: medians("ping_during", "ours")
                / min(medians("ping_during", "ncr-mark"), medians("ping_during", "fifo")),
                at_most=1.0, shown="{:.0%}",
            ),
        ),
        (WIRED, "the round trip is a probe's beside the flows, not the flows' own"), 30,
    ),
    cell(
        "ncr-lte", "A download beside an upload, on LTE", "000, section 4.1.3, Fig. 11, 12", (1, 13, 39, 50),
        (
            Reported("download_during", "fifo", 16.99, "Fig. 11"),
            Reported("total_during", "fifo", 31.36, "Fig. 12"),
            Reported("download_during", "ncr-paper", 30.02, "Fig. 11"),
            Reported("total_during", "ncr-paper", 36.19, "Fig. 12"),
        ),
        (
            starved(0.90),
            Goal(
                "met", "NCR alone carries more together than the paper's {limit}: {value}",
                lambda medians: medians("total_during", "ncr-mark"), at_least=36.19, shown="{:.1f} Mb/s",
            ),
            BEATEN_DOWN,
            Goal(
                "beaten", "and both directions are full: {value} together (at least {limit})",
                lambda medians: medians("total_during", "ours"), at_least=43.0, shown="{:.1f} Mb/s",
            ),
        ),
        (WIRED,), 14,
    ),
]  # fmt: skip
