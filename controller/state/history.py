# SPDX-License-Identifier: Apache-2.0
"""History: one sample a second of each port, kept for two hours; coarser ones for longer.

What is written goes out every `FLUSH_SECONDS` in one transaction; a process that is killed loses no more than that. A
bucket that a restart cuts in two is put together again by the number of its samples.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..observation import CLASS_COLUMNS, MEASURES, Measure
from ..samples import MEANS, RETENTION, SUMS, Bucket, Key
from .database import HISTORY, SERIES, writing

CHART = 720
"""Samples of each port in an answer, when no resolution is asked for: more than a screen shows."""
MOST = 10_000
"""The most samples of each port in one answer."""


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
            for place in {(key[1], key[2]) for key in done} - series.keys():
                series[place] = _series(connection, *place)
            rows = [
                {"resolution": key[0], "series": series[key[1], key[2]], "time": key[3], **bucket.values()}
                for key, bucket in sorted(done.items())
            ]
            if also is not None:
                also(connection)
            if rows:
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
