# SPDX-License-Identifier: Apache-2.0
"""The reconciler of one access point: the only place from which desired state reaches it.

    desire --> desired revision --+-- equal: wait for the next one
                                  |
                                  +-- different: _bring, within the session or by a new one; again until equal
                                  |
    the switch has its entries --> revision in effect

A revision is brought about completely or not at all: when the switch refuses it, the one before stays in effect. A
switch that is away gets what is desired when its session begins, or, if it refuses that, what was in effect last. As
long as the two revisions differ, `standing` says since when, and why.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from ..config import AccessPointConfig, ConfigError
from .access_point import ManagedAccessPoint, is_live
from .connection import SessionError, State
from .transport import RpcError

LOG = logging.getLogger(__name__)

T = TypeVar("T")

now = datetime.now

LOOK_SECONDS = 10.0
"""Seconds between two looks at the clock, where a rate depends on the time."""
FIRST_PAUSE, MAX_PAUSE = 0.1, 4.0
"""Seconds between two tries, doubled each time: what is desired runs within 10 s after it can."""


class Refused(Exception):
    """A request that cannot be served: an HTTP status, and one line that says why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Standing:
    """The desired revision of an access point against the one in effect."""

    revision: int
    """The desired one."""
    in_effect: int | None
    """The last one that was in the switch completely; None: none since the start."""
    since: float | None = None
    """Seconds since the epoch, since when they differ; None: they do not."""
    reason: str | None = None
    """Why they differ, in one line; None: it is being brought about."""


class Reconciler:
    """Brings one access point from the revision in effect to the desired one.

    Args:
        name: its name.
        access_points: has the running access point, by name.
        make: makes an access point of a configuration; raises `ConfigError`.
        changed: called with the name when another revision is in effect.
    """

    def __init__(
        self,
        name: str,
        access_points: dict[str, ManagedAccessPoint],
        make: Callable[[AccessPointConfig], ManagedAccessPoint],
        changed: Callable[[str], None],
    ) -> None:
        self._name = name
        self._access_points = access_points
        self._make = make
        self._changed = changed
        self._revision = 0
        self._config: AccessPointConfig | None = None
        self._in_effect: int | None = None
        self._good: tuple[AccessPointConfig, int] | None = None
        """The configuration in effect last, and its revision."""
        self._since: float | None = None
        self._reason: str | None = None
        self._session: asyncio.Task[None] | None = None
        self._desired = asyncio.Event()

    def desire(self, revision: int, config: AccessPointConfig | None) -> None:
        """Desire a revision; None: the access point is removed."""
        if self._in_effect == self._revision or self._since is None:
            self._since = time.time()
        self._revision, self._config = revision, config
        self._desired.set()

    def fall_back(self, revision: int, config: AccessPointConfig) -> None:
        """Know what was in effect before this process."""
        self._good = config, revision

    @property
    def standing(self) -> Standing:
        """Return the desired revision and the one in effect."""
        ap = self._access_points.get(self._name)
        if self._in_effect == self._revision or (ap is not None and ap.connection.state == State.BACKUP):
            # The primary brings about the backup's desired revision.
            return Standing(self._revision, self._in_effect)
        away = None if ap is None else ap.connection.problem
        return Standing(self._revision, self._in_effect, self._since, self._reason or away)

    async def run(self) -> None:
        """Reconcile until the access point is removed."""
        pause = FIRST_PAUSE
        while True:
            if self._desired.is_set():
                self._desired.clear()
                pause = FIRST_PAUSE
            config = self._config and self._config.at(now())
            try:
                await self._bring(self._revision, config)
                self._reason = None
            except (Refused, ConfigError) as error:
                reason = f"{self._name}: what is desired does not run yet: {error}; trying again"
                if reason != self._reason:
                    LOG.warning("%s", reason, extra={"access_point": self._name})
                self._reason = reason
            if self._config is None and self._name not in self._access_points:
                return
            await self._news(pause)
            pause = min(2 * pause, MAX_PAUSE)

    async def _news(self, pause: float) -> None:
        """Wait for something to do, or as long as the two revisions may differ."""
        while True:
            differs, later = self.standing.since is not None, self._config is not None and self._config.has_schedule
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if differs else LOOK_SECONDS if later else None):
                    await self._desired.wait()
                    return
            ap = self._access_points.get(self._name)
            if differs or ap is None or self._config is None or self._config.at(now()).ports != ap.config.ports:
                return

    async def _bring(self, revision: int, config: AccessPointConfig | None) -> None:
        """Bring a revision about, completely or not at all. Nobody else writes desired state to an access point.

        Raises `Refused` or `ConfigError`.
        """
        ap = self._access_points.get(self._name)
        if ap is None or config is None or not is_live(ap.config, config):
            # One that cannot be made ends nothing.
            made = None if config is None else self._make(config)
            await self.end()
            if made is not None:
                self._begin(made, revision)
            return
        ap.program.target.check(config)
        before = ap.config.model_copy(), ap.revision
        if before != (config, revision):
            ap.configure(config, revision)
        try:
            await to_switch(ap, ap.sync())
        except Refused as refused:
            if refused.status == REFUSES:
                ap.configure(*before)
                with contextlib.suppress(Refused):
                    await to_switch(ap, ap.sync())
                raise
        if not config.enabled:
            self._written(ap, revision)

    def _begin(self, ap: ManagedAccessPoint, revision: int) -> None:
        ap.revision, ap.written = revision, lambda written: self._written(ap, written)
        ap.fallback = lambda: self._good if self._good and is_live(self._good[0], ap.config) else None
        self._access_points[self._name] = ap
        if ap.config.enabled:
            self._session = asyncio.create_task(ap.run())
        else:
            ap.connection.state = State.STOPPED
            self._written(ap, revision)

    def _written(self, ap: ManagedAccessPoint, revision: int) -> None:
        self._good = ap.config.model_copy(), revision
        if revision != self._in_effect:
            self._in_effect = revision
            self._changed(self._name)

    async def end(self) -> None:
        """End the session, and remove all feedback."""
        ap = self._access_points.pop(self._name, None)
        if ap is not None:
            await ap.release()
        session = self._session
        if session is not None:
            session.cancel()
            # Not `await session`: whether it or this task was cancelled could not be told.
            await asyncio.wait([session])
            self._session = None
            if not session.cancelled():
                session.result()


REFUSES, AWAY = 502, 503
"""Statuses of HTTP for a switch that refuses, and one that is away."""


async def to_switch(ap: ManagedAccessPoint, call: Awaitable[T]) -> T:
    """Await a call to the switch; raises `Refused`."""
    try:
        return await call
    except SessionError as error:
        raise Refused(AWAY, str(error)) from None
    except RpcError as error:
        if error.is_away:
            raise Refused(AWAY, ap.connection.problem or f"{ap.config.name}: the connection was lost") from None
        raise Refused(REFUSES, f"{ap.config.name}: the switch refuses: {error}") from None
