# SPDX-License-Identifier: Apache-2.0
"""One access point's tick: read counters, compute feedback, write the entries whose 16-bit value changed.

    one ReadRequest:  arrived, sent, filtered of each port and class, group traffic of each port, and some of the flows'
                      counters in turn
    one WriteRequest: port_feedback, class_feedback, flows: only what changed

This runs in a process of its own (`worker`), where nothing else waits. Requests are put together from prepared bytes:
concatenated protobuf messages are one message with the repeated fields of all.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
from finsy import GRPCStatusCode
from finsy.p4client import P4RpcStatus
from finsy.proto import p4r

from .acks import burst, queue_rates, slowest
from .board import CLASSES, DURATIONS, EVERY_TICK, GROUP, LATE, MISSED, PORT, SHARES, TICKS, VOLUMES, Board
from .classes import class_ids
from .config import AccessPointConfig
from .feedback import quantise
from .flow_table import METER_STEP, SMALL_BURST, FlowTable
from .http2 import OK, UNKNOWN, Channel, ChannelError, Status, Tls
from .messages import Key, NewFlow, Session
from .program import (
    ECT0,
    ECT1,
    GROUP_PORT,
    NOT_ECT,
    PARAM_FEEDBACK,
    PARAM_FLOW_CLASS,
    PARAM_SCALABLE,
    canonical,
    class_index,
)
from .regulator import LAWS, NOBODY, PortRegulator, slowest_uplink

IDLE_INTERVAL = 0.1
"""Seconds between ticks while nothing is regulated: counters are only looked at."""

ANSWER_SECONDS = 2.0
"""A switch that takes longer for an answer is given up."""

FLOW_STEP = 256
"""A flow's or class's feedback is written when it changed by so much of 65535: on some targets each write refills the
flow's meter, and nobody can tell 0.4 % of probability from noise."""

PORT_STEP = 32
"""A port's feedback is written when it changed by one part in so many: senders answer to its square root."""

SCALABLE_STEP = 2048
"""The same for what scalable senders get of it, which moves by its root: they answer to each mark by its part."""

MOST_WRITTEN = 128
"""Flows that are written in one tick; the others wait for the next."""
AT_ONCE = 32
"""Active flows are read so many at once when there are enough: reading a few of them with every tick costs more."""
MOST_FRESH = 64
QUIET_SECONDS = 1.0
MOST_QUIET = 16
"""A flow without traffic is looked at so often, or less often when there would be more than so many in each tick."""

ENTITIES_TAG = p4r.ReadResponse.DESCRIPTOR.fields_by_name["entities"].number << 3 | 2
CELL_TAG = p4r.Entity.DESCRIPTOR.fields_by_name["counter_entry"].number << 3 | 2
DIRECT_TAG = p4r.Entity.DESCRIPTOR.fields_by_name["direct_counter_entry"].number << 3 | 2
EVERY_PORT = -1
NOTHING = b"\0"
"""No part of an answer begins so."""


class Cell:
    """A port's counter of one class, or of group traffic.

    Args:
        named: how the switch begins the counter that it answers with, when it names it as it was asked.
        packets, sizes: where its values go: one place for each class; group traffic has one in all, that of class 0.
        port: whose volumes have changed when it has; EVERY_PORT: those of all.
    """

    __slots__ = ("class_id", "named", "packets", "port", "sizes")

    def __init__(self, named: bytes, packets: memoryview, sizes: memoryview, class_id: int, port: int) -> None:
        self.named = named
        self.packets, self.sizes = packets, sizes
        self.class_id, self.port = class_id, port


class Ended(Exception):
    """The session cannot go on; the text is one line."""


