# SPDX-License-Identifier: Apache-2.0
"""History: one sample a second of each port, kept for two hours; coarser ones for longer. And the usage of stations.

Samples are written every `FLUSH_SECONDS` in one transaction; a process that is killed loses no more than that. A bucket
that a restart cuts in two is put together again by the number of its samples.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..observation import CLASS_COLUMNS, MEASURES, Measure
from ..samples import MEANS, RETENTION, STATION_MEASURES, STATION_RETENTION, STATION_SUMS, SUMS, Bucket, Key
from .database import HISTORY, SERIES, STATION_USE, writing

CHART = 720
"""Samples of each port in an answer, when no resolution is asked for: more than a screen shows."""
MAX_SAMPLES = 10_000
"""Samples of each port in one answer."""

SERIES_AT_ONCE = 500
"""Series in one statement: databases bound their number."""


class Archive:
    """The samples in the database. Every method is one transaction, and blocks."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._write = writing(engine)
        self._series: dict[tuple[str, int], int] = {}

    def write(self, done: dict[Key, Bucket], also: Callable[[sa.Connection], None] | None = None) -> None:
        """Write what a recorder took, and do something else in the same transaction."""
        if not done and also is None:
            return
        series = dict(self._series)
        with self._write.begin() as connection:
            rows, used = [], []
            for (resolution, access_point, place, when), bucket in sorted(done.items(), key=_order):
                if isinstance(place, str):
                    of = {
                        "access_point": access_point,
                        "resolution": resolution,
                        "time": when,
                        "station": _number(place),
                    }
                    used.append(of | dict(zip(STATION_SUMS, bucket.sums, strict=True)))
                    continue
                if (access_point, place) not in series:
                    series[access_point, place] = _series(connection, access_point, place)
                of = {"resolution": resolution, "series": series[access_point, place], "time": when}
                rows.append(of | bucket.values())
            if also is not None:
                also(connection)
            if rows:
                connection.execute(_merging(connection.dialect.name), rows)
            if used:
                connection.execute(_adding(connection.dialect.name), used)
        # Only what was committed counts.
        self._series = series

    def expire(self, now: float | None = None) -> None:
        """Delete samples that are older than the retention of their resolution."""
        now = time.time() if now is None else now
        with self._write.begin() as connection:
            known = connection.scalars(sa.select(SERIES.c.id)).all()
            for resolution, seconds in RETENTION.items():
                # By series: the oldest samples of each lie together.
                for start in range(0, len(known), SERIES_AT_ONCE):
                    connection.execute(
                        sa.delete(HISTORY).where(
                            HISTORY.c.resolution == resolution,
                            HISTORY.c.series.in_(known[start : start + SERIES_AT_ONCE]),
                            HISTORY.c.time < int(now) - seconds,
                        )
                    )

            for access_point in connection.scalars(sa.select(SERIES.c.access_point).distinct()).all():
                for resolution, seconds in STATION_RETENTION.items():
                    connection.execute(
                        sa.delete(STATION_USE).where(
                            STATION_USE.c.access_point == access_point,
                            STATION_USE.c.resolution == resolution,
                            STATION_USE.c.time < int(now) - seconds,
                        )
                    )

    def forget(self, access_point: str) -> None:
        """Forget a removed access point, whose samples `delete_series` has deleted."""
        self._series = {key: value for key, value in self._series.items() if key[0] != access_point}

    def query(
        self, access_point: str, port: int | None, start: float, end: float, resolution: int
    ) -> dict[int, dict[str, list[float]]]:
        """Return the samples of each port: column -> values in order of time; rates in bit/s, feedback 0 to 1."""
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
                    .limit(MAX_SAMPLES)
                ).all()
                answer[number] = _columns(rows)
        return answer

    def used(
        self, access_point: str, station: str, start: float, end: float, resolution: int
    ) -> dict[str, list[float]]:
        """Return a station's usage: column -> values in the order of time. Intervals without usage have no sample."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                sa.select(STATION_USE)
                .where(
                    STATION_USE.c.access_point == access_point,
                    STATION_USE.c.resolution == resolution,
                    STATION_USE.c.time >= int(start) - int(start) % resolution,
                    STATION_USE.c.time < end,
                    STATION_USE.c.station == _number(station),
                )
                .order_by(STATION_USE.c.time)
                .limit(MAX_SAMPLES)
            ).all()
        columns: dict[str, list[float]] = {"time": [row.time for row in rows]}
        for measure in STATION_MEASURES:
            columns[measure.answer_column] = [getattr(row, measure.column) for row in rows]
        return columns


def _number(address: str) -> int:
    return int(address.replace(":", ""), 16)


def _order(item: tuple[Key, Bucket]) -> tuple[Any, ...]:
    """Return the order in which all processes write rows, so that no two wait for each other."""
    resolution, access_point, place, when = item[0]
    return isinstance(place, str), resolution, access_point, place, when


def delete_series(connection: sa.Connection, access_point: str) -> None:
    """Delete all samples of an access point, within a transaction."""
    mine = SERIES.c.access_point == access_point
    for series in connection.scalars(sa.select(SERIES.c.id).where(mine)).all():
        for resolution in RETENTION:
            connection.execute(sa.delete(HISTORY).where(HISTORY.c.resolution == resolution, HISTORY.c.series == series))
    connection.execute(sa.delete(SERIES).where(mine))
    connection.execute(sa.delete(STATION_USE).where(STATION_USE.c.access_point == access_point))


def _series(connection: sa.Connection, access_point: str, port: int) -> int:
    where = (SERIES.c.access_point == access_point) & (SERIES.c.port == port)
    known = connection.scalar(sa.select(SERIES.c.id).where(where))
    if known is None:
        known = connection.scalar(sa.insert(SERIES).values(access_point=access_point, port=port).returning(SERIES.c.id))
    assert known is not None
    return int(known)


def _merging(dialect: str) -> sa.Insert:
    """Return an insertion that joins two parts of one bucket."""
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


def _adding(dialect: str) -> sa.Insert:
    """Return an insertion that adds to a station's usage in the same sample."""
    insert: Callable[[sa.Table], sqlite.Insert | postgresql.Insert]
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert(STATION_USE)
    return statement.on_conflict_do_update(
        index_elements=["access_point", "resolution", "time", "station"],
        set_={name: STATION_USE.c[name] + statement.excluded[name] for name in STATION_SUMS},
    )


