# SPDX-License-Identifier: Apache-2.0
"""MAC addresses by port, VLAN by VLAN: learned from source digests, aged by the idle timeout of `learn`.

A known address has an entry in `learn` (no further digest) and one in `forward` (no flooding). An address that shows up
behind another port has moved (IEEE 802.1Q, 8.7): the new entries replace the old ones in one write. Flows need no
change: those between other ports are other flows, and the former ones go idle. Three kinds do not move:

  - a locked address is never behind another port;
  - an address that is known behind the uplink does not move to a station's port while its entries live; where stations
    roam, a contest decides (`contests`);
  - an address that has used up its moves goes back to the port where it was before they began, until they are long
    enough ago.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable

import finsy as fy
from finsy.proto import p4r

from ..config import AccessPointConfig
from .connection import Connection
from .contests import MAX_PATIENCE, Contests
from .lanes import Lanes, are_used, rate, weight
from .program import Program, digest_members, table_entry
from .refusals import LOCKED, MOVES, PORT, SWITCH, TABLE, UPLINK, Refusals
from .station import Station, format_mac, station_mac, station_number

LOG = logging.getLogger(__name__)

STATIONS_SIZE = 4096
"""Size of `learn` and `forward`."""

RETIMED_PER_WRITE = 64
"""Stations that get another idle timeout with one write."""

LOST_SECONDS = 1.0
"""As `flows.LOST_SECONDS`."""

LaneParams = tuple[int, int, int, int]
"""A lane, its weight, and its rates up and down in kbit/s; as in the entries."""
NO_LANE = 0, 0, 0, 0
UNEQUAL = -1, 0, 0, 0
"""In place of the lane of a station whose entries do not say the same."""

MOVES_SECONDS = MAX_PATIENCE
"""Seconds in which moves are counted: M of RFC 7432, section 15.1."""


class Stations:
    """The MAC addresses of one access point, each in its VLAN."""

    def __init__(self, config: AccessPointConfig, program: Program) -> None:
        self._config = config
        self._program = program
        self.by_number: dict[int, Station] = {}
        self.at: dict[tuple[int, int, int], set[int]] = {}
        """The MAC addresses behind each port, in each VLAN."""
        self._by_port: Counter[int] = Counter()
        self.changed: Callable[[], None] = lambda: None
        """Called when another one is behind a port."""
        self.ask: Callable[[int, tuple[int, int, int]], None] = lambda mac, place: None
        """Called with a MAC address, and its port and VLAN, when a contest is opened: to have the host there speak."""
        self.contests = Contests()
        self.lanes = Lanes(program.lanes)
        self._told_of_sharing = False
        self._changing = asyncio.Lock()
        """Held while one station's entries are written: what the switch says meanwhile comes after that."""
        self._idle_timeout = config.station_idle_timeout
        """Idle timeout of the entries that were written."""
        self.refused = Refusals(config.name, LOCKED, UPLINK, MOVES, PORT, TABLE, SWITCH)

    def forget(self) -> None:
        """Forget all stations: the pipeline was pushed again."""
        self.by_number.clear()
        self.at.clear()
        self._by_port.clear()
        self.contests.clear()
        self.lanes.clear()
        self._idle_timeout = self._config.station_idle_timeout

    def adopt(self, entries: Iterable[p4r.TableEntry]) -> list[p4r.Update]:
        """Resume from the entries of `learn` and `forward` that the switch has; return the updates that fix them."""
        learned: dict[tuple[int, int, int, int], p4r.TableEntry] = {}
        forwards: dict[tuple[int, int, int], p4r.TableEntry] = {}
        for entry in entries:
            values = {match.field_id: int.from_bytes(match.exact.value) for match in entry.match}
            if entry.table_id == self._program.learn_id:
                learned[values[1], values[3], values[4], values[2]] = entry
            else:
                forwards[values[1], values[2], values[3]] = entry
        updates = []
        idle = round(self._config.station_idle_timeout * 1e9)
        for (*place, port), entry in learned.items():
            mac, outer_vid, inner_vid = place
            forward = forwards.get((mac, outer_vid, inner_vid))
            goes_to = None if forward is None else egress_port(forward)
            is_there = goes_to in (port, self._program.target.nowhere) and self._config.port(port)
            if forward is None or not is_there or self._locked(mac) not in (None, port):
                updates.append(_delete(entry))
                continue
            del forwards[mac, outer_vid, inner_vid]
            station = Station(mac, outer_vid, inner_vid, port, time.time(), blocked=goes_to != port)
            station.lane = lane_of(entry, forward)
            self.by_number[station_number(mac, outer_vid, inner_vid)] = station
            self.lanes.keep(station_number(mac, outer_vid, inner_vid), station.lane[0])
            self._arrive(station)
            if entry.idle_timeout_ns != idle:
                entry.idle_timeout_ns = idle
                updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=entry)))
        return updates + [_delete(entry) for entry in forwards.values()]

    async def learn(self, connection: Connection, digest: p4r.DigestList) -> None:
        """Handle a digest list of sources."""
        for data in digest.data:
            mac, port, outer_vid, inner_vid = (int.from_bytes(member) for member in digest_members(data))
            async with self._changing:
                await self._learn(connection, mac, (outer_vid, inner_vid), port)

    async def _learn(self, connection: Connection, mac: int, vlan: tuple[int, int], port: int) -> None:
        now, place = asyncio.get_running_loop().time(), station_number(mac, *vlan)
        known = self.by_number.get(place)
        # The switch reports addresses without an entry: it is lost, unless the digest was sent before it was written.
        if known is not None and known.port == port and now - known.confirmed <= LOST_SECONDS:
            return
        if self._config.port(port) is None:
            # It was removed meanwhile.
            return
        contested = self.contests.contested(place, now) if known is None else None
        goal = port if known is not None and known.port == port else self._goal(mac, known, port, now)
        if goal is None:
            return
        moves = known is None or known.port != goal
        if moves and self._locked(mac) is None and not await self._settle(connection, known, contested, goal, now):
            return
        stays = known is not None and known.port == goal
        if known is not None and stays:
            # Its entry in `forward` may be there, and stay as it is.
            blocked, lane = known.blocked, known.lane
        else:
            blocked, lane = self._blocked(mac), self._lane(mac, place, goal)
        forward = self._forward(mac, *vlan, goal, blocked, lane)
        learn = self._learned(mac, *vlan, goal, lane)
        updates = [self._update(p4r.Update.INSERT, learn), self._update(p4r.Update.INSERT, forward)]
        if known is not None and not stays:
            # First the old entry: in a full table there is no room for another one.
            await connection.write_existing([self._update(p4r.Update.DELETE, learn_entry(mac, *vlan, known.port))])
            updates[1] = self._update(p4r.Update.MODIFY, forward)
        refused = await connection.insert(updates)
        if refused:
            self.refused.add(SWITCH, "the switch refuses a station: %s", next(iter(refused.values())))
            if known is not None:
                # Its port is unknown now: packets to it are flooded, and it is learned when there is room.
                self._forget(known)
                await connection.write_existing([self._update(p4r.Update.DELETE, forward_entry(mac, *vlan))])
            else:
                self.lanes.free(place)
            return
        if known is None:
            known = self.by_number[place] = contested or Station(mac, *vlan, goal, time.time())
            known.moves += known.port != goal
            known.port = goal
            self._arrive(known)
        elif not stays:
            self._leave(known)
            self._note_move(known, goal, now)
            known.port, known.moves = goal, known.moves + 1
            self._arrive(known)
        known.confirmed, known.blocked, known.lane = now, blocked, lane

    def _forget(self, known: Station) -> None:
        place = station_number(known.mac, known.outer_vid, known.inner_vid)
        del self.by_number[place]
        self.lanes.free(place)
        self._leave(known)

    def _arrive(self, station: Station) -> None:
        self._by_port[station.port] += 1
        self.at.setdefault((station.port, station.outer_vid, station.inner_vid), set()).add(station.mac)
        self.changed()

    def _leave(self, station: Station) -> None:
        self._by_port[station.port] -= 1
        place = station.port, station.outer_vid, station.inner_vid
        self.at[place].discard(station.mac)
        if not self.at[place]:
            del self.at[place]
        self.changed()

    def _forward(
        self, mac: int, outer_vid: int, inner_vid: int, port: int, blocked: bool, lane: LaneParams
    ) -> fy.P4TableEntry:
        nowhere = self._program.target.nowhere
        to = nowhere if blocked and nowhere is not None else port
        number, weight, _, down = lane
        if not number:
            return forward_entry(mac, outer_vid, inner_vid, "forward_to", egress_port=to)
        params = {"egress_port": to, "lane": number, "weight": weight, "rate": down}
        return forward_entry(mac, outer_vid, inner_vid, "forward_to_station", **params)

    def _learned(self, mac: int, outer_vid: int, inner_vid: int, port: int, lane: LaneParams) -> fy.P4TableEntry:
        number, weight, up, _ = lane
        if number:
            entry = learn_entry(mac, outer_vid, inner_vid, port, "known_station", lane=number, weight=weight, rate=up)
        else:
            entry = learn_entry(mac, outer_vid, inner_vid, port, "known_source")
        entry.idle_timeout_ns = round(self._config.station_idle_timeout * 1e9)
        return entry

    def _lane(self, mac: int, place: int, port: int) -> LaneParams:
        """Return the lane that a station has behind this port, with its weight and its rates up and down."""
        if self._is_uplink(port) or not are_used(self._config) or not self._program.lanes:
            self.lanes.free(place)
            return NO_LANE
        settings = self._config.station(format_mac(mac))
        limits = settings.limit_up_bps, settings.limit_down_bps
        lane = self.lanes.take(place, limits != (None, None))
        if self.lanes.is_shared(lane) and not self._told_of_sharing:
            self._told_of_sharing = True
            text = "%s: more than %d stations are known: some share a queue, and its part of a full link"
            LOG.warning(text, self._config.name, self._program.lanes, extra={"access_point": self._config.name})
        if not lane:
            return NO_LANE
        up, down = (rate(limit) if self.lanes.is_alone(place) else 0 for limit in limits)
        return lane, weight(settings), up, down

    async def sync(self, connection: Connection) -> None:
        """Apply settings: forget a station that is locked to another port or behind one that was removed, drop what is
        sent to a blocked one, write another idle timeout."""
        idle, ports = self._config.station_idle_timeout, {port.port for port in self._config.ports}
        retimed = [*self.by_number.values()] if idle != self._idle_timeout else []
        for known in [*self.by_number.values()]:
            async with self._changing:
                if not self._is_known(known):
                    continue
                if known.port not in ports or self._locked(known.mac) not in (None, known.port):
                    self._forget(known)
                    await self._take_back(connection, known)
                else:
                    await self._apply(connection, known, bool(retimed))
        for start in range(0, len(retimed), RETIMED_PER_WRITE):
            async with self._changing:
                part = [known for known in retimed[start : start + RETIMED_PER_WRITE] if self._is_known(known)]
                updates = [self._update(p4r.Update.MODIFY, self._retimed(known)) for known in part]
                await connection.write_existing(updates)
        self._idle_timeout = idle

    async def _apply(self, connection: Connection, known: Station, retimed: bool = False) -> None:
        """Write what differs in a station's entries; `retimed`: that of `learn` is written anyway."""
        where = known.mac, known.outer_vid, known.inner_vid
        blocked, lane = self._blocked(known.mac), self._lane(known.mac, station_number(*where), known.port)
        if (blocked, lane) == (known.blocked, known.lane):
            return
        updates = [self._update(p4r.Update.MODIFY, self._forward(*where, known.port, blocked, lane))]
        if lane != known.lane and not retimed:
            updates.append(self._update(p4r.Update.MODIFY, self._learned(*where, known.port, lane)))
        known.blocked, known.lane = blocked, lane
        self.changed()
        await connection.write_existing(updates)

    def _is_known(self, station: Station) -> bool:
        return self.by_number.get(station_number(station.mac, station.outer_vid, station.inner_vid)) is station

    def _retimed(self, station: Station) -> fy.P4TableEntry:
        return self._learned(station.mac, station.outer_vid, station.inner_vid, station.port, station.lane)

    async def _take_back(self, connection: Connection, known: Station) -> None:
        where = known.mac, known.outer_vid, known.inner_vid
        for entry in (learn_entry(*where, known.port), forward_entry(*where)):
            await connection.write_existing([self._update(p4r.Update.DELETE, entry)])

    async def age(self, connection: Connection, match: dict[int, bytes]) -> None:
        """Handle the idle timeout of one `learn` entry; `match` is its key by field id."""
        mac, port, outer_vid, inner_vid = (int.from_bytes(match[field]) for field in range(1, 5))
        async with self._changing:
            known = self.by_number.get(station_number(mac, outer_vid, inner_vid))
            if known is None or known.port != port:
                return
            self._forget(known)
            await self._take_back(connection, known)
            if (heir := self.lanes.heir(known.lane[0])) is not None:
                await self._apply(connection, self.by_number[heir])

    def _goal(self, mac: int, known: Station | None, port: int, now: float) -> int | None:
        """Return the port where an address that shows up behind `port` is to be, or None; refusals are counted. Others
        never keep a locked address from its port, as long as there is room."""
        locked, limits = self._locked(mac), self._config.limits
        if known is None and len(self.by_number) >= STATIONS_SIZE:
            self.refused.add(TABLE, "%d MAC addresses are known, more are flooded", STATIONS_SIZE)
            return None
        if locked is not None:
            if locked == port:
                return port
            self.refused.add(
                LOCKED, "station %s is locked to port %d, not learned behind %d", format_mac(mac), locked, port
            )
            return None
        if known is not None and self._is_uplink(known.port) == self._is_uplink(port):
            if self._moves(known, now) >= limits.moves:
                text = "station %s moves too often, it stays at port %d, where it was before"
                self.refused.add(MOVES, text, known.address, known.origin)
                return known.origin if known.origin != known.port else None
        elif known is not None and not self._is_uplink(port) and (known.blocked or not self._roams(port)):
            # A blocked station can stay where it was without harm.
            self._refuse_claim(known, port)
            return None
        if self._by_port[port] >= limits.stations_per_port:
            self.refused.add(PORT, "port %d has %d MAC addresses, more are flooded", port, self._by_port[port])
            return None
        return port

    async def _settle(
        self,
        connection: Connection,
        known: Station | None,
        contested: Station | None,
        goal: int,
        now: float,
    ) -> bool:
        """Handle what concerns contests between the uplink and a port where stations roam; returns whether the address
        is to be behind `goal` now."""
        station = known or contested
        if station is None:
            return True
        place = station_number(station.mac, station.outer_vid, station.inner_vid)
        if self._is_uplink(goal):
            if contested is not None:
                self.refused.add(UPLINK, "station %s speaks behind the uplink: a claim to it failed", contested.address)
            if contested is not None or (known is not None and not self._is_uplink(known.port)):
                self.contests.defend(place, now)
            return True
        if contested is not None and self._roams(goal):
            return self.contests.claim(place, now)
        if contested is not None:
            self._refuse_claim(contested, goal)
            return False
        if known is None or not self._is_uplink(known.port):
            return True
        if self.contests.open(place, known, now):
            self._forget(known)
            await self._take_back(connection, known)
            self.ask(known.mac, (known.port, known.outer_vid, known.inner_vid))
        else:
            self._refuse_claim(known, goal)
        return False

    def _refuse_claim(self, known: Station, port: int) -> None:
        text = "station %s is behind the uplink (port %d), not learned behind %d"
        self.refused.add(UPLINK, text, known.address, known.port, port)

    def own_queues(self) -> set[int]:
        """Return the MAC addresses of the stations whose limits are the rates of queues of their own."""
        return {station_mac(number) for number in self.lanes.alone()}

    def _is_uplink(self, number: int) -> bool:
        port = self._config.port(number)
        return port is not None and port.role == "uplink"

    def _roams(self, number: int) -> bool:
        """Return whether stations come to a port from other access points."""
        port = self._config.port(number)
        return port is not None and port.roams

    def _note_move(self, known: Station, port: int, now: float) -> None:
        """Count a move that was followed; the way back after too many is none of them."""
        if self._is_uplink(known.port) != self._is_uplink(port):
            # Bounded otherwise: a station takes an address from the uplink only in a contest.
            known.moved.clear()
        elif len(known.moved) < self._config.limits.moves:
            if not known.moved:
                known.origin = known.port
            known.moved.append(now)

    def _locked(self, mac: int) -> int | None:
        """Return the port that the address is locked to."""
        station = self._config.stations.get(format_mac(mac))
        return station.locked_port if station else None

    def _blocked(self, mac: int) -> bool:
        station = self._config.stations.get(format_mac(mac))
        return station is not None and station.blocked

    @staticmethod
    def _moves(known: Station, now: float) -> int:
        """Return the number of recent moves."""
        before = now - MOVES_SECONDS
        while known.moved and known.moved[0] < before:
            known.moved.popleft()
        return len(known.moved)

    def _update(self, kind: p4r.Update.Type.ValueType, entry: fy.P4TableEntry) -> p4r.Update:
        return self._program.update(kind, entry)


