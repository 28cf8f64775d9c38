# SPDX-License-Identifier: Apache-2.0
"""The reconciler against a model of its switch, in virtual time: changes, kills, refusals, restarts, in any order.

At no moment a revision is said to be in effect that the switch does not have, and 10 s after all is well the desired
one is in effect.
"""

import asyncio
import selectors
from types import SimpleNamespace
from typing import Any

import pytest
from finsy.proto import rpc_code, rpc_status
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from accesspoint.controller.agent.connection import State
from accesspoint.controller.agent.reconciler import Reconciler
from accesspoint.controller.agent.transport import RpcError
from accesspoint.controller.config import AccessPointConfig, ConfigError

from .test_entries import config

PORTS = config().ports
WITHIN = 10.0
"""Seconds, after all is well, until what is desired is in effect."""
WRITE_SECONDS = 0.03
AWAY = "no P4Runtime switch answers"


class Instant(selectors.SelectSelector):
    """A selector whose waiting takes no time: it moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everything waits for ever"
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own."""

    def __init__(self) -> None:
        self.clock = Instant()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


class Switch:
    """A switch: what it has of the configurations that are written to it."""

    def __init__(self) -> None:
        self.up = True
        self.refuses = False
        """True: it refuses the last entries of every configuration but the one that it has."""
        self.has: AccessPointConfig | None = None
        """The configuration that it has completely."""
        self.had: AccessPointConfig | None = None
        """The last such one."""

    async def write(self, wanted: AccessPointConfig) -> None:
        good = self.has or self.had
        for _ in range(2):
            if not self.up:
                raise RpcError(rpc_status.Status(code=rpc_code.UNAVAILABLE, message=AWAY))
            if self.has is not None and self.has != wanted:
                self.had, self.has = self.has, None
            await asyncio.sleep(WRITE_SECONDS)
        if self.refuses and wanted != good:
            raise RpcError(rpc_status.Status(code=rpc_code.RESOURCE_EXHAUSTED, message="no room"))
        if self.up:
            self.has = wanted


class Point:
    """An access point, as far as the reconciler knows it: its session begins again for ever."""

    def __init__(self, of: AccessPointConfig, switch: Switch) -> None:
        self.config, self.revision = of.model_copy(), 0
        self.device_id = of.device_id  # of its sessions
        self.written: Any = None
        self.fallback: Any = None
        self.connection = SimpleNamespace(state=State.CONNECTING, problem=None)
        self.program = SimpleNamespace(target=SimpleNamespace(check=lambda _: None))
        self._switch = switch
        self._writing = asyncio.Lock()

    def configure(self, of: AccessPointConfig, revision: int) -> None:
        self.config, self.revision = of.model_copy(), revision

    async def sync(self) -> None:
        async with self._writing:
            if self.connection.state != State.READY:
                return
            wanted, revision = self.config, self.revision
            await self._switch.write(wanted)
        self.written(revision)

    async def run(self) -> None:
        try:
            await self._hold()
        finally:
            # The switch is told that the session ends.
            await asyncio.sleep(WRITE_SECONDS)

    async def _hold(self) -> None:
        while True:
            try:
                if not self._switch.up:
                    raise RpcError(rpc_status.Status(code=rpc_code.UNAVAILABLE, message=AWAY))
                async with self._writing:
                    try:
                        await self._switch.write(self.config)
                    except RpcError as error:
                        good = self.fallback()
                        if error.is_away or good is None:
                            raise
                        self.configure(*good)
                        await self._switch.write(self.config)
                self.connection.state, self.connection.problem = State.READY, None
                await self.sync()
                while self._switch.up:
                    await asyncio.sleep(0.1)
            except RpcError as error:
                self.connection.problem = str(error)
            self.connection.state = State.CONNECTING
            await asyncio.sleep(2.0)

    async def release(self) -> None:
        await asyncio.sleep(WRITE_SECONDS)


def made(number: int, session: int, enabled: bool) -> AccessPointConfig:
    """Return a configuration: `number` changes within a session, `session` with a new one."""
    rules = [{"name": f"r{each}", "class_id": 3, "priority": 1000 + each} for each in range(number)]
    return AccessPointConfig(name="ap1", ports=PORTS, rules=rules, device_id=session, enabled=enabled)  # type: ignore[arg-type]


SOON = st.one_of(st.just(0.0), st.floats(0, 0.3))
"""Seconds between two things that happen."""


