# SPDX-License-Identifier: Apache-2.0
"""Capacity of a port's link, learned from what leaves while its queue is never empty. Pure: time is an argument.

A link with a queue sends at its capacity. The queue was never empty between two readings when no more packets left in
between than were queued at the first reading; then the bytes that left are the capacity, whatever arrived.

    busy:  learned = bytes / seconds, of busy intervals alone, older ones weighing less and less
    other: what left in a window is the least that the link carries: what is known only rises by it
"""

import math

from .queue_estimate import BUSY, FULL_FRAME, WINDOW_FRAMES

MEMORY_SECONDS = 0.15
MEMORY_FRAMES = 12
"""Time constant of the average over busy intervals, at least the time of so many frames: of a step of the capacity 96 %
is learned after half a second, and a frame more or less is a twelfth of the weight."""

RISE_SECONDS = 0.1
"""Windows in which a link is seen to carry more than was thought; a reading may be some milliseconds late."""

MAX_SILENT_SECONDS = 1.0
"""Seconds in which nothing leaves that count as a part of what the link carries; one that is away for longer has no
capacity to be learned."""

DIFFERS = 1 - BUSY
"""A configured capacity is believed as long as the learned one differs by no more than this part of it."""


class Capacity:
    """The capacity of one port's link in bytes/s.

    Args:
        configured: what the operator says; 0: nothing.
    """

    def __init__(self, configured: float) -> None:
        self.configured = configured
        self.learned = 0.0
        """0: the link was not busy for long enough."""
        self._bytes = 0.0
        self._seconds = 0.0
        self._time: float | None = None
        self._sent = 0
        self._gone = 0
        self._queued = 0.0
        self._silent = 0.0
        """Seconds since something left, in which the queue was not empty."""
        self._rise_began = 0.0
        self._rise_sent = 0

    def configure(self, configured: float) -> None:
        """Take another capacity from the operator; what was learned of the former one is no objection to it."""
        if configured != self.configured:
            self.configured, self.learned = configured, 0.0
            self._bytes = self._seconds = 0.0

    @property
    def value(self) -> float:
        """Capacity to regulate by, in bytes/s; 0: unknown."""
        return self.learned if self.wrong or not self.configured else self.configured

    @property
    def wrong(self) -> bool:
        """True when the link carries clearly less or more than is configured."""
        if not self.configured or not self.learned:
            return False
        return abs(self.learned - self.configured) > DIFFERS * self.configured

    def update(self, sent: int, gone: int, queued: float, now: float) -> None:
        """Take a reading.

        Args:
            sent: bytes that have left.
            gone: packets that have left the queue, whether they were sent or not.
            queued: packets that the queue certainly holds.
            now: seconds, never going back.
        """
        then, before = self._time, self._queued
        volume, packets = sent - self._sent, gone - self._gone
        self._time, self._sent, self._gone, self._queued = now, sent, gone, queued
        if then is None or volume < 0 or packets < 0:
            self._rise_began, self._rise_sent = now, sent
            return
        self._silent += now - then
        if before <= 0 or packets > before:
            self._silent = 0.0
        elif volume > 0 and self._silent > 0:
            self._busy(volume, min(self._silent, MAX_SILENT_SECONDS))
            self._silent = 0.0
        self._rise(sent, now)

    def _busy(self, volume: int, elapsed: float) -> None:
        """Add an interval in which the queue was never empty, and the bytes sent in it."""
        if self.learned:
            kept = math.exp(-elapsed / max(MEMORY_SECONDS, MEMORY_FRAMES * FULL_FRAME / self.learned))
            self._bytes, self._seconds = self._bytes * kept, self._seconds * kept
        self._bytes += volume
        self._seconds += elapsed
        if self.learned or self._bytes >= MEMORY_FRAMES * FULL_FRAME:
            self.learned = self._bytes / self._seconds

    def _rise(self, sent: int, now: float) -> None:
        """Raise the capacity to the rate sent, its lower bound; it stays unknown for a link that was never busy."""
        elapsed, volume = now - self._rise_began, sent - self._rise_sent
        if elapsed < RISE_SECONDS or (volume < WINDOW_FRAMES * FULL_FRAME and elapsed < 10 * RISE_SECONDS):
            return
        self._rise_began, self._rise_sent = now, sent
        known = self.learned or self.configured
        if known and volume >= WINDOW_FRAMES * FULL_FRAME and BUSY * volume > known * elapsed:
            self.learned = volume / elapsed
            self._seconds = max(MEMORY_SECONDS, MEMORY_FRAMES * FULL_FRAME / self.learned)
            self._bytes = self.learned * self._seconds
