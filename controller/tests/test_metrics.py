# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, read with its own parser."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from accesspoint.controller.metrics import OTHERS, exposition
from accesspoint.controller.observation import MEASURES, TICK_BOUNDS, Observation

from .test_agent import observe
from .test_entries import config

ODD = 'a "name" \\ of\ntwo lines'


async def observed() -> Observation:
    return await observe(config().model_copy(update={"name": "ap1"}))


def read(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values of each metric; every one of them has a kind and a text."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.type in ("gauge", "counter", "histogram") and family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def test_every_metric_is_read_as_it_is_meant() -> None:
    used = {f"{unit}_{way}": 7 for unit in ("packets", "bytes") for way in ("up", "down")}
    seen: Any = await observed()
    seen["stations_named"] = [{"address": "02:00:00:00:00:0b", "name": ODD, **used}]
    seen["stations_refused"] = {"locked": 3}
    seen["tick_counts"], seen["tick_seconds"] = [1] * (len(TICK_BOUNDS) + 1), 0.5
    for port in seen["ports"]:
        port["delay_ms"], port["capacity_used_bps"], port["capacity_learned_bps"] = 250.0, 8e6, None
    found = read(
        exposition(
            [seen, seen | {"name": "ap2", "state": "ready", "stations_named": []}], 5, 6, {"ap1": False, "ap3": True}
        )
    )

    ports = [(port["port"], port["role"]) for port in seen["ports"]]
    place = {"access_point": "ap1", "port": str(ports[0][0]), "role": ports[0][1]}
    assert (place, 0.25) in found["ap_queue_delay_seconds"]
    assert (place, 1e6) in found["ap_capacity_bytes_per_second"]
    assert "ap_capacity_learned_bytes_per_second" not in found
    assert found["ap_ready"] == [({"access_point": "ap1"}, 0), ({"access_point": "ap2"}, 1)]
    assert found["ap_differs"] == [({"access_point": "ap1"}, 0), ({"access_point": "ap3"}, 1)]
    station = {"access_point": "ap1", "station": "02:00:00:00:00:0b"}
    assert found["ap_station_info"] == [(station | {"name": ODD}, 1)]
    assert (station | {"direction": "up"}, 7) in found["ap_station_bytes_total"]
    assert found["controller_lost_samples_total"] == [({}, 5)]
    assert found["controller_ended_connections_total"] == [({}, 6)]
    buckets = [value for labels, value in found["ap_tick_seconds_bucket"] if labels["access_point"] == "ap1"]
    assert buckets == [*range(1, len(TICK_BOUNDS) + 2)]
    assert ({"access_point": "ap1"}, 0.5) in found["ap_tick_seconds_sum"]
    # Each of them is there; what is unknown is not.
    named = {
        measure.metric + "_total" * measure.counter for measure in MEASURES if measure.metric and not measure.optional
    }
    named |= {metric for _, metric, _ in OTHERS.values()} - {"ap_flows_refused_total", "ap_messages_lost_total"}
    assert named <= found.keys()


def test_nothing_is_seen_of_nobody() -> None:
    assert read(exposition([], 0, 0, {})).keys() == {
        "controller_lost_samples_total",
        "controller_ended_connections_total",
    }
