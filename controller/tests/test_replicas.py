# SPDX-License-Identifier: Apache-2.0
"""Two replicas of the service on one database: changes at both, and none is lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from accesspoint.checks.harness.waiting import free_port, until
from accesspoint.controller.config import AccessPointConfig
from accesspoint.controller.state.store import Change, LastAdmin, Store

from .application import AP, CHANGE, Api
from .test_config import access_point
from .test_entries import PIPELINE

CHANGES = 200


def config(**fields: Any) -> AccessPointConfig:
    """Return an access point that is not enabled."""
    return AccessPointConfig.model_validate(access_point(pipeline=PIPELINE, enabled=False, **fields))


@pytest.fixture
async def replicas(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Api, Api]]:
    """Two, with one access point that is not enabled."""
    # A busy machine needs longer for the same number of tries.
    monkeypatch.setattr("accesspoint.controller.api.service.MAX_RETRY_SECONDS", 600.0)
    first, second = Api(engine), Api(engine)
    for each in (first, second):
        await each.start(config())
    yield first, second
    for each in (first, second):
        await each.backend.stop()
        await each.service.close()


async def test_of_changes_with_one_tag_one_is_made(replicas: tuple[Api, Api]) -> None:
    clients = [replica.client() for replica in replicas]
    path = f"{AP}/class-weights"
    tag = (await clients[0].get(path)).headers["etag"]
    answers = await asyncio.gather(
        *(
            clients[number % 2].patch(path, json={"downlink": 100 + number}, headers={"if-match": tag})
            for number in range(CHANGES)
        )
    )
    codes = [answer.status_code for answer in answers]
    assert (codes.count(200), codes.count(412)) == (1, CHANGES - 1)
    kept = answers[codes.index(200)].json()
    # Who was refused is told what it is now, and both replicas say the same.
    assert {answer.headers["etag"] for answer in answers} == {answers[codes.index(200)].headers["etag"]}
    revisions = (await clients[1].get(f"{AP}/revisions")).json()
    assert [entry["config"].get("class_weights") for entry in revisions] == [{"downlink": kept["downlink"]}, None]


@pytest.mark.long
async def test_concurrent_changes_at_both_are_all_made(replicas: tuple[Api, Api]) -> None:
    """Each reads, adds one, and writes with If-Match until it is done."""
    clients = [replica.client() for replica in replicas]
    path = f"{AP}/class-weights"
    waiting = asyncio.Semaphore(8)
    made, refused = 0, 0

    async def change(client: httpx.AsyncClient) -> None:
        nonlocal made, refused
        async with waiting:
            while True:
                before = await client.get(path)
                body = {"downlink": before.json()["downlink"] + 1}
                answer = await client.patch(path, json=body, headers={"if-match": before.headers["etag"]})
                if answer.status_code == 200:
                    assert answer.json()["downlink"] == body["downlink"]
                    made += 1
                    return
                assert answer.status_code == 412, answer.text
                refused += 1

    await asyncio.gather(*(change(clients[number % 2]) for number in range(CHANGES)))
    print(f"{made} made, {refused} refused")
    assert made == CHANGES and refused > 0
    await replicas[0].service.change("ap1", CHANGE, lambda: replicas[0].service.wanted["ap1"])
    assert (await clients[0].get(path)).json()["downlink"] == 4 + CHANGES


async def test_changes_without_a_tag_are_made_on_top_of_each_other(replicas: tuple[Api, Api]) -> None:
    clients = [replica.client() for replica in replicas]
    rules = [{"name": f"r{number}", "class_id": 3, "priority": 1000 + number} for number in range(CHANGES)]
    answers = await asyncio.gather(
        *(clients[number % 2].put(f"{AP}/rules/{rule['name']}", json=rule) for number, rule in enumerate(rules))
    )
    assert [answer.status_code for answer in answers] == [200] * CHANGES
    found = replicas[0].service.store.access_point("ap1")
    assert found is not None
    assert {rule["name"] for rule in found[0]["rules"]} == {rule["name"] for rule in rules}


async def test_a_change_that_others_come_before_is_made_in_the_end(
    replicas: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that loses once is behind, and loses again: 60 times here."""
    slow, quick = (replica.service for replica in replicas)
    put, left = slow.store.put, 60

    def beaten(config: AccessPointConfig, based_on: int | None, change: Change) -> int:
        nonlocal left
        if left:
            left -= 1
            found = quick.store.access_point("ap1")
            assert found is not None
            quick.store.put(AccessPointConfig.model_validate(found[0]), found[1], CHANGE)
        return put(config, based_on, change)

    monkeypatch.setattr(slow.store, "put", beaten)
    answer = await replicas[0].client().patch(f"{AP}/class-weights", json={"downlink": 77})
    assert (answer.status_code, left) == (200, 0)
    found = quick.store.access_point("ap1")
    assert found is not None and found[0]["class_weights"] == {"downlink": 77}


