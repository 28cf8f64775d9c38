# SPDX-License-Identifier: Apache-2.0
"""Samples, and figures of any: rates, percentiles. Pure: no clock, no files."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

INTERVAL = 0.25  # s between two reports of a flow's rate
SETTLE = 1.0  # s in which TCP still reacts to a change; at most an eighth of what is averaged


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement. time: s since the arm's start, the middle of `span` (s; 0: a point). source: the flow, host or
    user that it is of, where several have the same quantity."""

    time: float
    quantity: str
    value: float
    span: float = 0.0
    source: str = ""


def averaged(start: float, end: float) -> tuple[float, float]:
    """The part of [start, end) that is averaged (s): without the settling, and without the last interval, which iperf3
    does not report of a flow that ends then."""
    return start + min(SETTLE, (end - start) / 8), end - INTERVAL


def mean_rate(samples: Iterable[Sample], quantity: str, start: float, end: float) -> float:
    """Mean over [start, end), in the quantity's unit: a sample counts by the part of its span within."""
    return mean_rates(samples, quantity, [(start, end)])[0]


def mean_rates(samples: Iterable[Sample], quantity: str, spans: Sequence[tuple[float, float]]) -> list[float]:
    """`mean_rate` over each of these spans, which begin and end in ascending order."""
    starts, ends = zip(*spans, strict=True) if spans else ((), ())
    volumes = [0.0] * len(spans)
    for sample in samples:
        if sample.quantity == quantity:
            half = sample.span / 2
            first, last = sample.time - half, sample.time + half
            for place in range(bisect_right(ends, first), bisect_left(starts, last)):
                volumes[place] += sample.value * (min(last, ends[place]) - max(first, starts[place]))
    return [volume / (end - start) for volume, start, end in zip(volumes, starts, ends, strict=True)]


def summed_up(samples: Iterable[Sample], quantities: Iterable[str], seconds: float) -> list[Sample]:
    """The samples by time, with those of these quantities replaced by their sum over each interval."""
    shared = set(quantities)
    samples = list(samples)
    result = [sample for sample in samples if sample.quantity not in shared]
    for quantity in sorted(shared):
        own = [sample for sample in samples if sample.quantity == quantity]
        for i in range(round(seconds / INTERVAL)):
            start, end = i * INTERVAL, (i + 1) * INTERVAL
            within = [s for s in own if s.time + s.span / 2 > start and s.time - s.span / 2 < end]
            if within:
                rate = mean_rate(within, quantity, start, end)
                result.append(Sample((start + end) / 2, quantity, rate, INTERVAL))
    return sorted(result, key=lambda sample: sample.time)


def by_direction(samples: Iterable[Sample], ways: Mapping[str, str], seconds: float) -> list[Sample]:
    """The flows' rates as `downlink_mbps` and `uplink_mbps`, summed up where several go the same way, and the probe's
    samples. ways: flow -> down or up."""
    samples = [s for s in samples if 0 <= s.time <= seconds]
    rates = [replace(s, quantity=f"{ways[s.source]}link_mbps") for s in samples if _is_rate(s) and s.source in ways]
    probes = [s for s in samples if s.quantity in ("ping_ms", "delay_up_ms", "delay_down_ms")]
    shared = {f"{way}link_mbps" for way in ways.values() if list(ways.values()).count(way) > 1}
    return summed_up([*rates, *probes], shared, seconds)


def _is_rate(sample: Sample) -> bool:
    return sample.quantity == "rate_mbps"


def by_source(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples of each source; the rates of several flows of it at the same time add up.

    iperf3 reports the last interval of some flows twice: it counts once.
    """
    lines: dict[str, dict[float, Sample]] = {}
    for sample in samples:
        own = lines.setdefault(sample.source, {})
        before = own.get(sample.time)
        if before != sample:
            own[sample.time] = sample if before is None else replace(sample, value=before.value + sample.value)
    return {source: list(own.values()) for source, own in sorted(lines.items())}


def percentile(values: Sequence[float], fraction: float) -> float:
    """Percentile by linear interpolation between the two nearest values; nan without values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def values_within(samples: Iterable[Sample], quantity: str, start: float, end: float) -> list[float]:
    """The values of the samples in [start, end)."""
    return [s.value for s in samples if s.quantity == quantity and start <= s.time < end]
