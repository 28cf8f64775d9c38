# SPDX-License-Identifier: Apache-2.0
"""A terminal with QoS-TCP that walks from a cell with two other terminals into one with six, 10 s without a link."""

from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.cell import DIFFERENCES, cell
from experiments.experiment import OURS, Arm, Bars, Experiment, Measure, Quick, Timeline
from experiments.qos.terminals import AIR, LOSS, QOS
from experiments.raw import jain, rate
from experiments.scene import AccessPoint, At, Effect, Flow

if TYPE_CHECKING:
    from experiments.stage import Stage

LEAVES, ARRIVES, SECONDS = 25.0, 35.0, 75.0
RECOVERED = 50.0  # s: the retransmission timer of a connection that was cut off for 10 s may be as long again
FIRST, SECOND = 2, 6  # fixed terminals of either cell
TARGET = 6.0  # Mb/s: over twice the fair share of seven terminals
CONTROL = f"tcp_av target={TARGET * 1000:.0f} ceiling=1"
# Interference that takes most of the cell for half of the time: it carries less than the target.
OUTDOORS = Effect("interference", cell(1 + SECOND, 0.0).up, SECONDS, own={"clear": 0.5, "burst": 0.5, "left": 0.1})


def linked(stage: "Stage", up: bool) -> None:
    """The mobile terminal's link to the cell: up, or gone as it is for one between two access points."""
    stage.cut.add(stage.station(1).name)
    stage.lab.net["air"].run("ip", "link", "set", "air-eth1", "up" if up else "down")


def walk(arm: Arm) -> AccessPoint:
    fixed = [
        *(Flow(f"fixed{n}", "up", 0, ARRIVES, station=1 + n) for n in range(1, 1 + FIRST)),
        *(Flow(f"new{n}", "up", ARRIVES, station=1 + FIRST + n) for n in range(1, 1 + SECOND)),
    ]
    return AccessPoint(
        replace(cell(1 + SECOND, rtt=0.004, buffer=265), up_loss=LOSS),
        SECONDS,
        (
            Flow("mobile", "up", cc=QOS if arm.controls else None, cwnd_limited=False),
            *fixed,
            At(LEAVES, lambda stage: linked(stage, False)),
            At(ARRIVES, lambda stage: linked(stage, True)),
        ),
        stations=1 + FIRST + SECOND,
        up_effect=OUTDOORS if arm.options.get("outdoors") else None,
    )


EXPERIMENT = Experiment(
    name="qos-handover",
    title="QoS-TCP through a handover",
    paper="004, section IV.B, Fig. 7-11",
    question="A terminal was 10 s without a link and comes back into a cell with six others. Does it get its target "
    "again?",
    scene=lambda point, arm: walk(arm),
    arms=(
        Arm("tcp", "plain TCP", "plain", cc="reno", ecn=False),
        Arm("qos", "QoS-TCP", "paper", cc="reno", ecn=False, controls=(CONTROL,)),
        Arm("ours", "QoS-TCP, our access point", "ours", OURS, cc="reno", controls=(CONTROL,)),
        Arm("qos-outdoors", "QoS-TCP, outdoors", "paper", cc="reno", ecn=False, controls=(CONTROL,),
            options={"outdoors": True}),
        Arm("ours-outdoors", "QoS-TCP, our access point, outdoors", "ours", OURS, cc="reno", controls=(CONTROL,),
            options={"outdoors": True}),
        Arm("ours-tcp", "plain TCP, our access point", "ours", OURS, cc="reno"),
    ),
    measures=(
        Measure("before", "Mb/s", "the terminal, in its first cell", rate("mobile", 5, LEAVES)),
        Measure("after", "Mb/s", "the terminal, in the second one", rate("mobile", RECOVERED)),
        Measure("others", "Mb/s", "the six others of the second cell", rate("new*", RECOVERED)),
        Measure("jain", "1", "Jain's index of the six others", jain("new*", RECOVERED)),
    ),
    figures=(
        Timeline("throughput", "The terminal, and one of each cell's fixed ones (Fig. 9, 10).",
                 ("mobile", "fixed1", "new1")),
        Bars("after", "In the second cell.", ("after", "others"), "throughput (Mb/s)"),
    ),
    repeats=10,
    # As long as ever: a connection that was cut off for 10 s takes 15 to come back.
    quick=Quick(arms=("tcp", "qos", "ours", "qos-outdoors")),
    differences=(
        *DIFFERENCES,
        *AIR,
        "one cell plays both: the two fixed terminals stop when the six begin, and its ACKs are as scarce as with "
        "seven from the start",
        f"the target is {TARGET:g} Mb/s, which can be reached; the paper asked for 23 Mb/s, all that a cell carries",
        "Fig. 7-11 are pictures in our source: their values are not known",
    ),
)  # fmt: skip