async def test_of_two_that_add_one_access_point_one_does(replicas: tuple[Api, Api]) -> None:
    clients = [replica.client() for replica in replicas]
    bodies = [
        access_point(pipeline=PIPELINE, enabled=False, device_id=7 + number) | {"name": "ap2"} for number in (0, 1)
    ]
    answers = await asyncio.gather(
        *(client.post("/api/v1/access-points", json=body) for client, body in zip(clients, bodies, strict=True))
    )
    assert sorted(answer.status_code for answer in answers) == [201, 409]


async def test_a_request_that_goes_to_both_is_done_once(replicas: tuple[Api, Api], engine: sa.Engine) -> None:
    made = replicas[0].service.store.new_token("both", "admin")[1]
    clients = [replica.client(None, authorization=f"Bearer {made}") for replica in replicas]
    await asyncio.sleep(1.1)  # until both know the token
    body = access_point(pipeline=PIPELINE, enabled=False) | {"name": "ap2"}
    sent: dict[str, Any] = {"json": body, "headers": {"idempotency-key": "k"}}
    answers = await asyncio.gather(*(clients[n % 2].post("/api/v1/access-points", **sent) for n in range(20)))
    first = [answer for answer in answers if answer.status_code == 201 and "idempotent-replayed" not in answer.headers]
    others = {answer.json().get("detail", "replayed") for answer in answers if answer is not first[0]}
    assert len(first) == 1
    assert others <= {"replayed", "the first request with this key is still on its way"}
    for client in clients:
        again = await client.post("/api/v1/access-points", **sent)
        assert (again.status_code, again.content) == (201, first[0].content)
    assert Store(engine).revisions_of("ap2", 10, 0)[1] == 1


async def test_of_two_last_admins_one_stays(engine: sa.Engine) -> None:
    stores = Store(engine), Store(engine)
    tokens = [stores[0].new_token(f"admin{number}", "admin")[0] for number in range(2)]

    async def revoke(number: int) -> bool:
        try:
            await asyncio.to_thread(stores[number].revoke, tokens[number].id)
        except LastAdmin:
            return False
        return True

    assert sorted(await asyncio.gather(revoke(0), revoke(1))) == [False, True]
    assert sum(token.revoked is None for token in stores[0].tokens().values()) == 1


async def test_a_start_without_a_file_changes_nothing(tmp_path: Path) -> None:
    first = Api(tmp_path)
    await first.start(config())
    async with first.client() as client:
        await client.patch(f"{AP}/class-weights", json={"downlink": 9})
    await first.service.close()
    second = Api(tmp_path)
    await second.service.load(None)
    assert second.service.names == ["ap1"]
    assert second.service.config("ap1").class_weights.downlink == 9
    third = Api(tmp_path)
    await third.service.load([config()])
    assert third.service.config("ap1").class_weights.downlink == 9
    for each in (second, third):
        await each.service.close()


async def test_adding_beside_a_change_of_the_defaults_leaves_no_ghost(tmp_path: Path) -> None:
    api = Api(tmp_path)
    await api.start(config())
    try:
        async with api.client() as client:
            for number in range(20):
                body = access_point(pipeline=PIPELINE, enabled=False) | {"name": f"new{number}"}
                added, changed = await asyncio.gather(
                    client.post("/api/v1/access-points", json=body),
                    client.patch("/api/v1/ncr-defaults", json={"alpha": 0.01 + number / 1000}),
                )
                assert (added.status_code, changed.status_code) == (201, 200)
                found = await client.get(f"/api/v1/access-points/new{number}/ncr")
                assert (found.status_code, found.json()["alpha"]) == (200, 0.01 + number / 1000)
        await until(lambda: sorted(api.backend.access_points) == api.service.names)
    finally:
        await api.backend.stop()
        await api.service.close()


async def test_what_the_database_refuses_was_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said to be unchanged that has changed, and no session begins for what is not kept."""
    api = Api(tmp_path)
    await api.start(config())
    began: list[str] = []

    def full(*_: Any) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    def desire(name: str, revision: int, config: AccessPointConfig | None) -> None:
        began.append(name)

    try:
        async with api.client() as client:
            monkeypatch.setattr("accesspoint.controller.state.store.audit_line", full)
            monkeypatch.setattr(api.backend, "desire", desire)
            body = access_point(pipeline=PIPELINE, address=f"127.0.0.1:{free_port()}") | {"name": "ap2"}
            assert (await client.post("/api/v1/access-points", json=body)).status_code == 503
            answer = await client.patch(f"{AP}/config", json={"enabled": True, "device_id": 9})
            assert answer.status_code == 503
            assert began == []
            monkeypatch.undo()
            # It is removed with its history, or not at all.
            monkeypatch.setattr("accesspoint.controller.state.store.delete_series", full)
            assert (await client.delete(AP)).status_code == 503
            assert (await client.get(AP)).status_code == 200
            assert [entry["name"] for entry in api.service.store.access_points()] == ["ap1"]
            monkeypatch.undo()
            assert (await client.delete(AP)).status_code == 204
    finally:
        await api.backend.stop()
        await api.service.close()
