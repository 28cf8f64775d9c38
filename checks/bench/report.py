# SPDX-License-Identifier: Apache-2.0
"""Results against their goals: rows, the table that every benchmark prints, and how it ends."""

import signal
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from accesspoint.topologies.requirements import LabError

Step = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One result. `goal` is a bound of `value`: at least if `at_least`, else at most; None: no goal. A row without a
    value could not be measured, `text` says why: its goal is not met, and its verdict inconclusive. `rounds` are its
    repetitions, as far as there are any; how they make the value is for the benchmark to decide."""

    name: str
    text: str
    value: float | None
    goal: float | None = None
    at_least: bool = True
    rounds: tuple[float, ...] = ()

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return False
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    @property
    def verdict(self) -> str:
        """Return pass, fail or inconclusive; empty for a row without a goal."""
        return "inconclusive" if self.value is None else {None: "", True: "pass", False: "fail"}[self.met]


def of_medians(
    name: str,
    text: str,
    own: Sequence[float],
    other: Sequence[float],
    goal: float | None = None,
    at_least: bool = True,
) -> Row:
    """Make a row of a quotient of medians, and of the quotients of the rounds."""
    rounds = tuple(one / of for one, of in zip(own, other, strict=True))
    return Row(name, text, statistics.median(own) / statistics.median(other), goal, at_least, rounds)


STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow"}


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def figures(row: Row) -> tuple[str, str]:
    """Value and goal as people read them."""
    value = "-" if row.value is None else number(row.value)
    return value, "" if row.goal is None else f"{'>=' if row.at_least else '<='} {number(row.goal)}"


def words(row: Row) -> tuple[str, str, str]:
    """Value, goal and verdict, which has its colour."""
    style = STYLES.get(row.verdict)
    return *figures(row), f"[{style}]{row.verdict}[/]" if style else ""


def tell(row: Row) -> None:
    """A row as soon as it is there."""
    value, goal, verdict = words(row)
    told = f"{row.name:26} {value:>9} {goal:>10} {verdict or '':7} {escape(row.text)}"
    Console(soft_wrap=True).print(told, highlight=False)


def show(title: str, rows: list[Row]) -> None:
    table = Table(title=title)
    for heading in ("name", "what", "value", "goal", ""):
        table.add_column(heading, justify="right" if heading in ("value", "goal") else "left")
    for row in rows:
        table.add_row(row.name, escape(row.text), *words(row))
    Console().print(table)


def run(main: Callable[[], None]) -> None:
    """Runs a benchmark: ended from outside it cleans up as after Ctrl-C, and an error is one line."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        main()
    except LabError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
