# SPDX-License-Identifier: Apache-2.0
"""Which flows there are: learned from flow digests, aged by the idle timeout of their entries; by their counters on a
target whose flow tables have no idle timeout.

Each flow has an index into the registers of the data plane. Registers cannot be cleared over P4Runtime everywhere, so
an index that is given to the next flow gets a new generation, which tells the users of one index apart.
"""

import struct
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import finsy as fy
import numpy.typing as npt
from finsy.proto import p4r

from .classes import class_of
from .config import AccessPointConfig
from .connection import Connection
from .feedback import quantise
from .loop import Loop
from .messages import FlowKind, NewFlow
from .program import (
    FLOW_CLASS_THINNED,
    FLOW_PARAMS,
    FLOWS_SIZE,
    PARAM_FEEDBACK,
    PARAM_FLOW_CLASS,
    PARAM_SCALABLE,
    FlowKey,
    Program,
    canonical,
    digest_members,
    flow_key,
    rate_meter,
)
from .refusals import PORT, SWITCH, TABLE, Refusals
from .regulator import LAWS

FLOWS_PER_WRITE = 64
"""Between two writes others get their turn."""

GENERATIONS = 255
"""From 1 on: 0 is what registers begin with."""
NOTE = struct.Struct(">fd")
"""A flow's metadata: weight, since when it is known."""
PROTOCOL_TCP = 6


class Indices:
    """Flow indices and their generations; what is given back is used last, so that stale state is old."""

    def __init__(self, size: int = FLOWS_SIZE) -> None:
        self._free = deque(range(size))
        self._generation = bytearray(size)

    def __len__(self) -> int:
        """How many are free."""
        return len(self._free)

    def take(self) -> tuple[int, int] | None:
        """An index and a generation that its last user did not have; None when all are in use."""
        if not self._free:
            return None
        index = self._free.popleft()
        self._generation[index] = self._generation[index] % GENERATIONS + 1
        return index, self._generation[index]

    def give(self, index: int) -> None:
        """Give an index back."""
        self._free.append(index)

    def resume(self, used: dict[int, int], generation: int) -> None:
        """These indices are in use, with their generations. Those of the others go on from `generation`, which is of
        no user that may have left something in the registers."""
        size = len(self._generation)
        self._generation = bytearray([generation]) * size
        for index, current in used.items():
            self._generation[index] = current
        self._free = deque(index for index in range(size) if index not in used)


