# SPDX-License-Identifier: Apache-2.0
"""A database with what this release cannot use: all else is served, and what is wrong is told with its mend."""

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from accesspoint.controller.config import AccessPointConfig
from accesspoint.controller.state.database import ACCESS_POINTS, REVISIONS, connect

from .application import AP, Api
from .test_config import access_point
from .test_entries import PIPELINE

VOICE = {"name": "voice", "dscp": 46, "class_id": 3}
CALLS = {"name": "calls", "dscp": 46, "class_id": 4, "src_port": [0, 65535]}
OTHER = {"name": "other", "dscp": 10, "class_id": 5}


def config(name: str) -> AccessPointConfig:
    return AccessPointConfig.model_validate(access_point(pipeline=PIPELINE, enabled=False) | {"name": name})


async def with_stored(tmp_path: Path, **fields: Any) -> Api:
    """Return a controller that finds two access points in its database, of which ap1 has these fields as well."""
    engine = connect(f"sqlite:///{tmp_path / 'state.db'}")
    before = Api(engine)
    await before.start(config("ap1"), config("ap2"))
    await before.backend.stop()
    await before.service.close()
    is_first = ACCESS_POINTS.c.name == "ap1"
    with engine.begin() as connection:
        stored = json.loads(connection.scalar(sa.select(ACCESS_POINTS.c.config).where(is_first)) or "")
        written = json.dumps(stored | fields)
        connection.execute(sa.update(ACCESS_POINTS).where(is_first).values(config=written))
    made = Api(engine)
    await made.start(config("ap1"), config("ap2"))
    return made


async def test_of_two_rules_that_match_the_same_one_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = await with_stored(tmp_path, rules=[VOICE, CALLS, OTHER])
    async with api.client() as client:
        assert [ap["name"] for ap in (await client.get("/api/v1/access-points")).json()] == ["ap1", "ap2"]
        rules = (await client.get(f"{AP}/rules")).json()
        assert [rule["name"] for rule in rules] == ["voice", "other"]
        problem = (await client.get(AP)).json()["problem"]
        assert "rule calls matches the same packets with the same priority as voice" in problem
        assert "put it again with another `priority`" in problem
        assert any(problem in record.getMessage() for record in caplog.records)
        # Whatever is changed next works, and so does the mend.
        assert (await client.patch(f"{AP}/class-weights", json={"downlink": 9})).status_code == 200
        mended = CALLS | {"priority": 1001}
        assert (await client.put(f"{AP}/rules/calls", json=mended)).status_code == 200
        assert (await client.get(AP)).json()["problem"] is None
        assert [rule["name"] for rule in (await client.get(f"{AP}/rules")).json()] == ["voice", "other", "calls"]
    await api.backend.stop()
    await api.service.close()


async def test_an_access_point_that_cannot_be_used_keeps_no_other_from_its_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = await with_stored(tmp_path, flow_idle_timeout=-1)
    async with api.client() as client:
        listed = (await client.get("/api/v1/access-points")).json()
        assert [ap["name"] for ap in listed] == ["ap2"]
        said = next(record.getMessage() for record in caplog.records if "ap1" in record.getMessage())
        assert "flow_idle_timeout: Input should be greater than or equal to 1" in said
        assert f"PUT {AP}/config" in said
        assert (await client.get(AP)).status_code == 404
        # Another configuration in its place mends it.
        whole = access_point(pipeline=PIPELINE, enabled=False)
        put = await client.put(f"{AP}/config?wait=60", json=whole)
        assert (put.status_code, (await client.get(AP)).json()["state"]) == (200, "stopped")
    await api.backend.stop()
    await api.service.close()


async def test_an_access_point_that_cannot_be_used_can_be_removed(tmp_path: Path) -> None:
    api = await with_stored(tmp_path, flow_idle_timeout=-1)
    async with api.client() as client:
        assert (await client.delete(AP)).status_code == 204
        assert api.service.store.access_point("ap1") is None
    await api.backend.stop()
    await api.service.close()


async def test_what_was_said_of_stations_before_is_taken_over(tmp_path: Path) -> None:
    station = "02:00:00:00:00:01"
    api = await with_stored(tmp_path, locked_stations={station: 1}, station_names={station: "Printer"})
    async with api.client() as client:
        said = (await client.get(f"{AP}/stations/{station}")).json()
        assert (said["name"], said["locked_port"]) == ("Printer", 1)
        assert (await client.patch(f"{AP}/stations/{station}", json={"locked_port": None})).status_code == 200
        assert (await client.get(f"{AP}/stations/{station}")).json()["locked_port"] is None
    await api.backend.stop()
    await api.service.close()


async def test_restore_of_a_revision_of_a_former_release_converts_it(tmp_path: Path) -> None:
    station = "02:00:00:00:00:01"
    api = await with_stored(tmp_path)
    async with api.client() as client:
        revision = (await client.get(AP)).json()["revision"]
        await client.patch(f"{AP}/class-weights", json={"downlink": 9})
        before = access_point(pipeline=PIPELINE, enabled=False, station_names={station: "Printer"})
        with api.service.store.engine.begin() as connection:
            written = sa.update(REVISIONS).where(REVISIONS.c.id == revision)
            connection.execute(written.values(config=json.dumps(before)))
        restored = await client.post(f"{AP}/revisions/{revision}/restore")
        assert (restored.status_code, restored.json()["class_weights"]["downlink"]) == (200, 4), restored.text
        assert restored.json()["stations"][station]["name"] == "Printer"
    await api.backend.stop()
    await api.service.close()


async def test_stored_fields_that_are_constants_now_are_left_out(tmp_path: Path) -> None:
    removed = {"sparse": {"min_rate_bps": 64_000, "share": 0.02}, "queue_shares": {"new_flows": 0.2}}
    api = await with_stored(tmp_path, **removed)
    async with api.client() as client:
        config = (await client.get(f"{AP}/config")).json()
        assert (
            config["sparse"] == {"fair_share": 1.0, "max_thinned": 0.5, "share": 0.02}
            and "new_flows" not in config["queue_shares"]
        )
    await api.backend.stop()
    await api.service.close()
