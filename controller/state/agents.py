# SPDX-License-Identifier: Apache-2.0
"""Adopted agents. Every function is one transaction, and blocks."""

import time
from dataclasses import dataclass

import sqlalchemy as sa

from .database import AGENTS, writing
from .store import Change, audit_line


@dataclass(frozen=True, slots=True)
class AdoptedAgent:
    """An agent that may do its work."""

    id: str
    access_point: str
    adopted: float
    actor: str


def adopted(engine: sa.Engine) -> list[AdoptedAgent]:
    """Return all adopted agents."""
    with engine.connect() as connection:
        rows = connection.execute(sa.select(AGENTS).order_by(AGENTS.c.access_point, AGENTS.c.id))
        return [AdoptedAgent(row.id, row.access_point, row.adopted, row.actor) for row in rows]


def access_point_of(engine: sa.Engine, agent: str) -> str | None:
    """Return the access point that an agent was adopted for, or None."""
    with engine.connect() as connection:
        return connection.scalar(sa.select(AGENTS.c.access_point).where(AGENTS.c.id == agent))


def adopt(engine: sa.Engine, agent: str, access_point: str, change: Change) -> None:
    """Adopt an agent for this access point."""
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(AGENTS).where(AGENTS.c.id == agent))
        values = {"id": agent, "access_point": access_point, "adopted": time.time(), "actor": change.actor}
        connection.execute(sa.insert(AGENTS).values(**values))
        audit_line(connection, change)


def forget(engine: sa.Engine, agent: str, change: Change) -> bool:
    """Forget an agent, which gets no token any more; return whether it was adopted."""
    with writing(engine).begin() as connection:
        found = connection.execute(sa.delete(AGENTS).where(AGENTS.c.id == agent)).rowcount
        if found:
            audit_line(connection, change)
    return bool(found)
