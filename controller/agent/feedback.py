# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of a law of feedback: measured rates, and probabilities as 16 bits. Pure."""

import numpy as np
import numpy.typing as npt

from ..law.base import IDLE_SECONDS
from ..law.shares import Floats

Places = npt.NDArray[np.int64] | slice
"""Indices into an array."""


def _new_part(elapsed: Floats, tau: float) -> Floats:
    """Return the weight of the last `elapsed` seconds in an average; 1 without an average (`tau` 0)."""
    return np.ones_like(elapsed) if tau == 0 else -np.expm1(-elapsed / tau)


class Rates:
    """Smoothed rates of so many cumulative counters, each read at times of its own."""

    def __init__(self, size: int) -> None:
        self.value = np.zeros(size)
        """Per second."""
        self.moved = np.zeros(size)
        """Time at which each counter last changed, in seconds."""
        self._known = np.zeros(size, bool)
        self._volume = np.zeros(size)
        self._time = np.zeros(size)
        self._asked = np.zeros(size)

    def forget(self, at: Places | int, now: float) -> None:
        """Forget the earlier readings of these counters."""
        self._known[at] = False
        self.value[at], self.moved[at] = 0.0, now

    def update(self, at: Places, volumes: Floats, now: float, tau: float) -> None:
        """Take readings of cumulative volumes; a counter that fell restarts.

        Args:
            at: the places that were read, each at most once.
            now: seconds, never going back.
            tau: time constant in seconds; 0 for what the last reading alone says.
        """
        before, elapsed = self._volume[at], now - self._time[at]
        anew = ~self._known[at] | (volumes < before)
        read = anew | (elapsed > 0)
        rates = (volumes - before) / np.where(elapsed > 0, elapsed, 1.0)
        value = self.value[at]
        smoothed = value + (rates - value) * _new_part(elapsed, tau)
        self.value[at] = np.where(anew, 0.0, np.where(read, smoothed, value))
        self.moved[at] = np.where(anew | (read & (volumes > before)), now, self.moved[at])
        self._volume[at] = np.where(read, volumes, before)
        self._time[at] = np.where(read, now, self._time[at])
        self._asked[at] = now
        self._known[at] = True

    def miss(self, at: Places, now: float) -> None:
        """Note that these counters were asked for, and that the switch has none of them."""
        self._asked[at] = now

    def still(self, at: Places) -> Floats:
        """Return the seconds for which each counter had stood still when it was last asked for; at most 0: it moved."""
        return self._asked[at] - self.moved[at]

    def idle(self, at: Places, now: float) -> npt.NDArray[np.bool_]:
        """Return True for each counter that has stood still for `IDLE_SECONDS`, or was never read."""
        return ~self._known[at] | (now - self.moved[at] > IDLE_SECONDS)


class Rate:
    """One of `Rates`, in plain numbers: for a few counters that is quicker than arrays."""

    __slots__ = ("_known", "_moved", "_time", "_volume", "value")

    def __init__(self) -> None:
        self.value = self._moved = self._volume = self._time = 0.0
        self._known = False

    def update(self, volume: float, now: float, tau: float) -> None:
        """As `Rates.update`."""
        before, elapsed = self._volume, now - self._time
        if not self._known or volume < before:
            self.value, self._moved, self._known = 0.0, now, True
        elif elapsed > 0:
            rate = (volume - before) / elapsed
            # The same function as for arrays, to the last bit.
            self.value += (rate - self.value) * (1.0 if tau == 0 else -float(np.expm1(-elapsed / tau)))
            if volume > before:
                self._moved = now
        else:
            return
        self._volume, self._time = volume, now

    def idle(self, now: float) -> bool:
        """As `Rates.idle`."""
        return not self._known or now - self._moved > IDLE_SECONDS


def quantise(feedback: float) -> int:
    """Return a probability as the data plane's 16 bits: 0 never, 65535 always."""
    return min(65535, max(0, round(feedback * 65535)))
