# SPDX-License-Identifier: Apache-2.0
"""Observations of the access points, as fresh as a reader needs them, and kept as history.

An observation is shared by all readers for `FRESH_SECONDS`, so that a crowd of readers costs no more than one.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from ..agent.connection import State
from ..agent.local_backend import LocalBackend
from ..agent.reconciler import Refused
from ..observation import FlowObservation, Observation, StationObservation
from ..samples import FLUSH_SECONDS, Recorder
from ..state.database import explain
from ..state.history import Archive

if TYPE_CHECKING:
    from ..fleet.remote_backend import RemoteBackend

LOG = logging.getLogger(__name__)

FRESH_SECONDS = 0.1
SAMPLE_SECONDS = 1.0
TIDY_SECONDS = 60.0
LONG_LIST_SECONDS = 0.5
"""Seconds for which a list of all flows or stations is reused."""


class Monitor:
    """Observations of access points.

    Args:
        backend: the access points.
        archive: keeps history.
        names: returns the names of all access points.
        write: makes a transaction that writes, off the event loop.
        tidy: removes old rows of other tables than history's.
    """

    def __init__(
        self,
        backend: "LocalBackend | RemoteBackend",
        archive: Archive,
        names: Callable[[], list[str]],
        write: Callable[..., Awaitable[Any]],
        tidy: Callable[[], None],
    ) -> None:
        self._backend = backend
        self._archive = archive
        self._names = names
        self._write = write
        self._tidy = tidy
        self.recorder = Recorder()
        self.seen: dict[str, Observation] = {}
        self.archive_problem: Callable[[], str | None] = lambda: None
        """Returns the reason why history from agents does not arrive, or None."""
        self._history_problem: str | None = None
        self._lists: dict[tuple[str, str], tuple[float, list[Any]]] = {}
        self._list_locks: dict[tuple[str, str], asyncio.Lock] = {}

    def drop(self, name: str) -> None:
        """Forget a removed access point."""
        self.seen.pop(name, None)
        self.recorder.drop(name)

    def observe(self, name: str, fresh: float = FRESH_SECONDS) -> Observation:
        """Return the state of an access point, at most `fresh` seconds old; raises `Refused`."""
        seen = self.seen.get(name)
        if seen is None or not 0 <= time.time() - seen["time"] < fresh:
            seen = self.seen[name] = self._backend.observe(name)
        return seen

    def all_seen(self) -> list[Observation]:
        """Return the last observation of every access point."""
        for name in self._names():
            # It may be away.
            with contextlib.suppress(Refused):
                self.observe(name, 2 * SAMPLE_SECONDS)
        return [*self.seen.values()]

    async def flows(self, name: str) -> list[FlowObservation]:
        """Return all flows of an access point."""
        return await self._list("flows", name)

    async def stations(self, name: str) -> list[StationObservation]:
        """Return all stations of an access point."""
        return await self._list("stations", name)

    async def _list(self, what: str, name: str) -> list[Any]:
        """Read a long list, piece by piece; the longer it took, the longer it is reused."""
        key = (what, name)
        async with self._list_locks.setdefault(key, asyncio.Lock()):
            until, found = self._lists.get(key, (0.0, []))
            began = time.monotonic()
            if began < until:
                return found
            found, start = [], 0
            while start is not None:
                piece, start = await getattr(self._backend, what)(name, start)
                found += piece
                await asyncio.sleep(0)
            now = time.monotonic()
            self._lists[key] = (now + max(LONG_LIST_SECONDS, 10 * (now - began)), found)
            return found

    def forget_lists(self, name: str) -> None:
        """Forget the lists of an access point after a change."""
        for what in ("flows", "stations"):
            self._lists.pop((what, name), None)

    @property
    def lost(self) -> int:
        """Samples of history that were lost, here or at agents."""
        return self.recorder.lost + self._backend.lost

    async def sample(self) -> None:
        """Sample every access point of this process once a second, evenly spread over the second; for ever."""
        due = time.monotonic()
        while True:
            names = self._names()
            for number, name in enumerate(names):
                await asyncio.sleep(max(0.0, due + number * SAMPLE_SECONDS / len(names) - time.monotonic()))
                # It may be away, or just removed.
                with contextlib.suppress(Refused):
                    seen = self.observe(name)
                    # An access point that is not under control is not measured: history has a gap there, not zeros.
                    if seen["state"] == State.READY.value:
                        self.recorder.add(seen)
            # A clock that jumps makes no work to catch up with, and a busy second is left out.
            due = max(due + SAMPLE_SECONDS, time.monotonic())
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def keep_history(self) -> None:
        """Write what was sampled, and take away what is old; for ever."""
        tidied = -TIDY_SECONDS
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._look_at_stations()
            await self.flush()
            if time.monotonic() - tidied >= TIDY_SECONDS:
                tidied = time.monotonic()
                with contextlib.suppress(SQLAlchemyError):
                    await self._write(self._archive.expire)
                    await self._write(self._tidy)

    def _look_at_stations(self) -> None:
        """Record the usage of stations since the last call."""
        if not isinstance(self._backend, LocalBackend):
            # Agents record it themselves.
            return
        for name in self._names():
            with contextlib.suppress(Refused):
                seen = self.observe(name)
                if seen["state"] == State.READY.value:
                    self.recorder.use(name, seen["sessions"], seen["time"], self._backend.used(name))

    @property
    def history_problem(self) -> str | None:
        """Reason why history is not written, in one line, or None."""
        return self._history_problem or self.archive_problem()

    async def flush(self, everything: bool = False) -> None:
        """Write what was sampled; what cannot be written waits."""
        taken = self.recorder.take(everything)
        try:
            await self._write(self._archive.write, taken)
            self._history_problem = None
        except SQLAlchemyError as error:
            self.recorder.put_back(taken)
            reason = explain(error)
            if reason != self._history_problem:
                LOG.warning("history is not written: %s; trying again", reason)
            self._history_problem = reason
