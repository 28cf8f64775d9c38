# SPDX-License-Identifier: Apache-2.0
"""Paper 001's index in a simulated cell of 802.11b: over the number of nodes and over the length of sessions, with its
TCPs, its two adjustments, and with this access point in front of plain CUBIC hosts."""

from collections.abc import Mapping
from math import fsum
from statistics import fmean
from typing import Literal, cast

from accesspoint.experiments.catalogue.fairness.radio import DELAY, RADIO
from accesspoint.experiments.experiment import OURS, Arm, Curves, Experiment, Measure, Point, Quick, Reported
from accesspoint.experiments.measure.run_data import Of, Raw, rate
from accesspoint.experiments.scenes.cells import Cell, Transfer
from accesspoint.topologies.kernels.kernel import SIMULATED

SECONDS = 100.0
LAST = 90.0  # s: what begins later might not end
SETTLED = 10.0
PERIOD = 10.0
BOTH = "both"  # directions at once
# Bytes of a session: close enough for the length from which on Reno is above Vegas.
LENGTHS = (1_000, 5_000, 10_000, 20_000, 30_000, 50_000, 70_000, 100_000, 200_000, 500_000)
# Mb/s: what the cell carries of TCP, as section 4.1 has it of its own: the largest mean of cell-effective over the
# nodes. A test compares.
EFFECTIVE = {"down": 5.06, "up": 5.38}
# Mb/s on the wire, 95 % of what uploads reach (1514 octets for 1448): they wait at our access point, not in stations.
UPLINK = 5.3


def ideal(raw: Raw, effective: float) -> float:
    """e, the ideal finish time (s), equations 1 and 2. effective: Mb/s that the cell carries in its direction."""
    assert raw.point
    share = effective * 1e6 / 8 / int(raw.point["nodes"])
    return int(raw.point["bytes"]) / share


def unfinished(raw: Raw) -> float:
    """Part of the sessions that did not end."""
    missing = len(raw.values("unfinished_s"))
    return missing / max(1, missing + len(raw.values("session_s")))


def curves(x: str, xlabel: str, log_x: bool = False, **fixed: int) -> tuple[Curves, ...]:
    return tuple(
        Curves(f"{measure}-{way}", f"{text}, {way}loads.", measure, x, xlabel, label,
               point={"direction": way, **fixed}, log_x=log_x)
        for measure, text, label in (
            ("if", "Instantaneous fairness", "IF"), ("throughput", "All users together", "throughput (Mb/s)")
        )
        for way in ("down", "up")
    )  # fmt: skip


def index(quantity: str, effective: Mapping[str, float] = EFFECTIVE) -> Of:
    """IF, equation 3, of finish times at the sender (`session_s`) or of response times. A session that did not end
    counts as 0: without it, starving somebody would improve the index."""

    def of(raw: Raw) -> float | None:
        assert raw.point
        way = str(raw.point["direction"])
        indices = [
            ideal(raw, effective[direction(int(sample.source.removeprefix("sta")), way)]) / sample.value
            for sample in raw.of(quantity)
            if sample.value > 0
        ]
        sessions = len(raw.values("session_s")) + len(raw.values("unfinished_s"))
        return fsum(indices) / sessions if sessions else None

    return of


def window(raw: Raw) -> float | None:
    """Mean window (packets) of the persistent flows, which are the first half."""
    assert raw.point
    persistent = int(raw.point["nodes"]) // 2
    found = [v for number in range(1, persistent + 1) for v in raw.values("cwnd", f"sta{number}", SETTLED)]
    return fmean(found) if found else None


def first_wait(raw: Raw) -> float | None:
    """Mean time (ms) that a session's first two data packets are at the access point: of bridges, and downloads."""
    return fmean(found) if (found := raw.values("first_wait_ms")) else None


def direction(node: int, way: str) -> Literal["down", "up"]:
    """Return a node's direction; where the point has both, every other node uploads."""
    return cast(Literal["down", "up"], way) if way != BOTH else "down" if node % 2 else "up"


def scene(point: Point, arm: Arm) -> Cell:
    """The first half of the nodes sends or fetches all the time, the others a session every ten seconds."""
    nodes, length = int(point["nodes"]), int(point["bytes"])
    transport = str(arm.options["transport"])
    traffic = []
    for number in range(1, nodes + 1):
        way = direction(number, str(point["direction"]))
        traffic.append(
            Transfer(number, way, transport=transport)
            if number <= nodes // 2
            else Transfer(number, way, end=LAST, length=length, period=PERIOD, transport=transport)
        )
    return Cell(
        nodes, SECONDS, tuple(traffic), DELAY, {**RADIO, "initial": arm.options.get("initial", RADIO["initial"])}
    )


