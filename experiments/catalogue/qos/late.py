# SPDX-License-Identifier: Apache-2.0
"""Paper 004's fixed terminals that lose bursts, in a simulated cell of 802.11g: one with a target joins six others."""

from accesspoint.experiments.catalogue.qos.handover import BEYOND, DEVICES
from accesspoint.experiments.catalogue.qos.radio import (
    DIFFERENCES,
    MAX_THROUGHPUT,
    MOBILE_BUFFER,
    QOS,
    RADIO,
    RENO,
    fair_shares,
)
from accesspoint.experiments.experiment import OURS, Arm, Experiment, Measure, Point, Quick, Timeline
from accesspoint.experiments.measure.run_data import Raw, rate
from accesspoint.experiments.scenes.cells import Cell, Transfer
from accesspoint.topologies.kernels.kernel import SIMULATED

SECONDS, JOINS = 60.0, 20.0
SETTLED = 30.0  # s: ten after it joined
TERMINALS = BEYOND + 1


def scene(point: Point, arm: Arm) -> Cell:
    """The last terminal joins, and may have a target."""
    traffic = (
        *(Transfer(number, "up", transport=RENO) for number in range(1, TERMINALS)),
        Transfer(TERMINALS, "up", JOINS, transport=str(arm.options["last"])),
    )
    radio = {**RADIO, **DEVICES, "ap_queue": MOBILE_BUFFER, "distance": 0.3}
    return Cell(TERMINALS, SECONDS, traffic, 4, radio)


def fair(raw: Raw) -> float:
    """Mb/s of a terminal, were they all equal."""
    return raw.rate("sta*", SETTLED) / TERMINALS


def share(raw: Raw) -> float | None:
    """The last terminal's rate over the fair share."""
    rates = [raw.rate(f"sta{number}", SETTLED) for number in range(1, TERMINALS + 1)]
    return next(reversed(fair_shares(rates)), None)


EXPERIMENT = Experiment(
    name="cell-late",
    title="A terminal joins six that upload, in a simulated cell with burst errors",
    paper="004, section IV.B.6",
    question="Does a terminal with QoS-TCP get more than its fair share when it comes last?",
    sweep={"terminals": (TERMINALS,)},
    scene=scene,
    arms=(
        Arm("tcp", "Reno, bridge", "plain", ecn=False, options={"last": RENO}),
        Arm("qos", "TCP-AV for 23 Mb/s, bridge", "paper", ecn=False, options={"last": QOS}),
        Arm("ours-qos", "this access point, TCP-AV for 23 Mb/s", "ours", OURS,
            options={"last": QOS, "uplink_mbps": MAX_THROUGHPUT}),
    ),
    measures=(
        Measure("last", "Mb/s", "the terminal that joined last", rate(f"sta{TERMINALS}", SETTLED)),
        Measure("fair", "Mb/s", "a fair share", fair),
        Measure("share", "1", "the last terminal, of its fair share", share),
        Measure("total", "Mb/s", "all terminals together", rate("sta*", SETTLED)),
    ),
    figures=(Timeline("last", "The terminal that joins at 20 s.", (f"sta{TERMINALS}",)),),
    repeats=10,
    quick=Quick(),
    differences=(
        *DIFFERENCES[1:],
        "the cell is ns-3's 802.11g (Yans) of 0.3 m at a fixed 54 Mb/s, and terminals lose bursts of 50 ms every 2 s "
        "with five retries, as in cell-handover: the paper states neither its terminals' errors nor how many there are "
        "nor the target; here six upload, and the target is that of Fig. 3",
        "the paper has one sentence of it, and no picture or value",
    ),
    clock=SIMULATED,
    apart=True,
)  # fmt: skip
