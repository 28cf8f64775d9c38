# SPDX-License-Identifier: Apache-2.0
"""Queue disciplines of Linux measured as our access point is: same hosts, links and traffic, in one kernel."""

from collections.abc import Mapping

from experiments.experiment import OURS, Arm, Reported

PEERS = ("tc-fifo", "fq_codel", "cake", "cake-ack-filter")
PEER_ARMS = (
    Arm("tc-fifo", "FIFO behind tbf", "peer", options={"peer": "tc-fifo"}),
    Arm("fq_codel", "fq_codel behind tbf", "peer", options={"peer": "fq_codel"}),
    Arm("cake", "CAKE", "peer", options={"peer": "cake"}),
    Arm("cake-ack-filter", "CAKE with its ACK filter", "peer", options={"peer": "cake-ack-filter"}),
)
QUICK_ARMS = ("fifo", "cake-ack-filter", "ours")  # without peers that are much like others: peers-testbed has them
FIFO = Arm("fifo", "plain FIFO of the switch", "plain")
OUR_ARM = Arm("ours", "our access point", "ours", OURS)
DIFFERENCES = (
    "the peers' lab has half of the round trip on each host's way out (netem), ours behind the queues",
    "where the running kernel has no cake, fq_codel and netem, every arm runs in a user-mode kernel with one CPU",
)


def measured_before(measures: tuple[str, ...], figures: Mapping[str, tuple[float, ...]]) -> tuple[Reported, ...]:
    """What the peers had when this project began, in a lab of shell commands: arm -> a figure for each measure."""
    return tuple(
        Reported(measure, arm, value, "measured before, Linux 6.1")
        for arm, values in figures.items()
        for measure, value in zip(measures, values, strict=True)
    )
