# SPDX-License-Identifier: Apache-2.0
"""The paper, plain and ours side by side: rows for arms and points, columns for measures. For terminals and for
pages."""

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from accesspoint.experiments.experiment import Experiment, Measure, Point, Reported
from accesspoint.experiments.measure.intervals import CONFIDENCE
from accesspoint.experiments.runs import registry
from accesspoint.experiments.verdict.goals import Table

STYLES = {
    "reproduced": "bold green", "contradicted": "bold red", "undecided": "yellow",
    "pass": "bold green", "fail": "bold red", "inconclusive": "yellow",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One arm at one point; cells in the order of the measures, an empty string for nothing."""

    arm: str
    label: str
    role: str
    point: Point
    cells: tuple[str, ...]


def rows(experiment: Experiment, summary: dict[str, Any]) -> list[Row]:
    """The paper's rows stand above those of the arm that they are compared with. None where points count together."""
    if experiment.tally:
        return []
    table, found = Table(summary["cells"]), []
    for point in summary["points"]:
        here = [one for one in experiment.reported if dict(one.point) == point]
        known = {_reported(experiment, one.arm, point, here).cells for one in here if one.arm in summary["arms"]}
        own = [name for name in dict.fromkeys(one.arm for one in here) if name not in summary["arms"]]
        for name in own:
            row = _reported(experiment, name, point, here)
            if row.cells not in known:  # the same figures stand above the arm that is compared with them
                known.add(row.cells)
                found.append(row)
        for name in summary["arms"]:
            arm = experiment.arm(name)
            if any(one.arm == name for one in here):
                found.append(_reported(experiment, name, point, here))
            cells = tuple(_cell(table, measure, name, point) for measure in experiment.measures)
            found.append(Row(name, arm.label, arm.role, point, cells))
    return found


def apart(experiment: Experiment, summary: dict[str, Any]) -> list[tuple[list[Measure], list[Point]]]:
    """Measures and points in groups, each for a table of its own: points of different groups have no measure in common.
    Points and measures without a cell stand in the first."""
    known: list[tuple[set[str], list[Point]]] = []
    for point in summary["points"]:
        own = {cell["measure"] for cell in summary["cells"] if cell["point"] == point}
        joined = [group for group in known if group[0] & own] if own else known[:1]
        known = [group for group in known if group not in joined]
        points = [each for group in joined for each in group[1]]
        known.append((own.union(*(group[0] for group in joined)), [*points, point]))
        known.sort(key=lambda group: summary["points"].index(group[1][0]))
    found = set().union(*(group[0] for group in known))
    return [
        ([m for m in experiment.measures if m.name in names or (not place and m.name not in found)], points)
        for place, (names, points) in enumerate(known)
    ]


def _reported(experiment: Experiment, arm: str, point: Point, here: list[Reported]) -> Row:
    own = {one.measure: one for one in here if one.arm == arm}
    cells = tuple(value(own[m.name], m) if m.name in own else "" for m in experiment.measures)
    return Row(arm, f"{experiment.asked_by} ({arm})", "paper's figure", point, cells)


def value(reported: Reported, measure: Measure) -> str:
    """`10.70 to 11.60`"""
    ends = reported.value if isinstance(reported.value, tuple) else (reported.value,)
    return " to ".join(measure.shown.format(end) for end in ends)


def _cell(table: Table, measure: Measure, arm: str, point: Point) -> str:
    cell = table.cell(measure.name, arm, point)
    return measure.shown.format(cell["median"]) if cell else "-"


def spread(table: Table, measure: Measure, arm: str, point: Point) -> str:
    """`13.20 to 13.40`: the interval, and how sure it is where that is less than 95 %."""
    cell = table.cell(measure.name, arm, point)
    # A summary of before says nothing of its own.
    confidence = cell.get("confidence", 1.0) if cell else 0.0
    if cell is None or not confidence:
        return ""
    ends = f"{measure.shown.format(cell['low'])} to {measure.shown.format(cell['high'])}"
    return f"{ends} ({confidence:.0%})" if confidence < CONFIDENCE else ends


def words(point: Point) -> str:
    return ", ".join(f"{name} {number}" for name, number in point.items())


def show(summary: dict[str, Any], console: Console) -> None:
    """Print the table, below it the figures of others, the verdicts, and what is unfit."""
    experiment = registry.under(summary["experiment"], summary.get("setting", {}), summary["target"])
    known = rows(experiment, summary)
    others = [row for row in known if row.arm not in summary["arms"]]
    for title, part in ((experiment.title, [row for row in known if row not in others]), ("", others)):
        if part:
            console.print(_grid(title, part, experiment))
    for verdict in summary["verdicts"]:
        shown = (f"{verdict['word']:<13}", STYLES.get(verdict["word"], "dim"))
        console.print(Text.assemble(shown, verdict["text"]), highlight=False)
    for unfit in summary["unfit"]:
        text = f"{unfit['run']}: {'; '.join(unfit['problems'])}"
        word = "caution" if unfit.get("counted") else "unfit"
        console.print(Text.assemble((f"{word:<13}", "bold yellow"), text), highlight=False)
    for text in summary.get("target_differences", ()):
        console.print(Text.assemble((f"{summary['target']:<13}", "yellow"), text), highlight=False)


def _grid(title: str, part: list[Row], experiment: Experiment) -> Grid:
    """A table of rows, without the measures that none of them has."""
    grid = Grid(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=0,
        header_style="bold",
        title=title or None,
        title_justify="left",
    )
    grid.add_column("arm", no_wrap=True)
    if experiment.sweep:
        grid.add_column("at", no_wrap=True)
    shown = [place for place in range(len(experiment.measures)) if any(row.cells[place] for row in part)]
    for measure in (experiment.measures[place] for place in shown):
        heading = measure.name.replace("load_", "_").replace("_", "\n")
        grid.add_column(f"{heading}\n{measure.unit}", justify="right", no_wrap=True)
    for row in part:
        style = {"paper's figure": "dim", "ours": "bold"}.get(row.role)
        first = f"{experiment.asked_by.removeprefix('the ')}: {row.arm}" if row.role == "paper's figure" else row.arm
        cells = [row.cells[place].replace(" to ", "\nto ") for place in shown]
        grid.add_row(first, *([words(row.point)] if experiment.sweep else []), *cells, style=style)
    return grid
