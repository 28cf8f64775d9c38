# SPDX-License-Identifier: Apache-2.0
"""Observations by the API of a controller whose switch is away: events, lists, metrics, health."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from accesspoint.checks.harness.waiting import until
from accesspoint.controller.api import events, examples

from .application import AP, Api
from .test_config import access_point
from .test_entries import PIPELINE


async def test_history_has_nothing_of_what_is_away(api: Api) -> None:
    sampling = asyncio.create_task(api.service.monitor.sample())
    await asyncio.sleep(1.2)
    sampling.cancel()
    assert "ap1" in api.service.monitor.seen
    assert api.service.monitor.recorder.take(everything=True) == {}


async def test_events_tell_of_every_access_point(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    look, looks = events._look, list[str]()

    def looked(*arguments: Any) -> Any:
        looks.append(arguments[2])
        return look(*arguments)

    monkeypatch.setattr(events, "_look", looked)
    # httpx's transport for applications waits for the whole answer: the stream is ended from inside.
    async with api.client("viewer") as client:
        asking = asyncio.create_task(client.get("/api/v1/events"))
        await until(lambda: len(looks) >= 2)
        api.app.state.streams.closing.set()
        answer = await asking
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.splitlines()
    seen = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert len(seen) >= 2
    assert {entry["name"] for entry in seen} == {"ap1"}
    assert [port["port"] for port in seen[0]["ports"]] == [1, 2]


async def test_events_tell_of_many_in_parts(
    api: Api, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accesspoint.controller.api.events.AT_ONCE", 2)
    for number in range(2, 6):
        body = access_point(pipeline=PIPELINE, name=f"ap{number}", enabled=False)
        assert (await client.post("/api/v1/access-points", json=body)).status_code == 201
    asking = asyncio.create_task(client.get("/api/v1/events"))
    await until(lambda: api.app.state.streams.last_events.keys() == {*api.service.names})
    api.app.state.streams.closing.set()
    lines = (await asking).text.splitlines()
    told = [json.loads(line.removeprefix("data: "))["name"] for line in lines if line.startswith("data: ")]
    assert told[: len(api.service.names)] == api.service.names


async def test_ticks_and_requests_are_histograms(client: httpx.AsyncClient, api: Api) -> None:
    loop = api.backend.access_points["ap1"].loop
    loop.tick_counts = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    loop.tick_seconds = 25.0
    await client.get(AP)
    await client.get("/api/v1/nothing")
    text = (await client.get("/metrics")).text
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert found['ap_tick_seconds_bucket{access_point="ap1",le="0.01"}'] == "28.0"
    assert found['ap_tick_seconds_bucket{access_point="ap1",le="+Inf"}'] == "78.0"
    assert float(found['ap_tick_seconds_sum{access_point="ap1"}']) == pytest.approx(25.0)
    assert found['controller_request_seconds_count{method="GET",status="404"}'] == "1.0"
    assert "_p99_" not in text and "_median_" not in text


async def test_what_is_refused_and_lost_is_counted(client: httpx.AsyncClient, api: Api) -> None:
    api.service.monitor.recorder.lost = 7
    async with api.client(None) as nobody:
        assert (await nobody.get(AP)).status_code == 401
        assert (await nobody.post("/api/v1/session", json={"token": "ap_wrong"})).status_code == 401
    text = (await client.get("/metrics")).text
    for line in (
        'controller_refused_requests_total{reason="token"} 1.0',
        'controller_refused_requests_total{reason="login"} 1.0',
        'controller_refused_requests_total{reason="rate"} 0.0',
        "controller_lost_samples_total 7.0",
        "controller_ended_connections_total ",
    ):
        assert line in text, line


async def test_health_needs_no_token_however_it_is_asked_for(api: Api) -> None:
    async with api.client(None) as nobody:
        for path in ("/healthz", "/readyz"):
            for method in ("GET", "HEAD"):
                assert (await nobody.request(method, path)).status_code == 200, f"{method} {path}"


async def test_the_largest_flows_come_first(client: httpx.AsyncClient, api: Api) -> None:
    flows = [examples.EXAMPLES["FlowObservation"] | {"flow_index": n, "rate_bps": n * 7919 % 1009} for n in range(1000)]
    api.service.monitor._lists[("flows", "ap1")] = (float("inf"), flows)
    first = await client.get(f"{AP}/flows?sort=-rate_bps&limit=3&offset=2")
    assert [flow["rate_bps"] for flow in first.json()] == sorted((flow["rate_bps"] for flow in flows), reverse=True)[
        2:5
    ]
    assert first.headers["x-total-count"] == "1000"
    second = await client.get(f"{AP}/flows?limit=2&offset=998")
    assert [flow["flow_index"] for flow in second.json()] == [998, 999]


async def test_metrics_tell_the_state(api: Api, client: httpx.AsyncClient) -> None:
    await client.get(AP)
    assert (await client.get("/metrics")).text.count('ap_ready{access_point="ap1"} 0.0') == 1
