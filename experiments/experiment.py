# SPDX-License-Identifier: Apache-2.0
"""Experiments declared as data: a question that a paper asked, the labs and the traffic that ask it again, the arms
that answer, and the figures that the paper reports. The paper's claims (accesspoint.experiments.verdict.claims), which
no experiment can move, judge the results; where no paper claims anything, the experiment's own goals do.

Nothing here imports a lab: experiments can be listed, and their results reported, anywhere. Times are seconds of the
paper's timeline; a quick form runs the same timeline in less time (`Quick.seconds`).
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from accesspoint.experiments.measure.run_data import Point as Point
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.run_data import Value as Value
from accesspoint.topologies import targets
from accesspoint.topologies.kernels.kernel import REAL
from accesspoint.topologies.lab_kinds import WIRED
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile, link_profile

if TYPE_CHECKING:
    from accesspoint.topologies.kernels.kernel import Kernel

PLAIN: Mapping[str, Any] = {"ack_priority": False, "ack_filter": False, "sparse": False, "ncr": False}
OURS: Mapping[str, Any] = {"ack_priority": True, "ack_filter": True, "sparse": True, "ncr": True}

ECN = "ecn"
"""Name of a swept parameter that is every host's: "on" or "off"."""

SEED = "seed"
"""Name of a swept parameter of one value, from which the points of an experiment are drawn: `run --seed` sets it."""


@dataclass(frozen=True)
class Arm:
    """One setting of the experiment.

    role: `plain` is what the paper improves on, `paper` its proposal, `peer` what others offer for the same, `ours`
    this access point.
    features: accesspoint.topologies.features.Features by name. controller: more of an access point's configuration, as
    {"ncr": {"alpha": 0.1}, "ports": {"station": {"regulated": False}}} (accesspoint.topologies.features.configured).
    cc, ecn: TCP of every host; a flow may choose another cc. controls: congestion controls in BPF that the arm needs,
    as `hosts cc load` takes them: ("vegas_fair introduction=100000",); their name for `cc` is "bpf_vegas_fair".
    options: for the experiment's own code.
    """

    name: str
    label: str
    role: Literal["plain", "paper", "peer", "ours"] = "ours"
    features: Mapping[str, Any] = field(default_factory=lambda: PLAIN)
    controller: Mapping[str, Any] = field(default_factory=dict)
    cc: str = "cubic"
    ecn: bool = True
    controls: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class Traffic(Protocol):
    """Something that happens in a scene: flows, sessions, programs, events (accesspoint.experiments.scenes.scene)."""

    def prepare(self, stage: Any) -> None:
        """Called in the running lab, before the clock starts: starts listeners and plans what happens when. stage: an
        accesspoint.experiments.lab.stage.Stage. A part may also have `needless(directory, point, repeat)`, which says
        whether a repeat has nothing to do, by what earlier ones left beside its folder."""


class Scene(Protocol):
    """A topology and the traffic in it (accesspoint.experiments.scenes.scene: AccessPoint, Multihomed)."""

    @property
    def seconds(self) -> float:
        """Length of the timeline."""

    @property
    def traffic(self) -> tuple[Traffic, ...]: ...

    def require(self, arm: Arm, target: str) -> None:
        """Raises LabError for an arm that cannot be, or a tool that is missing."""

    @property
    def load(self) -> float:
        """Load on a machine; the lab of one station takes 1."""

    @property
    def solo(self) -> bool:
        """Return whether two such runs disturb each other on one machine, whatever it has."""

    @property
    def early(self) -> float:
        """s before the clock's start at which flows of the timeline's beginning start."""

    def kernel(self) -> "Kernel | None":
        """The kernel that every run needs in place of the running one. Raises LabError when there is none."""

    def lab(self, arm: Arm, target: str, directory: Any, seed: int | None = None) -> Any:
        """Return a context manager: the lab of one run, up between its ends. seed: of all chance in its links and
        switches; None: another one each time."""


@dataclass(frozen=True)
class Measure:
    """A figure of one run, computed from its raw data; accesspoint.experiments.measure.run_data has the usual ones.

    text: what it is, for people. shown: how it is printed.
    """

    name: str
    unit: str
    text: str
    of: Callable[[Raw], float | None]
    shown: str = "{:.2f}"

    @property
    def heading(self) -> str:
        """Text with the unit; a ratio or a number has none."""
        return self.text if self.unit in ("", "1") else f"{self.text} ({self.unit})"


@dataclass(frozen=True)
class Reported:
    """A figure that the paper reports of a measure, and where: "Fig. 14". arm: the one of ours that does what the paper
    did, or a name of its own. value: a number, or the ends of a range, in the measure's unit. where: also "text,
    section 4"."""

    measure: str
    arm: str
    value: float | tuple[float, float]
    where: str
    point: Point = field(default_factory=dict)

    @property
    def middle(self) -> float:
        return sum(self.value) / 2 if isinstance(self.value, tuple) else self.value


