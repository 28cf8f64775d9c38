# SPDX-License-Identifier: Apache-2.0
"""Which MAC address is behind which port: learned from source digests, aged by the idle timeout of `learn`.

A known address has an entry in `learn` (no further digest) and one in `forward` (no flooding). An address that shows up
behind another port has moved (IEEE 802.1Q, 8.7): the new entries replace the old ones in one write. A locked address
never moves, and the others not for ever: who moves too often within a minute stays where it is until that is over.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import finsy as fy
from finsy.proto import p4r

from .config import AccessPointConfig
from .connection import Connection
from .program import Program, digest_members, table_entry

LOG = logging.getLogger(__name__)

STATIONS_SIZE = 4096
"""Size of `learn` and `forward`."""


MINUTE = 60.0


def written(mac: int) -> str:
    """A MAC address as people write it."""
    return ":".join(f"{byte:02x}" for byte in mac.to_bytes(6))


@dataclass(slots=True)
class Station:
    """A MAC address behind a port; servers behind the uplink are learned the same way."""

    mac: int
    port: int
    since: float
    """Seconds since the epoch."""
    moves: int = 0
    moved: deque[float] = field(default_factory=deque)
    """When it did within the last minute, on the system's monotonic clock."""

    @property
    def address(self) -> str:
        """The MAC address as people write it."""
        return written(self.mac)


class Stations:
    """The MAC addresses of one access point; `moved(port)` is called when one has left a port, and its flows
    may be there still."""

    def __init__(self, config: AccessPointConfig, program: Program, moved: Callable[[int], None]) -> None:
        self._config = config
        self._program = program
        self._moved = moved
        self.by_mac: dict[int, Station] = {}
        self._by_port: Counter[int] = Counter()
        self.refused = 0

    def forget(self) -> None:
        """The pipeline was pushed anew: nobody is known."""
        self.by_mac.clear()
        self._by_port.clear()

    def adopt(self, entries: Iterable[p4r.TableEntry]) -> list[p4r.Update]:
        """Go on with the entries of `learn` and `forward` that the switch has; returns what has to be mended there."""
        learned: dict[tuple[int, int], p4r.TableEntry] = {}
        forwards: dict[int, p4r.TableEntry] = {}
        for entry in entries:
            values = {match.field_id: int.from_bytes(match.exact.value) for match in entry.match}
            if entry.table_id == self._program.learn_id:
                learned[values[1], values[2]] = entry
            else:
                forwards[values[1]] = entry
        updates = []
        idle = round(self._config.station_idle_timeout * 1e9)
        for (mac, port), entry in learned.items():
            forward = forwards.get(mac)
            if forward is None or egress_port(forward) != port or not self._config.port(port):
                updates.append(_delete(entry))
                continue
            del forwards[mac]
            self.by_mac[mac] = Station(mac, port, time.time())
            self._by_port[port] += 1
            if entry.idle_timeout_ns != idle:
                entry.idle_timeout_ns = idle
                updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=entry)))
        return updates + [_delete(entry) for entry in forwards.values()]

    async def learn(self, connection: Connection, digest: p4r.DigestList) -> None:
        """Handle a digest list of sources."""
        for data in digest.data:
            mac, port = (int.from_bytes(member) for member in digest_members(data))
            await self._learn(connection, mac, port)

    async def _learn(self, connection: Connection, mac: int, port: int) -> None:
        known = self.by_mac.get(mac)
        if known is not None and known.port == port:
            return
        if self._config.locked_stations.get(written(mac), port) != port:
            self._refuse("station %s is locked to another port: it is not learned behind port %d", written(mac), port)
            return
        if self._by_port[port] >= self._config.limits.stations_per_port or (
            known is None and len(self.by_mac) >= STATIONS_SIZE
        ):
            self._refuse("%d MAC addresses are known, more are flooded: port %d", len(self.by_mac), port)
            return
        forward = table_entry("forward", {"dst_addr": mac}, "forward_to", egress_port=port)
        learn = table_entry("learn", {"src_addr": mac, "ingress_port": port}, "known_source")
        learn.idle_timeout_ns = round(self._config.station_idle_timeout * 1e9)
        if known is None:
            refused = await connection.insert([self._update(p4r.Update.INSERT, entry) for entry in (learn, forward)])
            if refused:
                self._refuse("the switch refuses a station: %s", next(iter(refused.values())))
                return
            self.by_mac[mac] = Station(mac, port, time.time())
            self._by_port[port] += 1
            return
        now = time.monotonic()
        while known.moved and known.moved[0] < now - MINUTE:
            known.moved.popleft()
        if len(known.moved) >= self._config.limits.moves_per_minute:
            self._refuse("station %s moves too often: it stays at port %d for now", known.address, known.port)
            return
        known.moved.append(now)
        old = table_entry("learn", {"src_addr": mac, "ingress_port": known.port})
        left, known.port = known.port, port
        self._by_port[left] -= 1
        self._by_port[port] += 1
        known.moves += 1
        await connection.write(
            [
                self._update(p4r.Update.INSERT, learn),
                self._update(p4r.Update.MODIFY, forward),
                self._update(p4r.Update.DELETE, old),
            ]
        )
        self._moved(left)

    async def age(self, connection: Connection, match: dict[int, bytes]) -> None:
        """Handle the idle timeout of one `learn` entry; `match` is its key by field id."""
        mac, port = int.from_bytes(match[1]), int.from_bytes(match[2])
        known = self.by_mac.get(mac)
        if known is None or known.port != port:
            return
        del self.by_mac[mac]
        self._by_port[port] -= 1
        await connection.write_existing(
            [
                self._update(p4r.Update.DELETE, table_entry("learn", {"src_addr": mac, "ingress_port": port})),
                self._update(p4r.Update.DELETE, table_entry("forward", {"dst_addr": mac})),
            ]
        )
        # Else its own flows have gone before it, as it was silent for longer than they live.
        if self._config.station_idle_timeout < self._config.flow_idle_timeout:
            self._moved(port)

    def _refuse(self, text: str, *values: object) -> None:
        """Count it, and say the first one and then every hundredth."""
        if self.refused % 100 == 0:
            LOG.warning("%s: " + text, self._config.name, *values, extra={"access_point": self._config.name})
        self.refused += 1

    def _update(self, kind: p4r.Update.Type.ValueType, entry: fy.P4TableEntry) -> p4r.Update:
        return self._program.update(kind, entry)


def egress_port(forward: p4r.TableEntry) -> int:
    """Where an entry of `forward` sends packets."""
    return int.from_bytes(forward.action.action.params[0].value)


def _delete(entry: p4r.TableEntry) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=entry))
