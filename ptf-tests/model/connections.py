# SPDX-License-Identifier: Apache-2.0
"""A case on a network: runs the script's connections through an access point, and records what came and what left.

    endpoint -> fate (loss, reordering around us) -> access point: port -> endpoint
                                                  -> FIFO of that port (its frames are only recorded)

Endpoints answer what the access point under test gives them, so its input is that of real conversations. The FIFO has
the same input. The network is a driver's: a switch in virtual time, or a real one behind PTF.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

from accesspoint.ptf_tests.model.endpoint import Endpoint
from accesspoint.ptf_tests.model.fifo import Fifo
from accesspoint.ptf_tests.model.judge import Direction, Judge, Port, Sent, Violation
from accesspoint.ptf_tests.model.script import (
    CLIENT,
    FINE,
    LOST,
    MILLISECOND,
    SERVER,
    SETTLE,
    WINDOW,
    Bulk,
    Case,
    Do,
    Exchange,
    Fates,
    Flood,
    Forget,
    Learn,
    Marks,
    Open,
    Outage,
    Skip,
    Slot,
    Step,
    Write,
)
from accesspoint.ptf_tests.model.segments import Segment, Way, build_bulk, build_frame, number_of

STATIONS = (1, 2)
MICROSECOND = 1000
GAP = 10_000  # ns between two frames of an end
DELAYED_ACK = 5 * MILLISECOND
GENERATIONS = 255  # as the controller's: from 1 on
FLOOD = 30  # ms
MAX_FRAMES = 4000  # of a case; a script that makes more is cut


class Network(Protocol):
    """An access point with ports 1 to 4, which the driver owns; time in ns."""

    @property
    def now(self) -> int:
        """Time."""

    def wire_time(self, port: int) -> Callable[[int], int]:
        """Return the time of a frame on the port's wire, by its bytes."""

    def bulk_time(self, port: int) -> int:
        """Return how much later than a FIFO's a frame may leave the port: a bulk packet's time on its wire."""

    def set_flows(self, gone: list[Way], learned: list[tuple[Way, int, int]]) -> None:
        """Delete and insert flows: way, index in the case, generation."""

    def receive(self, port: int, frame: bytes) -> None:
        """Deliver a frame to a port, now."""

    def block(self, port: int) -> None:
        """Stop the port's wire: it takes no further frame."""

    def unblock(self, port: int) -> None:
        """Resume the port's wire."""

    def advance(self, to: int) -> list[tuple[int, int, bytes]]:
        """Let time pass until frames leave, at most until `to`; return (time, port, frame)."""


class Corruption(Exception):
    """A frame left that did not come, or left twice, or changed, or left through another port."""


@dataclass
class Connection:
    """Both ends, client first, and what they send."""

    slot: Slot
    ends: tuple[Endpoint, Endpoint]
    directions: tuple[Direction, Direction]
    ways: tuple[Way, Way]
    timers: list[bool] = field(default_factory=lambda: [False, False])
    last: list[int] = field(default_factory=lambda: [0, 0])
    fates: tuple[deque[int], deque[int]] = field(default_factory=lambda: (deque(), deque()))
    ended: bool = False


