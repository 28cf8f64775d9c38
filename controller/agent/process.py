# SPDX-License-Identifier: Apache-2.0
"""The agent: one access point, next to its switch, in a process of its own.

The desired configuration comes over the engine and is kept on its own disk, so that the agent runs without engine and
service, also after a restart. It reports its observations once a second, and keeps its samples of history until the
engine has them.

Two agents of one access point: the switch decides which one is primary; the lease in the engine gives the election id,
which is its epoch. Without the engine an agent takes an id above the highest one that the switch reports: a takeover
never waits.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import AccessPointConfig, ConfigError
from ..fleet.credentials import VALID_DAYS, Credentials, Key, claims_of, key_of, write
from ..fleet.engine import DESIRED, LEASE, Conflict, Engine, Unavailable
from ..fleet.messages import (
    MAX_MESSAGE_BYTES,
    MAX_ROWS,
    Adopted,
    Announcement,
    Answer,
    Desired,
    Lease,
    Order,
    Samples,
    Seen,
    Unusable,
    parse,
    text,
)
from ..mistakes import one_line
from ..observation import Observation
from ..samples import FLUSH_SECONDS, Recorder
from .connection import State
from .local_backend import LocalBackend
from .reconciler import Refused

LOG = logging.getLogger(__name__)

SECOND = 1.0
ASK_SECONDS = 5.0
"""Seconds between two reads of the desired state, should no message come."""
ANNOUNCE_SECONDS = 2.0
ELECTION_SECONDS = 0.15
"""Seconds that a takeover waits for the engine."""
ELECTION = {"election_id": 1}
"""The lease gives the election ids."""
DESIRED_FILE, GOOD_FILE = "desired.json", "in-effect.json"
"""Files of the desired state, and of the last one in effect."""
MAX_UNSENT = 1000
"""Messages of history that wait for the engine: about three hours of four ports. Then the oldest are lost."""


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    servers: list[str]
    ca: Path
    enrol: Path
    state: Path
    name: str
    config: AccessPointConfig | None


class Disk:
    """Files that an agent needs after a restart. Raises `ConfigError` for files that it cannot use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if (seed := self._read("identity")) is None:
                self.key = Key("U")
                write(directory / "identity", self.key.seed)
            else:
                self.key = Key("U", seed.decode("ascii").strip())
        except ValueError as error:
            raise ConfigError(f"{directory}/identity: no key: {error}: remove it to start over") from None
        except OSError as error:
            raise ConfigError(
                f"{directory}: {(error.strerror or str(error)).lower()}: name a folder with --state"
            ) from None

    def _read(self, name: str) -> bytes | None:
        path = self._directory / name
        try:
            with path.open("rb") as file:
                data = file.read(MAX_MESSAGE_BYTES + 1)
            if len(data) > MAX_MESSAGE_BYTES:
                raise ConfigError(f"{path}: longer than anything that an agent writes: remove it")
            return data
        except FileNotFoundError:
            return None

    def adopted(self) -> Adopted | None:
        """Return the token, or None when it is missing or has expired."""
        data = self._read("adopted.json")
        try:
            found = None if data is None else parse(Adopted, data)
            return found if found and claims_of(found.jwt)["exp"] > time.time() else None
        except (Unusable, ValueError, KeyError, TypeError):
            return None

    def adopt(self, adopted: Adopted) -> None:
        """Keep the token."""
        write(self._directory / "adopted.json", text(adopted))

    def state(self, name: str) -> Desired | None:
        """Return the last state that was kept under this name, or None."""
        data = self._read(name)
        try:
            return None if data is None else parse(Desired, data)
        except Unusable as error:
            LOG.warning("%s/%s: %s; waiting for the engine", self._directory, name, error)
            return None

    def keep(self, name: str, state: Desired) -> None:
        """Keep a state. A disk error is logged in one line, and the access point keeps running."""
        try:
            write(self._directory / name, text(state))
        except OSError as error:
            LOG.warning("%s/%s: %s: after a restart it will be what was before", self._directory, name, error.strerror)


