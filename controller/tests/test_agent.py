# SPDX-License-Identifier: Apache-2.0
"""One access point's trouble is its own: a switch that says what no switch should, beside one that is well."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from finsy.proto import p4d, p4r, rpc_code, rpc_status

from accesspoint.checks.harness.waiting import until
from accesspoint.controller.agent.entries import identity
from accesspoint.controller.agent.local_backend import LocalBackend
from accesspoint.controller.agent.program import DIGEST_FLOWS, Program, flow_key
from accesspoint.controller.agent.transport import RpcError
from accesspoint.controller.config import AccessPointConfig, Rule
from accesspoint.controller.observation import Observation

from .test_entries import config

SECONDS = 10.0


class Switch:
    """A transport to a switch without a data plane, which takes every write and says what a test has it say."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.says: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue()
        self.heard: list[p4r.StreamMessageRequest] = []
        self.written: list[p4r.Update] = []
        self.fails: Callable[[str], int] = lambda method: 0
        self.refuses: Callable[[p4r.Update], bool] = lambda update: False
        """Returns True for an update that it refuses; it does a Write's others."""
        self._entries: dict[bytes, p4r.Update] = {}
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """Called once while a Write is under way."""
        self.sessions = 0
        self.waited: dict[str, float] = {}
        """Seconds that the last call of a method would have waited."""

    async def call(self, method: str, request: bytes, *, timeout: float = 1.0) -> bytes:
        self.waited[method] = timeout
        if code := self.fails(method):
            raise RpcError(rpc_status.Status(code=code, message="said a test"))
        if method == "Write":
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                await meanwhile()
            self._write(p4r.WriteRequest.FromString(request).updates)
        elif method == "GetForwardingPipelineConfig":
            answer = p4r.GetForwardingPipelineConfigResponse()
            answer.config.cookie.cookie = self._program.schema.p4cookie
            return answer.SerializeToString()
        return b""

    def _write(self, updates: Iterable[p4r.Update]) -> None:
        """Do them, and say of each that cannot be done why (P4Runtime specification, 9.1.2)."""
        errors = [p4r.Error(canonical_code=self._done(update)) for update in updates]
        if any(error.canonical_code for error in errors):
            status = rpc_status.Status(code=rpc_code.UNKNOWN, message="said a test")
            for error in errors:
                status.details.add().Pack(error)
            raise RpcError(status)

    def _done(self, update: p4r.Update) -> int:
        if self.refuses(update):
            return rpc_code.RESOURCE_EXHAUSTED
        self.written.append(update)
        if update.entity.WhichOneof("entity") != "table_entry":
            return rpc_code.OK
        key = identity(update.entity)
        if (update.type == p4r.Update.INSERT) == (key in self._entries):
            return rpc_code.ALREADY_EXISTS if key in self._entries else rpc_code.NOT_FOUND
        if update.type == p4r.Update.DELETE:
            del self._entries[key]
        else:
            self._entries[key] = update
        return rpc_code.OK

    @property
    def entries(self) -> list[p4r.Update]:
        """Entries of tables that it has, each by its last update."""
        return [*self._entries.values()]

    def send(self, message: bytes) -> None:
        self.heard.append(p4r.StreamMessageRequest.FromString(message))
        if self.heard[-1].HasField("arbitration"):
            self.says.put_nowait(p4r.StreamMessageResponse(arbitration=self.heard[-1].arbitration))

    async def receive(self) -> bytes:
        return (await self.says.get()).SerializeToString()

    async def close(self) -> None:
        while not self.says.empty():
            self.says.get_nowait()


