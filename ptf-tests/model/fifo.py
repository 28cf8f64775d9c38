# SPDX-License-Identifier: Apache-2.0
"""The reference: one queue behind one wire, in order of arrival, with tail drop. Pure: time is an argument, in ns.

It has room where every port has that serves as much: a frame is dropped when a FIFO without a limit would hold as many
packets as the limit, less one. A port that sends small packets first, or has drops of its own, never holds more packets
than that one, but for the packet that it has begun to send.
"""

from collections import deque
from collections.abc import Callable


class Wire:
    """A queue without a limit, and the wire behind it. left: when a frame had left the wire, by its number."""

    def __init__(self, wire_time: Callable[[int], int]) -> None:
        self.wire_time = wire_time
        self.left: dict[int, int] = {}
        self._queue: deque[tuple[int, int, int]] = deque()
        self._free_at = 0
        self._last = 0
        self._blocked_at: int | None = None

    def __len__(self) -> int:
        """Packets that wait, without the one on the wire."""
        return len(self._queue)

    def arrive(self, now: int, number: int, size: int) -> None:
        """Take a frame."""
        self._queue.append((now, number, size))
        self.advance(now)

    def set_blocked(self, now: int, blocked: bool) -> None:
        """Stop or resume the wire. The frame on it waits, too: so nobody does less by then than this one."""
        self.advance(now)
        if blocked and self._blocked_at is None:
            self._blocked_at = now
        elif not blocked and self._blocked_at is not None:
            if self._free_at > self._blocked_at:
                self._free_at += now - self._blocked_at
                self.left[self._last] = self._free_at
            else:
                self._free_at = max(self._free_at, now)
            self._blocked_at = None
            self.advance(now)

    def advance(self, now: int) -> None:
        """Send what can be begun by now."""
        while self._queue and self._blocked_at is None:
            arrived, number, size = self._queue[0]
            start = max(arrived, self._free_at)
            if start > now:
                return
            self._queue.popleft()
            self._last = number
            self.left[number] = self._free_at = start + self.wire_time(size)

    def idle_at(self, now: int) -> int:
        """Return by when it has sent everything, if it is not blocked."""
        if not self._queue:
            return max(self._free_at, now)
        return max(self._queue[0][0], self._free_at) + sum(self.wire_time(size) for _, _, size in self._queue)


class Fifo:
    """A wire with a limit, in packets that wait.

    dropped: numbers of frames that found no room. full_at: when a frame came and there was room for one more at most.
    """

    def __init__(self, wire_time: Callable[[int], int], limit: int) -> None:
        self.limit = limit - 1
        self.dropped: set[int] = set()
        self.full_at: list[int] = []
        self._sends = Wire(wire_time)
        self._unlimited = Wire(wire_time)

    @property
    def unlimited(self) -> dict[int, int]:
        """Return when a frame had left the wire of a FIFO without a limit, by its number."""
        return self._unlimited.left

    @property
    def left(self) -> dict[int, int]:
        """Return when a frame had left the wire, by its number."""
        return self._sends.left

    def arrive(self, now: int, number: int, size: int) -> None:
        """Take a frame, or drop it."""
        self.advance(now)
        waiting = len(self._unlimited)
        self._unlimited.arrive(now, number, size)
        if waiting >= self.limit - 1:
            self.full_at.append(now)
        if waiting >= self.limit:
            self.dropped.add(number)
        else:
            self._sends.arrive(now, number, size)

    def set_blocked(self, now: int, blocked: bool) -> None:
        """The wire takes no further frame, or takes frames again."""
        self._sends.set_blocked(now, blocked)
        self._unlimited.set_blocked(now, blocked)

    def advance(self, now: int) -> None:
        """Send what can be begun by now."""
        self._sends.advance(now)
        self._unlimited.advance(now)

    def idle_at(self, now: int) -> int:
        """Return by when a port has sent all that came, and all that this one dropped, if it is not blocked."""
        return self._unlimited.idle_at(now)
