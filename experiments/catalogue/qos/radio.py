# SPDX-License-Identifier: Apache-2.0
"""Paper 004 in a simulated cell of 802.11g at a fixed 54 Mb/s: terminals that get nothing, and a terminal with a target
among others, over the access point's buffer."""

from collections.abc import Mapping, Sequence
from math import fsum

from accesspoint.experiments.experiment import OURS, Arm, Curves, Experiment, Measure, Point, Quick, Reported
from accesspoint.experiments.measure.run_data import Raw, jain, rate
from accesspoint.experiments.scenes.cells import Cell, Transfer
from accesspoint.topologies.kernels.kernel import SIMULATED

SECONDS = 60.0
SETTLED = 20.0
BUFFER, MOBILE_BUFFER = 256, 265  # packets: the access point of section IV.A, those of IV.B
BUFFERS = (37, 90, 135, 256, 284)  # Table I, whole packets
TARGET = 23_000  # kbit/s, section IV.A.1
MAX_THROUGHPUT = 23.0  # Mb/s, "nearly equal to the maximum TCP throughput": the uplink's rate on the wire
WINDOW = 1 << 20  # bytes of TCP at most, below what a host's queue holds: the paper's simulation loses no data
OTHERS = 3  # uploads beside the one with a target: with it four, which the paper calls fair
ALMOST_NOTHING = 0.1  # of the fair share: "unlucky" in the claims
RENO = "ns3::TcpLinuxReno"
QOS = f"ns3::TcpAv[Target={TARGET}]"
RADIO: Mapping[str, str | float] = {
    "standard": "802.11g", "manager": "ns3::ConstantRateWifiManager", "retries": 7, "window": WINDOW,
}  # fmt: skip
DIFFERENCES = (
    "the cell is ns-3's 802.11g (Yans) of 0.3 m at a fixed 54 Mb/s without noise: the paper's simulation, and not its "
    "terminals, which differ and lose bursts",
    "terminals are ns-3's Reno with SACK behind a FIFO of 1000 packets, and their windows have at most 1 MiB, which is "
    "less: hosts lose no data of their own, as in the paper's simulation; the paper does not state the windows' limit",
    "the law of QoS-TCP is not in the text: how it gives way is this project's choice (docs/hosts/cc.md)",
    "length and repeats of the paper's runs are not stated, but for Fig. 6",
)


def fair_shares(rates: Sequence[float]) -> list[float]:
    """Each rate over the mean of all; empty where all are 0."""
    together = fsum(rates)
    return [rate * len(rates) / together for rate in rates] if together else []


def shares(raw: Raw) -> list[float]:
    """Each terminal's goodput over the fair share."""
    return fair_shares(raw.rates("sta*", SETTLED))


def lowest(raw: Raw) -> float | None:
    return min(shares(raw), default=None)


def unlucky(raw: Raw) -> float:
    return float(sum(share < ALMOST_NOTHING for share in shares(raw)))


def own_share(raw: Raw) -> float | None:
    """Goodput of the first terminal, which has the target, over the fair share."""
    found = shares(raw)
    return found[0] if found else None


def uploads(terminals: int, first: str) -> tuple[Transfer, ...]:
    """Uploads of all terminals. first: the transport of the first terminal; the others use Reno."""
    return tuple(Transfer(number, "up", transport=first if number == 1 else RENO) for number in range(1, terminals + 1))


def crowd(point: Point, arm: Arm) -> Cell:
    """Uploads of all terminals; six and more use the access point of section IV.B."""
    terminals = int(point["terminals"])
    buffer = BUFFER if terminals < 6 else MOBILE_BUFFER
    window = int(point.get("window", WINDOW))
    traffic = uploads(terminals, str(arm.options.get("first", RENO)))
    return Cell(terminals, SECONDS, traffic, 4, {**RADIO, "ap_queue": buffer, "distance": 0.3, "window": window})


def buffered(point: Point, arm: Arm) -> Cell:
    """Two plain uploads for the arm `two`; else one with a target, or none, and three plain ones."""
    terminals = int(arm.options["terminals"])
    traffic = uploads(terminals, str(arm.options["first"]))
    return Cell(terminals, SECONDS, traffic, 4, {**RADIO, "ap_queue": int(point["buffer"]), "distance": 0.3})


MEASURES = (
    Measure("total", "Mb/s", "all terminals together", rate("sta*", SETTLED)),
    Measure("jain", "1", "Jain's index over the terminals", jain("sta*", SETTLED)),
    Measure("lowest", "1", "the terminal that got least, of the fair share", lowest),
    Measure("unlucky", "1", "terminals below 0.1 of the fair share", unlucky, "{:.1f}"),
)
PLAIN_ARM = Arm("plain", "Reno, bridge", "plain", ecn=False)
OURS_ARM = Arm("ours", "this access point, Reno", "ours", OURS, options={"uplink_mbps": MAX_THROUGHPUT})


