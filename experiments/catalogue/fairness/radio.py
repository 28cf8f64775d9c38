# SPDX-License-Identifier: Apache-2.0
"""Paper 001 in a simulated cell of 802.11b: its Table 1 measured, and its index over the number of nodes."""

from collections.abc import Mapping
from typing import Literal, cast

from accesspoint.experiments.experiment import Arm, Curves, Experiment, Measure, Point, Quick, Reported, Traffic
from accesspoint.experiments.measure.run_data import rate
from accesspoint.experiments.scenes.cells import Cell, Datagrams, Transfer
from accesspoint.topologies.kernels.kernel import SIMULATED

SECONDS = 30.0
SETTLED = 5.0
NODES = (1, 2, 4, 8)
LOAD = 12.0  # Mb/s of UDP for each node: above what the cell carries
DELAY = 20.0  # ms, there and back: 10 ms each way
# ns-2's queues hold 50 packets, a station's half in the host and half in its radio; its windows begin with 2 segments.
RADIO: Mapping[str, str | float] = {
    "standard": "802.11b",
    "manager": "ns3::ConstantRateWifiManager",
    "data": "DsssRate11Mbps",
    "control": "DsssRate1Mbps",
    "ap_queue": 50, "station_radio": 25, "host_queue": "25p", "initial": 2,
}  # fmt: skip
PAPER = {  # Table 1: protocol, direction -> Mb/s by nodes
    ("UDP", "down"): (7.83, 7.83, 7.84, 7.84),
    ("UDP", "up"): (8.00, 8.92, 9.04, 8.89),
    ("TCP", "down"): (4.88, 4.91, 4.96, 4.80),
    ("TCP", "up"): (4.97, 5.02, 5.51, 6.88),
}


def table(point: Point, arm: Arm) -> Cell:
    nodes, direction = int(point["nodes"]), cast(Literal["down", "up"], point["direction"])
    traffic: tuple[Traffic, ...] = tuple(
        Datagrams(number, direction, LOAD)
        if point["protocol"] == "UDP"
        else Transfer(number, direction, transport="ns3::TcpLinuxReno")
        for number in range(1, nodes + 1)
    )
    return Cell(nodes, SECONDS, traffic, DELAY, RADIO)


EXPERIMENT = Experiment(
    name="cell-effective",
    title="Throughput of a simulated cell of 802.11b",
    paper="001, section 4.1, Table 1",
    question="How much do all nodes together get through a cell of 802.11b, by UDP and by TCP, down and up?",
    sweep={"protocol": ("UDP", "TCP"), "direction": ("down", "up"), "nodes": NODES},
    scene=table,
    arms=(Arm("plain", "bridge", "plain", ecn=False),),
    measures=(Measure("total", "Mb/s", "all nodes together", rate("sta*", SETTLED)),),
    reported=tuple(
        Reported("total", "plain", value, "Table 1", {"protocol": protocol, "direction": direction, "nodes": nodes})
        for (protocol, direction), values in PAPER.items()
        for nodes, value in zip(NODES, values, strict=True)
    ),
    figures=tuple(
        Curves(
            f"{protocol}-{direction}",
            f"{protocol}, {direction}loads.",
            "total",
            "nodes",
            "nodes",
            "throughput (Mb/s)",
            point={"protocol": protocol, "direction": direction},
        )
        for protocol, direction in PAPER
    ),
    repeats=10,
    quick=Quick(seconds=15),
    differences=(
        "the cell is ns-3's 802.11b (Yans) with long preambles, nodes at 5 m, 11 Mb/s for data and 1 for control; "
        "the paper has ns-2 and states neither preamble nor control rate, nor whether there is RTS/CTS",
        "packets carry 1472 (UDP) and 1448 bytes (TCP Reno, whose receivers acknowledge two segments): the paper does "
        "not state sizes, windows or delayed ACKs",
    ),
    clock=SIMULATED,
    apart=True,
)
