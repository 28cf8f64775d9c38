# SPDX-License-Identifier: Apache-2.0
"""Samples of ports and stations, at every resolution of history. Nothing here waits for anything.

The coarser samples are made as time goes by, so no old samples are read for them.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .config import CLASS_DOWNLINK, CLASS_UPLINK
from .observation import (
    CLASS_COLUMNS,
    Measure,
    Observation,
    PortObservation,
    UsageObservation,
    history_columns,
    measures,
)

HOUR, DAY = 3600, 86_400
RETENTION = {1: 2 * HOUR, 10: 2 * DAY, 60: 30 * DAY, 600: 366 * DAY}
"""Resolution -> how long it is kept, both in seconds. 50 access points with four ports: 0.35 GB after a day."""
STATION_RETENTION = {resolution: seconds for resolution, seconds in RETENTION.items() if resolution >= 60}
"""Retention of stations' usage, which needs no seconds."""
MAX_STATIONS = 256
"""Stations of an access point within `FLUSH_SECONDS`, by the greatest usage. Anybody may make up addresses."""
FLUSH_SECONDS = 10.0
MAX_PENDING = 200_000
"""Samples that wait for a database that cannot write; then the oldest are lost."""

MEANS = tuple(column for _, column in history_columns(counter=False))
"""Means over the samples. Integers: SQLite keeps small ones small."""
SUMS = ("span_ms", *(column for _, column in history_columns(counter=True)))
"""`span_ms` is the time that the others were counted in."""
STATION_MEASURES = tuple(measures("station"))
STATION_SUMS = tuple(column for measure in STATION_MEASURES for column in measure.columns)
DELAY = MEANS.index("delay_us")

Key = tuple[int, str, int | str, int]
"""Resolution, access point, port or address of a station, time."""


@dataclass(slots=True)
class Bucket:
    """Sample of one port or one station, within one interval of a resolution. A station's has sums alone."""

    samples: int = 0
    delay_max_us: int = 0
    means: list[float] = field(default_factory=lambda: [0.0] * len(MEANS))
    sums: list[int] = field(default_factory=lambda: [0] * len(SUMS))

    def add(self, delay_us: int, means: list[float], sums: list[int]) -> None:
        """Add one reading."""
        self.samples += 1
        self.delay_max_us = max(self.delay_max_us, delay_us)
        self.means = [old + new for old, new in zip(self.means, means, strict=True)]
        self.sums = [old + new for old, new in zip(self.sums, sums, strict=True)]

    def join(self, other: "Bucket") -> None:
        """Add another part of the same sample."""
        self.samples += other.samples
        self.delay_max_us = max(self.delay_max_us, other.delay_max_us)
        self.means = [old + new for old, new in zip(self.means, other.means, strict=True)]
        self.sums = [old + new for old, new in zip(self.sums, other.sums, strict=True)]

    def values(self) -> dict[str, int]:
        """Return the columns and their values."""
        return {
            "samples": self.samples,
            "delay_max_us": self.delay_max_us,
            **{name: round(value / self.samples) for name, value in zip(MEANS, self.means, strict=True)},
            **dict(zip(SUMS, self.sums, strict=True)),
        }