class Medians(Protocol):
    """The results as a goal sees them: those of one repeat. None: nothing was measured."""

    def __call__(self, measure: str, arm: str, **point: Value) -> Any: ...


@dataclass(frozen=True)
class Goal:
    """A condition in a comparison that no paper's claims decide.

    text: what it says when it holds, with {value} and {limit}, both printed as in `shown`. value: of a repeat's
    figures; where one of them was not measured, that repeat does not decide. One of at_least and at_most is given: the
    worse end of the interval over the repeats counts (accesspoint.experiments.verdict.goals). why: what is known of
    why it fails, for where it does.
    """

    text: str
    value: Callable[[Medians], Any]
    at_least: float | None = None
    at_most: float | None = None
    shown: str = "{:.2f}"
    why: str = ""


@dataclass(frozen=True)
class Timeline:
    """A panel per arm: samples over time, the paper's figures of `levels` (measure -> (start, end)) as dashed lines."""

    name: str
    caption: str
    sources: tuple[str, ...]
    quantity: str = "rate_mbps"
    label: str = "throughput (Mb/s)"
    arms: tuple[str, ...] = ()  # none: all
    levels: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    point: Point = field(default_factory=dict)
    log: bool = False


@dataclass(frozen=True)
class Bars:
    """A group of bars per arm, a bar per measure with its confidence interval, the paper's figure as a line across."""

    name: str
    caption: str
    measures: tuple[str, ...]
    label: str
    arms: tuple[str, ...] = ()
    point: Point = field(default_factory=dict)
    log: bool = False


@dataclass(frozen=True)
class Curves:
    """A measure over a swept parameter, a line per arm; the paper's figures as hollow markers."""

    name: str
    caption: str
    measure: str
    x: str
    xlabel: str
    label: str
    arms: tuple[str, ...] = ()
    point: Point = field(default_factory=dict)
    log_x: bool = False
    log: bool = False


@dataclass(frozen=True)
class Panels:
    """A column per arm, of one run each: rates of the sources above, downloads first, round trips below.

    told: of an arm, with its measures by name, as "keeps {kept:.0%}". levels: measure -> the part of the timeline over
    which its value is written. loaded: the part that is shaded, and said what it is. rate, rtt: of the empty links,
    Mb/s and ms.
    """

    name: str
    caption: str
    sources: tuple[str, ...]
    told: str
    levels: Mapping[str, tuple[float, float]]
    loaded: tuple[float, float]
    loaded_by: str
    rate: float
    rtt: float
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Distribution:
    """Cumulative share of a delay's samples within a part of the timeline (start, end) over time, a line per arm, of
    one run each. rtt: of the empty links (ms)."""

    name: str
    caption: str
    title: str
    within: tuple[float, float]
    rtt: float
    quantity: str = "ping_ms"
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Regulation:
    """Queue's delay (above) and feedback (below) as the controller saw and set them at the uplink in the last arm's
    run. Drawn where it fed something back. loaded: the part of the timeline that is shaded."""

    name: str
    caption: str
    loaded: tuple[float, float]
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scatter:
    """A point for each pair of an experiment's comparison (Compared.pairs), both axes logarithmic. ratio, added: of the
    line above which the second value is too large: ratio * first + added."""

    name: str
    caption: str
    xlabel: str
    label: str
    ratio: float = 1.0
    added: float = 0.0
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ranked:
    """Ratios of the pairs of an experiment's comparison (Compared.pairs), each group sorted, on a logarithmic axis: the
    second value over the first, in groups named in `inverted` the first over the second. level: ratios this near to 1
    are shaded."""

    name: str
    caption: str
    label: str
    inverted: tuple[str, ...] = ()
    level: float = 0.0
    arms: tuple[str, ...] = ()


Figure = Timeline | Bars | Curves | Panels | Distribution | Regulation | Scatter | Ranked


