# SPDX-License-Identifier: Apache-2.0
"""The loop of one access point: every 10 ms read counters, compute feedback, write the entries whose 16 bits changed.

    one ReadRequest:  arrived, sent, filtered of each port and class, group traffic of each port, and some of the flows'
                      counters in turn
    one WriteRequest: port_feedback, class_feedback, flows: only what changed

It is a coroutine beside the session's others and takes its time from the event loop, so in virtual time it runs in
virtual time. Requests are put together from parts that were serialised when a flow was learned: concatenated protobuf
messages are one message with the repeated fields of all.
"""

import asyncio
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable

import numpy as np
from finsy.proto import p4r, rpc_code

from ..config import AccessPointConfig, Port
from ..law import Law, chosen
from ..law.shares import Floats
from ..observation import TICK_BOUNDS
from .classes import class_ids, ruled_class
from .connection import Connection
from .feedback import quantise
from .flow import Flow
from .flow_table import METER_STEP, SMALL_BURST, SPARSE_BURST, FlowTable, sparse_rate
from .program import (
    ECT0,
    ECT1,
    GROUP_COUNTERS,
    GROUP_PORT,
    NOT_ECT,
    PARAM_FEEDBACK,
    PARAM_FLOW_CLASS,
    PARAM_SCALABLE,
    Encodable,
    Program,
    canonical,
    class_index,
    table_entry,
)
from .queue_meters import burst, meter_rates, queue_meter, queue_rates, slowest
from .regulator import CLASSES, NOBODY, VOLUMES, PortRegulator, Volumes, slowest_uplink
from .transport import RpcError, Transport

IDLE_INTERVAL = 0.1
"""Seconds between ticks while nothing is regulated: counters are only looked at."""

ANSWER_SECONDS = 2.0
"""A switch that takes longer for an answer is given up."""

DURATIONS = 1000
"""Ticks whose durations are remembered."""

FLOW_STEP = 256
"""A flow's or class's feedback is written when it changed by so much of 65535: on some targets each write refills the
flow's meter, and nobody can tell 0.4 % of probability from noise."""

PORT_STEP = 32
"""A port's feedback is written when it changed by one part in so many: senders answer to its square root."""

SCALABLE_STEP = 2048
"""As `FLOW_STEP`, for scalable senders. Their feedback moves by its root: they answer to each mark by its part."""

MAX_WRITTEN = 128
"""Flows that are written in one tick; the others wait for the next."""
AT_ONCE = 32
"""Active flows are read so many at once when there are enough: reading a few of them with every tick costs more."""
MAX_FRESH = 64
QUIET_SECONDS = 1.0
MAX_QUIET = 16
"""A flow without traffic is looked at so often, or less often when there would be more than so many in each tick."""

Key = tuple[int, int | None, int]
"""A port, or a port and a class; what the ECN field of its packets says."""

Change = tuple[Key | int | None, p4r.Update]
"""An update with its subject: a feedback entry of a port or class, a flow by its index, or a meter (None)."""


