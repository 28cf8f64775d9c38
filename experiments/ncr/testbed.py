# SPDX-License-Identifier: Apache-2.0
"""The paper's testbed: one station, one download over the whole time and one upload in its middle third, 14/1 Mb/s."""

from experiments.experiment import OURS, PLAIN, Arm, Bars, Experiment, Goal, Measure, Medians, Quick, Reported, Timeline
from experiments.raw import quantile, rate
from experiments.scene import AccessPoint, Flow
from topologies.profiles import PROFILES

SECONDS, UP, DOWN_AGAIN = 180, 60, 120
PAPER_NCR = {
    "ncr": {
        # Section 4.1. Its queue target is 50 packets, whatever the link.
        "alpha": 0.03, "beta": 0.03, "gamma": 0.05, "kappa1": 1.0, "kappa2": 1.0,
        "flow_interval": 0.01, "device_interval": 0.01, "queue_target_ms": 1.0, "queue_target_packets": 50,
    }
}  # fmt: skip
# The paper's units are not known. A queue target of one packet is what its figures need on this link: 50 are 0.6 s.
TIGHT = {"ncr": {"queue_target_packets": 1, "queue_target_ms": 5.0}}
NCR_ALONE = {**PLAIN, "ncr": True}
WINDOW = 64 * 1024  # bytes, of the testbed's kernel


def kept(medians: Medians, arm: str) -> float:
    """What is left of the download beside the upload."""
    return float(medians("download_during", arm) / medians("download_alone", arm))


EXPERIMENT = Experiment(
    name="ncr-testbed",
    title="A download beside an upload, in the paper's testbed",
    paper="000, sections 2 and 4.2, Fig. 1, 2, 14",
    question="How much of a download is left while an upload fills the slow direction of the link, and what does each "
    "part of the access point change?",
    scene=lambda point, arm: AccessPoint(
        PROFILES["testbed"],
        SECONDS,
        (
            Flow("download", "down", window=arm.options.get("window")),
            Flow("upload", "up", UP, DOWN_AGAIN, window=arm.options.get("window")),
        ),
    ),
    arms=(
        Arm("fifo", "plain FIFO", "plain"),
        Arm(
            "fifo-reno", "plain FIFO, hosts as then: Reno, 64 KB", "plain",
            cc="reno", ecn=False, options={"window": WINDOW},
        ),
        Arm("ncr-paper", "NCR, the paper's parameters", "paper", NCR_ALONE, PAPER_NCR),
        Arm("ncr-mark", "NCR by mark, queue target of a packet", "paper", NCR_ALONE, TIGHT),
        Arm("ncr-drop", "NCR by drop, queue target of a packet", "paper", NCR_ALONE, TIGHT, ecn=False),
        Arm("ack-priority", "ACKs first", "ours", {**PLAIN, "ack_priority": True}),
        Arm(
            "ack-filter", "ACKs first, superseded ones dropped", "ours",
            {**PLAIN, "ack_priority": True, "ack_filter": True},
        ),
        Arm("ours", "our access point", "ours", OURS),
    ),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download beside the upload", rate("download", UP, DOWN_AGAIN)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
        Measure("total_during", "Mb/s", "both together", rate("*load", UP, DOWN_AGAIN)),
        Measure("download_after", "Mb/s", "download, after the upload", rate("download", DOWN_AGAIN)),
        Measure("ping_during", "ms", "ping beside both, median", quantile("ping_ms", 0.5, UP, DOWN_AGAIN), "{:.1f}"),
    ),
    reported=(
        Reported("download_alone", "fifo-reno", 14, "Fig. 1"),
        Reported("download_during", "fifo-reno", 0.08, "Fig. 2"),
        Reported("upload_during", "fifo-reno", 1.0, "Fig. 2"),
        Reported("total_during", "fifo-reno", (1.24, 1.28), "Fig. 14, section 4.2"),
        Reported("download_during", "ncr-mark", (10.7, 11.6), "Fig. 14, section 4.2"),
        Reported("total_during", "ncr-mark", (11.0, 11.7), "Fig. 14, section 4.2"),
    ),
    goals=(
        Goal(
            "met", "an upload starves the download behind a plain FIFO: {value} of it is left (at most {limit})",
            lambda medians: kept(medians, "fifo-reno"), at_most=0.30, shown="{:.0%}",
        ),
        Goal(
            "met", "NCR alone protects it: {value} of it is left (at least {limit}; in the paper 76 %)",
            lambda medians: min(kept(medians, "ncr-mark"), kept(medians, "ncr-drop")), at_least=0.7, shown="{:.0%}",
        ),
        Goal(
            "beaten", "ours keeps the download: {value} of alone (at least {limit})",
            lambda medians: kept(medians, "ours"), at_least=0.99, shown="{:.1%}",
        ),
        Goal(
            "beaten", "and the upload: {value} (at least {limit})",
            lambda medians: medians("upload_during", "ours"), at_least=0.85, shown="{:.2f} Mb/s",
        ),
    ),
    figures=(
        Timeline(
            "throughput", "Throughput over time, as in Fig. 2 and 14; dashed: the paper's figures.",
            ("download", "upload"),
            levels={
                "download_alone": (0, UP), "download_during": (UP, DOWN_AGAIN), "upload_during": (UP, DOWN_AGAIN),
            },
        ),
        Bars(
            "during", "While both run: what each arm carries. Lines across: the paper's figures.",
            ("download_during", "upload_during", "total_during"), "throughput (Mb/s)",
        ),
        Bars("ping", "Ping while both run.", ("ping_during",), "round trip (ms)", log=True),
    ),
    repeats=10,
    quick=Quick(seconds=21),
    differences=(
        "the links are models of 14 and 1 Mb/s with 4 ms of round trip, not radios",
        "the uplink's queue holds 1000 packets, as the testbed's kernel did",
        "NCR has a queue target of one packet: with the 50 of section 4.1, 0.6 s of this link, the download's ACKs "
        "wait as long, and little of it is kept (arm ncr-paper)",
        "traffic is iperf3, where the paper used Iperf and FileZilla",
    ),
)  # fmt: skip
