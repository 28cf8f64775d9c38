# SPDX-License-Identifier: Apache-2.0
"""History: one sample a second of each port, kept for two hours; coarser ones for longer.

The coarser samples are made as time goes by, so nothing old is ever read to be thinned out. What is written goes out
every `FLUSH_SECONDS` in one transaction; a process that is killed loses no more than that. A bucket that a restart
cuts in two is put together again by the number of its samples.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..config import CLASS_DOWNLINK, CLASS_UPLINK
from ..observation import CLASS_COLUMNS, MEASURES, Measure, Observation, PortObservation, kept
from .database import HISTORY, MEANS, SERIES, SUMS, writing

HOUR, DAY = 3600, 86_400
RETENTION = {1: 2 * HOUR, 10: 2 * DAY, 60: 30 * DAY, 600: 366 * DAY}
"""Resolution -> how long it is kept, both in seconds. 50 access points with four ports: 0.25 GB after a day."""
FLUSH_SECONDS = 10.0
MOST_WAITING = 200_000
"""Samples that wait for a database that cannot write; then the oldest are lost."""
CHART = 720
"""Samples of each port in an answer, when no resolution is asked for: more than a screen shows."""
MOST = 10_000
"""The most samples of each port in one answer."""

DELAY = MEANS.index("delay_us")

Key = tuple[int, str, int, int]
"""Resolution, access point, port, time."""


@dataclass(slots=True)
class Bucket:
    """What came together of one port within one resolution."""

    samples: int = 0
    delay_max_us: int = 0
    means: list[float] = field(default_factory=lambda: [0.0] * len(MEANS))
    sums: list[int] = field(default_factory=lambda: [0] * len(SUMS))

    def add(self, delay_us: int, means: list[float], sums: list[int]) -> None:
        """One sample more."""
        self.samples += 1
        self.delay_max_us = max(self.delay_max_us, delay_us)
        self.means = [old + new for old, new in zip(self.means, means, strict=True)]
        self.sums = [old + new for old, new in zip(self.sums, sums, strict=True)]

    def values(self) -> dict[str, int]:
        """The columns."""
        return {
            "samples": self.samples,
            "delay_max_us": self.delay_max_us,
            **{name: round(value / self.samples) for name, value in zip(MEANS, self.means, strict=True)},
            **dict(zip(SUMS, self.sums, strict=True)),
        }


class Recorder:
    """Collects samples of every resolution. It never waits for anything."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str, int], tuple[int, Bucket]] = {}
        self._done: dict[Key, Bucket] = {}
        self._before: dict[tuple[str, int], tuple[float, int, list[int]]] = {}
        self.lost = 0

    def add(self, seen: Observation) -> None:
        """Take what was seen of an access point, once a second."""
        now = seen["time"]
        for port in seen["ports"]:
            place = (seen["name"], port["port"])
            totals = _totals(port)
            then, session, before = self._before.get(place, (now, seen["sessions"], totals))
            self._before[place] = (now, seen["sessions"], totals)
            # Counters that fell began anew.
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

    def take(self, everything: bool = False) -> dict[Key, Bucket]:
        """What is to be written; with `everything` also the buckets that are not over yet."""
        if everything:
            for place, (start, bucket) in self._open.items():
                self._done[(*place, start)] = bucket
            self._open.clear()
        done, self._done = self._done, {}
        return done

    def put_back(self, done: dict[Key, Bucket]) -> None:
        """What could not be written waits for the next time; of too much the oldest is lost."""
        kept = {**done, **self._done}
        excess = max(0, len(kept) - MOST_WAITING)
        self.lost += excess
        self._done = dict(list(kept.items())[excess:])

    def drop(self, access_point: str) -> None:
        """An access point is no more."""
        self._before = {key: value for key, value in self._before.items() if key[0] != access_point}
        self._open = {key: value for key, value in self._open.items() if key[1] != access_point}
        self._done = {key: value for key, value in self._done.items() if key[1] != access_point}


def _means(port: PortObservation) -> list[float]:
    of_class = {_column_of(entry["class_id"]): entry for entry in port["classes"]}
    values = []
    for measure, column in kept(counter=False):
        if measure.level == "port":
            seen = port
        else:
            seen = next((entry for name, entry in of_class.items() if measure.column.format(name) == column), {})
        values.append((seen.get(measure.name) or 0.0) * measure.grain)
    return values


def _totals(port: PortObservation) -> list[int]:
    return [
        round(measure.grain * sum(of[measure.name] for of in _of(port, measure, column)))
        for measure, column in kept(counter=True)
    ]


def _of(port: PortObservation, measure: Measure, column: str) -> list[dict[str, Any]]:
    """What is added in one column of history: the port itself, or those of its classes."""
    if measure.level == "port":
        return [port]
    fits = measure.column.format
    return [entry for entry in port["classes"] if fits(_column_of(entry["class_id"])) == column]


def _column_of(class_id: int) -> str:
    """Which of `CLASS_COLUMNS` a class is told of in."""
    return {CLASS_DOWNLINK: CLASS_COLUMNS[0], CLASS_UPLINK: CLASS_COLUMNS[1]}.get(class_id, CLASS_COLUMNS[2])


