# SPDX-License-Identifier: Apache-2.0
"""The reference: one queue behind one wire, in order of arrival, with tail drop. Pure: time is an argument, in ns.

Its limit is one packet below that of the port for which it stands: a port that sends small packets first never holds
more packets than a FIFO, but for the one that it has begun to send.
"""

from collections import deque
from collections.abc import Callable


class Fifo:
    """wire_time: of a frame, by its bytes. limit: packets that wait, without the one on the wire.

    left: when a frame had left the wire, by its number. dropped: numbers of frames that found no room. full_at: when
    a frame came and the queue had room for one more at most. busy_until: by when a port has sent all that came, and all
    that this one dropped.
    """

    def __init__(self, wire_time: Callable[[int], int], limit: int) -> None:
        self.wire_time = wire_time
        self.limit = limit - 1
        self.left: dict[int, int] = {}
        self.dropped: set[int] = set()
        self.full_at: list[int] = []
        self._queue: deque[tuple[int, int, int]] = deque()
        self.busy_until = 0
        self._free_at = 0
        self._blocked_at: int | None = None

    def arrive(self, now: int, number: int, size: int) -> None:
        """Take a frame, or drop it."""
        self.advance(now)
        self.busy_until = max(self.busy_until, now) + self.wire_time(size)
        if len(self._queue) >= self.limit - 1:
            self.full_at.append(now)
        if len(self._queue) >= self.limit:
            self.dropped.add(number)
            return
        self._queue.append((now, number, size))
        self.advance(now)

    def block(self, now: int) -> None:
        """The wire takes no further frame."""
        self.advance(now)
        if self._blocked_at is None:
            self._blocked_at = now

    def unblock(self, now: int) -> None:
        """The wire takes frames again."""
        if self._blocked_at is not None:
            if self.busy_until > self._blocked_at:
                self.busy_until += now - self._blocked_at
            self._blocked_at = None
            self._free_at = max(self._free_at, now)
            self.advance(now)

    def advance(self, now: int) -> None:
        """Send what can be begun by now."""
        while self._queue and self._blocked_at is None:
            arrived, number, size = self._queue[0]
            start = max(arrived, self._free_at)
            if start > now:
                return
            self._queue.popleft()
            self.left[number] = self._free_at = start + self.wire_time(size)
