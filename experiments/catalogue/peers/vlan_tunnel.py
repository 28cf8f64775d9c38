# SPDX-License-Identifier: Apache-2.0
"""The headline in tags and sessions, and a download inside a tunnel beside an upload outside of it."""

from dataclasses import replace

from accesspoint.experiments.catalogue.peers import (
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    ping_added,
)
from accesspoint.experiments.experiment import Arm, Bars, Experiment, Goal, Measure, Medians, Point, Quick, Timeline
from accesspoint.experiments.measure.run_data import mean, rate, total
from accesspoint.experiments.scenes.crossing import Reordered
from accesspoint.experiments.scenes.encapsulated import InTunnel, Retransmitted, Tunnel, Wrapped
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.encapsulation import INTERFACES, TUNNELS, WRAPS
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile

SECONDS, UP, DOWN_AGAIN = 180, 60, 120
KEPT_IN_TAGS, UPLOAD_IN_TAGS, PING_IN_TAGS = 0.995, 0.90, 12.0
KEPT_IN_TUNNELS = 0.95
TESTBED = PROFILES["testbed"]
LINKS = {
    "14-1": TESTBED,
    "20-1": replace(TESTBED, name="tunnel-20-1", down=20_000_000),
    "8-0.5": replace(TESTBED, name="tunnel-8-0.5", down=8_000_000, up=500_000),
}
"""By rates in Mb/s. The bound of thinning was chosen on the first of them, in other repeats."""
BOUNDS = 0.25, 0.375, 0.5, 0.75
"""Parts that a flow of small packets may lose, to choose from."""
ONE_REPEAT = {"vxlan, 20/1 Mb/s": "in one repeat of five, the others keep 99 % and more (seen, not explained)"}

INSIDE = Arm(
    "cake-inside", "CAKE where IP shows: on each end's interface above the tags, or ppp0", "peer",
    options={"peer": "tc-fifo"},
)  # fmt: skip
"""The link is a FIFO at its rate, which CAKE above keeps empty."""

OF_REPEATS = (
    "the worst repeat of five; the median holds or is within 0.4 % of it (no cause was looked for: a repeat's ping and "
    "upload move by as much untagged, in `peers-testbed`)"
)

MEASURES = (
    Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
    Measure("download_during", "Mb/s", "download during the upload", rate("download", UP, DOWN_AGAIN)),
    Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
    Measure("ping_mean", "ms", "ping under load, mean", mean("ping_ms", UP, DOWN_AGAIN), "{:.1f}"),
    ping_added(UP, DOWN_AGAIN),
    Measure("retransmitted", "", "segments sent again", total("retransmitted"), "{:.0f}"),
)


def _tags(point: Point, arm: Arm) -> AccessPoint:
    link = PROFILES["testbed"]
    shaped = link if arm.name == INSIDE.name else None
    flows = (Flow("download", "down"), Flow("upload", "up", UP, DOWN_AGAIN))
    kind = str(point["frames"])
    seen = Reordered(tuple(flow.direction for flow in flows), INTERFACES[kind])
    return AccessPoint(link, SECONDS, (Wrapped(kind, shaped), *flows, seen, Retransmitted()), peers=PEERS)


def _tunnel(point: Point, arm: Arm) -> AccessPoint:
    return _in_tunnel(point, LINKS[str(point["link"])])


def _in_tunnel(point: Point, link: LinkProfile) -> AccessPoint:
    flows = (InTunnel("download", "down"), Flow("upload", "up", UP, DOWN_AGAIN))
    return AccessPoint(link, SECONDS, (Tunnel(str(point["tunnel"])), *flows, Retransmitted()), peers=PEERS)


def _kept(kind: str, arm: str, **at: str) -> Goal:
    return Goal(
        f"{kind}: this access point keeps {{value}} of the download (at least {{limit}})",
        lambda medians: medians("download_during", arm, **at) / medians("download_alone", arm, **at),
        at_least=KEPT_IN_TAGS if "frames" in at else KEPT_IN_TUNNELS, shown="{:.1%}", why=ONE_REPEAT.get(kind, ""),
    )  # fmt: skip


def _tag_goals(kind: str) -> tuple[Goal, ...]:
    return (
        _kept(kind, "ours", frames=kind),
        Goal(
            f"{kind}: the upload gets {{value}} (at least {{limit}})",
            lambda medians: medians("upload_during", "ours", frames=kind),
            at_least=UPLOAD_IN_TAGS, shown="{:.2f} Mb/s", why=OF_REPEATS,
        ),
        Goal(
            f"{kind}: ping takes {{value}} (at most {{limit}})",
            lambda medians: medians("ping_mean", "ours", frames=kind),
            at_most=PING_IN_TAGS, shown="{:.1f} ms", why=OF_REPEATS,
        ),
        Goal(
            f"{kind}: {{value}} segments come before an earlier one (at most {{limit}})",
            lambda medians: medians("reordered", "ours", frames=kind), at_most=0.0, shown="{:.0f}",
        ),
    )  # fmt: skip


