# SPDX-License-Identifier: Apache-2.0
"""Two replicas, the engine and an agent against a model of the switch, in virtual time: changes of access point and
defaults, reloads, and whatever may be away, in any order.

A replica never says for 10 s that something runs that does not, and 10 s after all is well both say that what the
database desires is in effect, and the switch has it.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from sqlalchemy.exc import OperationalError

from accesspoint.controller.agent import process
from accesspoint.controller.agent.connection import State
from accesspoint.controller.agent.process import Agent, Options
from accesspoint.controller.api.problems import ProblemError
from accesspoint.controller.api.service import Service
from accesspoint.controller.config import AccessPointConfig
from accesspoint.controller.fleet import remote_backend
from accesspoint.controller.fleet.credentials import key_of
from accesspoint.controller.fleet.engine import DESIRED, Conflict, Unavailable
from accesspoint.controller.fleet.remote_backend import RemoteBackend
from accesspoint.controller.state.database import connect
from accesspoint.controller.state.store import Store, document

from .application import CHANGE
from .test_agent import observe
from .test_reconciler import SOON, WITHIN, Point, Switch, VirtualLoop, made

NAME = "ap1"
TAKES = 0.005
"""Seconds of each message."""
EVERY = 0.5
"""Seconds between two looks."""
LATER = st.one_of(SOON, st.just(1.5 * WITHIN))
"""Seconds until the next thing happens: with what was told of by then."""


class Broker:
    """An engine: values, and who listens. One that starts again may have lost all values."""

    def __init__(self) -> None:
        self.up = True
        self.number = 0
        self.values: dict[str, tuple[int, bytes]] = {}
        self.clients: list[Client] = []

    def tell(self, subject: str, data: bytes) -> None:
        for client in self.clients:
            for wanted, heard in client.subscriptions if client.connected else ():
                # `*` is the last or the middle word.
                head, star, tail = wanted.partition("*")
                if subject == wanted or (star and subject.startswith(head) and subject.endswith(tail)):
                    heard(subject, data)


class Client:
    """As `Engine`, for what agents and replicas use of it."""

    problem = "it is away"

    def __init__(self, broker: Broker) -> None:
        self._broker, self.cut, self._was = broker, False, False
        self.subscriptions: list[tuple[str, Callable[[str, bytes], None]]] = []
        self.reconnected = asyncio.Event()
        broker.clients.append(self)

    @property
    def connected(self) -> bool:
        return self._broker.up and not self.cut

    async def run(self) -> None:
        """Notice each connection that begins."""
        while True:
            if self.connected and not self._was:
                self.reconnected.set()
            self._was = self.connected
            await asyncio.sleep(EVERY)

    async def _pass(self) -> None:
        await asyncio.sleep(TAKES)
        if not self.connected:
            raise Unavailable("it is away")

    async def subscribe(self, subject: str, heard: Callable[[str, bytes], None]) -> None:
        self.subscriptions.append((subject, heard))

    async def publish(self, subject: str, data: bytes) -> None:
        with contextlib.suppress(Unavailable):
            await self._pass()
            self._broker.tell(subject, data)

    async def prepare(self, copies: int) -> None:
        await self._pass()

    async def names(self, bucket: str) -> list[str]:
        await self._pass()
        return [*self._broker.values]

    async def value(self, bucket: str, name: str) -> tuple[int, bytes] | None:
        await self._pass()
        return self._broker.values.get(name)

    async def put(self, bucket: str, name: str, data: bytes, based_on: int) -> int:
        await self._pass()
        if self._broker.values.get(name, (0, b""))[0] != based_on:
            raise Conflict("it has changed")
        self._broker.number += 1
        self._broker.values[name] = self._broker.number, data
        self._broker.tell(f"$KV.{DESIRED}.{key_of(name)}", data)
        return self._broker.number


class InModel(Agent):
    """An agent with a modelled engine and switch."""

    def __init__(self, state: Path, engine: Any, switch: Switch, seen: Any) -> None:
        of = SimpleNamespace(state=state, name=NAME, servers=[], ca=state, enrol=state, config=None)
        super().__init__(Options(**vars(of)), lambda name: None)
        backend: Any = self.backend
        backend._make = lambda config: Point(config.model_copy(), switch)
        backend.observe = lambda name: (
            seen
            | {
                "name": name,
                "state": backend.access_points[name].connection.state.value,
                "problem": backend.access_points[name].connection.problem,
            }
        )
        self._client: Any = engine

    async def _with_engine(self, adopted: Any) -> None:
        self._engine = self._client
        await self._client.subscribe(f"$KV.{DESIRED}.{NAME}", lambda subject, data: self._told.set())
        await self._ask(self._client)

    def _keep(self) -> None:
        """There is no history."""


class Process:
    """Tasks that may be killed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *work: Coroutine[Any, Any, None]) -> None:
        self._loop, self.tasks = loop, [loop.create_task(each) for each in work]

    def kill(self) -> None:
        async def end() -> None:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

        self._loop.run_until_complete(end())


