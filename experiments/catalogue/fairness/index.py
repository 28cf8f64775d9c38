# SPDX-License-Identifier: Apache-2.0
"""The paper's index over the number of nodes and over the length of sessions, with its TCPs, its two adjustments, and
with this access point in front of unchanged hosts."""

from math import fsum
from typing import Literal, cast

from accesspoint.experiments.experiment import OURS, Arm, Curves, Experiment, Measure, Point, Quick, Reported
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.scenes.scene import AccessPoint, Sessions
from accesspoint.topologies.links.profiles import LinkProfile

SECONDS = 100.0
EFFECTIVE = {"down": 4.96, "up": 6.88}  # Mb/s, Table 1: rho B of TCP
FRAME = 1514 / 1448  # octets on the wire for each of payload
# 802.11b as a cell that carries what Table 1 measured. ns-2's queues hold 50 packets; 10 ms to the wired side.
CELL = LinkProfile(
    "802.11b", round(EFFECTIVE["down"] * 1e6 * FRAME), round(EFFECTIVE["up"] * 1e6 * FRAME),
    rtt=0.02, down_limit=50, up_limit=50, shared=True,
)  # fmt: skip
INTERMITTENT = "session_s"


def share(raw: Raw) -> float:
    """S_TCP(N) in bytes/s (equations 1 and 2)."""
    assert raw.point
    return EFFECTIVE[str(raw.point["direction"])] * 1e6 / 8 / int(raw.point["nodes"])


def instantaneous_fairness(raw: Raw) -> float | None:
    """IF, equation 3: the mean of ideal over measured finish time. A session that did not end counts as 0, the least
    that it may come to, so that the index is a lower bound; without it, starving somebody would improve the index."""
    assert raw.point
    ideal = int(raw.point["bytes"]) / share(raw)
    times = raw.values(INTERMITTENT)
    sessions = len(times) + len(raw.values("unfinished_s"))
    return fsum(ideal / time for time in times if time > 0) / sessions if sessions else None


def throughput(raw: Raw) -> float:
    """Sum of all users' throughput, Mb/s."""
    return fsum(raw.values("session_bytes")) * 8e-6 / raw.seconds


def unfinished(raw: Raw) -> float:
    intermittent = raw.values(INTERMITTENT), raw.values("unfinished_s")
    return len(intermittent[1]) / max(1, sum(map(len, intermittent)))


def scene(point: Point, arm: Arm) -> AccessPoint:
    nodes, direction = int(point["nodes"]), cast(Literal["down", "up"], point["direction"])
    return AccessPoint(CELL, SECONDS, (Sessions(nodes, int(point["bytes"]), direction),), stations=nodes)


def control(name: str, label: str, role: Literal["plain", "paper"]) -> Arm:
    """An arm whose hosts use one of this project's BPF congestion controls behind a plain access point."""
    kernel = name.replace("-", "_")
    return Arm(name, label, role, cc=f"bpf_{kernel}", ecn=False, controls=(kernel,))


ARMS = (
    Arm("reno", "Reno", "plain", cc="reno", ecn=False),
    control("westwood", "Westwood", "plain"),
    control("vegas", "Vegas", "plain"),
    control("reno-maxwin", "Reno-MaxWin10", "paper"),
    control("vegas-fair", "Vegas-Fair", "paper"),
    Arm("ours-reno", "this access point, Reno", "ours", OURS, cc="reno"),
    Arm("ours-cubic", "this access point, CUBIC", "ours", OURS),
    Arm(
        "both", "this access point, Vegas-Fair", "ours", OURS,
        cc="bpf_vegas_fair", ecn=False, controls=("vegas_fair",),
    ),
)  # fmt: skip
MEASURES = (
    Measure("if", "1", "instantaneous fairness", instantaneous_fairness),
    Measure("throughput", "Mb/s", "all users together", throughput),
    Measure("unfinished", "1", "sessions that did not end", unfinished),
)
DIFFERENCES = (
    "802.11b is a cell with the throughput of Table 1 each way and queues of 50 packets, without contention",
    "sessions of a user share a connection, whose window Linux lets start at 10 segments (RFC 6928), ns-2 at 1 or 2: "
    "10 KB take one round trip here, and all indexes are higher",
    "Fig. 2-6 are pictures in the source: of their values only those in the text are known",
    "a session that did not end counts as 0: the index is a lower bound, and the measure next to it shows for how many",
)


def curves(x: str, xlabel: str, log_x: bool = False, **fixed: int) -> tuple[Curves, ...]:
    return tuple(
        Curves(f"{measure}-{way}", f"{text}, {way}loads.", measure, x, xlabel, label,
               point={"direction": way, **fixed}, log_x=log_x)
        for measure, text, label in (
            ("if", "Instantaneous fairness", "IF"), ("throughput", "All users together", "throughput (Mb/s)")
        )
        for way in ("down", "up")
    )  # fmt: skip


NODES = Experiment(
    name="fairness-nodes",
    title="Instantaneous fairness over the number of nodes",
    paper="001, sections 4.3 and 5.2, Fig. 2-4, 6",
    question="How soon does a node that sends now and then get its share of a link with nodes that always send?",
    sweep={"direction": ("down", "up"), "nodes": (2, 4, 6, 8, 10), "bytes": (10_000,)},
    scene=scene,
    arms=ARMS,
    measures=MEASURES,
    reported=(
        Reported("if", "vegas", 0.6, "section 4.3, Fig. 2", {"direction": "down", "nodes": 4, "bytes": 10_000}),
        Reported("if", "reno", 0.3, "section 4.3: half of Vegas", {"direction": "down", "nodes": 4, "bytes": 10_000}),
    ),
    figures=curves("nodes", "nodes", bytes=10_000),
    repeats=10,
    quick=Quick(seconds=20, sweep={"nodes": (4,)}),
    differences=DIFFERENCES,
)  # fmt: skip

LENGTHS = Experiment(
    name="fairness-lengths",
    title="Instantaneous fairness over the length of sessions",
    paper="001, section 4.3, Fig. 2(b), 3(b)",
    question="From which length on does a session get its share whatever the TCP?",
    sweep={"direction": ("down", "up"), "nodes": (4,), "bytes": (1_000, 5_000, 10_000, 50_000, 100_000, 500_000)},
    scene=scene,
    arms=ARMS,
    measures=MEASURES,
    reported=tuple(
        Reported("if", "vegas", 0.6, "section 4.3, Fig. 2(b)", {"direction": "down", "nodes": 4, "bytes": octets})
        for octets in (10_000, 500_000)
    ),
    figures=curves("bytes", "bytes a session", log_x=True, nodes=4),
    repeats=10,
    # The other arms have their sessions of 10 KB in the experiment above.
    quick=Quick(
        seconds=20, arms=("reno", "vegas", "ours-reno"), sweep={"direction": ("down",), "bytes": (10_000, 500_000)}
    ),
    differences=DIFFERENCES,
)  # fmt: skip

EXPERIMENTS = [NODES, LENGTHS]
