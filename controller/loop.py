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
from dataclasses import dataclass

import finsy as fy
from finsy.proto import p4r

from .classes import class_ids, class_of
from .config import CLASS_DOWNLINK, CLASS_UPLINK, AccessPointConfig, Port
from .connection import Connection
from .feedback import DeviceTerm, Measured, Rate, ShareTerms, quantise, queue_target
from .flows import Flow, Flows
from .program import FlowKey, Program, class_index, table_entry
from .queue_estimate import PortCounters, QueueEstimate

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


@dataclass(slots=True)
class Volume:
    """What a port counted of one class since the pipeline was pushed."""

    arrived_packets: int = 0
    arrived_bytes: int = 0
    sent_packets: int = 0
    sent_bytes: int = 0
    filtered_packets: int = 0
    filtered_bytes: int = 0


class PortLoop:
    """One port: its counters, its queue, its terms."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.volumes: dict[int, Volume] = {}
        self.estimate = QueueEstimate(port.capacity_bps / 8, port.queue_limit)
        self.device = DeviceTerm()
        self.class_terms: ShareTerms[int] = ShareTerms()
        self.flow_terms: ShareTerms[FlowKey] = ShareTerms()
        self.class_rates: dict[int, Rate] = {}
        self.active = 0
        self.target = 0.0
        self.feedback = 0.0
        self.class_feedback: dict[int, float] = {}
        self.arrived = 0
        self.shares_at = 0.0

    def counters(self) -> PortCounters:
        """All classes together."""
        volumes = self.volumes.values()
        sent_bytes = sum(volume.sent_bytes for volume in volumes)
        return PortCounters(
            arrived_packets=sum(volume.arrived_packets for volume in volumes),
            arrived_bytes=sum(volume.arrived_bytes for volume in volumes),
            gone_packets=sum(volume.sent_packets + volume.filtered_packets for volume in volumes),
            gone_bytes=sent_bytes + sum(volume.filtered_bytes for volume in volumes),
            sent_bytes=sent_bytes,
        )


class Loop:
    """The loop of one access point."""

    def __init__(self, config: AccessPointConfig, program: Program, flows: Flows) -> None:
        self._config = config
        self._program = program
        self._flows = flows
        counters = program.schema.counters
        self._fields = {
            counters[name].id: (f"{name}_packets", f"{name}_bytes") for name in ("arrived", "sent", "filtered")
        }
        self.ports: dict[int, PortLoop] = {}
        self.ticks = 0
        self.late = 0
        self.durations: deque[float] = deque(maxlen=1000)
        self._ticking = asyncio.Lock()
        self.forget()

    def forget(self) -> None:
        """The pipeline was pushed anew: counters are 0, entries are gone."""
        self.ports = {port.port: PortLoop(port) for port in self._config.ports}
        self._written: dict[tuple[int, int | None], int] = {}
        self._marking_only: set[tuple[int, int | None]] = set()
        self._classes: list[int] = []
        self._cells: list[p4r.Entity] = []
        self._due: list[tuple[float, int, Flow]] = []
        self._order = itertools.count()
        self._active = 0

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
        request.entities.extend(flow.reading for flow in flows)
        try:
            await self._read(
                connection, request, {reading_key(flow.reading.direct_counter_entry): flow for flow in flows}
            )
        except fy.P4ClientError as error:
            # A flow of this request was removed while it was on its way; the next tick asks without it.
            if error.code != fy.GRPCStatusCode.NOT_FOUND and not error.is_not_found_only:
                raise
        now = time.monotonic()
        updates: list[p4r.Update] = []
        for state in self.ports.values():
            updates.extend(self._compute(state, now))
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
            for state in self.ports.values():
                for class_id in classes:
                    state.volumes.setdefault(class_id, Volume())
        return self._cells

    def _next_flows(self, now: float) -> list[Flow]:
        """The flows whose turn it is: active ones every `flow_interval`, spread evenly over the ticks."""
        if not self._config.features.ncr:
            return []
        fresh = self._flows.fresh
        while fresh:
            heapq.heappush(self._due, (now, next(self._order), fresh.popleft()))
        ncr = self._config.ncr
        per_tick = ncr.device_interval / ncr.flow_interval
        quiet = max(0, len(self._due) - self._active)
        most = LEAST_FLOWS + math.ceil(self._active * per_tick) + min(MOST_QUIET, math.ceil(quiet * per_tick / 10))
        turn: list[Flow] = []
        while self._due and len(turn) < most and self._due[0][0] <= now:
            flow = heapq.heappop(self._due)[2]
            if self._flows.by_key.get(flow.key) is not flow:
                continue
            turn.append(flow)
            wait = QUIET_SECONDS if flow.rate.idle(now) else ncr.flow_interval
            heapq.heappush(self._due, (now + wait, next(self._order), flow))
        return turn

    async def _read(self, connection: Connection, request: p4r.ReadRequest, flows: dict[bytes, Flow]) -> None:
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
                    flow.packets = entity.direct_counter_entry.data.packet_count
                    flow.bytes = entity.direct_counter_entry.data.byte_count
                    flow.rate.tau = self._config.ncr.smoothing_ms / 1000
                    flow.rate.update(flow.bytes, time.monotonic())

    def _compute(self, state: PortLoop, now: float) -> list[p4r.Update]:
        """The updates of one port."""
        ncr = self._config.ncr
        counters = state.counters()
        state.estimate.update(counters, now)
        arriving = counters.arrived_packets != state.arrived
        state.arrived = counters.arrived_packets
        capacity = state.port.capacity_bps / 8
        state.target = target = queue_target(capacity, ncr)
        number = state.port.port
        if not (self._config.features.ncr and state.port.regulated):
            return self._silence(state)
        state.feedback = state.device.update(now, state.estimate.bytes, target, ncr, arriving=arriving)
        updates = self._changed(number, None, state.feedback, 1)
        if now - state.shares_at >= ncr.flow_interval:
            state.shares_at = now
            busy = state.estimate.bytes >= target / 2
            updates += self._class_terms(state, now, capacity, busy)
            updates += self._flow_terms(state, now, capacity, busy)
        return updates

    def _silence(self, state: PortLoop) -> list[p4r.Update]:
        """No feedback for a port that is not regulated, or not any more."""
        if not state.feedback and not state.class_feedback and not state.flow_terms.pressure:
            return []
        state.device, state.class_terms, state.flow_terms = DeviceTerm(), ShareTerms(), ShareTerms()
        state.feedback, state.class_feedback = 0.0, {}
        number = state.port.port
        updates = [self._entry(*key, 0) for key, value in self._written.items() if key[0] == number and value]
        self._written.update({key: 0 for key in self._written if key[0] == number})
        for flow in self._flows.by_port.get(number, {}).values():
            flow.feedback = 0.0
            if flow.written:
                updates.append(flow.change_to(0))
        return updates

    def _class_terms(self, state: PortLoop, now: float, capacity: float, busy: bool) -> list[p4r.Update]:
        ncr = self._config.ncr
        measured: dict[int, Measured] = {}
        for class_id, volume in state.volumes.items():
            rate = state.class_rates.setdefault(class_id, Rate(ncr.smoothing_ms / 1000))
            rate.tau = ncr.smoothing_ms / 1000
            rate.update(volume.sent_bytes, now)
            if not rate.idle(now):
                measured[class_id] = Measured(rate.value, self.class_weight(class_id))
        state.class_feedback = state.class_terms.update(
            now,
            capacity,
            measured,
            gain=ncr.beta,
            interval=ncr.flow_interval,
            limit=ncr.class_limit,
            busy=busy,
        )
        updates: list[p4r.Update] = []
        for class_id in state.volumes:
            updates += self._changed(state.port.port, class_id, state.class_feedback.get(class_id, 0.0), FLOW_STEP)
        return updates

    def _flow_terms(self, state: PortLoop, now: float, capacity: float, busy: bool) -> list[p4r.Update]:
        ncr = self._config.ncr
        flows = self._flows.by_port.get(state.port.port, {})
        active: dict[FlowKey, Flow] = {
            key: flow for key, flow in flows.items() if flow.rate.value > 1 and not flow.rate.idle(now)
        }
        self._active += len(active) - state.active
        state.active = len(active)
        weights: dict[int, float] = {}
        for flow in active.values():
            class_id = self.class_of_flow(flow)
            weights[class_id] = weights.get(class_id, 0.0) + flow.weight
        measured: dict[FlowKey, Measured] = {}
        for key, flow in active.items():
            class_id = self.class_of_flow(flow)
            measured[key] = Measured(flow.rate.value, self.class_weight(class_id) * flow.weight / weights[class_id])
        before = state.flow_terms.pressure
        feedback = state.flow_terms.update(
            now,
            capacity,
            measured,
            gain=ncr.alpha,
            interval=ncr.flow_interval,
            limit=ncr.flow_limit,
            busy=busy,
        )
        updates: list[p4r.Update] = []
        for flow in [flows[key] for key in before.keys() | feedback.keys() if key in flows]:
            flow.feedback = feedback.get(flow.key, 0.0)
            value = quantise(flow.feedback)
            if abs(value - flow.written) >= FLOW_STEP or (value == 0 and flow.written):
                updates.append(flow.change_to(value))
        return updates

    def class_of_flow(self, flow: Flow) -> int:
        """The class that a flow is counted to: its own, or the built-in one."""
        if flow.flow_class:
            return flow.flow_class
        return class_of(self.direction(flow), flow.acknowledges)

    def direction(self, flow: Flow) -> str:
        """uplink, downlink or local."""
        ingress, egress = self._config.port(flow.ingress_port), self._config.port(flow.egress_port)
        match (ingress and ingress.role, egress and egress.role):
            case ("station", "uplink"):
                return "uplink"
            case ("uplink", "station"):
                return "downlink"
        return "local"

    def class_weight(self, class_id: int) -> float:
        """W of a class."""
        weights = self._config.class_weights
        return {CLASS_DOWNLINK: weights.downlink, CLASS_UPLINK: weights.uplink}.get(class_id, weights.other)

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


def reading_key(entry: p4r.DirectCounterEntry) -> bytes:
    """What tells the answers for single flows apart."""
    return b"|".join(field.exact.value for field in entry.table_entry.match)
