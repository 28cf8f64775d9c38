# SPDX-License-Identifier: Apache-2.0
"""History out of the engine into the database, each sample once.

The position in the log is kept in the database, and changes in the transaction that writes the samples. So it does not
matter how many replicas read, and which one is killed: of two that write the same, the second notices it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ..samples import Bucket, Key
from ..state.database import SETTINGS, explain
from ..state.history import Archive
from .engine import Engine, Unavailable
from .messages import Samples, Unusable, parse

LOG = logging.getLogger(__name__)

MAX_BATCH = 200
"""Messages in one transaction."""
PAUSE_SECONDS = 1.0
ASIDE_SECONDS = 10.0
"""Seconds for which a replica leaves the log to another one that was faster."""
ROW = "history"


class AlreadyWritten(Exception):
    """Another replica has written this already."""


def position(engine: sa.Engine, begun: str) -> int:
    """Return the position up to which the log of this creation time was read."""
    with engine.connect() as connection:
        value = connection.scalar(sa.select(SETTINGS.c.value).where(SETTINGS.c.name == ROW))
    log, _, number = (value or "").rpartition("#")
    return int(number) if log == begun else 0


def advance(connection: sa.Connection, begun: str, before: int, now: int) -> None:
    """Set the position in the log, within the transaction that writes the samples; raises `AlreadyWritten`."""
    values = {"value": f"{begun}#{now}", "revision": 0}
    is_row = SETTINGS.c.name == ROW
    if before == 0:
        # Nothing of this log was read yet: there is no row, or one of another log.
        row = connection.execute(sa.select(SETTINGS.c.value).where(is_row).with_for_update()).first()
        if row is None:
            connection.execute(sa.insert(SETTINGS).values(name=ROW, **values))
            return
        if row.value.startswith(f"{begun}#"):
            raise AlreadyWritten
        connection.execute(sa.update(SETTINGS).where(is_row).values(**values))
        return
    where = is_row & (SETTINGS.c.value == f"{begun}#{before}")
    if not connection.execute(sa.update(SETTINGS).where(where).values(**values)).rowcount:
        raise AlreadyWritten


async def read(engine: Engine, after: int) -> tuple[int, list[tuple[str, bytes]]]:
    """Return the position after the next messages of the log, and the messages; raises `Unavailable`."""
    found: list[tuple[str, bytes]] = []
    while len(found) < MAX_BATCH:
        following = await engine.next_logged(after, "ap.*.history")
        if following is None:
            break
        after = following[0]
        found.append((following[1].split(".")[1].replace("=", "."), following[2]))
    return after, found


def write(
    archive: Archive, begun: str, before: int, now: int, messages: list[tuple[str, bytes]], known: set[str]
) -> None:
    """Write what can be used, in one transaction; raises `AlreadyWritten` and `SQLAlchemyError`."""
    done: dict[Key, Bucket] = {}
    for name, data in messages:
        if name not in known:
            # It was removed, and its history with it.
            continue
        try:
            buckets = parse(Samples, data).buckets(name)
        except Unusable as error:
            LOG.warning("%s: invalid history from its agent: %s", name, error)
            continue
        for key, bucket in buckets.items():
            if (other := done.get(key)) is None:
                done[key] = bucket
            else:
                # Two agents, or one that was restarted within a sample's time.
                other.join(bucket)
    archive.write(done, lambda connection: advance(connection, begun, before, now))


class Archivist:
    """Moves history from the engine to the database, for ever.

    Args:
        engine: has the log.
        archive: keeps history.
        database: the archive's.
        run: runs blocking calls in a thread.
        known: returns the access points that exist.
    """

    def __init__(
        self,
        engine: Engine,
        archive: Archive,
        database: sa.Engine,
        run: Callable[..., Awaitable[Any]],
        known: Callable[[], list[str]],
    ) -> None:
        self._engine, self._archive, self._database = engine, archive, database
        self._run, self._known = run, known
        self.problem: str | None = None

    async def run(self) -> None:
        """Read and write for ever."""
        while True:
            seconds = PAUSE_SECONDS
            try:
                more = await self._step()
                self.problem = None
                if more:
                    continue
            except AlreadyWritten:
                seconds = ASIDE_SECONDS
            except Unavailable:
                self.problem = self._engine.problem or "the engine does not answer"
            except SQLAlchemyError as error:
                self.problem = explain(error)
            # Replicas must not try at the same time.
            await asyncio.sleep(random.uniform(1, 2) * seconds)

    async def _step(self) -> bool:
        """Read and write some messages; return True when there may be more."""
        if not self._engine.connected:
            raise Unavailable(self._engine.problem)
        begun = await self._engine.log_created()
        before = await self._run(position, self._database, begun)
        after, messages = await read(self._engine, before)
        if after != before:
            await self._run(write, self._archive, begun, before, after, messages, {*self._known()})
        return len(messages) == MAX_BATCH
