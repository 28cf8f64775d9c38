# SPDX-License-Identifier: Apache-2.0
"""Flows by station: the usage of each station, and the settings that apply to its flows.

A flow is identified by its IP addresses, a station by its MAC address. They are matched by ARP and the multicast of
neighbour discovery (RFC 826, RFC 4861), which the table `punt` has the switch copy to the controller. If a port has
one station only, in a VLAN, everything from there is that station's anyway. A flow that neither assigns to a station
has none, and no setting applies to it.

Usage counts what arrives of a station's known flows, before anything is dropped.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import finsy as fy
import numpy as np
from finsy.proto import p4r

from ..config import AccessPointConfig, Station
from ..observation import UsageObservation
from .connection import Connection
from .dhcp import ETHERTYPE_IPV4, SERVER_PORT, UDP, host_name
from .flow import Flow
from .flow_table import NOBODYS, SLOTS, FlowTable
from .misses import Demand, Limit, Misses
from .probes import own_address, probe
from .program import Program
from .refusals import PACKETS
from .station import format_mac, station_number
from .stations import Stations

LOG = logging.getLogger(__name__)

ETHERTYPE_ARP, ETHERTYPE_IPV6 = 0x0806, 0x86DD
TAGS = (0x8100, 0x88A8)
BROADCAST = (1 << 48) - 1
SOLICITED, SOLICITED_MASK = 0x3333_FF00_0000, 0xFFFF_FF00_0000
"""Destination of neighbour solicitations (RFC 4291, 2.7.1; RFC 2464, 7)."""
PUNTED: tuple[dict[str, object], ...] = (
    {"ether_type": ETHERTYPE_ARP},
    {"ether_type": TAGS[0], "dst_addr": BROADCAST},
    {"ether_type": TAGS[1], "dst_addr": BROADCAST},
    {"dst_addr": f"{SOLICITED:#x}/&{SOLICITED_MASK:#x}"},
    {"ether_type": ETHERTYPE_IPV4, "protocol": UDP, "dst_port": SERVER_PORT},
)
"""Matches of the packets that are copied to the controller."""

MAX_PACKETS_PER_SECOND = 100
"""Copied packets in a second; a storm of more is ignored for a while."""
STORM_SECONDS = 10.0
MAX_BINDINGS = 16_384
MAX_NAMES = 4096
MAX_PROBES = 8
"""Addresses of IP that are asked for when one MAC address is contested."""
PIECE = 250
SETTLE_SECONDS = 0.2
"""Seconds to wait for further changes, so that all flows are resolved once for changes that come together."""
INGRESS_PORT = 1
"""The field of `packet_in`."""

Place = tuple[int, int, int]
"""Port and VLAN."""


class Usage:
    """The flows of one access point by their stations."""

    def __init__(self, config: AccessPointConfig, program: Program, stations: Stations, flows: FlowTable) -> None:
        self._config, self._program, self._stations = config, program, stations
        self._flows: dict[int, Flow] = {}
        self.table = flows
        self._heard: dict[tuple[Place, bytes], int] = {}
        """MAC address of each IP address, at its port and VLAN."""
        self.misses = Misses()
        self.names: dict[int, str] = {}
        """Names that stations give themselves in DHCP, by MAC address."""
        self._slots: dict[int, int] = {}
        self._free = list(range(SLOTS - 1, 0, -1))
        self._settings: dict[int, Station] = {}
        self._others = Station()
        """Settings of the stations that have none of their own."""
        self._in_second = 0
        self._second = 0.0
        self._deaf = False
        self.changed = asyncio.Event()
        self.configure()

    def forget(self) -> None:
        """Forget all flows, at the beginning of a session."""
        self._flows.clear()
        self._heard.clear()

    def configure(self) -> None:
        """Apply changed settings."""
        config = self._config
        self._others = config.station(None)
        self._settings = {int(address.replace(":", ""), 16): config.station(address) for address in config.stations}
        self._limit_all()
        self.changed.set()

    def _limit_all(self) -> None:
        queued = self._stations.own_queues()
        for mac in {*self._slots, *self._settings}:
            self._limit(self._slot(mac), mac, queued)

    def _limit(self, slot: int, mac: int, queued: set[int]) -> None:
        """Set the limits of a station, which are those of its queues if it is among `queued`."""
        station = self._settings.get(mac, self._others)
        limits = (station.limit_down_bps or 0) / 8, (station.limit_up_bps or 0) / 8
        self.table.set_limits(slot, *limits, mac in queued)

    def use(self, table: FlowTable) -> None:
        """Use the new table of the loop, which has restarted."""
        table.take_over(self.table)
        self.table = table

    def _slot(self, mac: int) -> int:
        """Return the place of a station in the table; `NOBODYS` when none is left."""
        if mac not in self._slots:
            if not self._free:
                self._tidy()
            if not self._free:
                return NOBODYS
            self._slots[mac] = self._free.pop()
            self._limit(self._slots[mac], mac, self._stations.own_queues())
        return self._slots[mac]

    def _tidy(self) -> None:
        """Free the places of stations that are not known and have no settings."""
        known = {station.mac for station in self._stations.by_number.values()} | self._settings.keys()
        gone = [self._slots.pop(mac) for mac in [*self._slots] if mac not in known]
        self.table.clear(np.array(gone, np.int64))
        self._free += gone

    def add(self, flow: Flow) -> None:
        """Add a flow that is regulated from now on."""
        self._flows[flow.index] = flow
        self._resolve(flow)

    def remove(self, index: int) -> None:
        """Remove a flow that has ended."""
        self._flows.pop(index, None)
        self.table.assign_stations(index, NOBODYS, NOBODYS, 0, 1.0)

    def _resolve(self, flow: Flow) -> None:
        key = flow.key
        vlan = key.outer_vid, key.inner_vid
        sender = self._whose((key.ingress_port, *vlan), key.src_addr)
        receiver = self._whose((key.egress_port, *vlan), key.dst_addr)
        mac = receiver if flow.direction == "downlink" else sender
        # Shares are by station, as lanes are, and by IP address where nobody knows whose it is.
        station = flow.station if mac is None else hash(mac.to_bytes(6))
        weight = 1.0 if mac is None else self._settings.get(mac, self._others).weight
        slots = [NOBODYS if each is None else self._slot(each) for each in (sender, receiver)]
        self.table.assign_stations(flow.index, slots[0], slots[1], station, weight)

    def _whose(self, place: Place, address: bytes) -> int | None:
        port = self._config.port(place[0])
        if port is None or port.role != "station":
            # Behind the uplink is the rest of the world.
            return None
        mac = self._heard.get((place, address))
        if mac is not None:
            known = self._stations.by_number.get(station_number(mac, *place[1:]))
            if known is not None and known.port == place[0]:
                return mac
        there = self._stations.at.get(place, ())
        return next(iter(there)) if len(there) == 1 else None

    async def run(self, connection: Connection) -> None:
        """Resolve all flows again, a piece at a time, when their stations may have changed; for ever."""
        await self._listen(connection, True)
        while True:
            await self.changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self.changed.clear()
            if self.table.has_limits:
                self._limit_all()
            for start, flow in enumerate([*self._flows.values()]):
                if self._flows.get(flow.index) is flow:
                    self._resolve(flow)
                if start % PIECE == PIECE - 1:
                    await asyncio.sleep(0)
            if self._deaf:
                # Ignore the storm for a while.
                await self._listen(connection, False)
                await asyncio.sleep(STORM_SECONDS)
                self._deaf = False
                await self._listen(connection, True)

    async def _listen(self, connection: Connection, wanted: bool) -> None:
        if self._program.schema.tables.get("punt") is None:
            return
        updates = [
            self._program.update(
                p4r.Update.INSERT if wanted else p4r.Update.DELETE,
                fy.P4TableEntry("punt", match=fy.Match(match), action=fy.Action("copy_to_cpu"), priority=1),
            )
            for match in PUNTED
        ]
        if wanted:
            for refused in (await connection.insert(updates)).values():
                LOG.warning("%s: the switch reports no addresses: %s", self._config.name, refused)
        else:
            await connection.write_existing(updates)

    def hear(self, connection: Connection, packet: p4r.PacketIn, now: float) -> None:
        """Handle a packet that was copied to the controller; `now` by the event loop's clock."""
        if now - self._second >= 1:
            self._second, self._in_second = now, 0
        self._in_second += 1
        if self._in_second > MAX_PACKETS_PER_SECOND:
            connection.lost.add(PACKETS, "more than %d packets in a second carry addresses", MAX_PACKETS_PER_SECOND)
            self._deaf = True
            self.changed.set()
            return
        ports = [int.from_bytes(field.value) for field in packet.metadata if field.metadata_id == INGRESS_PORT]
        at = self._config.port(ports[0]) if ports else None
        if at is None:
            return
        if at.role == "station" and (name := dhcp_name(packet.payload)) is not None:
            self.names.pop(name[0], None)
            self.names[name[0]] = name[1]
            if len(self.names) > MAX_NAMES:
                del self.names[next(iter(self.names))]
            return
        told = address_binding(packet.payload)
        if told is None:
            return
        mac, vlan, address = told
        key = (ports[0], *vlan), address
        if self._heard.get(key) == mac:
            return
        if len(self._heard) >= MAX_BINDINGS and key not in self._heard:
            del self._heard[next(iter(self._heard))]
        self._heard[key] = mac
        self.changed.set()

    def ask(self, connection: Connection, mac: int, place: Place) -> None:
        """Ask at a place for the addresses of IP that a MAC address has there: if it is there, it answers."""
        source = own_address(self._config.name)
        known = [address for (at, address), of in self._heard.items() if of == mac and at == place]
        for address in known[-MAX_PROBES:]:
            connection.send_packet(place[0], probe(address, source, *place[1:]))

    def of(self, *macs: int) -> list[UsageObservation]:
        """Return the usage of stations since they were first heard, and their current rates."""
        rates, used = self.table.station_rates(), []
        for mac in macs:
            of = self.table.usage(self._slots.get(mac, NOBODYS), rates)
            of["limit_up_missed"], of["limit_down_missed"] = (limit in self.misses.missed for limit in _limits(mac))
            used.append(of)
        return used

    def judge(self, withheld: Mapping[int, float], now: float) -> None:
        """Find the limits that are missed, and log those that begin and end to be; `withheld` as in `Misses.update`."""
        demands, before = self.table.demands(), self.misses.missed
        macs = {slot: mac for mac, slot in self._slots.items()} if demands else {}
        limits = [Demand(_limits(macs[slot])[way], port, *rates) for way, slot, port, *rates in demands]
        self.misses.update(limits, withheld, now)
        self._log(self.misses.missed - before, "is missed: more has passed for 5 s")
        self._log(before - self.misses.missed, "is missed no longer")

    def forget_misses(self) -> None:
        """Forget the limits that are missed, at the end of a session."""
        self._log(self.misses.missed, "is not watched: the session has ended")
        self.misses = Misses()

    def _log(self, limits: Iterable[Limit], text: str) -> None:
        name = self._config.name
        for mac, direction in sorted(limits):
            extra = {"access_point": name}
            LOG.warning("%s: station %s: limit_%s_bps %s", name, format_mac(mac), direction, text, extra=extra)

    def all(self) -> dict[str, UsageObservation]:
        """Return the usage of each station that has flows, or had some recently, by its address."""
        return dict(zip(map(format_mac, self._slots), self.of(*self._slots), strict=True))

    def named(self, most: int) -> list[dict[str, Any]]:
        """Return the usage of stations with settings, at most `most` of them."""
        told = [*self._settings.items()][:most]
        used = self.of(*(mac for mac, _ in told)) if told else []
        return [
            {"address": format_mac(mac), "name": station.name or "", **each}
            for (mac, station), each in zip(told, used, strict=True)
        ]


