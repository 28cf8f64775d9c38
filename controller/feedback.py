# SPDX-License-Identifier: Apache-2.0
"""NCR: the feedback that the access point computes. Pure: samples and time in, probabilities out.

Source: "Protecting Download Traffic from Upload Traffic over Asymmetric Wireless Links" (2018), sections 3.1 and 3.2.
The feedback of a packet is the sum of a flow term (3.2.1), a class term (3.2.2) and a device term (3.2.3), each within
[0, limit]; the data plane adds them, saturating at 1.

Where the paper leaves a choice, or its choice did not hold on a real link:

- **Terms are squared.** What the equations of the paper give is called the *pressure* x of a term; its feedback is x^2.
  The window of Reno and of CUBIC in its Reno region goes with 1/sqrt(feedback), so a controller that is linear in x
  has the same loop gain with one sender as with fifty (RFC 9332, appendix A: PI squared).
- **The queue is a delay.** q* is `queue_target_ms` at the port's capacity, but at least `queue_target_packets`
  frames: at 1 Mb/s a frame takes 12 ms, and a queue of less than a few frames leaves the link idle.
- **ACKs come in bursts.** Even an ACK that goes first waits for the frame on the wire, up to 24 ms at 0.5 Mb/s, and
  what it clocks out then comes at once. A station's queue that is shorter than this (`ACK_GAPS` frames of the slowest
  uplink) runs empty in between: at 7/0.5 Mb/s 15 ms carry 0.947 of the download beside an upload, 30 ms
  0.994; at 3.5/1 Mb/s 15 ms 0.978, 24 ms 0.991.
- **kappa2 = 0.03.** With gamma 0.05, kappa1 1 and q* 15 ms these are about the gains of RFC 9332 (alpha 0.16, beta 3.2
  at 16 ms). In the seeded simulation one CUBIC download over 20 Mb/s and 90 ms uses 0.985 of the link; with the paper's
  1.0 and linear feedback 0.946. At 4 ms there is no difference.
- **Demand.** Desired volumes are weighted max-min shares. A TCP sender shows no demand beyond what it gets, so an
  elastic flow is taken to ask for `PROBE` more than what arrives of it; below its share it then gains, above it loses.
  ACKs and sparse flows are not held back by feedback, so what arrives of them is all that they ask for.
- **A share only matters when there is a queue to share.** Flow and class pressure grows only while the queue holds half
  its target. Otherwise a sender that asks for little would keep the others from the rest of the link.
"""

import math

import numpy as np
import numpy.typing as npt

from .config import Ncr
from .queue_estimate import FULL_FRAME

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64] | slice
"""Which places of an array are meant."""

PROBE = 0.1
"""How much more than what arrives an elastic flow is taken to ask for."""

IDLE_SECONDS = 1.0
"""After so long without traffic a term starts anew: its error belongs to a busy period (3.2.1) that is over."""

EMPTY_SECONDS = 0.95
"""Time constant of forgetting while the queue stays empty (RFC 8033, section 4.2: 1/64 every 15 ms)."""

ACK_GAPS = 2.0
"""A queue lasts this many times as long as a full frame keeps an ACK waiting."""

MOST_ERROR = 1.0
"""Limit of (q - q*) / q* in the sum of errors, which is never below -1: the sum rises no faster than it can fall.
Without it the overshoot of one slow start over 90 ms holds the sender down for seconds."""


def max_min_shares(capacity: float, demands: Floats, weights: Floats) -> Floats:
    """Weighted max-min shares: what each gets of `capacity` when nobody gets more than it demands.

    Who demands less than its part by weight gets all of it, and the rest is shared by weight among the others. The
    shares add up to min(capacity, sum of demands). Units are those of `capacity`; weights are above 0.
    """
    if not demands.size:
        return demands
    # By what each would need per weight: up to some place everybody gets its demand, behind it all get one level.
    order = np.argsort(demands / weights)
    asked, weight = demands[order], weights[order]
    left = max(0.0, capacity) - (np.cumsum(asked) - asked)
    levels = left / np.cumsum(weight[::-1])[::-1]
    short = asked > levels * weight
    if not short.any():
        return demands.copy()
    level = max(0.0, levels[short.argmax()])
    return np.minimum(demands, level * weights)


