# SPDX-License-Identifier: Apache-2.0
"""Paper 000's cell of WiMAX in ns-3, where the paper has OPNET (docs/decisions/0031-wimax.md)."""

from accesspoint.experiments.catalogue.ncr import behind_modem
from accesspoint.experiments.catalogue.ncr.behind_modem import Times
from accesspoint.experiments.catalogue.ncr.cells import ARMS
from accesspoint.experiments.catalogue.ncr.testbed import PLACE, of_ncr
from accesspoint.experiments.experiment import Experiment, Quick, Reported
from accesspoint.topologies.kernels.kernel import SIMULATED
from accesspoint.topologies.links.profiles import LinkProfile

TIMES = Times(10.0, 200.0, 400.0, 600.0)
QUEUES = (64, 1024)
"""Packets: a short one, with which a transfer alone still has what the radio carries; and ns-3's default."""
QUEUE = 1024
TOLD = LinkProfile("below wimax", 4_320_000, 1_250_000)
"""5 % below what a transfer alone gets: told less than its modem carries, the access point has the queue."""

AT = {"queue": QUEUE}

EXPERIMENT = Experiment(
    name="cell-wimax",
    title="A download during an upload, in a simulated cell of WiMAX",
    paper="000, section 4.1.2, Fig. 8, 10, 12",
    question="How much of a download is left while an upload runs, behind a modem in a cell of WiMAX?",
    sweep={"queue": QUEUES},
    scene=lambda point, arm: behind_modem.scene(TIMES, TOLD, int(point["queue"]), "wimax"),
    arms=ARMS,
    measures=behind_modem.measures(TIMES),
    reported=(
        Reported("download_alone", "fifo", 4.28, "Fig. 8", AT),
        Reported("download_during", "fifo", 1.52, "Fig. 8", AT),
        *of_ncr("download_alone", 4.33, "Fig. 8", AT),
        *of_ncr("download_during", 3.17, "Fig. 8", AT),
    ),
    figures=behind_modem.figures(TIMES, QUEUES, "packets", AT, (QUEUE,)),
    # As `ncr-wimax`: each phase is longer than a full uplink takes to drain.
    quick=Quick(seconds=60, arms=("fifo", "ncr-uplink", "ours")),
    differences=(
        PLACE,
        "the paper says 75 % of the capacity down and 25 % up, and data rates of about 4.5 and 1.5 Mb/s, but neither "
        "channel nor modulation: here they are those with which a transfer alone, of either direction, is nearest to "
        "these rates: 4.55 down and 1.32 up",
        "the uplink's service flow has the whole of its part of each frame granted without asking (UGS): ns-3's modem "
        "cannot ask for more while its queue is full",
        f"queues are not stated: the claims are judged at {QUEUE} packets, ns-3's default",
        "delays are not stated: 2 ms each way between base station and server",
        "NCR and this access point are between the terminal and its modem, configured with 4.32 and 1.25 Mb/s",
    ),
    clock=SIMULATED,
)  # fmt: skip