class Two:
    """A backend with two access points: one whose switch misbehaves, and one that is well."""

    def __init__(self) -> None:
        self.configs = [config().model_copy(update={"name": name}) for name in ("bad", "well")]
        self.program = Program(self.configs[0].pipeline)
        self.switches = {of.name: Switch(self.program) for of in self.configs}
        self.backend = LocalBackend(lambda name: None, self._connect)
        self.switch = self.switches["bad"]

    def _connect(self, of: AccessPointConfig) -> Any:
        return _Way(self.switches[of.name])

    async def __aenter__(self) -> "Two":
        for of in self.configs:
            self.backend.desire(of.name, 1, of)
        self.backend.start()
        await until(lambda: len(self.backend.access_points) == len(self.configs))
        await until(lambda: all(self.of(name)["ticks"] > 1 for name in self.switches))
        return self

    async def __aexit__(self, *_: object) -> None:
        before, ended = self.of("well"), self.switches["well"].sessions
        await until(lambda: self.of("well")["ticks"] > before["ticks"] + 2)
        assert (self.of("well")["state"], self.of("well")["problem"], ended) == ("ready", None, 1)
        await self.backend.stop()

    def of(self, name: str) -> Any:
        return self.backend.observe(name)

    def tell(self, name: str, *members: bytes, digest_id: int | None = None) -> None:
        """A digest, of flows by its name."""
        ids = {alias: number for number, alias in self.program.digest_names.items()}
        struct = p4d.P4StructLike(members=[p4d.P4Data(bitstring=member) for member in members])
        digest = p4r.DigestList(digest_id=digest_id or ids[name], list_id=7, data=[p4d.P4Data(struct=struct)])
        self.switch.says.put_nowait(p4r.StreamMessageResponse(digest=digest))


async def observe(of: AccessPointConfig) -> Observation:
    """Return the observation of an access point that is not connected."""
    backend = LocalBackend(lambda name: None)
    backend.desire(of.name, 1, of.model_copy(update={"enabled": False}))
    backend.start()
    await until(lambda: backend.access_points)
    seen = backend.observe(of.name)
    await backend.stop()
    return seen


class _Way:
    """One session's way to a `Switch`."""

    def __init__(self, switch: Switch) -> None:
        self.call, self.close, self._switch = switch.call, switch.close, switch

    def stream(self) -> Any:
        self._switch.sessions += 1
        return _Stream(self._switch)


class _Stream:
    def __init__(self, switch: Switch) -> None:
        self.send, self.receive = switch.send, switch.receive

    def close(self) -> None:
        """Nothing is left."""


IPV4 = next(name for name, version in DIGEST_FLOWS.items() if version == 4)
MEMBERS = (b"\x0a\0\0\1", b"\x0a\0\0\2", b"\x11", b"\x03\xe8", b"\x07\xd0", b"\1", b"\2", b"\0", b"\0")


async def test_slow_switch_makes_its_pipeline_ready_and_has_refused_nothing() -> None:
    """One that nobody waits for any more is committed later, and empties the tables of the next session."""
    async with Two() as two:
        answers: dict[str, list[int]] = {
            "Read": [99],  # which ends the session
            "GetForwardingPipelineConfig": [rpc_code.FAILED_PRECONDITION] * 2,
            "SetForwardingPipelineConfig": [rpc_code.DEADLINE_EXCEEDED],
        }
        two.switch.fails = lambda method: answers[method].pop() if answers.get(method) else rpc_code.OK
        await until(lambda: "does not answer any more; trying again" in (two.of("bad")["problem"] or ""))
        await until(lambda: two.of("bad")["state"] == "ready")
        assert two.switch.waited["SetForwardingPipelineConfig"] >= 60


async def test_a_digest_that_nobody_knows_is_told_and_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    async with Two() as two:
        two.tell("", b"\1", digest_id=123456)
        await until(lambda: any(heard.digest_ack.list_id == 7 for heard in two.switch.heard))
        assert two.switch.sessions == 1
        assert "digest 123456" in caplog.text


