# SPDX-License-Identifier: Apache-2.0
"""A sender in the manner of L4S beside a classic one: DCTCP with ECT(1) (RFC 9330, 9331) against CUBIC with ECT(0)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.experiment import Bars, Experiment, Goal, Measure, Quick, Timeline
from experiments.peers import DIFFERENCES, FIFO, OUR_ARM, PEER_ARMS, PEERS, QUICK_ARMS
from experiments.raw import jain, mean, rate
from experiments.scene import AccessPoint, Flow
from topologies.profiles import LinkProfile

if TYPE_CHECKING:
    from experiments.stage import Stage

PROFILE = LinkProfile("l4s", 20_000_000, 5_000_000, 0.020, 200, 1000)
SECONDS, SETTLED = 30, 8
RELABEL = "u32 match ip tos 2 0x03 action pedit ex munge ip tos set 1 retain 0x03 pipe action csum ip"


@dataclass(frozen=True)
class Ect1:
    """What a station sends with ECT(0) leaves it with ECT(1): Linux has no TCP that sets it."""

    station: int

    def prepare(self, stage: "Stage") -> None:
        station = stage.station(self.station)
        interface = str(station.defaultIntf())
        station.run("tc", "qdisc", "add", "dev", interface, "clsact")
        station.run("tc", "filter", "add", "dev", interface, "egress", "protocol", "ip", *RELABEL.split())


EXPERIMENT = Experiment(
    name="l4s",
    title="An upload in the manner of L4S beside a classic one",
    paper="none: RFC 9331, section 4.3, on coexistence",
    question="Does a scalable sender, whose window gives way by as much as was marked, push a classic one aside?",
    scene=AccessPoint(
        PROFILE,
        SECONDS,
        (
            Ect1(1),
            Flow("scalable", "up", station=1, cc="dctcp", cwnd_limited=False),
            Flow("classic", "up", station=2, cwnd_limited=False),
        ),
        stations=2,
        peers=PEERS,
    ),
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=(
        Measure("scalable", "Mb/s", "upload of the scalable sender", rate("scalable", SETTLED)),
        Measure("classic", "Mb/s", "upload of the classic one", rate("classic", SETTLED)),
        Measure("fair", "", "Jain's index of both", jain("*", SETTLED)),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", SETTLED), "{:.1f}"),
    ),
    goals=(
        Goal(
            "met", "ours leaves the classic sender what a plain FIFO does: {value} times it (at least {limit})",
            lambda medians: medians("classic", "ours") / medians("classic", "fifo"), at_least=1.0,
        ),
        Goal(
            "beaten", "ours shares the uplink between them: Jain's index {value} (at least {limit})",
            lambda medians: medians("fair", "ours"), at_least=0.95,
        ),
    ),
    figures=(
        Timeline("throughput", "Throughput over time.", ("scalable", "classic")),
        Bars("rates", "What each sender gets.", ("scalable", "classic"), "throughput (Mb/s)"),
        Bars("ping", "Ping beside both; the empty links take 20 ms.", ("ping_mean",), "round trip (ms)", log=True),
    ),
    repeats=5,
    quick=Quick(seconds=20, arms=QUICK_ARMS),
    differences=(*DIFFERENCES, "the scalable sender is DCTCP, the one that Linux has, and not TCP Prague"),
)  # fmt: skip