class Loop:
    """The loop of one access point; `run` ticks for one session."""

    def __init__(self, config: AccessPointConfig, program: Program) -> None:
        self._config = config
        self._law: Law = chosen(config.ncr.law, config.ncr.own)
        self._program = program
        self.ticks = 0
        """Ticks that have begun."""
        self.late = 0
        """Ticks that began more than half an interval after they were due."""
        self.missed = 0
        """Ticks that were skipped, because the next one was due already."""
        self._durations: deque[float] = deque(maxlen=DURATIONS)
        self.tick_counts = [0] * (len(TICK_BOUNDS) + 1)
        """Ticks by duration, in the intervals of `TICK_BOUNDS`."""
        self.tick_seconds = 0.0
        """Duration of all ticks together."""
        self._volumes: dict[int, Volumes] = {}
        self._counters = {program.schema.counters[name].id: name for name in (*VOLUMES, *GROUP_COUNTERS)}
        self._entries: dict[Key, p4r.Update] = {}
        """The last update of each feedback entry."""
        self.added: Callable[[Flow], None] = lambda flow: None
        self.removed: Callable[[int], None] = lambda index: None
        """Called with what is regulated from now on, and no more."""
        self._releasing = False
        self._ended: asyncio.Event | None = None
        self._transport: Transport
        """Transport to the switch in this session."""
        self._writes = b""
        """First part of every WriteRequest of this session, serialised."""
        self.forget()

    def forget(self) -> None:
        """Forget all flows and feedback entries, at the beginning of a session."""
        self.flows = FlowTable()
        self.ports = {port.port: self._regulator(port) for port in self._config.ports}
        self._added: set[int] = set()
        """Ports of this session whose counters were not read yet."""
        self._retired: list[Change] = []
        """Deletions of the feedback of ports that were removed."""
        self._group_packets = self._group_bytes = 0
        """Group traffic of removed ports, less what added ones had before: the others' count goes on."""
        self._by_index: dict[int, Flow] = {}
        self._fresh: deque[Flow] = deque()
        self._turn: deque[Flow] = deque()
        self._quiet: deque[Flow] = deque()
        self._turn_credit = self._quiet_credit = 0.0
        self._to_write: dict[int, None] = {}
        self._written: dict[Key, tuple[int, int]] = {}
        """Feedback entries in the switch: 16 bits, and of a class whether it only marks, of a port the depth from which
        it counts."""
        self._releasing = False
        self.configure()
        self.forget_meters()

    def adopt(self, entries: Iterable[p4r.TableEntry]) -> list[p4r.Update]:
        """Resume from the feedback entries that the switch has; return the updates that fix them."""
        updates = []
        of_ports, above = self._program.schema.tables["port_feedback"].id, self._program.measures_lanes
        for entry in entries:
            port, *of_class, ecn = (int.from_bytes(field.exact.value) for field in entry.match)
            feedback, *also = (int.from_bytes(param.value) for param in entry.action.action.params)
            if port not in self.ports or len(also) != int(above or entry.table_id != of_ports):
                updates.append(p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=entry)))
            else:
                self._written[port, of_class[0] if of_class else None, ecn] = feedback, also[0] if also else 0
        return updates

    def forget_meters(self) -> None:
        """Take the meters as the configuration has them; the next tick writes what differs."""
        self._meters = {
            (port, queue): self._program.update(p4r.Update.MODIFY, queue_meter(port, queue, rate))
            for (port, queue), rate in meter_rates(self._config).items()
        }
        """The last update of each port's and queue's meter."""
        self._all_classes = True

    def _regulator(self, port: Port) -> PortRegulator:
        return PortRegulator(self._config, port, self.flows, [], self._volumes.setdefault(port.port, Volumes()))

    def configure(self) -> None:
        """Apply changed parameters of the configuration; the roles of ports are the same."""
        self._law = chosen(self._config.ncr.law, self._config.ncr.own)
        self._set_ports()
        for regulator in self.ports.values():
            regulator.configure(self._config)
            port = regulator.port
            self.flows.set_sparse_rate(port.port, sparse_rate(self._config, port.port))
        self._set_targets()
        for index, flow in self._by_index.items():
            if flow.flow_class:
                self.flows.set_class(index, ruled_class(self._config, flow.flow_class))
        self.interval = self._config.ncr.device_interval if self._config.features.ncr else IDLE_INTERVAL
        """Seconds between two ticks."""
        self._set_cells()
        self._all_classes = True

    def _set_ports(self) -> None:
        """Begin and end regulators; those of other ports go on."""
        before = self.ports
        self.ports = {port.port: before.get(port.port) or self._regulator(port) for port in self._config.ports}
        for number in before.keys() - self.ports.keys():
            gone = self._volumes.pop(number)
            self._group_packets += gone.group_arrived_packets[0]
            self._group_bytes += gone.group_arrived_bytes[0]
            self.flows.active[[*before[number].active]] = False
            for key in [key for key in self._written if key[0] == number]:
                self._retired.append((key, self._program.update(p4r.Update.DELETE, feedback_entry(key))))
                del self._written[key]
                self._entries.pop(key, None)
        self._added = (self._added | (self.ports.keys() - before.keys())) & self.ports.keys()
        if self.ports.keys() != before.keys():
            self.forget_meters()

    def _begin_added(self) -> None:
        """Regulate added ports from now on, with the counters that were just read as their beginning."""
        for number in self._added:
            volumes = self.ports[number].volumes
            self._group_packets -= volumes.group_arrived_packets[0]
            self._group_bytes -= volumes.group_arrived_bytes[0]
            self.ports[number].resume(0.0, {})
        self._added.clear()

    def add(self, flows: "Iterable[Flow]", now: float) -> None:
        """Read and regulate these flows from now on; their entries are in the switch."""
        for flow in flows:
            self.flows.add(flow.index, flow.kind(self._config), now)
            self._by_index[flow.index] = flow
            self.added(flow)
            self._fresh.append(flow)

    def rewrite(self, flows: "Iterable[Flow]") -> None:
        """Write the entries of these flows again, some with each tick."""
        self._to_write.update(dict.fromkeys(flow.index for flow in flows if flow.index in self._by_index))

    def change(self, flow: Flow) -> None:
        """Write a flow's entry again after its properties have changed."""
        if self._by_index.get(flow.index) is flow:
            self.flows.set_class(flow.index, ruled_class(self._config, flow.flow_class))
            self._to_write[flow.index] = None

    def remove(self, indices: Iterable[int]) -> None:
        """Stop regulating these flows, which have ended."""
        for index in indices:
            if self._by_index.pop(index, None) is not None:
                self.removed(index)
                self.flows.active[index] = False
                self._to_write.pop(index, None)
                for regulator in self.ports.values():
                    regulator.active.pop(index, None)

    @property
    def durations(self) -> Floats:
        """Seconds from begin to end, of the last ticks, ascending."""
        return np.sort(np.fromiter(self._durations, np.float64, len(self._durations)))

    async def run(self, connection: Connection) -> None:
        """Tick until cancelled, or for `release`; raises `RpcError`."""
        clock = asyncio.get_running_loop().time
        self._transport, self._writes = connection.transport, connection.asks_to_write(())
        self._resume()
        ended = self._ended = asyncio.Event()
        due = clock()
        try:
            while not self._releasing:
                await asyncio.sleep(due - clock())
                began = clock()
                missed = max(0, int((began - due) / self.interval))
                self.ticks += 1
                self.late += began - due > self.interval / 2
                self.missed += missed
                due += (missed + 1) * self.interval
                await self._tick()
                took = clock() - began
                self._durations.append(took)
                self.tick_counts[bisect_left(TICK_BOUNDS, took)] += 1
                self.tick_seconds += took
            await self._write(self._taken_back())
        finally:
            self._ended = None
            ended.set()

    async def release(self) -> None:
        """Stop ticking, and remove all feedback: nobody would ever lower it again."""
        self._releasing = True
        if self._ended is not None:
            await self._ended.wait()

    async def _tick(self) -> None:
        if self._retired:
            # Before anything is inserted again.
            retired, self._retired = self._retired, []
            await self._write(retired)
        asked, cells = {flow.match: flow for flow in self._next_flows()}, self._asks_cells
        request = b"".join([cells, *[flow.reading for flow in asked.values()]])
        try:
            answer = await self._transport.call("Read", request, timeout=ANSWER_SECONDS)
        except RpcError as error:
            if not asked or error.codes != {rpc_code.NOT_FOUND}:
                raise
            # One of these flows was removed while this was on its way; the next tick asks without it.
            self._missed(asked.values(), asyncio.get_running_loop().time())
            return
        now = asyncio.get_running_loop().time()
        self._count(p4r.ReadResponse.FromString(answer).entities, asked, now)
        if cells is self._asks_cells:
            self._begin_added()
        await self._write(self._regulate(now))

    async def _write(self, changes: list[Change]) -> None:
        """Write what changed; with that a tick ends."""
        if not changes:
            return
        request = p4r.WriteRequest(updates=[update for _, update in changes])
        try:
            await self._transport.call("Write", self._writes + request.SerializeToString(), timeout=ANSWER_SECONDS)
        except RpcError as error:
            for number, part in error.parts.items():
                what = changes[number][0] if number < len(changes) else None
                if part.canonical_code != rpc_code.NOT_FOUND or what is None:
                    raise
                # A flow may have ended meanwhile. A missing entry of a port or class is inserted again.
                if isinstance(what, tuple):
                    self._written.pop(what, None)
                    self._all_classes = True
            if not error.parts:
                raise

    def _resume(self) -> None:
        """Resume from the feedback of an earlier controller."""
        for number, regulator in self.ports.items():
            of_classes = {
                class_id: self._written[number, class_id, ECT0][0] / 65535
                for class_id in range(CLASSES)
                if (number, class_id, ECT0) in self._written
            }
            value, _ = self._written.get((number, None, ECT0), (0, 0))
            regulator.resume(value / 65535, of_classes)

    def _taken_back(self) -> list[Change]:
        """Return the updates that set all feedback to 0."""
        of_flows = [index for index in self._by_index if self.flows.written[index]]
        self.flows.stop(np.array(of_flows, np.int64))
        changes = [self._entry(key, 0) for key, (value, _) in self._written.items() if value]
        return changes + self._flow_updates(of_flows)

    def _set_targets(self) -> None:
        for regulator in self.ports.values():
            regulator.ack_capacity = slowest_uplink([*self.ports.values()], regulator)
            regulator.aim()

    def _set_cells(self) -> None:
        """Prepare the request for the counters of every port and class in use.

        Sent packets are read before arrived ones: one that passes in between shows as queued, never as a negative
        queue.
        """
        classes = class_ids(self._config)
        self._cells: dict[tuple[int, int], tuple[list[int], list[int], int]] = {}
        """By counter and index: where packets and bytes are kept, and at which place there."""
        arrived, sent = GROUP_COUNTERS
        ids = {name: number for number, name in self._counters.items()}
        request = p4r.ReadRequest(device_id=self._config.device_id)
        for name in (sent, *reversed(VOLUMES), arrived):
            for port, regulator in self.ports.items():
                packets, sizes = (getattr(regulator.volumes, f"{name}_{unit}") for unit in ("packets", "bytes"))
                for place in (0,) if name in GROUP_COUNTERS else classes:
                    index = port if name in GROUP_COUNTERS else class_index(port, place)
                    request.entities.add().counter_entry.MergeFrom(
                        p4r.CounterEntry(counter_id=ids[name], index=p4r.Index(index=index))
                    )
                    self._cells[ids[name], index] = packets, sizes, place
        for regulator in self.ports.values():
            regulator.use(classes)
        self._asks_cells = request.SerializeToString()

    def _next_flows(self) -> "list[Flow]":
        """Return the flows whose turn it is: active ones every `flow_interval`, spread evenly over the ticks."""
        chosen = self._next_of(self._fresh, MAX_FRESH) if self._fresh else []
        active, quiet = len(self._turn), len(self._quiet)
        if active:
            credit = self._turn_credit + active * self.interval / self._config.ncr.flow_interval
            self._turn_credit = min(active, credit)
            if self._turn_credit >= min(active, AT_ONCE) - 1e-6:
                count = math.ceil(self._turn_credit - 1e-6)
                self._turn_credit = 0.0
                chosen += self._next_of(self._turn, count)
        if quiet:
            self._quiet_credit = min(MAX_QUIET, self._quiet_credit + quiet * self.interval / QUIET_SECONDS)
            if self._quiet_credit >= min(quiet, MAX_QUIET / 2):
                count = int(self._quiet_credit)
                self._quiet_credit -= count
                chosen += self._next_of(self._quiet, count)
        return chosen

    def _next_of(self, source: "deque[Flow]", count: int) -> "list[Flow]":
        turn = [source.popleft() for _ in range(min(count, len(source)))]
        return [flow for flow in turn if self._by_index.get(flow.index) is flow]

    def _count(self, answer: Iterable[p4r.Entity], asked: "dict[tuple[bytes | int, ...], Flow]", now: float) -> None:
        """Take the answer to a Read, in any order, with missing or additional entities."""
        flows: list[Flow] = []
        counts: list[tuple[int, int, int]] = []
        for entity in answer:
            if entity.HasField("counter_entry"):
                cell = entity.counter_entry
                # The request may be older than a change of classes.
                place = self._cells.get((cell.counter_id, cell.index.index))
                if place is not None:
                    packets, sizes, number = place
                    packets[number], sizes[number] = cell.data.packet_count, cell.data.byte_count
                continue
            reading = entity.direct_counter_entry
            entry = reading.table_entry
            flow = asked.pop((entry.table_id, *[field.exact.value for field in entry.match]), None)
            # It may have been removed meanwhile.
            if flow is not None and self._by_index.get(flow.index) is flow:
                flows.append(flow)
                counts.append((flow.index, reading.data.packet_count, reading.data.byte_count))
        self._missed(asked.values(), now)
        if not flows:
            return
        at, packets_of, sizes_of = np.array(counts, np.int64).T.copy()
        table, ncr = self.flows, self._config.ncr
        table.take(at, packets_of, sizes_of, now, self._law.averaging(ncr.smoothing_ms / 1000))
        for flow, is_idle in zip(flows, table.rates.idle(at, now).tolist(), strict=True):
            if is_idle:
                self._quiet.append(flow)
                continue
            self._turn.append(flow)
            regulator = self.ports.get(flow.key.egress_port)
            if regulator is not None:
                regulator.active[flow.index] = None
                table.active[flow.index] = True

    def _missed(self, flows: Collection[Flow], now: float) -> None:
        """Take note of flows that were asked for, and have no reading."""
        if flows:
            self._quiet.extend(flows)
            self.flows.rates.miss(np.array([flow.index for flow in flows]), now)

    def _count_group(self) -> None:
        """Give each port the group traffic that came in through the others."""
        volumes = [regulator.volumes for regulator in self.ports.values()]
        packets = self._group_packets + sum([each.group_arrived_packets[0] for each in volumes])
        size = self._group_bytes + sum([each.group_arrived_bytes[0] for each in volumes])
        for regulator, each in zip(self.ports.values(), volumes, strict=True):
            goes_back = regulator.port.reflects
            each.others_packets = packets - (0 if goes_back else each.group_arrived_packets[0])
            each.others_bytes = size - (0 if goes_back else each.group_arrived_bytes[0])

    def _regulate(self, now: float) -> list[Change]:
        """Compute the feedback; return the updates to write."""
        self._count_group()
        law, changes, changed = self._law, list[Change](), self._all_classes
        for number, regulator in self.ports.items():
            if number in self._added:
                continue
            capacity = regulator.capacity
            looked_at = regulator.update(now)
            if regulator.capacity != capacity:
                changed = True
                if regulator.port.role == "uplink":
                    self._set_targets()
            feedback = regulator.feedback
            changes += self._changed((number, None, NOT_ECT), law.dropped(feedback))
            changes += self._changed((number, None, ECT1), law.scalable(feedback))
            changes += self._changed((number, None, ECT0), feedback)
            # Classes and flows do not change between two `flow_interval`s.
            if looked_at is not NOBODY or self._all_classes:
                for class_id in regulator.classes:
                    of_class = regulator.class_feedback.get(class_id, 0.0)
                    changes += self._changed((number, class_id, NOT_ECT), of_class)
                    changes += self._changed((number, class_id, ECT1), law.scalable(of_class))
                    changes += self._changed((number, class_id, ECT0), of_class)
            if looked_at is not NOBODY:
                # Written before the flows that may use more of their queue.
                changes += self._queue_meters(number, regulator.queue_rates())
                steps = (1, 1) if law.exact else (FLOW_STEP, SCALABLE_STEP)
                self._to_write.update(dict.fromkeys(self.flows.changed(looked_at, law, *steps)))
        if changed:
            # Meters of group traffic, by the slowest port that is known.
            capacity = slowest(regulator.capacity for regulator in self.ports.values())
            changes += self._queue_meters(GROUP_PORT, queue_rates(self._config, capacity))
        self._all_classes = False
        if self._to_write:
            turn = list(self._to_write)[:MAX_WRITTEN]
            for index in turn:
                del self._to_write[index]
            changes += self._flow_updates(turn)
        return changes

    def _step(self, key: Key, before: int) -> int:
        """Return the least change of a port's or class's feedback that is written; `before`: the written feedback."""
        if self._law.exact:
            return 1
        _, class_id, ecn = key
        if class_id is None:
            return max(1, before // PORT_STEP)
        return SCALABLE_STEP if ecn == ECT1 else FLOW_STEP

    def _changed(self, key: Key, feedback: float) -> list[Change]:
        """Return the update of a port's or class's feedback, if it changed by a step or became 0."""
        value = quantise(feedback)
        before, also = self._written.get(key, (0, 0))
        same = also == self._also(key) or (key[1] is None and value == before == 0)
        if same and abs(value - before) < self._step(key, before) and not (value == 0 and before):
            return []
        return [self._entry(key, value)]

    def _also(self, key: Key) -> int:
        """Return what an entry has in addition to its feedback."""
        port, class_id, ecn = key
        if class_id is not None:
            return int(self._config.ncr.mark_only)
        # Scalable senders keep a queue of their own short, whoever made that of the bulk.
        return self.ports[port].standing_depth if self._program.measures_lanes and ecn != ECT1 else 0

    def _entry(self, key: Key, value: int) -> Change:
        """Return the update that writes the feedback of a port, or of a class of it; the first inserts the entry."""
        update = self._entries.get(key)
        if update is None:
            entry = feedback_entry(key, self._program.measures_lanes)
            update = self._entries[key] = self._program.update(p4r.Update.INSERT, entry)
        also = self._also(key)
        update.type = p4r.Update.MODIFY if key in self._written else p4r.Update.INSERT
        params = update.entity.table_entry.action.action.params
        params[0].value = canonical(value)
        if len(params) > 1:
            params[1].value = canonical(also)
        self._written[key] = value, also
        return key, update

    def _queue_meters(self, port: int, rates: dict[int, float]) -> list[Change]:
        """Return the updates of the meters whose rate has changed by one part of `METER_STEP`."""
        changes: list[Change] = []
        for queue, rate in rates.items():
            if not rate:
                continue
            update = self._meters[port, queue]
            meter = update.entity.meter_entry.config
            if abs(rate - meter.cir) * METER_STEP > meter.cir:
                meter.cir = meter.pir = max(1, round(rate))
                meter.cburst = meter.pburst = burst(rate)
                changes.append((None, update))
        return changes

    def _flow_updates(self, indices: list[int]) -> list[Change]:
        """Return the updates that write the feedback of flows."""
        law, changes = self._law, list[Change]()
        for index in indices:
            flow = self._by_index[index]
            value, scalable = self.flows.values(index, law)
            entry = flow.change.entity.table_entry
            params = entry.action.action.params
            params[PARAM_FLOW_CLASS].value = canonical(self.flows.entry_class(index, flow.flow_class))
            params[PARAM_FEEDBACK].value = canonical(value)
            params[PARAM_SCALABLE].value = canonical(scalable)
            meter = entry.meter_config
            rate, crowded = self.flows.meter(index)
            meter.cir = meter.pir = rate
            meter.cburst = meter.pburst = SMALL_BURST if crowded else SPARSE_BURST
            changes.append((index, flow.change))
        return changes


def feedback_entry(key: Key, above: bool = False) -> Encodable:
    """Return a feedback entry; the loop puts the values in. `above`: one of a port counts from a depth on."""
    port, class_id, ecn = key
    match: dict[str, object] = {"egress_port": port, "ecn": ecn}
    if class_id is None and above:
        return table_entry("port_feedback", match, "add_port_feedback_above", feedback=0, depth=0)
    if class_id is None:
        return table_entry("port_feedback", match, "add_port_feedback", feedback=0)
    match["class_id"] = class_id
    return table_entry("class_feedback", match, "add_class_feedback", feedback=0, mark_only=0)


def percentile(ascending: Floats, part: float) -> float:
    """Return the value that such a part of the values is below; 0 without values."""
    return float(ascending[math.ceil(part * (ascending.size - 1))]) if ascending.size else 0.0