def resolution_for(start: float, end: float, now: float, retention: Mapping[int, int] = RETENTION) -> int:
    """Return the finest resolution that is still kept for the whole range and gives a chart at most `CHART` samples."""
    fitting = [
        resolution
        for resolution, kept in retention.items()
        if start >= now - kept and (end - start) / resolution <= CHART
    ]
    return fitting[0] if fitting else max(retention)


def answer_columns(measure: Measure) -> list[str]:
    """Return the names of a measure's columns in an answer; none for a measure that history does not have."""
    return [
        measure.answer_column.format(*(name for name in CLASS_COLUMNS if measure.column.format(name) == column))
        for column in measure.columns
    ]


def _columns(rows: Sequence[Any]) -> dict[str, list[float]]:
    columns: dict[str, list[float]] = {
        "time": [row.time for row in rows],
        "samples": [row.samples for row in rows],
        "delay_max_ms": [row.delay_max_us / 1000 for row in rows],
    }
    for measure in MEASURES:
        if measure.level == "station":
            continue
        for column, name in zip(measure.columns, answer_columns(measure), strict=True):
            values = [getattr(row, column) for row in rows]
            if measure.counter and measure.unit == "bytes":
                rates = [round(value * 8000 / max(1, row.span_ms)) for value, row in zip(values, rows, strict=True)]
                columns[name] = [float(rate) for rate in rates]
            else:
                grain = measure.grain
                columns[name] = [round(value / grain, 5) if grain != 1 else float(value) for value in values]
    return columns
