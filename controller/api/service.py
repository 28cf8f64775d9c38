# SPDX-License-Identifier: Apache-2.0
"""Desired state and database, for the routes; `monitor` has the observations of the access points.

A change is checked and kept as a revision; when either fails, nothing has changed. The access point's reconciler brings
the revision about, and `standing` reports how far it is. Changes of one access point wait for each other; one that
another replica comes before (`Conflict`) is made again, on top of the other's.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from ..agent.local_backend import LocalBackend
from ..agent.program import parsed
from ..agent.reconciler import Standing
from ..config import AccessPointConfig, ConfigError, Ncr, Rule, duplicate_rules, migrate_entry
from ..mistakes import one_line
from ..observation import Observation
from ..state.database import explain
from ..state.history import Archive
from ..state.store import Change, Conflict, Store, document
from .monitor import Monitor
from .problems import ProblemError

if TYPE_CHECKING:
    from ..fleet.adoption import Adoption
    from ..fleet.remote_backend import RemoteBackend

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

FILES = Path("p4src")
"""Relative to the working directory, as the paths of pipelines are."""
FOLLOW_SECONDS = 1.0
"""Seconds until a change is known that another replica made."""
MAX_RETRY_SECONDS = 30.0
"""Seconds for which a change is tried again that other replicas come before: a replica that first follows their change
is behind the one that made it, and so may lose many times in a row."""
FIRST_PAUSE, MAX_PAUSE = 0.001, 0.1
"""s between tries, doubled each time; a part of it by chance, so that two do not go in step."""
INVALID = 422


async def _tries() -> AsyncIterator[None]:
    """Yield once per try, until `MAX_RETRY_SECONDS` have passed."""
    deadline, pause = time.monotonic() + MAX_RETRY_SECONDS, FIRST_PAUSE
    while True:
        yield
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, MAX_PAUSE)


class Service:
    """The service over one database and some access points.

    Args:
        engine: the database.
        backend: the access points; a `RemoteBackend` when their agents are on machines of their own.
        files: the folder of the files that REST may name.
    """

    def __init__(self, engine: sa.Engine, backend: "LocalBackend | RemoteBackend", files: Path = FILES) -> None:
        self._files = files
        self.store = Store(engine)
        self.archive = Archive(engine)
        self.backend = backend
        self.adoption: Adoption | None = None
        """Adoption of agents on machines of their own."""
        self.monitor = Monitor(backend, self.archive, lambda: self.names, self.write, self.store.tidy)
        self.wanted: dict[str, dict[str, Any]] = {}
        """Desired state of each access point as it was given, without the defaults."""
        self.defaults = Ncr()
        self._defaults_revision: int | None = None
        self.started = False
        self._in_effect = asyncio.Event()
        """Set when another revision is in effect."""
        self._kept_in_effect: dict[str, int] = {}
        if isinstance(backend, LocalBackend):
            backend.changed = lambda name: self._in_effect.set()
        self._configs: dict[str, AccessPointConfig] = {}
        self._revisions: dict[str, int] = {}
        """Revisions in use."""
        self.unusable: dict[str, Standing] = {}
        """Revisions that cannot be used here, since when, and why."""
        self.notes: dict[str, str] = {}
        """Parts that were left out of a configuration in use, and the fix."""
        self.defaults_lock = asyncio.Lock()
        self._locks: dict[str, asyncio.Lock] = {}
        # SQLite has one writer at a time; there are two readers, so that a long chart delays nothing.
        self._writer = ThreadPoolExecutor(1, "database-write")
        self._readers = ThreadPoolExecutor(2, "database-read")
        self._computing = ThreadPoolExecutor(1, "compute")

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction that writes, off the event loop; raises `SQLAlchemyError`."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, lambda: call(*args, **kwargs))

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction that reads, off the event loop; raises `SQLAlchemyError`."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: call(*args, **kwargs))

    async def compute(self, call: Callable[[], T]) -> T:
        """Run a long computation off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._computing, call)

    async def load(self, from_file: Iterable[AccessPointConfig] | None) -> None:
        """Load the desired state from database and configuration file, if there is one; raises `ConfigError`."""
        given = None if from_file is None else list(from_file)
        try:
            self.defaults, self._defaults_revision = await self.write(self.store.ncr_defaults)
            await self.write(self.store.adopt, given)
            for name in await self.read(self.store.revisions):
                found = await self.read(self.store.access_point, name)
                if found is not None:
                    # One that cannot be used here does not affect others.
                    with contextlib.suppress(ProblemError):
                        self._desire(*found, name in {config.name for config in given or ()})
                        await self._fall_back(name)
        except SQLAlchemyError as error:
            raise ConfigError(explain(error)) from None

    async def _fall_back(self, name: str) -> None:
        """Pass on to the backend what was in effect before this start."""
        before = await self.read(self.store.fallback, name)
        if before is not None and isinstance(self.backend, LocalBackend):
            with contextlib.suppress(ProblemError):
                self.backend.fall_back(name, before[1], self._usable(before[0])[1])

    async def keep_in_effect(self) -> None:
        """Keep which revisions are in effect, for the next start; for ever."""
        while True:
            await self._in_effect.wait()
            self._in_effect.clear()
            for name in self.names:
                number = self.standing(name).in_effect
                if number is not None and number != self._kept_in_effect.get(name):
                    # While the database is away, an older one is kept.
                    with contextlib.suppress(SQLAlchemyError):
                        await self.write(self.store.in_effect, name, number)
                        self._kept_in_effect[name] = number
            await asyncio.sleep(FOLLOW_SECONDS)

    def start(self) -> None:
        """Connect the access points."""
        self.backend.start()
        self.started = True

    def tasks(self) -> list[asyncio.Task[None]]:
        """Start the tasks that run in addition to requests."""
        work = [self.monitor.keep_history()]
        if isinstance(self.backend, LocalBackend):
            work += [self.monitor.sample(), self.keep_in_effect()]
        else:
            # Agents sample, and keep what is in effect, by themselves.
            work.append(self.follow())
        return [asyncio.create_task(each) for each in work]

    def _desire(self, entry: dict[str, Any], revision: int, given: bool = False) -> None:
        """Desire an entry of the database. One that cannot be used here is set aside, and logged once.

        Raises `ProblemError`, and `ConfigError` for an invalid one that was `given` in the file of a start.
        """
        name = entry["name"]
        try:
            usable, config = self._usable(entry)
            self._check(config)
        except ProblemError as error:
            if given and error.status == INVALID:
                raise ConfigError(error.detail) from None
            before = self.unusable.get(name)
            since, in_effect = before.since if before else time.time(), self.backend.standing(name).in_effect
            self.unusable[name] = Standing(revision, in_effect, since, error.detail)
            if before is None or before.reason != error.detail:
                LOG.warning("%s", self._why_unusable(name), extra={"access_point": name})
            raise
        self._use(usable, config, revision)

    def _why_unusable(self, name: str) -> str:
        """Return the problem in one line, with its fix."""
        where = f"/api/v1/access-points/{name}"
        return (
            f"{name}: invalid data in the database: {self.unusable[name].reason}: put another "
            f"configuration in its place (PUT {where}/config), or remove it (DELETE {where})"
        )

    def _usable(self, entry: dict[str, Any]) -> tuple[dict[str, Any], AccessPointConfig]:
        """Return the usable part of a configuration in the database; raises `ProblemError`.

        The switch accepts only one of two rules that match the same, so the later one is left out and logged.
        """
        name, entry = entry["name"], migrate_entry(entry)
        self.notes.pop(name, None)
        with contextlib.suppress(ValueError, TypeError):
            pairs = duplicate_rules(Rule.model_validate(rule) for rule in entry.get("rules", ()))
            if pairs:
                without = {other.name for _, other in pairs} - {one.name for one, _ in pairs}
                kept = [rule for rule in entry["rules"] if rule["name"] not in without]
                one, other = pairs[0]
                note = (
                    f"{name}: rule {other.name} matches the same packets with the same priority as {one.name} and is "
                    f"left out: put it again with another `priority`, or leave it at that"
                )
                self.notes[name], entry = note, entry | {"rules": kept}
                LOG.warning("%s", note, extra={"access_point": name})
        try:
            return entry, self.whole(entry)
        except ValidationError as error:
            raise ProblemError(503, one_line(error, AccessPointConfig)) from None

    def _use(self, entry: dict[str, Any], config: AccessPointConfig, revision: int) -> None:
        self.wanted[config.name], self._configs[config.name] = entry, config
        self._revisions[config.name] = revision
        self.unusable.pop(config.name, None)
        self._pass_on(config.name)

    def _pass_on(self, name: str) -> None:
        """Pass the desired revision to the backend: that of the access point or of the defaults, the later one."""
        self.monitor.seen.pop(name, None)
        revision = max(self._revisions[name], self._defaults_revision or 0)
        self.backend.desire(name, revision, self._configs[name])

    def bounded(self, entry: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check that every file which REST newly names for an access point is in the folder for such files.

        No file is read before. Return the entry; raises `ProblemError`.
        """
        for part, names in (("pipeline", ("p4info", "device_config")), ("tls", ("ca", "cert", "key"))):
            given, known = entry.get(part) or {}, (before or {}).get(part) or {}
            for name in names:
                path = given.get(name)
                if path is None or path == known.get(name):
                    continue
                try:
                    is_inside = Path(path).resolve().is_relative_to(self._files.resolve())
                except (OSError, ValueError):
                    # No file can have such a name.
                    is_inside = False
                if not is_inside:
                    raise ProblemError(
                        422,
                        f"{part}.{name}: {path}: not in {self._files}, the folder (`--files`) of what REST may name",
                    )
        return entry

    def _check(self, config: AccessPointConfig) -> None:
        """Check that its files exist and are the access point's program, and that its switch has such ports; raises
        `ProblemError`."""
        if missing := self.backend.missing_file(config):
            raise ProblemError(INVALID, missing)
        try:
            parsed(config.pipeline).target.check(config)
        except ConfigError as error:
            raise ProblemError(INVALID, str(error)) from None

    def whole(self, entry: dict[str, Any], defaults: Ncr | None = None) -> AccessPointConfig:
        """Return the configuration of an access point with the defaults; raises `pydantic.ValidationError`."""
        ncr = (defaults or self.defaults).model_dump() | entry.get("ncr", {})
        return AccessPointConfig.model_validate({**entry, "ncr": ncr})

    @property
    def names(self) -> list[str]:
        """All access points."""
        return sorted(self._configs)

    @property
    def every(self) -> list[str]:
        """All access points, also those of which no revision can be used here."""
        return sorted({*self._configs, *self.unusable})

    def config(self, name: str) -> AccessPointConfig:
        """Return the configuration of an access point; raises `ProblemError` 404."""
        if name not in self._configs:
            if name in self.unusable:
                raise ProblemError(404, self._why_unusable(name))
            there = ", ".join(self.names[:20]) or "none"
            raise ProblemError(404, f"no access point {name}; there are: {there}")
        return self._configs[name]

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock that is held while an access point is changed."""
        return self._locks.setdefault(name, asyncio.Lock())

    def standing(self, name: str) -> Standing:
        """Return the desired revision of an access point, and the one in effect."""
        if name in self.unusable:
            return replace(self.unusable[name], reason=self._why_unusable(name))
        return self.backend.standing(name)

    def problem(self, name: str, seen: Observation | None) -> str | None:
        """Return the problem of an access point, of which this was seen."""
        return self.standing(name).reason or (seen["problem"] if seen else None) or self.notes.get(name)

    async def in_effect(self, names: Iterable[str], seconds: float) -> bool:
        """Wait until what is desired of these access points now is in effect; False: not within so many seconds."""
        goals = {name: self.standing(name).revision for name in names}
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE

        def reached(name: str) -> bool:
            standing = self.standing(name)
            return name not in self._configs or (standing.in_effect or 0) >= goals[name]

        while not all(reached(name) for name in goals):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)
        return True

    async def add(self, config: AccessPointConfig, change: Change, dry: bool = False) -> AccessPointConfig:
        """Add an access point; `dry`: only check that it could be added."""
        # The defaults that it follows must not change meanwhile.
        async with self.defaults_lock, self.lock(config.name):
            await self._follow(config.name)
            if config.name in self._configs:
                raise ProblemError(409, f"access point {config.name} exists already")
            entry = self.bounded(document(config))
            whole = self.whole(entry)
            self._check(whole)
            if dry:
                return whole
            try:
                revision = await self.write(self.store.put, config, None, change)
            except Conflict:
                raise ProblemError(409, f"access point {config.name} exists already") from None
            self._use(entry, whole, revision)
        return whole

    async def remove(self, name: str, change: Change, allowed: Callable[[], None], dry: bool = False) -> None:
        """Remove an access point; `allowed` raises when its present configuration must not be removed."""

        async def remove() -> None:
            if name not in self.unusable:
                self.config(name)
                allowed()
            if not dry:
                await self.write(self.store.remove, name, self._based_on(name), change)
                self.archive.forget(name)
                self._drop(name)

        await self._on_top(name, remove, whatever=True)

    def _based_on(self, name: str) -> int:
        """Return the revision that a change is based on."""
        return self.unusable[name].revision if name in self.unusable else self._revisions[name]

    async def _on_top(self, name: str, change: Callable[[], Awaitable[T]], whatever: bool = False) -> T:
        """Make a change on top of the present configuration, `whatever` it is, under a lock.
        Raises `ProblemError` and `SQLAlchemyError`."""
        async with self.lock(name):
            async for _ in _tries():
                try:
                    await self._follow(name)
                except ProblemError:
                    if not whatever:
                        raise
                with contextlib.suppress(Conflict):
                    return await change()
        raise ProblemError(409, f"{name}: others change it all the time: try again")

    def _drop(self, name: str) -> None:
        for known in (self.wanted, self._configs, self._revisions, self.unusable, self.notes):
            known.pop(name, None)
        self.monitor.drop(name)
        self.backend.desire(name, 0, None)

    async def change(
        self, name: str, change: Change, entry: Callable[[], dict[str, Any]], dry: bool = False, whatever: bool = False
    ) -> AccessPointConfig:
        """Change an access point to the entry that `entry` returns, `whatever` it is now; `entry` may be called
        again. `dry`: only check the change."""

        async def store() -> AccessPointConfig:
            if not (whatever and name in self.unusable):
                self.config(name)
            wanted = entry()
            whole = self.whole(wanted)
            if wanted == self.wanted.get(name):
                # Not a revision: those of changes stay within reach of a rollback.
                return whole
            self._check(whole)
            if not dry:
                kept = AccessPointConfig.model_validate(wanted)
                revision = await self.write(self.store.put, kept, self._based_on(name), change)
                self.notes.pop(name, None)
                self._use(wanted, whole, revision)
            return whole

        return await self._on_top(name, store, whatever)

    async def change_defaults(self, change: Change, wanted: Callable[[], Ncr], dry: bool = False) -> Ncr:
        """Change the NCR defaults of all access points that do not set these fields; `wanted` may be called again."""
        async with self.defaults_lock, self._all_locked():
            async for _ in _tries():
                await self._read_defaults()
                ncr = wanted()
                for entry in self.wanted.values():
                    self.whole(entry, ncr)
                if dry or ncr == self.defaults:
                    return ncr
                with contextlib.suppress(Conflict):
                    revision = await self.write(self.store.put_ncr_defaults, ncr, self._defaults_revision, change)
                    self._use_defaults(ncr, revision)
                    return ncr
        raise ProblemError(409, "others change the defaults all the time: try again")

    @contextlib.asynccontextmanager
    async def _all_locked(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for name in self.names:
                await stack.enter_async_context(self.lock(name))
            yield

    def _use_defaults(self, ncr: Ncr, revision: int | None) -> None:
        self.defaults, self._defaults_revision = ncr, revision
        for name, entry in [*self.wanted.items()]:
            self._configs[name] = self.whole(entry)
            self._pass_on(name)

    async def _read_defaults(self) -> None:
        """Reload the defaults from the database; call it with all locks held."""
        ncr, revision = await self.read(self.store.ncr_defaults)
        if revision != self._defaults_revision:
            self._use_defaults(ncr, revision)

    async def follow(self) -> None:
        """Follow changes by other replicas; for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_SECONDS):
                    await self.backend.desired_changed.wait()
            self.backend.desired_changed.clear()
            # A database that is away changes nothing; a change that cannot be followed is logged once.
            with contextlib.suppress(SQLAlchemyError):
                await self._follow_all()

    async def _follow_all(self) -> None:
        await self._follow_defaults()
        there = await self.read(self.store.revisions)
        for name in {*there, *self._configs}:
            if there.get(name) != self._revisions.get(name):
                async with self.lock(name):
                    # One that cannot be used here has been logged.
                    with contextlib.suppress(ProblemError):
                        await self._follow(name)

    async def reload(self, from_file: Iterable[AccessPointConfig]) -> None:
        """Reload the configuration file, as at a start; raises `ConfigError`, and then nothing has changed."""
        given = list(from_file)
        try:
            for config in given:
                self._check(config)
            await self.write(self.store.adopt, given)
            await self._follow_all()
        except ProblemError as error:
            raise ConfigError(error.detail) from None
        except SQLAlchemyError as error:
            raise ConfigError(explain(error)) from None

    async def _follow_defaults(self) -> None:
        try:
            if (await self.read(self.store.ncr_defaults))[1] != self._defaults_revision:
                async with self.defaults_lock, self._all_locked():
                    await self._read_defaults()
        except ConfigError as error:
            LOG.warning("%s", error)

    async def _follow(self, name: str) -> None:
        """Apply the database's configuration of an access point; call it with its lock held.

        Raises `ProblemError` for a configuration that cannot be used, as another release may write.
        """
        found = await self.read(self.store.access_point, name)
        if found is None:
            if name in self._configs or name in self.unusable:
                self._drop(name)
            return
        entry, revision = found
        if revision == self._revisions.get(name):
            return
        try:
            self._desire(entry, revision)
        except ProblemError:
            raise ProblemError(503, self._why_unusable(name)) from None

    async def close(self) -> None:
        """Close the database, after keeping all samples."""
        await self.monitor.flush(everything=True)
        self._writer.shutdown(wait=True)
        for executor in (self._readers, self._computing):
            executor.shutdown(wait=False, cancel_futures=True)