def essence(of: AccessPointConfig | None) -> Any:
    """Return what changes here change."""
    return of and (len(of.rules), of.device_id, of.ncr.step_ms)


class Model(RuleBasedStateMachine):
    """`desired` is what the database has."""

    seen: Any = None
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.loop, self.stack = VirtualLoop(), contextlib.ExitStack()
        clock = SimpleNamespace(monotonic=self.loop.time, time=lambda: 1.8e9 + self.loop.time())
        for module in (process, remote_backend):
            self.stack.enter_context(mock.patch.object(module, "time", clock))
        self.stack.enter_context(mock.patch.object(os, "fsync", lambda descriptor: None))
        self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        shutil.copy(self.template, self.directory / "state.db")
        self.broker, self.switch, self.database_up = Broker(), Switch(), True
        self.replicas: list[Service | None] = [None, None]
        self.processes: dict[int | str, Process] = {}
        self.wrong_since: dict[int, float] = {}
        for number in (0, 1):
            self._start(number)
        self._start_agent()

    def _call(self) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def done(what: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(TAKES)
            if not self.database_up:
                raise OperationalError("", {}, Exception("it is away"))
            return what(*arguments, **options)

        return done

    def _start(self, number: int) -> None:
        client: Any = Client(self.broker)
        engine = connect(f"sqlite:///{self.directory / 'state.db'}")
        self.stack.callback(engine.dispose)
        backend = RemoteBackend(client, lambda name: service.read(service.store.standing, name))
        service = Service(engine, backend)
        service.read = service.write = self._call()  # type: ignore[method-assign]
        self.replicas[number] = service
        self.loop.run_until_complete(service.load(None))
        self.loop.run_until_complete(backend.listen())
        self.processes[number] = Process(self.loop, client.run(), backend.repair(), service.follow())

    def _start_agent(self) -> None:
        client = Client(self.broker)
        agent = InModel(self.directory / "agent", client, self.switch, self.seen)
        self.agent = agent
        self.processes["agent"] = Process(self.loop, client.run(), agent.run())

    @property
    def desired(self) -> Any:
        """Return what the database desires."""
        service = next(each for each in self.replicas if each is not None)
        found = service.store.access_point(NAME)
        defaults = service.store.ncr_defaults()[0]
        return found and service.whole(found[0], defaults)

    def run(self, seconds: float) -> None:
        """Let time pass, and look at it all the while."""

        async def look() -> None:
            for _ in range(max(1, round(seconds / EVERY))):
                await asyncio.sleep(min(seconds, EVERY))
                self.look()

        self.loop.run_until_complete(look())

    def look(self) -> None:
        desired, now = self.desired, self.loop.time()
        for number, service in enumerate(self.replicas):
            silent = (
                service is not None
                and self.database_up  # without it a replica cannot know what another one changed, and is not ready
                and service.standing(NAME).since is None
                and service.backend._is_ready(NAME)  # type: ignore[union-attr]
                and essence(self.switch.has) != essence(desired)
            )
            if not silent:
                self.wrong_since.pop(number, None)
            since = self.wrong_since.setdefault(number, now) if silent else now
            assert now - since < WITHIN, f"replica {number} says that {essence(desired)} runs"

    def _ask(self, number: int, call: Callable[[Service], Coroutine[Any, Any, Any]]) -> None:
        """Ask a replica for a change; it may refuse."""
        service = self.replicas[number]
        if service is not None:
            with contextlib.suppress(ProblemError, OperationalError, process.ConfigError):
                self.loop.run_until_complete(call(service))

    def change_to(self, number: int, wanted: AccessPointConfig, soon: float) -> None:
        """Ask a replica for another configuration."""
        entry = document(wanted)
        self._ask(number, lambda service: service.change(NAME, CHANGE, lambda: entry, whatever=True))
        self.run(soon)

    @rule(number=st.integers(0, 1), rules=st.integers(0, 3), session=st.sampled_from([8, 8, 9]), soon=LATER)
    def change(self, number: int, rules: int, session: int, soon: float) -> None:
        self.change_to(number, made(rules, session, True), soon)

    @rule(number=st.integers(0, 1), step=st.sampled_from([1.0, 2.0, 3.0]), soon=LATER)
    def change_defaults(self, number: int, step: float, soon: float) -> None:
        self._ask(
            number,
            lambda service: service.change_defaults(
                CHANGE, lambda: service.defaults.model_copy(update={"step_ms": step})
            ),
        )
        self.run(soon)

    @rule(number=st.integers(0, 1), rules=st.integers(0, 3), soon=LATER)
    def reload(self, number: int, rules: int, soon: float) -> None:
        self._ask(number, lambda service: service.reload([made(rules, 8, True)]))
        self.run(soon)

    @rule(number=st.integers(0, 1), away=st.floats(0, 12))
    def restart_replica(self, number: int, away: float) -> None:
        if not self.database_up or self.replicas[1 - number] is None:
            return
        self.processes[number].kill()
        self.replicas[number] = None
        self.run(away)
        self._start(number)

    @rule(away=st.floats(0, 12))
    def restart_agent(self, away: float) -> None:
        self.processes["agent"].kill()
        self.loop.run_until_complete(self.agent.stop())
        self.run(away)
        self._start_agent()

    @rule(which=st.integers(0, 10), away=st.floats(0, 12))
    def cut(self, which: int, away: float) -> None:
        client = self.broker.clients[-1 - which % len(self.broker.clients)]
        client.cut = True
        self.run(away)
        client.cut = False

    @rule(forgets=st.booleans(), soon=SOON)
    def end_engine(self, forgets: bool, soon: float) -> None:
        self.broker.up = False
        if forgets:
            self.broker.values.clear()
        self.run(soon)

    @rule(up=st.booleans(), soon=SOON)
    def database(self, up: bool, soon: float) -> None:
        self.database_up = up
        self.run(soon)

    @rule(up=st.booleans(), forgets=st.booleans(), soon=SOON)
    def end_or_start_switch(self, up: bool, forgets: bool, soon: float) -> None:
        self.switch.up = up
        if not up and forgets:
            self.switch.has = self.switch.had = None
        # A session ends before the next one begins.
        self.run(0.5 + soon)

    @rule(number=st.integers(0, 1), rules=st.integers(0, 3), soon=LATER)
    def change_what_is_refused(self, number: int, rules: int, soon: float) -> None:
        self.switch.refuses = True
        self.change_to(number, made(rules, 8, True), soon)

    @rule(soon=SOON)
    def accept(self, soon: float) -> None:
        self.switch.refuses = False
        self.run(soon)

    @rule()
    def mend(self) -> None:
        """All is well: soon what the database desires runs, and both replicas say so."""
        self.broker.up = self.database_up = self.switch.up = True
        self.switch.refuses = False
        self.run(WITHIN)
        desired = self.desired
        for service in self.replicas:
            assert service is not None
            standing = service.standing(NAME)
            assert (standing.in_effect, standing.since) == (standing.revision, None), standing
            assert essence(service.config(NAME)) == essence(desired)
            assert service.backend.observe(NAME)["state"] == State.READY.value
        assert essence(self.switch.has) == essence(desired)

    def teardown(self) -> None:
        for running in self.processes.values():
            running.kill()
        self.loop.run_until_complete(self.agent.stop())
        self.loop.close()
        self.stack.close()


Model.TestCase.settings = settings(max_examples=10, stateful_step_count=20)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_replicas_and_agent_never_differ_silently(tmp_path: Path) -> None:
    Model.template = tmp_path / "template.db"
    engine = connect(f"sqlite:///{Model.template}")
    Store(engine).put(made(0, 8, True), None, CHANGE)
    engine.dispose()
    Model.seen = asyncio.run(observe(made(0, 8, True))) | {"ports": []}
    Model.TestCase("runTest").runTest()
