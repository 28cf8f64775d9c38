# SPDX-License-Identifier: Apache-2.0
"""Access control: tokens, roles, sessions, limits, audit; only health needs no token."""

import asyncio
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accesspoint.checks.harness.switches import ROOT
from accesspoint.checks.harness.waiting import until
from accesspoint.controller.api import events, examples, security
from accesspoint.controller.api.security import FAILURES_AT_ONCE, LOGINS_AT_ONCE, TokenBucket
from accesspoint.controller.config import AccessPointConfig
from accesspoint.controller.state import store as store_module

from .application import AP, Api
from .test_config import access_point
from .test_entries import PIPELINE


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """With one access point that is not enabled."""
    made = Api(tmp_path)
    await made.start(AccessPointConfig.model_validate(access_point(pipeline=PIPELINE, enabled=False)))
    yield made
    await made.backend.stop()
    await made.service.close()


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops the clock of limits: what was taken comes back with time, which a busy machine takes."""
    now = time.monotonic()
    monkeypatch.setattr(security, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))


async def test_nothing_is_open_but_health(api: Api) -> None:
    async with api.client(None) as client:
        for path in ("/healthz", "/readyz"):
            assert (await client.get(path)).status_code == 200
        for path, methods in api.app.openapi()["paths"].items():
            # Whatever it names: who may not ask is not told whether it is there.
            where = re.sub(r"\{\w+\}", "ap1", path)
            for method in methods:
                answer = await client.request(method, where)
                if (method, path) in (("get", "/healthz"), ("get", "/readyz"), ("post", "/api/v1/session")):
                    continue
                assert answer.status_code in (401, 429), f"{method} {path}"
                assert answer.status_code == 429 or answer.headers["www-authenticate"].startswith("Bearer")
        for path in ("/openapi.json", "/metrics", "/nothing"):
            assert (await client.get(path)).status_code in (401, 429)


ROLES: list[tuple[str, str, str, object, int]] = [
    ("viewer", "GET", f"{AP}/ncr", None, 200),
    ("viewer", "PATCH", f"{AP}/ncr", {"alpha": 0.1}, 403),
    ("viewer", "GET", "/api/v1/audit", None, 403),
    ("operator", "PATCH", f"{AP}/ncr", {"alpha": 0.1}, 200),
    ("operator", "PATCH", f"{AP}/config", {"enabled": False}, 403),
    ("operator", "DELETE", AP, None, 403),
    ("operator", "GET", "/api/v1/tokens", None, 403),
    ("operator", "POST", "/api/v1/tokens", {"name": "x", "role": "admin"}, 403),
    ("admin", "GET", "/api/v1/tokens", None, 200),
    ("admin", "DELETE", AP, None, 204),
]


async def test_each_role_may_do_its_part(api: Api) -> None:
    for role, method, path, body, code in ROLES:
        async with api.client(role) as client:
            assert (await client.request(method, path, json=body)).status_code == code, f"{role} {method} {path}"


async def test_a_token_is_told_once_kept_as_a_hash_and_can_be_revoked(api: Api, tmp_path: Path) -> None:
    async with api.client() as admin:
        made = (await admin.post("/api/v1/tokens", json={"name": "grafana", "role": "viewer"})).json()
        assert made["expires"] == pytest.approx(time.time() + 90 * 86_400, abs=60)
        assert "token" not in (await admin.get("/api/v1/tokens")).json()[-1]
        bearer = {"authorization": f"Bearer {made['token']}"}
        async with api.client(None, **bearer) as viewer:
            assert (await viewer.get("/api/v1/session")).json()["name"] == "grafana"
            assert (await admin.delete(f"/api/v1/tokens/{made['id']}")).status_code == 204
            assert (await viewer.get("/api/v1/session")).status_code == 401
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    assert made["token"].encode() not in kept
    assert made["name"].encode() in kept


async def test_a_token_expires(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api.client() as admin:
        body = {"name": "short", "role": "viewer", "expires_in": 60}
        secret = (await admin.post("/api/v1/tokens", json=body)).json()["token"]
    async with api.client(None, authorization=f"Bearer {secret}") as viewer:
        assert (await viewer.get("/api/v1/session")).status_code == 200
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 60.1)
        assert (await viewer.get("/api/v1/session")).status_code == 401


async def test_the_last_admin_stays(api: Api) -> None:
    async with api.client() as admin:
        mine = next(token for token in (await admin.get("/api/v1/tokens")).json() if token["role"] == "admin")
        assert (await admin.delete(f"/api/v1/tokens/{mine['id']}")).status_code == 409


async def test_a_token_made_beside_the_controller_is_known_soon(api: Api) -> None:
    async with api.client() as admin:
        assert (await admin.get("/api/v1/session")).status_code == 200
    time.sleep(1.1)
    _, secret = api.service.store.new_token("console", "viewer")
    async with api.client(None, authorization=f"Bearer {secret}") as viewer:
        assert (await viewer.get("/api/v1/session")).status_code == 200


async def test_the_secret_of_a_repeated_request_is_not_told_again(api: Api) -> None:
    async with api.client() as admin:
        sent = {"json": {"name": "x", "role": "viewer"}, "headers": {"idempotency-key": "k"}}
        assert (await admin.post("/api/v1/tokens", **sent)).status_code == 201  # type: ignore[arg-type]
        again = await admin.post("/api/v1/tokens", **sent)  # type: ignore[arg-type]
    assert again.status_code == 409
    assert "ap_" not in again.text


async def test_a_browser_gets_a_session_that_other_sites_cannot_use(api: Api) -> None:
    async with api.client(None) as browser:
        assert (await browser.post("/api/v1/session", json={"token": "ap_wrong"})).status_code == 401
        opened = await browser.post("/api/v1/session", json={"token": api.secrets["operator"]})
        assert opened.status_code == 201
        cookie = opened.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert (await browser.get(AP)).status_code == 200
        same = {"origin": "http://test", "sec-fetch-site": "same-origin"}
        assert (await browser.patch(f"{AP}/ncr", json={"alpha": 0.1}, headers=same)).status_code == 200
        for foreign in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            refused = await browser.patch(f"{AP}/ncr", json={"alpha": 0.2}, headers=foreign)
            assert (refused.status_code, "another site" in refused.json()["detail"]) == (403, True)
            login = await browser.post("/api/v1/session", json={"token": api.secrets["viewer"]}, headers=foreign)
            assert login.status_code == 403
        assert (await browser.get(f"{AP}/ncr")).json()["alpha"] == 0.1
        assert (await browser.delete("/api/v1/session", headers=same)).status_code == 204
        browser.cookies.clear()
        browser.cookies.set("session", opened.cookies["session"])
        assert (await browser.get(AP)).status_code == 401


async def test_a_revoked_token_ends_its_sessions(api: Api) -> None:
    async with api.client() as admin, api.client(None) as browser:
        made = (await admin.post("/api/v1/tokens", json={"name": "page", "role": "viewer"})).json()
        assert (await browser.post("/api/v1/session", json={"token": made["token"]})).status_code == 201
        assert (await browser.get(AP)).status_code == 200
        assert (await admin.delete(f"/api/v1/tokens/{made['id']}")).status_code == 204
        assert (await browser.get(AP)).status_code == 401


@pytest.mark.usefixtures("stopped")
async def test_guessing_is_slowed_down_and_does_not_shut_out_others(api: Api) -> None:
    async with api.client(None, authorization="Bearer ap_guess") as guesser, api.client("viewer") as viewer:
        codes = [(await guesser.get(AP)).status_code for _ in range(int(FAILURES_AT_ONCE) + 5)]
        assert codes[0] == 401
        refused = await guesser.get(AP)
        assert (codes[-1], refused.status_code) == (429, 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert (await viewer.get(AP)).status_code == 200


def test_a_bucket_lets_through_its_rate() -> None:
    bucket = TokenBucket(2.0, 0.0)
    assert [bucket.take(1.0, 2.0, 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert bucket.take(1.0, 2.0, 1.0) == 0.0
    assert bucket.take(1.0, 2.0, 1.5) == pytest.approx(0.5)
    assert [bucket.take(1.0, 2.0, 100.0) for _ in range(3)] == [0.0, 0.0, 1.0]


async def test_every_change_stands_in_the_audit_log(api: Api, tmp_path: Path) -> None:
    async with api.client("operator") as operator, api.client() as admin:
        await operator.patch(f"{AP}/class-weights", json={"downlink": 8})
        await operator.patch(f"{AP}/class-weights", json={"downlink": -8})
        await admin.post("/api/v1/tokens", json={"name": "x", "role": "viewer"})
        answer = await admin.get("/api/v1/audit?limit=1")
        assert (answer.headers["x-total-count"], answer.json()[0]["path"]) == ("2", "/api/v1/tokens")
        line = (await admin.get("/api/v1/audit?offset=1")).json()[0]
    assert line["actor"].startswith("operator (")
    assert (line["client"], line["action"], line["change"]) == ("192.0.2.7", "PATCH", {"downlink": 8})
    with sqlite3.connect(tmp_path / "state.db") as database:
        assert database.execute("SELECT count(*) FROM audit").fetchone() == (2,)
    database.close()


async def test_headers_protect_browsers(api: Api) -> None:
    async with api.client("viewer") as client:
        for path in (AP, "/nothing", "/healthz"):
            headers = (await client.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert "default-src 'self'" in headers["content-security-policy"]
        assert (await client.get(AP)).headers["cache-control"] == "no-store"
        assert (await client.get(f"{AP}/ncr")).headers["cache-control"] == "no-cache"


@pytest.mark.usefixtures("stopped")
async def test_one_token_cannot_ask_without_end(api: Api) -> None:
    api.app.state.guard._rate = 5.0
    async with api.client("viewer") as client, api.client("operator") as other:
        codes = [(await client.get("/api/v1/session")).status_code for _ in range(30)]
        assert codes[:10] == [200] * 10
        assert 429 in codes
        assert (await other.get("/api/v1/session")).status_code == 200


@pytest.mark.usefixtures("stopped")
async def test_logins_are_limited_and_leave_few_sessions(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"token": api.secrets["viewer"]}
    async with api.client(None) as browser, api.client("viewer") as viewer:
        codes = [(await browser.post("/api/v1/session", json=body)).status_code for _ in range(int(LOGINS_AT_ONCE) + 5)]
        assert codes[: int(LOGINS_AT_ONCE)] == [201] * int(LOGINS_AT_ONCE)
        assert codes[-1] == 429
        assert (await viewer.get(AP)).status_code == 200
    monkeypatch.setattr(store_module, "MAX_SESSIONS", 3)
    store = api.service.store
    parent = next(token for token in store.tokens().values() if token.role == "viewer" and token.kind == "token")
    made = [store.new_token("v", "viewer", kind="session", parent=parent.id)[0].id for _ in range(5)]
    assert {token.id for token in store.tokens().values() if token.kind == "session"} == set(made[-3:])


@pytest.mark.usefixtures("stopped")
async def test_failed_logins_are_told_but_do_not_fill_the_log(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    async with api.client(None) as guesser:
        for _ in range(5):
            await guesser.post("/api/v1/session", json={"token": "ap_guess"})
    told = [record.getMessage() for record in caplog.records if "no valid token" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("/api/v1/session from 192.0.2.7: no valid token")
    assert "ap_guess" not in told[0]


async def test_no_file_that_a_client_names_is_opened(api: Api, tmp_path: Path) -> None:
    """An admin's token is not a way to the files of the machine: not even whether they are there is told."""
    outside = tmp_path / "secret.json"
    outside.write_text("{}")
    inside = ROOT / "p4src"
    link = inside / "link.json"
    link.symlink_to(outside)
    try:
        async with api.client() as admin:
            for path in (outside, tmp_path / "missing", link, inside / ".." / "Makefile", Path("/dev/zero")):
                new = access_point(pipeline={**PIPELINE, "device_config": str(path)}) | {"name": "ap2"}
                for method, where, body in (
                    ("POST", "/api/v1/access-points", new),
                    ("PATCH", f"{AP}/config", {"pipeline": {"device_config": str(path)}}),
                    ("PUT", f"{AP}/config", new | {"name": "ap1"}),
                    ("PATCH", f"{AP}/config", {"tls": {"ca": str(path), "cert": str(path), "key": str(path)}}),
                ):
                    for query in ("", "?validate=true"):
                        answer = await admin.request(method, where + query, json=body)
                        detail = answer.json()["detail"]
                        assert (answer.status_code, "not in p4src, the folder" in detail) == (422, True), detail
                        assert "no such file" not in detail
            missing = {"pipeline": {"device_config": str(inside / "missing.json")}}
            answer = await admin.patch(f"{AP}/config", json=missing)
            assert (answer.status_code, "no such file" in answer.json()["detail"]) == (422, True)
    finally:
        link.unlink()


