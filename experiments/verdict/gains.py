# SPDX-License-Identifier: Apache-2.0
"""This access point beside a paper's proposal, and beside a peer: CAKE with its ACK filter, or kernel MPTCP. No claim
of a paper, and no part of a word. Both sides are arms of one experiment, so that a repeat of both had one seed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from accesspoint.experiments.catalogue.ncr import lte, wimax
from accesspoint.experiments.experiment import Point, Value
from accesspoint.experiments.measure.intervals import Interval
from accesspoint.experiments.runs import registry
from accesspoint.experiments.verdict.claims import MIN_REPEATS, Repeats

OURS = "ours"
Measured = Callable[..., Repeats | None]
"""A figure: experiment, measure, arm, and the point as names."""


@dataclass(frozen=True)
class Gain:
    """A comparison with another arm. other: the arm beside ours; measures: of the experiment."""

    paper: str
    experiment: str
    other: str
    measures: tuple[str, ...]
    points: tuple[Mapping[str, Value], ...] = field(default=({},))


_WHILE_BOTH_RUN = ("download_during", "upload_during", "total_during", "ping_during")
_NCR = ("ncr-uplink", "ncr-paper")
_TRANSFERS = tuple(
    {"links": links, "bytes": size} for links in ("adsl-adsl", "adsl-hspa-bursts") for size in (5_000_000, 10_000_000)
)
GAINS = (
    *(Gain("000", f"ncr-{link}", arm, _WHILE_BOTH_RUN) for link in ("testbed", "wlan", "wimax", "lte") for arm in _NCR),
    *(Gain("000", "cell-lte", arm, _WHILE_BOTH_RUN, (lte.AT,)) for arm in _NCR),
    *(Gain("000", "cell-wimax", arm, _WHILE_BOTH_RUN, (wimax.AT,)) for arm in _NCR),
    Gain("000", "peers-testbed", "cake-ack-filter", ("download_during", "upload_during", "ping_mean")),
    *(Gain("003", "batcp", other, ("throughput",), _TRANSFERS) for other in ("paper", "mptcp")),
)


def rows(paper: str, measured: Measured) -> Iterator[list[str]]:
    """Rows of a table: the measure and its experiment; the other arm; its figure, ours, and ours over the other with
    Student's interval."""
    for gain in (gain for gain in GAINS if gain.paper == paper):
        experiment = registry.find(gain.experiment)
        for point in gain.points:
            for name in gain.measures:
                measure = experiment.measure(name)
                ours, theirs = (measured(experiment.name, name, arm, **point) for arm in (OURS, gain.other))
                if ours is None or theirs is None:
                    continue
                over = ours / theirs
                if len(over.values) >= MIN_REPEATS[over.form]:
                    at = _at(point)
                    what = f"{measure.heading}, [{experiment.name}]({experiment.name}.md){at}"
                    figures = (shown(each.interval()) for each in (theirs, ours, over))
                    yield [what, experiment.arm(gain.other).label, *figures]


def _at(point: Point) -> str:
    return f" at {', '.join(f'{name} {value}' for name, value in point.items())}" if point else ""


def shown(interval: Interval | None) -> str:
    """`13.4 (13.3 to 13.5)`"""
    return f"{interval.value:.4g} ({interval.low:.4g} to {interval.high:.4g})" if interval else ""
