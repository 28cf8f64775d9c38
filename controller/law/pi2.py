# SPDX-License-Identifier: Apache-2.0
"""PI squared: the terms of the paper, where its choices did not hold on a real link.

- **Terms are squared.** What the equations of the paper give is called the *pressure* x of a term; its feedback is x^2.
  The window of Reno and of CUBIC in its Reno region goes with 1/sqrt(feedback), so a controller that is linear in x
  has the same loop gain with one sender as with fifty (RFC 9332, appendix A: PI squared).
- **Scalable senders get k times the pressure** (RFC 9332, section 2.1), linear, where classic ones get its square: the
  window of DCTCP and Prague goes with 1/feedback, and with k = 2 both have about the same rate.
- **What is not ECN-capable is dropped by the device term at most with p_Cmax = 1/k^2** (RFC 9332, appendix A.1), where
  all scalable packets are marked. Marks continue up to 1. A retransmission is never ECN-capable (RFC 3168, 6.1.5): with
  drops of probability 1 a sender would never get past its first loss.
- **The queue is a delay.** q* is a delay at the port's capacity, but at least some frames: at 1 Mb/s a frame takes
  12 ms, and a queue of less than a few frames leaves the link idle.
- **ACKs come in bursts.** Even an ACK that goes first waits for the frame on the wire, up to 24 ms at 0.5 Mb/s, and
  what it clocks out then comes at once. A station's queue that is shorter than this (`ACK_GAPS` frames of the slowest
  uplink) runs empty in between: at 7/0.5 Mb/s 15 ms carry 0.947 of the download during an upload, 30 ms
  0.994; at 3.5/1 Mb/s 15 ms 0.978, 24 ms 0.991.
- **kappa2 = 0.03.** With gamma 0.05, kappa1 1 and q* 15 ms these are about the gains of RFC 9332 (alpha 0.16, beta 3.2
  at 16 ms).
- **A burst passes.** In slow start over a long path a window arrives at once and leaves before the next one comes. No
  mark shortens such a queue, and a mark ends slow start too early: over 300 ms a download of 2.9 MB took 3.6 s, behind
  a FIFO 3.1 s. So a queue may stand for as long as there was none before it, at most `MAX_BURST` (RFC 8033, section
  4.3), before it counts. After a second without one it counts at once: a flow that begins has shown no gap yet, and on
  a slow link its first window is a queue of 120 ms.
- **Demand.** Desired volumes are weighted max-min shares. A TCP sender shows no demand beyond what it gets, so an
  elastic flow is taken to ask for `PROBE` more than what arrives of it; below its share it then gains, above it loses.
  ACKs and sparse flows are not held back by feedback, so what arrives of them is all that they ask for.
- **A share only matters when there is a queue to share.** Flow and class pressure grows only while the queue holds half
  its target. Otherwise a sender that asks for little would keep the others from the rest of the link.
"""

import math

from .base import BUSY_QUEUE, IDLE_SECONDS, DeviceTerm, Law

PROBE = 0.1
"""Part by which an elastic flow is taken to ask for more than arrives of it."""

EMPTY_SECONDS = 0.95
"""Time constant of forgetting while the queue stays empty (RFC 8033, section 4.2: 1/64 every 15 ms)."""

MAX_BURST = 0.15
"""Seconds after which a queue counts in any case (RFC 8033, section 4.3)."""

ACK_GAPS = 2.0
"""A queue lasts this many times as long as a full frame keeps an ACK waiting."""

COUPLING = 2.0
"""k, the coupling factor (RFC 9332, appendix A.1)."""

MAX_DROPPED = 1 / COUPLING**2
"""p_Cmax (RFC 9332, appendix A.1)."""

MAX_ERROR = 1.0
"""Limit of (q - q*) / q* in the sum of errors, which is never below -1: the sum rises no faster than it can fall.
Without it the overshoot of one slow start over 90 ms holds the sender down for seconds."""


def max_min_shares(capacity: float, demands: list[float], weights: list[float]) -> list[float]:
    """Weighted max-min shares: what each gets of `capacity` when nobody gets more than it demands.

    Who demands less than its part by weight gets all of it, and the rest is shared by weight among the others. The
    shares add up to min(capacity, sum of demands). Units are those of `capacity`; weights are above 0.
    """
    # In order of demand per weight: up to some place each gets its demand, the others get the same level by weight.
    levels = [demand / weight for demand, weight in zip(demands, weights, strict=True)]
    order = sorted(range(len(levels)), key=levels.__getitem__)
    heavier, sums = 0.0, []
    for number in reversed(order):
        heavier += weights[number]
        sums.append(heavier)
    asked, capacity = 0.0, max(0.0, capacity)
    for number, weight in zip(order, reversed(sums), strict=True):
        level = max(0.0, (capacity - asked) / weight)
        if demands[number] > level * weights[number]:
            return [min(demand, level * own) for demand, own in zip(demands, weights, strict=True)]
        asked += demands[number]
    return list(demands)


def desired_volumes(capacity: float, demands: list[float], weights: list[float]) -> list[float]:
    """D of (10): max-min shares, and what nobody demands is given out by weight on top."""
    shares = max_min_shares(capacity, demands, weights)
    spare, together = max(0.0, capacity - sum(shares)), sum(weights)
    return [share + spare * weight / together for share, weight in zip(shares, weights, strict=True)]


