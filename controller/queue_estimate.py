# SPDX-License-Identifier: Apache-2.0
"""How much a port's queue holds, from counters alone. Pure: time is an argument.

    queue = arrived - sent - filtered - lost

All but `lost` are counted in the data plane. A packet that a full queue turns away is counted as arrived and by nothing
else (v1model has no counter there), so the difference alone would grow for ever. What is known anyway:

  - the queue is never negative and never above the port's queue limit;
  - a port that has something to send, sends at its capacity (the link is work-conserving): when it clearly did not for
    a whole window, the queue was empty at some time in it, and what the difference showed at least was lost.
"""

import math
from collections import deque
from operator import itemgetter

FULL_FRAME = 1514
"""Bytes of the largest Ethernet frame without a checksum."""

BUSY = 0.85
"""A port that sent less than this part of its capacity was not busy all the time; well below 1, because the configured
capacity may be somewhat above the real one, and a standing queue must never be taken for an empty one."""

WINDOW_SECONDS = 0.05
WINDOW_FRAMES = 20
"""The window in which that is judged: at least so long, and so long that the port could send so many frames."""


class PortCounters:
    """What a port has counted since the pipeline was pushed, all classes together; gone: sent or filtered."""

    __slots__ = ("arrived_bytes", "arrived_packets", "gone_bytes", "gone_packets", "sent_bytes")

    def __init__(
        self, arrived_packets: int, arrived_bytes: int, gone_packets: int, gone_bytes: int, sent_bytes: int
    ) -> None:
        self.arrived_packets, self.arrived_bytes = arrived_packets, arrived_bytes
        self.gone_packets, self.gone_bytes = gone_packets, gone_bytes
        self.sent_bytes = sent_bytes


class QueueEstimate:
    """The queue of one port.

    Args:
        capacity: bytes/s.
        limit: packets.
    """

    def __init__(self, capacity: float, limit: int) -> None:
        self.capacity = capacity
        self.limit = limit
        self.packets = 0.0
        self.bytes = 0.0
        self.lost_packets = 0.0
        self.lost_bytes = 0.0
        self._window = max(WINDOW_SECONDS, WINDOW_FRAMES * FULL_FRAME / capacity) if capacity > 0 else math.inf
        self._history: deque[tuple[float, int, float, float]] = deque()
        self._last: PortCounters | None = None
        self._start_empty = False

    @property
    def delay(self) -> float:
        """Seconds until the queue of now has left."""
        return self.bytes / self.capacity if self.capacity > 0 else 0.0

    def start_empty(self) -> None:
        """The counters have a history that nobody has watched: whatever is missing in the next reading was lost. When
        some of it was queued, the difference goes below 0 as that leaves, which is mended then."""
        self._start_empty = True

    def update(self, counters: PortCounters, now: float) -> None:
        """Take a new reading; `now` in seconds, never going back."""
        last = self._last
        if last is not None and (
            counters.arrived_packets < last.arrived_packets or counters.gone_packets < last.gone_packets
        ):
            self.lost_packets = self.lost_bytes = 0.0
            self._history.clear()
        self._last = counters
        if self._start_empty:
            self._start_empty = False
            self.lost_packets = max(0.0, float(counters.arrived_packets - counters.gone_packets))
            self.lost_bytes = max(0.0, float(counters.arrived_bytes - counters.gone_bytes))

        packets = counters.arrived_packets - counters.gone_packets - self.lost_packets
        size = counters.arrived_bytes - counters.gone_bytes - self.lost_bytes
        if packets <= 0 or size <= 0:
            # More was declared lost than was, or the counters were read while packets passed between them.
            if packets or size:
                self.lost_packets = max(0.0, self.lost_packets + packets)
                self.lost_bytes = max(0.0, self.lost_bytes + size)
            packets = size = 0.0
        elif packets > self.limit:
            self._lose((packets - self.limit) / packets, packets, size)
            size *= self.limit / packets
            packets = float(self.limit)
        history, sent = self._history, counters.sent_bytes
        history.append((now, sent, packets, size))
        while len(history) > 1 and history[1][0] <= now - self._window:
            history.popleft()
        start, sent_before, _, _ = history[0]
        elapsed = now - start
        if elapsed >= self._window and sent - sent_before < BUSY * self.capacity * elapsed:
            # The port clearly sent below its capacity over a whole window that ends now.
            least = min(history, key=itemgetter(2))
            if least[2] > 0:
                part = min(1.0, least[2] / packets) if packets > 0 else 0.0
                self._lose(part, packets, size)
                packets, size = packets * (1 - part), size * (1 - part)
            history.clear()
            history.append((now, sent, packets, size))
        self.packets, self.bytes = packets, size

    def _lose(self, part: float, packets: float, size: float) -> None:
        """Declare a part of what the counters show as queued lost."""
        self.lost_packets += packets * part
        self.lost_bytes += size * part