UNLUCKY = Experiment(
    name="cell-unlucky",
    title="Terminals that get almost nothing, in a simulated cell",
    paper="004, section IV.A.2 and IV.B.2, Fig. 6",
    question="From how many uploads on does a terminal get almost nothing, as its ACKs are lost at the access point?",
    sweep={"terminals": (2, 3, 4, 5, 6, 7, 8, 9, 10)},
    scene=crowd,
    arms=(
        PLAIN_ARM,
        Arm("qos", "the first with TCP-AV for 23 Mb/s, bridge", "paper", ecn=False, options={"first": QOS}),
        OURS_ARM,
    ),
    measures=(*MEASURES, Measure("first_share", "1", "the first terminal, of the fair share", own_share)),
    reported=(Reported("unlucky", "plain", 1.0, "section IV.A.2", {"terminals": 5}),),
    figures=(
        Curves("lowest", "The terminal that got least.", "lowest", "terminals", "terminals", "of the fair share"),
        Curves("total", "All terminals together.", "total", "terminals", "terminals", "throughput (Mb/s)"),
    ),
    repeats=10,
    quick=Quick(seconds=12, arms=("plain", "qos", "ours"), sweep={"terminals": (2, 3, 4, 5, 6, 7, 10)}),
    differences=(*DIFFERENCES, "the access point's buffer is 256 packets, and 265 from six terminals on"),
    clock=SIMULATED,
    apart=True,
)
WINDOWS = Experiment(
    name="cell-windows",
    title="Left open by Ando et al.: how large windows get",
    paper="004, section IV.A.2 and IV.B.2",
    question="How much of who gets almost nothing hangs on the limit of TCP's windows?",
    sweep={"terminals": (4, 5, 6, 7, 10), "window": (64 << 10, 128 << 10, 256 << 10, 1 << 20)},
    scene=crowd,
    arms=(PLAIN_ARM,),
    measures=MEASURES,
    figures=tuple(
        Curves(
            f"lowest-{terminals}", f"The terminal that got least of {terminals}.", "lowest", "window",
            "largest window (bytes)", "of the fair share", point={"terminals": terminals}, log_x=True,
        )
        for terminals in (4, 5, 7, 10)
    ),
    repeats=10,
    quick=Quick(seconds=12, sweep={"terminals": (4, 5, 10), "window": (64 << 10, 128 << 10, 256 << 10)}),
    differences=(*DIFFERENCES, "windows of 1 MiB are on the page of cell-unlucky; Fig. 6 is a picture in the source"),
    clock=SIMULATED,
    apart=True,
)  # fmt: skip
TARGETED = Experiment(
    name="cell-buffers",
    title="A terminal with a target over the access point's buffer, in a simulated cell",
    paper="004, section IV.A.1, Fig. 2, 3",
    question="What does the access point's buffer change for two plain uploads, and for one with a target of 23 Mb/s "
    "among three others?",
    sweep={"buffer": BUFFERS},
    scene=buffered,
    arms=(
        Arm("two", "two of Reno, bridge", "plain", ecn=False, options={"first": RENO, "terminals": 2}),
        Arm("reno", "four of Reno, bridge", "plain", ecn=False, options={"first": RENO, "terminals": 1 + OTHERS}),
        Arm(
            "qos", "TCP-AV, three of Reno, bridge", "paper", ecn=False, options={"first": QOS, "terminals": 1 + OTHERS}
        ),
        Arm(
            "ours",
            "this access point, TCP-AV and three of Reno",
            "ours",
            OURS,
            options={"first": QOS, "terminals": 1 + OTHERS, "uplink_mbps": MAX_THROUGHPUT},
        ),
    ),
    measures=(
        *MEASURES,
        Measure("first", "Mb/s", "the first terminal", rate("sta1", SETTLED)),
        Measure("first_share", "1", "the first terminal, of the fair share", own_share),
        Measure("others", "Mb/s", "the others together", rate("sta[2-9]*", SETTLED)),
    ),
    figures=(
        Curves("first", "The first terminal.", "first", "buffer", "packets", "throughput (Mb/s)"),
        Curves("others", "The others together.", "others", "buffer", "packets", "throughput (Mb/s)"),
    ),
    repeats=10,
    quick=Quick(seconds=12, arms=("two", "qos", "ours"), sweep={"buffer": (37, 135, 284)}),
    differences=(*DIFFERENCES, "Fig. 2 and 3 are pictures in the source: their values are not known"),
    clock=SIMULATED,
    apart=True,
)

EXPERIMENTS = [UNLUCKY, WINDOWS, TARGETED]
