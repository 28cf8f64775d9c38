# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals that claim no more than the number of repeats supports. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import bdtr, betaincinv, stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A value between two ends. confidence: how often such ends enclose what they are meant to."""

    value: float
    low: float
    high: float
    n: int
    confidence: float = CONFIDENCE

    def overlaps(self, low: float, high: float) -> bool:
        return self.low <= high and low <= self.high


def of_mean(values: Sequence[float]) -> Interval | None:
    """Student's t interval of the mean; None for fewer than two values, whose variation is unknown."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    reach = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - reach, mean + reach, len(values))


def of_median(values: Sequence[float]) -> Interval | None:
    """Interval of the median between two of the values themselves, whatever their distribution: the median lies between
    the k-th smallest and the k-th largest unless fewer than k are on one side of it. The innermost pair that does so in
    95 of 100 cases; the outermost one where none does, with its own confidence: 75 % of three values, 94 % of five.
    None for fewer than two values."""
    if len(values) < 2:
        return None
    ordered, n = sorted(values), len(values)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    best = Interval(middle, ordered[0], ordered[-1], n, 1 - 2 * float(bdtr(0, n, 0.5)))
    for k in range(2, n // 2 + 1):
        confidence = 1 - 2 * float(bdtr(k - 1, n, 0.5))
        if confidence < CONFIDENCE:
            break
        best = Interval(middle, ordered[k - 1], ordered[-k], n, confidence)
    return best


def of_part(count: int, n: int) -> Interval | None:
    """Exact interval of a probability, of `count` in `n` independent trials (Clopper and Pearson 1934): one half lies
    outside of it where the two-sided sign test rejects it. None without a trial."""
    if not n:
        return None
    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return Interval(count / n, low, high, n)
