# SPDX-License-Identifier: Apache-2.0
"""Which flows there are: learned from flow digests, aged by the idle timeout of their entries; by their counters on a
target whose flow tables have no idle timeout.

Each flow has an index into the registers of the data plane. Registers cannot be cleared over P4Runtime everywhere, so
an index that is given to the next flow gets a new generation, which tells the users of one index apart.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable

import finsy as fy
from finsy.proto import p4r

from .classes import class_of
from .config import AccessPointConfig
from .connection import Connection
from .feedback import Rate
from .program import FLOWS_SIZE, FlowKey, Program, canonical, digest_members, rate_meter

LOG = logging.getLogger(__name__)

FLOWS_PER_WRITE = 16
"""Between two writes the loop gets its turn: encoding so many flows takes about a millisecond."""

GENERATIONS = 256
PROTOCOL_TCP = 6
SMALL_PACKET = 128
"""Bytes; an ACK with all options has 94 with its Ethernet header, over IPv6 114."""
PARAM_FLOW_CLASS = 2
PARAM_FEEDBACK = 3
"""Positions among the parameters of `set_flow_ipv4/6`."""


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
        self._generation[index] = (self._generation[index] + 1) % GENERATIONS
        return index, self._generation[index]

    def give(self, index: int) -> None:
        """Give an index back."""
        self._free.append(index)


class Flow:
    """One direction of a 5-tuple, and the messages that read and change its entry."""

    __slots__ = (
        "bytes",
        "change",
        "direction",
        "egress_port",
        "feedback",
        "flow_class",
        "generation",
        "index",
        "ingress_port",
        "key",
        "packets",
        "rate",
        "since",
        "sparse_rate",
        "weight",
        "written",
    )

    def __init__(
        self, key: FlowKey, taken: tuple[int, int], ports: tuple[int, int], direction: str, entry: p4r.Entity
    ) -> None:
        self.key = key
        self.index, self.generation = taken
        self.ingress_port, self.egress_port = ports
        self.direction = direction
        self.flow_class = 0
        self.weight = 1.0
        self.since = time.time()
        self.packets = 0
        self.bytes = 0
        self.rate = Rate(0.5)
        self.feedback = 0.0
        self.written = 0
        # A MODIFY without `meter_config` would reset the meter (P4Runtime specification, section 9.1.9).
        self.change = p4r.Update(type=p4r.Update.MODIFY, entity=entry)
        self.sparse_rate = entry.table_entry.meter_config.cir

    @property
    def acknowledges(self) -> bool:
        """Whether this flow looks like the ACKs of the other direction: TCP, and its packets are small."""
        return self.key.protocol == PROTOCOL_TCP and 0 < self.bytes < SMALL_PACKET * self.packets

    @property
    def class_id(self) -> int:
        """The class that it is counted to: the one that it asks for, or the built-in one."""
        return self.flow_class or class_of(self.direction, self.acknowledges)

    def reading(self) -> p4r.DirectCounterEntry:
        """What asks for its counter."""
        entry = self.change.entity.table_entry
        return p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=entry.table_id, match=entry.match))

    def change_to(self, feedback: int) -> p4r.Update:
        """The update that writes 16 bits of feedback."""
        params = self.change.entity.table_entry.action.action.params
        params[PARAM_FEEDBACK].value = canonical(feedback)
        self.written = feedback
        return self.change


class Flows:
    """The flows of one access point."""

    def __init__(self, config: AccessPointConfig, program: Program) -> None:
        self._config = config
        self._program = program
        self._indices = Indices()
        self.by_key: dict[FlowKey, Flow] = {}
        self.by_index: dict[int, Flow] = {}
        self.fresh: deque[Flow] = deque()
        """Flows that the loop has not seen yet."""
        self.refused = 0
        self.learned = 0

    def forget(self) -> None:
        """The pipeline was pushed anew: no flow is known."""
        for flow in self.by_key.values():
            self._indices.give(flow.index)
        self.by_key.clear()
        self.by_index.clear()
        self.fresh.clear()

    @property
    def free(self) -> int:
        """How many more flows there is room for."""
        return len(self._indices)

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
        size = 4 if version == 4 else 16
        protocol, src_port, dst_port, ingress_port, egress_port = (int.from_bytes(member) for member in members[2:])
        key = FlowKey(members[0].rjust(size, b"\0"), members[1].rjust(size, b"\0"), protocol, src_port, dst_port)
        if key in self.by_key:
            return None
        taken = self._indices.take()
        if taken is None:
            self.refused += 1
            if self.refused == 1:
                LOG.warning("%s: %d flows are known, more stay unknown", self._config.name, FLOWS_SIZE)
            return None
        entry = self._program.flow_entry(
            key, *taken, flow_class=0, meter=self._meter(egress_port), idle_timeout=self._config.flow_idle_timeout
        )
        ports = (ingress_port, egress_port)
        flow = Flow(key, taken, ports, self._config.direction(*ports), entry)
        self.by_key[key] = flow
        return flow

    def _meter(self, egress_port: int) -> fy.P4MeterConfig:
        """The sparse rate of a flow that leaves through this port."""
        sparse = self._config.sparse
        port = self._config.port(egress_port)
        share = sparse.share * port.capacity_bps if port else 0.0
        return rate_meter(max(share, sparse.min_rate_bps), sparse.burst_bytes)

    async def _insert(self, connection: Connection, flows: list[Flow]) -> None:
        if not flows:
            return
        refused = await connection.insert(
            [p4r.Update(type=p4r.Update.INSERT, entity=flow.change.entity) for flow in flows]
        )
        if refused:
            LOG.warning("%s: the switch refuses a flow: %s", self._config.name, next(iter(refused.values())))
        for number, flow in enumerate(flows):
            if self.by_key.get(flow.key) is not flow:
                continue
            if number in refused:
                del self.by_key[flow.key]
                self._indices.give(flow.index)
                continue
            self.by_index[flow.index] = flow
            # Only now may the loop read and change the entry.
            self.learned += 1
            self.fresh.append(flow)

    def is_over(self, flow: Flow, now: float) -> bool:
        """Whether a flow's counter, read now, says that it is over; a target with idle timeouts says so itself."""
        return not self._program.flows_time_out and now - flow.rate.last_moved > self._config.flow_idle_timeout

    async def age(self, connection: Connection, keys: Iterable[FlowKey]) -> None:
        """Remove flows: those whose idle timeout has passed, or that lost their station."""
        gone = [flow for flow in (self.by_key.pop(key, None) for key in keys) if flow is not None]
        for flow in gone:
            self.by_index.pop(flow.index, None)
        for start in range(0, len(gone), FLOWS_PER_WRITE):
            part = gone[start : start + FLOWS_PER_WRITE]
            await connection.write_existing(
                [p4r.Update(type=p4r.Update.DELETE, entity=flow.change.entity) for flow in part]
            )
            for flow in part:
                self._indices.give(flow.index)

    def through(self, port: int) -> list[FlowKey]:
        """The flows that enter or leave through a port."""
        return [flow.key for flow in self.by_key.values() if port in (flow.ingress_port, flow.egress_port)]

    async def set_class(self, connection: Connection, flow: Flow, flow_class: int) -> None:
        """Let a flow ask for a class of its own (a key of `classify`); 0: for none."""
        flow.flow_class = flow_class
        params = flow.change.entity.table_entry.action.action.params
        params[PARAM_FLOW_CLASS].value = canonical(flow_class)
        await connection.write([flow.change])
