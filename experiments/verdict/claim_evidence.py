# SPDX-License-Identifier: Apache-2.0
"""Figures of experiments that answer a claim (`answers.toml`), and what is missing for the other claims. Limits are the
claims' alone."""

import functools
import itertools
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from accesspoint.experiments.experiment import Value
from accesspoint.experiments.verdict.claims import Answer, Claim, Point, Repeats

FILE = Path(__file__).with_name("answers.toml")
_TAKEN = re.compile(r"@(point|arm|arm1|1|2)(?:\*(\d+))?(?: (\d+))?")
OPERANDS: Mapping[str, Callable[[Repeats, Repeats], Repeats]] = {"less": operator.sub, "over": operator.truediv}


class Measured(Protocol):
    """A figure of an experiment's arm at a point of the experiment; None: it was not run."""

    def __call__(self, experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None: ...


Answers = Callable[[Measured, str, Point | None], Repeats | None]
"""Function of measured figures, and of an arm and a point as the claim calls them, to the claim's figure."""
Spec = Mapping[str, Any]

_DATA = tomllib.loads(FILE.read_text())
_MAPS, _KINDS, INSTEAD = _DATA["maps"], _DATA["kinds"], _DATA["instead"]
MISSING: Mapping[str, str] = _DATA["missing"]
LACKS: Mapping[str, Sequence[str]] = _DATA["lacks"]
HAS = frozenset(_DATA["has"]["parts"])
POINTS: Mapping[str, Sequence[Point]] = _DATA["points"]


def joined(base: Spec, own: Spec) -> dict[str, Any]:
    """Return a figure's fields with others in their place; points are joined, and an empty one is none."""
    point = own.get("point", {})
    points = {**base.get("point", {}), **point} if point or "point" not in own else {}
    return {**base, **own, "point": points}


def whole(spec: Spec) -> dict[str, Any]:
    """Return a figure's fields with those of its kinds."""
    base = whole(_KINDS[spec["like"]]) if "like" in spec else {}
    return joined(base, {name: value for name, value in spec.items() if name != "like"})


def figure(spec: Spec, measured: Measured, name: str, point: Point | None) -> Repeats | None:
    """The figure that a claim's arm has at a point of the claim."""
    plain = {
        field: value for field, value in spec.items() if field not in (*OPERANDS, "factor", "where", "else", "form")
    }
    if "first" in spec:
        found = _first(spec, measured, name, point)
        return found * spec.get("factor", 1) if found is not None else None
    found = _several(plain, measured, name, point)
    if found is not None and "where" in spec:
        found = _kept(found, _several(joined(plain, spec["where"]), measured, name, point), spec["where"]["least"])
    for word, how in OPERANDS.items():
        if found is not None and word in spec and name != spec[word].get("not"):
            other = figure(joined(plain, spec[word]), measured, name, point)
            found = how(found, other) if other is not None else None
    if found is not None and "factor" in spec:
        found = found * _chosen(spec["factor"], name, point)
    if found is not None and spec.get("form", found.form) == found.form:
        return found
    return figure(joined({**spec, "else": None}, spec["else"]), measured, name, point) if spec.get("else") else None


def _first(spec: Spec, measured: Measured, name: str, point: Point | None) -> Repeats | None:
    """In each repeat the first value of the point's field `first` at which the figure is above 0, or the last value."""
    field = spec["first"]
    values = spec["point"][field]
    plain = {key: value for key, value in spec.items() if key not in ("first", "factor")}
    found = [figure(joined(plain, {"point": {field: value}}), measured, name, point) for value in values]
    there = [one for one in found if one is not None]
    if len(there) < len(values):
        return None
    above: dict[int, float] = {}
    for number in sorted(set.intersection(*(set(one.values) for one in there))):
        pairs = zip(values, there, strict=True)
        above[number] = next((value for value, one in pairs if one.values[number] > 0), values[-1])
    return Repeats(above, there[0].form)


def _several(spec: Spec, measured: Measured, name: str, point: Point | None) -> Repeats | None:
    """The mean, sum or whatever it is of the figures of every arm, and of every point of one; None where some are not
    there."""
    arms, measure = _listed(_chosen(spec["arm"], name, point)), _chosen(spec["measure"], name, point)
    values = {key: _listed(_chosen(each, name, point)) for key, each in spec["point"].items()}
    if measure is None or None in (*arms, *itertools.chain.from_iterable(values.values())):
        return None
    experiment, how = spec["experiment"].format(point=point), HOW[spec.get("how", "mean")]
    of_arms = []
    for arm in arms:
        at = (dict(zip(values, each, strict=True)) for each in itertools.product(*values.values()))
        of_arms.append(_together([measured(experiment, measure, arm, **each) for each in at], how, spec.get("missing")))
    return _together(of_arms, how) if len(arms) > 1 else of_arms[0]


def _together(
    found: Iterable[Repeats | None], how: Callable[[Sequence[Repeats]], Repeats], missing: str | None = None
) -> Repeats | None:
    figures = [*found]
    there = [one for one in figures if one is not None]
    return how(there) if there and (missing == "run" or len(there) == len(figures)) else None


def _mean(found: Sequence[Repeats]) -> Repeats:
    return functools.reduce(operator.add, found) * (1 / len(found)) if len(found) > 1 else found[0]


def _spread(found: Sequence[Repeats]) -> Repeats:
    """Range over mean of each point's repeats, which takes the place of a repeat."""
    values = (one.values.values() for one in found)
    ranges = {number: (max(own) - min(own)) / fmean(own) for number, own in enumerate(values, start=1) if own}
    return Repeats(ranges, found[0].form)


def _best(found: Sequence[Repeats]) -> Repeats:
    return max(found, key=lambda one: fmean(one.values.values()) if one.values else 0.0)


HOW: Mapping[str, Callable[[Sequence[Repeats]], Repeats]] = {
    "mean": _mean,
    "sum": lambda found: functools.reduce(operator.add, found),
    "most": lambda found: functools.reduce(lambda one, other: one.together(other, max), found),
    "best": _best,
    "spread": _spread,
}


def _kept(found: Repeats, other: Repeats | None, least: float) -> Repeats | None:
    return found.together(other, lambda own, of: own if of >= least else 0.0) if other is not None else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _chosen(field: Any, name: str, point: Point | None) -> Any:
    """The value of a field for a claim's arm and point; None: it has none for them."""
    if isinstance(field, str) and field.startswith("$"):
        field = _MAPS[field[1:]]
    if isinstance(field, Mapping):
        words = [name, str(point), *name.split(), *str(point).split(), "*"]
        field = next((field[word] for word in words if word in field), None)
    if isinstance(field, str) and (taken := _TAKEN.fullmatch(field)):
        return _taken(name, point, *taken.groups())
    return field


def _taken(name: str, point: Point | None, what: str, factor: str | None, otherwise: str | None) -> Value | None:
    """The claim's own word for its arm or point, or a part of it; a number where it is one."""
    words = name.split() if what == "arm1" else re.split(r"[x ]", str(point)) if what in "12" else []
    own = {"point": point, "arm": name}.get(what) if not words else words[int(what[-1]) - 1]
    own = otherwise if own is None else own
    try:
        return None if own is None else int(float(own)) * int(factor or 1)
    except ValueError:
        return str(own)


def _parts(spec: Spec) -> dict[str, Answers]:
    """Measure -> its figure, where several measures have to hold; else a single figure under the empty name."""
    plain = {field: value for field, value in spec.items() if field != "each"}
    parts = {measure: {**plain, "measure": measure} for measure in spec["each"]} if "each" in spec else {"": plain}
    return {name: functools.partial(figure, whole(own)) for name, own in parts.items()}


ANSWERS = {name: _parts(spec) for name, spec in _DATA["answers"].items()}
BEATEN = {name: functools.partial(figure, whole(spec)) for name, spec in _DATA["beats"].items()}
"""This access point's figure, or this project's scheduler's, for a claim's `beat`, at each of the claim's points if it
has some."""


def asked(claim: Claim) -> frozenset[str]:
    """The experiments whose figures answer a claim, also where others were not run."""
    claim = placed(claim)
    names: set[str] = set()

    def run(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
        names.add(experiment)
        return Repeats({})

    def not_run(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
        names.add(experiment)
        return None

    for part in ANSWERS.get(claim.id, {}).values():
        for point in claim.points or (None,):
            for arm in [str(point)] if claim.points_are_arms else claim.sides:
                for measured in (run, not_run):
                    part(measured, arm, point)
    return frozenset(names)


def placed(claim: Claim) -> Claim:
    """Return the claim with points of its axis, where it names none itself."""
    return claim.model_copy(update={"points": tuple(POINTS[claim.id])}) if claim.id in POINTS else claim


def lacking(claim: Claim) -> list[str]:
    """Things that a claim needs and the lab lacks."""
    asked = {part.strip() for part in claim.needs.split(";")}
    return [what for what, parts in LACKS.items() if asked & set(parts)]


def answers(claim: Claim, measured: Measured) -> dict[str, Answer]:
    """Functions of an arm and a point to the claim's figures, by the measure where several have to hold; empty: no
    experiment has them."""
    found = ANSWERS.get(claim.id, {})
    return {name: functools.partial(part, _or_instead(measured)) for name, part in found.items()}


def _or_instead(measured: Measured) -> Measured:
    """Measured figures; of an arm that was not run, those of another one (`instead`)."""

    def found(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
        own = measured(experiment, measure, arm, **point)
        return measured(experiment, measure, INSTEAD[arm], **point) if own is None and arm in INSTEAD else own

    return found