def learn_entry(
    mac: int, outer_vid: int, inner_vid: int, port: int, action: str | None = None, **params: int
) -> fy.P4TableEntry:
    """Return an entry of `learn`, or with no action its key."""
    match: dict[str, object] = {
        "src_addr": mac,
        "ingress_port": port,
        "outer_vid": outer_vid,
        "inner_vid": inner_vid,
    }
    return table_entry("learn", match, action, **params)


def forward_entry(
    mac: int, outer_vid: int, inner_vid: int, action: str | None = None, **params: int
) -> fy.P4TableEntry:
    """Return an entry of `forward`, or with no action its key."""
    match: dict[str, object] = {"dst_addr": mac, "outer_vid": outer_vid, "inner_vid": inner_vid}
    return table_entry("forward", match, action, **params)


def egress_port(forward: p4r.TableEntry) -> int:
    """Return the port that an entry of `forward` sends packets to."""
    return int.from_bytes(forward.action.action.params[0].value)


def lane_of(learn: p4r.TableEntry, forward: p4r.TableEntry) -> LaneParams:
    """Return the lane in the entries of a station, with its weight and its rates up and down."""
    up, down = ([int.from_bytes(param.value) for param in entry.action.action.params] for entry in (learn, forward))
    _, *down = down
    if not up and not down:
        return NO_LANE
    return (up[0], up[1], up[2], down[2]) if len(up) == len(down) == 3 and up[:2] == down[:2] else UNEQUAL


def _delete(entry: p4r.TableEntry) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=entry))
