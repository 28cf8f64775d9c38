# SPDX-License-Identifier: Apache-2.0
"""The papers' claims (`claims.toml`), and the rules R1 to R8 there that turn measured repeats into a word.

Pure but for `load`. `answers.toml` names the figures that answer a claim, and can move no limit.
"""

import hashlib
import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from accesspoint.experiments.measure.intervals import Interval, of_mean

FILE = Path(__file__).with_name("claims.toml")
MAX_BYTES = 1_000_000
LOW, HIGH = 0.8, 1.25
"""R1: how far from a printed number; R3: HIGH is what still counts as flat."""
MIN_REPEATS = {"quick": 5, "full": 10}
MIN_POINTS = 3
"""R5."""

Word = Literal["reproduced", "contradicted", "undecided", "not measured"]
WORDS: tuple[Word, ...] = ("reproduced", "contradicted", "undecided", "not measured")
WEIGHT: tuple[Word, ...] = ("contradicted", "undecided", "not measured", "reproduced")
"""Weight of words, the heaviest first: several words together have that of the heaviest."""

Text = Annotated[str, Field(min_length=1, max_length=1000)]
Number = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False, strict=True)]
Label = Annotated[str, Field(min_length=1, max_length=200)]
Point = Label | Annotated[int, Field(strict=True)] | Number
Side = Label | Annotated[tuple[Label, ...], Field(min_length=2, max_length=10)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Beat(_Model):
    """A result that would be "better than the paper". No claim of a paper, and no part of a word."""

    sense: Literal["at least", "at most"]
    value: Number
    unit: Text


CITED = {
    "000": "Kim et al. 2018",
    "001": "Jung and Park 2016",
    "002": "Hayakawa et al. 2017",
    "003": "Amezcua et al. 2017",
    "004": "Ando et al.",
}  # docs/papers.md


class Claim(_Model):
    """One checkable statement; the fields are those that the head of `claims.toml` describes."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,100}$")]
    paper: Literal["000", "001", "002", "003", "004"]
    figure: Text
    quote: Text
    setting: Text
    measure: Text
    kind: Literal["number", "ratio", "order", "trend", "bound"]
    arms: Annotated[tuple[Side, ...], Field(min_length=1, max_length=10)]
    needs: Text
    value: Number | None = None
    values: Annotated[tuple[Number, ...], Field(min_length=1, max_length=20)] | None = None
    low: Number | None = None
    high: Number | None = None
    sense: Literal["higher", "lower"] | None = None
    axis: Text | None = None
    points: Annotated[tuple[Point, ...], Field(min_length=1, max_length=20)] = ()
    direction: Literal["rises", "falls", "flat", "depends"] | None = None
    beat: Beat | None = None
    why: Text | None = None
    note: Text | None = None

    @model_validator(mode="after")
    def _says_what_its_kind_needs(self) -> Self:
        given = {name for name in ("value", "values", "sense", "direction") if getattr(self, name) is not None}
        ends = self.low is not None, self.high is not None
        match self.kind:
            case "number":
                fits = given == set() if all(ends) else given in ({"value"}, {"values"}) and not any(ends)
                fits = fits and (self.values is None or len(self.values) == len(self.points))
            case "ratio":
                fits = given == {"value"} and not any(ends) and len(self.arms) == 2
            case "order":
                fits = given == {"sense"} and not any(ends) and len(self.arms) == 2
            case "trend":
                fits = given == {"direction"} and not any(ends) and self.axis is not None
            case "bound":
                fits = given == set() and any(ends)
        if not fits:
            raise ValueError(f"a claim of kind {self.kind} needs its own figures, and no others")
        return self

    @property
    def points_are_arms(self) -> bool:
        return bool(self.points) and tuple(self.points) == tuple(self.arms)

    @property
    def sides(self) -> list[str]:
        return [name for side in self.arms for name in names(side)]

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of an order or a ratio: every arm of the first side with every one of the second."""
        first, second = self.arms
        return list(itertools.product(names(first), names(second)))

    @property
    def printed(self) -> str:
        """The paper's statement, in short."""
        match self.kind:
            case "number" | "ratio":
                ends = [f"{self.low:g} to {self.high:g}"] if self.low is not None and self.high is not None else []
                given = self.values or ([] if self.value is None else [self.value])
                text = ", ".join([*(f"{value:g}" for value in given), *ends])
                return f"{text} (ratio)" if self.kind == "ratio" else text
            case "order":
                first, second = (" and ".join(names(side)) for side in self.arms)
                return f"{first} {self.sense} than {second}"
            case "trend":
                return f"{self.direction} over {self.axis}"
        return " and ".join(
            [*([f"at least {self.low:g}"] if self.low is not None else []),
             *([f"at most {self.high:g}"] if self.high is not None else [])]
        )  # fmt: skip


def names(side: Side) -> tuple[str, ...]:
    return (side,) if isinstance(side, str) else side


@cache
def load(path: Path = FILE) -> tuple[Claim, ...]:
    """Read the claims of a file. Raises ValueError for a file that does not hold claims only."""
    text = path.read_bytes()
    if len(text) > MAX_BYTES:
        raise ValueError(f"{path}: more than {MAX_BYTES} bytes")
    document = tomllib.loads(text.decode())
    if set(document) != {"claim"}:
        raise ValueError(f"{path}: it has other parts than claims")
    claims = tuple(Claim.model_validate(claim) for claim in document["claim"])
    if len({claim.id for claim in claims}) != len(claims):
        raise ValueError(f"{path}: duplicate id")
    return claims


@cache
def sha256(path: Path = FILE) -> str:
    """Checksum that results carry: a result does not count for claims that were changed since."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Repeats:
    """A figure of each repeat. Two are put together repeat by repeat, which had the same seed. form: quick or full."""

    values: Mapping[int, float]
    form: str = "full"

    def together(self, other: "Repeats", how: Callable[[float, float], float]) -> "Repeats":
        """Combine the values of each repeat that both have."""
        both = sorted(self.values.keys() & other.values.keys())
        form = "quick" if "quick" in (self.form, other.form) else "full"
        return Repeats({number: how(self.values[number], other.values[number]) for number in both}, form)

    def __add__(self, other: "Repeats") -> "Repeats":
        return self.together(other, lambda a, b: a + b)

    def __sub__(self, other: "Repeats") -> "Repeats":
        return self.together(other, lambda a, b: a - b)

    def __truediv__(self, other: "Repeats") -> "Repeats":
        return self.together(other, lambda a, b: a / b if b else float("inf") if a else float("nan"))

    def __mul__(self, factor: float) -> "Repeats":
        return Repeats({number: factor * value for number, value in self.values.items()}, self.form)

    def interval(self) -> Interval | None:
        return of_mean([self.values[number] for number in sorted(self.values)])


Answer = Callable[[str, Point | None], Repeats | None]
"""Function of an arm and a point, both as the claim calls them, to their figures; None: not measured."""


@dataclass(frozen=True)
class Condition:
    """A part of a claim that has a word of its own; where: arm and point."""

    where: str
    word: Word
    interval: Interval


@dataclass(frozen=True)
class Judgement:
    """A claim's word. word: R6. why: what is missing, or at how many of the paper's points it was measured."""

    word: Word
    conditions: tuple[Condition, ...] = ()
    why: str = ""


def judge(claim: Claim, answer: Answer) -> Judgement:
    """Judge a claim whose needs the lab has."""
    try:
        points, short = _points(claim, answer)
        conditions = tuple(_trends(claim, answer, points) if claim.kind == "trend" else _each(claim, answer, points))
    except _Missing as missing:
        return Judgement("not measured", why=str(missing))
    return Judgement(_all([condition.word for condition in conditions]), conditions, short)


def together(parts: Mapping[str, Judgement]) -> Judgement:
    """Judge a claim by its parts, by name, all of which are needed."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    conditions = [replace(one, where=f"{name}: {one.where}") for name, part in parts.items() for one in part.conditions]
    why = "; ".join(dict.fromkeys(part.why for part in parts.values() if part.why))
    return Judgement(_all([part.word for part in parts.values()]), tuple(conditions), why)


class _Missing(Exception):
    """A figure that was not measured."""


def _points(claim: Claim, answer: Answer) -> tuple[list[Point | None], str]:
    """The points that were run, and a word if they are not all (R5). Raises _Missing."""
    if not claim.points:
        return [None], ""
    run: list[Point | None] = []
    for point in claim.points:
        arms = [str(point)] if claim.points_are_arms else claim.sides
        found = [answer(arm, point) for arm in arms]
        if all(found):
            run.append(point)
        if any(each and each.form == "full" for each in found) and not all(found):
            raise _Missing(f"{point} was not run")
    missing = [str(point) for point in claim.points if point not in run]
    if not missing:
        return run, ""
    ends = claim.points[0] in run and claim.points[-1] in run
    quick = all(
        each.form == "quick" for point in run for arm in claim.sides if (each := answer(arm, point)) is not None
    )
    if not run or not quick or len(run) < MIN_POINTS or not ends:
        raise _Missing(f"not run: {', '.join(missing)}")
    return run, f"at {len(run)} of {len(claim.points)} points"


def _interval(measured: Repeats | None, where: str) -> Interval:
    """Raises _Missing where too few repeats were made (R5)."""
    least = MIN_REPEATS[measured.form] if measured else 0
    if measured is None or len(measured.values) < least:
        made = len(measured.values) if measured else 0
        raise _Missing(f"{where}: {made} repeats of {least}" if measured else f"{where} was not run")
    found = measured.interval()
    if found is None or found.value != found.value:
        raise _Missing(f"{where} has no figure")
    return found


def _each(claim: Claim, answer: Answer, points: Sequence[Point | None]) -> Iterator[Condition]:
    for point in points:
        at = "" if point is None else f" at {point}"
        if claim.kind in ("order", "ratio"):
            for first, second in claim.pairs():
                one, other = answer(first, point), answer(second, point)
                if one is None or other is None:
                    raise _Missing(f"{first if one is None else second}{at} was not run")
                taken = one - other if claim.kind == "order" else one / other
                where = f"{first} {'less' if claim.kind == 'order' else 'over'} {second}{at}"
                found = _interval(taken, where)
                yield Condition(where, order(claim, found) if claim.kind == "order" else number(claim, found), found)
            continue
        for arm in [str(point)] if claim.points_are_arms else claim.sides:
            where = arm if claim.points_are_arms else f"{arm}{at}"
            found = _interval(answer(arm, point), where)
            yield Condition(where, bound(claim, found) if claim.kind == "bound" else number(claim, found, point), found)


def _trends(claim: Claim, answer: Answer, points: Sequence[Point | None]) -> Iterator[Condition]:
    if len(points) < 2:
        raise _Missing("a trend takes two points at least")
    for arm in ["each"] if claim.points_are_arms else claim.sides:
        own = [str(point) if claim.points_are_arms else arm for point in points]
        found = [_interval(answer(name, point), f"{name} at {point}") for name, point in zip(own, points, strict=True)]
        word = trend(claim, found)
        for name, point, interval in zip(own, points, found, strict=True):
            yield Condition(name if claim.points_are_arms else f"{name} at {point}", word, interval)


def number(claim: Claim, found: Interval, point: Point | None = None) -> Word:
    """R1, for a ratio too."""
    low, high = claim.low, claim.high
    if low is None or high is None:
        low = high = claim.value if claim.values is None or point is None else claim.values[claim.points.index(point)]
    assert low is not None and high is not None
    low, high = LOW * low, HIGH * high
    if not found.overlaps(low, high):
        return "contradicted"
    return "undecided" if found.low < low and found.high > high else "reproduced"


def order(claim: Claim, difference: Interval) -> Word:
    """R2, of the first side less the second."""
    if difference.low <= 0 <= difference.high:
        return "undecided"
    return "reproduced" if (difference.low > 0) == (claim.sense == "higher") else "contradicted"


def trend(claim: Claim, found: Sequence[Interval]) -> Word:
    """R3, over the points in the paper's order."""
    if claim.direction in ("flat", "depends"):
        least, most = (how(found, key=lambda each: each.value) for how in (min, max))
        flat = most.value == least.value or 0 < most.value <= HIGH * least.value
        apart = not most.overlaps(least.low, least.high)
        if claim.direction == "flat":
            return "reproduced" if flat else "contradicted" if apart else "undecided"
        return "contradicted" if flat else "reproduced" if apart else "undecided"
    from scipy.stats import spearmanr  # takes a second

    values = [each.value for each in found]
    if len(set(values)) == 1 or found[0].overlaps(found[-1].low, found[-1].high):
        return "undecided"
    sign = 1 if claim.direction == "rises" else -1
    rank = sign * float(spearmanr(range(len(values)), values).statistic)
    ends = sign * (found[-1].value - found[0].value)
    if rank > 0 and ends > 0:
        return "reproduced"
    return "contradicted" if rank < 0 and ends < 0 else "undecided"


def bound(claim: Claim, found: Interval) -> Word:
    """R4."""
    low = float("-inf") if claim.low is None else claim.low
    high = float("inf") if claim.high is None else claim.high
    if low <= found.low and found.high <= high:
        return "reproduced"
    return "undecided" if found.overlaps(low, high) else "contradicted"


def _all(words: Sequence[Word]) -> Word:
    """All parts of a claim are needed: one that is contradicted contradicts it."""
    return next(word for word in WEIGHT if word in words)


def figures(judged: Mapping[str, Word], claims: Sequence[Claim]) -> dict[tuple[str, str], Word]:
    """R6: a figure is reproduced when all of its claims are; else it has the weightiest of their words."""
    words: dict[tuple[str, str], list[Word]] = {}
    for claim in claims:
        words.setdefault((claim.paper, claim.figure), []).append(judged[claim.id])
    return {figure: _all(own) for figure, own in words.items()}
