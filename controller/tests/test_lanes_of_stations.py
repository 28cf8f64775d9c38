# SPDX-License-Identifier: Apache-2.0
"""Entries of stations with lanes: who has one, what it gets, and what changes with settings."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from finsy.proto import p4r

from accesspoint.controller.agent.flow_table import FlowTable
from accesspoint.controller.agent.lanes import Lanes
from accesspoint.controller.agent.program import Program
from accesspoint.controller.agent.station import station_number
from accesspoint.controller.agent.stations import Stations, forward_entry, learn_entry
from accesspoint.controller.agent.usage import Usage
from accesspoint.controller.config import Pipeline

from .test_entries import PIPELINE, config
from .test_stations import HERE, NEXT, PORTS, RADIO, THERE, Switch, hear, heard, place_of

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


def is_of(entry: p4r.TableEntry, program: Program, table: str, mac: int) -> bool:
    return program.schema.tables[entry.table_id].alias == table and int.from_bytes(entry.match[0].exact.value) == mac


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


class Slow(Switch):
    """Lets others go ahead before each write, and has no change for entries that are gone."""

    async def write(self, updates: list[p4r.Update]) -> None:
        await asyncio.sleep(0)
        await super().write(updates)

    async def write_existing(self, updates: list[p4r.Update]) -> None:
        await asyncio.sleep(0)
        await super().write([update for update in updates if place_of(update) in self.entries])


def key_of(mac: int, port: int) -> dict[int, bytes]:
    """Return the key of a station's entry in `learn`, by field id."""
    return {1: mac.to_bytes(6), 2: port.to_bytes(2), 3: b"\0", 4: b"\0"}


def test_a_station_is_one_by_all_its_addresses_as_its_lane_is(program: Program) -> None:
    stations, _ = known(program)
    connection: Any = Switch()
    hear(stations, connection, ONE + 0x10, NEXT)
    table = FlowTable()
    usage = Usage(stations._config, program, stations, table)
    addresses = bytes([10, 0, 0, 9]), bytes([0xFD, *range(15)])
    for index, address in enumerate((*addresses, *addresses)):
        # Two are behind one port, and nobody knows yet which of them has the address.
        key: Any = SimpleNamespace(
            ingress_port=NEXT if index < 2 else HERE, egress_port=THERE, outer_vid=0, inner_vid=0, src_addr=address,
            dst_addr=bytes(4),
        )  # fmt: skip
        flow: Any = SimpleNamespace(index=index, key=key, direction="uplink", station=hash(address))
        usage.add(flow)
    assert len(set(table.station[:2].tolist())) == 1 and len(set(table.station[:4].tolist())) == 3


def test_a_station_that_ages_out_while_settings_change_keeps_no_lane(program: Program) -> None:
    stations, switch = known(program)
    slow: Any = Slow()
    slow.entries = switch.entries
    of_group = {"groups": {"default": {"limit_up_bps": 400_000}}}
    vars(stations._config).update(vars(config(ports=PORTS, **of_group)))

    async def together() -> None:
        await asyncio.gather(stations.sync(slow), stations.age(slow, key_of(OTHER, HERE)))

    asyncio.run(together())
    assert OTHER not in lanes(slow, program, "learn") and OTHER not in lanes(slow, program, "forward")
    assert stations.lanes.of(station_number(OTHER, 0, 0)) == 0
    assert lanes(slow, program, "learn")[ONE] == (1, 100, 400)


def test_a_station_that_shares_gets_the_lane_of_one_that_leaves(program: Program) -> None:
    stations, switch = Stations(config(ports=PORTS), program), Switch()
    stations.lanes = Lanes(2)
    for mac in (ONE, OTHER, ONE + 0x10):
        hear(stations, switch, mac, HERE)
    assert lanes(switch, program, "learn")[ONE + 0x10] == lanes(switch, program, "learn")[ONE] == (1, 100, 0)
    connection: Any = switch
    asyncio.run(stations.age(connection, key_of(OTHER, HERE)))
    for table in ("learn", "forward"):
        assert sorted(lanes(switch, program, table).values()) == [(1, 100, 0), (2, 100, 0)]


def test_a_station_whose_source_entry_is_lost_has_one_lane(program: Program) -> None:
    class Kept(Switch):
        """Keeps entries that are inserted again."""

        async def insert(self, updates: list[p4r.Update]) -> dict[int, str]:
            return await super().insert([update for update in updates if place_of(update) not in self.entries])

    stations, switch = Stations(config(ports=PORTS), program), Kept()
    stations.lanes = Lanes(2)
    for mac in (ONE, OTHER, ONE + 0x10):
        hear(stations, switch, mac, RADIO)
    # The other's lane is free, as it is behind the uplink now, and one of those that share loses an entry.
    hear(stations, switch, OTHER, THERE)
    place = next(place for place, entry in switch.entries.items() if is_of(entry, program, "learn", ONE))
    del switch.entries[place]
    stations.by_number[station_number(ONE, 0, 0)].confirmed -= 10
    hear(stations, switch, ONE, RADIO)
    assert lanes(switch, program, "learn")[ONE] == lanes(switch, program, "forward")[ONE] != ()


def test_a_station_that_ages_out_while_it_moves_is_behind_its_new_port(program: Program) -> None:
    stations, switch = known(program)
    slow: Any = Slow()
    slow.entries = switch.entries

    async def together() -> None:
        moves = stations.learn(slow, heard(ONE, NEXT))
        await asyncio.gather(moves, stations.age(slow, key_of(ONE, HERE)))

    asyncio.run(together())
    assert stations.by_number[station_number(ONE, 0, 0)].port == NEXT
    assert lanes(slow, program, "forward")[ONE] == (1, 100, 0)


@pytest.mark.parametrize("table", ["learn", "forward"])
@pytest.mark.parametrize("lane", [7, 0])
@pytest.mark.parametrize("used", [True, False])
def test_entries_of_a_station_that_differ_are_made_the_same(
    program: Program, table: str, lane: int, used: bool
) -> None:
    _, switch = known(program)
    place = next(place for place, entry in switch.entries.items() if is_of(entry, program, table, ONE))
    if lane:
        switch.entries[place].action.action.params[-3].value = bytes([lane])
    else:
        without = {"learn": learn_entry(ONE, 0, 0, HERE, "known_source")}.get(
            table, forward_entry(ONE, 0, 0, "forward_to", egress_port=HERE)
        )
        switch.entries[place] = program.update(p4r.Update.MODIFY, without).entity.table_entry
    after = Stations(config(ports=PORTS, ncr={"isolate_stations": used}), program)
    connection: Any = switch
    asyncio.run(connection.write(after.adopt([*switch.entries.values()])))
    asyncio.run(after.sync(connection))
    learned, forwarded = lanes(switch, program, "learn"), lanes(switch, program, "forward")
    assert learned == forwarded
    assert len(set(learned.values())) == (3 if used else 1)
