# SPDX-License-Identifier: Apache-2.0
"""Agents that announce themselves, until an admin adopts them: then each gets the token for its work."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .credentials import Key, agent, is_user
from .engine import Engine
from .messages import Adopted, Announcement, Unusable, parse, text

LOG = logging.getLogger(__name__)

WAITING_SECONDS = 15.0
"""Seconds without an announcement after which an agent does not wait any more."""
MAX_WAITING = 1000


@dataclass(slots=True)
class Waiting:
    """An agent that announces itself."""

    announcement: Announcement
    heard: float
    """Seconds since the epoch."""


class Adoption:
    """Answers agents that announce themselves.

    Args:
        engine: connects to the agents.
        account: signs their tokens.
        access_point_of: returns the access point that an agent was adopted for, or None. It may raise.
    """

    def __init__(self, engine: Engine, account: Key, access_point_of: Callable[[str], Awaitable[str | None]]) -> None:
        self._engine = engine
        self._account = account
        self._access_point_of = access_point_of
        self._waiting: dict[str, Waiting] = {}

    async def listen(self) -> None:
        """Subscribe to announcements, before the engine is connected."""
        await self._engine.serve("fleet.announce", self._announced)

    @property
    def waiting(self) -> dict[str, Waiting]:
        """Agents that wait to be adopted, by id."""
        now = time.time()
        self._waiting = {id: found for id, found in self._waiting.items() if abs(now - found.heard) < WAITING_SECONDS}
        return self._waiting

    def adopted(self, id: str) -> None:
        """Remove an adopted agent from those that wait."""
        self._waiting.pop(id, None)

    async def _announced(self, data: bytes) -> bytes | None:
        try:
            announcement = parse(Announcement, data)
        except Unusable as error:
            LOG.warning("an agent announces itself, and cannot be understood: %s", error)
            return None
        if not is_user(announcement.id):
            LOG.warning("an agent announces itself as %s, with no key of a user", announcement.name)
            return None
        name = await self._access_point_of(announcement.id)
        if name is not None:
            return text(Adopted(name=name, jwt=agent(self._account, announcement.id, name)))
        if announcement.id in self._waiting or len(self.waiting) < MAX_WAITING:
            self._waiting[announcement.id] = Waiting(announcement, time.time())
        return b""