def desired_volumes(capacity: float, demands: Floats, weights: Floats) -> Floats:
    """D of equations (10) and (18): max-min shares, and what nobody demands is given out by weight on top."""
    shares = max_min_shares(capacity, demands, weights)
    if not shares.size:
        return shares
    spare = max(0.0, capacity - float(shares.sum()))
    return shares + spare * weights / weights.sum()


class Rates:
    """Smoothed rates of many cumulative counters, each read at times of its own.

    Args:
        size: how many.
        value: the rates per second; an array to keep them in, or None for a new one.
        moved: when each counter moved last, in seconds; the same.
    """

    def __init__(self, size: int, value: Floats | None = None, moved: Floats | None = None) -> None:
        self.value = np.zeros(size) if value is None else value
        self._known = np.zeros(size, bool)
        self._moved = np.zeros(size) if moved is None else moved
        self._volume = np.zeros(size)
        self._time = np.zeros(size)

    def forget(self, at: Places | int) -> None:
        """The next reading starts anew."""
        self._known[at] = False
        self.value[at] = 0.0

    def update(self, at: Places, volumes: Floats, now: float, tau: float) -> None:
        """Take readings of cumulative volumes; a counter that fell starts anew.

        Args:
            at: the places that were read, each at most once.
            now: seconds, never going back.
            tau: time constant in seconds.
        """
        before, elapsed = self._volume[at], now - self._time[at]
        anew = ~self._known[at] | (volumes < before)
        read = anew | (elapsed > 0)
        rates = (volumes - before) / np.where(elapsed > 0, elapsed, 1.0)
        value = self.value[at]
        smoothed = value + (rates - value) * -np.expm1(-elapsed / tau)
        self.value[at] = np.where(anew, 0.0, np.where(read, smoothed, value))
        self._moved[at] = np.where(anew | (read & (volumes > before)), now, self._moved[at])
        self._volume[at] = np.where(read, volumes, before)
        self._time[at] = np.where(read, now, self._time[at])
        self._known[at] = True

    def idle(self, at: Places, now: float) -> npt.NDArray[np.bool_]:
        """Which of the counters have stood still for `IDLE_SECONDS`, or were never read."""
        return ~self._known[at] | (now - self._moved[at] > IDLE_SECONDS)


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
            self.value += (rate - self.value) * -float(np.expm1(-elapsed / tau))
            if volume > before:
                self._moved = now
        else:
            return
        self._volume, self._time = volume, now

    def idle(self, now: float) -> bool:
        """As `Rates.idle`."""
        return not self._known or now - self._moved > IDLE_SECONDS


def share_terms(
    pressure: Floats,
    elapsed: float,
    capacity: float,
    rates: Floats,
    weights: Floats,
    elastic: Floats,
    *,
    gain: float,
    interval: float,
    limit: float,
    busy: bool,
) -> tuple[Floats, Floats]:
    """The flow terms, or the class terms, of one port (3.2.1, 3.2.2); all arrays have one place for each.

    x_i(n) = x_i(n-1) + gain * (M_i(n) - D_i(n)) / (C * T_n), within [0, sqrt(limit)], where M and D are volumes since
    the last update. The sum over a busy period is the paper's cumulative form; the limits keep it from winding up.
    The feedback is the square of the pressure.

    Args:
        pressure: x(n-1); 0 for who was idle.
        elapsed: seconds since the last update.
        capacity: C in bytes/s; 0 means that nothing is known to be shared, and there is no feedback.
        rates: what arrives of each in bytes/s.
        weights: what each is worth, above 0.
        elastic: which part of each would take more.
        gain: alpha or beta.
        interval: T_n in seconds.
        limit: the largest feedback.
        busy: whether the port has a queue to share.

    Returns:
        The new pressure, and D in bytes/s.
    """
    if capacity <= 0 or not rates.size:
        return np.zeros_like(rates), np.zeros_like(rates)
    # Flows are counted as they arrive: that is their demand. What left of it is at most the capacity.
    left = min(1.0, capacity / max(float(rates.sum()), 1e-9))
    desired = desired_volumes(capacity, rates * (1 + PROBE * elastic), weights)
    error = (rates * left - desired) / capacity
    if not busy:
        error = np.minimum(error, 0.0)
    # What `np.clip` does, without its detour through Python.
    return np.minimum(np.maximum(pressure + gain * error * (elapsed / interval), 0.0), math.sqrt(limit)), desired