class Archive:
    """The samples in the database. Every method is one transaction, and blocks."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._write = writing(engine)
        self._series: dict[tuple[str, int], int] = {}

    def write(self, done: dict[Key, Bucket]) -> None:
        """Write what a recorder took."""
        if not done:
            return
        series = dict(self._series)
        with self._write.begin() as connection:
            for place in {(key[1], key[2]) for key in done} - series.keys():
                series[place] = _series(connection, *place)
            rows = [
                {"resolution": key[0], "series": series[key[1], key[2]], "time": key[3], **bucket.values()}
                for key, bucket in sorted(done.items())
            ]
            connection.execute(_merging(connection.dialect.name), rows)
        # Only what was committed counts.
        self._series = series

    def expire(self, now: float | None = None) -> None:
        """Take away what is older than its resolution is kept."""
        now = time.time() if now is None else now
        with self._write.begin() as connection:
            known = connection.scalars(sa.select(SERIES.c.id)).all()
            for resolution, seconds in RETENTION.items():
                # One series at a time: its oldest samples lie together.
                for series in known:
                    connection.execute(
                        sa.delete(HISTORY).where(
                            HISTORY.c.resolution == resolution,
                            HISTORY.c.series == series,
                            HISTORY.c.time < int(now) - seconds,
                        )
                    )

    def forget(self, access_point: str) -> None:
        """An access point was removed, and with it (`delete_series`) what was recorded of it."""
        self._series = {key: value for key, value in self._series.items() if key[0] != access_point}

    def query(
        self, access_point: str, port: int | None, start: float, end: float, resolution: int
    ) -> dict[int, dict[str, list[float]]]:
        """The samples of each port: column -> values in the order of time; rates in bit/s, feedback from 0 to 1."""
        where = [SERIES.c.access_point == access_point]
        if port is not None:
            where.append(SERIES.c.port == port)
        answer: dict[int, dict[str, list[float]]] = {}
        with self._engine.connect() as connection:
            known = connection.execute(sa.select(SERIES.c.id, SERIES.c.port).where(*where).order_by(SERIES.c.port))
            for series, number in known.all():
                rows = connection.execute(
                    sa.select(HISTORY)
                    .where(
                        HISTORY.c.resolution == resolution,
                        HISTORY.c.series == series,
                        HISTORY.c.time >= int(start) - int(start) % resolution,
                        HISTORY.c.time < end,
                    )
                    .order_by(HISTORY.c.time)
                    .limit(MOST)
                ).all()
                answer[number] = _columns(rows)
        return answer


def delete_series(connection: sa.Connection, access_point: str) -> None:
    """Take away what was recorded of an access point, within a transaction."""
    mine = SERIES.c.access_point == access_point
    for series in connection.scalars(sa.select(SERIES.c.id).where(mine)).all():
        for resolution in RETENTION:
            connection.execute(sa.delete(HISTORY).where(HISTORY.c.resolution == resolution, HISTORY.c.series == series))
    connection.execute(sa.delete(SERIES).where(mine))


def _series(connection: sa.Connection, access_point: str, port: int) -> int:
    where = (SERIES.c.access_point == access_point) & (SERIES.c.port == port)
    known = connection.scalar(sa.select(SERIES.c.id).where(where))
    if known is None:
        known = connection.scalar(sa.insert(SERIES).values(access_point=access_point, port=port).returning(SERIES.c.id))
    assert known is not None
    return int(known)


def _merging(dialect: str) -> sa.Insert:
    """An insertion that puts two parts of one bucket together."""
    insert: Callable[[sa.Table], sqlite.Insert | postgresql.Insert]
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert(HISTORY)
    new, old = statement.excluded, HISTORY.c
    samples = old.samples + new.samples
    larger = sa.case((new.delay_max_us > old.delay_max_us, new.delay_max_us), else_=old.delay_max_us)
    return statement.on_conflict_do_update(
        index_elements=["resolution", "series", "time"],
        set_={
            "samples": samples,
            "delay_max_us": larger,
            **{name: (old[name] * old.samples + new[name] * new.samples) // samples for name in MEANS},
            **{name: old[name] + new[name] for name in SUMS},
        },
    )


def resolution_for(start: float, end: float, now: float) -> int:
    """The finest resolution that is still kept for the whole range and gives a chart at most `CHART` samples."""
    fitting = [
        resolution
        for resolution, kept in RETENTION.items()
        if start >= now - kept and (end - start) / resolution <= CHART
    ]
    return fitting[0] if fitting else max(RETENTION)


def answered(measure: Measure) -> list[str]:
    """What the columns of a measure are called in an answer; there is none of what history does not have."""
    return [
        measure.answered.format(*(name for name in CLASS_COLUMNS if measure.column.format(name) == column))
        for column in measure.columns
    ]


def _columns(rows: Sequence[Any]) -> dict[str, list[float]]:
    columns: dict[str, list[float]] = {
        "time": [row.time for row in rows],
        "samples": [row.samples for row in rows],
        "delay_max_ms": [row.delay_max_us / 1000 for row in rows],
    }
    for measure in MEASURES:
        for column, name in zip(measure.columns, answered(measure), strict=True):
            values = [getattr(row, column) for row in rows]
            if measure.counter and measure.unit == "bytes":
                rates = [round(value * 8000 / max(1, row.span_ms)) for value, row in zip(values, rows, strict=True)]
                columns[name] = [float(rate) for rate in rates]
            else:
                grain = measure.grain
                columns[name] = [round(value / grain, 5) if grain != 1 else float(value) for value in values]
    return columns
