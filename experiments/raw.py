# SPDX-License-Identifier: Apache-2.0
"""The raw data of one run, and the usual measures of it. Times are the timeline's; `Raw` knows how long that took."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from experiments.experiment import Point
from experiments.samples import Sample, averaged, mean_rate, percentile, values_within

Of = Callable[["Raw"], float | None]


@dataclass(frozen=True)
class Raw:
    """What one run of an arm at a point measured.

    seconds: how long the run took; scale: seconds of it per second of the timeline.
    """

    samples: Sequence[Sample]
    seconds: float
    scale: float = 1.0
    point: Point | None = None
    arm: str = ""

    def of(self, quantity: str, source: str = "*") -> list[Sample]:
        """The samples of a quantity and of the sources that the pattern matches."""
        return [s for s in self.samples if s.quantity == quantity and fnmatchcase(s.source, source)]

    def sources(self, quantity: str, source: str = "*") -> list[str]:
        """Who has samples of this quantity."""
        return sorted({sample.source for sample in self.of(quantity, source)})

    def span(self, start: float, end: float | None) -> tuple[float, float]:
        """A part of the timeline, in seconds of the run; None: to its end."""
        return start * self.scale, self.seconds if end is None else end * self.scale

    def values(self, quantity: str, source: str = "*", start: float = 0.0, end: float | None = None) -> list[float]:
        """Values measured within a part of the timeline."""
        return values_within(self.of(quantity, source), quantity, *self.span(start, end))

    def rate(self, source: str, start: float = 0.0, end: float | None = None, quantity: str = "rate_mbps") -> float:
        """Mb/s of all flows that the pattern matches, over a part of the timeline without its warm-up. quantity: or
        `stream_mbps`, of single streams."""
        return mean_rate(self.of(quantity, source), quantity, *averaged(*self.span(start, end)))

    def rates(
        self, source: str, start: float = 0.0, end: float | None = None, quantity: str = "rate_mbps"
    ) -> list[float]:
        """`rate` of each of them."""
        return [self.rate(one, start, end, quantity) for one in self.sources(quantity, source)]


def rate(source: str = "*", start: float = 0.0, end: float | None = None) -> Of:
    """Mb/s of payload, summed over the flows whose name matches the pattern."""
    return lambda raw: raw.rate(source, start, end)


def quantile(quantity: str, fraction: float, start: float = 0.0, end: float | None = None, source: str = "*") -> Of:
    """A percentile (0 to 1) of a quantity's samples: `ping_ms` of the probe, for one."""

    def of(raw: Raw) -> float | None:
        values = raw.values(quantity, source, start, end)
        return percentile(values, fraction) if values else None

    return of


def mean(quantity: str, start: float = 0.0, end: float | None = None, source: str = "*") -> Of:
    def of(raw: Raw) -> float | None:
        values = raw.values(quantity, source, start, end)
        return sum(values) / len(values) if values else None

    return of


def jain(source: str = "*", start: float = 0.0, end: float | None = None, quantity: str = "rate_mbps") -> Of:
    """Jain's index of the flows' rates, or of single streams' (`stream_mbps`): 1 when all are equal, 1/n when one has
    all."""

    def of(raw: Raw) -> float | None:
        rates = raw.rates(source, start, end, quantity)
        squares = sum(rate * rate for rate in rates)
        return sum(rates) ** 2 / (len(rates) * squares) if squares else None

    return of


def least(source: str = "*", start: float = 0.0, end: float | None = None) -> Of:
    """Mb/s of the flow that got least."""
    return lambda raw: min(raw.rates(source, start, end), default=None)
