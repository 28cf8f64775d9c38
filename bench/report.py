# SPDX-License-Identifier: Apache-2.0
"""Results against their goals: rows, and the table that every benchmark prints."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

Step = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One result. `goal` is a bound of `value`: at least if `at_least`, else at most; None: no goal."""

    name: str
    text: str
    value: float
    goal: float | None = None
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass(frozen=True)
class Measured:
    """What a module found: its rows, and what they were computed from."""

    rows: list[Row]
    raw: dict[str, object] = field(default_factory=dict)


def show(title: str, rows: list[Row]) -> None:
    table = Table(title=title)
    for heading in ("name", "what", "value", "goal", ""):
        table.add_column(heading, justify="right" if heading in ("value", "goal") else "left")
    for row in rows:
        goal = "" if row.goal is None else f"{'>=' if row.at_least else '<='} {row.goal:g}"
        verdict = {None: "", True: "[green]met[/]", False: "[red]not met[/]"}[row.met]
        table.add_row(row.name, row.text, f"{row.value:.3g}", goal, verdict)
    Console().print(table)