async def test_what_the_configuration_file_names_may_be_anywhere(tmp_path: Path) -> None:
    """It is the operator's own; a change over REST of something else leaves it alone."""
    elsewhere = {name: str(shutil.copy(path, tmp_path)) for name, path in PIPELINE.items()}
    api = Api(tmp_path)
    await api.start(AccessPointConfig.model_validate(access_point(pipeline=elsewhere, enabled=False)))
    async with api.client() as admin:
        assert (await admin.patch(f"{AP}/config", json={"device_id": 5})).status_code == 200
    await api.backend.stop()
    await api.service.close()


async def test_one_token_has_a_part_of_the_streams(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_STREAMS_PER_TOKEN", 2)
    async with api.client("viewer") as viewer, api.client("operator") as operator:
        streams = api.app.state.streams

        async def opened(number: int) -> None:
            await until(lambda: sum(streams.by_token.values()) >= number)

        asking = [asyncio.create_task(viewer.get("/api/v1/events")) for _ in range(2)]
        await opened(2)
        async with asyncio.timeout(240):
            assert (await viewer.get("/api/v1/events")).status_code == 429
        asking.append(asyncio.create_task(operator.get("/api/v1/events")))
        await opened(3)
        streams.closing.set()
        assert [answer.status_code for answer in await asyncio.gather(*asking)] == [200] * 3
    assert not api.app.state.streams.by_token


async def test_a_login_is_short(api: Api) -> None:
    async with api.client(None) as client:
        for body in (b'{"token":' + b"[" * 400_000, b'{"token":"' + b"x" * 5000 + b'"}'):
            answer = await client.post("/api/v1/session", content=body, headers={"content-type": "application/json"})
            assert (answer.status_code, "larger than 4096 bytes" in answer.json()["detail"]) == (413, True)
        assert (await client.post("/api/v1/session", json={"token": "ap_wrong"})).status_code == 401


async def test_long_lists_are_sorted_beside_the_event_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions and learning are on it: a crowd that asks for all flows must not keep them waiting."""
    assert await api.service.compute(threading.get_ident) != threading.get_ident()
    flow, station = (examples.EXAMPLES[name] for name in ("FlowObservation", "StationObservation"))
    api.service.monitor._lists["flows", "ap1"] = (float("inf"), [flow | {"flow_index": index} for index in range(5)])
    api.service.monitor._lists["stations", "ap1"] = (float("inf"), [station])
    compute, computed = api.service.compute, list[object]()

    async def counting(call: Any) -> Any:
        answer = await compute(call)
        computed.append(answer)
        return answer

    monkeypatch.setattr(api.service, "compute", counting)
    async with api.client("viewer") as viewer:
        for number, path in enumerate(("flows?sort=-rate_bps", "flows", "stations?sort=-bytes_up", "stations")):
            assert (await viewer.get(f"{AP}/{path}")).status_code == 200
            assert len(computed) == number + 1, path
