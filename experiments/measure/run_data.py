# SPDX-License-Identifier: Apache-2.0
"""The raw data of one run, and the usual measures of it. Times are the timeline's; `Raw` converts them to the run's."""

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from math import fsum
from statistics import fmean, pstdev

from accesspoint.experiments.measure.samples import Sample, averaged, mean_rate, mean_rates, percentile, values_within

Value = int | float | str
Point = Mapping[str, Value]
"""A value of each swept parameter; empty without a sweep."""

Of = Callable[["Raw"], float | None]


@dataclass(frozen=True)
class Raw:
    """The samples of one run of an arm at a point.

    seconds: how long the run took; scale: seconds of it per second of the timeline.
    """

    samples: Sequence[Sample]
    seconds: float
    scale: float = 1.0
    point: Point | None = None
    arm: str = ""

    def of(self, quantity: str, source: str = "*") -> list[Sample]:
        """The samples of a quantity and of the sources that the pattern matches, in the order of the run's."""
        of_source = self._by_source.get(quantity, {})
        matched = {name for name in of_source if fnmatchcase(name, source)}
        if len(matched) < 2:
            return [sample for name in matched for sample in of_source[name]]
        return [sample for sample in self._by_quantity[quantity] if sample.source in matched]

    @functools.cached_property
    def _by_quantity(self) -> dict[str, list[Sample]]:
        """Quantity -> its samples: a run has hundreds of thousands, and a measure asks for each flow's."""
        found: dict[str, list[Sample]] = defaultdict(list)
        for sample in self.samples:
            found[sample.quantity].append(sample)
        return dict(found)

    @functools.cached_property
    def _by_source(self) -> dict[str, dict[str, list[Sample]]]:
        """Quantity -> source -> its samples."""
        found: dict[str, dict[str, list[Sample]]] = {name: defaultdict(list) for name in self._by_quantity}
        for sample in self.samples:
            found[sample.quantity][sample.source].append(sample)
        return found

    def sources(self, quantity: str, source: str = "*") -> list[str]:
        """Names of the sources that have samples of this quantity."""
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
        """`rate` of each flow that was started before the end: 0 for a flow that never came up, and has no samples."""
        rates = [self.rate(one, start, end, quantity) for one in self.sources(quantity, source)]
        begun = [s for s in self.of("streams", source) if s.time < self.span(start, end)[1]]
        started = sum(s.value for s in begun) if quantity == "stream_mbps" else len({s.source for s in begun})
        return rates + [0.0] * max(0, round(started) - len(rates))


def rate(source: str = "*", start: float = 0.0, end: float | None = None) -> Of:
    """Mb/s of payload, summed over the flows whose name matches the pattern."""
    return lambda raw: raw.rate(source, start, end)


def quantile(quantity: str, fraction: float, start: float = 0.0, end: float | None = None, source: str = "*") -> Of:
    """A percentile (0 to 1) of a quantity's samples: `ping_ms` of the probe, for one."""

    def of(raw: Raw) -> float | None:
        values = raw.values(quantity, source, start, end)
        return percentile(values, fraction) if values else None

    return of


def variation(source: str, start: float = 0.0, end: float | None = None) -> Of:
    """Standard deviation over mean of a flow's rate in bins of 1 s of the run."""

    def of(raw: Raw) -> float | None:
        first, last = averaged(*raw.span(start, end))
        samples = raw.of("rate_mbps", source)
        bins = mean_rates(samples, "rate_mbps", [(first + s, first + s + 1) for s in range(int(last - first))])
        return pstdev(bins) / fmean(bins) if len(bins) > 1 and any(bins) else None

    return of


def mean(quantity: str, start: float = 0.0, end: float | None = None, source: str = "*") -> Of:
    def of(raw: Raw) -> float | None:
        values = raw.values(quantity, source, start, end)
        return fmean(values) if values else None

    return of


def added(start: float = 0.0, end: float | None = None) -> Of:
    """The probe's mean round trip above that of the empty links: half of its probes before the clock started."""

    def of(raw: Raw) -> float | None:
        loaded, empty = raw.values("ping_ms", "*", start, end), raw.values("empty_ping_ms")
        return fmean(loaded) - percentile(empty, 0.5) if loaded and empty else None

    return of


def longest_gap(quantity: str, start: float = 0.0, end: float | None = None) -> Of:
    """The longest time (ms of the run) without a sample of a quantity, from edge to edge of a part of the timeline."""

    def of(raw: Raw) -> float:
        first, last = raw.span(start, end)
        times = sorted(s.time for s in raw.of(quantity) if first <= s.time < last)
        return 1e3 * max(after - before for before, after in pairwise([first, *times, last]))

    return of


def longest_between_answers(start: float = 0.0, end: float | None = None) -> Of:
    """The longest time (ms of the run) between two of the probe's answers, of the times that a part of the timeline
    touches; the run's end stands in for an answer that never came."""

    def of(raw: Raw) -> float:
        first, last = raw.span(start, end)
        answers = sorted(s.time + s.value / 1e3 for s in raw.of("ping_ms"))
        spans = pairwise([0.0, *answers, max([raw.seconds, *answers[-1:]])])
        return 1e3 * max(after - before for before, after in spans if before < last and after > first)

    return of


def total(quantity: str, source: str = "*") -> Of:
    """The sum of a quantity's samples, wherever in the run."""

    def of(raw: Raw) -> float | None:
        samples = raw.of(quantity, source)
        return fsum(sample.value for sample in samples) if samples else None

    return of


def jain(source: str = "*", start: float = 0.0, end: float | None = None, quantity: str = "rate_mbps") -> Of:
    """Jain's index of the flows' rates, or of single streams' (`stream_mbps`): 1 when all are equal, 1/n when one has
    all."""

    def of(raw: Raw) -> float | None:
        rates = raw.rates(source, start, end, quantity)
        squares = fsum(rate * rate for rate in rates)
        return fsum(rates) ** 2 / (len(rates) * squares) if squares else None

    return of


def windows(raw: Raw, source: str, start: float, end: float, width: float) -> list[float]:
    """Mb/s of all flows that the pattern matches, in every window of `width` that begins at a whole second of a part
    of the timeline."""
    samples, first = raw.of("rate_mbps", source), round(start)
    begins = range(first, first + int(end - start - width) + 1)
    return mean_rates(samples, "rate_mbps", [raw.span(begin, begin + width) for begin in begins])


def least(source: str = "*", start: float = 0.0, end: float | None = None) -> Of:
    """Mb/s of the slowest flow."""
    return lambda raw: min(raw.rates(source, start, end), default=None)
