# SPDX-License-Identifier: Apache-2.0
"""What a live experiment is: flows over time on links of the user's choosing, one run of each arm, shown while it
runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from topologies.profiles import LinkProfile

Summary = dict[str, Any]


@dataclass(frozen=True)
class Phase:
    """A part of the run, as fractions of its length."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Flow:
    """TCP transfers between a station and the server, from `start` to `end` (fractions of the run's length).

    quantity: the name of its samples, as `downlink_mbps`. phases: the phases that the summary gives it a figure for.
    """

    quantity: str
    direction: Literal["down", "up"]
    start: float
    end: float
    phases: tuple[str, ...]
    station: int = 1
    streams: int = 1


@dataclass(frozen=True)
class Arm:
    """One setting of the experiment. `features` are those of topologies.network.Features, by name."""

    name: str
    label: str
    features: dict[str, Any]


@dataclass(frozen=True)
class Criterion:
    """A figure of one arm and the limit that it should keep.

    value: from that arm's summary. limit: from the link profile and the congestion control; None where the criterion
    says nothing. text: what it means when kept, with {value} and {limit}; shown: how both are printed. elsewhere: other
    limits on some targets, by the target's name.
    """

    arm: str
    text: str
    value: Callable[[Summary], float]
    limit: Callable[[LinkProfile, str], float | None]
    at_least: bool
    shown: str
    elsewhere: dict[str, Callable[[LinkProfile, str], float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class LiveExperiment:
    """A question, the traffic that asks it, and the arms that answer.

    access_points: more than one needs radios. walk: when the first station walks from the first to the last of them, as
    fractions of the run's length. Flows of one quantity are summed up.
    """

    name: str
    title: str
    phases: tuple[Phase, ...]
    busy_phase: str  # the phase whose delay and throughput the experiment is about
    flows: tuple[Flow, ...]
    arms: tuple[Arm, ...]
    criteria: tuple[Criterion, ...]
    stations: int = 1
    seconds: int = 24
    access_points: int = 1
    walk: tuple[float, float] | None = None

    def flow_name(self, flow: Flow) -> str:
        """`downlink`, or `downlink of sta3` where several flows are summed up."""
        several = sum(other.quantity == flow.quantity for other in self.flows) > 1
        return flow.quantity.removesuffix("_mbps") + (f" of sta{flow.station}" if several else "")

    def phase(self, name: str) -> Phase:
        return next(phase for phase in self.phases if phase.name == name)
