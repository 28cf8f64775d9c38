# SPDX-License-Identifier: Apache-2.0
"""Flows of one access point, learned from flow digests and aged by the idle timeout of their entries, or by their
counters on a target whose flow tables have no idle timeout.

Each flow has an index into the registers of the data plane. Registers cannot be cleared over P4Runtime everywhere, so
an index that is given to the next flow gets a new generation, which tells the users of one index apart.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable

import finsy as fy
from finsy.proto import p4r

from ..config import AccessPointConfig
from .connection import Connection
from .flow import NOTE, Flow
from .flow_table import SPARSE_BURST, sparse_rate
from .loop import Loop
from .program import (
    FLOW_CLASS_THINNED,
    FLOW_PARAMS,
    FLOWS_SIZE,
    PARAM_FLOW_CLASS,
    FlowKey,
    Program,
    canonical,
    digest_members,
    flow_key,
    rate_meter,
)
from .refusals import PORT, SWITCH, TABLE, Refusals

FLOWS_PER_WRITE = 64
"""Between two writes others get their turn."""

LOST_SECONDS = 1.0
"""A flow that the switch reports again so long after it had its entry has lost it: digests that were on their way are
older by then (`DIGEST_ACK_TIMEOUT_NS`)."""

GENERATIONS = 255
"""From 1 on: 0 is what registers begin with."""


class Indices:
    """Flow indices and their generations; what is given back is used last, so that stale state is old."""

    def __init__(self, size: int = FLOWS_SIZE) -> None:
        self._free = deque(range(size))
        self._generation = bytearray(size)

    def __len__(self) -> int:
        """Return the number of free indices."""
        return len(self._free)

    def take(self) -> tuple[int, int] | None:
        """Return an index and a generation that its last user did not have; None when all are in use."""
        if not self._free:
            return None
        index = self._free.popleft()
        self._generation[index] = self._generation[index] % GENERATIONS + 1
        return index, self._generation[index]

    def give(self, index: int) -> None:
        """Give an index back."""
        self._free.append(index)

    def resume(self, used: dict[int, int], generation: int) -> None:
        """Resume with these indices in use, by generation.

        The generations of the others count from `generation`, which no user has that may have left something in the
        registers."""
        size = len(self._generation)
        self._generation = bytearray([generation]) * size
        for index, current in used.items():
            self._generation[index] = current
        self._free = deque(index for index in range(size) if index not in used)


class Flows:
    """The flows of one access point."""

    def __init__(self, config: AccessPointConfig, program: Program, loop: Loop) -> None:
        self._config = config
        self._program = program
        self._loop = loop
        self._indices = Indices()
        self.by_key: dict[FlowKey, Flow] = {}
        self.by_index: dict[int, Flow] = {}
        self._by_ingress: Counter[int] = Counter()
        self.refused = Refusals(config.name, PORT, TABLE, SWITCH)
        self._ports, self._idle_timeout = self._ports_now(), config.flow_idle_timeout
        """Ports and idle timeout that the entries were written for."""

    def _ports_now(self) -> set[int]:
        return {port.port for port in self._config.ports}

    def forget(self) -> None:
        """Forget all flows: the pipeline was pushed again."""
        for flow in self.by_key.values():
            self._indices.give(flow.index)
        self.by_key.clear()
        self.by_index.clear()
        self._by_ingress.clear()
        self._ports, self._idle_timeout = self._ports_now(), self._config.flow_idle_timeout

    def configure(self) -> None:
        """Apply another idle timeout: the loop writes it, some flows with each tick."""
        if not self._program.flows_time_out or self._config.flow_idle_timeout == self._idle_timeout:
            return
        self._idle_timeout = self._config.flow_idle_timeout
        for flow in self.by_key.values():
            flow.change.entity.table_entry.idle_timeout_ns = round(self._idle_timeout * 1e9)
        self._loop.rewrite(self.by_index.values())

    async def sync(self, connection: Connection) -> None:
        """End the flows through ports that were removed."""
        gone, self._ports = self._ports - self._ports_now(), self._ports_now()
        if gone:
            await self.age(connection, [key for key in self.by_key if {key.ingress_port, key.egress_port} & gone])

    @property
    def free(self) -> int:
        """Number of flows that there is room for."""
        return len(self._indices)

    def adopt(self, entries: Iterable[p4r.TableEntry], generation: int) -> list[p4r.Update]:
        """Resume from the entries that the switch has; return the updates that fix them.

        Args:
            entries: of both tables, with their meters.
            generation: as in `Indices.resume`.
        """
        updates = []
        used: dict[int, int] = {}
        for entry in entries:
            flow = self._adopted(entry)
            if flow is None or flow.index in used:
                # The switch reports the flow again with its next packet.
                updates.append(p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=entry)))
                continue
            used[flow.index] = flow.generation
            self.by_index[flow.index] = flow
            self._keep(flow)
            wanted = flow.change.entity.table_entry
            if entry.meter_config != wanted.meter_config or entry.idle_timeout_ns != wanted.idle_timeout_ns:
                updates.append(flow.change)
        self._indices.resume(used, generation)
        return updates

    def _adopted(self, entry: p4r.TableEntry) -> Flow | None:
        """Return the flow of an entry, or None when it does not say enough."""
        params = [int.from_bytes(param.value) for param in entry.action.action.params]
        if len(entry.metadata) != NOTE.size or len(params) != len(FLOW_PARAMS) or params[0] >= FLOWS_SIZE:
            return None
        weight, since = NOTE.unpack(entry.metadata)
        key = self._program.flow_key(entry.match, self._program.flow_versions[entry.table_id])
        if not (self._config.port(key.ingress_port) and self._config.port(key.egress_port) and weight > 0):
            return None
        index, generation, asked, *feedback = params
        thinned = asked == FLOW_CLASS_THINNED
        flow = self._made(key, (index, generation), 0 if thinned else asked, *feedback)
        flow.thinned = thinned
        flow.weight, flow.since = weight, since
        flow.note()
        return flow

    async def learn(self, connection: Connection, digest: p4r.DigestList, version: int) -> None:
        """Handle a digest list of flows of one IP version."""
        new: list[Flow] = []
        for data in digest.data:
            flow = self._new(digest_members(data), version)
            if flow is not None:
                new.append(flow)
            if len(new) >= FLOWS_PER_WRITE:
                await self._insert(connection, new)
                new = []
        await self._insert(connection, new)

    def _new(self, members: list[bytes], version: int) -> Flow | None:
        """Return the flow of a digest, if its entry has to be written."""
        key = flow_key(members, version)
        known = self.by_key.get(key)
        if known is not None:
            # The switch reports flows without an entry: it is lost, unless the digest was sent before it was written.
            now = asyncio.get_running_loop().time()
            lost = known.index in self.by_index and now - known.confirmed > LOST_SECONDS
            if lost:
                known.confirmed = now
            return known if lost else None
        ingress_port = key.ingress_port
        if self._config.port(ingress_port) is None:
            # It was removed meanwhile.
            return None
        of_port = self._by_ingress[ingress_port]
        if of_port >= self._config.limits.flows_per_port:
            self.refused.add(PORT, "port %d has %d flows, more stay unknown", ingress_port, of_port)
            return None
        taken = self._indices.take()
        if taken is None:
            self.refused.add(TABLE, "%d flows are known, more stay unknown", len(self.by_key))
            return None
        flow = self._made(key, taken, flow_class=0)
        self._keep(flow)
        return flow

    def _keep(self, flow: Flow) -> None:
        self.by_key[flow.key] = flow
        self._by_ingress[flow.key.ingress_port] += 1

    def _lose(self, key: FlowKey) -> Flow | None:
        flow = self.by_key.pop(key, None)
        if flow is not None:
            self._by_ingress[key.ingress_port] -= 1
        return flow

    def _made(
        self, key: FlowKey, taken: tuple[int, int], flow_class: int, feedback: int = 0, scalable: int = 0
    ) -> Flow:
        params = (*taken, flow_class, feedback, scalable)
        entry = self._program.flow_entry(key, params, self._meter(key.egress_port), self._config.flow_idle_timeout)
        direction = self._config.direction(key.ingress_port, key.egress_port)
        flow = Flow(key, taken, direction, entry, self._loop.flows)
        flow.flow_class, flow.written, flow.written_scalable = flow_class, feedback, scalable
        return flow

    def _meter(self, egress_port: int) -> fy.P4MeterConfig:
        """Return the meter of a flow that leaves through this port: its sparse rate."""
        return rate_meter(8 * sparse_rate(self._config, egress_port), SPARSE_BURST)

    async def _insert(self, connection: Connection, flows: list[Flow]) -> None:
        if not flows:
            return
        refused = await connection.insert(
            [p4r.Update(type=p4r.Update.INSERT, entity=flow.change.entity) for flow in flows]
        )
        for reason in refused.values():
            self.refused.add(SWITCH, "the switch refuses a flow: %s", reason)
        now, learned = asyncio.get_running_loop().time(), list[Flow]()
        for number, flow in enumerate(flows):
            if self.by_key.get(flow.key) is not flow:
                continue
            if number in refused:
                self._lose(flow.key)
                if self.by_index.pop(flow.index, None):
                    self._loop.remove([flow.index])
                self._indices.give(flow.index)
                continue
            flow.confirmed = now
            if flow.index in self.by_index:
                self._loop.change(flow)
                continue
            self.by_index[flow.index] = flow
            learned.append(flow)
        # Only now may the loop read and change the entries.
        self._loop.add(learned, now)

    def over(self) -> list[FlowKey]:
        """Return the flows whose counters stood still for longer than their idle timeout.

        It counts to when they were last asked for: a loop that is held up does not see what flows send meanwhile."""
        still = self._loop.flows.rates.still(slice(None))
        return [flow.key for flow in self.by_index.values() if still[flow.index] > self._config.flow_idle_timeout]

    async def age(self, connection: Connection, keys: Iterable[FlowKey]) -> None:
        """Remove flows whose idle timeout has passed."""
        gone = [flow for flow in map(self._lose, keys) if flow is not None]
        for flow in gone:
            self.by_index.pop(flow.index, None)
        self._loop.remove(flow.index for flow in gone)
        try:
            for start in range(0, len(gone), FLOWS_PER_WRITE):
                part = [flow.change.entity for flow in gone[start : start + FLOWS_PER_WRITE]]
                await connection.write_existing([p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in part])
        finally:
            # Also when the session has ended: the next one adopts what the switch still has.
            for flow in gone:
                self._indices.give(flow.index)

    def set_weight(self, flow: Flow, weight: float) -> None:
        """Set a flow's weight among the flows of its class."""
        flow.weight = weight
        flow.note()
        self._loop.change(flow)

    async def set_class(self, connection: Connection, flow: Flow, flow_class: int) -> None:
        """Let a flow ask for a class of its own (a key of `classify`); 0: for none."""
        before, flow.flow_class = flow.flow_class, flow_class
        params = flow.change.entity.table_entry.action.action.params
        params[PARAM_FLOW_CLASS].value = canonical(flow_class)
        try:
            await connection.write([flow.change])
        except BaseException:
            flow.flow_class = before
            raise
        finally:
            self._loop.change(flow)
