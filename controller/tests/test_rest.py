# SPDX-License-Identifier: Apache-2.0
"""The API of a controller whose switch is away: what needs no switch works, what needs one says so."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from controller import config as configuration
from controller import observation
from controller.api import examples, models
from controller.api.app import create_app
from controller.api.service import Service
from controller.config import AccessPointConfig
from controller.control import Control
from controller.state.database import connect
from controller.state.store import Change

from .switches import free_port
from .test_config import access_point
from .test_entries import PIPELINE

AP = "/api/v1/access-points/ap1"
CHANGE = Change("test", "127.0.0.1", "POST", "/", 201, None)


class Api:
    """An application over a new database, and clients of each role."""

    def __init__(self, directory: Path) -> None:
        self.control = Control(lambda name: None)
        self.service = Service(connect(f"sqlite:///{directory / 'state.db'}"), self.control)
        self.app = create_app(self.service)
        self.secrets: dict[str, str] = {}

    async def start(self, *configs: AccessPointConfig) -> None:
        await self.service.load(configs)
        for role in ("viewer", "operator", "admin"):
            self.secrets[role] = self.service.store.new_token(role, role)[1]
        self.service.start()

    def client(self, role: str | None = "admin", **headers: str) -> httpx.AsyncClient:
        if role:
            headers["authorization"] = f"Bearer {self.secrets[role]}"
        transport = httpx.ASGITransport(self.app.state.guard, client=("192.0.2.7", 1))
        return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """With one access point that keeps trying to connect."""
    made = Api(tmp_path)
    config = access_point(pipeline=PIPELINE, address=f"127.0.0.1:{free_port()}", rules=[{"name": "dns", "class_id": 3}])
    await made.start(AccessPointConfig.model_validate(config))
    yield made
    await made.control.stop()
    await made.service.close()


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    """An admin's."""
    async with api.client() as made:
        yield made


async def test_it_says_what_keeps_it_from_being_ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(10):
        while True:
            answer = (await client.get(AP)).json()
            if answer["problem"]:
                break
            await asyncio.sleep(0.02)
    assert answer["state"] == "connecting"
    assert "no P4Runtime switch answers at 127.0.0.1:" in answer["problem"]
    refused = await client.get(f"{AP}/counters")
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json() == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": answer["problem"],
        "instance": f"{AP}/counters",
    }


READABLE = (
    "", "/config", "/stations", "/flows", "/classes", "/class-weights", "/rules", "/rules/dns", "/features", "/ncr",
    "/ports", "/ports/2", "/feedback", "/history",
)  # fmt: skip


async def test_what_is_known_can_be_read_without_a_switch(client: httpx.AsyncClient) -> None:
    assert [(await client.get(AP + path)).status_code for path in READABLE] == [200] * len(READABLE)


async def test_history_has_nothing_of_what_is_away(api: Api) -> None:
    sampling = asyncio.create_task(api.service.sample())
    await asyncio.sleep(1.2)
    sampling.cancel()
    assert "ap1" in api.service.seen
    assert api.service.recorder.take(everything=True) == {}


BAD: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/api/v1/access-points/nobody", None, 404, "no access point nobody; there are: ap1"),
    ("GET", "/api/v1/nothing", None, 404, "Not Found"),
    ("DELETE", f"{AP}/ncr", None, 405, "Method Not Allowed"),
    ("PATCH", f"{AP}/ncr", {"gamma": -1}, 422, "body.gamma: Input should be greater than or equal to 0"),
    ("PATCH", f"{AP}/ncr", {"gama": 1}, 422, "body.gama: Extra inputs are not permitted"),
    ("PATCH", f"{AP}/features", {"gate": {"9": {"buffer": 5, "batch": 1}}}, 422, "`gate` names port 9"),
    ("PATCH", f"{AP}/features", {"gate": {"2": {"buffer": 5, "batch": 9}}}, 422, "batch 9 is larger"),
    ("PATCH", f"{AP}/class-weights", {"uplink": 0}, 422, "body.uplink: Input should be greater than 0"),
    ("PATCH", f"{AP}/config", {"ports": None}, 422, "ports: Field required"),
    ("PATCH", f"{AP}/config", {"name": "ap2"}, 422, "body.name: Extra inputs are not permitted"),
    ("PATCH", f"{AP}/flows/7", {"weight": 2}, 404, "no flow has index 7"),
    ("PATCH", f"{AP}/flows/x", {"weight": 2}, 422, "path.flow_index"),
    ("PUT", f"{AP}/rules/a", {"name": "b", "class_id": 1}, 422, "the path names rule a, the body b"),
    ("PUT", f"{AP}/rules/a", {"name": "a"}, 422, "body.class_id: Field required"),
    ("PUT", f"{AP}/rules/a", {"name": "a", "class_id": 8}, 422, "body.class_id"),
    ("DELETE", f"{AP}/rules/nobody", None, 404, "no rule nobody"),
    ("GET", f"{AP}/ports/9", None, 404, "ap1 has no port 9"),
    ("GET", f"{AP}/flows?limit=100000", None, 422, "query.limit"),
    ("GET", f"{AP}/history?start=9&end=8", None, 422, "query.start: not before `end`"),
    ("GET", f"{AP}/history?resolution=7", None, 422, "query.resolution"),
    ("POST", "/api/v1/access-points", {"name": "ap1", "ports": []}, 422, "body.ports"),
    ("DELETE", "/api/v1/tokens/nobody", None, 404, "no token has the id nobody"),
]