def host(name: str, label: str, role: Literal["plain", "paper"], transport: str) -> Arm:
    return Arm(name, f"{label}, bridge", role, ecn=False, options={"transport": transport})


# Linux of today: its first window (RFC 6928), and TCP_MAX_QUICKACKS.
CUBIC = {"transport": "ns3::TcpBoundedCubic", "initial": 10, "quick_acks": 16}
ARMS = (
    host("reno", "Reno", "plain", "ns3::TcpLinuxReno"),
    host("westwood", "Westwood", "plain", "ns3::TcpWestwoodPlus"),
    host("vegas", "Vegas", "plain", "ns3::TcpPacketVegas"),
    host("reno-maxwin", "Reno-MaxWin10", "paper", "ns3::TcpRenoMaxwin"),
    host("vegas-fair", "Vegas-Fair", "paper", "ns3::TcpVegasFair"),
    Arm("cubic", "CUBIC of today, bridge", "plain", options=CUBIC),
    Arm("ours-cubic", "this access point, CUBIC of today", "ours", OURS, options={**CUBIC, "uplink_mbps": UPLINK}),
)  # fmt: skip
MEASURES = (
    Measure("if", "1", "instantaneous fairness", index("session_s")),
    Measure("response", "1", "the same of response times", index("response_s")),
    Measure("throughput", "Mb/s", "all nodes together", rate("sta*", SETTLED)),
    Measure("window", "packets", "congestion window of the persistent flows, mean", window, "{:.1f}"),
    Measure("unfinished", "1", "sessions that did not end", unfinished),
    Measure("first_wait", "ms", "a session's first two data packets at the access point, mean", first_wait, "{:.0f}"),
)
DIFFERENCES = (
    "the cell is that of cell-effective (ns-3, long preambles, 11 and 1 Mb/s), and the fair share is of what it "
    "carries: 5.06 Mb/s down and 5.38 up, where the paper's carries 4.96 and 6.88",
    "Vegas is this project's (docs/hosts/cc.md), with Linux's alpha 2 and beta 4; ns-2's are 1 and 3",
    "sessions of a node share one connection; ns-3 leaves its idle window as it was. Hosts of the paper's TCPs begin "
    "with 2 segments, and acknowledge the last of an odd number 40 ms late; those of CUBIC, which is not of the paper, "
    "begin with 10, and acknowledge at once after a pause, as Linux does",
    "a session that did not end counts as 0: the index is a lower bound, and the measure next to it shows for how many",
    "length and repeats of the paper's runs are not stated; Fig. 2-6 are pictures in the source",
    "in both directions at once every other node uploads, which at 4 and 8 nodes is half of the persistent ones",
)


NODES = Experiment(
    name="cell-fairness",
    title="Instantaneous fairness over the number of nodes, in a simulated cell",
    paper="001, sections 4.3 and 5.2, Fig. 2(a), 3(a), 4, 6",
    question="How soon does a node that sends now and then get its share of a link with nodes that always send?",
    sweep={"direction": ("down", "up", BOTH), "nodes": (2, 4, 6, 8, 10), "bytes": (10_000,)},
    scene=scene,
    arms=ARMS,
    measures=MEASURES,
    reported=(Reported("if", "vegas", 0.6, "section 4.3", {"direction": "down", "nodes": 4, "bytes": 10_000}),),
    figures=curves("nodes", "nodes", bytes=10_000),
    repeats=10,
    quick=Quick(
        seconds=30,
        arms=("reno", "westwood", "vegas", "reno-maxwin", "vegas-fair", "ours-cubic"),
    ),
    differences=DIFFERENCES,
    clock=SIMULATED,
    apart=True,
)
OVER_LENGTHS = Experiment(
    name="cell-lengths",
    title="Instantaneous fairness over the length of sessions, in a simulated cell",
    paper="001, section 4.3, Fig. 2(b), 3(b)",
    question="From which length on does a session get its share whatever the TCP?",
    sweep={"direction": ("down", "up"), "nodes": (4,), "bytes": LENGTHS},
    scene=scene,
    arms=ARMS,
    measures=MEASURES,
    reported=tuple(
        Reported("if", "vegas", 0.6, "section 4.3", {"direction": "down", "nodes": 4, "bytes": octets})
        for octets in (10_000, 50_000, 500_000)
    ),
    figures=curves("bytes", "bytes a session", log_x=True, nodes=4),
    repeats=10,
    quick=Quick(seconds=30, arms=("reno", "westwood", "vegas"), sweep={"bytes": LENGTHS[2:]}),
    differences=DIFFERENCES,
    clock=SIMULATED,
    apart=True,
)

EXPERIMENTS = [NODES, OVER_LENGTHS]
