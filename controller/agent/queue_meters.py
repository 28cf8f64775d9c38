# SPDX-License-Identifier: Apache-2.0
"""`ack_priority` and `queue_meter`: pure ACKs that go first or are filtered, and the rate of each priority queue.

ACKs are filtered where they leave through the uplink, whose time they take from uploads, and nowhere else (RFC 3449,
5.2.1, is for the constrained direction). On a radio both directions share the air and frames are lost: the one ACK that
is left of many may be among them. Without priority none is filtered either: the bulk's queue may be full, and drop the
ACK that supersedes others.

Group traffic has meters of its own: it leaves through every port, so the slowest one sets its rate.

The loop updates the meters as capacities change, and as flows go ahead within their fair share
(`PortRegulator.queue_rates`).

The meter counts what arrives, not what is sent: where the filter is on, superseded ACKs never reach the wire, and the
ACKs of a download over 14 Mb/s are 0.32 Mb/s of arrivals on an uplink of 1 Mb/s but far less of its time.
"""

from collections.abc import Iterable

import finsy as fy

from ..config import AccessPointConfig
from .program import (
    GROUP_PORT,
    QUEUE_ACKS,
    QUEUE_CONTROL,
    QUEUE_NEW_FLOWS,
    QUEUE_SCALABLE,
    QUEUE_SPARSE,
    QUEUE_THINNED,
    Encodable,
    rate_meter,
    table_entry,
)
from .queue_estimate import FULL_FRAME

BURST_SECONDS = 0.1
"""A queue may take its rate of so long at once."""
BURST_FRAMES = 10
NEW_FLOWS_SHARE = 0.1
"""Part of a port's capacity that packets of flows which are not known yet may use."""


def entities(config: AccessPointConfig) -> list[Encodable]:
    """Return the entries of `ack_priority` and the cells of `queue_meter`."""
    wanted: list[Encodable] = []
    features = config.features
    for port in config.ports:
        if features.ack_priority:
            filtered = features.ack_filter and port.role == "uplink"
            wanted.append(
                table_entry(
                    "ack_priority",
                    {"egress_port": port.port},
                    "prioritise",
                    queue=QUEUE_ACKS,
                    filter=int(filtered),
                )
            )
    wanted.extend(queue_meter(port, queue, rate) for (port, queue), rate in meter_rates(config).items())
    return wanted


def meter_rates(config: AccessPointConfig) -> dict[tuple[int, int], float]:
    """Return the rates of all queues' meters by port, and of group traffic's, as far as the configuration has them."""
    capacities = {port.port: port.capacity for port in config.ports}
    capacities[GROUP_PORT] = slowest(capacities.values())
    return {
        (port, queue): rate
        for port, capacity in capacities.items()
        for queue, rate in queue_rates(config, capacity).items()
    }


def slowest(capacities: Iterable[float]) -> float:
    """Return the least capacity that is known; 0: none is."""
    return min((capacity for capacity in capacities if capacity), default=0.0)


def queue_rates(config: AccessPointConfig, capacity: float) -> dict[int, float]:
    """Return the rate of each priority queue of a port whose flows are not known yet; all in bytes/s."""
    shares = config.queue_shares
    return {
        QUEUE_ACKS: shares.acks * capacity,
        QUEUE_SPARSE: shares.sparse * capacity,
        QUEUE_NEW_FLOWS: NEW_FLOWS_SHARE * capacity,
        QUEUE_CONTROL: shares.control * capacity,
        QUEUE_SCALABLE: shares.scalable * capacity,
        # The meter stands before the drops.
        QUEUE_THINNED: capacity / (1 - config.sparse.max_thinned),
    }


def queue_meter(port: int, queue: int, rate: float) -> fy.P4MeterEntry:
    """Return the cell that lets `rate` bytes/s into one queue of a port; 0: all packets, while no rate is known."""
    config = rate_meter(8 * rate, burst(rate)) if rate else None
    return fy.P4MeterEntry("queue_meter", index=port << 3 | queue, config=config)


def burst(rate: float) -> int:
    """Bytes that a queue may take at once."""
    return max(BURST_FRAMES * FULL_FRAME, round(rate * BURST_SECONDS))
