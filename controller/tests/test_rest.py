# SPDX-License-Identifier: Apache-2.0
"""The API of a controller whose switch is away: what needs no switch works, what needs one says so."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from accesspoint.checks.harness.waiting import free_port, until
from accesspoint.controller import config as configuration
from accesspoint.controller import observation
from accesspoint.controller.agent.reconciler import Refused
from accesspoint.controller.api import examples, models

from .application import AP, Api
from .test_config import PORTS, access_point
from .test_entries import PIPELINE


async def test_it_says_what_keeps_it_from_being_ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(240):
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
    "/ports", "/ports/2", "/feedback", "/history", "/stations/02:00:00:00:00:0b/history",
)  # fmt: skip


async def test_what_is_known_can_be_read_without_a_switch(client: httpx.AsyncClient) -> None:
    assert [(await client.get(AP + path)).status_code for path in READABLE] == [200] * len(READABLE)


BAD: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/api/v1/access-points/nobody", None, 404, "no access point nobody; there are: ap1"),
    ("GET", "/api/v1/nothing", None, 404, "Not Found"),
    ("DELETE", f"{AP}/ncr", None, 405, "Method Not Allowed"),
    ("PATCH", f"{AP}/ncr", {"gamma": -1}, 422, "body.gamma: Input should be greater than or equal to 0"),
    ("PATCH", f"{AP}/ncr", {"gama": 1}, 422, "body.gama: unknown field; did you mean `gamma`?"),
    ("PATCH", f"{AP}/ncr", {"gama": 1, "alpha": -1}, 422, "greater than or equal to 0; body.gama: unknown field"),
    ("PATCH", f"{AP}/features", {"gate": {"9": {"buffer": 5, "batch": 1}}}, 422, "`gate` names port 9"),
    ("PATCH", f"{AP}/features", {"gate": {"2": {"buffer": 5, "batch": 9}}}, 422, "batch 9 is larger"),
    ("PATCH", f"{AP}/class-weights", {"uplink": 0}, 422, "body.uplink: Input should be greater than 0"),
    ("PATCH", f"{AP}/config", {"ports": None}, 422, "ports: Field required"),
    ("PATCH", f"{AP}/config", {"name": "ap2"}, 422, "body.name: unknown field"),
    ("PATCH", f"{AP}/flows/7", {"weight": 2}, 404, "no flow has index 7"),
    ("PATCH", f"{AP}/flows/x", {"weight": 2}, 422, "path.flow_index"),
    (
        "PATCH",
        f"{AP}/config",
        {"features": {"sprase": True}},
        422,
        "body.features.sprase: unknown field; did you mean `sparse`?",
    ),
    ("PATCH", f"{AP}/config", [], 422, "body"),
    ("POST", f"{AP}/revisions/7777/restore", None, 404, "ap1 has no revision 7777"),
    ("PUT", f"{AP}/rules/a", {"name": "b", "class_id": 1}, 422, "the path names rule a, the body b"),
    ("PUT", f"{AP}/rules/a", {"name": "a"}, 422, "body.class_id: Field required"),
    ("PUT", f"{AP}/rules/a", {"name": "a", "class_id": 8}, 422, "body.class_id"),
    ("DELETE", f"{AP}/rules/nobody", None, 404, "no rule nobody"),
    ("GET", f"{AP}/ports/9", None, 404, "ap1 has no port 9"),
    ("GET", f"{AP}/flows?limit=100000", None, 422, "query.limit"),
    ("GET", f"{AP}/history?start=9&end=8", None, 422, "query.start: not before `end`"),
    ("GET", f"{AP}/history?resolution=7", None, 422, "query.resolution"),
    ("GET", f"{AP}/stations/02:00:00:00:00:0b/history?resolution=10", None, 422, "query.resolution"),
    ("GET", f"{AP}/stations/02:00:00:00:00:0b/history?start=9&end=8", None, 422, "query.start: not before `end`"),
    ("GET", f"{AP}/stations/printer/history", None, 422, "path.station"),
    ("POST", "/api/v1/access-points", {"name": "ap1", "ports": []}, 422, "body.ports"),
    ("POST", "/api/v1/access-points", {"name": "..", "ports": PORTS}, 422, "body.name"),
    ("PATCH", f"{AP}/config", {"rules": [{"name": ".", "class_id": 3}]}, 422, "body.rules.0.name"),
    ("PATCH", f"{AP}/config", {"pipeline": {"p4info": "p4src/\0"}}, 422, "not in p4src, the folder"),
    ("PATCH", f"{AP}/config", {"pipeline": {"p4info": f"p4src/{300 * 'a'}"}}, 422, "file name too long"),
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
    for content, words in (
        (b'{"gamma": 1, "gamma": 2}', "duplicate name `gamma` in one object"),
        (b'{"gamma": NaN}', "NaN is not a number"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"gamma": ' + b"9" * 5000 + b"}", "a number has 5000 digits"),
        (b"\xff", "can't decode"),
    ):
        answer = await client.patch(f"{AP}/ncr", content=content, headers=headers)
        assert (answer.status_code, words in answer.json()["detail"]) == (422, True), answer.text
    assert (await client.patch(f"{AP}/ncr", content=b" " * 1_000_001, headers=headers)).status_code == 413


async def test_a_change_is_kept_for_when_the_switch_is_back(client: httpx.AsyncClient) -> None:
    assert (await client.patch(f"{AP}/ncr", json={"queue_target_ms": 5})).json()["queue_target_ms"] == 5
    assert (await client.patch(f"{AP}/features", json={"sparse": False})).json()["sparse"] is False
    assert (await client.patch(f"{AP}/class-weights", json={"downlink": 9})).json() == {
        "downlink": 9,
        "uplink": 1,
        "other": 1,
    }
    assert (await client.put(f"{AP}/rules/a", json={"name": "a", "dscp": 1, "class_id": 5})).status_code == 200
    assert [rule["name"] for rule in (await client.get(f"{AP}/rules")).json()] == ["dns", "a"]
    assert (await client.delete(f"{AP}/rules/dns")).status_code == 204
    assert [rule["name"] for rule in (await client.get(f"{AP}/rules")).json()] == ["a"]
    assert (await client.get(f"{AP}/features")).json()["sparse"] is False


async def test_a_client_that_waits_is_told_whether_a_change_is_in_effect(client: httpx.AsyncClient) -> None:
    for method, path, body in (
        ("PATCH", f"{AP}/ncr", {"alpha": 0.1}),
        ("PATCH", f"{AP}/ports/2", {"capacity_bps": 900_000}),
        ("PATCH", f"{AP}/stations/02:00:00:00:00:01", {"name": "Printer"}),
        ("PUT", f"{AP}/rules/a", {"name": "a", "dscp": 1, "class_id": 5}),
        ("DELETE", f"{AP}/rules/a", None),
        ("PATCH", "/api/v1/ncr-defaults", {"beta": 0.1}),
    ):
        answer = await client.request(method, f"{path}?wait=0.1", json=body)
        assert answer.status_code == 202, f"{method} {path}: {answer.text}"
        seen = (await client.get(AP)).json()
        assert (seen["revision_in_effect"], seen["differs_since"] is None) == (None, False)
    off = await client.patch(f"{AP}/config?wait=60", json={"enabled": False})
    seen = (await client.get(AP)).json()
    assert (off.status_code, seen["revision_in_effect"], seen["differs_since"]) == (200, seen["revision"], None)
    assert (await client.patch(f"{AP}/ncr?wait=61", json={"alpha": 0.1})).status_code == 422


async def test_access_points_come_and_go(client: httpx.AsyncClient, api: Api) -> None:
    body = access_point(pipeline=PIPELINE, address=f"127.0.0.1:{free_port()}") | {"name": "ap2", "enabled": False}
    made = await client.post("/api/v1/access-points", json=body)
    assert (made.status_code, made.headers["location"]) == (201, "/api/v1/access-points/ap2")
    assert (await client.post("/api/v1/access-points", json=body)).status_code == 409
    await until(lambda: "ap2" in api.backend.access_points)
    assert (await client.get("/api/v1/access-points/ap2")).json()["state"] == "stopped"
    assert [ap["name"] for ap in (await client.get("/api/v1/access-points?state=stopped")).json()] == ["ap2"]
    assert (await client.patch("/api/v1/access-points/ap2/config", json={"enabled": True})).status_code == 200
    await until(lambda: api.backend.observe("ap2")["state"] == "connecting")
    assert (await client.delete("/api/v1/access-points/ap2")).status_code == 204
    assert (await client.get("/api/v1/access-points/ap2")).status_code == 404
    await until(lambda: sorted(api.backend.access_points) == ["ap1"])
    wrong = access_point(pipeline=PIPELINE) | {"name": "ap3", "ports": [{**body["ports"][0], "port": 0}]}
    refused = await client.post("/api/v1/access-points", json=wrong)
    assert (refused.status_code, "port 0 does not exist on" in refused.json()["detail"]) == (422, True)


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


async def test_a_patch_is_a_merge_patch(client: httpx.AsyncClient) -> None:
    """RFC 7396: objects are merged field by field, null takes out, lists are replaced."""
    path, headers = f"{AP}/config", {"content-type": "application/merge-patch+json"}

    async def patch(body: object) -> Any:
        answer = await client.patch(path, content=json.dumps(body), headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    await patch({"features": {"sparse": False, "gate": {"1": {"buffer": 50, "batch": 5}}}, "ncr": {"alpha": 0.5}})
    await patch({"features": {"ack_filter": False, "gate": {"2": {"buffer": 60, "batch": 6}}}, "ncr": {"beta": 0.6}})
    found = await patch(
        {"stations": {"02:00:00:00:00:01": {"locked_port": 2}, "02:00:00:00:00:02": {"locked_port": 1, "weight": 2}}}
    )
    assert (found["features"]["sparse"], found["features"]["ack_filter"]) == (False, False)
    assert sorted(found["features"]["gate"]) == ["1", "2"]
    assert (found["ncr"]["alpha"], found["ncr"]["beta"]) == (0.5, 0.6)
    found = await patch(
        {
            "features": {"gate": {"1": None, "2": {"batch": 7}}},
            "ncr": {"alpha": None},
            "stations": {"02:00:00:00:00:02": {"locked_port": None, "name": "x"}},
            "rules": [{"name": "only", "class_id": 4}],
        }
    )
    assert found["features"]["gate"] == {"2": {"buffer": 60, "batch": 7}}
    assert (found["ncr"]["alpha"], found["ncr"]["beta"]) == (0.03, 0.6)
    assert found["stations"]["02:00:00:00:00:01"]["locked_port"] == 2
    second = found["stations"]["02:00:00:00:00:02"]
    assert (second["locked_port"], second["weight"], second["name"]) == (None, 2, "x")
    assert [rule["name"] for rule in found["rules"]] == ["only"]
    refused = await client.patch(path, json={"features": {"gate": {"1": {"batch": 7}}}})
    assert (refused.status_code, "features.gate.1.buffer" in refused.json()["detail"]) == (422, True)


async def test_a_whole_configuration_takes_the_place_of_another(client: httpx.AsyncClient) -> None:
    await client.patch(f"{AP}/class-weights", json={"downlink": 9})
    body = access_point(pipeline=PIPELINE, enabled=False)
    put = await client.put(f"{AP}/config", json=body)
    assert (put.status_code, put.json()["class_weights"]["downlink"], put.json()["rules"]) == (200, 4, [])
    other = await client.put(f"{AP}/config", json=body | {"name": "ap2"})
    assert (other.status_code, other.json()["detail"]) == (422, "the path names access point ap1, the body ap2")


async def test_a_dry_run_checks_and_changes_nothing(client: httpx.AsyncClient, api: Api) -> None:
    before = (await client.get(AP)).json()["revision"]
    new = access_point(pipeline=PIPELINE) | {"name": "ap2"}
    for method, path, body, code in (
        ("PATCH", f"{AP}/config", {"enabled": False}, 200),
        ("PATCH", f"{AP}/config", {"ports": [{**PORTS[0], "port": 0}]}, 422),
        ("PATCH", f"{AP}/ncr", {"alpha": 1}, 200),
        ("PATCH", f"{AP}/features", {"gate": {"9": {"buffer": 5, "batch": 1}}}, 422),
        ("PATCH", "/api/v1/ncr-defaults", {"alpha": 1}, 200),
        ("PUT", f"{AP}/rules/a", {"name": "a", "class_id": 1, "dscp": 10}, 200),
        ("DELETE", f"{AP}/rules/dns", None, 204),
        ("DELETE", f"{AP}/rules/nobody", None, 404),
        ("POST", f"{AP}/revisions/{before}/restore", None, 200),
        ("POST", "/api/v1/access-points", new, 200),
        ("POST", "/api/v1/access-points", new | {"name": "ap1"}, 409),
        ("DELETE", AP, None, 204),
    ):
        answer = await client.request(method, f"{path}?validate=true", json=body)
        assert answer.status_code == code, f"{method} {path}: {answer.text}"
    told = await client.patch(f"{AP}/ncr?validate=true", json={"alpha": 1})
    assert told.json()["alpha"] == 1
    assert (await client.get(f"{AP}/ncr")).json()["alpha"] == 0.03
    assert (await client.get("/api/v1/ncr-defaults")).json()["alpha"] == 0.03
    assert (await client.get(AP)).json()["revision"] == before
    assert sorted(api.backend.access_points) == ["ap1"]
    assert (await client.get("/api/v1/audit")).headers["x-total-count"] == "0"


async def test_what_was_desired_before_can_be_desired_again(client: httpx.AsyncClient) -> None:
    first = (await client.get(AP)).json()["revision"]
    await client.patch(f"{AP}/class-weights", json={"downlink": 9})
    await client.patch(f"{AP}/features", json={"sparse": False})
    listed = await client.get(f"{AP}/revisions?limit=2")
    assert listed.headers["x-total-count"] == "3"
    newest, middle = listed.json()
    assert newest["revision"] == (await client.get(AP)).json()["revision"] > middle["revision"] > first
    assert newest["actor"].startswith("admin (")
    assert (await client.get(f"{AP}/revisions/{middle['revision']}")).json() == middle
    tag = (await client.get(f"{AP}/config")).headers["etag"]
    back = await client.post(f"{AP}/revisions/{first}/restore", headers={"if-match": tag})
    assert (back.json()["class_weights"]["downlink"], back.json()["features"]["sparse"]) == (4, True)
    assert (await client.post(f"{AP}/revisions/{first}/restore", headers={"if-match": tag})).status_code == 412
    assert (await client.post(f"{AP}/revisions/{middle['revision']}/restore")).json()["class_weights"]["downlink"] == 9
    assert (await client.get(f"{AP}/revisions")).headers["x-total-count"] == "5"
    assert (await client.get(f"{AP}/revisions/99999")).status_code == 404


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
    rules = [{"name": f"r{number}", "dscp": number, "class_id": 3} for number in range(20)]
    answers = await asyncio.gather(*(client.put(f"{AP}/rules/{rule['name']}", json=rule) for rule in rules))
    assert {answer.status_code for answer in answers} == {200}
    assert len((await client.get(f"{AP}/rules")).json()) == 21


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
    for name in ("Pipeline", "P4RuntimeTls"):
        for path in examples.EXAMPLES[name].values():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
    patches = {patch.__name__: patch for patch in models.PATCHES.values()}
    for name, example in examples.EXAMPLES.items():
        modules = (models, observation, configuration)
        found = next((getattr(module, name) for module in modules if hasattr(module, name)), patches.get(name))
        assert found is not None, name
        TypeAdapter(found).validate_python(example)


async def test_a_station_has_a_name_and_a_port(client: httpx.AsyncClient, api: Api) -> None:
    path, running = f"{AP}/stations/02:00:00:00:00:01", api.backend.access_points["ap1"]
    assert (await client.get(path)).status_code == 404
    named = await client.patch(path, json={"name": "Zoë: laptop 💻"})
    said = {"name": "Zoë: laptop 💻", "locked_port": None, "blocked": False, "weight": 1,
            "limit_down_bps": None, "limit_up_bps": None}  # fmt: skip
    assert said.items() <= named.json().items()
    assert (named.json()["seen"], named.json()["bytes_down"]) == ([], 0)
    assert (await client.patch(path, json={"locked_port": 1})).json()["name"] == "Zoë: laptop 💻"
    config = (await client.get(f"{AP}/config")).json()
    assert config["stations"]["02:00:00:00:00:01"]["locked_port"] == 1
    await until(lambda: running.config.stations["02:00:00:00:00:01"].locked_port == 1)
    assert api.backend.access_points["ap1"] is running, "what is said of a station begins no new session"
    assert (await client.patch(path, json={"name": None})).json()["locked_port"] == 1
    assert (await client.get(path)).json()["name"] is None
    for wrong, words in (
        ({"locked_port": 9}, "which is not in `ports`"),
        ({"name": ""}, "body.name"),
        ({"name": "a\nb"}, "body.name"),
        ({"nam": "x"}, "body.nam: unknown field"),
        ({"weight": 0}, "body.weight"),
        ({"limit_down_bps": 10}, "body.limit_down_bps"),
    ):
        refused = await client.patch(path, json=wrong)
        assert (refused.status_code, words in refused.json()["detail"]) == (422, True), refused.text
    assert (await client.patch(f"{AP}/stations/nobody", json={"name": "x"})).status_code == 422
    # Who read it before somebody else changed it is told.
    tag = (await client.get(path)).headers["etag"]
    assert (await client.patch(path, json={"blocked": True}, headers={"if-match": tag})).status_code == 200
    assert (await client.patch(path, json={"weight": 3}, headers={"if-match": tag})).status_code == 412
    assert (await client.patch(f"{path}?validate=true", json={"weight": 3})).json()["weight"] == 3
    assert (await client.get(path)).json()["weight"] == 1
    # Limits and weights are kept by feedback.
    await client.patch(path, json={"limit_up_bps": 1_000_000})
    refused = await client.patch(f"{AP}/features", json={"ncr": False})
    assert (refused.status_code, "take them back" in refused.json()["detail"]) == (422, True)
    # Of what is taken back altogether nothing stays.
    await client.patch(path, json=dict.fromkeys(("locked_port", "blocked", "limit_up_bps", "name"), None))
    assert (await client.get(f"{AP}/config")).json()["stations"] == {}
    seen = [examples.EXAMPLES["StationObservation"] | {"address": f"02:00:00:00:00:0{n}"} for n in range(3)]
    api.service.monitor._lists[("stations", "ap1")] = (float("inf"), seen)
    await client.patch(f"{AP}/stations/02:00:00:00:00:02", json={"name": "Printer"})
    found = (await client.get(f"{AP}/stations?name_contains=PRINT")).json()
    assert [(station["address"], station["name"]) for station in found] == [("02:00:00:00:00:02", "Printer")]
    assert len((await client.get(f"{AP}/stations/02:00:00:00:00:02")).json()["seen"]) == 1


async def test_station_has_the_settings_of_its_group_in_effect(client: httpx.AsyncClient, api: Api) -> None:
    groups = {"guests": {"weight": 0.5, "limit_down_bps": 2_000_000}, "default": {"limit_up_bps": 300_000}}
    guest, other, gateway = (f"02:00:00:00:00:0{n}" for n in range(3))
    body = {"groups": groups, "stations": {guest: {"group": "guests", "limit_up_bps": 100_000}}}
    assert (await client.patch(f"{AP}/config", json=body)).status_code == 200
    one = examples.EXAMPLES["StationObservation"] | {"role": "station"}
    seen = [one | {"address": guest}, one | {"address": other}, one | {"address": gateway, "role": "uplink"}]
    api.service.monitor._lists[("stations", "ap1")] = (float("inf"), seen)
    used = {guest: (0.5, 2_000_000, 100_000), other: (1, None, 300_000), gateway: (1, None, None)}
    fields = "weight_used", "limit_down_used_bps", "limit_up_used_bps"
    found = {each["address"]: each for each in (await client.get(f"{AP}/stations")).json()}
    for address, settings in used.items():
        answers = found[address], (await client.get(f"{AP}/stations/{address}")).json()
        assert [tuple(answer[field] for field in fields) for answer in answers] == [settings] * 2
    assert (found[guest]["weight"], found[guest]["limit_down_bps"]) == (1, None), "its own, as before"
    dry = await client.patch(f"{AP}/stations/{other}?validate=true", json={"group": "guests"})
    assert (dry.json()["group"], dry.json()["weight_used"]) == ("guests", 0.5)


async def test_rate_of_a_port_is_changed_by_itself(client: httpx.AsyncClient, api: Api) -> None:
    path, running = f"{AP}/ports/2", api.backend.access_points["ap1"]
    changed = await client.patch(path, json={"capacity_bps": 900_000})
    assert (changed.status_code, changed.json()["capacity_bps"], changed.json()["role"]) == (200, 900_000, "uplink")
    await until(lambda: running.loop.ports[2].capacity == 112_500)
    assert api.backend.access_points["ap1"] is running
    ports = (await client.get(f"{AP}/config")).json()["ports"]
    assert [port["capacity_bps"] for port in ports] == [14_000_000, 900_000]
    assert (await client.patch(path, json={"queue_limit": None})).json()["queue_limit"] == 1000
    for wrong, words in (({"role": "station"}, "body.role"), ({"capacity_bps": 1}, "capacity_bps")):
        refused = await client.patch(path, json=wrong)
        assert (refused.status_code, words in refused.json()["detail"]) == (422, True), refused.text
    assert (await client.patch(f"{AP}/ports/9", json={"regulated": False})).status_code == 404
    # A dry run answers with what would be; who read the port before somebody else changed it is told.
    assert (await client.patch(f"{path}?validate=true", json={"capacity_bps": 800_000})).json()[
        "capacity_bps"
    ] == 800_000
    read = await client.get(path)
    tag = read.headers["etag"]
    assert read.json()["capacity_bps"] == 900_000
    assert (await client.patch(path, json={"regulated": False}, headers={"if-match": tag})).status_code == 200
    assert (await client.patch(path, json={"regulated": True}, headers={"if-match": tag})).status_code == 412


async def test_change_of_a_port_that_does_not_run_yet_is_answered(
    client: httpx.AsyncClient, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{AP}/ports/3"

    def away(name: str) -> Any:
        raise Refused(503, "no agent announced it")

    # As of an agent whose last message is of the revision before, or that was never heard.
    seen = api.backend.observe("ap1")
    for observe in (lambda name: seen | {"time": 0.0}, away):
        monkeypatch.setattr(api.backend, "observe", observe)
        api.service.monitor.seen.clear()
        third = {"port": 3, "role": "station", "capacity_bps": 5_000_000}
        assert (await client.patch(f"{AP}/config", json={"ports": [*PORTS, third]})).status_code == 200
        changed = await client.patch(path, json={"capacity_bps": 900_000})
        assert (changed.status_code, changed.json()["capacity_bps"]) == (200, 900_000), changed.text
        assert (await client.get(path)).json() == changed.json()
        assert changed.json()["link"] == "unknown"
        assert (await client.patch(f"{AP}/ports/9", json={"regulated": False})).status_code == 404


async def test_change_of_nothing_is_no_revision(client: httpx.AsyncClient) -> None:
    async def revision() -> int:
        return int((await client.get(AP)).json()["revision"])

    await client.patch(f"{AP}/ncr", json={"gamma": 0.07})
    before = await revision()
    for path, body in ((f"{AP}/ncr", {"gamma": 0.07}), (f"{AP}/ncr", {}), ("/api/v1/ncr-defaults", {})):
        assert (await client.patch(path, json=body)).status_code == 200
    assert await revision() == before
    await client.patch(f"{AP}/ncr", json={"gamma": 0.08})
    assert await revision() > before


async def test_refused_method_names_all_that_there_are(client: httpx.AsyncClient) -> None:
    refused = await client.post(f"{AP}/config", json={})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, PATCH, PUT")
    key = {"idempotency-key": "once"}
    assert (await client.patch(AP, json={}, headers=key)).status_code == 405
    assert (await client.patch(f"{AP}/ncr", json={"gamma": 0.07}, headers=key)).status_code == 200
    assert (await client.patch(AP, json={}, headers=key)).status_code == 405
