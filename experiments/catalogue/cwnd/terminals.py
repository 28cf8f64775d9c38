# SPDX-License-Identifier: Apache-2.0
"""Uploads of one to ten terminals, all of them with the middleware or none; and some with it beside some without."""

from accesspoint.experiments.catalogue.cwnd.middleware import EXPONENT, Middleware
from accesspoint.experiments.experiment import OURS, Arm, Curves, Experiment, Measure, Point, Quick, Reported
from accesspoint.experiments.measure.run_data import jain, least, quantile, rate
from accesspoint.experiments.scenes.contention import DIFFERENCES, Contention, cell
from accesspoint.experiments.scenes.scene import AccessPoint, Flow

SECONDS = 60.0
SETTLED = 20.0  # s: the paper's figures show the control at work by then


def uploads(point: Point, bounding: int) -> AccessPoint:
    terminals = int(point["terminals"])
    return AccessPoint(
        cell(terminals, rtt=int(point["delay"]) / 1000),
        SECONDS,
        (
            Contention(terminals),
            Middleware(terminals, range(1, bounding + 1)),
            *(Flow(f"sta{n}", "up", station=n, cwnd_limited=n > bounding) for n in range(1, terminals + 1)),
        ),
        stations=terminals,
    )


MEASURES = (
    Measure("total", "Mb/s", "all terminals together", rate("sta*", SETTLED)),
    Measure("jain", "1", "Jain's index over the terminals", jain("sta*", SETTLED)),
    Measure("least", "Mb/s", "the terminal that got least", least("sta*", SETTLED)),
    Measure("rtt_ratio", "1", "RTT over the smallest RTT, median", quantile("rtt_ratio", 0.5, SETTLED)),
    Measure("rtt", "ms", "round trip of the uploads, median", quantile("rtt_ms", 0.5, SETTLED), "{:.0f}"),
)
PLAIN_ARM = Arm("plain", "plain terminals, plain FIFO", "plain", ecn=False)
# A station with a queue contends: the queue costs capacity, not only time. Round trips are long, so shares are
# corrected sooner.
CELL_NCR = {"ncr": {"queue_target_ms": 10, "queue_target_packets": 2, "alpha": 0.1}}
OURS_ALONE = Arm("ours", "plain terminals, this access point", "ours", OURS, controller=CELL_NCR)


def curves(x: str, xlabel: str, **fixed: int) -> tuple[Curves, ...]:
    return tuple(
        Curves(
            f"{measure}-{'-'.join(map(str, fixed.values()))}", caption, measure, x, xlabel, label, point=fixed, log=log
        )
        for measure, caption, label, log in (
            ("total", f"All terminals together, {text(fixed)}.", "throughput (Mb/s)", False),
            ("jain", f"Jain's index, {text(fixed)}.", "Jain's index", False),
            ("rtt_ratio", f"RTT over the smallest RTT, {text(fixed)}; the middleware begins at 6.", "ratio", True),
        )
    )  # fmt: skip


def text(fixed: Point) -> str:
    return ", ".join(f"{value} ms of delay" if name == "delay" else f"{value} {name}" for name, value in fixed.items())


ALL = Experiment(
    name="cwnd-terminals",
    title="Uploads through a cell, with the middleware and without",
    paper="002, Performance Evaluation, Fig. 6-12",
    question="Terminals that upload fill the access point with data and ACKs. What do bounded congestion windows "
    "change, and what an access point that knows about ACKs?",
    sweep={"terminals": (1, 2, 4, 7, 10), "delay": (4, 256)},
    scene=lambda point, arm: uploads(point, int(point["terminals"]) if arm.options.get("bounding") else 0),
    arms=(
        PLAIN_ARM,
        Arm("middleware", "middleware, plain FIFO", "paper", ecn=False, options={"bounding": True}),
        OURS_ALONE,
        Arm("both", "middleware, this access point", "ours", OURS, controller=CELL_NCR, options={"bounding": True}),
    ),
    measures=MEASURES,
    reported=(
        Reported("jain", "middleware", 1.0, "Fig. 13: about 1", {"terminals": 10, "delay": 256}),
        Reported("rtt_ratio", "middleware", (1.0, 6.0), "Fig. 12: below 6", {"terminals": 10, "delay": 256}),
    ),
    figures=(*curves("terminals", "terminals", delay=4), *curves("terminals", "terminals", delay=256)),
    repeats=10,
    # Plain terminals take half a minute to become as unequal as they stay.
    quick=Quick(seconds=40, sweep={"terminals": (10,)}),
    differences=(
        *DIFFERENCES,
        f"f(n) is n to the power of {EXPONENT:g}, which of -0.2, -0.3 and -0.4 carried most with ten terminals at 256 "
        "ms: the paper's exponent cannot be read in the source",
        "Fig. 6-17 are pictures in the source: of their values only the gain of 3.35 is known",
        "plain terminals do not use ECN; behind this access point they do",
    ),
)  # fmt: skip

MIXED = Experiment(
    name="cwnd-mixed",
    title="Terminals with the middleware and others without",
    paper="002, Performance Evaluation, Fig. 14-17",
    question="Does it help when only some of the terminals bound their windows, and whom?",
    sweep={"terminals": (4, 7, 10), "share": (0, 30, 50, 70, 100), "delay": (256,)},
    scene=lambda point, arm: uploads(point, round(int(point["terminals"]) * int(point["share"]) / 100)),
    arms=(
        Arm("plain", "plain FIFO", "paper", ecn=False),
        Arm("ours", "this access point", "ours", OURS, controller=CELL_NCR),
    ),
    measures=MEASURES,
    figures=curves("share", "terminals with the middleware (%)", terminals=10, delay=256),
    repeats=10,
    # All of them with it: that is in the other experiment.
    quick=Quick(seconds=40, sweep={"terminals": (10,), "share": (0, 50)}),
    differences=(*DIFFERENCES, "Fig. 14-17 are pictures in the source: their values are not known"),
)  # fmt: skip

EXPERIMENTS = [ALL, MIXED]
