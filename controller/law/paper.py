# SPDX-License-Identifier: Apache-2.0
"""The law of the paper, as far as its text says it. Its parameters (4.1): alpha 0.03, beta 0.03, gamma 0.05, kappa1 1,
kappa2 1, T_n and T_m 10 ms, q* 50 packets.

The equations are pictures that the text does not hold, so some of this is a reading:

- Volumes are parts of C * T_n, queues are parts of q*: gains without a unit need a measure without one.
- What a flow or class "measured" is what passed on to the interface's queue: NCR sits in front of that.
- "If there is spare bandwidth in output link, the bandwidth is redistributed to each flow according to" its weight:
  what flows leave of their shares is given out once, to every flow by its weight, whether it takes it or not.
- A term, and the sum of errors in it, is within [0, 1], "the feasible range of feedback values". A term below 0 would
  have to be taken from another one, and the data plane adds what is not negative.
"""

from .base import DeviceTerm, Law


def desired_volumes(capacity: float, measured: list[float], weights: list[float]) -> list[float]:
    """D of (10), and of the same for a class: w_i / sum w * C, and a part by weight of what others leave of that."""
    together = sum(weights)
    shares = [capacity * weight / together for weight in weights]
    spare = 0.0
    for share, used in zip(shares, measured, strict=True):
        spare += max(0.0, share - used)
    return [share + spare * weight / together for share, weight in zip(shares, weights, strict=True)]


class PaperDeviceTerm(DeviceTerm):
    """(27) with the approximation (28):

    e(m) = [ q(m) - q(m-1) + kappa1 * (q(m) - q*) ] / q*                                        (25)
    f(m) = gamma * [ e(m) + kappa2 * sum of e up to m ]                                         (26), (27)

    The sum is kept in units of f.
    """

    def __init__(self) -> None:
        self._sum = 0.0
        self._feedback = 0.0
        self._queue = 0.0
        self._time = -1.0

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
        """As `DeviceTerm.update`; neither `arriving` nor `limit` is known to the paper."""
        elapsed = 0.0 if self._time < 0 else max(0.0, now - self._time)
        grown = queue - self._queue
        self._time, self._queue = now, queue
        if elapsed == 0.0:
            return self._feedback
        # A late interval counts as the intervals that it spans.
        steps = elapsed / interval
        error = (grown / steps + kappa1 * (queue - target)) / target
        self._sum = min(1.0, max(0.0, self._sum + gamma * kappa2 * error * steps))
        self._feedback = min(1.0, max(0.0, gamma * error + self._sum))
        return self._feedback

    def resume(self, feedback: float) -> None:
        """As `DeviceTerm.resume`."""
        self._sum = self._feedback = feedback


class Paper(Law):
    """The law of the paper, which has no averages and limits, and does not depend on a queue."""

    name = "paper"
    exact = True
    thins = False

    def scalable(self, feedback: float) -> float:
        """Return the same feedback: the paper does not distinguish senders."""
        return feedback

    def dropped(self, feedback: float) -> float:
        """Return the same feedback: the paper does not distinguish drops and marks."""
        return feedback

    def averaging(self, seconds: float) -> float:
        """Return 0: M is the volume of one interval."""
        return 0.0

    def queue_target(self, capacity: float, delay: float, least: float, frame_time: float) -> float:
        """Return the number of packets of the paper, or the configured delay if that is more."""
        return max(capacity * delay, least)

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
        """f(n) = f(n-1) + gain * (M(n) - D(n)) / (C * T_n): (10), and the same for a class."""
        if capacity <= 0 or not rates:
            return [0.0] * len(rates), [0.0] * len(rates)
        desired = desired_volumes(capacity, rates, weights)
        steps, terms = elapsed / interval, []
        for term, rate, wanted in zip(before, rates, desired, strict=True):
            terms.append(min(1.0, max(0.0, term + gain * steps * (rate - wanted) / capacity)))
        return terms, desired

    def device(self) -> DeviceTerm:
        """As `Law.device`."""
        return PaperDeviceTerm()
