# SPDX-License-Identifier: Apache-2.0
"""Features of an access point, beyond forwarding."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Features:
    """Features that are on; `gate` is port -> {"buffer", "batch"} in packets, or None."""

    ack_priority: bool = True
    ack_filter: bool = True
    sparse: bool = True
    ncr: bool = True
    gate: dict[str, dict[str, int]] | None = None


PLAIN = Features(ack_priority=False, ack_filter=False, sparse=False, ncr=False)
