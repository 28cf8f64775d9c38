# SPDX-License-Identifier: Apache-2.0
"""The headline in tags and sessions, and a download inside a tunnel beside an upload outside of it."""

from accesspoint.experiments.catalogue.peers import (
    CAKE_AND_OURS,
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    ping_added,
)
from accesspoint.experiments.experiment import Arm, Bars, Experiment, Goal, Measure, Point, Quick, Timeline
from accesspoint.experiments.measure.run_data import mean, rate, total
from accesspoint.experiments.scenes.encapsulated import Counters, InTunnel, Tunnel, Wrapped
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.encapsulation import TUNNELS, WRAPS
from accesspoint.topologies.links.profiles import PROFILES

SECONDS, UP, DOWN_AGAIN = 180, 60, 120
UNTAGGED = "untagged"
KEPT_IN_TAGS, UPLOAD_IN_TAGS, PING_IN_TAGS = 0.995, 0.90, 12.0
KEPT_IN_TUNNELS = 0.95
AT_THE_BOUND = {
    "wireguard": "its ACKs ask for about a third more than their share, the most that a flow is thinned by, and "
    "go to and fro across that bound (decision 22 has what a higher one does)"
}

MEASURES = (
    Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
    Measure("download_during", "Mb/s", "download during the upload", rate("download", UP, DOWN_AGAIN)),
    Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
    Measure("ping_mean", "ms", "ping under load, mean", mean("ping_ms", UP, DOWN_AGAIN), "{:.1f}"),
    ping_added(UP, DOWN_AGAIN),
    Measure("out_of_order", "", "segments that came before an earlier one", total("out_of_order"), "{:.0f}"),
    Measure("retransmitted", "", "segments sent again", total("retransmitted"), "{:.0f}"),
)


def _tags(point: Point, arm: Arm) -> AccessPoint:
    wrapped = () if point["frames"] == UNTAGGED else (Wrapped(str(point["frames"])),)
    flows = (Flow("download", "down"), Flow("upload", "up", UP, DOWN_AGAIN))
    return AccessPoint(PROFILES["testbed"], SECONDS, (*wrapped, *flows, Counters()), peers=PEERS)


def _tunnel(point: Point, arm: Arm) -> AccessPoint:
    flows = (InTunnel("download", "down"), Flow("upload", "up", UP, DOWN_AGAIN))
    return AccessPoint(PROFILES["testbed"], SECONDS, (Tunnel(str(point["tunnel"])), *flows, Counters()), peers=PEERS)


def _kept(kind: str, arm: str, **at: str) -> Goal:
    return Goal(
        f"{kind}: this access point keeps {{value}} of the download (at least {{limit}})",
        lambda medians: medians("download_during", arm, **at) / medians("download_alone", arm, **at),
        at_least=KEPT_IN_TAGS if "frames" in at else KEPT_IN_TUNNELS, shown="{:.1%}", why=AT_THE_BOUND.get(kind, ""),
    )  # fmt: skip


def _tag_goals(kind: str) -> tuple[Goal, ...]:
    return (
        _kept(kind, "ours", frames=kind),
        Goal(
            f"{kind}: the upload gets {{value}} (at least {{limit}})",
            lambda medians: medians("upload_during", "ours", frames=kind),
            at_least=UPLOAD_IN_TAGS, shown="{:.2f} Mb/s",
        ),
        Goal(
            f"{kind}: ping takes {{value}} (at most {{limit}})",
            lambda medians: medians("ping_mean", "ours", frames=kind), at_most=PING_IN_TAGS, shown="{:.1f} ms",
        ),
        Goal(
            f"{kind}: {{value}} segments come before an earlier one (at most {{limit}})",
            lambda medians: medians("out_of_order", "ours", frames=kind), at_most=0.0, shown="{:.0f}",
        ),
    )  # fmt: skip


def _tunnel_goals(kind: str) -> tuple[Goal, ...]:
    return (
        _kept(kind, "ours", tunnel=kind),
        Goal(
            f"{kind}: at least the download of CAKE with its ACK filter: {{value}} of it",
            lambda medians: medians("download_during", "ours", tunnel=kind)
            / medians("download_during", "cake-ack-filter", tunnel=kind),
            at_least=1.0, shown="{:.1%}", why=AT_THE_BOUND.get(kind, ""),
        ),
    )  # fmt: skip


def _figures(parameter: str, kinds: tuple[str, ...]) -> tuple[Timeline | Bars, ...]:
    during = ("download_during", "upload_during")
    return tuple(
        figure
        for kind in kinds
        for figure in (
            Timeline(f"over-time-{kind}", f"{kind}: over time.", ("download", "upload"), point={parameter: kind}),
            Bars(f"during-{kind}", f"{kind}: while both run.", during, "throughput (Mb/s)", point={parameter: kind}),
        )
    )


TAGS = Experiment(
    name="vlan",
    title="A download during an upload, in tagged frames",
    paper="none: the traffic of 000, sections 2 and 4.5, in 802.1Q, QinQ (802.1ad and 802.1Q) and PPPoE",
    question="Is traffic in tags or in a session protected as untagged traffic is, and does it keep its order?",
    scene=_tags,
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=MEASURES,
    sweep={"frames": (UNTAGGED, *WRAPS)},
    goals=tuple(goal for kind in WRAPS for goal in _tag_goals(kind)),
    figures=_figures("frames", (UNTAGGED, *WRAPS)),
    repeats=5,
    quick=Quick(seconds=18, arms=CAKE_AND_OURS, sweep={"frames": WRAPS}),
    differences=(
        *DIFFERENCES,
        "IP has 1500 bytes untagged and in 802.1Q, 1492 in QinQ and in PPPoE",
        "the PPPoE session is the kernel's, with its number known to both ends: without discovery and LCP",
        "the hosts' kernel counts a segment that comes after a lost one as out of order, too",
    ),
    clock=VIRTUAL,
)  # fmt: skip

TUNNELLED = Experiment(
    name="tunnel",
    title="A download inside a tunnel during an upload outside of it",
    paper="none: the traffic of 000, sections 2 and 4.5, inside WireGuard and VXLAN (RFC 7348)",
    question="What is left of a download during an upload when its ACKs are inside a tunnel?",
    scene=_tunnel,
    arms=(FIFO, *PEER_ARMS, OUR_ARM),
    measures=MEASURES,
    sweep={"tunnel": TUNNELS},
    goals=tuple(goal for kind in TUNNELS for goal in _tunnel_goals(kind)),
    figures=_figures("tunnel", TUNNELS),
    repeats=5,
    quick=Quick(seconds=18, arms=CAKE_AND_OURS),
    differences=(
        *DIFFERENCES,
        "both tunnels are the kernel's own, also WireGuard: packets on the wire are those of user space",
        "upload and ping are outside: inside one WireGuard tunnel no device can distinguish ACKs from an upload's data",
    ),
    clock=VIRTUAL,
)  # fmt: skip

EXPERIMENTS = (TAGS, TUNNELLED)
