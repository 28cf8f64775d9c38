# SPDX-License-Identifier: Apache-2.0
"""The paper's testbed: one station, one download over the whole time and one upload in its middle third, 14/1 Mb/s."""

from dataclasses import replace

from accesspoint.experiments.experiment import (
    OURS,
    PLAIN,
    Arm,
    Bars,
    Experiment,
    Measure,
    Point,
    Quick,
    Reported,
    Timeline,
)
from accesspoint.experiments.measure.run_data import quantile, rate, variation
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile

SECONDS, UP, DOWN_AGAIN = 180, 60, 120
FRAME, PAYLOAD = 1514, 1448  # octets on the wire, and of TCP's payload in them, with timestamps
PAPER_NCR = {
    "ncr": {
        # Section 4.1. Its queue target is 50 packets, whatever the link.
        "law": "paper", "alpha": 0.03, "beta": 0.03, "gamma": 0.05, "kappa1": 1.0, "kappa2": 1.0,
        "flow_interval": 0.01, "device_interval": 0.01, "queue_target_ms": 1.0, "queue_target_packets": 50,
        "isolate_stations": False,
    }
}  # fmt: skip
AT_THE_UPLINK = {**PAPER_NCR, "ports": {"station": {"regulated": False}}}
NCR_ALONE = {**PLAIN, "ncr": True}
NCR_UPLINK = Arm("ncr-uplink", "NCR, the paper's parameters, at the uplink alone", "paper", NCR_ALONE, AT_THE_UPLINK)
"""The paper's NCR in its own place: "a light interface layer between the IP and MAC layers at the uplink interface"."""
NCR_PAPER = Arm("ncr-paper", "NCR, the paper's parameters", "paper", NCR_ALONE, PAPER_NCR)
"""At the downlink's port, too, as this access point regulates: what a download alone loses by that."""
PLACE = (
    "the paper's NCR is at the station's uplink interface, as in the arm ncr-uplink; the arm ncr-paper regulates the "
    "downlink's port, too"
)
# The paper's units are not known. A queue target of one packet is what its figures need on this link: 50 are 0.6 s.
TIGHT = {"ncr": {"queue_target_packets": 1, "queue_target_ms": 5.0}}
WINDOW = 64 * 1024  # bytes, of the testbed's kernel


def of_ncr(measure: str, value: float | tuple[float, float], where: str, point: Point | None = None) -> list[Reported]:
    """Return the paper's figure of NCR, for the arm in its place and for the one at every port."""
    return [Reported(measure, arm.name, value, where, point or {}) for arm in (NCR_UPLINK, NCR_PAPER)]


def of_payload(profile: LinkProfile) -> LinkProfile:
    """Links that carry the profile's rates as TCP's payload, for where the paper prints that as much was received."""
    down, up = (round(rate * FRAME / PAYLOAD) for rate in (profile.down, profile.up))
    return replace(profile, name=f"{profile.name} of payload", down=down, up=up)


EXPERIMENT = Experiment(
    name="ncr-testbed",
    title="A download during an upload, in the paper's testbed",
    paper="000, sections 2 and 4.2, Fig. 1, 2, 14",
    question="How much of a download is left while an upload fills the slow direction of the link, and what does each "
    "part of the access point change?",
    scene=lambda point, arm: AccessPoint(
        of_payload(PROFILES["testbed"]),
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
        NCR_UPLINK,
        NCR_PAPER,
        Arm("ncr-mark", "NCR by mark, queue target of a packet", "paper", NCR_ALONE, TIGHT),
        Arm("ncr-drop", "NCR by drop, queue target of a packet", "paper", NCR_ALONE, TIGHT, ecn=False),
        Arm("ack-priority", "ACKs first", "ours", {**PLAIN, "ack_priority": True}),
        Arm(
            "ack-filter", "ACKs first, superseded ones dropped", "ours",
            {**PLAIN, "ack_priority": True, "ack_filter": True},
        ),
        Arm("ours", "this access point", "ours", OURS),
    ),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download during the upload", rate("download", UP, DOWN_AGAIN)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
        Measure("total_during", "Mb/s", "both together", rate("*load", UP, DOWN_AGAIN)),
        Measure("download_after", "Mb/s", "download, after the upload", rate("download", DOWN_AGAIN)),
        Measure("variation_alone", "1", "its variation before the upload", variation("download", 0, UP)),
        Measure("variation_after", "1", "and after it, in bins of 1 s", variation("download", DOWN_AGAIN)),
        Measure("ping_during", "ms", "ping under load, median", quantile("ping_ms", 0.5, UP, DOWN_AGAIN), "{:.1f}"),
    ),
    reported=(
        Reported("download_alone", "fifo", 14, "Fig. 1"),
        Reported("download_during", "fifo", 0.08, "Fig. 2"),
        Reported("upload_during", "fifo", 1.0, "Fig. 2"),
        Reported("total_during", "fifo", (1.24, 1.28), "Fig. 14, section 4.2"),
        *of_ncr("download_during", (10.7, 11.6), "Fig. 14, section 4.2"),
        *of_ncr("total_during", (11.0, 11.7), "Fig. 14, section 4.2"),
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
    # As the claims ask for. A third of it is longer than a full uplink takes to drain: 12 s.
    quick=Quick(seconds=60, arms=("fifo", "ncr-uplink", "ours")),
    differences=(
        "the links are models that carry 14 and 1 Mb/s of TCP's payload, as the paper received, and 4 ms of round trip",
        "the uplink's queue holds 1000 packets, as the testbed's kernel did",
        "the paper's queue target is 50 packets, 0.6 s of this link, and the download's ACKs wait as long; the arms "
        "ncr-mark and ncr-drop have a target of one packet and stand for nothing that the paper claims",
        PLACE,
        "traffic is iperf3, where the paper used Iperf and FileZilla",
    ),
    clock=VIRTUAL,
)  # fmt: skip
