# SPDX-License-Identifier: Apache-2.0
"""A download and an upload on links whose rates change."""

from accesspoint.experiments.catalogue.peers import DIFFERENCES, FIFO, OUR_ARM, PEER_ARMS, PEERS, ping_added
from accesspoint.experiments.experiment import OURS, Arm, Bars, Experiment, Goal, Measure, Point, Quick, Timeline
from accesspoint.experiments.measure.run_data import mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Effect, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

SECONDS, SETTLED = 60, 5
TESTBED = PROFILES["testbed"]
LINKS = ("hspa", "rate-steps")
CAKE = "cake-ack-filter"
FOLLOWS = Arm(
    "cake-autorate", "CAKE with its ACK filter, at a rate that follows the link", "peer",
    options={"peer": "cake-autorate"},
)  # fmt: skip
LEARNS = Arm("ours-auto", "this access point, without configured rates", "ours", OURS, options={"capacity": "auto"})


def _scene(point: Point, arm: Arm) -> AccessPoint:
    """Links whose effect interprets the testbed's rates."""
    down, up = (
        Effect(str(point["link"]), rate, SECONDS, number) for number, rate in enumerate((TESTBED.down, TESTBED.up))
    )
    flows = (Flow("download", "down", cwnd_limited=False), Flow("upload", "up", cwnd_limited=False))
    return AccessPoint(
        TESTBED, SECONDS, flows, peers=(*PEERS, FOLLOWS.name), up_effect=up, down_effect=down, told_means=True
    )


ONE_TRACE = (
    "each repeat has a trace of its own, and the worst of them decides; what the link has to spare is learned with a "
    "delay (read, not measured)"
)


def _against_cake(name: str, measure: str, text: str) -> Goal:
    return Goal(
        f"{name}: {text} at least that of CAKE with its ACK filter: {{value}} of it",
        lambda medians: medians(measure, LEARNS.name, link=name) / medians(measure, CAKE, link=name),
        at_least=1.0, shown="{:.1%}", why=ONE_TRACE if (name, measure) == ("hspa", "download") else "",
    )  # fmt: skip


def _goals(name: str) -> tuple[Goal, ...]:
    return (
        Goal(
            f"{name}: ping's p99 is {{value}} of CAKE's with its ACK filter (at most {{limit}})",
            lambda medians: medians("ping_p99", LEARNS.name, link=name) / medians("ping_p99", CAKE, link=name),
            at_most=0.5, shown="{:.0%}", why=ONE_TRACE if name == "hspa" else "",
        ),
        _against_cake(name, "download", "the download is"),
        _against_cake(name, "upload", "the upload is"),
    )  # fmt: skip


def _figures(name: str) -> tuple[Timeline | Bars, ...]:
    rates, pings, at = ("download", "upload"), ("ping_mean", "ping_p99"), {"link": name}
    return (
        Timeline(f"throughput-{name}", f"{name}: throughput over time.", rates, point=at),
        Bars(f"rates-{name}", f"{name}: what each arm carries.", rates, "throughput (Mb/s)", point=at),
        Bars(f"ping-{name}", f"{name}: ping.", pings, "round trip (ms)", point=at, log=True),
    )


EXPERIMENT = Experiment(
    name="changing",
    title="A download and an upload on links whose rates change",
    paper="none: the effects of docs/effects.md on both links",
    question="What does shaping at a fixed rate, which is right on average only, cost in delay and throughput?",
    scene=_scene,
    arms=(FIFO, *PEER_ARMS, FOLLOWS, OUR_ARM, LEARNS),
    measures=(
        Measure("download", "Mb/s", "download", rate("download", SETTLED)),
        Measure("upload", "Mb/s", "upload", rate("upload", SETTLED)),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", SETTLED), "{:.1f}"),
        Measure("ping_p99", "ms", "ping, p99", quantile("ping_ms", 0.99, SETTLED), "{:.0f}"),
        ping_added(SETTLED),
    ),
    sweep={"link": LINKS},
    goals=tuple(goal for name in LINKS for goal in _goals(name)),
    figures=tuple(figure for name in LINKS for figure in _figures(name)),
    repeats=5,
    quick=Quick(seconds=30, arms=(CAKE, "cake-hosts", FOLLOWS.name, LEARNS.name)),
    differences=(
        *DIFFERENCES,
        "each repeat's links follow a trace from its own seed, the same for all arms",
        "the peers shape at the mean rate of the trace, `cake-autorate` by cake-autorate's rule and defaults "
        "(pings to each end, limits from the trace's seconds); `ours` is configured with the mean, `ours-auto` learns",
        "behind the peers the link has a queue of its own, as long as the switch's; the switch's queues are the link's",
        "hspa: 14 and 1 Mb/s are the means; rate-steps: they are the highest rates",
    ),
    clock=VIRTUAL,
)  # fmt: skip