class Pi2DeviceTerm(DeviceTerm):
    """A proportional-integral controller on the queue, (27) with (28), over q - q* alone:

    x(m) = gamma * [ q(m) - q(m-1) + kappa1 * (q(m) - q*) + kappa2 * sum (q - q*) ] / q*

    The sum is kept in units of x, within [0, sqrt(limit)], and does not grow while x is at its limit. While the queue
    is a burst, x is the sum, which stands still.
    """

    def __init__(self) -> None:
        self.sum = 0.0
        self._pressure = 0.0
        self._queue = 0.0
        self._calm = self._credit = 0.0
        self._time = -1.0
        self._last_queued = -math.inf

    def update(
        self,
        now: float,
        queue: float,
        target: float,
        arriving: bool,
        *,
        gamma: float,
        kappa1: float,
        kappa2: float,
        interval: float,
        limit: float,
    ) -> float:
        """As `DeviceTerm.update`."""
        elapsed = 0.0 if self._time < 0 else max(0.0, now - self._time)
        grown = queue - self._queue
        was_empty = self._queue <= 0
        self._time, self._queue = now, queue
        if queue > 0 or arriving:
            self._last_queued = now
        if elapsed == 0.0:
            return self._pressure * self._pressure
        if now - self._last_queued > IDLE_SECONDS:
            self.sum = self._pressure = self._credit = 0.0
            return 0.0
        steps = elapsed / interval
        error = (queue - target) / target
        most = math.sqrt(limit)
        if queue <= 0 and was_empty:
            self.sum *= math.exp(-elapsed / EMPTY_SECONDS)
        if self.is_burst(queue / target, elapsed):
            self._pressure = self.sum
            return self._pressure * self._pressure
        growth = grown / steps / target
        direct = gamma * (growth + kappa1 * error)
        if not self.stands_still(error, self.sum + direct, most):
            self.sum += gamma * kappa2 * self.summed(error, growth) * steps
            self.sum = min(most, max(0.0, self.sum))
        self._pressure = min(most, max(0.0, self.sum + direct))
        return self._pressure * self._pressure

    def resume(self, feedback: float) -> None:
        """As `DeviceTerm.resume`."""
        self.sum = self._pressure = math.sqrt(feedback)

    def summed(self, error: float, growth: float) -> float:
        """Return the error that the sum adds in an interval: the distance of (25). Summed growth is the queue again."""
        return min(error, MAX_ERROR)

    def is_burst(self, fullness: float, elapsed: float) -> bool:
        """Return True while the queue, in parts of its target, stands for less long than there was none before it."""
        if fullness < BUSY_QUEUE:
            self._calm += elapsed
            self._credit = min(self._calm, MAX_BURST) if self._calm <= IDLE_SECONDS else 0.0
            return False
        self._calm = 0.0
        self._credit -= elapsed
        return self._credit > 0

    def stands_still(self, error: float, pressure: float, most: float) -> bool:
        """Return True when the sum must not grow: it would wind up while x is at its limit."""
        return error >= 0 and pressure >= most


class Pi2(Law):
    """The law PI squared."""

    name = "pi2"
    scalable_queue = True

    def scalable(self, feedback: float) -> float:
        """As `Law.scalable`: k x for x^2."""
        return min(1.0, COUPLING * math.sqrt(feedback))

    def dropped(self, feedback: float) -> float:
        """As `Law.dropped`."""
        return min(MAX_DROPPED, feedback)

    def averaging(self, seconds: float) -> float:
        """Return the configured time constant: one interval carries a frame or two, or none."""
        return seconds

    def queue_target(self, capacity: float, delay: float, least: float, frame_time: float) -> float:
        """Return the target of a delay, which ACKs that wait for a frame do not let run empty."""
        return max(capacity * max(delay, ACK_GAPS * frame_time), least)

    def shares(
        self,
        before: list[float],
        elapsed: float,
        capacity: float,
        rates: list[float],
        weights: list[float],
        elastic: list[float],
        *,
        gain: float,
        interval: float,
        limit: float,
        fullness: float,
    ) -> tuple[list[float], list[float]]:
        """x(n) = x(n-1) + gain * (M(n) - D(n)) / (C * T_n), within [0, sqrt(limit)]: (10), and the same for a class.

        The sum over a busy period is the paper's cumulative form (9); the limits keep it from winding up.
        """
        if capacity <= 0 or not rates:
            return [0.0] * len(rates), [0.0] * len(rates)
        # Flows are counted as they arrive: that is their demand.
        demands = [rate * (1 + PROBE * part) for rate, part in zip(rates, elastic, strict=True)]
        measured, desired = self.measured(capacity, rates), self.desired(capacity, demands, weights)
        busy, most, steps = fullness >= BUSY_QUEUE, math.sqrt(limit), elapsed / interval
        feedback = []
        for value, passed, wanted in zip(before, measured, desired, strict=True):
            error = (passed - wanted) / capacity
            if not busy:
                error = min(error, 0.0)
            pressure = min(most, max(0.0, math.sqrt(value) + gain * error * steps))
            feedback.append(pressure * pressure)
        return feedback, desired

    def measured(self, capacity: float, rates: list[float]) -> list[float]:
        """M of (10): of what arrived, what left is at most the capacity."""
        left = min(1.0, capacity / max(sum(rates), 1e-9))
        return [rate * left for rate in rates]

    def desired(self, capacity: float, demands: list[float], weights: list[float]) -> list[float]:
        """D of (10)."""
        return desired_volumes(capacity, demands, weights)

    def device(self) -> DeviceTerm:
        """As `Law.device`."""
        return Pi2DeviceTerm()
