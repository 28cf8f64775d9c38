# SPDX-License-Identifier: Apache-2.0
"""The headline experiment: an upload starves a download, and the access point ends it.

One station downloads over the whole time and uploads in the middle third; a probe measures the round trip beside it
(Kim et al., "Protecting Download Traffic from Upload Traffic over Asymmetric Wireless Links", section 2,
Fig. 1 and 14).
"""

from experiments.live import Arm, Criterion, Flow, LiveExperiment, Phase, Summary
from topologies.bmv2 import bulk_pace
from topologies.profiles import PROFILES, LinkProfile

THIRD = 1 / 3
PAYLOAD = 1448  # bytes of a full segment with timestamps


def _kept(arm: Summary) -> float:
    before: float = arm["downlink_mbps"]["before"]
    return float(arm["downlink_mbps"]["during"]) / before if before else 0.0


def _collapse_limit(profile: LinkProfile, cc: str) -> float | None:
    # How far a plain FIFO falls depends on the link and on the sender. The figure is the testbed's with CUBIC.
    return 0.30 if profile == PROFILES["testbed"] and cc == "cubic" else None


def _upload_limit(profile: LinkProfile, cc: str) -> float | None:
    # 0.80 Mb/s in the testbed. How much the ACKs must take depends on the link and on the sender: nothing is claimed
    # for links of the user's own.
    return 0.8 * profile.up / 1e6 if profile.name in PROFILES and cc == "cubic" else None


def _upload_beside_all_acks(profile: LinkProfile, cc: str) -> float | None:
    # BMv2 cannot thin out the download's ACKs: nine tenths of what they leave of the link, as payload of full frames.
    limit = _upload_limit(profile, cc)
    return None if limit is None else 0.9 * bulk_pace(profile.up, profile.down) * PAYLOAD * 8 / 1e6


def _ping_limit(profile: LinkProfile, cc: str) -> float:
    # On top of the base round trip 16,000 bits' time on the uplink: the rest of a full packet (12,112 bits) cannot be
    # helped. That is 20 ms in the testbed. Fast links get what timers and few cores need.
    return profile.rtt * 1e3 + max(16_000 / profile.up * 1e3, 10.0)


HEADLINE = LiveExperiment(
    name="headline",
    title="A download beside an upload",
    phases=(Phase("before", 0, THIRD), Phase("during", THIRD, 2 * THIRD), Phase("after", 2 * THIRD, 1)),
    busy_phase="during",
    flows=(
        Flow("downlink_mbps", "down", 0, 1, phases=("before", "during", "after")),
        Flow("uplink_mbps", "up", THIRD, 2 * THIRD, phases=("during",)),
    ),
    arms=(
        Arm("fifo", "plain FIFO", {"ack_priority": False, "ack_filter": False, "sparse": False, "ncr": False}),
        Arm("ack-priority", "ACKs first", {"ack_priority": True, "ack_filter": False, "sparse": False, "ncr": False}),
        Arm("ncr", "our access point", {"ack_priority": True, "ack_filter": True, "sparse": True, "ncr": True}),
    ),
    criteria=(
        Criterion(
            "fifo", "a plain FIFO lets the upload starve the download: {value} of before is left (at most {limit})",
            _kept, _collapse_limit, at_least=False, shown="{:.0%}",
        ),
        Criterion(
            "ncr", "ours keeps the download: {value} of before (at least {limit})",
            _kept, lambda profile, cc: 0.98, at_least=True, shown="{:.1%}",
            elsewhere={"bmv2": lambda profile, cc: 0.95},
        ),
        Criterion(
            "ncr", "ours keeps the upload: {value} (at least {limit})",
            lambda arm: float(arm["uplink_mbps"]["during"]), _upload_limit,
            at_least=True, shown="{:.2f} Mb/s", elsewhere={"bmv2": _upload_beside_all_acks},
        ),
        Criterion(
            "ncr", "ours keeps the delay short: ping {value} in the middle (at most {limit})",
            lambda arm: float(arm["ping_ms"]["p50"]), _ping_limit, at_least=False, shown="{:.1f} ms",
        ),
    ),
)  # fmt: skip
