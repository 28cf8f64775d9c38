# SPDX-License-Identifier: Apache-2.0
"""Contests for an address that is known behind the uplink and claimed behind a port where stations roam.

A station that comes from another access point was known behind the uplink; the gateway that a station pretends to be is
known there, too. While a contest is open the switch has no entry of the address: packets to it are flooded, so both get
them, and the next frame of either side is reported. A frame of the uplink closes the contest in its favour. If the
uplink stays silent for the contest's patience, the next claim moves the address.

The patience doubles whenever the uplink speaks against a claim: a station that walks to and fro is flooded for longer,
but never cut off, and one that pretends has to find the uplink silent for longer.
"""

from dataclasses import dataclass

from .station import Station

CONTEST_SECONDS = 1.0
"""Patience of a first contest. A host in a conversation answers within that: Linux acknowledges after 40 to 200 ms, and
repeats an unanswered ARP request after a second. A station that roams is flooded for as long, which is no loss."""
MAX_PATIENCE = 180.0
"""As long as moves are counted: M of RFC 7432, section 15.1. A contest in which nothing happens for so long is over."""
MAX_REST = 4.0
"""Seconds between two contests for one address while the uplink speaks. Claims are refused in between: less than a
station needs to walk to the next access point and back."""
MAX_CONTESTS = 4096
"""As many as there are addresses."""


@dataclass(slots=True)
class Contest:
    """The contests for one address in its VLAN, one after the other; times are by the event loop's clock."""

    changed: float
    """Time at which the last contest was opened or closed, or the uplink won the address back."""
    station: Station | None = None
    """The station as it was behind the uplink, while a contest is open."""
    defended: int = 0
    """Number of claims that the uplink has spoken against."""
    rests_until: float = 0.0
    """No contest is opened before that: each takes writes, and floods."""

    @property
    def patience(self) -> float:
        """Seconds for which the uplink must be silent."""
        return min(CONTEST_SECONDS * 2.0 ** min(self.defended, 10), MAX_PATIENCE)


class Contests:
    """The contests of one access point, by the number of address and VLAN."""

    def __init__(self) -> None:
        self._by_number: dict[int, Contest] = {}

    def clear(self) -> None:
        """Forget all of them."""
        self._by_number.clear()

    def contested(self, number: int, now: float) -> Station | None:
        """Return the station for which a contest is open, as it was before."""
        contest = self._recent(number, now)
        return contest.station if contest else None

    def open(self, number: int, station: Station, now: float) -> bool:
        """Open a contest; returns False while the address rests from the last one."""
        contest = self._recent(number, now)
        if contest is None:
            if len(self._by_number) >= MAX_CONTESTS:
                self._by_number = {key: each for key, each in self._by_number.items() if not _is_over(each, now)}
            if len(self._by_number) >= MAX_CONTESTS:
                return False
            contest = self._by_number[number] = Contest(now)
        elif now < contest.rests_until:
            return False
        contest.station, contest.changed = station, now
        return True

    def claim(self, number: int, now: float) -> bool:
        """Handle a claim in an open contest; returns whether the uplink was silent for long enough, and closes it."""
        contest = self._by_number[number]
        if now - contest.changed < contest.patience:
            return False
        contest.station, contest.changed = None, now
        return True

    def defend(self, number: int, now: float) -> None:
        """Handle a frame of the uplink, in an open contest or after a claim has moved the address."""
        contest = self._recent(number, now)
        if contest is None:
            return
        if contest.station is not None:
            contest.rests_until = now + min(contest.patience, MAX_REST)
        contest.station, contest.changed = None, now
        contest.defended += 1

    def _recent(self, number: int, now: float) -> Contest | None:
        contest = self._by_number.get(number)
        if contest is not None and _is_over(contest, now):
            del self._by_number[number]
            return None
        return contest


def _is_over(contest: Contest, now: float) -> bool:
    return now - contest.changed > MAX_PATIENCE