async def test_bad_input_is_told(client: httpx.AsyncClient) -> None:
    for method, path, body, code, words in BAD:
        answer = await client.request(method, path, json=body)
        assert answer.status_code == code, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert words in answer.json()["detail"]


async def test_a_body_that_is_no_json_or_too_large(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json"}
    answer = await client.patch(f"{AP}/ncr", content=b'{"gamma": ', headers=headers)
    assert (answer.status_code, answer.json()["detail"].split(":")[:2]) == (422, ["body", " not JSON"])
    assert (await client.patch(f"{AP}/ncr", content=b" " * 1_000_001, headers=headers)).status_code == 413


async def test_a_change_is_kept_for_when_the_switch_is_back(client: httpx.AsyncClient) -> None:
    assert (await client.patch(f"{AP}/ncr", json={"queue_target_ms": 5})).json()["queue_target_ms"] == 5
    assert (await client.patch(f"{AP}/features", json={"sparse": False})).json()["sparse"] is False
    assert (await client.patch(f"{AP}/class-weights", json={"downlink": 9})).json() == {
        "downlink": 9,
        "uplink": 1,
        "other": 1,
    }
    assert (await client.put(f"{AP}/rules/a", json={"name": "a", "class_id": 5})).status_code == 200
    assert [rule["name"] for rule in (await client.get(f"{AP}/rules")).json()] == ["dns", "a"]
    assert (await client.delete(f"{AP}/rules/dns")).status_code == 204
    assert [rule["name"] for rule in (await client.get(f"{AP}/rules")).json()] == ["a"]
    assert (await client.get(f"{AP}/features")).json()["sparse"] is False


async def test_access_points_come_and_go(client: httpx.AsyncClient, api: Api) -> None:
    body = access_point(pipeline=PIPELINE, address=f"127.0.0.1:{free_port()}") | {"name": "ap2", "enabled": False}
    made = await client.post("/api/v1/access-points", json=body)
    assert (made.status_code, made.headers["location"]) == (201, "/api/v1/access-points/ap2")
    assert (await client.post("/api/v1/access-points", json=body)).status_code == 409
    assert (await client.get("/api/v1/access-points/ap2")).json()["state"] == "stopped"
    assert [ap["name"] for ap in (await client.get("/api/v1/access-points?state=stopped")).json()] == ["ap2"]
    assert (await client.patch("/api/v1/access-points/ap2/config", json={"enabled": True})).status_code == 200
    assert (await client.get("/api/v1/access-points/ap2")).json()["state"] == "connecting"
    assert (await client.delete("/api/v1/access-points/ap2")).status_code == 204
    assert (await client.get("/api/v1/access-points/ap2")).status_code == 404
    assert sorted(api.control.access_points) == ["ap1"]
    wrong = access_point(pipeline=PIPELINE) | {"name": "ap3", "ports": [{**body["ports"][0], "port": 0}]}
    refused = await client.post("/api/v1/access-points", json=wrong)
    assert (refused.status_code, "port 0 is none of" in refused.json()["detail"]) == (422, True)


async def test_the_law_of_feedback_is_chosen(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{AP}/ncr")).json()["law"] == "pi2"
    changed = await client.patch(f"{AP}/ncr", json={"law": "paper", "kappa2": 1.0})
    assert (changed.json()["law"], changed.json()["kappa2"]) == ("paper", 1.0)
    assert (await client.patch(f"{AP}/ncr", json={"law": "pi3"})).status_code == 422
    assert (await client.patch(f"{AP}/ncr", json={"law": None})).json()["law"] == "pi2"


async def test_ncr_follows_the_defaults_until_told_otherwise(client: httpx.AsyncClient) -> None:
    assert (await client.patch("/api/v1/ncr-defaults", json={"queue_target_ms": 7, "alpha": 0.1})).status_code == 200
    ncr = (await client.get(f"{AP}/ncr")).json()
    assert (ncr["queue_target_ms"], ncr["alpha"]) == (7, 0.1)
    await client.patch(f"{AP}/ncr", json={"queue_target_ms": 9})
    await client.patch("/api/v1/ncr-defaults", json={"queue_target_ms": 8, "alpha": None})
    ncr = (await client.get(f"{AP}/ncr")).json()
    assert (ncr["queue_target_ms"], ncr["alpha"]) == (9, 0.03)
    assert (await client.patch(f"{AP}/ncr", json={"queue_target_ms": None})).json()["queue_target_ms"] == 8


async def test_lists_come_in_pages(client: httpx.AsyncClient) -> None:
    for name in ("ap2", "ap3"):
        body = access_point(pipeline=PIPELINE) | {"name": name, "enabled": False}
        assert (await client.post("/api/v1/access-points", json=body)).status_code == 201
    first = await client.get("/api/v1/access-points?limit=2")
    assert [ap["name"] for ap in first.json()] == ["ap1", "ap2"]
    assert first.headers["x-total-count"] == "3"
    assert first.links["next"]["url"] == "/api/v1/access-points?limit=2&offset=2"
    last = await client.get(first.links["next"]["url"])
    assert [ap["name"] for ap in last.json()] == ["ap3"]
    assert not last.links


async def test_a_change_of_what_changed_in_between_is_refused(client: httpx.AsyncClient) -> None:
    changes: dict[str, Any] = {
        "config": {"flow_idle_timeout": 60},
        "ncr": {"beta": 0.1},
        "features": {"sparse": False},
        "class-weights": {"uplink": 2},
    }
    for part, body in changes.items():
        path = f"{AP}/{part}"
        first = await client.get(path)
        tag = first.headers["etag"]
        assert (await client.get(path, headers={"if-none-match": tag})).status_code == 304
        changed = await client.patch(path, json=body, headers={"if-match": tag})
        assert changed.status_code == 200
        assert changed.headers["etag"] == (await client.get(path)).headers["etag"] != tag
        refused = await client.patch(path, json=body, headers={"if-match": tag})
        assert refused.status_code == 412
        assert refused.headers["etag"] == changed.headers["etag"]
        assert (await client.patch(path, json=body, headers={"if-match": "*"})).status_code == 200


async def test_a_request_that_is_sent_again_is_not_done_again(client: httpx.AsyncClient) -> None:
    body = access_point(pipeline=PIPELINE) | {"name": "ap2", "enabled": False}
    headers = {"idempotency-key": "k1"}
    first = await client.post("/api/v1/access-points", json=body, headers=headers)
    again = await client.post("/api/v1/access-points", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert again.headers["etag"] == first.headers["etag"]
    other = await client.post("/api/v1/access-points", json=body | {"name": "ap3"}, headers=headers)
    assert (other.status_code, "used for another request" in other.json()["detail"]) == (422, True)


async def test_many_changes_at_once_are_all_done(client: httpx.AsyncClient) -> None:
    rules = [{"name": f"r{number}", "class_id": 3} for number in range(20)]
    answers = await asyncio.gather(*(client.put(f"{AP}/rules/{rule['name']}", json=rule) for rule in rules))
    assert {answer.status_code for answer in answers} == {200}
    assert len((await client.get(f"{AP}/rules")).json()) == 21


async def test_events_tell_of_every_access_point(api: Api) -> None:
    # httpx's transport for applications waits for the whole answer: the stream is ended from inside.
    async with api.client("viewer") as client:
        asking = asyncio.create_task(client.get("/api/v1/events"))
        await asyncio.sleep(1.3)
        api.app.state.streams.closing.set()
        answer = await asking
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.splitlines()
    seen = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert len(seen) >= 2
    assert {entry["name"] for entry in seen} == {"ap1"}
    assert [port["port"] for port in seen[0]["ports"]] == [1, 2]


async def test_the_api_describes_itself(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"] and operation["description"], where
            assert path in ("/healthz", "/readyz") or {"401", "429"} <= operation["responses"].keys(), where
            for parameter in operation.get("parameters", []):
                assert "example" in parameter or "examples" in parameter, f"{where}: {parameter['name']}"
    for name, schema in document["components"]["schemas"].items():
        if name != "Problem":
            assert schema.get("examples"), f"{name} has no example"
    assert (await client.get("/metrics")).status_code == 200


def test_the_examples_are_what_they_are_examples_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p4src").mkdir()
    for name in ("Pipeline", "P4RuntimeTls"):
        for path in examples.EXAMPLES[name].values():
            (tmp_path / path).touch()
    for name, example in examples.EXAMPLES.items():
        modules = (models, observation, configuration)
        found = next((getattr(module, name) for module in modules if hasattr(module, name)), models.AccessPointPatch)
        TypeAdapter(found).validate_python(example)
        assert found is not models.AccessPointPatch or name == "AccessPointConfigPatch"


async def test_metrics_tell_the_state(api: Api, client: httpx.AsyncClient) -> None:
    await client.get(AP)
    assert (await client.get("/metrics")).text.count('ap_ready{access_point="ap1"} 0.0') == 1
