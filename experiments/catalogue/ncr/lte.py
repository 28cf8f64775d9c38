# SPDX-License-Identifier: Apache-2.0
"""Paper 000's cell of LTE in ns-3's LENA, which the paper has, too (docs/decisions/0030-lte.md)."""

from accesspoint.experiments.catalogue.ncr.cells import ARMS
from accesspoint.experiments.experiment import Bars, Experiment, Measure, Quick, Reported, Timeline
from accesspoint.experiments.measure.run_data import quantile, rate
from accesspoint.experiments.scenes.modem import Modem
from accesspoint.experiments.scenes.scene import Flow, Probe
from accesspoint.topologies.kernels.kernel import SIMULATED
from accesspoint.topologies.links.profiles import LinkProfile

DOWN, UP, UP_ENDS, SECONDS = 1.0, 13.0, 39.0, 50.0
QUEUES = (10, 80, 1280)
"""KiB: LENA's default; the first doubling of it with which a transfer alone, of either direction, has what the radio
carries; and the first above the 1000 packets of the paper's testbed."""
QUEUE = 80
TOLD = LinkProfile("below lte", 28_500_000, 14_250_000)
"""5 % below the rates that the paper names: told less than its modem carries, the access point has the queue."""

AT = {"queue": QUEUE}

EXPERIMENT = Experiment(
    name="cell-lte",
    title="A download beside an upload, in a simulated cell of LTE",
    paper="000, section 4.1.3, Fig. 11, 12",
    question="How much of a download is left while an upload runs beside it, behind a modem in a cell of LTE?",
    sweep={"queue": QUEUES},
    scene=lambda point, arm: Modem(
        TOLD,
        SECONDS,
        (Flow("download", "down", DOWN), Flow("upload", "up", UP, UP_ENDS), Probe()),
        int(point["queue"]) << 10,
        "lte",
    ),
    arms=ARMS,
    measures=(
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", DOWN, UP)),
        Measure("download_during", "Mb/s", "download beside the upload", rate("download", UP, UP_ENDS)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, UP_ENDS)),
        Measure("total_during", "Mb/s", "both together", rate("*load", UP, UP_ENDS)),
        Measure("download_after", "Mb/s", "download, after the upload", rate("download", UP_ENDS)),
        Measure("ping_alone", "ms", "ping beside the download", quantile("ping_ms", 0.5, DOWN, UP), "{:.1f}"),
        Measure("ping_during", "ms", "ping beside both", quantile("ping_ms", 0.5, UP, UP_ENDS), "{:.1f}"),
    ),
    reported=(
        Reported("download_during", "fifo", 16.99, "Fig. 11", AT),
        Reported("total_during", "fifo", 31.36, "Fig. 12", AT),
        Reported("download_during", "ncr-paper", 30.02, "Fig. 11", AT),
        Reported("total_during", "ncr-paper", 36.19, "Fig. 12", AT),
    ),
    figures=(
        Timeline(
            "throughput", f"Throughput over time, with queues of {QUEUE} KiB; dashed: the paper's figures.",
            ("download", "upload"), point=AT,
            levels={"download_alone": (DOWN, UP), "download_during": (UP, UP_ENDS), "upload_during": (UP, UP_ENDS),
                    "download_after": (UP_ENDS, SECONDS)},
        ),
        *(
            Bars(
                f"during-{queue}", f"While both run, with queues of {queue} KiB. Lines across: the paper's figures.",
                ("download_during", "upload_during", "total_during"), "throughput (Mb/s)", point={"queue": queue},
            )
            for queue in QUEUES
        ),
        *(
            Bars(
                f"ping-{queue}", f"Ping while both run, with queues of {queue} KiB.", ("ping_during",),
                "round trip (ms)", point={"queue": queue}, log=True,
            )
            for queue in QUEUES
        ),
    ),
    quick=Quick(arms=("fifo", "ncr-paper", "ours")),
    differences=(
        "the paper says neither how far the terminal is from the mast nor how strong both send: here each direction "
        "has the modulation whose transport blocks are nearest to the rates of 30 and 15 Mb/s; LENA hands out 48 of "
        "the 50 resource blocks down, so TCP's payload is 28.2 Mb/s at most, and 14.7 up",
        f"the queues of the radio's bearers are not stated either: the claims are judged at {QUEUE} KiB, as a download "
        "alone has 4 Mb/s with the 10 KiB that LENA has if nothing else is said",
        "delays are not stated: 2 ms each way between core and server",
        "NCR and our access point stand between the terminal and its modem, and are told 28.5 and 14.25 Mb/s",
    ),
    clock=SIMULATED,
)  # fmt: skip