def share_terms_of_few(
    pressure: list[float],
    elapsed: float,
    capacity: float,
    rates: list[float],
    weights: list[float],
    elastic: list[float],
    *,
    gain: float,
    interval: float,
    limit: float,
    busy: bool,
) -> tuple[list[float], list[float]]:
    """`share_terms` in plain numbers: for a few it takes a tenth of the time. The same numbers to the last bit, as
    long as there are fewer than eight, which numpy adds up in this order, too."""
    if capacity <= 0 or not rates:
        return [0.0] * len(rates), [0.0] * len(rates)
    left = min(1.0, capacity / max(sum(rates), 1e-9))
    demands = [rate * (1 + PROBE * part) for rate, part in zip(rates, elastic, strict=True)]
    # As in `max_min_shares` and `desired_volumes`.
    order = sorted(range(len(demands)), key=lambda number: demands[number] / weights[number])
    heavier, sums = 0.0, []
    for number in reversed(order):
        heavier += weights[number]
        sums.append(heavier)
    shares, asked = demands, 0.0
    for number, weight in zip(order, reversed(sums), strict=True):
        asked += demands[number]
        level = (capacity - (asked - demands[number])) / weight
        if demands[number] > level * weights[number]:
            level = max(0.0, level)
            shares = [min(demand, level * weight) for demand, weight in zip(demands, weights, strict=True)]
            break
    spare, together = max(0.0, capacity - sum(shares)), sum(weights)
    desired = [share + spare * weight / together for share, weight in zip(shares, weights, strict=True)]
    most, terms = math.sqrt(limit), []
    for before, rate, wanted in zip(pressure, rates, desired, strict=True):
        error = (rate * left - wanted) / capacity
        if not busy:
            error = min(error, 0.0)
        terms.append(min(most, max(0.0, before + gain * error * (elapsed / interval))))
    return terms, desired


class DeviceTerm:
    """The device term of one port (3.2.3, equation 28): a proportional-integral controller on the queue.

    x(m) = gamma * [ q(m) - q(m-1) + kappa1 * (q(m) - q*) + kappa2 * sum (q - q*) ] / q*

    The sum is kept in units of x, within [0, sqrt(limit)], and does not grow while x is at its limit.
    """

    def __init__(self) -> None:
        self.sum = 0.0
        self.pressure = 0.0
        self._queue = 0.0
        self._time: float | None = None
        self._last_queued = -math.inf

    def update(self, now: float, queue: float, target: float, parameters: Ncr, *, arriving: bool) -> float:
        """The feedback of the port.

        Args:
            queue: q in bytes.
            target: q* in bytes, above 0.
            arriving: whether anything entered the queue since the last update.
        """
        elapsed = 0.0 if self._time is None else max(0.0, now - self._time)
        grown = queue - self._queue
        was_empty = self._queue <= 0
        self._time, self._queue = now, queue
        if queue > 0 or arriving:
            self._last_queued = now
        if elapsed == 0.0:
            return self.pressure * self.pressure
        if now - self._last_queued > IDLE_SECONDS:
            self.sum = self.pressure = 0.0
            return 0.0
        steps = elapsed / parameters.device_interval
        error = (queue - target) / target
        limit = math.sqrt(parameters.device_limit)
        if queue <= 0 and was_empty:
            self.sum *= math.exp(-elapsed / EMPTY_SECONDS)
        direct = parameters.gamma * (grown / steps / target + parameters.kappa1 * error)
        if error < 0 or self.sum + direct < limit:
            self.sum += parameters.gamma * parameters.kappa2 * min(error, MOST_ERROR) * steps
            self.sum = min(limit, max(0.0, self.sum))
        self.pressure = min(limit, max(0.0, self.sum + direct))
        return self.pressure * self.pressure


def queue_target(capacity: float, parameters: Ncr, ack_capacity: float = math.inf) -> float:
    """q* in bytes of a port with `capacity` bytes/s; the ACKs of what it sends return over `ack_capacity` bytes/s."""
    delay = max(parameters.queue_target_ms / 1000, ACK_GAPS * FULL_FRAME / ack_capacity)
    return max(capacity * delay, parameters.queue_target_packets * FULL_FRAME)


def quantise(feedback: float) -> int:
    """A probability as the data plane's 16 bits: 0 never, 65535 always."""
    return min(65535, max(0, round(feedback * 65535)))
