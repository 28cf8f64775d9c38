# SPDX-License-Identifier: Apache-2.0
"""Groups of stations: weight and limits of each station that names one, and of those that name none."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from pydantic import ValidationError

from accesspoint.controller.agent.flow_table import DOWN, UP, FlowTable
from accesspoint.controller.agent.program import Program
from accesspoint.controller.agent.stations import Stations
from accesspoint.controller.agent.usage import Usage
from accesspoint.controller.api.http import plain
from accesspoint.controller.config import AccessPointConfig
from accesspoint.controller.fleet.remote_backend import RemoteBackend

from .test_entries import config

GUEST, OWN, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
GROUPS = {"default": {"limit_down_bps": 8_000_000}, "guests": {"limit_down_bps": 800_000, "weight": 0.5}, "free": {}}
STATIONS = {GUEST: {"group": "guests"}, OWN: {"group": "guests", "limit_up_bps": 400_000, "weight": 3}}


def grouped(**fields: object) -> AccessPointConfig:
    return AccessPointConfig.model_validate({**config().model_dump(), "groups": GROUPS, "stations": STATIONS, **fields})


def test_station_has_what_its_group_has_unless_it_has_its_own() -> None:
    of = grouped()
    found = {address: of.station(address) for address in (GUEST, OWN, OTHER)}
    assert [(one.weight, one.limit_down_bps, one.limit_up_bps) for one in found.values()] == [
        (0.5, 800_000, None), (3, 800_000, 400_000), (1, 8_000_000, None)
    ]  # fmt: skip
    free = grouped(stations={GUEST: {"group": "free"}})
    assert free.station(GUEST).limit_down_bps is None


def test_station_with_a_weight_of_one_keeps_it_in_a_group() -> None:
    of = grouped(stations={GUEST: {"group": "guests", "weight": 1}})
    assert of.station(GUEST).weight == 1


def test_agent_gets_no_weight_that_nobody_set() -> None:
    async def sent(of: AccessPointConfig) -> AccessPointConfig:
        fleet: Any = RemoteBackend(MagicMock(), AsyncMock())
        fleet.desire(of.name, 1, of)
        return AccessPointConfig.model_validate(fleet._wanted[of.name].config)

    found = asyncio.run(sent(grouped(stations={GUEST: {"group": "guests"}, OWN: {"group": "guests", "weight": 1}})))
    assert [found.station(address).weight for address in (GUEST, OWN)] == [0.5, 1]


def test_configuration_that_is_read_and_given_back_leaves_weights_to_groups() -> None:
    of = grouped(stations={GUEST: {"group": "guests"}, OWN: {"group": "guests", "weight": 1}})
    back = AccessPointConfig.model_validate(plain(of))
    assert [back.station(address).weight for address in (GUEST, OWN)] == [0.5, 1]


def test_group_that_does_not_exist_or_needs_feedback_is_refused() -> None:
    with pytest.raises(ValidationError, match="puts 02:00:00:00:00:01 into group gests, which is not in `groups`"):
        grouped(stations={GUEST: {"group": "gests"}})
    with pytest.raises(ValidationError, match="`groups` has a weight or a limit for default"):
        grouped(features={"ncr": False}, stations={})


def test_limits_of_groups_hold_for_known_stations_and_those_that_come() -> None:
    of = grouped()
    program = Program(of.pipeline)
    usage = Usage(of, program, Stations(of, program), FlowTable())

    def limits(address: str) -> tuple[float, float]:
        slot = usage._slot(int(address.replace(":", ""), 16))
        return float(usage.table._limits[DOWN, slot]), float(usage.table._limits[UP, slot])

    assert [limits(address) for address in (GUEST, OWN, OTHER)] == [(1e5, 0), (1e5, 5e4), (1e6, 0)]
    of.stations, of.groups = {}, {}
    usage.configure()
    assert [limits(address) for address in (GUEST, OWN, OTHER)] == [(0, 0)] * 3
