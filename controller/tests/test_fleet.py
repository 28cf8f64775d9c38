# SPDX-License-Identifier: Apache-2.0
"""Agents, replicas and the engine between them, with a real NATS: who may say what, and what is lost when something is
killed, which is nothing."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from accesspoint.checks.bench.controller.fleet import keep
from accesspoint.checks.harness.waiting import until
from accesspoint.controller.agent.local_backend import LocalBackend
from accesspoint.controller.agent.process import DESIRED_FILE, Agent, Disk, Options
from accesspoint.controller.api.app import create_app
from accesspoint.controller.api.service import Service
from accesspoint.controller.config import AccessPointConfig, ConfigError
from accesspoint.controller.fleet import archive
from accesspoint.controller.fleet.adoption import Adoption
from accesspoint.controller.fleet.credentials import Credentials, Key, agent, claims_of, init, is_user
from accesspoint.controller.fleet.engine import ANSWER_SECONDS, DESIRED, LEASE, Conflict, Engine, Unavailable
from accesspoint.controller.fleet.messages import Announcement, Desired, Samples, Seen, Unusable, parse, text
from accesspoint.controller.fleet.remote_backend import RemoteBackend
from accesspoint.controller.observation import Observation
from accesspoint.controller.samples import MEANS, SUMS, Bucket
from accesspoint.controller.samples import Key as SampleKey
from accesspoint.controller.state.agents import access_point_of
from accesspoint.controller.state.database import connect
from accesspoint.controller.state.history import Archive

from .engines import Server, connected, missing_engine, server
from .test_agent import observe
from .test_config import PORTS, access_point
from .test_entries import PIPELINE

NAMES = ["ap1", "ap.2"]
LONG = 120.0
"""Seconds for what the engine answers, which it does once its buckets are made."""


def config(name: str, **fields: Any) -> AccessPointConfig:
    return AccessPointConfig.model_validate(access_point(name=name, pipeline=PIPELINE, **fields))


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Server]:
    if reason := missing_engine():
        pytest.skip(reason)
    with server(tmp_path) as made:
        yield made


class Replica:
    """One of the service, without a process of its own."""

    def __init__(self, nats: Server, database: sa.Engine) -> None:
        self.engine = nats.client()
        self.fleet = RemoteBackend(self.engine, lambda name: self.service.read(self.service.store.standing, name))
        self.service = Service(database, self.fleet)
        self.service.adoption = Adoption(
            self.engine, nats.account, lambda id: self.service.read(access_point_of, database, id)
        )
        self.archivist = archive.Archivist(
            self.engine, self.service.archive, database, self.service.write, lambda: self.service.names
        )
        self.service.monitor.archive_problem = lambda: self.archivist.problem
        self.app = create_app(self.service)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Replica":
        await self.service.load([config(name) for name in NAMES])
        await self.fleet.listen()
        assert self.service.adoption is not None
        await self.service.adoption.listen()
        self.service.start()
        work = self.engine.run(), self.fleet.repair(), self.archivist.run()
        self._tasks = [*map(asyncio.create_task, work), *self.service.tasks()]
        await until(lambda: self.engine.connected)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.service.close()

    def client(self) -> httpx.AsyncClient:
        secret = self.service.store.new_token("admin", "admin")[1]
        transport = httpx.ASGITransport(self.app.state.guard, client=("192.0.2.7", 1))
        headers = {"authorization": f"Bearer {secret}"}
        return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers, timeout=60)

    async def desired(self, name: str, seconds: float = ANSWER_SECONDS) -> Desired | None:
        with contextlib.suppress(Unavailable):
            found = await self.engine.value(DESIRED, name, seconds)
            return parse(Desired, found[1]) if found else None
        return None


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[sa.Engine]:
    made = connect(f"sqlite:///{tmp_path / 'state.db'}")
    yield made
    made.dispose()


@pytest.fixture
async def replica(nats: Server, database: sa.Engine) -> AsyncIterator[Replica]:
    async with Replica(nats, database) as made:
        yield made


async def eventually(what: Any, seconds: float = 240.0) -> Any:
    """Waits until what it awaits is true."""
    async with asyncio.timeout(seconds):
        while not (found := await what()):
            await asyncio.sleep(0.05)
        return found


async def test_an_agent_reaches_its_own_subjects_and_no_others(replica: Replica, nats: Server) -> None:
    await eventually(lambda: replica.desired("ap.2"))
    heard: list[str] = []
    await replica.engine.subscribe("ap.*.history", lambda subject, data: heard.append(subject))
    async with connected(nats.agent("ap1")) as mine:
        assert await mine.value(DESIRED, "ap1", LONG) is not None
        with pytest.raises(Unavailable):
            await mine.value(DESIRED, "ap.2", 1.0)
        with pytest.raises(Unavailable):
            await mine.put(DESIRED, "ap1", b"{}", 0, 1.0)
        with pytest.raises(Unavailable):
            await mine.put(LEASE, "ap.2", b"{}", 0, 1.0)
        await mine.publish("ap.ap=2.history", b"another one's")
        await mine.request("ap.ap1.history", text(Samples(rows=[])), LONG)
        await until(lambda: heard)
        assert heard == ["ap.ap1.history"]
        assert mine.connected


async def test_only_one_of_two_puts_on_top_of_the_same(nats: Server, replica: Replica) -> None:
    await eventually(lambda: replica.desired("ap1"))
    async with connected(nats.agent("ap1")) as mine:
        first = await mine.put(LEASE, "ap1", b"1", 0, LONG)
        with pytest.raises(Conflict):
            await mine.put(LEASE, "ap1", b"2", 0, LONG)
        assert await mine.put(LEASE, "ap1", b"3", first, LONG) > first
        found = await mine.value(LEASE, "ap1", LONG)
        assert found is not None and found[1] == b"3"


async def test_what_somebody_else_wrote_into_the_engine_is_put_right(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    right = await eventually(lambda: replica.desired("ap1"))
    wrong = [
        b"not even JSON",
        text(Desired(revision=10**6, config={"name": "ap1"})),
        text(Desired(revision=0, config=None)),
    ]
    for data in (*wrong, right.model_copy(update={"version": 2}).model_dump_json().encode()):
        found = await replica.engine.value(DESIRED, "ap1", LONG)
        assert found is not None
        await replica.engine.put(DESIRED, "ap1", data, found[0], LONG)

        async def is_right() -> bool:
            with contextlib.suppress(Unusable):
                return await replica.desired("ap1") == right
            return False

        await eventually(is_right)
    assert "ap1: the engine says revision 1000000, unknown to the database" in caplog.text
    assert "it speaks version 2, and this release version 1: use the same release on both" in caplog.text
    # Of what nobody desires nothing stays.
    await replica.engine.put(DESIRED, "ghost", text(Desired(revision=1, config={"name": "ghost"})), 0, LONG)

    async def is_gone() -> bool:
        found = await replica.desired("ghost")
        return found is not None and found.config is None

    await eventually(is_gone)


async def test_a_removal_is_told_and_an_older_replica_does_not_undo_it(
    nats: Server, replica: Replica, database: sa.Engine
) -> None:
    await eventually(lambda: replica.desired("ap1"))
    async with replica.client() as client:
        assert (await client.delete("/api/v1/access-points/ap1")).status_code == 204

        async def is_gone(seconds: float = ANSWER_SECONDS) -> bool:
            found = await replica.desired("ap1", seconds)
            return found is not None and found.config is None

        await eventually(is_gone)
        async with Replica(nats, database) as second:
            # It hears late: what it has is older.
            second.fleet.desire("ap1", 1, config("ap1"))
            await asyncio.sleep(0.5)
            assert await is_gone(LONG)
            answer = await client.post("/api/v1/access-points", json=access_point(name="ap1", pipeline=PIPELINE))
            assert answer.status_code == 201, answer.text

            async def is_back() -> bool:
                found = await replica.desired("ap1")
                return found is not None and found.config is not None

            await eventually(is_back)


@pytest.mark.realtime
@pytest.mark.timeout(900)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "agents"])
async def test_200_concurrent_changes_at_two_replicas(
    elsewhere: bool, tmp_path: Path, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is lost, and each is answered right, with agents on machines of their own as without."""
    monkeypatch.setattr("accesspoint.controller.api.service.FOLLOW_SECONDS", 0.02)
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        if elsewhere:
            if reason := missing_engine():
                pytest.skip(reason)
            nats = stack.enter_context(server(tmp_path))
            for _ in range(2):
                made = await stack.enter_async_context(Replica(nats, database))
                clients.append(await stack.enter_async_context(made.client()))
        else:
            for _ in range(2):
                backend = LocalBackend(lambda name: None)
                service = Service(database, backend)
                await service.load([config(name, enabled=False) for name in NAMES])
                stack.push_async_callback(service.close)
                stack.push_async_callback(backend.stop)
                secret = service.store.new_token("admin", "admin")[1]
                transport = httpx.ASGITransport(create_app(service).state.guard, client=("192.0.2.7", 1))
                headers = {"authorization": f"Bearer {secret}"}
                client = httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers, timeout=60)
                clients.append(await stack.enter_async_context(client))
        path = "/api/v1/access-points/ap1/class-weights"
        lost, at_once = 0, asyncio.Semaphore(8)

        async def add_one(number: int) -> None:
            nonlocal lost
            client = clients[number % 2]
            while True:
                seen = await client.get(path)
                if seen.status_code == 200:
                    body = {"downlink": seen.json()["downlink"] + 1}
                    answer = await client.patch(path, json=body, headers={"if-match": seen.headers["etag"]})
                    if answer.status_code == 200:
                        return
                    assert answer.status_code in (409, 412, 429), answer.text
                    lost += answer.status_code == 412
                await asyncio.sleep(0.01)

        start = (await clients[0].get(path)).json()["downlink"]

        async def some(number: int) -> None:
            async with at_once:
                await add_one(number)

        await asyncio.gather(*(some(number) for number in range(200)))
        last = max([(await client.get(path)).json()["downlink"] for client in clients])
        assert last == start + 200
        assert lost, "nobody was ever in another one's way"