class Run:
    """One case on one network."""

    def __init__(self, case: Case, network: Network) -> None:
        self.case, self.network = case, network
        self.start = network.now
        self.numbers = count(1)
        self.order = count()
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.ports: dict[int, Port] = {}
        self.fifos: dict[int, Fifo] = {}
        for port in (1, 2, 3, 4):
            wire_time = network.wire_time(port)
            self.ports[port] = Port(network.bulk_time(port), wire_time)
            self.fifos[port] = Fifo(wire_time, case.limit)
        self.sent: dict[int, tuple[Sent, bytes, Connection | None, int]] = {}
        self.blocked: dict[int, int] = {}
        self.live: dict[int, Connection] = {}
        self.all: list[Connection] = []
        self.flows: dict[int, list[tuple[Way, int]]] = {}
        self.free = deque(range(case.indices))
        self.generations = [case.generation] * case.indices

    def run(self) -> Violation | None:
        """Run the script; return the first violation of a direction."""
        try:
            for step in self.case.steps:
                if len(self.sent) > MAX_FRAMES:
                    break
                self.take(step)
                if step.wait == SETTLE:
                    self.settle()
                else:
                    self.run_until(self.network.now + step.wait * MICROSECOND + 2 * GAP)
            self.settle()
            self.run_until(self.network.now + 2 * MILLISECOND)
        finally:
            for port in self.ports:
                self.network.unblock(port)
            self.network.set_flows([way for flows in self.flows.values() for way, _ in flows], [])
        for port, fifo in self.fifos.items():
            fifo.advance(fifo.idle_at(self.network.now))
            self.ports[port].full_at = fifo.full_at
            for sent in self.ports[port].sent:
                sent.fifo = fifo.left.get(sent.number)
                sent.unlimited = fifo.unlimited[sent.number]
        found = [Judge(direction).first_violation() for made in self.all for direction in made.directions]
        return min((one for one in found if one), key=lambda violation: violation.at, default=None)

    # Steps

    def take(self, step: Step) -> None:
        """Do what the step says, now."""
        slot = self.case.slots[step.slot]
        if isinstance(step, Open):
            self.open(step.slot, step.distances, step.learned)
            return
        if step.slot not in self.live:
            self.open(step.slot, (0, 0), True)
            self.settle()
        made = self.live[step.slot]
        if isinstance(step, Learn | Forget):
            self.learn(step.slot, isinstance(step, Learn))
            self.set_order(made, True)
        elif isinstance(step, Write):
            self.call(made, step.end, lambda end: end.write(step.count, step.size))
        elif isinstance(step, Exchange):
            for end in (CLIENT, SERVER):
                self.call(made, end, partial(Endpoint.write, count=step.counts[end], size=0))
        elif isinstance(step, Flood):
            self.outage(slot, Outage(step.slot, end=step.end, length=FLOOD))
            self.call(made, 1 - step.end, lambda end: end.write(step.count, step.size))
        elif isinstance(step, Do):
            self.call(made, step.end, lambda end: getattr(end, step.call)())
        elif isinstance(step, Bulk):
            self.bulk(made.ways[step.end], step.count)
        elif isinstance(step, Outage):
            self.outage(slot, step)
        elif isinstance(step, Fates):
            made.fates[step.end].extend(step.fates)
        elif isinstance(step, Marks):
            made.ends[step.end].marking = step.count
        elif isinstance(step, Skip):
            self.skip(made, step)

    def open(self, number: int, distances: tuple[int, int], learned: bool) -> None:
        """Begin a connection of the slot, in place of the one that it has."""
        slot = self.case.slots[number]
        old = self.live.get(number)
        bases = slot.bases if old is None else (old.ends[CLIENT].snd_nxt, old.ends[SERVER].snd_nxt)
        first = [base + distance for base, distance in zip(self._lifted(bases), distances, strict=True)]
        client = Endpoint(slot.options, slot.hosts[CLIENT], first[CLIENT])
        server = Endpoint(slot.options, slot.hosts[SERVER], first[SERVER])
        out = Way(slot.client, slot.server, slot.port, 80, slot.options.version)
        ways = out, out.reverse()
        names = f"host {slot.client} to host {slot.server}", f"host {slot.server} to host {slot.client}"
        opened = len(self.all) + 1
        directions = (
            Direction(f"connection {opened}, {names[0]}", self.ports[slot.server], server.iss, slot.options.ecn),
            Direction(f"connection {opened}, {names[1]}", self.ports[slot.client], client.iss, slot.options.ecn),
        )
        made = Connection(slot, (client, server), directions, ways)
        if old:
            old.ended = True
            made.last = list(old.last)  # a host sends in order, whatever the connection
            for direction in old.directions:
                direction.ended_at = self.network.now
            for direction in directions:
                direction.reused = True
        self.live[number] = made
        self.all.append(made)
        if learned or old is None:
            self.learn(number, True)
        self.set_order(made, number not in self.flows)
        self.call(made, SERVER if slot.server_opens else CLIENT, Endpoint.open)

    @staticmethod
    def _lifted(bases: tuple[int, int]) -> tuple[int, int]:
        """Lift sequence numbers far above 0; on the wire they stay the same."""
        return tuple(base + (1 << 40) if base < 1 << 39 else base for base in bases)  # type: ignore[return-value]

    def learn(self, slot: int, again: bool) -> None:
        """The slot's flows age; and are learned again, as the controller gives away indices and generations."""
        gone = self.flows.pop(slot, [])
        learned = []
        for _, index in gone:
            self.free.append(index)
        if again:
            for way in self.live[slot].ways:
                index = self.free.popleft()
                self.generations[index] = self.generations[index] % GENERATIONS + 1
                learned.append((way, index, self.generations[index]))
            self.flows[slot] = [(way, index) for way, index, _ in learned]
        self.network.set_flows([way for way, _ in gone], learned)

    def set_order(self, made: Connection, unordered: bool) -> None:
        """Hide the order of the connection's data and ACKs from the access point, from now on."""
        for direction in made.directions:
            direction.unordered |= unordered and not self.case.strict

    def call(self, made: Connection, end: int, act: Callable[[Endpoint], list[Segment]]) -> None:
        """Have an end do something, and send what it sends."""
        endpoint = made.ends[end]
        endpoint.now = (self.network.now - self.start) // MILLISECOND
        self.transmit(made, end, act(endpoint))
        if endpoint.pending and endpoint.state != "reset" and not made.timers[end]:
            made.timers[end] = True
            self.schedule(self.network.now + DELAYED_ACK, lambda: self.flush(made, end))

    def flush(self, made: Connection, end: int) -> None:
        """The timer of delayed ACKs."""
        made.timers[end] = False
        if not made.ended:
            self.call(made, end, Endpoint.flush)

    def transmit(self, made: Connection, end: int, segments: list[Segment]) -> None:
        """Send segments on their way to the access point."""
        if len(self.sent) > MAX_FRAMES:
            raise AssertionError("the ends never stop answering each other")
        for segment in segments:
            at = made.last[end] = max(self.network.now, made.last[end]) + GAP
            fate = made.fates[end].popleft() if made.fates[end] else FINE
            if fate == LOST:
                continue
            if fate != FINE:
                made.directions[end].reordered = True
                at += fate * GAP + GAP // 2
            number = next(self.numbers)
            frame = build_frame(made.ways[end], number, segment)
            sent = Sent(number, made.ways[end].target, len(frame), at, segment)
            self.schedule(at, partial(self.arrive, sent, frame, made, end))

    def bulk(self, way: Way, frames: int) -> None:
        """Somebody else's frames arrive."""
        for _ in range(frames):
            number = next(self.numbers)
            frame = build_bulk(way, number)
            self.arrive(Sent(number, way.target, len(frame), self.network.now), frame, None, 0, way.source)

    def outage(self, slot: Slot, step: Outage) -> None:
        """The wire of a port stands still."""
        number = slot.server if step.end == CLIENT else slot.client
        if step.length:
            self.fifos[number].set_blocked(self.network.now, True)
            self.blocked.setdefault(number, self.network.now)
            self.network.block(number)
            self.schedule(self.network.now + step.length * MILLISECOND, lambda: self.unblock(number))
        else:
            self.unblock(number)

    def unblock(self, port: int) -> None:
        """Resume the wire of a port."""
        self.fifos[port].set_blocked(self.network.now, False)
        if port in self.blocked:
            self.ports[port].outages.append((self.blocked.pop(port), self.network.now))
        self.network.unblock(port)

    def skip(self, made: Connection, step: Skip) -> None:
        """Advance both ends by bytes that the access point did not see."""
        self.settle()
        one, other = made.ends[step.end], made.ends[1 - step.end]
        agree = one.snd_nxt == other.rcv_nxt and other.snd_nxt == one.rcv_nxt
        if agree and one.established and other.established and not one.queue and not other.queue:
            if step.distance >= 2 * WINDOW:
                for direction in made.directions:
                    direction.unordered = True
            one.skip(step.distance, 0)
            other.skip(0, step.distance)

    # Time

    def schedule(self, at: int, act: Callable[[], None]) -> None:
        """Have something done at a time."""
        heapq.heappush(self.events, (at, next(self.order), act))

    def run_until(self, to: int) -> None:
        """Let time pass."""
        while self.network.now < to or (self.events and self.events[0][0] <= to):
            due = min(to, self.events[0][0]) if self.events else to
            for at, port, frame in self.network.advance(max(due, self.network.now)):
                self.leave(at, port, frame)
            while self.events and self.events[0][0] <= self.network.now:
                heapq.heappop(self.events)[2]()

    def settle(self) -> None:
        """Let time pass until nothing is in flight."""
        while True:
            now = self.network.now
            idle = max(fifo.idle_at(now) for fifo in self.fifos.values())
            if self.events:
                idle = max(self.events[0][0], now)
            elif idle <= now:
                return
            self.run_until(idle)

    def arrive(self, sent: Sent, frame: bytes, made: Connection | None, end: int, source: int = 0) -> None:
        """A frame comes to the access point."""
        sent.arrived = self.network.now
        self.sent[sent.number] = sent, frame, made, end
        self.ports[sent.port].sent.append(sent)
        if made:
            made.directions[end].frames.append(sent)
            source = made.ways[end].source
        self.fifos[sent.port].arrive(self.network.now, sent.number, sent.size)
        self.network.receive(source, frame)

    def leave(self, at: int, port: int, frame: bytes) -> None:
        """A frame has left the access point: its target answers."""
        sent, came, made, end = self.sent.get(number_of(frame), (None, b"", None, 0))
        if sent is None or sent.ours is not None or frame != came or port != sent.port:
            raise Corruption(f"frame at port {port} never arrived: {frame.hex()}")
        sent.ours = at
        if made and not made.ended and sent.segment:
            segment, number = sent.segment, sent.number
            self.call(made, 1 - end, lambda endpoint: endpoint.receive(number, segment))


def describe(case: Case, violation: Violation, start: int) -> str:
    """Return the script, the frames of the violated direction, and the violation, for a reader."""

    def ms(time: int | None) -> str:
        return f"{(time - start) / MILLISECOND:9.3f}" if time is not None else "        -"

    lines = [str(case), ""]
    lines += ["    number   came ms   FIFO ms   left ms"]
    for frame in sorted(violation.direction.frames, key=lambda frame: frame.arrived):
        flag = ">" if frame is violation.because else " "
        times = f"{ms(frame.arrived)} {ms(frame.fifo)} {ms(frame.ours)}"
        lines.append(f"  {flag} {frame.number:6} {times}  {frame.segment}")
    return "\n".join([*lines, f"{violation.direction.name}, at {ms(violation.at).strip()} ms: {violation.text}"])


__all__ = ["STATIONS", "Connection", "Corruption", "Network", "Run", "describe"]
