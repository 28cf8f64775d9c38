# SPDX-License-Identifier: Apache-2.0
"""Lanes of stations: who has which, who shares, and what a lane gets."""

import numpy as np
import pytest

from accesspoint.controller.agent.flow_table import HELD_ABOVE, FlowTable
from accesspoint.controller.agent.lanes import MAX_WEIGHT, WEIGHT_UNIT, Lanes, are_used, rate, weight
from accesspoint.controller.agent.queue_estimate import FULL_FRAME
from accesspoint.controller.agent.station import station_mac, station_number
from accesspoint.controller.config import Station

from .test_entries import config
from .test_regulator import uplink

KBPS = 1000


def test_stations_up_to_the_number_of_lanes_have_one_each() -> None:
    lanes = Lanes(64)
    assert [lanes.take(station, False) for station in range(100, 164)] == [*range(1, 65)]
    assert lanes.take(120, False) == 21


def test_more_stations_share_the_emptiest_lane() -> None:
    lanes = Lanes(2)
    assert [lanes.take(station, False) for station in range(5)] == [1, 2, 1, 2, 1]
    assert lanes.is_shared(1) and lanes.is_shared(2)
    for station in (0, 2, 4):
        lanes.free(station)
    assert not lanes.is_shared(1)
    assert lanes.take(5, False) == 1


def test_a_lane_that_becomes_free_is_for_one_that_shares() -> None:
    lanes = Lanes(2)
    for station in range(5):
        lanes.take(station, False)
    lanes.free(1)
    # Lane 2 has station 3 alone, which may have a limit now.
    assert lanes.heir(2) == 3 and lanes.take(3, True) == 2 and lanes.is_alone(3)
    lanes.free(3)
    assert lanes.heir(2) == 0 and lanes.take(0, False) == 2
    assert lanes.take(2, False) == 1 and lanes.heir(1) is None
    lanes.free(2)
    lanes.free(4)
    assert lanes.heir(1) is None and lanes.heir(0) is None and Lanes(0).heir(0) is None


def test_a_station_with_a_limit_shares_with_nobody() -> None:
    lanes = Lanes(2)
    assert lanes.take(1, True) == 1 and lanes.is_alone(1)
    assert [lanes.take(station, False) for station in (2, 3)] == [2, 2]
    assert lanes.alone() == [1]


def test_a_station_that_gets_a_limit_moves_to_a_free_lane() -> None:
    lanes = Lanes(3)
    for station in (1, 2, 3, 4):
        lanes.take(station, False)
    lanes.free(2)
    assert lanes.is_shared(lanes.of(4)) and lanes.take(4, True) == 2
    assert lanes.is_alone(4) and not lanes.is_alone(1)
    # Without its limit it stays there, and others may come.
    assert lanes.take(4, False) == 2 and not lanes.is_alone(4)


def test_without_a_free_lane_a_limit_is_not_the_lanes() -> None:
    lanes = Lanes(1)
    assert [lanes.take(1, False), lanes.take(2, True)] == [1, 1]
    assert not lanes.is_alone(2)
    lanes.free(1)
    assert lanes.take(2, True) == 1 and lanes.is_alone(2)
    # And nobody comes beside it.
    assert lanes.take(3, False) == 0


def test_no_lanes_on_a_switch_without() -> None:
    lanes = Lanes(0)
    assert lanes.take(1, False) == lanes.take(2, True) == lanes.of(1) == 0
    assert not lanes.is_alone(1) and not lanes.is_shared(0)


def test_a_lane_that_a_station_had_is_kept() -> None:
    lanes = Lanes(3)
    lanes.keep(1, 3)
    lanes.keep(2, 9)
    assert (lanes.of(1), lanes.of(2), lanes.take(1, False), lanes.take(2, False)) == (3, 0, 3, 1)
    lanes.clear()
    assert lanes.of(1) == 0 and lanes.take(4, False) == 1


def test_weights_and_limits_are_the_data_planes_numbers() -> None:
    assert [weight(Station(weight=value)) for value in (1.0, 3.0, 0.25)] == [WEIGHT_UNIT, 300, 25]
    assert weight(Station(weight=1000.0)) == MAX_WEIGHT
    assert [rate(limit) for limit in (None, 64_000, 300_999)] == [0, 64, 300]


@pytest.mark.parametrize(
    ("change", "used"),
    [
        ({}, True),
        ({"ncr": {"law": "paper"}}, False),
        ({"ncr": {"isolate_stations": False}}, False),
        ({"features": {"ncr": False}}, False),
    ],
)
def test_lanes_are_for_shares_by_station(change: dict[str, object], used: bool) -> None:
    assert are_used(config(**change)) is used


def test_a_number_has_its_address() -> None:
    assert station_mac(station_number(0x02_00_00_00_00_07, 5, 9)) == 0x02_00_00_00_00_07


@pytest.mark.parametrize("asked", [0.9, 1.1, HELD_ABOVE - 0.01, 2.0, 4.0])
def test_drops_hold_a_limit_of_a_queue_only_well_above_it(asked: float) -> None:
    held = {}
    for queued in (False, True):
        table, limit = FlowTable(), 300 * KBPS / 8
        table.assign_stations(1, 1, 0, 1, 1.0)
        table.set_limits(1, 0.0, limit, queued)
        table.rates.value[1] = asked * limit
        table.apply_limits(np.array([1]))
        held[queued] = float(table.held[1])
    assert held[False] == pytest.approx(max(0.0, 1 - 1 / asked))
    assert held[True] == pytest.approx(max(0.0, 1 - HELD_ABOVE / asked))


def test_no_flow_goes_past_the_queue_that_keeps_its_limit() -> None:
    table = FlowTable()
    table.assign_stations(1, 1, 0, 1, 1.0)
    table.set_limits(1, 0.0, 300 * KBPS / 8, True)
    table.sparse_rate[1] = 1e6
    table.apply_limits(np.array([1]))
    assert table.crowded[1] and table.sparse_rate[1] == 0


@pytest.mark.parametrize(("stations", "depth"), [(0, 0), (1, 0), (2, 10), (4, 5), (100, 2)])
def test_bulk_is_a_queue_from_half_its_part_of_the_target_on(stations: int, depth: int) -> None:
    regulator = uplink()
    regulator.target = 40.0 * FULL_FRAME
    assert regulator._standing_depth(stations) == depth
