# SPDX-License-Identifier: Apache-2.0
"""The runs of an experiment: every arm at every point, in several repeats, in an order that favours none."""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from accesspoint.experiments.experiment import Experiment, Point, Value
from accesspoint.experiments.lab import in_ns3
from accesspoint.experiments.runs import registry
from accesspoint.experiments.scenes.scene import AccessPoint
from accesspoint.topologies.kernels.kernel import CLOCKS, REAL, SIMULATED, VIRTUAL, of_virtual_time
from accesspoint.topologies.links.profiles import ProfileError
from accesspoint.topologies.requirements import LabError

MIN_SECONDS, MAX_SECONDS = 4.0, 7200.0
MAX_REPEATS = 1000
OVERHEAD, SOLO_OVERHEAD = 5.0, 9.0  # s that a lab takes to come up and go; one in a user-mode kernel
PER_CORE = 3.5  # runs of a load of 1: five of ten stations each, 6.8, were fit seven times of eight on two
SIMULATED_PACE = 1.0  # as much, of a second in ns-3: a cell of ten busy stations
VIRTUAL_PACE = 2.0  # s that a second of virtual time is planned to take of one core; a busy one takes up to 4

Words = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Order:
    """One run to be made. attempt: 1, or 2 when the first one was unfit. setting: of the plan."""

    experiment: str
    arm: str
    point: Point
    repeat: int
    seconds: float
    target: str
    attempt: int = 1
    clock: str = REAL
    setting: Mapping[str, Value] = field(default_factory=dict)

    def declared(self) -> Experiment:
        return registry.under(self.experiment, self.setting, self.target)

    @property
    def id(self) -> str:
        """Name of the run's folder: `ours_n=4_1`; a comma would part a link's settings where a trace lies in it."""
        words = [self.arm, *(f"{name}={value}" for name, value in self.point.items()), str(self.repeat)]
        return "_".join(words) + ("" if self.attempt == 1 else "+again")

    @property
    def key(self) -> str:
        """Name of the run among the runs of all experiments."""
        return f"{self.experiment}/{self.id}"

    @property
    def seed(self) -> int:
        """Seed of the run, one for all arms at a point and repeat: they meet the same chance."""
        words = f"{self.experiment} {sorted(self.point.items())} {self.repeat}"
        return int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big")


@dataclass(frozen=True)
class Plan:
    """Arguments of `run`, as kept with the results. seconds: None is the form's. clock: REAL or VIRTUAL. setting: links
    of the user's own, by the options' names (accesspoint.experiments.experiment.Setting)."""

    experiment: str
    quick: bool
    arms: tuple[str, ...]
    repeats: int
    seconds: float | None = None
    target: str = "apswitch"
    clock: str = REAL
    setting: Mapping[str, Value] = field(default_factory=dict)

    def declared(self) -> Experiment:
        return registry.under(self.experiment, self.setting, self.target)

    @property
    def single(self) -> bool:
        """Return whether each arm runs once, on links of the user's own: unfit runs count, and are not repeated."""
        return self.repeats == 1 and self.declared().under is not None

    def orders(self) -> list[Order]:
        """The plan's runs, repeat by repeat, so that an interrupted plan has some of everything, and no arm has the
        quiet hours alone."""
        experiment = self.declared()
        return [
            Order(
                self.experiment, arm, point, repeat, self.length(experiment, arm, point), self.target,
                clock=self.clock, setting=self.setting,
            )
            for repeat in range(1, self.repeats + 1)
            for point in experiment.points(self.quick)
            for arm in self.arms
        ]  # fmt: skip

    def length(self, experiment: Experiment, arm: str, point: Point) -> float:
        """Seconds of a run."""
        quick = experiment.quick.seconds if self.quick else None
        return self.seconds or quick or experiment.scene_of(point, experiment.arm(arm)).seconds

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields | {"arms": tuple(fields["arms"])})