class Model(RuleBasedStateMachine):
    """One access point; `desired` is what its database, or its agent's disk, has."""

    def __init__(self) -> None:
        super().__init__()
        self.loop, self.switch = VirtualLoop(), Switch()
        self.revision, self.desired = 0, made(0, 8, True)
        self.revisions: dict[int, AccessPointConfig] = {}
        self.makeable = True

        self.had: list[AccessPointConfig | None] = []
        """Configurations that the switch had, look by look."""
        self.ready: list[bool] = []
        self.start()
        self._desire(self.desired)

    def _desire(self, wanted: AccessPointConfig) -> None:
        self.revision, self.desired = self.revision + 1, wanted
        self.revisions[self.revision] = wanted
        self.reconciler.desire(self.revision, wanted)

    def start(self) -> None:
        self.points: Any = {}
        self.reconciler = Reconciler("ap1", self.points, self._make, lambda name: None)
        self.task = self.loop.create_task(self.reconciler.run())

    def _make(self, of: AccessPointConfig) -> Any:
        if not self.makeable:
            raise ConfigError("ap.p4info.txtpb: no such file")
        return Point(of, self.switch)

    def run(self, seconds: float) -> None:
        """Let time pass, and look at it all the while."""

        async def look() -> None:
            for _ in range(max(1, round(seconds / 0.01))):
                await asyncio.sleep(0.01)
                self.look()

        self.loop.run_until_complete(look())

    def look(self) -> None:
        standing, point = self.reconciler.standing, self.points.get("ap1")
        assert standing.revision == self.revision
        assert standing.in_effect is None or standing.in_effect in self.revisions
        is_ready = point is not None and point.connection.state == State.READY and self.switch.up
        self.had.append(self.switch.has)
        self.ready.append(is_ready)
        if standing.since is None and is_ready and self.desired.enabled:
            # Nobody was told that anything differs, or that the switch is away.
            assert self.switch.has == self.desired, f"revision {standing.in_effect} is said to be in effect"

    @rule(
        number=st.integers(0, 3),
        session=st.sampled_from([0, 0, 0, 1]),
        enabled=st.sampled_from([1, 1, 1, 0]),
        soon=SOON,
    )
    def change(self, number: int, session: int, enabled: int, soon: float) -> None:
        self._desire(made(number, self.desired.device_id ^ session, bool(enabled)))
        self.run(soon)

    @rule(number=st.integers(0, 3), soon=SOON)
    def change_what_cannot_be_made(self, number: int, soon: float) -> None:
        """The pipeline's files are gone, for a change that needs them."""
        runs = self.points.get("ap1")
        self.makeable = False
        self._desire(made(number, self.desired.device_id ^ 1, True))
        self.run(soon)
        # Where an earlier change is replacing one, the old one has ended, and its own may begin; it has this change too
        # if that needs no new session.
        now = self.points.get("ap1")
        assert now is runs or runs is None
        assert now is None or now.revision < self.revision or now.device_id == self.desired.device_id

    @rule(session=st.sampled_from([0, 0, 1]), number=st.integers(0, 3), soon=SOON)
    def change_what_is_refused(self, session: int, number: int, soon: float) -> None:
        """Keep in effect what was, but for the moments of a try."""
        self.switch.refuses = True
        self._desire(made(number, self.desired.device_id ^ session, True))
        self.run(soon)
        self.had = []
        self.run(15.0)
        point, standing = self.points.get("ap1"), self.reconciler.standing
        if standing.since is not None and point is not None and all(self.ready[-500:]):
            assert standing.reason and self.revisions[standing.in_effect] in self.had  # type: ignore[index]

    @rule(soon=SOON)
    def accept(self, soon: float) -> None:
        self.switch.refuses = False
        self.run(soon)

    @rule(forgets=st.booleans(), soon=SOON)
    def end_switch(self, forgets: bool, soon: float) -> None:
        self.switch.up = False
        if forgets:
            self.switch.has = self.switch.had = None
        # A session ends before the next one begins.
        self.run(0.2 + soon)

    @rule(soon=SOON)
    def start_switch(self, soon: float) -> None:
        self.switch.up = True
        self.run(soon)

    @rule(soon=SOON)
    def restart(self, soon: float) -> None:
        """Kill the process, and start it with what is desired."""
        self._end()
        self.start()
        self.reconciler.desire(self.revision, self.desired)
        self.run(soon)

    @rule(gone=SOON, soon=SOON)
    def remove_and_add(self, gone: float, soon: float) -> None:
        self.reconciler.desire(self.revision, None)
        self.loop.run_until_complete(asyncio.sleep(gone))
        if self.task.done():
            self.start()
        self._desire(made(0, self.desired.device_id, True))
        self.run(soon)

    @rule()
    def mend(self) -> None:
        """All is well: soon what is desired runs."""
        self.switch.up, self.makeable, self.switch.refuses = True, True, False
        self.run(WITHIN)
        standing = self.reconciler.standing
        assert (standing.in_effect, standing.since, standing.reason) == (self.revision, None, None)
        assert not self.desired.enabled or self.switch.has == self.desired

    def _end(self) -> None:
        async def end() -> None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            await self.reconciler.end()

        self.loop.run_until_complete(end())

    def teardown(self) -> None:
        self._end()
        self.loop.close()


Model.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
test_desired_and_running_never_differ_silently = pytest.mark.timeout(300)(Model.TestCase)


def test_change_back_to_the_session_that_begins_needs_no_files() -> None:
    model = Model()
    model.change(0, 0, False, 0.0)
    model.change(0, 0, True, 0.0)
    model.change_what_cannot_be_made(2, 0.0)
    model.change_what_cannot_be_made(1, 0.1)
    assert model.points["ap1"].revision == model.revision
    model.teardown()


def test_a_replacement_that_is_cancelled_begins_no_session() -> None:
    """Cancel at each moment: while feedback is removed, and while the former session ends."""
    for step in range(8):
        model = Model()
        model.run(1.0)
        model._desire(made(0, 9, True))
        model.run(step * 0.01)
        model._end()
        assert not [task for task in asyncio.all_tasks(model.loop) if not task.done()], step
        model.loop.close()