class Recorder:
    """Collects samples of every resolution. It never waits for anything."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str, int | str], tuple[int, Bucket]] = {}
        self._done: dict[Key, Bucket] = {}
        self._before: dict[tuple[str, int], tuple[float, int, list[int]]] = {}
        self._used: dict[str, tuple[int, dict[str, list[int]]]] = {}
        """Usage of stations at the last reading, and the session of that reading."""
        self.lost = 0

    def add(self, seen: Observation) -> None:
        """Add an observation of an access point, once a second."""
        now = seen["time"]
        for port in seen["ports"]:
            place = (seen["name"], port["port"])
            totals = _totals(port)
            then, session, before = self._before.get(place, (now, seen["sessions"], totals))
            self._before[place] = (now, seen["sessions"], totals)
            # Counters that fell have restarted.
            anew = session != seen["sessions"] or any(new < old for new, old in zip(totals, before, strict=True))
            sums = totals if anew else [new - old for new, old in zip(totals, before, strict=True)]
            self._take(place, int(now), _means(port), [max(0, round((now - then) * 1000)), *sums])

    def _take(self, place: tuple[str, int], now: int, means: list[float], sums: list[int]) -> None:
        for resolution in RETENTION:
            start = now - now % resolution
            opened = self._open.get((resolution, *place))
            if opened is None or opened[0] != start:
                if opened is not None:
                    self._done[(resolution, *place, opened[0])] = opened[1]
                opened = self._open[(resolution, *place)] = (start, Bucket())
            opened[1].add(round(means[DELAY]), means, sums)

    def use(self, name: str, session: int, now: float, used: Mapping[str, UsageObservation]) -> None:
        """Add the usage so far of each station of an access point, by address, every `FLUSH_SECONDS`. The first reading
        of a session is only the start."""
        totals = {address: [round(of.of(usage) or 0) for of in STATION_MEASURES] for address, usage in used.items()}
        then, before = self._used.get(name, (None, {}))
        self._used[name] = (session, totals)
        if then != session:
            return
        nothing, more = [0] * len(STATION_SUMS), []
        for address, total in totals.items():
            old = before.get(address, nothing)
            if total != old:
                anew = any(new < one for new, one in zip(total, old, strict=True))
                more.append((address, total if anew else [new - one for new, one in zip(total, old, strict=True)]))
        for address, sums in heapq.nlargest(MAX_STATIONS, more, key=lambda one: sum(one[1])):
            for resolution in STATION_RETENTION:
                # It is written at once: the database adds up the parts of one sample.
                key = (resolution, name, address, int(now) - int(now) % resolution)
                bucket = Bucket(1, 0, [], sums)
                if (other := self._done.get(key)) is None:
                    self._done[key] = bucket
                else:
                    other.join(bucket)

    def take(self, everything: bool = False) -> dict[Key, Bucket]:
        """Return the samples to be written, and forget them; with `everything` also unfinished ones."""
        if everything:
            for place, (start, bucket) in self._open.items():
                self._done[(*place, start)] = bucket
            self._open.clear()
        done, self._done = self._done, {}
        return done

    def put_back(self, done: dict[Key, Bucket]) -> None:
        """Keep samples that could not be written for the next time; above `MAX_PENDING` the oldest are lost."""
        kept = {**done, **self._done}
        excess = max(0, len(kept) - MAX_PENDING)
        self.lost += excess
        self._done = dict(list(kept.items())[excess:])

    def drop(self, access_point: str) -> None:
        """Forget a removed access point."""
        self._before = {key: value for key, value in self._before.items() if key[0] != access_point}
        self._used.pop(access_point, None)
        self._open = {key: value for key, value in self._open.items() if key[1] != access_point}
        self._done = {key: value for key, value in self._done.items() if key[1] != access_point}


def _means(port: PortObservation) -> list[float]:
    of_class = {_column_of(entry["class_id"]): entry for entry in port["classes"]}
    values = []
    for measure, column in history_columns(counter=False):
        if measure.level == "port":
            seen = port
        else:
            seen = next((entry for name, entry in of_class.items() if measure.column.format(name) == column), {})
        values.append((seen.get(measure.name) or 0.0) * measure.grain)
    return values


def _totals(port: PortObservation) -> list[int]:
    return [
        round(measure.grain * sum(of[measure.name] for of in _of(port, measure, column)))
        for measure, column in history_columns(counter=True)
    ]


def _of(port: PortObservation, measure: Measure, column: str) -> list[dict[str, Any]]:
    """Return the observations that one column of history adds up: the port, or those of its classes."""
    if measure.level == "port":
        return [port]
    fits = measure.column.format
    return [entry for entry in port["classes"] if fits(_column_of(entry["class_id"])) == column]


def _column_of(class_id: int) -> str:
    """Return the one of `CLASS_COLUMNS` that a class belongs to."""
    return {CLASS_DOWNLINK: CLASS_COLUMNS[0], CLASS_UPLINK: CLASS_COLUMNS[1]}.get(class_id, CLASS_COLUMNS[2])
