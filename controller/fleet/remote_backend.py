# SPDX-License-Identifier: Apache-2.0
"""Access points whose agents run elsewhere, with the interface of `agent.local_backend`.

The database has the desired state. The engine has a copy of it for the agents, which every replica repairs: it compares
revisions, replaces an older one (compare-and-set), and leaves a newer one alone. So it does not matter which replica
wrote, was killed in between, or learns of a change last.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from ..agent.connection import State
from ..agent.reconciler import AWAY, Refused, Standing
from ..config import AccessPointConfig, missing_file
from ..observation import FlowObservation, Observation, StationObservation, UsageObservation
from .credentials import key_of
from .engine import DESIRED, Conflict, Engine, Unavailable
from .messages import Answer, Desired, Order, Seen, Unusable, parse, text

LOG = logging.getLogger(__name__)

SILENT_SECONDS = 5.0
"""Seconds without a message after which an agent is away."""
ORDER_SECONDS = 5.0
CHECK_SECONDS = 60.0
"""Seconds between checks for values that somebody else wrote into the engine."""
RETRY_SECONDS = 1.0
MAX_HEARD = 10_000
"""Access points whose messages are kept, also unknown ones."""


@dataclass(slots=True)
class Heard:
    """The last message of an access point's agent, and its time."""

    seen: Seen
    at: float