@dataclass(frozen=True)
class Grid:
    """A table of an experiment's page; text: what stands above it."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: str = ""


@dataclass(frozen=True)
class Pair:
    """Two values of one thing behind two arms. fails: it is drawn as a cross."""

    first: float
    second: float
    fails: bool = False


@dataclass(frozen=True)
class Compared:
    """The result of comparing all runs, where cells of measures cannot say it: verdicts (kind, word, text), tables for
    the page, and pairs for a Scatter or a Ranked by the name of their group."""

    verdicts: tuple[Mapping[str, str], ...] = ()
    grids: tuple[Grid, ...] = ()
    pairs: Mapping[str, Sequence[Pair]] = field(default_factory=dict)


@dataclass(frozen=True)
class Quick:
    """The quick form: the timeline within `seconds` (None: as long as ever), fewer repeats, fewer swept values, only
    some arms (none named: all)."""

    seconds: float | None = None
    repeats: int = 5
    arms: tuple[str, ...] = ()
    sweep: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """Choices of the user for an experiment on links of their own: the links, the congestion control of every host, the
    switch and the kind of lab (accesspoint.topologies.lab_kinds) by name, the model of its air, and whether its radios
    encrypt frames."""

    profile: LinkProfile = PROFILES["testbed"]
    cc: str = "cubic"
    target: str = targets.DEFAULT
    lab: str = WIRED
    air: str = "plain"
    wpa2: bool = False

    def describe(self) -> str:
        """Return the setting in words, as `testbed, 14/1 Mb/s, 4 ms, TCP cubic, wired`."""
        return f"{self.profile.name}, {self.profile.describe()}, TCP {self.cc}, {self.lab}"

    @classmethod
    def of(cls, words: Mapping[str, Value], target: str) -> "Setting":
        """Return the setting that options of the command line give, by their names. Raises ProfileError."""
        text = {name: str(value) for name, value in words.items()}
        return cls(
            link_profile(text.get("profile", "testbed"), text.get("down"), text.get("up"), text.get("rtt")),
            cc=text.get("cc", "cubic"),
            target=target,
            lab=text.get("lab", WIRED),
            air="wmediumd" if words.get("wmediumd") else "plain",
            wpa2=bool(words.get("wpa2")),
        )


@dataclass(frozen=True)
class Experiment:
    """One experiment of a paper.

    paper: its number (docs/hosts/README.md) and where, "000, sections 2 and 4.3, Fig. 1, 2, 14"; or "none: " and what
    it follows. question: what is asked, a sentence or two. scene: the same for all, or of a point and an arm. sweep:
    parameter -> values; every arm runs at every point, and `ecn` is every host's (arm_at). goals: none where claims
    decide. differences: how this lab differs from the paper's, for the report. clock: what keeps the time of its runs
    unless they are asked for otherwise; VIRTUAL where none needs BPF. apart: needs what set-up does not install, or
    takes long for one claim, and so is made when its name is given, and not with all. under: the same on links of the
    user's own; None: it names its own links. compared: what all fit runs come to together; its verdicts join those of
    goals. tally: the same from the medians at all points, for many points that count together: pages show its tables
    in place of a row for each. adapt: an arm as a point needs it; None: as it is declared (arm_at).
    """

    name: str
    title: str
    paper: str
    question: str
    arms: tuple[Arm, ...]
    scene: Scene | Callable[[Point, Arm], Scene]
    measures: tuple[Measure, ...]
    figures: tuple[Figure, ...]
    reported: tuple[Reported, ...] = ()
    goals: tuple[Goal, ...] = ()
    sweep: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    repeats: int = 10
    quick: Quick = Quick()
    differences: tuple[str, ...] = ()
    clock: str = REAL
    apart: bool = False
    under: Callable[[Setting], "Experiment"] | None = None
    compared: Callable[[Sequence[Raw]], Compared] | None = None
    tally: Callable[[Medians, Sequence[Point]], Compared] | None = None
    adapt: Callable[[Arm, Point], Arm] | None = None

    def scene_of(self, point: Point, arm: Arm) -> Scene:
        return self.scene(point, arm) if callable(self.scene) else self.scene

    def points(self, quick: bool = False) -> Iterator[Point]:
        """Every combination of the swept values, of the quick form's if it names some."""
        values = {**self.sweep, **(self.quick.sweep if quick else {})}
        for combination in itertools.product(*values.values()):
            yield dict(zip(values, combination, strict=True))

    @property
    def number(self) -> str:
        """The paper's number: `000`; or `none: ...`."""
        return self.paper.partition(",")[0]

    @property
    def asked_by(self) -> str:
        """Source of the figures in the comparison: `the paper`, or `earlier runs` where there is none."""
        return "earlier runs" if self.paper.startswith("none: ") else "the paper"

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def arm_at(self, name: str, point: Point) -> Arm:
        """Return an arm as it is at a point, where a swept `ecn` ("on" or "off") is that of every host."""
        arm = self.adapt(self.arm(name), point) if self.adapt else self.arm(name)
        return replace(arm, ecn=point[ECN] == "on") if ECN in point else arm

    @property
    def seed(self) -> int | None:
        """Seed from which the points are drawn; None: they are not drawn."""
        return int(self.sweep[SEED][0]) if SEED in self.sweep else None

    def of_seed(self, seed: int, name: str) -> "Experiment":
        """Return the same experiment under another name, with points drawn from another seed."""
        return replace(self, name=name, sweep={**self.sweep, SEED: (seed,)})

    def measure(self, name: str) -> Measure:
        return next(measure for measure in self.measures if measure.name == name)
