# SPDX-License-Identifier: Apache-2.0
"""The loop: every `device_interval` read counters, compute feedback, write the entries whose 16-bit value changed.

    one ReadRequest:  arrived, sent, filtered of each port and class, and some of the flows' counters in turn
    one WriteRequest: port_feedback, class_feedback, flows: only what changed

Nothing else waits in here. A tick that starts late is counted, and the mathematics gets the real time.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Callable

import finsy as fy
from finsy.proto import p4r

from .classes import class_ids
from .config import AccessPointConfig
from .connection import Connection
from .feedback import quantise
from .flows import Flow, Flows
from .program import FlowKey, Program, class_index, table_entry
from .regulator import PortRegulator, Volume

IDLE_INTERVAL = 0.1
"""Seconds between ticks while nothing is regulated: counters are only looked at."""

FLOW_STEP = 256
"""A flow's or class's feedback is written when it changed by so much of 65535: on some targets each write refills the
flow's meter, and nobody can tell 0.4 % of probability from noise."""

QUIET_SECONDS = 1.0
"""How often a flow without traffic is looked at; less often when there are more than `MOST_QUIET` for each tick."""
LEAST_FLOWS = 4
MOST_QUIET = 16
"""Flows of one tick: what the active ones need, and between these two on top."""


class Loop:
    """The loop of one access point; `over(keys)` is called for flows whose counters have stood still for too long."""

    def __init__(
        self, config: AccessPointConfig, program: Program, flows: Flows, over: Callable[[list[FlowKey]], None]
    ) -> None:
        self._config = config
        self._program = program
        self._flows = flows
        self._over = over
        counters = program.schema.counters
        self._fields = {
            counters[name].id: (f"{name}_packets", f"{name}_bytes") for name in ("arrived", "sent", "filtered")
        }
        self.ports: dict[int, PortRegulator] = {}
        self.ticks = 0
        self.late = 0
        self.durations: deque[float] = deque(maxlen=1000)
        self._ticking = asyncio.Lock()
        self.forget()

    def forget(self) -> None:
        """The pipeline was pushed anew: counters are 0, entries are gone."""
        self.ports = {port.port: PortRegulator(self._config, port) for port in self._config.ports}
        self._written: dict[tuple[int, int | None], int] = {}
        self._marking_only: set[tuple[int, int | None]] = set()
        self._classes: list[int] = []
        self._cells: list[p4r.Entity] = []
        self._due: list[tuple[float, int, Flow]] = []
        self._order = itertools.count()

    async def run(self, connection: Connection) -> None:
        """Tick for ever."""
        due = time.monotonic()
        while True:
            start = time.monotonic()
            async with self._ticking:
                await self.tick(connection, start)
            now = time.monotonic()
            self.durations.append(now - start)
            due += self.interval
            if due <= now:
                self.late += 1
                due = now
            await asyncio.sleep(due - now)

    @property
    def interval(self) -> float:
        """Seconds between two ticks."""
        return self._config.ncr.device_interval if self._config.features.ncr else IDLE_INTERVAL

    async def tick(self, connection: Connection, now: float) -> None:
        """Read, compute, write."""
        self.ticks += 1
        flows = self._next_flows(now)
        request = p4r.ReadRequest(device_id=self._config.device_id, entities=self._read_cells())
        asked: dict[tuple[bytes, ...], Flow] = {}
        for flow in flows:
            reading = flow.reading()
            request.entities.add(direct_counter_entry=reading)
            asked[reading_key(reading)] = flow
        try:
            await self._read(connection, request, asked)
        except fy.P4ClientError as error:
            # A flow of this request was removed while it was on its way; the next tick asks without it.
            if error.code != fy.GRPCStatusCode.NOT_FOUND and not error.is_not_found_only:
                raise
        now = time.monotonic()
        updates: list[p4r.Update] = []
        for regulator in self.ports.values():
            flows = regulator.update(now)
            updates += self._changes(regulator, flows)
        if updates:
            await connection.write_existing(updates)

    async def release(self, connection: Connection) -> None:
        """Stop ticking for good and take all feedback back: nobody would ever lower it again."""
        await self._ticking.acquire()
        updates = [
            *(self._entry(*key, 0) for key, value in self._written.items() if value),
            *(flow.change_to(0) for flow in self._flows.by_key.values() if flow.written),
        ]
        await connection.write_existing(updates)

    def _read_cells(self) -> list[p4r.Entity]:
        """The cells of every port and class in use. What left is read first: read between the two, a packet then
        shows as queued, never as a negative queue."""
        classes = class_ids(self._config)
        if classes != self._classes:
            self._classes = classes
            self._cells = [
                self._program.counter(name, class_index(port, class_id))
                for name in ("filtered", "sent", "arrived")
                for port in self.ports
                for class_id in classes
            ]
            for regulator in self.ports.values():
                for class_id in classes:
                    regulator.volumes.setdefault(class_id, Volume())
        return self._cells

    def _next_flows(self, now: float) -> list[Flow]:
        """The flows whose turn it is: active ones every `flow_interval`, spread evenly over the ticks."""
        fresh = self._flows.fresh
        while fresh:
            heapq.heappush(self._due, (now, next(self._order), fresh.popleft()))
        flow_interval = self._config.ncr.flow_interval
        per_tick = self.interval / flow_interval
        active = sum(len(regulator.active) for regulator in self.ports.values())
        quiet = max(0, len(self._due) - active)
        most = LEAST_FLOWS + math.ceil(active * per_tick) + min(MOST_QUIET, math.ceil(quiet * per_tick / 10))
        turn: list[Flow] = []
        while self._due and len(turn) < most and self._due[0][0] <= now:
            flow = heapq.heappop(self._due)[2]
            if self._flows.by_key.get(flow.key) is not flow:
                continue
            turn.append(flow)
            wait = QUIET_SECONDS if flow.rate.idle(now) else flow_interval
            heapq.heappush(self._due, (now + wait, next(self._order), flow))
        return turn

    async def _read(
        self, connection: Connection, request: p4r.ReadRequest, flows: dict[tuple[bytes, ...], Flow]
    ) -> None:
        async for entity in connection.read(request):
            if entity.HasField("counter_entry"):
                cell = entity.counter_entry
                port, class_id = cell.index.index >> 3, cell.index.index & 7
                volume = self.ports[port].volumes[class_id]
                packets, size = self._fields[cell.counter_id]
                setattr(volume, packets, cell.data.packet_count)
                setattr(volume, size, cell.data.byte_count)
            else:
                flow = flows.get(reading_key(entity.direct_counter_entry))
                if flow is not None:
                    self._take(flow, entity.direct_counter_entry.data)

    def _take(self, flow: Flow, data: p4r.CounterData) -> None:
        """A new reading of a flow's counter."""
        now = time.monotonic()
        flow.packets, flow.bytes = data.packet_count, data.byte_count
        flow.rate.tau = self._config.ncr.smoothing_ms / 1000
        flow.rate.update(flow.bytes, now)
        regulator = self.ports.get(flow.egress_port)
        if regulator is not None and not flow.rate.idle(now):
            regulator.active[flow.index] = flow
        elif self._flows.is_over(flow, now):
            self._over([flow.key])

    def _changes(self, regulator: PortRegulator, flows: list[Flow]) -> list[p4r.Update]:
        """The updates of one port and of those of its flows that were looked at."""
        number = regulator.port.port
        updates = self._changed(number, None, regulator.feedback, 1)
        for class_id in regulator.volumes:
            updates += self._changed(number, class_id, regulator.class_feedback.get(class_id, 0.0), FLOW_STEP)
        for flow in flows:
            value = quantise(flow.feedback)
            if abs(value - flow.written) >= FLOW_STEP or (value == 0 and flow.written):
                updates.append(flow.change_to(value))
        return updates

    def _changed(self, port: int, class_id: int | None, feedback: float, step: int) -> list[p4r.Update]:
        """The update of a port's or class's feedback, if it changed by `step` or became 0."""
        value = quantise(feedback)
        written = self._written.get((port, class_id), 0)
        mark_only = class_id is not None and self._config.ncr.mark_only
        same = mark_only == ((port, class_id) in self._marking_only)
        if same and abs(value - written) < step and not (value == 0 and written):
            return []
        if not same:
            self._marking_only ^= {(port, class_id)}
        update = self._entry(port, class_id, value)
        self._written[port, class_id] = value
        return [update]

    def _entry(self, port: int, class_id: int | None, value: int) -> p4r.Update:
        """The update that writes the feedback of a port, or of one of its classes; the first one inserts the entry."""
        if class_id is None:
            entry = table_entry("port_feedback", {"egress_port": port}, "add_port_feedback", feedback=value)
        else:
            entry = table_entry(
                "class_feedback",
                {"egress_port": port, "class_id": class_id},
                "add_class_feedback",
                feedback=value,
                mark_only=int(self._config.ncr.mark_only),
            )
        kind = p4r.Update.MODIFY if (port, class_id) in self._written else p4r.Update.INSERT
        return self._program.update(kind, entry)


def reading_key(entry: p4r.DirectCounterEntry) -> tuple[bytes, ...]:
    """What tells the answers for single flows apart."""
    return tuple(field.exact.value for field in entry.table_entry.match)
