# SPDX-License-Identifier: Apache-2.0
"""Bounds of what one port may make an access point learn, and of where an address may move."""

import asyncio
import itertools
import logging
from typing import Any

import pytest
from finsy.proto import p4d, p4r

from accesspoint.controller.agent import stations as module
from accesspoint.controller.agent.contests import CONTEST_SECONDS, MAX_CONTESTS, MAX_PATIENCE, Contests
from accesspoint.controller.agent.program import Program
from accesspoint.controller.agent.station import Station, format_mac, station_number
from accesspoint.controller.agent.stations import Stations
from accesspoint.controller.config import AccessPointConfig, Pipeline

from .test_entries import PIPELINE, config

GATEWAY = 0x02_00_00_00_00_01
OTHER = 0x02_00_00_00_00_02
HERE, THERE = 1, 2
NEXT, RADIO, OTHER_RADIO = 3, 4, 5
PORTS = [
    {"port": HERE, "role": "station", "capacity_bps": "auto"},
    {"port": THERE, "role": "uplink", "capacity_bps": "auto"},
    {"port": NEXT, "role": "station", "capacity_bps": "auto"},
    {"port": RADIO, "role": "station", "capacity_bps": "auto", "roaming": True},
    {"port": OTHER_RADIO, "role": "station", "capacity_bps": "auto", "isolated": False},
]


def place_of(update: p4r.Update) -> tuple[int, bytes]:
    """Return the table and the key of an update's entry."""
    entry = update.entity.table_entry
    return entry.table_id, b"".join(match.SerializeToString() for match in entry.match)


class Switch:
    """Takes every write, and has the entries; of the table `full` no more than there are."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, bytes], p4r.TableEntry] = {}
        self.full: int | None = None

    async def write(self, updates: list[p4r.Update]) -> None:
        for update in updates:
            if update.type == p4r.Update.DELETE:
                del self.entries[place_of(update)]
            else:
                self.entries[place_of(update)] = update.entity.table_entry

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


def heard(mac: int, port: int) -> p4r.DigestList:
    """Return what the switch says of a frame of this address that comes in through the port."""
    members = [mac.to_bytes(6), port.to_bytes(2), b"\0", b"\0"]
    struct = p4d.P4StructLike(members=[p4d.P4Data(bitstring=member) for member in members])
    return p4r.DigestList(data=[p4d.P4Data(struct=struct)])


def hear(known: Stations, switch: Any, mac: int, port: int) -> None:
    """A frame of this address comes in through the port."""
    asyncio.run(known.learn(switch, heard(mac, port)))


class Clock:
    """The event loop's clock, set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "time", lambda loop: made.now)
    return made


def forwarded_to(switch: Switch, program: Program, mac: int) -> int | None:
    """Return the port that the switch sends packets to an address to; None: it floods them."""
    entry = switch.entries.get(place_of(program.update(p4r.Update.DELETE, module.forward_entry(mac, 0, 0))))
    return None if entry is None else module.egress_port(entry)


def port_of(known: Stations, mac: int) -> int | None:
    return next((station.port for station in known.by_number.values() if station.mac == mac), None)


def locked_here() -> AccessPointConfig:
    limits = {"stations_per_port": 1, "moves": 1}
    return config(limits=limits, stations={format_mac(GATEWAY): {"locked_port": HERE}})


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
    assert known.refused.by_reason == {
        "locked": 4, "uplink": 0, "moves": 0, "port": 0, "table": 0, "switch": 0,
    }  # fmt: skip
    assert len(caplog.records) == 1


def test_what_was_learned_before_an_address_was_locked_is_taken_back(program: Program) -> None:
    before, switch = Stations(config(), program), Switch()
    hear(before, switch, GATEWAY, THERE)
    hear(before, switch, OTHER, THERE)
    after = Stations(locked_here(), program)
    asyncio.run(switch.write(after.adopt(switch.entries.values())))
    assert (port_of(after, GATEWAY), port_of(after, OTHER), len(switch.entries)) == (None, THERE, 2)


