# SPDX-License-Identifier: Apache-2.0
"""Hundreds of connections drawn from a seed, and one that carries data both ways."""

from statistics import median

from accesspoint.experiments.catalogue.connections.play import Scenarios, Streams
from accesspoint.experiments.catalogue.connections.scenario import LINKS, MODES, SEED, link
from accesspoint.experiments.catalogue.connections.verdict import judge
from accesspoint.experiments.experiment import OURS, Arm, Bars, Experiment, Measure, Point, Quick, Scatter
from accesspoint.experiments.measure.run_data import Of, Raw, total
from accesspoint.experiments.scenes.scene import AccessPoint
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import LinkProfile

PER_LINK, QUICK_PER_LINK = 25, 6
SECONDS, QUICK_SECONDS = 300.0, 90.0  # at most: a run ends with its last scenario
LENGTH = 12.0  # s of a stream
STREAMS = Streams(LENGTH)
TWO_WAY = {
    "two-way-14": LinkProfile("14/1", 14_000_000, 1_000_000, rtt=0.004),
    "two-way-50": LinkProfile("50/5", 50_000_000, 5_000_000, rtt=0.02),
    "two-way-200": LinkProfile("200/20", 200_000_000, 20_000_000, rtt=0.01),
}
PLACES = tuple(str(number) for number in range(1, LINKS + 1))
QUICK_PLACES = ("few-3", "few-10")


def scene(point: Point, arm: Arm) -> AccessPoint:
    """A drawn link with its scenarios, the last few of them, or a link with a connection both ways."""
    words = str(point["link"])
    if words in TWO_WAY:
        return AccessPoint(TWO_WAY[words], STREAMS.seconds, (STREAMS,), probed=False)
    number, few = int(words.removeprefix("few-")), words.startswith("few-")
    played = Scenarios(number, QUICK_PER_LINK, PER_LINK - QUICK_PER_LINK) if few else Scenarios(number, PER_LINK)
    seconds = QUICK_SECONDS if few else SECONDS
    return AccessPoint(link(SEED, number), seconds, (played,), stations=2, probed=False)


def times(quantity: str, mode: str) -> Of:
    """The median over a link's scenarios; of the first repeat, as the others play some only."""

    def of(raw: Raw) -> float | None:
        values = [sample.value for sample in raw.of(quantity, f"* {mode}")]
        return median(values) if values else None

    return of


def stream(source: str) -> Of:
    """Mb/s of one direction of a stream."""
    begin = STREAMS.begin(source.partition("-")[2])

    def of(raw: Raw) -> float | None:
        return raw.rate(source, begin, begin + LENGTH) if raw.sources("rate_mbps", source) else None

    return of


EXPERIMENT = Experiment(
    name="connections",
    title="Connections of real stacks, compared one by one",
    paper="none: connections of Linux's TCP as applications make them",
    question="Does any connection take longer behind this access point than behind a plain FIFO?",
    sweep={"link": (*PLACES, *TWO_WAY)},
    scene=scene,
    arms=(
        Arm("fifo", "plain FIFO of the switch", "plain"),
        Arm("ours", "this access point", "ours", OURS),
    ),
    measures=(
        *(
            Measure(f"{what}_{mode}", "ms", f"{word} byte, {mode}, median of the scenarios", times(f"{what}_ms", mode),
                    "{:.0f}")
            for mode in MODES
            for what, word in (("first", "first"), ("last", "last"))
        ),
        Measure("down_64k", "Mb/s", "both ways, 64 KiB: download", stream("down-64k")),
        Measure("up_64k", "Mb/s", "both ways, 64 KiB: upload", stream("up-64k")),
        Measure("down_default", "Mb/s", "both ways, default buffers: download", stream("down-default")),
        Measure("up_default", "Mb/s", "both ways, default buffers: upload", stream("up-default")),
        Measure("challenges_64k", "1", "challenge ACKs, 64 KiB", total("challenge_acks", "64k"), "{:.0f}"),
        Measure("challenges_default", "1", "challenge ACKs, default", total("challenge_acks", "default"), "{:.0f}"),
    ),
    compared=judge,
    figures=(
        Scatter(
            "scenarios", "Each scenario, median of its repeats; above the dashed line it is too slow, and crosses are "
            "defects.", "time to the last byte behind the FIFO", "behind this access point",
            ratio=1.1, added=20.0,
        ),
        *(
            Bars(name, f"One connection both ways, {profile.describe()}.",
                 ("down_64k", "up_64k", "down_default", "up_default"), "throughput (Mb/s)", point={"link": name},
                 log=True)
            for name, profile in TWO_WAY.items()
        ),
    ),
    repeats=3,
    quick=Quick(repeats=3, sweep={"link": (*QUICK_PLACES, "two-way-14")}),
    differences=(
        "each scenario is played once behind either arm; those that exceed their limit in the first repeat are played "
        "in the others, too, on both arms, and the median decides",
        f"the links are {LINKS} draws; their queues hold a fifth of a second up, and a tenth down, as longer ones make "
        "the FIFO worse",
        "what a kernel lacks is replaced: that of virtual time (6.1) has no AccECN and uses ECN, and one without DCTCP "
        "takes Reno",
        "a scenario that has not ended after 15 s is a stall, and counts as 15 s",
    ),
    clock=VIRTUAL,
    apart=True,
)  # fmt: skip
