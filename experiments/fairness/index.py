# SPDX-License-Identifier: Apache-2.0
"""The paper's index over the number of nodes and over the length of sessions, with its TCPs, its two adjustments, and
with our access point in front of hosts that are left as they are."""

from typing import Literal, cast

from experiments.experiment import OURS, Arm, Curves, Experiment, Goal, Measure, Medians, Point, Quick, Reported
from experiments.raw import Raw
from experiments.scene import AccessPoint, Sessions
from topologies.profiles import LinkProfile

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
    """IF, equation 3: the mean of ideal over measured finish time. A session that never ended counts with the time that
    it had, which is more than the paper does: without it, starving somebody would improve the index."""
    assert raw.point
    ideal = int(raw.point["bytes"]) / share(raw)
    times = [*raw.values(INTERMITTENT), *raw.values("unfinished_s")]
    return sum(ideal / time for time in times if time > 0) / len(times) if times else None


def throughput(raw: Raw) -> float:
    """Of all users, Mb/s."""
    return sum(raw.values("session_bytes")) * 8e-6 / raw.seconds


def unfinished(raw: Raw) -> float:
    intermittent = raw.values(INTERMITTENT), raw.values("unfinished_s")
    return len(intermittent[1]) / max(1, sum(map(len, intermittent)))


def scene(point: Point, arm: Arm) -> AccessPoint:
    nodes, direction = int(point["nodes"]), cast(Literal["down", "up"], point["direction"])
    return AccessPoint(CELL, SECONDS, (Sessions(nodes, int(point["bytes"]), direction),), stations=nodes)


def control(name: str, label: str, role: Literal["plain", "paper"]) -> Arm:
    """An arm whose hosts use one of our BPF congestion controls behind a plain access point."""
    kernel = name.replace("-", "_")
    return Arm(name, label, role, cc=f"bpf_{kernel}", ecn=False, controls=(kernel,))


ARMS = (
    Arm("reno", "Reno", "plain", cc="reno", ecn=False),
    control("westwood", "Westwood", "plain"),
    control("vegas", "Vegas", "plain"),
    control("reno-maxwin", "Reno-MaxWin10", "paper"),
    control("vegas-fair", "Vegas-Fair", "paper"),
    Arm("ours-reno", "our access point, Reno", "ours", OURS, cc="reno"),
    Arm("ours-cubic", "our access point, CUBIC", "ours", OURS),
    Arm(
        "both", "our access point, Vegas-Fair", "ours", OURS,
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
    "Fig. 2-6 are pictures in our source: of their values only those in the text are known",
    "the index counts unfinished sessions, at the time they had",
)


def of(medians: Medians, arm: str, direction: str = "down", nodes: int = 4, octets: int = 10_000) -> float:
    return float(medians("if", arm, direction=direction, nodes=nodes, bytes=octets))


def ratio(medians: Medians, arm: str, to: str, direction: str = "down", nodes: int = 4, octets: int = 10_000) -> float:
    return of(medians, arm, direction, nodes, octets) / of(medians, to, direction, nodes, octets)


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
    question="How soon does a node that sends now and then get its share beside nodes that always send?",
    sweep={"direction": ("down", "up"), "nodes": (2, 4, 6, 8, 10), "bytes": (10_000,)},
    scene=scene,
    arms=ARMS,
    measures=MEASURES,
    reported=(
        Reported("if", "vegas", 0.6, "section 4.3, Fig. 2", {"direction": "down", "nodes": 4, "bytes": 10_000}),
        Reported("if", "reno", 0.3, "section 4.3: half of Vegas", {"direction": "down", "nodes": 4, "bytes": 10_000}),
    ),
    goals=(
        Goal("met", "Vegas is fairer than Reno to downloads: {value} times (about 2 in the paper, at least {limit})",
             lambda m: ratio(m, "vegas", "reno"), at_least=1.5),
        Goal("met", "Westwood is no fairer than Reno: {value} times (at most {limit})",
             lambda m: ratio(m, "westwood", "reno"), at_most=1.33),
        Goal("met", "Reno-MaxWin10 is fairer than Reno: {value} times (at least {limit})",
             lambda m: ratio(m, "reno-maxwin", "reno"), at_least=1.05),
        Goal("met", "Vegas-Fair is as fair as Vegas or fairer: {value} times (at least {limit})",
             lambda m: ratio(m, "vegas-fair", "vegas"), at_least=0.95),
        Goal("met", "and carries as much: {value} times (at least {limit})",
             lambda m: m("throughput", "vegas-fair", direction="down", nodes=4, bytes=10_000)
             / m("throughput", "vegas", direction="down", nodes=4, bytes=10_000), at_least=0.95),
        Goal("beaten", "our access point gives plain Reno an index of {value} for downloads (at least {limit})",
             lambda m: of(m, "ours-reno"), at_least=0.9),
        Goal("beaten", "plain CUBIC {value} (at least {limit})",
             lambda m: of(m, "ours-cubic"), at_least=0.9),
        Goal("beaten", "and uploads of plain Reno {value} (at least {limit})",
             lambda m: of(m, "ours-reno", "up"), at_least=0.9),
        Goal("beaten", "with the throughput of Reno: {value} times (at least {limit})",
             lambda m: m("throughput", "ours-reno", direction="down", nodes=4, bytes=10_000)
             / m("throughput", "reno", direction="down", nodes=4, bytes=10_000), at_least=0.97),
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
    goals=(
        Goal("met", "Vegas gives long downloads about what it gives short ones: {value} times (at most {limit})",
             lambda m: of(m, "vegas", octets=10_000) / of(m, "vegas", octets=500_000), at_most=1.5),
        Goal("met", "Reno is fairer to long downloads than to short ones: {value} times (at least {limit})",
             lambda m: of(m, "reno", octets=500_000) / of(m, "reno", octets=10_000), at_least=1.3),
        Goal("beaten", "our access point gives plain Reno {value} for downloads of 500 KB, too (at least {limit})",
             lambda m: of(m, "ours-reno", octets=500_000), at_least=0.9),
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
