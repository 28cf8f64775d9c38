# SPDX-License-Identifier: Apache-2.0
"""Limits of stations that are missed: the one place that decides it. Pure: time is an argument.

What arrives of a station's flows is known, and what a port has withheld of all flows, by dropping or queueing it. Of a
station's flows at least

    asked - withheld by the port

passed, and a limit is missed where that is too much. A sender that sends more than its limit, and is cut to it, keeps
the limit, so what it asks for says nothing. Where others lose much at the same port, a miss of less is not seen.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

MISSED_ABOVE = 1.02
"""A limit is missed from so many times it on, as the experiment `limits` judges it: a full frame more or less in the
time that rates are averaged over (`ncr.smoothing_ms`, 0.5 s) is 1.2 % of 2 Mb/s."""
MISSED_SECONDS = 5.0
"""And after so many seconds in a row: senders take some round trips to find a limit, and bursts pass."""

Limit = tuple[int, str]
"""A station's MAC address, and the direction that its limit is for: `up` or `down`."""


class Demand(NamedTuple):
    """Demand of a station with a limit at a port, in bytes/s."""

    limit: Limit
    port: int
    rate: float
    allowed: float


class Misses:
    """Limits of one access point's stations that are exceeded, and those of them that are missed."""

    def __init__(self) -> None:
        self.missed: frozenset[Limit] = frozenset()
        self._since: dict[Limit, float] = {}
        """Time since when each limit is exceeded."""
        self._withheld: Mapping[int, float] = {}
        self._at = 0.0

    def update(self, demands: Iterable[Demand], withheld: Mapping[int, float], now: float) -> None:
        """Take what stations with limits ask for now.

        Args:
            demands: of each station, direction and port.
            withheld: bytes that each port did not send of what it was given, so far.
            now: seconds; called about once a second.
        """
        before, self._withheld = self._withheld, withheld
        elapsed, self._at = max(now - self._at, 1e-9), now
        lost = {port: max(0.0, size - before.get(port, size)) / elapsed for port, size in withheld.items()}
        exceeded = (each for each in demands if each.rate - lost.get(each.port, 0.0) > MISSED_ABOVE * each.allowed)
        self._since = {each.limit: self._since.get(each.limit, now) for each in exceeded}
        self.missed = frozenset(limit for limit, since in self._since.items() if now - since >= MISSED_SECONDS)