class Ticker:
    """The ticks of one access point in one session."""

    def __init__(self, config: AccessPointConfig, session: Session, board: Board, now: float) -> None:
        self.config = config
        self.session = session
        self.due = now
        self.busy = False
        self.began = now
        self.released = False
        self._releasing = False
        self._taken_back = False
        self._writing = 0
        self._board = board
        self._flows = FlowTable(board.flows)
        self._by_index: dict[int, NewFlow] = {}
        self._fresh: deque[NewFlow] = deque()
        self._turn: deque[NewFlow] = deque()
        self._quiet: deque[NewFlow] = deque()
        self._turn_credit = self._quiet_credit = 0.0
        self._asked: dict[tuple[bytes, ...], NewFlow] = {}
        self._in_turn: Iterator[NewFlow] = iter(())
        """The same flows, from the one that is likely to be answered next."""
        self._answered: list[tuple[NewFlow, int, int]] = []
        """Of those, the flows that were read: packets and bytes."""
        self._tick = 0
        self._left = 0
        """Entities that this tick still waits for."""
        self._cell = 0
        self._seen: list[bytes] = []
        """The next cell of this answer, and all of the last one's: what is the same needs no decoding."""
        self._counted: set[int] = set()
        """Ports whose volumes have changed in this tick."""
        self._all_classes = True
        self._to_write: dict[int, None] = {}
        self._written = dict(session.written)
        self._meters = {key: p4r.WriteRequest.FromString(update) for key, update in session.meters.items()}
        """The last update of each port's and queue's meter."""
        self._forms: dict[tuple[Key, bool, bool, int], tuple[bytes, bytes]] = {}
        """What stands before and behind the value of such an update: key, whether the entry is there, whether it only
        marks, octets of the value."""
        self.regulators = [
            PortRegulator(config, port, self._flows, [], counts, group)
            for port, counts, group in zip(config.ports, board.volumes, board.groups, strict=True)
        ]
        self._by_port = {regulator.port.port: regulator for regulator in self.regulators}
        self._set_targets()
        self._resume()
        self._set_cells()
        self._set_interval()
        tls = Tls(config.tls.ca, config.tls.cert, config.tls.key, config.tls.server_name) if config.tls else None
        self.channel = Channel(session.family, session.address, session.authority, tls)
        self._read = self.channel.method("/p4.v1.P4Runtime/Read")
        self._write = self.channel.method("/p4.v1.P4Runtime/Write")
        write = p4r.WriteRequest(device_id=session.device_id)
        write.election_id.high, write.election_id.low = divmod(session.election_id, 1 << 64)
        self._write_prefix = write.SerializeToString()

    def _resume(self) -> None:
        """Where an earlier controller left off."""
        for number, regulator in self._by_port.items():
            of_classes = {
                class_id: self._written[number, class_id, ECT0][0] / 65535
                for class_id in range(CLASSES)
                if (number, class_id, ECT0) in self._written
            }
            value, _ = self._written.get((number, None, ECT0), (0, False))
            regulator.resume(value / 65535, of_classes)

    def configure(self, config: AccessPointConfig) -> None:
        """Parameters have changed; the ports are the same."""
        self.config = config
        for regulator in self.regulators:
            regulator.configure(config)
        self._set_cells()
        self._set_interval()
        self._all_classes = True

    def _set_targets(self) -> None:
        for regulator in self.regulators:
            regulator.ack_capacity = slowest_uplink(self.regulators, regulator)
            regulator.aim()

    def _set_interval(self) -> None:
        self.interval = self.config.ncr.device_interval if self.config.features.ncr else IDLE_INTERVAL
        """Seconds between two ticks."""

    def _set_cells(self) -> None:
        """The cells of every port and class in use. What left is read first: read between the two, a packet then
        shows as queued, never as a negative queue."""
        classes = class_ids(self.config)
        self._cells: list[Cell] = []
        self._places: dict[tuple[int, int], Cell] = {}
        """The same cells, by counter and index."""
        request = p4r.ReadRequest(device_id=self.session.device_id)
        arrived, sent = GROUP
        for name in (sent, *reversed(VOLUMES), arrived):
            counter = self.session.counters[name]
            for regulator in self.regulators:
                volumes, port = regulator.volumes, regulator.port.port
                of_packets, of_bytes = getattr(volumes, f"{name}_packets"), getattr(volumes, f"{name}_bytes")
                for class_id in (0,) if name in GROUP else classes:
                    index = port if name in GROUP else class_index(port, class_id)
                    asked = request.entities.add().counter_entry
                    asked.counter_id, asked.index.index = counter, index
                    of_port = EVERY_PORT if name == arrived else port
                    cell = Cell(asked.SerializeToString(), of_packets, of_bytes, class_id, of_port)
                    self._cells.append(cell)
                    self._places[counter, index] = cell
        for regulator in self.regulators:
            regulator.use(classes)
        self._counted = {EVERY_PORT}
        self._asks_cells = request.SerializeToString()
        self._seen = [NOTHING] * len(self._cells)

    def add(self, flow: NewFlow) -> None:
        """From now on read and regulate this flow."""
        self._flows.add(flow.index, flow.kind)
        self._by_index[flow.index] = flow
        self._fresh.append(flow)

    def change(self, flow: NewFlow) -> None:
        """A flow asks for another class; its entry was written with what `kind` says."""
        old = self._by_index.get(flow.index)
        if old is not None and old.key == flow.key:
            self._by_index[flow.index] = flow
            self._fresh.append(flow)
            self._flows.set_class(flow.index, flow.kind.own_class)
            # The tick may just have written the old class: once more.
            self._to_write[flow.index] = None

    def remove(self, indices: Iterable[int]) -> None:
        """These flows are gone."""
        for index in indices:
            if self._by_index.pop(index, None) is not None:
                self._flows.active[index] = False
                self._to_write.pop(index, None)
                for regulator in self.regulators:
                    regulator.active.pop(index, None)

    def begin(self, now: float) -> None:
        """Start the tick that is due; raises `Ended`."""
        interval, delay = self.interval, now - self.due
        missed = int(delay / interval)
        counts = self._board.counts
        counts[TICKS] += 1
        counts[LATE] += delay > interval / 2
        counts[MISSED] += missed
        self.due += (missed + 1) * interval
        self.busy, self.began = True, now
        flows = self._next_flows()
        self._asked, self._in_turn = {flow.key: flow for flow in flows}, iter(flows)
        self._answered = []
        self._tick, self._cell, self._left = self._tick + 1, 0, len(self._cells) + len(self._asked)
        request = b"".join([self._asks_cells, *[flow.reading for flow in flows]])
        try:
            self.channel.call(
                self._read, request, partial(self._have_read, self._tick), partial(self._have_some, self._tick)
            )
        except ChannelError as error:
            raise Ended(str(error)) from None

    def check(self, now: float) -> None:
        """Raises `Ended` when the switch does not answer."""
        if self.busy and now - self.began > ANSWER_SECONDS:
            raise Ended(f"no answer within {ANSWER_SECONDS:g} s")

    def release(self) -> None:
        """Tick no more, and take all feedback back: nobody would ever lower it again. `released` says when."""
        self._releasing, self.due = True, math.inf
        if not self.busy:
            self._end()

    def _take_back(self) -> None:
        updates = [self._entry(key, 0) for key, (value, _) in self._written.items() if value]
        of_flows = [index for index in self._by_index if self._flows.written[index]]
        self._flows.stop(np.array(of_flows, np.int64))
        updates += self._flow_updates(of_flows)
        self._taken_back = True
        self._finish(updates)

    def _next_flows(self) -> list[NewFlow]:
        """The flows whose turn it is: active ones every `flow_interval`, spread evenly over the ticks."""
        chosen = self._next_of(self._fresh, MOST_FRESH) if self._fresh else []
        active, quiet = len(self._turn), len(self._quiet)
        if active:
            credit = self._turn_credit + active * self.interval / self.config.ncr.flow_interval
            self._turn_credit = min(active, credit)
            if self._turn_credit >= min(active, AT_ONCE) - 1e-6:
                count = math.ceil(self._turn_credit - 1e-6)
                self._turn_credit = 0.0
                chosen += self._next_of(self._turn, count)
        if quiet:
            self._quiet_credit = min(MOST_QUIET, self._quiet_credit + quiet * self.interval / QUIET_SECONDS)
            if self._quiet_credit >= min(quiet, MOST_QUIET / 2):
                count = int(self._quiet_credit)
                self._quiet_credit -= count
                chosen += self._next_of(self._quiet, count)
        return chosen

    def _next_of(self, source: deque[NewFlow], count: int) -> list[NewFlow]:
        turn = [source.popleft() for _ in range(min(count, len(source)))]
        return [flow for flow in turn if self._by_index.get(flow.index) is flow]

    def _have_some(self, tick: int, message: bytes) -> None:
        """A part of the answer to a tick's Read; with the last one the tick goes on, without waiting for the status."""
        if tick != self._tick or not self._left:
            return
        at, size = 0, len(message)
        while at < size and self._left:
            at = self._skip_same(message, at)
            if at == size:
                break
            if message[at] != ENTITIES_TAG:
                # Whatever else there is, protobuf knows.
                found = p4r.ReadResponse.FromString(message[at:])
                message, at = p4r.ReadResponse(entities=found.entities).SerializeToString(), 0
                size = len(message)
                continue
            start, end = within(message, at + 1)
            if not self._take_next(message, at, start, end):
                self._take_any(message[at:end], p4r.Entity.FromString(message[start:end]))
            at = end
            self._left -= 1
        if not self._left:
            self._go_on()

    def _skip_same(self, message: bytes, at: int) -> int:
        """Pass over the next cells as long as they are as they were; returns where that ends."""
        cell = self._cell
        for seen in self._seen[cell:]:
            if not message.startswith(seen, at):
                break
            at += len(seen)
            cell += 1
        self._left -= cell - self._cell
        self._cell = cell
        return at

    def _take_next(self, message: bytes, at: int, start: int, end: int) -> bool:
        """The cell or the counter of the flow whose turn it is, if that is what the answer goes on with."""
        if start == end:
            return False
        kind = message[start]
        start, _ = within(message, start + 1)
        # What follows the name is a message of the same type.
        if kind == CELL_TAG and self._cell < len(self._cells):
            cell = self._cells[self._cell]
            if not message.startswith(cell.named, start):
                return False
            entry = p4r.CounterEntry.FromString(message[start + len(cell.named) : end])
            self._count_cell(cell, message[at:end], entry.data)
            return True
        flow = next(self._in_turn, None) if kind == DIRECT_TAG else None
        if flow is None or not message.startswith(flow.named, start):
            return False
        del self._asked[flow.key]
        self._count(flow, p4r.DirectCounterEntry.FromString(message[start + len(flow.named) : end]).data)
        return True

    def _take_any(self, encoded: bytes, entity: p4r.Entity) -> None:
        """Any cell, or the counter of any flow."""
        if entity.HasField("counter_entry"):
            entry = entity.counter_entry
            # It may have been asked for before the classes changed.
            self._count_cell(self._places.get((entry.counter_id, entry.index.index)), encoded, entry.data)
            return
        reading = entity.direct_counter_entry
        flow = self._asked.pop(tuple([field.exact.value for field in reading.table_entry.match]), None)
        if flow is not None:
            self._count(flow, reading.data)
            # Flows before it are gone; the answer goes on with the one behind it.
            next((True for other in self._in_turn if other is flow), None)

    def _count_cell(self, cell: Cell | None, encoded: bytes, data: p4r.CounterData) -> None:
        """The next cell of the answer."""
        if self._cell < len(self._seen):
            self._seen[self._cell] = encoded
        self._cell += 1
        if cell is not None:
            self._counted.add(cell.port)
            cell.packets[cell.class_id], cell.sizes[cell.class_id] = data.packet_count, data.byte_count

    def _count(self, flow: NewFlow, data: p4r.CounterData) -> None:
        """A flow's counter, unless it was removed meanwhile."""
        if self._by_index.get(flow.index) is flow:
            self._answered.append((flow, data.packet_count, data.byte_count))

    def _have_read(self, tick: int, status: Status, _: list[bytes]) -> None:
        """The end of the answer to a tick's Read."""
        # A flow of this request may have been removed while it was on its way; the next tick asks without it.
        if status.code != OK and not not_found_only(status):
            raise Ended(explain(status))
        if tick == self._tick and self._left:
            self._left = 0
            self._go_on()

    def _go_on(self) -> None:
        """All has been read that there is."""
        now = time.monotonic()
        self._quiet.extend(self._asked.values())
        if self._answered:
            self._take(now)
        self._finish(self._regulate(now))

    def _take(self, now: float) -> None:
        """New readings of flows' counters."""
        flows = [flow for flow, _, _ in self._answered]
        at = np.array([flow.index for flow in flows], np.int64)
        packets = np.array([count for _, count, _ in self._answered], np.int64)
        sizes = np.array([size for _, _, size in self._answered], np.int64)
        table = self._flows
        ncr = self.config.ncr
        table.take(at, packets, sizes, now, LAWS[ncr.law].averaging(ncr.smoothing_ms / 1000))
        idle = table.rates.idle(at, now)
        for flow, is_idle in zip(flows, idle.tolist(), strict=True):
            if is_idle:
                self._quiet.append(flow)
                continue
            self._turn.append(flow)
            regulator = self._by_port.get(flow.kind.egress_port)
            if regulator is not None:
                regulator.active[flow.index] = None
                table.active[flow.index] = True

    def _count_group(self) -> None:
        """Tell each port of the group traffic that came in through the others."""
        packets = sum([regulator.volumes.group_arrived_packets[0] for regulator in self.regulators])
        size = sum([regulator.volumes.group_arrived_bytes[0] for regulator in self.regulators])
        for regulator in self.regulators:
            volumes, goes_back = regulator.volumes, regulator.port.reflects
            volumes.others_packets = packets - (0 if goes_back else volumes.group_arrived_packets[0])
            volumes.others_bytes = size - (0 if goes_back else volumes.group_arrived_bytes[0])
        self._counted.update(self._by_port)

    def _regulate(self, now: float) -> list[bytes]:
        """Compute, and show what comes of it; returns the parts of a WriteRequest."""
        if EVERY_PORT in self._counted:
            self._count_group()
        updates: list[bytes] = []
        memory, changed = self._board.memory, self._all_classes
        for (number, regulator), offset in zip(self._by_port.items(), self._board.port_offsets, strict=True):
            capacity = regulator.capacity
            looked_at = regulator.update(now, number in self._counted)
            if regulator.capacity != capacity:
                changed = True
                if regulator.port.role == "uplink":
                    self._set_targets()
            feedback, estimate = regulator.feedback, regulator.estimate
            EVERY_TICK.pack_into(
                memory, offset, feedback, estimate.packets, estimate.bytes, regulator.target, regulator.capacity,
                regulator.link.learned, len(regulator.active),
            )  # fmt: skip
            law = LAWS[self.config.ncr.law]
            if feedback or self._written.get((number, None, ECT0), (0, False))[0]:
                updates += self._changed((number, None, NOT_ECT), law.dropped(feedback))
                updates += self._changed((number, None, ECT1), law.scalable(feedback))
                updates += self._changed((number, None, ECT0), feedback)
            # Of classes and flows nothing is new between two `flow_interval`s.
            if looked_at is not NOBODY or self._all_classes:
                for class_id in regulator.classes:
                    of_class = regulator.class_feedback.get(class_id, 0.0)
                    updates += self._changed((number, class_id, NOT_ECT), of_class)
                    updates += self._changed((number, class_id, ECT1), law.scalable(of_class))
                    updates += self._changed((number, class_id, ECT0), of_class)
            if looked_at is not NOBODY:
                # Before the flows that may take more of their queue.
                updates += self._queue_meters(number, regulator.queue_rates())
                steps = (1, 1) if law.exact else (FLOW_STEP, SCALABLE_STEP)
                self._to_write.update(dict.fromkeys(self._flows.changed(looked_at, law, *steps)))
                of_classes = [regulator.class_feedback.get(class_id, math.nan) for class_id in range(CLASSES)]
                SHARES.pack_into(
                    memory, offset + PORT.itemsize - SHARES.size, regulator.largest_flow_feedback,
                    *of_classes, *regulator.class_rates, *regulator.class_desired,
                )  # fmt: skip
        if changed:
            updates += self._group_meters()
        self._counted.clear()
        self._all_classes = False
        if self._to_write:
            turn = list(self._to_write)[:MOST_WRITTEN]
            for index in turn:
                del self._to_write[index]
            updates += self._flow_updates(turn)
        return updates

    def _step(self, key: Key, before: int) -> int:
        """What the feedback of a port or class has to change by to be written; `before`: what is."""
        if LAWS[self.config.ncr.law].exact:
            return 1
        _, class_id, ecn = key
        if class_id is None:
            return max(1, before // PORT_STEP)
        return SCALABLE_STEP if ecn == ECT1 else FLOW_STEP

    def _changed(self, key: Key, feedback: float) -> list[bytes]:
        """The update of a port's or class's feedback, if it changed by a step or became 0."""
        value = quantise(feedback)
        before, marking_only = self._written.get(key, (0, None))
        step = self._step(key, before)
        mark_only = key[1] is not None and self.config.ncr.mark_only
        same = mark_only == bool(marking_only)
        if same and abs(value - before) < step and not (value == 0 and before):
            return []
        return [self._entry(key, value)]

    def _entry(self, key: Key, value: int) -> bytes:
        """The update that writes the feedback of a port, or of one of its classes; the first one inserts the entry."""
        mark_only = key[1] is not None and self.config.ncr.mark_only
        octets = canonical(value)
        form = key, key in self._written, mark_only, len(octets)
        if form not in self._forms:
            low, high = (self._encoded(*form[:3], fill * len(octets)) for fill in (b"\x00", b"\xff"))
            start = next(place for place, (one, other) in enumerate(zip(low, high, strict=True)) if one != other)
            self._forms[form] = low[:start], low[start + len(octets) :]
        self._written[key] = value, mark_only
        head, tail = self._forms[form]
        return head + octets + tail

    def _encoded(self, key: Key, there: bool, mark_only: bool, octets: bytes) -> bytes:
        request = p4r.WriteRequest.FromString(self.session.updates[key])
        update = request.updates[0]
        update.type = p4r.Update.MODIFY if there else p4r.Update.INSERT
        params = update.entity.table_entry.action.action.params
        params[0].value = octets
        if key[1] is not None:
            params[1].value = canonical(int(mark_only))
        return request.SerializeToString()

    def _queue_meters(self, port: int, rates: dict[int, float]) -> list[bytes]:
        """The updates of the meters whose rate has changed by one part of `METER_STEP`."""
        updates = []
        for queue, rate in rates.items():
            if not rate:
                continue
            request = self._meters[port, queue]
            meter = request.updates[0].entity.meter_entry.config
            if abs(rate - meter.cir) * METER_STEP > meter.cir:
                meter.cir = meter.pir = max(1, round(rate))
                meter.cburst = meter.pburst = burst(rate)
                updates.append(request.SerializeToString())
        return updates

    def _group_meters(self) -> list[bytes]:
        """Those of group traffic, by the slowest port that is known."""
        capacity = slowest(regulator.capacity for regulator in self.regulators)
        return self._queue_meters(GROUP_PORT, queue_rates(self.config.queue_shares, capacity))

    def _flow_updates(self, indices: list[int]) -> list[bytes]:
        """The updates that write the feedback of flows."""
        if not indices:
            return []
        law = LAWS[self.config.ncr.law]
        request = p4r.WriteRequest.FromString(b"".join([self._by_index[index].change for index in indices]))
        for update, index in zip(request.updates, indices, strict=True):
            value, scalable = self._flows.values(index, law)
            entry = update.entity.table_entry
            params = entry.action.action.params
            params[PARAM_FLOW_CLASS].value = canonical(self._flows.asks(index))
            params[PARAM_FEEDBACK].value = canonical(value)
            params[PARAM_SCALABLE].value = canonical(scalable)
            meter = entry.meter_config
            rate, crowded = self._flows.meter(index)
            meter.cir = meter.pir = rate
            if crowded:
                meter.cburst = meter.pburst = SMALL_BURST
        return [request.SerializeToString()]

    def _finish(self, updates: list[bytes]) -> None:
        """Write what there is to write; with that the tick ends."""
        if updates:
            self._writing += 1
            self.channel.call(self._write, self._write_prefix + b"".join(updates), self._have_written)
        self._end()

    def _have_written(self, status: Status, _: list[bytes]) -> None:
        """The answer to a tick's Write."""
        if status.code != OK and not not_found_only(status):
            raise Ended(explain(status))
        self._writing -= 1
        if self._releasing:
            self._end()

    def _end(self) -> None:
        self.busy = self._releasing and self._writing > 0
        if self.busy:
            return
        if not self._releasing:
            self._board.durations[(self._board.counts[TICKS] - 1) % DURATIONS] = time.monotonic() - self.began
        elif self._taken_back:
            self.released = True
        else:
            self._take_back()


def within(message: bytes, at: int) -> tuple[int, int]:
    """Where a field begins and ends, from the place of its length (protobuf's varint)."""
    length = message[at]
    if length < 128:
        return at + 1, at + 1 + length
    length = shift = 0
    while message[at] > 127:
        length |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
    at += 1
    return at, at + (length | message[at - 1] << shift)


def not_found_only(status: Status) -> bool:
    """Whether all that went wrong is that something is not there any more."""
    if status.code == GRPCStatusCode.NOT_FOUND:
        return True
    if status.code != UNKNOWN or not status.details:
        return False
    details = P4RpcStatus.from_bytes(status.details).details
    return bool(details) and all(part.canonical_code == GRPCStatusCode.NOT_FOUND for part in details.values())


def explain(status: Status) -> str:
    """One line for a failed call."""
    parts = [status.message]
    if status.details:
        found = P4RpcStatus.from_bytes(status.details).details
        parts += [f"part {index}: {part.message}" for index, part in list(found.items())[:3]]
    return f"{GRPCStatusCode(status.code).name}: {'; '.join(' '.join(part.split()) for part in parts if part)}"
