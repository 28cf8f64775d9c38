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
  uplink) runs empty in between: at 7/0.5 Mb/s 15 ms carry 0.947 of the download beside an upload, 30 ms 0.994.
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
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from .config import Ncr
from .queue_estimate import FULL_FRAME

K = TypeVar("K", bound=Hashable)

PROBE = 0.1
"""How much more than what arrives an elastic flow is taken to ask for."""

IDLE_SECONDS = 1.0
"""After so long without traffic a term starts anew: its error belongs to a busy period (3.2.1) that is over."""

EMPTY_SECONDS = 0.95
"""Time constant of forgetting while the queue stays empty (RFC 8033, section 4.2: 1/64 every 15 ms)."""

ACK_GAPS = 1.25
"""A queue lasts this many times as long as a full frame keeps an ACK waiting."""

MOST_ERROR = 1.0
"""Limit of (q - q*) / q* in the sum of errors, which is never below -1: the sum rises no faster than it can fall.
Without it the overshoot of one slow start over 90 ms holds the sender down for seconds."""


def max_min_shares(capacity: float, demands: Mapping[K, float], weights: Mapping[K, float]) -> dict[K, float]:
    """Weighted max-min shares: what each gets of `capacity` when nobody gets more than it demands.

    Who demands less than its part by weight gets all of it, and the rest is shared by weight among the others. The
    shares add up to min(capacity, sum of demands). Units are those of `capacity`; weights are above 0.
    """
    shares = dict.fromkeys(demands, 0.0)
    left = max(0.0, capacity)
    weight = sum(weights[key] for key in demands)
    for key in sorted(demands, key=lambda key: demands[key] / weights[key]):
        # The last one's weight is all that is left, but for rounding.
        part = left * min(1.0, weights[key] / weight) if weight > 0 else left
        shares[key] = min(max(0.0, demands[key]), part)
        left -= shares[key]
        weight -= weights[key]
    return shares


def desired_volumes(capacity: float, demands: Mapping[K, float], weights: Mapping[K, float]) -> dict[K, float]:
    """D of equations (10) and (18): max-min shares, and what nobody demands is given out by weight on top."""
    shares = max_min_shares(capacity, demands, weights)
    spare = max(0.0, capacity - sum(shares.values()))
    total = sum(weights[key] for key in shares)
    return {key: share + spare * weights[key] / total for key, share in shares.items()}


class Rate:
    """A smoothed rate, from a counter that is read at any times.

    Args:
        tau: time constant in seconds.
    """

    def __init__(self, tau: float) -> None:
        self.tau = tau
        self.value = 0.0
        self.last_moved = -math.inf
        self._volume: float | None = None
        self._time = 0.0

    def update(self, volume: float, now: float) -> float:
        """Take a reading of the cumulative volume; returns the rate per second. A counter that fell starts anew."""
        if self._volume is None or volume < self._volume:
            self._volume, self._time, self.value = volume, now, 0.0
            self.last_moved = now
            return self.value
        elapsed = now - self._time
        if elapsed <= 0:
            return self.value
        if volume > self._volume:
            self.last_moved = now
        rate = (volume - self._volume) / elapsed
        self.value += (rate - self.value) * -math.expm1(-elapsed / self.tau)
        self._volume, self._time = volume, now
        return self.value

    def idle(self, now: float) -> bool:
        """Whether the counter has stood still for `IDLE_SECONDS`."""
        return now - self.last_moved > IDLE_SECONDS


@dataclass(slots=True)
class Measured:
    """What arrives of a flow or class in bytes/s, what it is worth, and which part of it would take more."""

    rate: float
    weight: float
    elastic: float = 1.0


class ShareTerms(Generic[K]):
    """The flow terms, or the class terms, of one port (3.2.1, 3.2.2).

    x_i(n) = x_i(n-1) + gain * (M_i(n) - D_i(n)) / (C * T_n), within [0, sqrt(limit)], where M and D are volumes since
    the last update. The sum over a busy period is the paper's cumulative form; the limits keep it from winding up.
    """

    def __init__(self) -> None:
        self.pressure: dict[K, float] = {}
        self.desired: dict[K, float] = {}
        self._time: float | None = None

    def update(
        self,
        now: float,
        capacity: float,
        measured: Mapping[K, Measured],
        *,
        gain: float,
        interval: float,
        limit: float,
        busy: bool,
    ) -> dict[K, float]:
        """The feedback of everyone in `measured`; who is missing there has gone idle and starts anew.

        Args:
            capacity: C in bytes/s; 0 means that nothing is known to be shared, and there is no feedback.
            gain: alpha or beta.
            interval: T_n in seconds.
            limit: the largest feedback.
            busy: whether the port has a queue to share.
        """
        elapsed = 0.0 if self._time is None else max(0.0, now - self._time)
        self._time = now
        if capacity <= 0 or not measured:
            self.pressure = dict.fromkeys(measured, 0.0)
            self.desired = dict.fromkeys(measured, 0.0)
            return dict(self.pressure)
        # Flows are counted as they arrive: that is their demand. What left of it is at most the capacity.
        left = min(1.0, capacity / max(sum(entry.rate for entry in measured.values()), 1e-9))
        rates = {key: entry.rate * left for key, entry in measured.items()}
        weights = {key: entry.weight for key, entry in measured.items()}
        demands = {key: entry.rate * (1 + PROBE * entry.elastic) for key, entry in measured.items()}
        self.desired = desired_volumes(capacity, demands, weights)
        most = math.sqrt(limit)
        pressure: dict[K, float] = {}
        for key, rate in rates.items():
            error = (rate - self.desired[key]) / capacity
            if error > 0 and not busy:
                error = 0.0
            value = self.pressure.get(key, 0.0) + gain * error * elapsed / interval
            pressure[key] = min(most, max(0.0, value))
        self.pressure = pressure
        return {key: value * value for key, value in pressure.items()}


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
