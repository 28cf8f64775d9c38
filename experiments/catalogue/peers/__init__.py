# SPDX-License-Identifier: Apache-2.0
"""Queue disciplines of Linux measured as this access point is: same hosts, links and traffic, in one kernel."""

from collections.abc import Mapping

from accesspoint.experiments.experiment import OURS, Arm, Goal, Measure, Reported
from accesspoint.experiments.measure import run_data
from accesspoint.topologies.links.station_classes import StationClass

PEERS = ("tc-fifo", "fq_codel", "cake", "cake-ack-filter", "cake-hosts")
PEER_ARMS = (
    Arm("tc-fifo", "FIFO behind tbf", "peer", options={"peer": "tc-fifo"}),
    Arm("fq_codel", "fq_codel behind tbf", "peer", options={"peer": "fq_codel"}),
    Arm("cake", "CAKE", "peer", options={"peer": "cake"}),
    Arm("cake-ack-filter", "CAKE with its ACK filter", "peer", options={"peer": "cake-ack-filter"}),
    Arm(
        "cake-hosts",
        "CAKE for stations: ACK filter and dual-srchost up, dual-dsthost down",
        "peer",
        options={"peer": "cake-hosts"},
    ),
)
CAKE_AND_OURS = ("cake-ack-filter", "cake-hosts", "ours")
QUICK_ARMS = ("fifo", *CAKE_AND_OURS)  # without peers that are much like others: peers-testbed has them
FIFO = Arm("fifo", "plain FIFO of the switch", "plain")
OUR_ARM = Arm("ours", "this access point", "ours", OURS)
STATION_ARMS = ("fifo", "cake-hosts", "ours")
SET_ARMS = ("cake-hosts", "htb", "ours")  # where stations have settings, of which a FIFO has none
DIFFERENCES = (
    "the peers' lab has half of the round trip on each host's egress (netem), apswitch behind its queues",
    "where the running kernel has no cake, fq_codel and netem, every arm runs in a user-mode kernel with one CPU",
)


def by_classes(*classes: StationClass) -> Arm:
    """Return the peer that keeps settings of stations, which CAKE has none of."""
    options = {"peer": "htb", "classes": classes}
    return Arm("htb", "HTB with a class for each station, in it fq_codel", "peer", options=options)


def measured_before(measures: tuple[str, ...], figures: Mapping[str, tuple[float, ...]]) -> tuple[Reported, ...]:
    """Figures of the peers when this project began, in a lab of shell commands: arm -> a figure for each measure."""
    return tuple(
        Reported(measure, arm, value, "measured before, Linux 6.1")
        for arm, values in figures.items()
        for measure, value in zip(measures, values, strict=True)
    )


def ping_added(start: float = 0.0, end: float | None = None) -> Measure:
    """Ping under load above the ping of the same run's empty links, so that arms compare whose empty links differ."""
    return Measure(
        "ping_added", "ms", "ping, mean, above that of the same run's empty links", run_data.added(start, end), "{:.1f}"
    )


def goals_beside_cake() -> tuple[Goal, Goal]:
    """Goals for download and upload: each at least as fast as behind CAKE with its ACK filter."""
    return (
        Goal(
            "the download is at least that of CAKE with its ACK filter: {value} of it (at least {limit})",
            lambda medians: medians("download_during", "ours") / medians("download_during", "cake-ack-filter"),
            at_least=1.0, shown="{:.1%}",
        ),
        Goal(
            "the upload is at least that of CAKE with its ACK filter: {value} of it (at least {limit})",
            lambda medians: medians("upload_during", "ours") / medians("upload_during", "cake-ack-filter"),
            at_least=1.0, shown="{:.1%}",
        ),
    )  # fmt: skip
