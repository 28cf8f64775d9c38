# SPDX-License-Identifier: Apache-2.0
"""Which MAC address is behind which port: learned from source digests, aged by the idle timeout of `learn`.

A known address has an entry in `learn` (no further digest) and one in `forward` (no flooding). An address that shows up
behind another port has moved (IEEE 802.1Q, 8.7): the new entries replace the old ones in one write.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import finsy as fy
from finsy.proto import p4r

from .config import AccessPointConfig
from .connection import Connection
from .program import Program, digest_members, table_entry

LOG = logging.getLogger(__name__)

STATIONS_SIZE = 4096
"""Size of `learn` and `forward`."""


@dataclass(slots=True)
class Station:
    """A MAC address behind a port; servers behind the uplink are learned the same way."""

    mac: int
    port: int
    since: float
    """Seconds since the epoch."""
    moves: int = 0

    @property
    def address(self) -> str:
        """The MAC address as people write it."""
        return ":".join(f"{byte:02x}" for byte in self.mac.to_bytes(6))


class Stations:
    """The MAC addresses of one access point; `moved(port)` is called when one has left a port."""

    def __init__(self, config: AccessPointConfig, program: Program, moved: Callable[[int], None]) -> None:
        self._config = config
        self._program = program
        self._moved = moved
        self.by_mac: dict[int, Station] = {}
        self.refused = 0

    def forget(self) -> None:
        """The pipeline was pushed anew: nobody is known."""
        self.by_mac.clear()

    def adopt(self, entries: Iterable[p4r.TableEntry]) -> list[p4r.Update]:
        """Go on with the entries of `learn` and `forward` that the switch has; returns what has to be mended there."""
        learned: dict[tuple[int, int], p4r.TableEntry] = {}
        forwards: dict[int, p4r.TableEntry] = {}
        for entry in entries:
            values = {field.field_id: int.from_bytes(field.exact.value) for field in entry.match}
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
        forward = table_entry("forward", {"dst_addr": mac}, "forward_to", egress_port=port)
        learn = table_entry("learn", {"src_addr": mac, "ingress_port": port}, "known_source")
        learn.idle_timeout_ns = round(self._config.station_idle_timeout * 1e9)
        if known is None:
            if len(self.by_mac) >= STATIONS_SIZE:
                self.refused += 1
                if self.refused == 1:
                    LOG.warning(
                        "%s: %d MAC addresses are known, more are flooded",
                        self._config.name,
                        STATIONS_SIZE,
                        extra={"access_point": self._config.name},
                    )
                return
            refused = await connection.insert([self._update(p4r.Update.INSERT, entry) for entry in (learn, forward)])
            if refused:
                LOG.warning(
                    "%s: the switch refuses a station: %s",
                    self._config.name,
                    next(iter(refused.values())),
                    extra={"access_point": self._config.name},
                )
                return
            self.by_mac[mac] = Station(mac, port, time.time())
            return
        old = table_entry("learn", {"src_addr": mac, "ingress_port": known.port})
        left, known.port = known.port, port
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
        await connection.write_existing(
            [
                self._update(p4r.Update.DELETE, table_entry("learn", {"src_addr": mac, "ingress_port": port})),
                self._update(p4r.Update.DELETE, table_entry("forward", {"dst_addr": mac})),
            ]
        )
        self._moved(port)

    def _update(self, kind: p4r.Update.Type.ValueType, entry: fy.P4TableEntry) -> p4r.Update:
        return self._program.update(kind, entry)


def egress_port(forward: p4r.TableEntry) -> int:
    """Where an entry of `forward` sends packets."""
    return int.from_bytes(forward.action.action.params[0].value)


def _delete(entry: p4r.TableEntry) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=entry))
