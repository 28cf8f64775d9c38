# SPDX-License-Identifier: Apache-2.0
"""Packets and bytes in a port's queue, estimated from counters alone. Pure: time is an argument.

    queue = arrived - sent - filtered - lost

All but `lost` are counted in the data plane. A packet that a full queue turns away, or that makes room there for one
that goes first, is counted as arrived and by nothing else (v1model has no counter there), so the difference alone would
grow for ever. Known facts bound the loss:

  - the queue is never negative and never above the port's queue limit;
  - packets are lost so only while the queue is full, and then no more can be missing at the end of a tick than left
    in it: that much is in *doubt* until the queue is seen empty;
  - a port that has something to send, sends at its capacity (the link is work-conserving): when it clearly did not for
    a whole window, the queue was empty at some time in it, and of what the difference showed at least, the part that is
    in doubt was lost;
  - packets that vanish in any other way show as a queue while the port's rate varies, which a busy port's does not.
    Since a link may change, too, this is believed only after `LONG` windows.
"""

import math
from collections import deque
from operator import itemgetter

FULL_FRAME = 1514
"""Bytes of the largest Ethernet frame without a checksum."""

BUSY = 0.85
"""A port that sent less than this part of its capacity was not busy all the time; well below 1, because what is taken
for the capacity may be somewhat above the real one, and a standing queue must never be taken for an empty one."""

WINDOW_SECONDS = 0.05
WINDOW_FRAMES = 20
"""The window in which that is judged: at least so long, and so long that the port could send so many frames."""

LONG_SECONDS = 0.25
MAX_LONG_SECONDS = 1.0
LONG = 8
"""Windows of at least so many seconds, longer ones for a slow link, and so many of them, in which a port is judged by
itself alone."""


class PortCounters:
    """Counters of a port since the pipeline was pushed, all classes together; gone: sent or filtered."""

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
        capacity: bytes/s, which may change; 0: not known.
        limit: packets.
    """

    def __init__(self, capacity: float, limit: int) -> None:
        self.capacity = capacity
        self.limit = limit
        self.packets = 0.0
        self.bytes = 0.0
        self.doubt = 0.0
        """Packets of these that may have been lost."""
        self.lost_packets = 0.0
        self.lost_bytes = 0.0
        self._history: deque[tuple[float, int, float]] = deque()
        self._last: PortCounters | None = None
        self._start_empty = False
        self._windows: deque[tuple[float, float, float]] = deque(maxlen=LONG)
        """Seconds, bytes/s and least queue of each of the last long windows."""
        self._long_began: float | None = None
        self._long_sent = 0
        self._long_least = 0.0

    @property
    def delay(self) -> float:
        """Seconds until the queue of now has left."""
        return self.bytes / self.capacity if self.capacity > 0 else 0.0

    def start_empty(self) -> None:
        """Take packets that are missing in the next reading as lost: nobody has watched the counters before.

        If some of them were queued, the difference goes below 0 as they leave, which is corrected then.
        """
        self._start_empty = True

    def update(self, counters: PortCounters, now: float) -> None:
        """Take a new reading; `now` in seconds, never going back."""
        last = self._last
        if last is not None and (
            counters.arrived_packets < last.arrived_packets or counters.gone_packets < last.gone_packets
        ):
            self.lost_packets = self.lost_bytes = self.doubt = 0.0
            self._forget(counters, now)
            last = None
        self._last = counters
        if self._start_empty:
            self._start_empty = False
            self.lost_packets = max(0.0, float(counters.arrived_packets - counters.gone_packets))
            self.lost_bytes = max(0.0, float(counters.arrived_bytes - counters.gone_bytes))
        if last is not None and self.packets + counters.arrived_packets - last.arrived_packets >= self.limit:
            self.doubt = max(self.doubt, float(counters.gone_packets - last.gone_packets))

        packets = counters.arrived_packets - counters.gone_packets - self.lost_packets
        size = counters.arrived_bytes - counters.gone_bytes - self.lost_bytes
        if packets <= 0 or size <= 0:
            # More was declared lost than was, or the counters were read while packets passed between them.
            if packets or size:
                self.lost_packets = max(0.0, self.lost_packets + packets)
                self.lost_bytes = max(0.0, self.lost_bytes + size)
            packets = size = self.doubt = 0.0
        elif packets > self.limit:
            packets, size = self._lose(packets - self.limit, packets, size)
        if self._was_idle(counters.sent_bytes, packets, now):
            least = min(self._history, key=itemgetter(2))[2]
            self._history.clear()
            lost = min(least, self.doubt)
            self.doubt -= lost
            packets, size = self._lose(lost, packets, size)
        lost = self._vanished(counters.sent_bytes, packets, now)
        if lost > 0:
            packets, size = self._lose(lost, packets, size)
        # The part that is taken off is rounded.
        self.packets, self.bytes = min(packets, float(self.limit)), size

    def _was_idle(self, sent: int, packets: float, now: float) -> bool:
        """Return True when the port clearly sent below its capacity over a whole window that ends now."""
        history, capacity = self._history, self.capacity
        history.append((now, sent, packets))
        window = max(WINDOW_SECONDS, WINDOW_FRAMES * FULL_FRAME / capacity) if capacity > 0 else math.inf
        while len(history) > 1 and history[1][0] <= now - window:
            history.popleft()
        start, sent_before, _ = history[0]
        elapsed = now - start
        if capacity <= 0 or not self.doubt:
            # The window is not needed any longer.
            if elapsed > window or capacity <= 0:
                history.clear()
            return False
        return elapsed >= window and sent - sent_before < BUSY * capacity * elapsed

    def _vanished(self, sent: int, packets: float, now: float) -> float:
        """Return the packets that have shown as queued for long, while the rate sent shows that there was no queue."""
        self._long_least = min(self._long_least, packets)
        if self._long_began is None:
            self._long_began, self._long_sent = now, sent
        elapsed = now - self._long_began
        few = elapsed * self.capacity < WINDOW_FRAMES * FULL_FRAME
        if elapsed < LONG_SECONDS or (few and elapsed < MAX_LONG_SECONDS):
            return 0.0
        windows = self._windows
        windows.append((elapsed, (sent - self._long_sent) / elapsed, self._long_least))
        self._long_began, self._long_sent, self._long_least = now, sent, packets
        if len(windows) < LONG:
            return 0.0
        least = min(of_window for _, _, of_window in windows)
        if least <= 0:
            return 0.0
        seconds = sum(of_window for of_window, _, _ in windows)
        mean = sum(length * rate for length, rate, _ in windows) / seconds
        if mean > BUSY * max(rate for _, rate, _ in windows):
            return 0.0
        windows.clear()
        return least

    def _forget(self, counters: PortCounters, now: float) -> None:
        """Restart after a reset of the counters."""
        self._history.clear()
        self._windows.clear()
        self._long_began, self._long_sent, self._long_least = now, counters.sent_bytes, 0.0

    def _lose(self, lost: float, packets: float, size: float) -> tuple[float, float]:
        """Declare so many of the packets that the counters show as queued lost; returns what is left."""
        part = min(1.0, lost / packets) if packets > 0 else 0.0
        self.lost_packets += packets * part
        self.lost_bytes += size * part
        return packets * (1 - part), size * (1 - part)