class Flow:
    """One direction of a connection; what changes with every tick is read from the loop's memory (`arrays`)."""

    __slots__ = (
        "_arrays",
        "change",
        "direction",
        "flow_class",
        "generation",
        "index",
        "key",
        "since",
        "thinned",
        "written",
        "written_scalable",
    )

    def __init__(
        self,
        key: FlowKey,
        taken: tuple[int, int],
        direction: str,
        entry: p4r.Entity,
        arrays: dict[str, npt.NDArray[Any]],
    ) -> None:
        self.key = key
        self.index, self.generation = taken
        self.direction = direction
        self.flow_class = 0
        self.since = time.time()
        # A MODIFY without `meter_config` would reset the meter (P4Runtime specification, section 9.1.9).
        self.change = p4r.Update(type=p4r.Update.MODIFY, entity=entry)
        self.thinned = False
        """Whether its entry asked to be thinned when the session began."""
        self.written = self.written_scalable = 0
        """The feedback in its entry when the session began, as 16 bits, and that for scalable senders."""
        self._arrays = arrays
        self.weight = 1.0
        arrays["moved"][self.index] = time.monotonic()
        self.note()

    def note(self) -> None:
        """Keep in the entry what its key and action do not say: the next controller finds it there."""
        entry = self.change.entity.table_entry
        entry.metadata = NOTE.pack(self.weight, self.since)

    @property
    def weight(self) -> float:
        """w_i: what the flow is worth among those of its class."""
        return float(self._arrays["weight"][self.index])

    @weight.setter
    def weight(self, weight: float) -> None:
        self._arrays["weight"][self.index] = weight

    @property
    def packets(self) -> int:
        """Counted since it was learned."""
        return int(self._arrays["packets"][self.index])

    @property
    def bytes(self) -> int:
        """Counted since it was learned."""
        return int(self._arrays["bytes"][self.index])

    @property
    def rate(self) -> float:
        """What arrives of it, in bytes/s."""
        return float(self._arrays["rate"][self.index])

    @property
    def feedback(self) -> float:
        """Its flow term."""
        return float(self._arrays["feedback"][self.index])

    @property
    def active(self) -> bool:
        """Whether it has traffic."""
        return bool(self._arrays["active"][self.index])

    @property
    def class_id(self) -> int:
        """The class that it is counted to: the one that it asks for, or the built-in one."""
        return self.flow_class or int(self._arrays["class_id"][self.index])

    def for_loop(self) -> NewFlow:
        """What the loop has to know of it."""
        entry = self.change.entity.table_entry
        reading = p4r.ReadRequest()
        asked = reading.entities.add().direct_counter_entry.table_entry
        asked.table_id = entry.table_id
        asked.match.extend(entry.match)
        named = p4r.DirectCounterEntry(table_entry=asked).SerializeToString()
        kind = FlowKind(
            egress_port=self.key.egress_port,
            tcp=self.key.protocol == PROTOCOL_TCP,
            own_class=self.flow_class,
            thinned=self.thinned,
            data_class=class_of(self.direction, False),
            ack_class=class_of(self.direction, True),
            sparse_rate=entry.meter_config.cir,
            metered_rate=entry.meter_config.cir,
            # Of this process alone, so that nobody makes up an address with the number of another one's.
            station=hash(self.key.dst_addr if self.direction == "downlink" else self.key.src_addr),
            written=self.written,
            written_scalable=self.written_scalable,
        )
        change = p4r.WriteRequest(updates=[self.change]).SerializeToString()
        match = tuple(field.exact.value for field in entry.match)
        return NewFlow(self.index, match, reading.SerializeToString(), named, change, kind)


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
        self.learned = 0

    def forget(self) -> None:
        """The pipeline was pushed anew: no flow is known."""
        for flow in self.by_key.values():
            self._indices.give(flow.index)
        self.by_key.clear()
        self.by_index.clear()
        self._by_ingress.clear()

    @property
    def free(self) -> int:
        """How many more flows there is room for."""
        return len(self._indices)

    def adopt(self, entries: Iterable[p4r.TableEntry], generation: int) -> list[p4r.Update]:
        """Go on with the entries that the switch has; returns what has to be mended there.

        Args:
            entries: of both tables, with their meters.
            generation: as in `Indices.resume`.
        """
        updates = []
        used: dict[int, int] = {}
        for entry in entries:
            flow = self._adopted(entry)
            if flow is None or flow.index in used:
                # The next packet tells of it again.
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
        """The flow of an entry, or None when it does not say enough."""
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
        key = flow_key(members, version)
        if key in self.by_key:
            return None
        ingress_port = key.ingress_port
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
        flow = Flow(key, taken, direction, entry, self._loop.board.flows)
        flow.flow_class, flow.written, flow.written_scalable = flow_class, feedback, scalable
        return flow

    def _meter(self, egress_port: int) -> fy.P4MeterConfig:
        """The sparse rate of a flow that leaves through this port."""
        sparse = self._config.sparse
        port = self._config.port(egress_port)
        share = 8 * sparse.share * port.capacity if port else 0.0
        return rate_meter(max(share, sparse.min_rate_bps), sparse.burst_bytes)

    async def _insert(self, connection: Connection, flows: list[Flow]) -> None:
        if not flows:
            return
        refused = await connection.insert(
            [p4r.Update(type=p4r.Update.INSERT, entity=flow.change.entity) for flow in flows]
        )
        for reason in refused.values():
            self.refused.add(SWITCH, "the switch refuses a flow: %s", reason)
        learned: list[NewFlow] = []
        for number, flow in enumerate(flows):
            if self.by_key.get(flow.key) is not flow:
                continue
            if number in refused:
                self._lose(flow.key)
                self._indices.give(flow.index)
                continue
            self.by_index[flow.index] = flow
            learned.append(flow.for_loop())
        # Only now may the loop read and change the entries.
        self.learned += len(learned)
        self._loop.add(learned)

    def over(self) -> list[FlowKey]:
        """The flows whose counters have stood still for longer than their idle timeout."""
        before = time.monotonic() - self._config.flow_idle_timeout
        moved = self._loop.board.flows["moved"]
        return [flow.key for flow in self.by_index.values() if moved[flow.index] < before]

    async def age(self, connection: Connection, keys: Iterable[FlowKey]) -> None:
        """Remove flows whose idle timeout has passed."""
        gone = [flow for flow in map(self._lose, keys) if flow is not None]
        for flow in gone:
            self.by_index.pop(flow.index, None)
        self._loop.remove(flow.index for flow in gone)
        for start in range(0, len(gone), FLOWS_PER_WRITE):
            part = gone[start : start + FLOWS_PER_WRITE]
            await connection.write_existing(
                [p4r.Update(type=p4r.Update.DELETE, entity=flow.change.entity) for flow in part]
            )
            for flow in part:
                self._indices.give(flow.index)

    def active(self) -> list[Flow]:
        """The flows with traffic."""
        return [flow for flow in self.by_index.values() if flow.active]

    def for_loop(self) -> list[NewFlow]:
        """All flows, for a loop that begins."""
        return [flow.for_loop() for flow in self.by_index.values()]

    def set_weight(self, flow: Flow, weight: float) -> None:
        """What a flow is worth from now on among those of its class."""
        flow.weight = weight
        flow.note()
        self._loop.change(flow.for_loop())

    async def set_class(self, connection: Connection, flow: Flow, flow_class: int) -> None:
        """Let a flow ask for a class of its own (a key of `classify`); 0: for none."""
        flow.flow_class = flow_class
        params = flow.change.entity.table_entry.action.action.params
        params[PARAM_FLOW_CLASS].value = canonical(flow_class)
        params[PARAM_FEEDBACK].value = canonical(quantise(flow.feedback))
        params[PARAM_SCALABLE].value = canonical(quantise(LAWS[self._config.ncr.law].scalable(flow.feedback)))
        await connection.write([flow.change])
        self._loop.change(flow.for_loop())
