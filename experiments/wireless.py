# SPDX-License-Identifier: Apache-2.0
"""What radios add to the headline's question: many stations at one access point, and one that walks to the next."""

from experiments.headline import HEADLINE, THIRD
from experiments.live import Criterion, Flow, LiveExperiment, Summary

STATIONS = 4
SECONDS = 60  # connections come up slowly behind a full queue, and a walk takes its time
MAX_GAP = 1000.0  # ms without an answered probe; reassociation and a retransmission timeout take less
_ARMS = tuple(arm for arm in HEADLINE.arms if arm.name in ("fifo", "ncr"))
_THIRDS = HEADLINE.phases


def _kept(phase: str, arm: Summary) -> float:
    before: float = arm["downlink_mbps"]["before"]
    return float(arm["downlink_mbps"][phase]) / before if before else 0.0


MANY_STATIONS = LiveExperiment(
    name="many-stations",
    title=f"{STATIONS} downloads beside {STATIONS} uploads",
    phases=_THIRDS,
    busy_phase="during",
    flows=tuple(
        flow
        for station in range(1, STATIONS + 1)
        for flow in (
            Flow("downlink_mbps", "down", 0, 1, phases=("before", "during", "after"), station=station),
            Flow("uplink_mbps", "up", THIRD, 2 * THIRD, phases=("during",), station=station),
        )
    ),
    arms=_ARMS,
    criteria=(
        Criterion(
            "ncr", "ours keeps the downloads: {value} of before (at least {limit})",
            lambda arm: _kept("during", arm), lambda profile, cc: 0.9, at_least=True, shown="{:.1%}",
        ),
    ),
    stations=STATIONS,
    seconds=SECONDS,
)  # fmt: skip

HANDOVER = LiveExperiment(
    name="handover",
    title="A download and an upload of a station that walks from one access point to the next",
    phases=_THIRDS,
    busy_phase="during",
    flows=(
        Flow("downlink_mbps", "down", 0, 1, phases=("before", "during", "after")),
        Flow("uplink_mbps", "up", 0, 1, phases=("before", "during", "after")),
    ),
    arms=_ARMS,
    criteria=(
        Criterion(
            "ncr", "the download goes on behind the next access point: {value} of before (at least {limit})",
            lambda arm: _kept("after", arm), lambda profile, cc: 0.9, at_least=True, shown="{:.1%}",
        ),
        Criterion(
            "ncr", "the handover is short: {value} without an answer (at most {limit})",
            lambda arm: float(arm["handover"]["longest_gap_ms"]), lambda profile, cc: MAX_GAP,
            at_least=False, shown="{:.0f} ms",
        ),
    ),
    seconds=SECONDS,
    access_points=2,
    walk=(THIRD, 2 * THIRD),
)  # fmt: skip
