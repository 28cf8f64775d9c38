# SPDX-License-Identifier: Apache-2.0
"""From samples to an arm's figures, to ratios and to verdicts. Pure: no clock, no files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.live import LiveExperiment, Phase, Summary
from experiments.samples import Sample, averaged, mean_rate, percentile, summed_up, values_within
from topologies.profiles import LinkProfile


def window(phase: Phase, seconds: float) -> tuple[float, float]:
    """The part of a phase that is averaged (s)."""
    return averaged(phase.start * seconds, phase.end * seconds)


def summed(samples: Sequence[Sample], experiment: LiveExperiment, seconds: float) -> list[Sample]:
    """The samples, with those of quantities that several flows have replaced by their sum over each interval."""
    flows = [flow.quantity for flow in experiment.flows]
    return summed_up(samples, {quantity for quantity in flows if flows.count(quantity) > 1}, seconds)


def longest_gap(samples: Iterable[Sample], quantity: str, start: float, end: float) -> float:
    """The longest time within [start, end] without a sample of the quantity (s)."""
    times = [start, *sorted(s.time for s in samples if s.quantity == quantity and start <= s.time < end), end]
    return max(after - before for before, after in pairwise(times))


def distribution(values: Sequence[float]) -> Summary:
    """What a summary says about a delay (same unit)."""
    mean = sum(values) / len(values) if values else float("nan")
    quantiles = {name: percentile(values, fraction) for name, fraction in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}
    return {name: _rounded(value) for name, value in {**quantiles, "mean": mean}.items()}


def _rounded(value: float) -> float | None:
    return None if value != value else round(value, 3)


def arm_summary(experiment: LiveExperiment, samples: Sequence[Sample], seconds: float) -> Summary:
    """Throughput per phase (Mb/s), and the delay in the busy phase and in each phase (ms)."""
    summary: Summary = {}
    for flow in experiment.flows:
        windows = {name: window(experiment.phase(name), seconds) for name in flow.phases}
        summary[flow.quantity] = {
            name: round(mean_rate(samples, flow.quantity, start, end), 3) for name, (start, end) in windows.items()
        }
    busy = experiment.phase(experiment.busy_phase)
    for quantity in ("ping_ms", "delay_up_ms", "delay_down_ms"):
        summary[quantity] = distribution(values_within(samples, quantity, busy.start * seconds, busy.end * seconds))
        summary[quantity]["phases"] = {
            phase.name: distribution(values_within(samples, quantity, phase.start * seconds, phase.end * seconds))
            for phase in experiment.phases
        }
    return summary


def ratios(experiment: LiveExperiment, profile: LinkProfile, arms: dict[str, Summary]) -> dict[str, float]:
    """Each arm against its own quiet phase and against the link, and every other arm against the first."""
    result: dict[str, float] = {}
    names = [arm.name for arm in experiment.arms if arm.name in arms]
    for name in names:
        down, up, ping = (arms[name].get(key, {}) for key in ("downlink_mbps", "uplink_mbps", "ping_ms"))
        pairs = {
            "downlink_during_of_before": (down.get("during"), down.get("before")),
            "downlink_after_of_before": (down.get("after"), down.get("before")),
            "uplink_during_of_link": (up.get("during"), profile.up / 1e6),
        }
        if name != names[0]:
            first = arms[names[0]]
            pairs[f"downlink_before_of_{names[0]}"] = (down.get("before"), first["downlink_mbps"].get("before"))
            pairs[f"downlink_during_of_{names[0]}"] = (down.get("during"), first["downlink_mbps"].get("during"))
            pairs[f"ping_p50_of_{names[0]}"] = (ping.get("p50"), first["ping_ms"].get("p50"))
        result |= {f"{name}_{key}": round(a / b, 4) for key, (a, b) in pairs.items() if a is not None and b}
    return result


@dataclass(frozen=True)
class Verdict:
    """A criterion, decided."""

    arm: str
    text: str
    met: bool


def verdicts(
    experiment: LiveExperiment, profile: LinkProfile, cc: str, arms: dict[str, Summary], target: str = "apswitch"
) -> list[Verdict]:
    """The criteria that apply to this link profile, this target and the arms that ran."""
    result = []
    for criterion in experiment.criteria:
        limit = criterion.elsewhere.get(target, criterion.limit)(profile, cc)
        if criterion.arm not in arms or limit is None:
            continue
        try:
            value = criterion.value(arms[criterion.arm])
        except TypeError:  # no sample at all
            result.append(Verdict(criterion.arm, "nothing was measured", False))
            continue
        met = value >= limit if criterion.at_least else value <= limit
        shown = {"value": criterion.shown.format(value), "limit": criterion.shown.format(limit)}
        result.append(Verdict(criterion.arm, criterion.text.format(**shown), met))
    return result