@pytest.mark.parametrize("taker", [HERE, NEXT])
def test_uplink_address_claimed_by_a_station_stays(program: Program, clock: Clock, taker: int) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, OTHER, taker)
    hear(known, switch, GATEWAY, THERE)
    entries = dict(switch.entries)
    for claims in range(1, 501):
        clock.now += 1
        hear(known, switch, GATEWAY, taker)
        assert (port_of(known, GATEWAY), known.refused.by_reason["uplink"]) == (THERE, claims)
    # The others of that port are where they were, and have as many places as before.
    assert switch.entries == entries and port_of(known, OTHER) == taker
    # Once its entry has gone idle, nobody is cut off by its moving.
    key = {1: GATEWAY.to_bytes(6), 2: THERE.to_bytes(2), 3: b"", 4: b""}
    asyncio.run(known.age(switch, key))  # type: ignore[arg-type]
    hear(known, switch, GATEWAY, taker)
    assert port_of(known, GATEWAY) == taker


def test_uplink_address_first_heard_behind_a_station_moves_once(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, GATEWAY, HERE)
    for _ in range(20):
        hear(known, switch, GATEWAY, THERE)
        assert forwarded_to(switch, program, GATEWAY) == THERE
        hear(known, switch, GATEWAY, HERE)
        clock.now += 0.1
    assert next(iter(known.by_number.values())).moves == 1
    assert known.refused.by_reason["uplink"] == 20 and not known.refused.by_reason["moves"]


def test_uplink_address_after_a_restart_stays(program: Program, clock: Clock) -> None:
    before, switch = Stations(config(ports=PORTS), program), Switch()
    hear(before, switch, GATEWAY, THERE)
    after = Stations(config(ports=PORTS), program)
    asyncio.run(switch.write(after.adopt(switch.entries.values())))
    hear(after, switch, GATEWAY, HERE)
    assert (port_of(after, GATEWAY), after.refused.by_reason["uplink"]) == (THERE, 1)


def test_station_that_left_to_the_uplink_is_followed(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS, limits={"moves": 1}), program), Switch()
    for port in (HERE, NEXT, THERE):
        hear(known, switch, OTHER, port)
        assert port_of(known, OTHER) == port


def test_uplink_address_is_protected_in_its_vlan_alone(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, GATEWAY, THERE)
    asyncio.run(known._learn(switch, GATEWAY, (5, 0), HERE))  # type: ignore[arg-type]
    assert known.by_number[station_number(GATEWAY, 5, 0)].port == HERE
    assert known.by_number[station_number(GATEWAY, 0, 0)].port == THERE


def test_moves_used_up_bring_an_address_back_until_they_are_over(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, OTHER, HERE)
    for moves, port in enumerate(itertools.islice(itertools.cycle((NEXT, HERE)), 5), start=1):
        clock.now += 1
        hear(known, switch, OTHER, port)
        assert (port_of(known, OTHER), known.refused.by_reason["moves"]) == (port, 0), moves
    # The fifth was the other one's. The next frame of either brings it back, and there it stays.
    for _ in range(100):
        for port in (HERE, NEXT):
            hear(known, switch, OTHER, port)
            assert (port_of(known, OTHER), forwarded_to(switch, program, OTHER)) == (HERE, HERE)
        clock.now += 1
    assert len(switch.entries) == 2
    # Over is the window of the first move; of one that goes on from there the beginning is still the same.
    clock.now = 1001 + module.MOVES_SECONDS + 0.5
    hear(known, switch, OTHER, NEXT)
    assert port_of(known, OTHER) == NEXT
    hear(known, switch, OTHER, HERE)
    assert port_of(known, OTHER) == HERE
    clock.now += 2 * module.MOVES_SECONDS
    hear(known, switch, OTHER, NEXT)
    clock.now += 2 * module.MOVES_SECONDS
    # After so long a rest it is a station of that port.
    for port in (HERE, NEXT, HERE, NEXT, HERE, NEXT, HERE):
        hear(known, switch, OTHER, port)
    assert port_of(known, OTHER) == NEXT


