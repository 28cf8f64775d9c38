# SPDX-License-Identifier: Apache-2.0
"""Decide goals by the worse end of the interval over the repeats, and count verdicts. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from accesspoint.experiments.experiment import Goal, Medians, Point, Value
from accesspoint.experiments.measure.intervals import of_median
from accesspoint.experiments.verdict import claims

Cell = dict[str, Any]
Verdict = Literal["pass", "fail", "inconclusive", "not run"]
VERDICTS: tuple[Verdict, ...] = ("pass", "fail", "inconclusive", "not run")
"""Verdicts on goals. `inconclusive`: measured in too few repeats, or on a machine that could not decide it."""


MIN_REPEATS = 2
"""A single run varies by an unknown amount: it decides nothing."""


class Table:
    """The cells of a summary, by measure, arm and point."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = {(cell["measure"], cell["arm"], _key(cell["point"])): cell for cell in cells}

    def cell(self, measure: str, arm: str, point: Point) -> Cell | None:
        return self._cells.get((measure, arm, _key(point)))

    def __call__(self, measure: str, arm: str, **point: Value) -> float | None:
        """The median, or None."""
        cell = self.cell(measure, arm, point)
        return cell["median"] if cell else None

    def repeats(self) -> list[str]:
        return sorted({repeat for cell in self._cells.values() for repeat in cell["values"]}, key=int)

    def repeat(self, number: str) -> "Table":
        """Table of one repeat, whose arms had the same seed."""
        own = [cell for cell in self._cells.values() if number in cell["values"]]
        return Table([{**cell, "median": cell["values"][number]} for cell in own])


def _key(point: Point) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(point.items()))


@dataclass(frozen=True)
class Decision:
    """Figures that decide a goal. value: the median of the repeats; low, high: its interval, which a single repeat does
    not have; worse: the end that counts."""

    goal: Goal
    value: float
    low: float
    high: float
    n: int

    @property
    def limit(self) -> float:
        limit = self.goal.at_most if self.goal.at_least is None else self.goal.at_least
        assert limit is not None
        return limit

    @property
    def worse(self) -> float:
        return self.high if self.goal.at_least is None else self.low

    @property
    def holds(self) -> bool:
        return self.worse <= self.limit if self.goal.at_least is None else self.worse >= self.limit

    @property
    def verdict(self) -> Verdict:
        if self.n < MIN_REPEATS:
            return "inconclusive"
        return "pass" if self.holds else "fail"

    @property
    def said(self) -> str:
        """The goal with the end that counts."""
        shown = self.goal.shown
        return self.goal.text.format(value=shown.format(self.worse), limit=shown.format(self.limit))

    @property
    def text(self) -> str:
        if self.n < MIN_REPEATS:
            return f"{self.said}; one repeat decides nothing"
        return self.said if self.holds else f"{self.said}; missed by {self.missed}"

    @property
    def missed(self) -> str:
        """`4.2 %` of the limit, and why; of a limit of 0 the figure itself."""
        gap = abs(self.worse - self.limit)
        far = f"{gap / abs(self.limit):.1%}".replace("%", " %") if self.limit else self.goal.shown.format(gap)
        return f"{far}: {self.goal.why}" if self.goal.why else far


def decide(goal: Goal, cells: Sequence[Cell]) -> Decision | None:
    """Decide repeat by repeat, as the arms of one had the same seed. None: something that the goal takes was not
    measured."""
    table = Table(cells)
    values = [value for repeat in table.repeats() if (value := _value(goal, table.repeat(repeat))) is not None]
    if not values:
        return None
    found = of_median(values)
    if found is None:
        return Decision(goal, values[0], values[0], values[0], 1)
    return Decision(goal, found.value, found.low, found.high, found.n)


def _value(goal: Goal, medians: Medians) -> float | None:
    try:
        value = float(goal.value(medians))
    except (TypeError, ValueError, ZeroDivisionError):  # something is missing, or is 0
        return None
    return value if math.isfinite(value) else None


def word(verdicts: Sequence[dict[str, Any]]) -> str:
    """Number of each verdict, on claims `3 reproduced, 1 undecided`, on goals `4 pass, 1 fail`; `pass` when all goals
    do, `not run` without a verdict."""
    words = [verdict["word"] for verdict in verdicts]
    if {*words} <= {"pass"}:
        return "pass" if words else "not run"
    numbers = [(words.count(each), each) for each in (*claims.WORDS, *VERDICTS)]
    return ", ".join(f"{number} {each}" for number, each in numbers if number)