class RemoteBackend:
    """Access points by their agents.

    Args:
        engine: connects to the agents.
        standing: returns whether the database desires an access point, and the newest revision of all; it may raise.
        copies: number of the engine's servers that keep each value.
    """

    def __init__(self, engine: Engine, standing: Callable[[str], Awaitable[tuple[bool, int]]], copies: int = 1) -> None:
        self.engine = engine
        self._standing = standing
        self._copies = copies
        self._prepared = False
        self._heard: dict[str, Heard] = {}
        self._wanted: dict[str, Desired] = {}
        self._differs_at: dict[str, float] = {}
        """Seconds since the epoch, since when another revision is desired than is in effect."""
        self._there: dict[str, tuple[int, Desired | None]] = {}
        """Values in the engine, as far as is known: their numbers there, and contents."""
        self._to_repair: set[str] = set()
        self._poked = asyncio.Event()
        self.desired_changed = asyncio.Event()
        """Set when somebody else has changed the desired state."""
        self._unusable: dict[str, str] = {}

    @property
    def lost(self) -> int:
        """Samples of history that agents could not keep any longer."""
        return sum(heard.seen.lost for heard in self._heard.values())

    def start(self) -> None:
        """Do nothing: agents connect by themselves."""

    async def stop(self) -> None:
        """Do nothing: agents keep running."""

    def desire(self, name: str, revision: int, config: AccessPointConfig | None) -> None:
        """Send a revision that the database has to the agents. None: the access point was removed."""
        if config is None:
            self._wanted.pop(name, None)
            self._heard.pop(name, None)
        else:
            # As it was given: a default is no value of its own.
            said = config.model_dump(mode="json", exclude={"election_id"}, exclude_unset=True)
            self._wanted[name] = Desired(revision=revision, config=said)
        self._compare(name)
        self._to_repair.add(name)
        self._poked.set()

    @staticmethod
    def missing_file(config: AccessPointConfig) -> str | None:
        """As `LocalBackend.missing_file`; certificates cannot be seen here."""
        return missing_file(config.model_copy(update={"tls": None}))

    def _compare(self, name: str) -> None:
        """Note since when the agent's revision differs."""
        wanted, heard = self._wanted.get(name), self._heard.get(name)
        if wanted is None or (heard is not None and heard.seen.revision == wanted.revision):
            self._differs_at.pop(name, None)
        else:
            self._differs_at.setdefault(name, time.time())

    def standing(self, name: str) -> Standing:
        """As `LocalBackend.standing`."""
        wanted, heard = self._wanted.get(name), self._heard.get(name)
        revision, in_effect = wanted.revision if wanted else 0, heard.seen.revision or None if heard else None
        if name not in self._differs_at:
            return Standing(revision, in_effect)
        return Standing(revision, in_effect, self._differs_at[name], self._problem(name))

    def observe(self, name: str) -> Observation:
        """Return the state of an access point, as its agent reported last."""
        heard = self._heard.get(name)
        if heard is None:
            raise Refused(AWAY, self._problem(name) or "")
        observation = heard.seen.observation.copy()
        observation["problem"] = self._problem(name)
        if time.monotonic() - heard.at >= SILENT_SECONDS:
            observation["state"] = State.CONNECTING.value
        return observation

    def _problem(self, name: str) -> str | None:
        """Return the problem of an access point, as far as is known here."""
        heard = self._heard.get(name)
        if heard is None:
            return f"{name}: no agent announced it: start one, and adopt it as {name}"
        silent = time.monotonic() - heard.at
        if silent < SILENT_SECONDS:
            return heard.seen.problem or heard.seen.observation["problem"]
        reason = "" if self.engine.connected else f", as {self.engine.problem or 'the engine does not answer'}"
        return f"{name}: no message from its agent for {round(silent)} s{reason}"

    async def flows(self, name: str, start: int) -> tuple[list[FlowObservation], int | None]:
        """As `LocalBackend.flows`."""
        found, following = await self._order(name, "flows", start=start)
        return found, following

    async def stations(self, name: str, start: int) -> tuple[list[StationObservation], int | None]:
        """As `LocalBackend.stations`."""
        found, following = await self._order(name, "stations", start=start)
        return found, following

    async def usage(self, name: str, address: str) -> UsageObservation:
        """Return a station's usage and current rates."""
        found: UsageObservation = await self._order(name, "usage", address=address)
        return found

    async def flow(self, name: str, flow_index: int) -> FlowObservation:
        """Return one flow."""
        found: FlowObservation = await self._order(name, "flow", flow_index=flow_index)
        return found

    async def change_flow(
        self, name: str, flow_index: int, weight: float | None, flow_class: int | None
    ) -> FlowObservation:
        """As `LocalBackend.change_flow`."""
        changed: FlowObservation = await self._order(
            name, "change_flow", flow_index=flow_index, weight=weight, flow_class=flow_class
        )
        return changed

    async def counters(self, name: str) -> list[tuple[str, int, int, int, int]]:
        """As `LocalBackend.counters`."""
        found: list[tuple[str, int, int, int, int]] = await self._order(name, "counters")
        return found

    def _is_ready(self, name: str) -> bool:
        heard = self._heard.get(name)
        return (
            heard is not None
            and time.monotonic() - heard.at < SILENT_SECONDS
            and heard.seen.observation["state"] == State.READY.value
        )

    async def _order(self, name: str, do: str, **arguments: Any) -> Any:
        if not self._is_ready(name):
            raise Refused(503, self.observe(name)["problem"] or f"{name}: not connected")
        order = Order(do=do, arguments=arguments)  # type: ignore[arg-type]
        try:
            answered = await self.engine.request(f"ap.{key_of(name)}.do", text(order), ORDER_SECONDS)
            answer = parse(Answer, answered.data)
        except Unavailable as error:
            raise Refused(503, f"{name}: its agent does not answer: {error}") from None
        except Unusable as error:
            raise Refused(502, f"{name}: invalid answer of its agent: {error}") from None
        if answer.status is not None:
            raise Refused(answer.status, answer.detail)
        return answer.answer

    async def listen(self) -> None:
        """Subscribe to the agents' messages, before the engine is connected."""
        await self.engine.subscribe("ap.*.seen", self._hear)
        await self.engine.subscribe(f"$KV.{DESIRED}.*", self._hear_desired)

    def _hear(self, subject: str, data: bytes) -> None:
        name = subject.split(".")[1].replace("=", ".")
        try:
            seen = parse(Seen, data)
            if seen.observation["name"] != name:
                raise Unusable(f"it describes {seen.observation['name']}")
        except Unusable as error:
            if self._unusable.get(name) != str(error):
                LOG.warning("%s: invalid message of its agent: %s", name, error)
            self._unusable[name] = str(error)
            return
        self._unusable.pop(name, None)
        before, now = self._heard.get(name), time.monotonic()
        if before is None and len(self._heard) >= MAX_HEARD:
            return
        is_primary = seen.observation["state"] == State.READY.value
        # Among several agents the primary's message counts.
        if is_primary or before is None or before.seen.agent == seen.agent or now - before.at > SILENT_SECONDS / 2:
            self._heard[name] = Heard(seen, now)
            self._compare(name)

    def _hear_desired(self, subject: str, data: bytes) -> None:
        """Handle a new value: of this replica, another one, or somebody without the right to write."""
        name = subject.removeprefix(f"$KV.{DESIRED}.").replace("=", ".")
        wanted = self._wanted.get(name)
        if wanted is None or text(wanted) != data:
            self._there.pop(name, None)
            self._to_repair.add(name)
            self._poked.set()
            self.desired_changed.set()

    async def repair(self) -> None:
        """Repair the engine's copy of the desired state; for ever."""
        checked = -CHECK_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._poked.wait()
            self._poked.clear()
            if not self.engine.connected:
                continue
            try:
                if not self._prepared:
                    await self.engine.prepare(self._copies)
                    self._prepared = True
                if self.engine.reconnected.is_set() or time.monotonic() - checked > CHECK_SECONDS:
                    self._there.clear()
                    self._to_repair |= {*self._wanted, *await self.engine.names(DESIRED)}
                    self.engine.reconnected.clear()
                    checked = time.monotonic()
                for name in [*self._to_repair]:
                    await self._repair(name)
            except (Unavailable, SQLAlchemyError) as error:
                LOG.debug("not repaired yet: %s", error)

    async def _repair(self, name: str) -> None:
        """Repair one value; raises `Unavailable`."""
        wanted = self._wanted.get(name)
        sequence, there = self._there.get(name) or await self._read(name)
        self._to_repair.discard(name)
        if (there == wanted and sequence) or (wanted is None and (there.config is None if there else not sequence)):
            return
        is_desired, newest = await self._standing(name)
        if wanted is None:
            if is_desired:
                # Another replica has added it, and this one will follow.
                return
            wanted = Desired(revision=newest, config=None)
        if there is not None and wanted.revision < there.revision <= newest:
            # The engine has a newer revision of the database: this replica will follow.
            return
        if there is not None and there.revision > newest:
            LOG.warning(
                "%s: the engine says revision %s, unknown to the database: another program wrote there, or the "
                "database is an older one; put right", name, there.revision,
            )  # fmt: skip
        try:
            self._there[name] = await self.engine.put(DESIRED, name, text(wanted), sequence), wanted
        except (Unavailable, Conflict):
            # It may have been put, or another replica was faster.
            self._there.pop(name, None)
            self._to_repair.add(name)
            raise Unavailable("not put") from None

    async def _read(self, name: str) -> tuple[int, Desired | None]:
        found = await self.engine.value(DESIRED, name)
        if found is None:
            return 0, None
        try:
            there: Desired | None = parse(Desired, found[1])
        except Unusable as error:
            LOG.warning("%s: invalid data in the engine: %s; put right", name, error)
            there = None
        self._there[name] = found[0], there
        return found[0], there