def test_moves_used_up_at_a_third_port_bring_an_address_back(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS, limits={"moves": 2, "stations_per_port": 1}), program), Switch()
    for port in (HERE, NEXT, RADIO):
        hear(known, switch, OTHER, port)
    # Somebody else took the place of its port: it comes back all the same.
    hear(known, switch, OTHER + 1, HERE)
    hear(known, switch, OTHER, OTHER_RADIO)
    assert (port_of(known, OTHER), forwarded_to(switch, program, OTHER)) == (HERE, HERE)
    assert len(switch.entries) == 4


def test_moves_used_up_in_a_switch_without_room_flood_an_address(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS, limits={"moves": 1}), program), Switch()
    hear(known, switch, OTHER, HERE)
    hear(known, switch, OTHER, NEXT)
    switch.fill(program.learn_id, 0)
    hear(known, switch, OTHER, HERE)
    assert (port_of(known, OTHER), known.refused.by_reason["switch"], len(switch.entries)) == (None, 1, 0)
    switch.fill(program.learn_id, 9)
    hear(known, switch, OTHER, HERE)
    assert (port_of(known, OTHER), forwarded_to(switch, program, OTHER)) == (HERE, HERE)


def test_blocked_station_brought_back_is_still_blocked(program: Program, clock: Clock) -> None:
    blocked = {format_mac(OTHER): {"blocked": True}}
    known, switch = Stations(config(ports=PORTS, limits={"moves": 1}, stations=blocked), program), Switch()
    for port in (HERE, NEXT, HERE):
        hear(known, switch, OTHER, port)
    nowhere = program.target.nowhere
    assert (port_of(known, OTHER), forwarded_to(switch, program, OTHER)) == (HERE, nowhere)
    # Behind the uplink it is not contested: while one is open, packets to the address are flooded.
    hear(known, switch, OTHER, THERE)
    hear(known, switch, OTHER, RADIO)
    assert (port_of(known, OTHER), forwarded_to(switch, program, OTHER)) == (THERE, nowhere)


@pytest.mark.parametrize("radio", [RADIO, OTHER_RADIO])
def test_station_that_roams_is_flooded_and_then_known(program: Program, clock: Clock, radio: int) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    asked: list[tuple[int, tuple[int, int, int]]] = []
    known.ask = lambda mac, place: asked.append((mac, place))
    hear(known, switch, OTHER, THERE)
    since = next(iter(known.by_number.values())).since
    while port_of(known, OTHER) != radio:
        assert clock.now < 1000 + CONTEST_SECONDS + 0.2
        clock.now += 0.1
        hear(known, switch, OTHER, radio)
        assert forwarded_to(switch, program, OTHER) in (None, radio)
    assert clock.now >= 1000 + CONTEST_SECONDS and asked == [(OTHER, (THERE, 0, 0))]
    assert not any(known.refused.by_reason.values()) and len(switch.entries) == 2
    station = next(iter(known.by_number.values()))
    assert (station.since, station.moves) == (since, 1)


