# SPDX-License-Identifier: Apache-2.0
"""One access point: its session, its managers and its loop, and changes while it runs."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable

import finsy as fy
from finsy.proto import p4r

from ..config import AccessPointConfig
from . import classes, ports, queue_meters
from .carriers import GET, REQUEST, carriers
from .connection import Connection, Elect, State, over_grpc
from .entries import ENTRIES_PER_WRITE, EntrySet, everything
from .flows import GENERATIONS, Flows
from .loop import Loop
from .program import COUNTERS, DIGEST_FLOWS, DIGEST_SOURCE, FLOW_TABLES, Encodable, Program, canonical, class_index
from .queue_estimate import FULL_FRAME
from .refusals import UNKNOWN
from .stations import Stations
from .transport import RpcError, Transport
from .usage import Usage

SIGNALS = ("marked", "dropped", "refused")
SIGNALS_SECONDS = 1.0
"""Seconds between two readings: nothing is regulated by these counters, people watch them."""

CARRIER_SECONDS = 1.0
"""Seconds between two looks at the carriers of ports, and for each answer."""

FLOWS_SECONDS = 1.0
"""Seconds between two searches for flows that have ended, where the target does not age them."""

RELEASE_SECONDS = 0.3
"""Seconds that a switch may take at the end to remove all feedback."""

MANAGED = (*FLOW_TABLES.values(), "learn", "forward", "port_feedback", "class_feedback")
"""Tables whose entries do not follow from the configuration alone."""

NEW_SESSION = ("name", "enabled", "address", "tls", "device_id", "election_id", "pipeline")
"""Fields whose change starts a new session; so does another role of a port. All else changes within the session."""

GENERATIONS_PER_EPOCH = 16
"""Each controller that takes a switch over counts one epoch more, which the switch keeps for the next one. It gives
flow indices whose last generation nobody knows a generation of its own epoch."""


def is_live(before: AccessPointConfig, after: AccessPointConfig) -> bool:
    """Return True when a change needs no new session: counters, feedback and integrators stay."""
    roles = {port.port: port.role for port in before.ports}
    return all(getattr(before, name) == getattr(after, name) for name in NEW_SESSION) and all(
        roles.get(port.port, port.role) == port.role for port in after.ports
    )


class ManagedAccessPoint:
    """One access point: its session with the switch, its stations, its flows and its loop.

    Args:
        config: its configuration.
        ready: called with its name whenever it is under control.
        connect: makes the way to its switch, for each session.
        elect: gives election ids; None: those of the configuration.
    """

    def __init__(
        self,
        config: AccessPointConfig,
        ready: Callable[[str], None],
        connect: Callable[[AccessPointConfig], Transport] = over_grpc,
        elect: Elect | None = None,
    ) -> None:
        self.config = config
        self.program = Program(config.pipeline)
        self.program.target.check(config)
        self.connection = Connection(config, self.program, connect, elect)
        self.stations = Stations(config, self.program)
        self.loop = Loop(config, self.program)
        self.flows = Flows(config, self.program, self.loop)
        self.usage = Usage(config, self.program, self.stations, self.loop.flows)
        self.loop.added, self.loop.removed = self.usage.add, self.usage.remove
        self.stations.changed = self.usage.changed.set
        self.stations.ask = lambda mac, place: self.usage.ask(self.connection, mac, place)
        self.signals: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Packets marked, dropped and refused by (port, class), as of a second ago."""
        self.activity: dict[int, float] = {}
        """Time at which something last left through each port, in seconds since the epoch."""
        self.carriers: dict[int, bool] = {}
        """Carrier of each port, where the switch speaks gNMI."""
        self.revision = 0
        """Revision that `config` is of."""
        self.written: Callable[[int], None] = lambda revision: None
        """Called with the revision whose entries the switch has, whenever all are written."""
        self.fallback: Callable[[], tuple[AccessPointConfig, int] | None] = lambda: None
        """Returns what to run when the switch refuses `config` as a session begins, and its revision."""
        self._entries = EntrySet(self.program)
        self._writing = asyncio.Lock()
        """Held while entries of the configuration are written: of two at once, an older one could be the last."""
        self._epoch = 0
        self._ready = ready

    async def run(self) -> None:
        """Keep the access point under control; ends by cancellation."""
        await self.connection.run(self._serve)

    async def release(self) -> None:
        """Remove all feedback before the end. A switch that does not answer soon keeps its entries."""
        if self.connection.state == State.READY:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self.loop.release()

    def configure(self, config: AccessPointConfig, revision: int) -> None:
        """Use another configuration from now on, within the session; `sync` writes its entries."""
        # Not one after the other: between two of them the configuration would be neither.
        vars(self.config).update(vars(config))
        self.revision = revision
        for manager in (self.loop, self.flows, self.usage):
            manager.configure()
        for known in (self.activity, self.signals):
            for place in [*known]:
                if (place if isinstance(place, int) else place[0]) not in self.loop.ports:
                    del known[place]

    async def sync(self) -> None:
        """Write the configuration's entries to the switch; one that is away gets them when its session begins."""
        async with self._writing:
            if self.connection.state != State.READY:
                return
            revision = self.revision
            await self._entries.sync(self.connection, self._wanted())
            self.loop.forget_meters()
            await self.stations.sync(self.connection)
            await self.flows.sync(self.connection)
        self.written(revision)

    def _wanted(self) -> list[Encodable]:
        of_ports = ports.entities(self.config, self.program.target)
        for entity in of_ports:
            if isinstance(entity, fy.P4TableEntry) and entity.table_id == "ingress_roles":
                entity.metadata = canonical(self._epoch)
        return [*of_ports, *classes.entities(self.config, self.program), *queue_meters.entities(self.config)]

    async def _serve(self, kept: bool) -> None:
        async with self._writing:
            for manager in (self._entries, self.stations, self.flows, self.loop, self.usage):
                manager.forget()
            self.usage.use(self.loop.flows)
            self._epoch = 0
            updates = await self._adopt() if kept else []
            try:
                await self._entries.sync(self.connection, self._wanted())
            except RpcError as error:
                good = self.fallback()
                if error.is_away or good is None or good[1] == self.revision:
                    raise
                self.configure(*good)
                await self._entries.sync(self.connection, self._wanted())
            for start in range(0, len(updates), ENTRIES_PER_WRITE):
                await self.connection.write_existing(updates[start : start + ENTRIES_PER_WRITE])
            await self.stations.sync(self.connection)
        clock = asyncio.get_running_loop().time
        self.connection.hear = lambda packet: self.usage.hear(self.connection, packet, clock())
        self.connection.begin_service()
        # Changes made meanwhile were left to this session.
        await self.sync()
        self._ready(self.config.name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take_digests())
            tasks.create_task(self._take_idle_timeouts())
            if not self.program.flows_time_out:
                tasks.create_task(self._watch_flows())
            tasks.create_task(self._watch_signals())
            tasks.create_task(self._watch_carriers())
            tasks.create_task(self.usage.run(self.connection))
            tasks.create_task(self.loop.run(self.connection))

    async def _adopt(self) -> list[p4r.Update]:
        """Resume from the switch's entries; return the updates that fix those which the configuration does not cover.

        Flows keep their entries and with them counters and meters; packets never see a table empty.
        """
        schema = self.program.schema
        found = await self.connection.read_all(everything(self.program, self._wanted()))

        of_managers: dict[str, list[p4r.TableEntry]] = {name: [] for name in MANAGED}
        others = []
        for entity in found:
            name = schema.tables[entity.table_entry.table_id].alias if entity.HasField("table_entry") else ""
            if name in of_managers:
                of_managers[name].append(entity.table_entry)
            elif not entity.table_entry.is_const:
                others.append(entity)
                if name == "ingress_roles":
                    self._epoch = max(self._epoch, int.from_bytes(entity.table_entry.metadata) + 1)
        self._entries.adopt(others)
        flows = [entry for name in FLOW_TABLES.values() for entry in of_managers[name]]
        updates = [
            *self.stations.adopt(of_managers["learn"] + of_managers["forward"]),
            *self.flows.adopt(flows, self._epoch * GENERATIONS_PER_EPOCH % GENERATIONS),
            *self.loop.adopt(of_managers["port_feedback"] + of_managers["class_feedback"]),
        ]
        self.loop.add(self.flows.by_index.values(), asyncio.get_running_loop().time())
        return updates

    async def _take_digests(self) -> None:
        while True:
            digest = await self.connection.digests.get()
            name = self.program.digest_names.get(digest.digest_id)
            if name in DIGEST_FLOWS:
                await self.flows.learn(self.connection, digest, DIGEST_FLOWS[name])
            elif name == DIGEST_SOURCE:
                await self.stations.learn(self.connection, digest)
            else:
                self.connection.lost.by_reason[UNKNOWN] += 1
                self.connection.warn(f"digest {digest.digest_id} is not in the program")
            self.connection.acknowledge(digest)

    async def _take_idle_timeouts(self) -> None:
        while True:
            notification = await self.connection.idle_timeouts.get()
            keys = []
            for entry in notification.table_entry:
                version = self.program.flow_versions.get(entry.table_id)
                if version is not None:
                    keys.append(self.program.flow_key(entry.match, version))
                elif entry.table_id == self.program.learn_id:
                    match = {field.field_id: field.exact.value for field in entry.match}
                    await self.stations.age(self.connection, match)
            await self.flows.age(self.connection, keys)

    async def _watch_flows(self) -> None:
        """Find ended flows by their counters, on a target that does not age flows."""
        while True:
            await asyncio.sleep(FLOWS_SECONDS)
            await self.flows.age(self.connection, self.flows.over())

    async def _watch_signals(self) -> None:
        """Read the counters that nothing is regulated by, in addition to the loop; and note which ports send, and which
        limits are missed."""
        sent: dict[int, int] = {}
        try:
            while True:
                cells = await self._read_cells(SIGNALS, classes.class_ids(self.config))
                for place in {(port, class_id) for _, port, class_id in cells}:
                    marked, dropped, refused = (cells.get((name, *place), (0, 0))[0] for name in SIGNALS)
                    self.signals[place] = (marked, dropped, refused)
                for number, state in self.loop.ports.items():
                    now = sum(state.volumes.sent_packets)
                    if now != sent.get(number, 0):
                        self.activity[number] = time.time()
                    sent[number] = now
                self.usage.judge(self._withheld(), asyncio.get_running_loop().time())
                await asyncio.sleep(SIGNALS_SECONDS)
        finally:
            self.usage.forget_misses()

    async def _watch_carriers(self) -> None:
        """Read which ports have a carrier; a switch that refuses is not asked again in this session."""
        try:
            while True:
                try:
                    answer = await self.connection.transport.call(GET, REQUEST, timeout=CARRIER_SECONDS)
                    self.carriers = carriers(answer)
                except RpcError as error:
                    self.carriers = {}
                    if not error.is_away:
                        return
                await asyncio.sleep(CARRIER_SECONDS)
        finally:
            self.carriers = {}

    def _withheld(self) -> dict[int, float]:
        """Return the bytes that each port has not sent of what it was given, so far and at most: dropped packets are
        counted, but not their bytes."""
        lost = Counter[int]()
        for (port, _), (_, dropped, refused) in self.signals.items():
            lost[port] += dropped + refused
        counters = {number: state.volumes.together() for number, state in self.loop.ports.items()}
        return {
            number: counted.arrived_bytes - counted.sent_bytes + FULL_FRAME * lost[number]
            for number, counted in counters.items()
        }

    async def counters(self) -> dict[tuple[str, int, int], tuple[int, int]]:
        """Return all counters, read now: (counter, port, class or queue) -> packets, bytes."""
        return await self._read_cells(COUNTERS, range(8))

    async def _read_cells(
        self, counters: Iterable[str], indices: Iterable[int]
    ) -> dict[tuple[str, int, int], tuple[int, int]]:
        indices = list(indices)
        cells = [
            self.program.counter(name, class_index(port.port, index))
            for name in counters
            for port in self.config.ports
            for index in indices
        ]
        names = {self.program.schema.counters[name].id: name for name in COUNTERS}
        answer: dict[tuple[str, int, int], tuple[int, int]] = {}
        for entity in await self.connection.read(cells):
            cell = entity.counter_entry
            key = (names[cell.counter_id], cell.index.index >> 3, cell.index.index & 7)
            answer[key] = (cell.data.packet_count, cell.data.byte_count)
        return answer
