# SPDX-License-Identifier: Apache-2.0
"""`ack_priority` and `queue_meter`: pure ACKs first, and what each priority queue may take of its port.

The meter counts what arrives, not what is sent: where the filter is on, superseded ACKs never reach the wire, and the
ACKs of a download over 14 Mb/s are 0.32 Mb/s of arrivals on an uplink of 1 Mb/s but far less of its time.
"""

import finsy as fy

from .config import AccessPointConfig
from .program import (
    QUEUE_ACKS,
    QUEUE_BULK,
    QUEUE_NEW_FLOWS,
    QUEUE_SPARSE,
    Encodable,
    rate_meter,
    table_entry,
)
from .queue_estimate import FULL_FRAME

BURST_SECONDS = 0.1
"""A queue may take its rate of so long at once."""
BURST_FRAMES = 10


def entities(config: AccessPointConfig) -> list[Encodable]:
    """The entries of `ack_priority` and the cells of `queue_meter`."""
    wanted: list[Encodable] = []
    features, shares = config.features, config.queue_shares
    for port in config.ports:
        if features.ack_priority or features.ack_filter:
            wanted.append(
                table_entry(
                    "ack_priority",
                    {"egress_port": port.port},
                    "prioritise",
                    queue=QUEUE_ACKS if features.ack_priority else QUEUE_BULK,
                    filter=int(features.ack_filter),
                )
            )
        for queue, share in (
            (QUEUE_ACKS, shares.acks),
            (QUEUE_SPARSE, shares.sparse),
            (QUEUE_NEW_FLOWS, shares.new_flows),
        ):
            rate = port.capacity_bps * share
            burst = max(BURST_FRAMES * FULL_FRAME, round(rate / 8 * BURST_SECONDS))
            wanted.append(fy.P4MeterEntry("queue_meter", index=port.port << 3 | queue, config=rate_meter(rate, burst)))
    return wanted
