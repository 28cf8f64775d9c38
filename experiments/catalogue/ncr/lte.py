# SPDX-License-Identifier: Apache-2.0
"""Paper 000's cell of LTE in ns-3's LENA, which the paper has, too (docs/decisions/0030-lte.md)."""

from accesspoint.experiments.catalogue.ncr import behind_modem
from accesspoint.experiments.catalogue.ncr.behind_modem import Times
from accesspoint.experiments.catalogue.ncr.cells import ARMS
from accesspoint.experiments.catalogue.ncr.testbed import PLACE, of_ncr
from accesspoint.experiments.experiment import Experiment, Quick, Reported
from accesspoint.topologies.kernels.kernel import SIMULATED
from accesspoint.topologies.links.profiles import LinkProfile

TIMES = Times(1.0, 13.0, 39.0, 50.0)
QUEUES = (10, 80, 1280)
"""KiB: LENA's default; the first doubling of it with which a transfer alone, of either direction, has what the radio
carries; and the first above the 1000 packets of the paper's testbed."""
QUEUE = 80
TOLD = LinkProfile("below lte", 28_500_000, 14_250_000)
"""5 % below the rates that the paper names: told less than its modem carries, the access point has the queue."""

AT = {"queue": QUEUE}

EXPERIMENT = Experiment(
    name="cell-lte",
    title="A download during an upload, in a simulated cell of LTE",
    paper="000, section 4.1.3, Fig. 11, 12",
    question="How much of a download is left while an upload runs, behind a modem in a cell of LTE?",
    sweep={"queue": QUEUES},
    scene=lambda point, arm: behind_modem.scene(TIMES, TOLD, int(point["queue"]) << 10, "lte"),
    arms=ARMS,
    measures=behind_modem.measures(TIMES),
    reported=(
        Reported("download_during", "fifo", 16.99, "Fig. 11", AT),
        Reported("total_during", "fifo", 31.36, "Fig. 12", AT),
        *of_ncr("download_during", 30.02, "Fig. 11", AT),
        *of_ncr("total_during", 36.19, "Fig. 12", AT),
    ),
    figures=behind_modem.figures(TIMES, QUEUES, "KiB", AT, QUEUES),
    quick=Quick(arms=("fifo", "ncr-uplink", "ours")),
    differences=(
        PLACE,
        "the paper says neither how far the terminal is from the mast nor how strong both send: here each direction "
        "has the modulation whose transport blocks are nearest to the rates of 30 and 15 Mb/s; LENA hands out 48 of "
        "the 50 resource blocks down, so TCP's payload is 28.2 Mb/s at most, and 14.7 up",
        f"the queues of the radio's bearers are not stated either: the claims are judged at {QUEUE} KiB, as a download "
        "alone has 4 Mb/s with LENA's default of 10 KiB",
        "delays are not stated: 2 ms each way between core and server",
        "NCR and this access point are between the terminal and its modem, configured with 28.5 and 14.25 Mb/s",
    ),
    clock=SIMULATED,
)  # fmt: skip