def _tunnel_goals(tunnel: str, link: str) -> tuple[Goal, ...]:
    kind = tunnel if LINKS[link] is TESTBED else f"{tunnel}, {link.replace('-', '/')} Mb/s"
    return (
        _kept(kind, "ours", tunnel=tunnel, link=link),
        Goal(
            f"{kind}: at least the download of CAKE with its ACK filter: {{value}} of it",
            lambda medians: medians("download_during", "ours", tunnel=tunnel, link=link)
            / medians("download_during", "cake-ack-filter", tunnel=tunnel, link=link),
            at_least=1.0, shown="{:.1%}",
        ),
    )  # fmt: skip


OF_TUNNELS = (
    "both tunnels are the kernel's own, also WireGuard: packets on the wire are those of user space",
    "upload and ping are outside: inside one WireGuard tunnel no device can distinguish ACKs from an upload's data",
)


def _some_bound(kind: str) -> Goal:
    def most_kept(medians: Medians) -> float:
        return max(
            medians("download_during", arm, tunnel=kind) / medians("download_alone", arm, tunnel=kind)
            for arm in (f"most-{bound:g}" for bound in BOUNDS)
        )

    return Goal(
        f"{kind}: with one of the bounds {{value}} of the download is kept (at least {{limit}})",
        most_kept, at_least=KEPT_IN_TUNNELS, shown="{:.1%}",
    )  # fmt: skip


def _figures(parameter: str, kinds: tuple[str, ...], at: Point | None = None) -> tuple[Timeline | Bars, ...]:
    during = ("download_during", "upload_during")
    return tuple(
        figure
        for kind in kinds
        for figure in (
            Timeline(
                f"over-time-{kind}",
                f"{kind}: over time.",
                ("download", "upload"),
                point={parameter: kind} | dict(at or {}),
            ),
            Bars(
                f"during-{kind}",
                f"{kind}: while both run.",
                during,
                "throughput (Mb/s)",
                point={parameter: kind} | dict(at or {}),
            ),
        )
    )


TAGS = Experiment(
    name="vlan",
    title="A download during an upload, in tagged frames",
    paper="none: the traffic of 000, sections 2 and 4.5, in 802.1Q, QinQ (802.1ad and 802.1Q) and PPPoE",
    question="Is traffic in tags or in a session protected as untagged traffic is, and does it keep its order?",
    scene=_tags,
    arms=(FIFO, *PEER_ARMS, INSIDE, OUR_ARM),
    measures=(
        *MEASURES,
        Measure("reordered", "", "segments that came after a later one (RFC 4737)", total("reordered"), "{:.0f}"),
    ),
    sweep={"frames": WRAPS},
    goals=tuple(goal for kind in WRAPS for goal in _tag_goals(kind)),
    figures=_figures("frames", WRAPS),
    repeats=5,
    quick=Quick(seconds=18, arms=("cake-ack-filter", INSIDE.name, "ours")),
    differences=(
        *DIFFERENCES,
        "IP has 1500 bytes in 802.1Q, 1492 in QinQ and in PPPoE",
        "the PPPoE session is the kernel's, with its number known to both ends: without discovery and LCP",
        "order is that of captures at both ends, where IP shows: a segment sent again is another one",
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
    sweep={"tunnel": TUNNELS, "link": tuple(LINKS)},
    goals=tuple(goal for link in LINKS for kind in TUNNELS for goal in _tunnel_goals(kind, link)),
    figures=_figures("tunnel", TUNNELS, {"link": "14-1"}),
    repeats=5,
    quick=Quick(seconds=18, arms=("cake-ack-filter", "ours")),
    differences=(*DIFFERENCES, *OF_TUNNELS),
    clock=VIRTUAL,
)  # fmt: skip

BOUND = Experiment(
    name="tunnel-bound",
    title="The same, by how much of a flow of small packets may be lost",
    paper="none: which bound of thinning (decision 22) is the least that keeps a tunnel's download",
    question="How much of a flow of small packets, not of TCP, may be lost above its fair share to keep its place?",
    scene=lambda point, arm: _in_tunnel(point, TESTBED),
    arms=tuple(
        replace(OUR_ARM, name=f"most-{bound:g}", label=f"at most {bound:g} lost",
                controller={"sparse": {"max_thinned": bound}})
        for bound in BOUNDS
    ),
    measures=MEASURES,
    sweep={"tunnel": TUNNELS},
    goals=tuple(_some_bound(kind) for kind in TUNNELS),
    figures=_figures("tunnel", TUNNELS),
    repeats=5,
    quick=Quick(seconds=18),
    apart=True,  # made once, to choose
    differences=(
        *OF_TUNNELS,
        "`tunnel` tests the chosen bound in other repeats, and at two other rates",
    ),
    clock=VIRTUAL,
)  # fmt: skip

EXPERIMENTS = (TAGS, TUNNELLED, BOUND)