def _limits(mac: int) -> tuple[Limit, Limit]:
    """Return the limits of a station, in the order of `UP` and `DOWN`."""
    return (mac, "up"), (mac, "down")


def _untagged(frame: bytes) -> tuple[tuple[int, int], int, bytes]:
    """Return a frame's outer and inner VLAN (0: none), its EtherType, and what follows that."""
    at, vids = 12, list[int]()
    while len(vids) < 2 and int.from_bytes(frame[at : at + 2]) in TAGS:
        vids.append(int.from_bytes(frame[at + 2 : at + 4]) & 0xFFF)
        at += 4
    outer, inner = ([*vids, 0, 0])[:2]
    return (outer, inner), int.from_bytes(frame[at : at + 2]), frame[at + 2 :]


def dhcp_name(frame: bytes) -> tuple[int, str] | None:
    """Return the MAC address of the sender of a DHCP request, and the name that it gives itself; None for any other
    frame."""
    _, kind, body = _untagged(frame)
    name = host_name(body, frame[6:12]) if kind == ETHERTYPE_IPV4 else None
    return None if name is None else (int.from_bytes(frame[6:12]), name)


def address_binding(frame: bytes) -> tuple[int, tuple[int, int], bytes] | None:
    """Return the MAC address, VLAN and IP address of the sender of ARP or a neighbour solicitation; None for any other
    frame."""
    mac, (vlan, kind, body) = frame[6:12], _untagged(frame)
    if kind == ETHERTYPE_ARP and body[:6] == bytes.fromhex("000108000604") and len(body) >= 28:
        address = body[14:18]
        if body[8:14] != mac or not int.from_bytes(address) or IPv4Address(address).is_multicast:
            return None
    elif kind == ETHERTYPE_IPV6 and len(body) >= 64 and body[6] == 58 and body[40] == 135:
        address = body[8:24]
        if not int.from_bytes(address):
            # It asks whether somebody has the address that it is about to take.
            address = body[48:64]
        if IPv6Address(address).is_multicast:
            return None
    else:
        return None
    return int.from_bytes(mac), vlan, address
