# SPDX-License-Identifier: Apache-2.0
"""The table and the verdicts of a run in the foreground, for people at a terminal."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from accesspoint.experiments.execution.phases import Summary
from accesspoint.experiments.experiment import Experiment
from accesspoint.experiments.verdict.goals import Cell, Table

COLUMNS = {  # measure -> heading
    "download_before": "down\nbefore", "download_during": "\nduring", "download_after": "\nafter", "kept": "kept",
    "upload_during": "up\nduring", "ping_p50": "ping ms\np50", "ping_p99": "\np99", "ping_max": "\nmax",
}  # fmt: skip
BESIDE_PEERS = {
    "download_before": "down\nbefore", "download_during": "\nduring", "kept": "kept", "upload_during": "up\nduring",
    "ping_mean": "ping ms\nmean", "ping_max": "\nmax",
}  # fmt: skip


def show(console: Console, experiment: Experiment, summary: Summary, cells: Sequence[Cell]) -> None:
    """Prints the table, the peers beside it, where they come from, the verdicts, and what makes the run unfit."""
    table = Table(cells)
    arms = {name: {measure: table(measure, name) for measure in (*COLUMNS, *BESIDE_PEERS)} for name in summary["arms"]}
    grid = _grid("arm", COLUMNS)
    for name, values in arms.items():
        grid.add_row(Text(name, style="bold"), *_cells(values, COLUMNS))
    console.print(grid)
    if known := peers(experiment):
        grid = _grid("measured peers", BESIDE_PEERS)
        for name, values in known.items():
            grid.add_row(name, *_cells(values, BESIDE_PEERS))
        last = list(arms)[-1]
        grid.add_row(f"{last}, this run", *_cells(arms[last], BESIDE_PEERS), style="bold")
        console.print(grid)
        console.print(f"Peers: {experiment.reported[0].where}.\n", style="dim", highlight=False)
    for verdict in summary["verdicts"]:
        word, style = ("met    ", "bold green") if verdict["met"] else ("not met", "bold red")
        console.print(Text.assemble((word, style), f"  {verdict['text']}"), highlight=False)
    for name, figures in summary["arms"].items():
        for problem in figures["self_check"]["problems"]:
            console.print(Text.assemble(("caution", "bold yellow"), f"  {name}: {problem}"), highlight=False)


def show_target(console: Console, target: Summary) -> None:
    """Prints where a target is not what was asked for; nothing when it is."""
    if target["differences"]:
        console.print(
            f"{target['name']} {target['version']} is not all that was asked for:", style="yellow", highlight=False
        )
    for difference in target["differences"]:
        console.print(Padding(Text(difference, style="yellow"), (0, 0, 0, 2)))


def peers(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Figures of others on the same links: name -> measure -> value."""
    names = dict.fromkeys(one.arm for one in experiment.reported)
    return {name: {one.measure: one.value for one in experiment.reported if one.arm == name} for name in names}


def _grid(first: str, headings: dict[str, str]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    grid.add_column(f"Mb/s\n{first}", no_wrap=True)
    for heading in headings.values():
        grid.add_column(heading, justify="right", no_wrap=True)
    return grid


def _cells(values: dict[str, Any], measures: dict[str, str]) -> list[Text]:
    return [_cell(measure, values[measure]) for measure in measures]


def _cell(measure: str, value: float | None) -> Text:
    if measure == "kept":
        return Text("-" if value is None else f"{value:.0%}", style="green" if value and value >= 0.9 else "red")
    if value is None:
        return Text("-")
    digits = 2 if not measure.startswith("ping") else 0 if value >= 100 else 1
    return Text(f"{value:.{digits}f}")
