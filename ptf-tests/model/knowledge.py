# SPDX-License-Identifier: Apache-2.0
"""Knowledge of one end about its peer, from the segments that were given to it.

    segment -> acceptable?  (RFC 5961, 5.2: not too old an acknowledgment; RFC 7323, 5.3: not too old a timestamp)
            -> newest acknowledgment, send window (RFC 9293, 3.10.7.4: SND.WL1, SND.WL2), duplicate ACKs (RFC 5681, 2),
               SACK (RFC 2018), DSACK (RFC 2883), ECE (RFC 3168, RFC 8257), the ACE counter (RFC 9768)

One such object belongs to the modelled end, and the judge has two more: what a FIFO gave, and what this program gave.
"""

from copy import copy, deepcopy

from accesspoint.ptf_tests.model.frames import ACK, FIN, RST, SYN
from accesspoint.ptf_tests.model.segments import ECE, Segment

ACE = 8  # values of the counter


class Knowledge:
    """The facts that a sender has of its receiver; `iss`: the initial number of the end that knows."""

    def __init__(self, iss: int) -> None:
        self.una = iss
        self.window = 0
        self.wl1 = self.wl2 = -1
        self.window_from = -1
        self.max_window = 0
        self.duplicates: list[int] = []
        self.sacked: list[tuple[int, int]] = []
        self.dsacks: set[int] = set()
        self.given: set[int] = set()
        self.ts_recent: int | None = None
        self.rcv_nxt: int | None = None
        self.beyond: list[tuple[int, int]] = []
        self.episodes: set[int] = set()
        self.marks = 0
        self.marked_bytes = 0

    def copy(self) -> "Knowledge":
        """Return an independent copy."""
        made = copy(self)
        for name in ("duplicates", "sacked", "dsacks", "given", "beyond", "episodes"):
            setattr(made, name, deepcopy(getattr(self, name)))
        return made

    def is_acceptable(self, segment: Segment) -> bool:
        """Return whether the end accepts the segment."""
        if segment.flags & ACK and segment.ack < self.una - self.max_window:
            return False
        if segment.flags & (SYN | RST) or not segment.ts or self.ts_recent is None:
            return True
        return segment.ts[0] >= self.ts_recent

    def receive(self, number: int, segment: Segment) -> bool:
        """Learn from a segment, whose frame has this number; return whether it was acceptable."""
        self.given.add(number)
        if not self.is_acceptable(segment):
            return False
        if segment.flags & RST or (segment.flags & SYN and self.rcv_nxt is not None):
            return True  # a repeated SYN says nothing (RFC 9293, 3.10.7.4)
        self._learn_ts(segment)
        if segment.flags & SYN:
            self.rcv_nxt = segment.seq + 1
        elif segment.length or segment.flags & FIN:
            self._learn_data(segment)
        if segment.flags & ACK:
            self._learn_ack(number, segment)
        elif segment.flags & SYN:
            self._set_window(number, segment)
        return True

    def _learn_ts(self, segment: Segment) -> None:
        at_or_before = self.rcv_nxt is None or segment.seq <= self.rcv_nxt
        if segment.ts and at_or_before and (self.ts_recent is None or segment.ts[0] >= self.ts_recent):
            self.ts_recent = segment.ts[0]

    def _learn_data(self, segment: Segment) -> None:
        if self.rcv_nxt is None or segment.end <= self.rcv_nxt:
            return
        self.beyond.append((segment.seq, segment.end))
        self.beyond.sort()
        while self.beyond and self.beyond[0][0] <= self.rcv_nxt:
            self.rcv_nxt = max(self.rcv_nxt, self.beyond.pop(0)[1])

    def _learn_ack(self, number: int, segment: Segment) -> None:
        if segment.sack:
            if segment.dsack:
                self.dsacks.add(number)
            self.sacked = merge([*self.sacked, *(segment.sack[1:] if segment.dsack else segment.sack)])
        if segment.flags & ECE and not segment.accurate:
            self.episodes.add(segment.episode)
        if segment.ack < self.una:
            return
        if segment.accurate and segment.marks > self.marks:
            self.marks += (segment.marks - self.marks) % ACE
        if segment.ack > self.una:
            if segment.flags & ECE and not segment.accurate:
                self.marked_bytes += segment.ack - self.una
            self.una = segment.ack
            self.duplicates.clear()
        elif segment.pure_ack and not segment.flags & SYN and segment.window == self.window:
            self.duplicates.append(number)
        if self.wl1 < segment.seq or (self.wl1 == segment.seq and self.wl2 <= segment.ack):
            self._set_window(number, segment)

    def _set_window(self, number: int, segment: Segment) -> None:
        self.window, self.window_from = segment.window, number
        self.wl1, self.wl2 = segment.seq, segment.ack
        self.max_window = max(self.max_window, segment.window)


def merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges of numbers into ranges that do not touch."""
    made: list[tuple[int, int]] = []
    for one, other in sorted(ranges):
        if made and one <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], other)
        else:
            made.append((one, other))
    return made


def covers(ranges: list[tuple[int, int]], one: int, other: int) -> bool:
    """Return whether all numbers from `one` up to `other` are within merged ranges."""
    return one >= other or any(low <= one and other <= high for low, high in ranges)