def test_station_that_walks_to_and_fro_is_never_sent_where_it_is_not(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    for _ in range(30):
        for port in (THERE, RADIO):
            for _ in range(50):
                clock.now += 0.1
                hear(known, switch, OTHER, port)
                assert forwarded_to(switch, program, OTHER) in (None, port)
    assert not known.refused.by_reason["moves"]


def test_uplink_address_that_speaks_is_not_taken_by_a_radio(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, GATEWAY, THERE)
    flooded = 0
    for _ in range(10_000):
        clock.now += 0.1
        hear(known, switch, GATEWAY, RADIO)
        assert forwarded_to(switch, program, GATEWAY) in (None, THERE)
        flooded += forwarded_to(switch, program, GATEWAY) is None
        hear(known, switch, GATEWAY, THERE)
        assert forwarded_to(switch, program, GATEWAY) == THERE
    # Contests are 4 s apart, and each lasts until the uplink's next frame.
    assert flooded <= 253 and known.refused.by_reason["uplink"] == 10_000
    assert next(iter(known.by_number.values())).moves == 0


def test_uplink_address_that_a_radio_took_in_silence_comes_back_at_once(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, GATEWAY, THERE)
    silences = []
    for _ in range(4):
        began = clock.now
        while port_of(known, GATEWAY) != RADIO:
            clock.now += 0.25
            hear(known, switch, GATEWAY, RADIO)
        silences.append(clock.now - began)
        hear(known, switch, GATEWAY, THERE)
        assert forwarded_to(switch, program, GATEWAY) == THERE
    # Each time the uplink has to be silent for twice as long.
    assert silences == [1.25, 2.25, 4.25, 8.25]
    # A quiet while makes it an address like others.
    clock.now += module.MOVES_SECONDS + 1
    hear(known, switch, GATEWAY, RADIO)
    clock.now += CONTEST_SECONDS
    hear(known, switch, GATEWAY, RADIO)
    assert port_of(known, GATEWAY) == RADIO


def test_contested_address_is_not_taken_by_a_wire(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, GATEWAY, THERE)
    hear(known, switch, GATEWAY, RADIO)
    clock.now += 10
    hear(known, switch, GATEWAY, HERE)
    assert (port_of(known, GATEWAY), known.refused.by_reason["uplink"]) == (None, 1)
    hear(known, switch, GATEWAY, THERE)
    assert forwarded_to(switch, program, GATEWAY) == THERE


def test_contest_is_over_with_its_session(program: Program, clock: Clock) -> None:
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, GATEWAY, THERE)
    hear(known, switch, GATEWAY, RADIO)
    known.forget()
    hear(known, switch, GATEWAY, THERE)
    assert forwarded_to(switch, program, GATEWAY) == THERE and not known.refused.by_reason["uplink"]


@pytest.mark.parametrize("locked", [THERE, RADIO])
def test_locked_address_is_not_contested(program: Program, clock: Clock, locked: int) -> None:
    at = {format_mac(GATEWAY): {"locked_port": locked}}
    known, switch = Stations(config(ports=PORTS, stations=at), program), Switch()
    hear(known, switch, GATEWAY, locked)
    for port in (THERE, RADIO, HERE):
        clock.now += 10
        hear(known, switch, GATEWAY, port)
        assert forwarded_to(switch, program, GATEWAY) == locked
    # Contested before it was locked: where it is locked it is learned at once.
    known = Stations(config(ports=PORTS), program)
    switch = Switch()
    hear(known, switch, GATEWAY, THERE)
    hear(known, switch, GATEWAY, RADIO)
    known._config = config(ports=PORTS, stations=at)
    hear(known, switch, GATEWAY, ({THERE, RADIO} - {locked}).pop())
    assert port_of(known, GATEWAY) is None
    hear(known, switch, GATEWAY, locked)
    assert forwarded_to(switch, program, GATEWAY) == locked


def test_contests_are_bounded(clock: Clock) -> None:
    contests, station = Contests(), Station(1, 0, 0, THERE, 0.0)
    assert all(contests.open(number, station, clock.now) for number in range(MAX_CONTESTS))
    assert not contests.open(MAX_CONTESTS, station, clock.now)
    later = clock.now + MAX_PATIENCE + 1
    assert contests.open(MAX_CONTESTS, station, later) and contests.contested(0, later) is None


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
    known, switch = Stations(config(ports=PORTS), program), Switch()
    hear(known, switch, GATEWAY, THERE)
    hear(known, switch, OTHER, HERE)
    switch.fill(program.learn_id)
    hear(known, switch, OTHER, NEXT)
    assert (port_of(known, OTHER), switch.count(program.learn_id)) == (NEXT, 2)
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
