# SPDX-License-Identifier: Apache-2.0
"""The API of a controller whose switch is away: what needs no switch works, what needs one says so."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from controller.access_point import AccessPoint
from controller.config import AccessPointConfig
from controller.rest import create_app

from .switches import free_port
from .test_config import access_point
from .test_entries import PIPELINE

AP = "/api/v1/access-points/ap1"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, with an access point that keeps trying to connect."""
    config = AccessPointConfig.model_validate(
        access_point(pipeline=PIPELINE, address=f"127.0.0.1:{free_port()}", rules=[{"name": "dns", "class_id": 3}])
    )
    ap = AccessPoint(config, lambda name: None)
    task = asyncio.create_task(ap.run())
    transport = httpx.ASGITransport(create_app({"ap1": ap}))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as made:
        yield made
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


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
    assert refused.json()["detail"] == answer["problem"]


@pytest.mark.parametrize(
    "path",
    ["", "/stations", "/flows", "/classes", "/class-weights", "/rules", "/features", "/ncr", "/ports", "/feedback"],
)
async def test_what_is_known_can_be_read_without_a_switch(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(AP + path)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "words"),
    [
        ("GET", "/api/v1/access-points/nobody", None, 404, "no access point nobody; there are: ap1"),
        ("PATCH", f"{AP}/ncr", {"gamma": -1}, 422, "body.gamma: Input should be greater than or equal to 0"),
        ("PATCH", f"{AP}/ncr", {"gama": 1}, 422, "body.gama: Extra inputs are not permitted"),
        ("PATCH", f"{AP}/ncr", {"gamma": None}, 422, "gamma: Input should be a valid number"),
        ("PATCH", f"{AP}/features", {"gate": {"9": {"buffer": 5, "batch": 1}}}, 422, "`gate` names port 9"),
        ("PATCH", f"{AP}/features", {"gate": {"2": {"buffer": 5, "batch": 9}}}, 422, "batch 9 is larger"),
        ("PATCH", f"{AP}/class-weights", {"uplink": 0}, 422, "body.uplink: Input should be greater than 0"),
        ("PATCH", f"{AP}/flows/7", {"weight": 2}, 404, "no flow has index 7"),
        ("PATCH", f"{AP}/flows/x", {"weight": 2}, 422, "path.flow_index"),
        ("PUT", f"{AP}/rules/a", {"name": "b", "class_id": 1}, 422, "the path names rule a, the body b"),
        ("PUT", f"{AP}/rules/a", {"name": "a"}, 422, "body.class_id: Field required"),
        ("PUT", f"{AP}/rules/a", {"name": "a", "class_id": 8}, 422, "body.class_id"),
        ("DELETE", f"{AP}/rules/nobody", None, 404, "no rule nobody"),
        ("GET", f"{AP}/flows?limit=100000", None, 422, "query.limit"),
    ],
)
async def test_bad_input_is_told(
    client: httpx.AsyncClient, method: str, path: str, body: Any, code: int, words: str
) -> None:
    answer = await client.request(method, path, json=body)
    assert answer.status_code == code
    assert words in answer.json()["detail"]


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


async def test_the_api_describes_itself(client: httpx.AsyncClient) -> None:
    assert (await client.get("/docs")).status_code == 200
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert "/api/v1/access-points/{name}/feedback" in paths
    assert (await client.get("/metrics")).text.count('ap_ready{access_point="ap1"} 0.0') == 1
