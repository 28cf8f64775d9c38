# SPDX-License-Identifier: Apache-2.0
"""The paper's simulations of a download beside an upload: a wireless LAN (ns-2), WiMAX (OPNET) and LTE (ns-3)."""

from accesspoint.experiments.catalogue.ncr.testbed import NCR_ALONE, NCR_PAPER, NCR_UPLINK, PLACE, of_ncr, of_payload
from accesspoint.experiments.experiment import OURS, Arm, Bars, Experiment, Measure, Quick, Reported, Timeline
from accesspoint.experiments.measure.run_data import mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.experiments.scenes.tcp_info import Looks
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile

ARMS = (
    Arm("fifo", "plain FIFO", "plain"),
    NCR_UPLINK,
    NCR_PAPER,
    Arm("ncr-mark", "NCR by mark", "paper", NCR_ALONE),
    Arm("ours", "this access point", "ours", OURS),
)


def cell(
    name: str,
    title: str,
    paper: str,
    links: LinkProfile,
    timeline: tuple[float, float, float, float],
    reported: tuple[Reported, ...],
    differences: tuple[str, ...],
    quick: float | None = None,
) -> Experiment:
    """An experiment on these links. timeline: when the download starts, the upload starts and ends, the download ends
    (s)."""
    first, up, alone_again, seconds = timeline
    return Experiment(
        name=name,
        title=title,
        paper=paper,
        question="How much of a download is left while an upload runs, and what do both carry together?",
        scene=AccessPoint(
            links,
            seconds,
            (Flow("download", "down", first), Flow("upload", "up", up, alone_again), Looks()),
        ),
        arms=ARMS,
        measures=(
            Measure("download_alone", "Mb/s", "download, before the upload", rate("download", first, up)),
            Measure("download_during", "Mb/s", "download during the upload", rate("download", up, alone_again)),
            Measure("upload_during", "Mb/s", "upload", rate("upload", up, alone_again)),
            Measure("total_during", "Mb/s", "both together", rate("*load", up, alone_again)),
            Measure("download_after", "Mb/s", "download, after the upload", rate("download", alone_again)),
            Measure("download_rtt", "ms", "TCP's own round trip of the download, then",
                    mean("tcp_rtt_ms", up, alone_again, "download"), "{:.0f}"),
            Measure("upload_rtt", "ms", "and of the upload", mean("tcp_rtt_ms", up, alone_again, "upload"), "{:.0f}"),
            Measure("queue", "packets", "the uplink's queue, then", mean("queue_packets", up, alone_again), "{:.0f}"),
            Measure("ping_during", "ms", "ping under load", quantile("ping_ms", 0.5, up, alone_again), "{:.1f}"),
        ),
        reported=reported,
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
        # As the claims ask for. Each phase is longer than a full uplink takes to drain.
        quick=Quick(seconds=quick, arms=("fifo", "ncr-uplink", "ours")),
        differences=differences,
        clock=VIRTUAL,
    )  # fmt: skip


# Links of 3.5 and 4.5 Mb/s carry as much TCP payload as the paper's: 3.29 to 3.35, and 4.28 to 4.33 Mb/s.
WIRED = "the links are models of the rates that the paper names, not a simulated radio; queues are those of the profile"

EXPERIMENTS = [
    cell(
        "ncr-wlan", "A download during an upload, in a wireless LAN", "000, section 4.1.1, Fig. 6",
        PROFILES["wlan"], (0, 20, 40, 60),
        (
            Reported("download_alone", "fifo", 3.29, "Fig. 6"),
            Reported("download_during", "fifo", 0.870, "Fig. 6"),
            Reported("upload_during", "fifo", 0.765, "Fig. 6"),
            Reported("download_after", "fifo", 3.35, "Fig. 6"),
            *of_ncr("download_alone", 3.29, "section 4.1.1"),
            *of_ncr("download_during", 3.08, "section 4.1.1"),
            *of_ncr("upload_during", 0.164, "section 4.1.1"),
            *of_ncr("download_after", 3.35, "section 4.1.1"),
        ),
        (WIRED, PLACE),
    ),
    cell(
        "ncr-wimax", "A download during an upload, on WiMAX", "000, section 4.1.2, Fig. 8-10",
        PROFILES["wimax"], (10, 200, 400, 600),
        (
            Reported("download_alone", "fifo", 4.28, "Fig. 8"),
            Reported("download_during", "fifo", 1.52, "Fig. 8"),
            *of_ncr("download_alone", 4.33, "Fig. 8"),
            *of_ncr("download_during", 3.17, "Fig. 8"),
        ),
        (WIRED, PLACE, "the queue is that of the access point's uplink: a station's own radio does not limit it here"),
        60,
    ),
    cell(
        "ncr-lte", "A download during an upload, on LTE", "000, section 4.1.3, Fig. 11, 12",
        of_payload(PROFILES["lte"]), (1, 13, 39, 50),
        (
            Reported("download_during", "fifo", 16.99, "Fig. 11"),
            Reported("total_during", "fifo", 31.36, "Fig. 12"),
            *of_ncr("download_during", 30.02, "Fig. 11"),
            *of_ncr("total_during", 36.19, "Fig. 12"),
        ),
        (WIRED, PLACE, "30 and 15 Mb/s are what the links leave for TCP's payload: the paper received 30.02"),
    ),
]  # fmt: skip