BEGAN = int(time.time()) + 36_000
"""Time of the first sample: old ones are removed once a minute, which a late test would meet."""


def sample(number: int) -> bytes:
    """Return a message of history: one sample of 1000 ms."""
    key: SampleKey = (1, "ap1", 1, BEGAN + number)
    return text(Samples.of({key: Bucket(1, 0, [0.0] * len(MEANS), [1000, *[1] * (len(SUMS) - 1)])}))


class Ending(dict[str, "asyncio.Future[Any]"]):
    """Requests of a client: whoever waits for one is cancelled when its answer is there, before it hears of that."""

    def __setitem__(self, request: str, answer: "asyncio.Future[Any]") -> None:
        asking = asyncio.current_task()
        assert asking
        answer.add_done_callback(lambda _: asking.cancel())
        super().__setitem__(request, answer)


async def test_a_cancellation_beside_an_answer_is_not_lost(nats: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.11's `wait_for` loses it, and with it the end of whoever asks for ever."""
    monkeypatch.setattr("accesspoint.controller.fleet.engine.ANSWER_SECONDS", LONG)
    async with connected(nats.client()) as mine:
        await mine.prepare(1)
        mine._client._resp_map = Ending()
        for ask in (mine.log_created(), mine.value(DESIRED, "ap1", LONG), mine.names(DESIRED)):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(ask)


async def test_history_is_written_once_by_two_replicas_with_the_engine_killed(
    nats: Server, replica: Replica, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(archive, "ASIDE_SECONDS", 0.05)
    monkeypatch.setattr(archive, "MAX_BATCH", 7)
    async with Replica(nats, database), connected(nats.agent("ap1")) as mine:
        for number in range(60):
            if number == 30:
                nats.kill()
                nats.start()

            async def said(number: int = number) -> bool:
                with contextlib.suppress(Unavailable):
                    await mine.log("ap.ap1.history", sample(number), f"m{number}")
                    return True
                return False

            await eventually(said)
            # Whoever does not know that it arrived says it again.
            await eventually(said)

        def written() -> list[int]:
            found = Archive(database).query("ap1", None, BEGAN, BEGAN + 100, 1)
            return [int(samples) for samples in found.get(1, {}).get("samples", ())]

        await until(lambda: len(written()) == 60)
        await asyncio.sleep(0.3)
        assert written() == [1] * 60


async def test_history_of_the_benchmark_waits_for_the_engine(nats: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be there before the service, which makes the log."""
    monkeypatch.setattr("accesspoint.controller.fleet.engine.ANSWER_SECONDS", LONG)
    service = nats.client()
    unsent: asyncio.Queue[tuple[str, bytes, str]] = asyncio.Queue()
    unsent.put_nowait(("ap.ap1.history", sample(1), "m1"))
    async with connected(service), connected(nats.agent("ap1")) as mine:
        keeping = asyncio.create_task(keep(mine, unsent))
        await asyncio.sleep(0.2)
        assert not keeping.done(), "it gave up"
        await service.prepare(1)

        async def is_kept() -> bool:
            with contextlib.suppress(Unavailable):
                return await service.next_logged(0, "ap.*.history") is not None
            return False

        await eventually(is_kept)
        keeping.cancel()


def test_what_stations_used_goes_through_the_engine() -> None:
    mine: dict[SampleKey, Bucket] = {
        (1, "ap1", 2, 1_700_000_000): Bucket(1, 5, [0.0] * len(MEANS), [7] * len(SUMS)),
        (60, "ap1", "02:00:00:00:00:0b", 1_700_000_040): Bucket(1, 0, [], [2**40, 3]),
    }
    data = text(Samples.of(mine))
    assert parse(Samples, data).buckets("ap1") == mine
    for old, new in (("02:00", "02-00"), ("[60,", "[61,"), (f"[{2**40},3]", "[1]"), ("1700000040", "2147483648")):
        bad = data.decode().replace(old, new)
        assert bad != data.decode()
        with pytest.raises(Unusable):
            parse(Samples, bad.encode()).buckets("ap1")


@pytest.mark.realtime
async def test_an_engine_that_falls_silent_is_missed(nats: Server, replica: Replica) -> None:
    async with replica.client() as client:

        async def history() -> Any:
            return (await client.get("/readyz")).json()["history"]

        async def good() -> bool:
            return await history() == "ok"

        await eventually(good)
        nats.stop()
        try:
            async with asyncio.timeout(15):
                while "is unreachable" not in await history():
                    await asyncio.sleep(0.2)
        finally:
            nats.go_on()
        await eventually(good)


async def observed() -> Observation:
    return await observe(config("ap1"))


async def test_what_an_agent_says_is_checked(nats: Server, replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen.model_construct(
        version=1, agent="me", revision=1, lost=3, problem=None, observation=await observed() | {"state": "ready"}
    )
    good = text(seen)
    bad = [
        b"",
        b"[]",
        b"\xff",
        good.replace(b'"version":1', b'"version":9'),
        good.replace(b'"ticks":0', b'"ticks":"x"'),
    ]
    # One agent's nonsense must not cost the metrics of all others.
    bad.append(good.replace(b'"stations_named":[]', b'"stations_named":[{}]'))
    bad.append(good.replace(b'"name":"ap1"', b'"name":"ap9"'))
    assert len({good, *bad}) == len(bad) + 1
    async with connected(nats.agent("ap1")) as mine, replica.client() as client:
        for data in bad:
            await mine.publish("ap.ap1.seen", data)
        await until(lambda: "it describes ap9" in caplog.text)
        answer = (await client.get("/api/v1/access-points/ap1")).json()
        assert answer["state"] == "connecting" and "no agent announced it" in answer["problem"]

        async def is_ready() -> bool:
            # A word that was heard is old after some seconds.
            await mine.publish("ap.ap1.seen", good)
            return (await client.get("/api/v1/access-points/ap1")).json()["state"] == "ready"

        await eventually(is_ready)
        assert "controller_lost_samples_total 3.0" in (await client.get("/metrics")).text
    assert "it speaks version 9, and this release version 1" in caplog.text
    assert replica.engine.connected


async def test_an_agent_that_announces_itself_waits_until_it_is_adopted(
    nats: Server, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It announces itself once here, and a busy machine takes its time until it is adopted.
    monkeypatch.setattr("accesspoint.controller.fleet.adoption.WAITING_SECONDS", 600.0)
    key = Key("U")
    said = Announcement(id=key.public, name="ap3", host="there", config=config("ap3"))
    enrol = nats.client(Credentials.load(nats.keys / "enrol.creds"))
    async with connected(enrol) as mine, replica.client() as client:
        announcement = said.model_dump_json(exclude_unset=True).encode()
        assert (await mine.request("fleet.announce", announcement, LONG)).data == b""
        with pytest.raises(Unavailable):
            await mine.value(DESIRED, "ap1", 1.0)
        waiting = (await client.get("/api/v1/agents")).json()
        assert [(each["id"], each["access_point"], each["offers"]) for each in waiting] == [(key.public, None, True)]
        path = f"/api/v1/agents/{key.public}"
        assert (
            await client.put(path.replace(key.public[5:9], "AAAA"), json={"access_point": "ap3"})
        ).status_code == 404
        adopted = await client.put(path, json={"access_point": "ap3"})
        assert adopted.status_code == 200 and adopted.json()["access_point"] == "ap3", adopted.text
        # What the agent said of itself.
        assert [port["port"] for port in (await client.get("/api/v1/access-points/ap3/config")).json()["ports"]] == [
            port["port"] for port in PORTS
        ]
        answer = json.loads((await mine.request("fleet.announce", announcement, LONG)).data)
        assert claims_of(answer["jwt"])["sub"] == key.public
        async with connected(nats.client(Credentials(key, answer["jwt"]))) as own:
            await eventually(lambda: own.value(DESIRED, "ap3", LONG))
        assert (await client.delete(path)).status_code == 204
        assert (await mine.request("fleet.announce", announcement, LONG)).data == b""


async def test_the_lease_gives_the_election_ids(
    nats: Server, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accesspoint.controller.agent.process.ELECTION_SECONDS", LONG)

    def made(number: int) -> Agent:
        options = Options(
            [nats.url], nats.keys / "ca.pem", nats.keys / "enrol.creds", tmp_path / f"{number}", "ap1", None
        )
        return Agent(options, lambda name: None)

    await eventually(lambda: replica.desired("ap1"))
    first, second = made(1), made(2)
    async with connected(nats.agent("ap1")) as one, connected(nats.agent("ap1")) as other:
        first._engine, second._engine = one, other
        held = await first._elect(0)
        assert held >= 1 << 32 and await second._elect(0) < 1 << 32
        # The switch tells the other one that nobody is primary any more.
        taken = await second._elect(held)
        assert taken > held
        # Who is back does not push it aside.
        assert await first._elect(0) < 1 << 32
    # Without the engine a takeover does not wait.
    assert await first._elect(taken) > taken


async def test_wrong_credentials_are_one_line(nats: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    init(tmp_path / "other", ["127.0.0.1"], "127.0.0.1:1")
    for keys, ca, line in (
        (tmp_path / "other", nats.keys, "it does not take these credentials"),
        (nats.keys, tmp_path / "other", "certificate verify failed"),
    ):
        caplog.clear()
        client = Engine([nats.url], ca / "ca.pem", Credentials.load(keys / "service.creds"), "test")
        running = asyncio.create_task(client.run())
        await until(lambda line=line, client=client: line in (client.problem or ""))  # type: ignore[misc]
        await asyncio.sleep(1.2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(lines) == 1, caplog.text


def test_keys_are_those_of_nats() -> None:
    key = Key("U")
    assert is_user(key.public) and key.seed.startswith("SU") and Key("U", key.seed).public == key.public
    assert not is_user("U" + "A" * 55) and not is_user(Key("A").public) and not is_user("")
    with pytest.raises(ValueError, match="another kind"):
        Key("A", key.seed)
    with pytest.raises(ValueError, match="checksum"):
        Key("U", key.seed[:20] + ("A" if key.seed[20] != "A" else "B") + key.seed[21:])
    claims = claims_of(agent(Key("A"), key.public, "a.b"))
    assert "$KV.lease.a=b" in claims["nats"]["pub"]["allow"] and ">" not in claims["nats"]["pub"]["allow"]


def test_an_agents_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(tmp_path / "state")
    assert disk.state(DESIRED_FILE) is None and disk.adopted() is None
    desired = Desired(revision=7, config=config("ap1").model_dump(mode="json"))
    disk.keep(DESIRED_FILE, desired)
    again = Disk(tmp_path / "state")
    assert again.key.public == disk.key.public and again.state(DESIRED_FILE) == desired
    assert (tmp_path / "state/identity").stat().st_mode & 0o77 == 0
    # Half a file, or another release's.
    for damaged in (text(desired)[:-20], b'{"version": 9}', b"\xff\xfe"):
        (tmp_path / "state/desired.json").write_bytes(damaged)
        assert again.state(DESIRED_FILE) is None
    assert "desired.json" in caplog.text
    (tmp_path / "state/desired.json").write_bytes(b" " * 2_000_000)
    with pytest.raises(ConfigError, match="longer than anything"):
        again.state(DESIRED_FILE)
    (tmp_path / "state/identity").write_text("nonsense")
    with pytest.raises(ConfigError, match="remove it to start over"):
        Disk(tmp_path / "state")
    with pytest.raises(ConfigError, match="name a folder with --state"):
        Disk(tmp_path / "state/identity")


def test_an_engine_is_not_made_twice(tmp_path: Path) -> None:
    init(tmp_path / "engine", ["engine.example", "192.0.2.1"], "0.0.0.0:4222")
    with pytest.raises(ConfigError, match="exists already"):
        init(tmp_path / "engine", ["127.0.0.1"], "127.0.0.1:1")
    assert {path.stat().st_mode & 0o77 for path in (tmp_path / "engine").iterdir()} == {0}
