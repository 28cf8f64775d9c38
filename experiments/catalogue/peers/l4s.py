# SPDX-License-Identifier: Apache-2.0
"""A sender in the manner of L4S beside a classic one: DCTCP with ECT(1) (RFC 9330, 9331) against CUBIC with ECT(0)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from accesspoint.experiments.catalogue.peers import DIFFERENCES, FIFO, OUR_ARM, PEER_ARMS, PEERS, QUICK_ARMS, ping_added
from accesspoint.experiments.experiment import Arm, Bars, Experiment, Goal, Measure, Quick, Timeline
from accesspoint.experiments.measure.run_data import Raw, jain, mean, rate
from accesspoint.experiments.measure.samples import percentile
from accesspoint.experiments.scenes.crossing import Crossing
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import LinkProfile

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

PROFILE = LinkProfile("l4s", 20_000_000, 5_000_000, 0.020, 200, 1000)
SECONDS, SETTLED = 30, 8
FRAME = 8 * 1514 / PROFILE.up * 1e3  # ms on the uplink
L4S_ARMS = (
    Arm("dualpi2", "DualPI2 (RFC 9332) behind tbf", "peer", options={"peer": "dualpi2"}),
    Arm("fq_codel-l4s", "fq_codel, marks ECT(1) after two frames", "peer", options={"peer": "fq_codel-l4s"}),
)
RELABEL = "u32 match ip tos 2 0x03 action pedit ex munge ip tos set 1 retain 0x03 pipe action csum ip"


@dataclass(frozen=True)
class Ect1:
    """A filter that rewrites ECT(0) to ECT(1) in a station's outgoing packets: Linux has no TCP that sets ECT(1)."""

    station: int

    def prepare(self, stage: "Stage") -> None:
        station = stage.station(self.station)
        interface = str(station.defaultIntf())
        station.run("tc", "qdisc", "add", "dev", interface, "clsact")
        station.run("tc", "filter", "add", "dev", interface, "egress", "protocol", "ip", *RELABEL.split())


def _queue_p99(raw: Raw) -> float | None:
    """Time in queues (ms, p99): above that of the quickest segment, which found no queue."""
    all_of_them, settled = raw.values("crossing_ms"), raw.values("crossing_ms", start=SETTLED)
    return percentile(settled, 0.99) - min(all_of_them) if settled else None


EXPERIMENT = Experiment(
    name="l4s",
    title="An upload in the manner of L4S and a classic one",
    paper="none: RFC 9331, section 4.3, on coexistence",
    question="Does a scalable sender, whose window gives way by as much as was marked, push a classic one aside?",
    scene=AccessPoint(
        PROFILE,
        SECONDS,
        (
            Ect1(1),
            Crossing(SECONDS),
            Flow("scalable", "up", station=1, cc="dctcp", cwnd_limited=False),
            Flow("classic", "up", station=2, cwnd_limited=False),
        ),
        stations=2,
        peers=(*PEERS, "fq_codel-l4s"),
    ),
    arms=(FIFO, *PEER_ARMS, *L4S_ARMS, OUR_ARM),
    measures=(
        Measure("scalable", "Mb/s", "upload of the scalable sender", rate("scalable", SETTLED)),
        Measure("classic", "Mb/s", "upload of the classic one", rate("classic", SETTLED)),
        Measure("fair", "", "Jain's index of both", jain("*", SETTLED)),
        Measure("queue_p99", "ms", "the scalable sender's segments in queues, p99", _queue_p99, "{:.1f}"),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", SETTLED), "{:.1f}"),
        ping_added(SETTLED),
    ),
    goals=(
        Goal(
            "this access point leaves the classic sender what a plain FIFO does: {value} times it (at least {limit})",
            lambda medians: medians("classic", "ours") / medians("classic", "fifo"), at_least=1.0,
        ),
        Goal(
            "this access point shares the uplink between them: Jain's index {value} (at least {limit})",
            lambda medians: medians("fair", "ours"), at_least=0.95,
        ),
        Goal(
            "the scalable sender's segments wait {value} (p99, at most {limit}: two frames)",
            lambda medians: medians("queue_p99", "ours"), at_most=2 * FRAME, shown="{:.1f} ms",
            why="DCTCP sends at once what an ACK allows, two segments or more, which wait for each other and for the "
            "frame on the wire (read, not measured apart)",
        ),
    ),
    figures=(
        Timeline("throughput", "Throughput over time.", ("scalable", "classic")),
        Bars("rates", "Throughput of each sender.", ("scalable", "classic"), "throughput (Mb/s)"),
        Bars("ping", "Ping under load; the empty links take 20 ms.", ("ping_mean",), "round trip (ms)", log=True),
    ),
    repeats=5,
    quick=Quick(seconds=20, arms=(*QUICK_ARMS, "fq_codel-l4s")),
    differences=(
        *DIFFERENCES,
        "`dualpi2` is where the kernel has it (Linux 6.17): `--arms` names it",
        "the scalable sender is DCTCP, the one that Linux has, and not TCP Prague",
    ),
    clock=VIRTUAL,
)  # fmt: skip
