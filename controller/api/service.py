# SPDX-License-Identifier: Apache-2.0
"""What the routes stand on: the desired state, what is seen of the access points, and the database.

A change is checked, applied to the running access point, and kept; when any of the three fails, nothing has changed.
Changes of one access point wait for each other. What is seen is fresh enough (`FRESH_SECONDS`) and shared by all who
ask, so that a crowd of readers costs no more than one.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ..config import AccessPointConfig, ConfigError, Ncr, one_line
from ..connection import State
from ..control import Control, Refused
from ..observation import FlowObservation, Observation, StationObservation
from ..state.database import explain
from ..state.history import FLUSH_SECONDS, Archive, Recorder
from ..state.store import Change, Store, document
from .problems import ProblemError

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

FRESH_SECONDS = 0.1
SAMPLE_SECONDS = 1.0
TIDY_SECONDS = 60.0
FOLLOW_SECONDS = 1.0
"""How soon a change is known that another controller made in the same database."""
LONG_LIST_SECONDS = 0.5
"""How old the list of all flows or stations may be."""


class Service:
    """The service over one database and the access points of this process."""

    def __init__(self, engine: sa.Engine, control: Control) -> None:
        self.store = Store(engine)
        self.archive = Archive(engine)
        self.control = control
        self.recorder = Recorder()
        self.wanted: dict[str, dict[str, Any]] = {}
        """What was said of each access point, without what follows the defaults."""
        self.defaults = Ncr()
        self.seen: dict[str, Observation] = {}
        self.history_problem: str | None = None
        self.started = False
        self._configs: dict[str, AccessPointConfig] = {}
        self._revisions: dict[str, float] = {}
        """When what is in use was written, of each access point that `follow` has looked at."""
        self.defaults_lock = asyncio.Lock()
        self._locks: dict[str, asyncio.Lock] = {}
        self._lists: dict[tuple[str, str], tuple[float, list[Any]]] = {}
        self._list_locks: dict[tuple[str, str], asyncio.Lock] = {}
        # SQLite has one writer at a time; two readers beside it, so that a long chart holds up nothing.
        self._writer = ThreadPoolExecutor(1, "database-write")
        self._readers = ThreadPoolExecutor(2, "database-read")

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A transaction that writes, off the event loop; raises `SQLAlchemyError`."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, lambda: call(*args, **kwargs))

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A transaction that reads, off the event loop; raises `SQLAlchemyError`."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: call(*args, **kwargs))

    async def load(self, from_file: Iterable[AccessPointConfig]) -> None:
        """Take the desired state from the database and the configuration file; raises `ConfigError`."""
        try:
            self.defaults = await self.write(self.store.ncr_defaults)
            for entry in await self.write(self.store.adopt, from_file):
                self._take(entry)
        except SQLAlchemyError as error:
            raise ConfigError(explain(error)) from None
        try:
            self.control.prepare(list(self._configs.values()))
        except Refused as error:
            raise ConfigError(error.detail) from None

    def start(self) -> None:
        """Connect."""
        self.control.start()
        self.started = True

    def tasks(self) -> list[asyncio.Task[None]]:
        """What goes on beside the requests."""
        return [asyncio.create_task(work) for work in (self.sample(), self.keep_history(), self.follow())]

    def _take(self, entry: dict[str, Any]) -> None:
        try:
            config = self.whole(entry)
        except ValueError as error:
            raise ConfigError(f"access point {entry.get('name')}: {one_line(error)}") from None  # type: ignore[arg-type]
        self.wanted[config.name] = entry
        self._configs[config.name] = config

    def whole(self, entry: dict[str, Any], defaults: Ncr | None = None) -> AccessPointConfig:
        """The configuration of an access point, with what follows the defaults; raises `pydantic.ValidationError`."""
        ncr = (defaults or self.defaults).model_dump() | entry.get("ncr", {})
        return AccessPointConfig.model_validate({**entry, "ncr": ncr})

    @property
    def names(self) -> list[str]:
        """All access points."""
        return sorted(self._configs)

    def config(self, name: str) -> AccessPointConfig:
        """How an access point shall be; raises `ProblemError` 404."""
        if name not in self._configs:
            there = ", ".join(self.names[:20]) or "none"
            raise ProblemError(404, f"no access point {name}; there are: {there}")
        return self._configs[name]

    def lock(self, name: str) -> asyncio.Lock:
        """Held while an access point is changed."""
        return self._locks.setdefault(name, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def changing(self, name: str) -> AsyncIterator[None]:
        """Nobody else changes this access point in the block, which begins with what is true of it now; raises
        `SQLAlchemyError`."""
        async with self.lock(name):
            await self._follow(name)
            yield

    async def add(self, config: AccessPointConfig, change: Change) -> AccessPointConfig:
        """One more access point."""
        entry = document(config)
        whole = self.whole(entry)
        async with self.changing(config.name):
            if config.name in self._configs:
                raise ProblemError(409, f"access point {config.name} exists already")
            self.control.add(whole)
            try:
                await self.write(self.store.put, config, change)
            except SQLAlchemyError:
                await self.control.remove(config.name)
                raise
            self.wanted[config.name], self._configs[config.name] = entry, whole
        return whole

    async def remove(self, name: str, change: Change) -> None:
        """One less; call it within `changing`."""
        await self.write(self.store.remove, name, change)
        await self._drop(name)
        await self.write(self.archive.forget, name)

    async def _drop(self, name: str) -> None:
        del self.wanted[name], self._configs[name]
        self.seen.pop(name, None)
        self.recorder.drop(name)
        with contextlib.suppress(Refused):
            await self.control.remove(name)

    async def change(self, entry: dict[str, Any], change: Change) -> AccessPointConfig:
        """Bring an access point to `entry`; call it within `changing`."""
        whole = self.whole(entry)
        before = self._configs[whole.name]
        await self.control.change(whole)
        try:
            await self.write(self.store.put, AccessPointConfig.model_validate(entry), change)
        except SQLAlchemyError:
            with contextlib.suppress(Refused):
                await self.control.change(before)
            raise
        self.wanted[whole.name], self._configs[whole.name] = entry, whole
        self.seen.pop(whole.name, None)
        return whole

    async def change_defaults(self, ncr: Ncr, change: Change) -> Ncr:
        """Other NCR defaults, for every access point that says nothing else."""
        async with self._all_locked():
            configs = {name: self.whole(entry, ncr) for name, entry in self.wanted.items()}
            await self.write(self.store.put_ncr_defaults, ncr, change)
            await self._use_defaults(ncr, configs)
        return ncr

    @contextlib.asynccontextmanager
    async def _all_locked(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for name in self.names:
                await stack.enter_async_context(self.lock(name))
            yield

    async def _use_defaults(self, ncr: Ncr, configs: dict[str, AccessPointConfig]) -> None:
        self.defaults, self._configs = ncr, configs
        for config in configs.values():
            # NCR needs nothing of the switch: no change is refused.
            await self.control.change(config)

    async def follow(self) -> None:
        """Do what another controller on the same database was told; for ever."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            # A database that is away changes nothing; a change that cannot be followed is said once.
            with contextlib.suppress(SQLAlchemyError):
                await self._follow_defaults()
                there = await self.read(self.store.revisions)
                for name in {*there, *self._configs}:
                    if self._revisions.get(name) != there.get(name):
                        async with self.lock(name):
                            await self._follow(name)

    async def _follow_defaults(self) -> None:
        try:
            if await self.read(self.store.ncr_defaults) == self.defaults:
                return
            async with self.defaults_lock, self._all_locked():
                ncr = await self.read(self.store.ncr_defaults)
                if ncr != self.defaults:
                    configs = {name: self.whole(entry, ncr) for name, entry in self.wanted.items()}
                    await self._use_defaults(ncr, configs)
        except ConfigError as error:
            LOG.warning("%s", error)

    async def _follow(self, name: str) -> None:
        """Bring an access point to what the database says; call it with its lock held."""
        found = await self.read(self.store.access_point, name)
        if found is None:
            self._revisions.pop(name, None)
            if name in self._configs:
                await self._drop(name)
            return
        entry, self._revisions[name] = found
        if entry == self.wanted.get(name):
            return
        try:
            whole = self.whole(entry)
            if name in self._configs:
                await self.control.change(whole)
            else:
                self.control.add(whole)
        except (Refused, ValueError) as error:
            LOG.warning("%s: a change in the database is not followed: %s", name, error)
            return
        self.wanted[name], self._configs[name] = entry, whole
        self.seen.pop(name, None)

    def observe(self, name: str, fresh: float = FRESH_SECONDS) -> Observation:
        """How an access point is, as of `fresh` seconds ago at most; raises `Refused`."""
        seen = self.seen.get(name)
        if seen is None or not 0 <= time.time() - seen["time"] < fresh:
            seen = self.seen[name] = self.control.observe(name)
        return seen

    async def flows(self, name: str) -> list[FlowObservation]:
        """All flows of an access point."""
        return await self._list("flows", name)

    async def stations(self, name: str) -> list[StationObservation]:
        """All stations of an access point."""
        return await self._list("stations", name)

    async def _list(self, what: str, name: str) -> list[Any]:
        """A long list, piece by piece; the longer it took, the longer it is used."""
        key = (what, name)
        async with self._list_locks.setdefault(key, asyncio.Lock()):
            until, found = self._lists.get(key, (0.0, []))
            began = time.monotonic()
            if began < until:
                return found
            found, start = [], 0
            while start is not None:
                piece, start = getattr(self.control, what)(name, start)
                found += piece
                await asyncio.sleep(0)
            now = time.monotonic()
            self._lists[key] = (now + max(LONG_LIST_SECONDS, 10 * (now - began)), found)
            return found

    def forget_lists(self, name: str) -> None:
        """Something in them was changed."""
        for what in ("flows", "stations"):
            self._lists.pop((what, name), None)

    async def sample(self) -> None:
        """Once a second look at every access point, evenly spread over the second; for ever."""
        due = time.monotonic()
        while True:
            names = self.names
            for number, name in enumerate(names):
                await asyncio.sleep(max(0.0, due + number * SAMPLE_SECONDS / len(names) - time.monotonic()))
                # It may be away, or just removed.
                with contextlib.suppress(Refused):
                    seen = self.observe(name)
                    # Of what is not under control nothing is measured: history has a gap there, not zeros.
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
            await self.flush()
            if time.monotonic() - tidied >= TIDY_SECONDS:
                tidied = time.monotonic()
                with contextlib.suppress(SQLAlchemyError):
                    await self.write(self.archive.expire)
                    await self.write(self.store.tidy)

    async def flush(self, everything: bool = False) -> None:
        """Write what was sampled; what cannot be written waits."""
        taken = self.recorder.take(everything)
        try:
            await self.write(self.archive.write, taken)
            self.history_problem = None
        except SQLAlchemyError as error:
            self.recorder.put_back(taken)
            reason = explain(error)
            if reason != self.history_problem:
                LOG.warning("history is not written: %s; trying again", reason)
            self.history_problem = reason

    async def close(self) -> None:
        """The end: what was sampled is kept."""
        await self.flush(everything=True)
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=False, cancel_futures=True)
