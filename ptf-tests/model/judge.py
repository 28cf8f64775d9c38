# SPDX-License-Identifier: Apache-2.0
"""The property: each end knows as much, as early, as a FIFO in place of this program would have let it know.

At every moment each end has been given the newest acknowledgment, window, duplicate ACKs, SACK and DSACK blocks and ECN
echo that a FIFO with the same arrivals, rate and limit would have given it a bulk packet's time before. In detail:

  bulk packet   the time of a full frame on the port's wire, as one may be there when an ACK arrives
  other ACKs    pure ACKs that arrived later and were sent first add their own time: they are what priority is for, and
                the newer ACK in whose favour an older one was filtered has them before it. So does the time of what the
                FIFO had no room for, if this program sends it
  duplicates    min(3, those of the FIFO) of the very frames that the FIFO's receiver counts (RFC 5681), unless the
                acknowledgment has moved on
  window        by SND.WL1 and SND.WL2 (RFC 9293); one of a newer segment counts as newest
  ECN           each episode of ECE is told at least once (RFC 3168); the bytes that DCTCP attributes to marks, and the
                CE packets that ACE counts, are those of the FIFO. Only of an end that sends no data: pure ACKs go
                before data by intention. DCTCP's bytes only where the network around us keeps the order, and the
                FIFO drops no ACK
  data          no data, SYN, FIN or RST that FIFO delivers is lost, late or, once there, discarded (RFC 5961, 5.2;
                RFC 7323, 5.3), when FIFO's receiver would take it. In a full port bulk makes room for ACKs: segments
                that were lost while the FIFO had room for one more packet at most, at a time when they need not have
                left yet, are not counted against a program. Nor are ACKs that must not overtake their connection's own
                data, as that says so much less than they that its receiver would discard it: they wait with the bulk

Accepted limits: a port holds 64 packets or more, as those of all targets do; a filter may rely on it. Discarded data
counts only where the access point could know the order: not of a connection that was without an entry in the flow
table, or changed it (with `--strict` it counts), and not after numbers moved by 2^31 or more unseen.

Not a defect: ACKs are thinned (at most 15 in a row), and what is told early is no concern.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from accesspoint.ptf_tests.model.endpoint import ACCURATE, CLASSIC, DCTCP
from accesspoint.ptf_tests.model.frames import SYN
from accesspoint.ptf_tests.model.knowledge import Knowledge, covers
from accesspoint.ptf_tests.model.segments import Segment

DUPLICATES = 3  # RFC 5681, 3.2


@dataclass(slots=True)
class Sent:
    """A frame that came to the port's queue. fifo, ours: when it had left the port, or None.

    unlimited: when it had left a FIFO without a limit.
    """

    number: int
    port: int
    size: int
    arrived: int
    segment: Segment | None = None
    fifo: int | None = None
    ours: int | None = None
    unlimited: int = 0

    @property
    def goes_first(self) -> bool:
        """Return whether the frame is a pure ACK."""
        return self.segment is not None and self.segment.pure_ack


@dataclass
class Port:
    """All that came to a port, in order of arrival. bulk_time, wire_time: of a full frame, and by bytes.

    outages: when the wire stood still, from and to.
    """

    bulk_time: int
    wire_time: Callable[[int], int]
    sent: list[Sent] = field(default_factory=list)
    full_at: list[int] = field(default_factory=list)
    outages: list[tuple[int, int]] = field(default_factory=list)

    def later(self, time: int, added: int) -> int:
        """Return a time that is later by what the wire needs for something, outages not counted."""
        end = time + added
        for one, other in self.outages:
            if one <= end and other > time:
                end += other - max(one, time)
        return end

    def departures(self) -> list[Sent]:
        """Return what left, in the order in which it left."""
        return sorted((frame for frame in self.sent if frame.ours is not None), key=lambda frame: frame.ours or 0)


@dataclass
class Direction:
    """The segments of one end of a connection on their way through a port.

    iss: the receiving end's initial number. reordered: the network around us did not keep their order. reused: the
    5-tuple has had a connection before. unordered: see above. ended_at: when its next connection began; from then on
    nobody wants to know.
    """

    name: str
    port: Port
    iss: int
    ecn: int
    frames: list[Sent] = field(default_factory=list)
    reordered: bool = False
    reused: bool = False
    unordered: bool = False
    ended_at: int | None = None


@dataclass(frozen=True)
class Violation:
    """A moment at which the property does not hold."""

    direction: Direction
    at: int
    because: Sent
    text: str

    @property
    def kind(self) -> str:
        """Name what differs from violations of another cause, as far as can be seen from outside."""
        words = [self.text.partition(":")[0].partition("#")[0]]
        words += ["reused"] if self.direction.reused else []
        words += ["full"] if self.direction.port.full_at else []
        return ", ".join(words)


class Judge:
    """Compares what a FIFO and this program gave to one end."""

    def __init__(self, direction: Direction) -> None:
        self.direction = direction
        sends_data = any(frame.segment and frame.segment.length for frame in direction.frames)
        self.ecn = direction.ecn if not sends_data else 0
        syns = (frame.segment for frame in direction.frames if frame.segment and frame.segment.flags & SYN)
        self.first_window = next((segment.window for segment in syns), 0)
        self.dropped = any(frame.fifo is None for frame in direction.frames)

    def first_violation(self) -> Violation | None:
        """Return the first moment at which the property does not hold."""
        twin, ours = Knowledge(self.direction.iss), Knowledge(self.direction.iss)
        given = sorted((frame for frame in self.direction.frames if frame.ours is not None), key=lambda f: f.ours or 0)
        owed = sorted((frame for frame in self.direction.frames if frame.fifo is not None), key=lambda f: f.fifo or 0)
        refused: dict[int, Sent] = {}
        position, deadline = 0, 0
        taken: set[int] = set()
        for frame in owed:
            assert frame.segment is not None and frame.fifo is not None
            if self._made_room(frame):
                continue
            if twin.receive(frame.number, frame.segment):
                taken.add(frame.number)
            deadline = max(deadline, self.direction.port.later(frame.fifo, self.direction.port.bulk_time))
            if self.direction.ended_at is not None and deadline > self.direction.ended_at:
                return None
            position = self._give(ours, given, position, deadline, refused)
            fault = self._fault(twin, ours, frame, taken, refused)
            if fault:
                deadline = self._extend(frame, deadline)
                if self.direction.ended_at is not None and deadline > self.direction.ended_at:
                    return None
                position = self._give(ours, given, position, deadline, refused)
                fault = self._fault(twin, ours, frame, taken, refused)
            if fault:
                return Violation(self.direction, deadline, frame, fault)
        return None

    @staticmethod
    def _give(ours: Knowledge, given: list[Sent], position: int, until: int, refused: dict[int, Sent]) -> int:
        """Give this program's receiver all that left by then."""
        while position < len(given) and (given[position].ours or 0) <= until:
            frame = given[position]
            assert frame.segment is not None
            news = ours.rcv_nxt is None or frame.segment.end > ours.rcv_nxt
            if not ours.receive(frame.number, frame.segment) and not frame.segment.pure_ack and news:
                refused[frame.number] = frame
            position += 1
        return position

    def _made_room(self, frame: Sent) -> bool:
        """Return whether a segment was pushed out of a full port."""
        if frame.ours is not None or (frame.goes_first and not self._must_wait(frame)):
            return False
        at = bisect_left(self.direction.port.full_at, frame.arrived)
        full = self.direction.port.full_at
        return at < len(full) and full[at] <= self._extend(frame, frame.fifo or 0)

    def _must_wait(self, frame: Sent) -> bool:
        """Return whether own data waited when an ACK came that is more than its window ahead (RFC 5961, 5.2)."""
        assert frame.segment is not None
        segment, window = frame.segment, max(frame.segment.window, self.first_window)
        return any(
            not other.goes_first
            and other.segment is not None
            and segment.ack - other.segment.ack > window
            and (other.ours is None or other.ours > frame.arrived)
            for other in self.direction.frames
            if other.arrived < frame.arrived
        )

    def _extend(self, frame: Sent, deadline: int) -> int:
        """Return the deadline of a FIFO that drops nothing, later by the time that other ACKs took."""
        port = self.direction.port
        deadline = max(deadline, port.later(frame.unlimited, port.bulk_time))
        added, moved = 0, deadline
        for other in port.departures():
            if other.ours is None or other.ours > moved:
                break
            later_ack = other.goes_first and (other.arrived, other.number) > (frame.arrived, frame.number)
            if later_ack and other.ours > frame.arrived:
                added += port.wire_time(other.size)
                moved = port.later(deadline, added)
        return moved

    def _fault(self, twin: Knowledge, ours: Knowledge, frame: Sent, taken: set[int], refused: dict[int, Sent]) -> str:
        """Name what is missing; empty if nothing is."""
        start = self.direction.iss
        segment = frame.segment
        assert segment is not None
        if not segment.pure_ack and frame.number not in ours.given:
            return "the segment was lost" if frame.ours is None else "the segment came too late"
        for number in () if self.direction.unordered else refused.keys() & taken:
            return f"segment #{number} was discarded for its old number: {refused[number].segment}"
        if ours.una < twin.una:
            return f"newest acknowledgment: +{ours.una - start} in place of +{twin.una - start}"
        place, owed = (ours.wl1, ours.wl2), (twin.wl1, twin.wl2)
        if ours.window != twin.window and (place < owed or (place == owed and ours.window_from < twin.window_from)):
            return f"newest window: {ours.window} in place of {twin.window}"
        if ours.una == twin.una:
            have = sum(number in ours.given for number in twin.duplicates)
            if have < min(DUPLICATES, len(twin.duplicates)):
                return f"duplicate ACKs of +{ours.una - start}: {have} in place of {len(twin.duplicates)}"
        for one, other in twin.sacked:
            if not covers(ours.sacked, max(one, ours.una), other):
                return f"SACK of +{one - start} to +{other - start}"
        if twin.dsacks - ours.given:
            return f"DSACK of #{min(twin.dsacks - ours.given)}"
        return self._ecn_fault(twin, ours)

    def _ecn_fault(self, twin: Knowledge, ours: Knowledge) -> str:
        """Name what is missing of ECN."""
        if self.ecn == CLASSIC and twin.episodes - ours.episodes:
            return "ECE of an episode"
        same = ours.una == twin.una and not self.direction.reordered and not self.dropped
        if self.ecn == DCTCP and same and ours.marked_bytes != twin.marked_bytes:
            return f"bytes with ECE: {ours.marked_bytes} in place of {twin.marked_bytes}"
        if self.ecn == ACCURATE and ours.marks < twin.marks:
            return f"CE packets by ACE: {ours.marks} in place of {twin.marks}"
        return ""
