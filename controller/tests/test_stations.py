# SPDX-License-Identifier: Apache-2.0
"""What one port may make an access point learn, and how often an address may move."""

import asyncio
import itertools
import logging
from typing import Any

import pytest
from finsy.proto import p4d, p4r

from controller.agent import stations as module
from controller.agent.program import Program
from controller.agent.stations import Stations
from controller.config import AccessPointConfig, Pipeline

from .test_entries import PIPELINE, config

GATEWAY = 0x02_00_00_00_00_01
OTHER = 0x02_00_00_00_00_02
HERE, THERE = 1, 2


class Switch:
    """Takes every write, and has the entries; of the table `full` no more than there are."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, bytes], p4r.TableEntry] = {}
        self.full: int | None = None

    async def write(self, updates: list[p4r.Update]) -> None:
        for update in updates:
            entry = update.entity.table_entry
            place = entry.table_id, b"".join(match.SerializeToString() for match in entry.match)
            if update.type == p4r.Update.DELETE:
                del self.entries[place]
            else:
                self.entries[place] = entry

    write_existing = write

    async def insert(self, updates: list[p4r.Update]) -> dict[int, str]:
        refused = {number: "no room" for number, update in enumerate(updates) if self._has_no_room(update)}
        await self.write([update for number, update in enumerate(updates) if number not in refused])
        return refused

    def _has_no_room(self, update: p4r.Update) -> bool:
        table = update.entity.table_entry.table_id
        return update.type == p4r.Update.INSERT and table == self.full and self.count(table) >= self.room

    def count(self, table: int) -> int:
        return sum(number == table for number, _ in self.entries)

    def fill(self, table: int, room: int | None = None) -> None:
        """From now on there is room for so many entries, or for those that there are."""
        self.full, self.room = table, self.count(table) if room is None else room


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(Pipeline.model_validate(PIPELINE))


def hear(known: Stations, switch: Any, mac: int, port: int) -> None:
    """A frame of this address comes in through the port."""
    members = [mac.to_bytes(6), port.to_bytes(2), b"\0", b"\0"]
    struct = p4d.P4StructLike(members=[p4d.P4Data(bitstring=member) for member in members])
    asyncio.run(known.learn(switch, p4r.DigestList(data=[p4d.P4Data(struct=struct)])))


def port_of(known: Stations, mac: int) -> int | None:
    return next((station.port for station in known.by_number.values() if station.mac == mac), None)


def locked_here() -> AccessPointConfig:
    limits = {"stations_per_port": 1, "moves": 1}
    return config(limits=limits, stations={module.written(GATEWAY): {"locked_port": HERE}})


def test_a_locked_address_is_at_its_port_and_nowhere_else(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    known, switch = Stations(locked_here(), program), Switch()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            hear(known, switch, GATEWAY, THERE)
    assert port_of(known, GATEWAY) is None
    # Others have taken all that the port may bring.
    hear(known, switch, OTHER, HERE)
    hear(known, switch, GATEWAY, HERE)
    hear(known, switch, GATEWAY, THERE)
    assert port_of(known, GATEWAY) == HERE
    assert known.refused.by_reason == {"locked": 4, "moves": 0, "port": 0, "table": 0, "switch": 0}
    assert len(caplog.records) == 1


def test_what_was_learned_before_an_address_was_locked_is_taken_back(program: Program) -> None:
    before, switch = Stations(config(), program), Switch()
    hear(before, switch, GATEWAY, THERE)
    hear(before, switch, OTHER, THERE)
    after = Stations(locked_here(), program)
    asyncio.run(switch.write(after.adopt(switch.entries.values())))
    assert (port_of(after, GATEWAY), port_of(after, OTHER), len(switch.entries)) == (None, THERE, 2)


def test_an_address_that_moves_too_often_stays_until_it_was_quiet(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, switch, now = Stations(config(), program), Switch(), 1000.0
    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "time", lambda loop: now)
    ports = itertools.cycle((HERE, THERE))
    for moves in range(6):
        port = next(ports)
        hear(known, switch, OTHER, port)
        assert port_of(known, OTHER) == port, moves
        now += 1
    hear(known, switch, OTHER, next(ports))
    assert (port_of(known, OTHER), known.refused.by_reason["moves"]) == (THERE, 1)
    now = 1001 + module.MOVES_SECONDS
    hear(known, switch, OTHER, HERE)
    assert port_of(known, OTHER) == THERE
    now += 1
    hear(known, switch, OTHER, HERE)
    assert (port_of(known, OTHER), known.refused.by_reason["moves"]) == (HERE, 2)


def test_one_port_leaves_room_for_others(program: Program) -> None:
    known, switch = Stations(config(limits={"stations_per_port": 3}), program), Switch()
    for number in range(10):
        hear(known, switch, OTHER + number, HERE)
    hear(known, switch, GATEWAY, THERE)
    assert port_of(known, GATEWAY) == THERE
    assert (len(known.by_number), known.refused.by_reason["port"]) == (4, 7)
    # Who is known at the port goes on to be so.
    hear(known, switch, OTHER, HERE)
    assert known.refused.by_reason["port"] == 7


def test_a_station_moves_in_a_full_table(program: Program) -> None:
    """B12: the old entry leaves room for the new one."""
    known, switch = Stations(config(), program), Switch()
    hear(known, switch, GATEWAY, THERE)
    hear(known, switch, OTHER, HERE)
    switch.fill(program.learn_id)
    hear(known, switch, OTHER, THERE)
    assert (port_of(known, OTHER), switch.count(program.learn_id)) == (THERE, 2)
    # Where the switch has no room at all, the station is forgotten and what goes there flooded, and nothing ends.
    switch.fill(program.learn_id, 1)
    hear(known, switch, OTHER, HERE)
    assert (port_of(known, OTHER), known.refused.by_reason["switch"]) == (None, 1)
    assert len(switch.entries) == 2
    switch.fill(program.learn_id, 9)
    hear(known, switch, OTHER, HERE)
    assert port_of(known, OTHER) == HERE


def test_a_station_that_the_switch_lost_is_written_again(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    known, switch, now = Stations(config(), program), Switch(), 1000.0
    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "time", lambda loop: now)
    hear(known, switch, OTHER, HERE)
    there = dict(switch.entries)
    switch.entries.clear()
    # A digest that was on its way tells nothing.
    now += 0.5
    hear(known, switch, OTHER, HERE)
    assert not switch.entries
    now += 1
    hear(known, switch, OTHER, HERE)
    assert (switch.entries, port_of(known, OTHER)) == (there, HERE)
