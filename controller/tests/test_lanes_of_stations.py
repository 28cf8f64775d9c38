# SPDX-License-Identifier: Apache-2.0
"""Entries of stations with lanes: who has one, what it gets, and what changes with settings."""

import asyncio
from typing import Any

import pytest
from finsy.proto import p4r

from accesspoint.controller.agent.program import Program
from accesspoint.controller.agent.stations import Stations
from accesspoint.controller.config import Pipeline

from .test_entries import PIPELINE, config
from .test_stations import HERE, PORTS, THERE, Switch, hear

ONE, OTHER, SERVER = 0x02_00_00_00_00_11, 0x02_00_00_00_00_12, 0x02_00_00_00_00_13
ADDRESS = "02:00:00:00:00:11"


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(Pipeline.model_validate(PIPELINE))


def lanes(switch: Switch, program: Program, table: str) -> dict[int, tuple[int, ...]]:
    """Lane, weight and rate in the entries of a table, by address; of those without a lane nothing."""
    found = {}
    for entry in switch.entries.values():
        if program.schema.tables[entry.table_id].alias == table:
            params = [int.from_bytes(param.value) for param in entry.action.action.params]
            found[int.from_bytes(entry.match[0].exact.value)] = tuple(params[-3:]) if len(params) > 2 else ()
    return found


def known(program: Program, **fields: Any) -> tuple[Stations, Switch]:
    stations, switch = Stations(config(ports=PORTS, **fields), program), Switch()
    hear(stations, switch, ONE, HERE)
    hear(stations, switch, OTHER, HERE)
    hear(stations, switch, SERVER, THERE)
    return stations, switch


def test_stations_have_lanes_and_servers_none(program: Program) -> None:
    _, switch = known(program)
    assert lanes(switch, program, "learn") == {ONE: (1, 100, 0), OTHER: (2, 100, 0), SERVER: ()}
    assert lanes(switch, program, "forward") == {ONE: (1, 100, 0), OTHER: (2, 100, 0), SERVER: ()}


def test_weights_and_limits_are_those_of_the_lane(program: Program) -> None:
    settings = {ADDRESS: {"weight": 3.0, "limit_up_bps": 300_000, "limit_down_bps": 2_000_000}}
    stations, switch = known(program, stations=settings)
    assert lanes(switch, program, "learn")[ONE] == (1, 300, 300)
    assert lanes(switch, program, "forward")[ONE] == (1, 300, 2000)
    assert ONE in stations.own_queues() and OTHER not in stations.own_queues()


def test_a_changed_setting_changes_the_entries(program: Program) -> None:
    stations, switch = known(program)
    vars(stations._config).update(vars(config(ports=PORTS, stations={ADDRESS: {"limit_up_bps": 400_000}})))
    connection: Any = switch
    asyncio.run(stations.sync(connection))
    assert lanes(switch, program, "learn")[ONE] == (1, 100, 400)
    assert lanes(switch, program, "forward")[ONE] == (1, 100, 0)
    vars(stations._config).update(vars(config(ports=PORTS, ncr={"law": "paper"})))
    asyncio.run(stations.sync(connection))
    assert lanes(switch, program, "learn") == dict.fromkeys((ONE, OTHER, SERVER), ())


def test_a_controller_that_takes_over_keeps_the_lanes(program: Program) -> None:
    _, switch = known(program)
    after = Stations(config(ports=PORTS), program)
    entries = [p4r.TableEntry.FromString(entry.SerializeToString()) for entry in switch.entries.values()]
    assert after.adopt(entries) == []
    connection: Any = switch
    asyncio.run(after.sync(connection))
    hear(after, switch, ONE + 0x10, HERE)
    learned = lanes(switch, program, "learn")
    assert (learned[ONE], learned[OTHER], learned[ONE + 0x10]) == ((1, 100, 0), (2, 100, 0), (3, 100, 0))
