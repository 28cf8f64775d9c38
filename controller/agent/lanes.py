# SPDX-License-Identifier: Apache-2.0
"""Lanes: the part of a full port's bulk that each station has for itself, and what it gets of the wire. Pure.

A lane is a queue of its own on each port: up, what the station sends waits there, down, what it gets. Lanes share by
the weights of their stations, so neither many flows nor senders that ignore marks get a station more than its part.
With more stations than lanes some share one, and its part, until one becomes free; a station with a limit shares with
nobody, as the limit is the lane's.
"""

from ..config import AccessPointConfig, Station
from ..law import LAWS

WEIGHT_UNIT = 100
"""The data plane's number for a weight of 1."""
MAX_WEIGHT = 10_000
"""The largest number for a weight."""


def are_used(config: AccessPointConfig) -> bool:
    """Return True when shares are by station, and not as the paper has them, which knows one queue."""
    return config.features.ncr and config.ncr.isolate_stations and not LAWS[config.ncr.law].exact


def weight(station: Station) -> int:
    """Return the data plane's number for a station's weight."""
    return min(MAX_WEIGHT, max(1, round(WEIGHT_UNIT * station.weight)))


def rate(limit_bps: int | None) -> int:
    """Return the data plane's number for a limit, in kbit/s; 0: none."""
    return 0 if limit_bps is None else max(1, limit_bps // 1000)


class Lanes:
    """The lanes of one access point, from 1 to `number`; stations are known by their numbers."""

    def __init__(self, number: int) -> None:
        self._of: dict[int, int] = {}
        self._members: dict[int, set[int]] = {lane: set() for lane in range(1, number + 1)}
        self._alone: set[int] = set()
        """Lanes whose station shares with nobody."""

    def clear(self) -> None:
        """Free all lanes."""
        self._of.clear()
        self._alone.clear()
        for members in self._members.values():
            members.clear()

    def of(self, station: int) -> int:
        """Return the lane of a station; 0: none."""
        return self._of.get(station, 0)

    def is_alone(self, station: int) -> bool:
        """Return True when a station has a lane, and will not share it."""
        return self.of(station) in self._alone

    def alone(self) -> list[int]:
        """Return the stations whose lanes are theirs alone, by their settings."""
        return [station for lane in self._alone for station in self._members[lane]]

    def is_shared(self, lane: int) -> bool:
        """Return True when more than one station has this lane."""
        return len(self._members.get(lane, ())) > 1

    def keep(self, station: int, lane: int) -> None:
        """Give a station the lane that it had before; one that does not exist is none."""
        if lane in self._members:
            self.free(station)
            self._of[station] = lane
            self._members[lane].add(station)

    def take(self, station: int, alone: bool) -> int:
        """Return a station's lane, which it keeps: a free one, or until there is one that of the fewest others.

        Args:
            station: its number.
            alone: True for a station with a limit. Where no lane is free, it shares one all the same.
        """
        lane = self.of(station)
        if not lane or self.is_shared(lane):
            open_to_all = [lane for lane in self._members if lane not in self._alone]
            emptiest = min(open_to_all, key=lambda lane: len(self._members[lane]), default=0)
            if not lane or not self._members[emptiest]:
                self.keep(station, emptiest)
        lane = self.of(station)
        if alone and lane and not self.is_shared(lane):
            self._alone.add(lane)
        elif not alone:
            self._alone.discard(lane)
        return lane

    def heir(self, left: int) -> int | None:
        """Return a station whose lane may change after another one has left the lane `left`; None: there is none.

        It is the one that is alone there now, or where nobody is, one of those that share the fullest lane.
        """
        members = self._members.get(left)
        if members is None or len(members) > 1:
            return None
        fullest = max(self._members.values(), key=len)
        return min(members or fullest) if members or len(fullest) > 1 else None

    def free(self, station: int) -> None:
        """Free the lane of a station."""
        lane = self._of.pop(station, 0)
        if lane:
            self._members[lane].discard(station)
            self._alone.discard(lane)