async def test_what_the_switch_says_in_vain_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests that nobody has room for come again; who looks after the switch wants to know all the same."""
    async with Two() as two:
        assert two.of("bad")["messages_lost"] == {"digests": 0, "unknown": 0, "errors": 0, "packets": 0}
        digests = two.backend.access_points["bad"].connection.digests
        monkeypatch.setattr(digests, "put_nowait", _full)
        for _ in range(3):
            two.tell(IPV4, *MEMBERS)
        await until(lambda: two.of("bad")["messages_lost"]["digests"] == 3)
        monkeypatch.undo()
        two.tell("", b"\1", digest_id=123456)
        two.switch.says.put_nowait(p4r.StreamMessageResponse(error=p4r.StreamError(message="odd")))
        await until(lambda: two.of("bad")["messages_lost"] == {"digests": 3, "unknown": 1, "errors": 1, "packets": 0})
        assert two.switch.sessions == 1


def _full(_: object) -> None:
    raise asyncio.QueueFull


async def test_what_cannot_be_handled_ends_its_own_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accesspoint.controller.agent.connection.FIRST_BACKOFF", 0.05)
    async with Two() as two:
        two.tell(IPV4, b"\1")
        await until(lambda: two.of("bad")["problem"])
        assert "cannot be handled" in two.of("bad")["problem"]
        await until(lambda: two.switch.sessions > 1 and two.of("bad")["state"] == "ready")


async def test_a_code_that_does_not_exist_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accesspoint.controller.agent.connection.FIRST_BACKOFF", 0.05)
    async with Two() as two:
        two.switch.fails = lambda method: 99 if method == "Read" else 0
        await until(lambda: two.of("bad")["problem"])
        assert two.of("bad")["problem"].endswith("answers code 99: said a test")
        # Each session ends in the same way: they come ever less often.
        await until(lambda: two.switch.sessions > 3)
        two.switch.fails = lambda method: 0
        await until(lambda: two.of("bad")["state"] == "ready")


async def test_a_change_while_a_session_begins_reaches_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accesspoint.controller.agent.connection.FIRST_BACKOFF", 0.05)
    async with Two() as two:
        classify = two.program.schema.tables["classify"].id

        async def change() -> None:
            rule = Rule(name="r", class_id=3, dscp=46)
            two.backend.desire("bad", 2, two.configs[0].model_copy(update={"rules": [rule]}))

        two.switch.meanwhile, before = change, two.switch.sessions
        two.switch.fails = lambda method: 13 if two.switch.sessions == before else 0

        def is_there() -> bool:
            entries = (update.entity.table_entry for update in two.switch.written)
            return any(entry.table_id == classify and entry.priority == 1000 for entry in entries)

        await until(is_there)


async def test_a_flow_that_the_switch_lost_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """B11: else it is known here for ever, and to nobody there."""
    lost = "accesspoint.controller.agent.flows.LOST_SECONDS"
    monkeypatch.setattr(lost, 600.0)
    async with Two() as two:

        def inserted() -> int:
            return sum(update.type == p4r.Update.INSERT for update in two.switch.written if is_flow(update))

        def is_flow(update: p4r.Update) -> bool:
            return update.entity.table_entry.table_id in two.program.flow_versions

        two.tell(IPV4, *MEMBERS)
        await until(lambda: inserted() == 1)
        # This one was on its way.
        two.tell(IPV4, *MEMBERS)
        await until(lambda: sum(heard.HasField("digest_ack") for heard in two.switch.heard) == 2)
        assert inserted() == 1
        monkeypatch.setattr(lost, 0.0)
        two.tell(IPV4, *MEMBERS)
        await until(lambda: inserted() == 2)
        flow = two.backend.access_points["bad"].flows.by_key[flow_key([*MEMBERS], 4)]
        of_flow = [
            update.entity.table_entry.action.action.params[0].value for update in two.switch.written if is_flow(update)
        ]
        assert set(of_flow) == {flow.index.to_bytes()}


def test_a_refusal_is_one_line_whatever_the_switch_says() -> None:
    status = rpc_status.Status(code=rpc_code.UNKNOWN, message="two\nlines")
    status.details.add(type_url="type.googleapis.com/p4.v1.Error", value=b"\xff\xff")
    status.details.add(type_url="nonsense")
    status.details.add().Pack(p4r.Error(canonical_code=77, message="no\nroom"))
    error = RpcError(status)
    assert (str(error), error.codes) == ("UNKNOWN: two lines; update 2: no room", {77})