def make(
    experiment: Experiment,
    quick: bool,
    arms: Sequence[str] | None = None,
    repeats: int | None = None,
    seconds: float | None = None,
    target: str = "apswitch",
    clock: str | None = None,
    setting: Mapping[str, Value] | None = None,
) -> Plan:
    """The plan of a form, with what is given in place of its own. Raises ProfileError."""
    if clock not in (None, *CLOCKS):
        raise ProfileError(f"clock '{clock}' is unknown: choose one of {', '.join(CLOCKS)}")
    known = [arm.name for arm in experiment.arms]
    for name in arms or ():
        if name not in known:
            raise ProfileError(f"arm '{name}' is unknown: choose of {', '.join(known)}")
    if repeats is not None and not 1 <= repeats <= MAX_REPEATS:
        raise ProfileError(f"{repeats} repeats are not possible: give 1 to {MAX_REPEATS}")
    if seconds is not None and not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise ProfileError(f"{seconds:g} seconds are not possible: give {MIN_SECONDS:g} to {MAX_SECONDS:g}")
    form = experiment.quick.repeats if quick else experiment.repeats
    wanted = arms or (experiment.quick.arms if quick else ())
    chosen = tuple(name for name in known if not wanted or name in wanted)
    own = setting or {}
    return Plan(experiment.name, quick, chosen, repeats or form, seconds, target, clock or experiment.clock, own)


@dataclass(frozen=True)
class Needs:
    """A run's needs of a machine: its scene's `load` and `solo`. seconds: with the start and end of its lab."""

    seconds: float
    load: float
    solo: bool


def needs(order: Order) -> Needs:
    of = order.experiment, order.arm, tuple(order.point.items()), tuple(order.setting.items()), order.target
    load, solo = _load(*of)
    if order.clock == SIMULATED:
        return Needs(SIMULATED_PACE * order.seconds + OVERHEAD, PER_CORE, False)
    if order.clock == VIRTUAL:
        # A core of its own, and nothing that others do disturbs it. Who waits takes no time.
        return Needs(VIRTUAL_PACE * (min(1.0, load) * order.seconds + SOLO_OVERHEAD), PER_CORE, False)
    return Needs(order.seconds + (SOLO_OVERHEAD if solo else OVERHEAD), load, solo)


@functools.cache
def _load(name: str, arm: str, point: Words, setting: Words, target: str) -> tuple[float, bool]:
    experiment = registry.under(name, dict(setting), target)
    scene = experiment.scene_of(dict(point), experiment.arm(arm))
    return scene.load, scene.solo


def seconds(orders: Sequence[Order], side_by_side: int = 1) -> float:
    """Longest duration of runs, without those that have to be repeated."""
    all_ = [needs(order) for order in orders]
    if side_by_side == 1:
        return sum(each.seconds for each in all_)
    solo = sum(each.seconds for each in all_ if each.solo)
    # As many runs of a kind as there is room for: runs of another kind may use the places that are left, or none.
    return max(solo, sum(each.seconds / max(1, side_by_side // each.load) for each in all_))


def require(plan: Plan) -> None:
    """Raises LabError for an arm that cannot be, or a tool that is missing, before anything runs."""
    experiment = plan.declared()
    if plan.clock == VIRTUAL:
        of_virtual_time()
    _require_a_simulation(plan, experiment)
    for arm in (arm for arm in experiment.arms if arm.name in plan.arms):
        if plan.clock == VIRTUAL and arm.controls:
            raise LabError(
                f"arm '{arm.name}' loads congestion controls in BPF, which this kernel alone has: give CLOCK={REAL}"
            )
        for point in experiment.points(plan.quick):
            scene = experiment.scene_of(point, arm)
            if plan.clock == SIMULATED and isinstance(scene, AccessPoint):
                in_ns3.require(scene, arm, plan.target)
            else:
                scene.require(arm, plan.target)


def _require_a_simulation(plan: Plan, experiment: Experiment) -> None:
    """Raises LabError for a scene that ns-3 does not have, and for one that it alone has."""
    if plan.clock != SIMULATED and experiment.clock == SIMULATED:
        raise LabError(f"'{plan.experiment}' is a simulation: leave CLOCK={plan.clock} out")
    for arm in (arm for arm in experiment.arms if arm.name in plan.arms):
        scene = experiment.scene_of(next(experiment.points(plan.quick)), arm)
        if plan.clock == SIMULATED and not hasattr(scene, "simulate"):
            raise LabError(f"'{plan.experiment}' has no simulation: leave CLOCK={SIMULATED} out")
