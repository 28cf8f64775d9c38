# SPDX-License-Identifier: Apache-2.0
"""Batches of uploads: how their throughput differs within a batch and between batches, and round trips during them."""

from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from accesspoint.experiments.catalogue.batcp import aggregation
from accesspoint.experiments.experiment import Arm, Bars, Curves, Experiment, Measure, Point, Quick, Reported
from accesspoint.experiments.measure.run_data import Raw, mean
from accesspoint.experiments.scenes.scene import Multihomed
from accesspoint.experiments.scenes.tcp_info import round_trip
from accesspoint.topologies.kernels.kernel import VIRTUAL

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

OCTETS = 5_000_000
UPLOADS = 25  # of a batch (section 4.1)
ADSL, HSPA = "adsl-adsl", "adsl-hspa-bursts"


@dataclass(frozen=True)
class RoundTrips:
    """Samples `tcp_rtt_ms` of the phone's connection once a second of the run: TCP's smoothed round trip, from its
    socket."""

    def prepare(self, stage: "Stage") -> None:
        def look() -> None:
            if (rtt := round_trip(stage.station(1).run("ss", "-tinH"))) is not None:
                stage.sample(stage.now(), "tcp_rtt_ms", rtt)

        for second in range(1, int(stage.seconds)):
            stage.at(second / stage.scale, look)


def scene(point: Point, arm: Arm) -> Multihomed:
    options = {name: value for name, value in arm.options.items() if name != "links"}
    made = aggregation.scene({"links": arm.options["links"], "bytes": OCTETS}, replace(arm, options=options))
    looks = (RoundTrips(),) if "link" in options else ()
    # An upload that has not ended has no throughput: with too little time the slow ones of a batch would be missing.
    return replace(made, seconds=2 * made.seconds, traffic=(*made.traffic, *looks))


def kilobytes(raw: Raw) -> float | None:
    got = raw.values("kbit_per_s")
    return got[0] / 8 if got else None


def rtt_difference(raw: Raw) -> float | None:
    values = raw.values("tcp_rtt_ms")
    return fmean(abs(after - before) for before, after in pairwise(values)) if len(values) > 1 else None


EXPERIMENT = Experiment(
    name="batcp-batches",
    title="Batches of uploads over one interface and over two",
    paper="003, section 4, Fig. 4",
    question="How much does the throughput of uploads differ within a batch and between batches, and what round trips "
    "do single interfaces have during them?",
    sweep={"batch": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)},
    scene=scene,
    arms=(
        Arm("adsl1", "TCP over ADSL1", "plain", options={"links": ADSL, "how": "tcp", "link": 1}),
        Arm("adsl2", "TCP over ADSL2", "plain", options={"links": ADSL, "how": "tcp", "link": 2}),
        Arm("hspa", "TCP over HSPA", "plain", options={"links": HSPA, "how": "tcp", "link": 2}),
        Arm("batcp-adsl", "BATCP over ADSL1 and ADSL2", "paper", options={"links": ADSL, "how": "paper"}),
        Arm("batcp-hspa", "BATCP over ADSL1 and HSPA", "paper", options={"links": HSPA, "how": "paper"}),
    ),
    measures=(
        Measure("throughput", "kB/s", "throughput of an upload", kilobytes),
        Measure("rtt", "ms", "mean round trip during an upload", mean("tcp_rtt_ms"), "{:.0f}"),
        Measure("rtt_difference", "ms", "mean difference of successive round trips", rtt_difference, "{:.1f}"),
    ),
    reported=(
        Reported("throughput", "adsl1", (77.6726, 79.1615), "Fig. 4", {"batch": 1}),
        Reported("throughput", "adsl2", (77.6726, 79.1615), "Fig. 4", {"batch": 1}),
        Reported("throughput", "hspa", (39.0112, 44.3763), "Fig. 4", {"batch": 1}),
    ),
    figures=(
        Curves("throughput", f"Throughput of batches of {UPLOADS} uploads of 5 MB.", "throughput", "batch", "batch",
               "throughput (kB/s)"),
        Bars("round-trips", "Round trips during uploads, and the mean difference of successive ones (batch 1).",
             ("rtt", "rtt_difference"), "ms", arms=("adsl1", "adsl2", "hspa"), point={"batch": 1}),
    ),
    repeats=UPLOADS,
    quick=Quick(repeats=UPLOADS, sweep={"batch": (1, 2, 3, 4, 5)}),  # as many figures of a batch as a quick form needs
    differences=(
        "each upload is of 5 MB, and has a lab and a trace of the modem of its own; batches share none",
        "the modem's delay puts the answer about round trips in: all links have 20 ms a way and a queue of 50 packets,"
        " which takes longer at the modem's rate, and bursts and outages are a model of which the spread was fitted to"
        " the throughputs of Fig. 4; the ADSL links have no chance at all",
        "round trips are TCP's smoothed ones, from the socket as the paper took them, once a second: how often it did"
        " is not said",
    ),
    clock=VIRTUAL,
    apart=True,
)  # fmt: skip
