# SPDX-License-Identifier: Apache-2.0
"""CAKE at a rate that follows the link: the rule and the defaults of cake-autorate, as its defaults.sh has them.

https://github.com/lynxthecat/cake-autorate. A shaper is lowered while pings wait longer than they did, and raised while
it is full and they do not; else it goes back to its base rate. Two things are better for it than on a router: pings go
to each end of the path, so each direction has delays of its own; and limits are those of the link's own trace.
"""

import re
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from accesspoint.topologies.links.traces import FRAME_BITS, Trace

PINGERS, PING_SECONDS = 6, 0.3
"""no_pingers, reflector_ping_interval_s: an answer every 50 ms, with a baseline for each pinger."""
ADJUST_UP, DELAYED, ADJUST_DOWN = 10.0, 30.0, 60.0
"""ms above the baseline: avg_owd_delta_max_adjust_up_thr, owd_delta_delay_thr, avg_owd_delta_max_adjust_down_thr."""
BASELINE_UP, BASELINE_DOWN = 0.001, 0.9
"""alpha_baseline_increase, alpha_baseline_decrease."""
WINDOW, MIN_DELAYED = 6, 3
"""bufferbloat_detection_window, bufferbloat_detection_thr."""
FULL = 0.75
"""high_load_thr."""
MIN_CUT, MAX_CUT = 0.99, 0.75
"""shaper_rate_min_adjust_down_bufferbloat, shaper_rate_max_adjust_down_bufferbloat."""
MIN_RISE, MAX_RISE = 1.0, 1.04
"""shaper_rate_min_adjust_up_load_high, shaper_rate_max_adjust_up_load_high."""
IDLE_DOWN, IDLE_UP = 0.99, 1.01
"""shaper_rate_adjust_down_load_low, shaper_rate_adjust_up_load_low."""
AFTER_DELAY, AFTER_DECAY = 0.3, 1.0
"""Seconds: bufferbloat_refractory_period_ms, decay_refractory_period_ms."""
RATE_SECONDS = 0.2
"""monitor_achieved_rates_interval_ms."""


@dataclass(frozen=True)
class Limits:
    """Lowest, base and highest rate of a shaper, bit/s."""

    least: int
    base: int
    most: int

    @classmethod
    def of(cls, trace: Trace) -> "Limits":
        """Return the limits that a user would find for this link: the lowest and the highest rate of one second of ten,
        and the mean."""
        counts = [0] * max(1, int(trace.seconds))
        for at in trace.times:
            counts[min(at // 1000, len(counts) - 1)] += FRAME_BITS
        counts.sort()
        return cls(max(1, counts[len(counts) // 10]), round(trace.rate), counts[-1 - len(counts) // 10])


@dataclass
class Shaper:
    """The rate of one direction, bit/s: in `rate`."""

    limits: Limits
    rate: float = 0.0
    _achieved: float = 0.0
    _fresh: bool = False
    _baselines: list[float] = field(default_factory=list)
    _deltas: deque[float] = field(default_factory=lambda: deque([0.0] * WINDOW, WINDOW))
    _delayed: deque[bool] = field(default_factory=lambda: deque([False] * WINDOW, WINDOW))
    _answers: int = 0
    _last_delay: float = 0.0
    _last_decay: float = 0.0

    def __post_init__(self) -> None:
        self.rate = float(self.limits.base)

    def carried(self, rate: float) -> None:
        """Take what the direction has carried since the last call, bit/s."""
        self._achieved, self._fresh = rate, True

    def answered(self, now: float, rtt: float) -> None:
        """Take the round trip (ms) of an answer at `now` (s), and adjust the rate."""
        pinger = self._answers % PINGERS
        self._answers += 1
        if pinger == len(self._baselines):
            self._baselines.append(rtt)
        before = self._baselines[pinger]
        self._baselines[pinger] = before + (BASELINE_UP if rtt >= before else BASELINE_DOWN) * (rtt - before)
        frame = 1e3 * FRAME_BITS / self.rate  # at low rates a frame on the wire is no queue
        self._deltas.append(rtt - self._baselines[pinger])
        self._delayed.append(self._deltas[-1] > DELAYED + frame)
        average = sum(self._deltas) / WINDOW
        if sum(self._delayed) >= MIN_DELAYED:
            if now > self._last_delay + AFTER_DELAY:
                part = (average - DELAYED - frame) / (ADJUST_DOWN - DELAYED)
                self.rate *= MIN_CUT + _within(part) * (MAX_CUT - MIN_CUT)
                self._last_delay = self._last_decay = now
        elif self._achieved > FULL * self.rate:
            if self._fresh and now > self._last_delay + AFTER_DELAY:
                part = (DELAYED + frame - average) / (DELAYED - ADJUST_UP)
                self.rate *= MIN_RISE + _within(part) * (MAX_RISE - MIN_RISE)
                self._fresh, self._last_decay = False, now
        elif now > self._last_decay + AFTER_DECAY:
            base = self.limits.base
            self.rate = max(base, self.rate * IDLE_DOWN) if self.rate > base else min(base, self.rate * IDLE_UP)
            self._last_decay = now
        self.rate = min(self.limits.most, max(self.limits.least, self.rate))


def _within(part: float) -> float:
    return min(1.0, max(0.0, part))


class Autorate:
    """Adjusts CAKE at an interface's egress to the link behind it, by pings to an address behind that, until closed."""

    def __init__(self, interface: str, address: str, limits: Limits) -> None:
        self._interface, self._shaper = interface, Shaper(limits)
        self._sent = Path(f"/sys/class/net/{interface}/statistics/tx_bytes")
        self._over = threading.Event()
        words = ["ping", "-n", "-i", f"{PING_SECONDS / PINGERS:g}", address]
        self._ping = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._hear, self._count)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the pings; the shaper keeps its rate."""
        self._over.set()
        self._ping.terminate()
        self._ping.wait()
        for thread in self._threads:
            thread.join()

    @property
    def running(self) -> bool:
        """Return whether the pings still run, and their answers still set the rate."""
        return self._ping.poll() is None and all(thread.is_alive() for thread in self._threads)

    def _hear(self) -> None:
        assert self._ping.stdout
        for line in self._ping.stdout:
            if found := re.search(r" time=([\d.]+) ms", line):
                before = round(self._shaper.rate)
                self._shaper.answered(time.time(), float(found[1]))
                if round(self._shaper.rate) != before and not self._over.is_set():
                    self._set(round(self._shaper.rate))

    def _count(self) -> None:
        """Read what the interface has sent; at low rates over ten frames at least."""
        last, began = int(self._sent.read_text()), time.time()
        while not self._over.wait(max(RATE_SECONDS, 10 * FRAME_BITS / self._shaper.rate)):
            sent, now = int(self._sent.read_text()), time.time()
            self._shaper.carried(8 * (sent - last) / (now - began))
            last, began = sent, now

    def _set(self, rate: int) -> None:
        words = ["tc", "qdisc", "change", "dev", self._interface, "root", "cake", "bandwidth", f"{rate}bit"]
        subprocess.run(words, check=True, capture_output=True)