class Agent:
    """One access point under control, with the engine or without it."""

    def __init__(self, options: Options, ready: Callable[[str], None]) -> None:
        self._options = options
        self._disk = Disk(options.state)
        self.id = self._disk.key.public
        self.name = options.name
        self.backend = LocalBackend(ready, elect=self._elect)
        self._news = asyncio.Event()
        """Set when another revision is in effect."""
        self.backend.changed = lambda name: self._news.set()
        self._desired: Desired | None = None
        self._problem: str | None = None
        """Reason why this agent does not desire the engine's revision."""
        self._told = asyncio.Event()
        self._recorder = Recorder()
        self._unsent: deque[tuple[str, bytes]] = deque()
        self._number = 0
        self._start = secrets.token_hex(4)
        self._lost = 0
        self._engine: Engine | None = None

    async def run(self) -> None:
        """Run for ever."""
        adopted = self._disk.adopted()
        if adopted is not None:
            self.name = adopted.name
        self.backend.start()
        if (kept := self._disk.state(DESIRED_FILE)) is not None and kept.config is not None:
            good = self._disk.state(GOOD_FILE)
            self._follow(kept)
            if good is not None and good.config is not None and self.name in self.backend.names:
                with contextlib.suppress(ValueError):
                    before = AccessPointConfig.model_validate(good.config | ELECTION)
                    self.backend.fall_back(self.name, good.revision, before)
        await asyncio.gather(self._observe(), self._report_news(), self._with_engine(adopted))

    async def stop(self) -> None:
        """Stop, and remove all feedback."""
        await self.backend.stop()

    async def _with_engine(self, adopted: Adopted | None) -> None:
        while True:
            if adopted is None:
                try:
                    enrol = Credentials.load(self._options.enrol)
                except ConfigError as error:
                    if not self.backend.access_points:
                        raise
                    # The access point keeps running without a token.
                    self._wrong(f"{self.name}: its token has run out, and it cannot announce itself: {error}")
                    await asyncio.sleep(ASK_SECONDS)
                    continue
                adopted = await self._announce(enrol)
                self._disk.adopt(adopted)
                LOG.info("adopted as %s", adopted.name)
                self.name = adopted.name
            credentials = Credentials(self._disk.key, adopted.jwt)
            engine = Engine(self._options.servers, self._options.ca, credentials, f"agent {self.name}")
            await engine.subscribe(f"$KV.{DESIRED}.{key_of(self.name)}", lambda subject, data: self._told.set())
            await engine.serve(f"ap.{key_of(self.name)}.do", self._do)
            self._engine = engine
            adopted = await self._work(engine, credentials)

    async def _work(self, engine: Engine, credentials: Credentials) -> Adopted | None:
        """Work until another token is needed; return the new token, or None when the present one is refused."""
        renewed: asyncio.Future[Adopted] = asyncio.get_running_loop().create_future()
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(engine.run()),
            asyncio.create_task(self._ask(engine)),
            asyncio.create_task(self._send(engine)),
            asyncio.create_task(self._renew(engine, credentials, renewed)),
            asyncio.create_task(engine.refused.wait()),
        ]
        try:
            done, _ = await asyncio.wait([*tasks, renewed], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return renewed.result() if renewed.done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _announce(self, credentials: Credentials) -> Adopted:
        """Announce this agent until somebody adopts it."""
        engine = Engine(self._options.servers, self._options.ca, credentials, f"announcing {self.name}")
        running = asyncio.create_task(engine.run())
        try:
            LOG.info("%s waits to be adopted: apctl adopt %s %s", self.name, self.id, self.name)
            while True:
                with contextlib.suppress(Unavailable):
                    if (adopted := await self._asked_to_be(engine)) is not None:
                        return adopted
                await asyncio.sleep(ANNOUNCE_SECONDS)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _asked_to_be(self, engine: Engine) -> Adopted | None:
        options = self._options
        announcement = Announcement(id=self.id, name=self.name, host=socket.gethostname()[:64], config=options.config)
        # Only the fields that were set: the others follow the defaults.
        said = announcement.model_dump_json(exclude_unset=True, exclude_none=True).encode()
        answer = await engine.request("fleet.announce", said)
        try:
            adopted = parse(Adopted, answer.data) if answer.data else None
        except Unusable as error:
            LOG.warning("what the service answers cannot be used: %s", error)
            return None
        return adopted if adopted and claims_of(adopted.jwt).get("sub") == self.id else None

    async def _renew(self, engine: Engine, credentials: Credentials, renewed: "asyncio.Future[Adopted]") -> None:
        """Renew the token when a third of its days is left."""
        ends = float(claims_of(credentials.jwt)["exp"])
        while True:
            await asyncio.sleep(max(ANNOUNCE_SECONDS, ends - VALID_DAYS * 86_400 / 3 - time.time()))
            with contextlib.suppress(Unavailable):
                adopted = await self._asked_to_be(engine)
                if adopted is not None and not renewed.done():
                    self._disk.adopt(adopted)
                    renewed.set_result(adopted)

    async def _ask(self, engine: Engine) -> None:
        """Apply the desired state as soon as it changes; for ever."""
        while True:
            with contextlib.suppress(Unavailable):
                await self._look(engine)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_SECONDS if engine.connected else SECOND / 4):
                    await self._told.wait()
            self._told.clear()

    async def _look(self, engine: Engine) -> None:
        found = await engine.value(DESIRED, self.name)
        if found is None:
            return
        try:
            desired = parse(Desired, found[1])
        except Unusable as error:
            self._wrong(f"{self.name}: invalid data in the engine: {error}")
            return
        if desired != self._desired:
            self._follow(desired)

    def _follow(self, desired: Desired) -> None:
        """Desire what the engine has. What cannot be used is logged in one line, and nothing changes."""
        try:
            config = None if desired.config is None else AccessPointConfig.model_validate(desired.config | ELECTION)
        except ValueError as error:
            self._wrong(f"{self.name}: revision {desired.revision} is invalid here: {one_line(error)}")  # type: ignore[arg-type]
            return
        if config is not None and config.name != self.name:
            self._wrong(f"{self.name}: revision {desired.revision} is of {config.name}")
            return
        self._problem, self._desired = None, desired
        self._disk.keep(DESIRED_FILE, desired)
        for name in {*self.backend.access_points, self.name}:
            self.backend.desire(name, desired.revision, config if name == self.name else None)

    def _wrong(self, problem: str) -> None:
        if problem != self._problem:
            LOG.warning("%s", problem)
        self._problem = problem

    async def _observe(self) -> None:
        """Observe once a second, report it, and record it for history; for ever."""
        flushed = due = time.monotonic()
        while True:
            # A clock that jumps makes no work to catch up with.
            due = max(due + SECOND, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            for seen in await self._report():
                if seen["state"] == State.READY.value:
                    self._recorder.add(seen)
            if time.monotonic() - flushed >= FLUSH_SECONDS:
                flushed = time.monotonic()
                self._keep()

    async def _report_news(self) -> None:
        """Report at once when another revision is in effect; for ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            now = self._desired
            if now is not None and self.backend.standing(self.name).in_effect == now.revision:
                self._disk.keep(GOOD_FILE, now)
            await self._report()

    async def _report(self) -> list[Observation]:
        """Observe, and report it."""
        found = [(self.backend.observe(name), self.backend.standing(name)) for name in [*self.backend.access_points]]
        for seen, standing in found:
            message = Seen.model_construct(
                version=1,
                agent=self.id,
                revision=standing.in_effect or 0,
                lost=self._lost,
                problem=self._problem or standing.reason,
                observation=seen,
            )
            if self._engine is not None:
                await self._engine.publish(f"ap.{key_of(seen['name'])}.seen", text(message))
        return [seen for seen, _ in found]

    def _keep(self) -> None:
        """Turn finished samples into messages."""
        for name, ap in self.backend.access_points.items():
            if ap.connection.state == State.READY:
                self._recorder.use(name, ap.connection.sessions, time.time(), self.backend.used(name))
        done = [*self._recorder.take().items()]
        for start in range(0, len(done), MAX_ROWS):
            self._number += 1
            data = text(Samples.of(dict(done[start : start + MAX_ROWS])))
            self._unsent.append((f"{self.id}-{self._start}-{self._number}", data))
        while len(self._unsent) > MAX_UNSENT:
            self._unsent.popleft()
            self._lost += 1

    async def _send(self, engine: Engine) -> None:
        """Send history to the engine, each message once, with as many tries as it takes; for ever."""
        while True:
            try:
                while self._unsent:
                    once, data = self._unsent[0]
                    await engine.log(f"ap.{key_of(self.name)}.history", data, once)
                    if self._unsent and self._unsent[0][0] == once:
                        self._unsent.popleft()
            except Unavailable:
                pass
            await asyncio.sleep(SECOND)

    async def _do(self, data: bytes) -> bytes | None:
        """Answer an order; only a primary answers."""
        ap = self.backend.access_points.get(self.name)
        if ap is None or ap.connection.state != State.READY:
            return None
        try:
            order = parse(Order, data)
            answer = Answer(answer=await getattr(self.backend, order.do)(self.name, **order.arguments))
        except Unusable as error:
            answer = Answer(status=502, detail=f"{self.name}: its agent cannot parse the request: {error}")
        except Refused as error:
            answer = Answer(status=error.status, detail=error.detail)
        except (TypeError, ValueError) as error:
            answer = Answer(status=502, detail=f"{self.name}: its agent cannot do that: {' '.join(str(error).split())}")
        return text(answer)

    async def _elect(self, highest: int) -> int:
        """Return the election id for the switch: the epoch of the lease for its holder, less for others."""
        number = random.randrange(1, 1 << 31)
        engine = self._engine
        if engine is None or not engine.connected:
            return highest + number
        try:
            held = await engine.value(LEASE, self.name, ELECTION_SECONDS)
            if highest == 0 and held is not None and parse(Lease, held[1]).agent != self.id:
                # Another agent holds the lease. If that agent is gone, the switch says so and reports the highest id.
                return number
            lease = text(Lease(agent=self.id))
            epoch = await engine.put(LEASE, self.name, lease, held[0] if held else 0, ELECTION_SECONDS)
        except Conflict:
            # Another agent was faster.
            return number
        except Unusable as error:
            LOG.warning("%s: invalid lease in the engine: %s: rewriting it", self.name, error)
            with contextlib.suppress(Unavailable, Conflict):
                await engine.put(LEASE, self.name, text(Lease(agent=self.id)), held[0] if held else 0)
            return highest + number
        except Unavailable:
            return highest + number
        return max(epoch << 32, highest + number)
