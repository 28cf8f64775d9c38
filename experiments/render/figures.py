# SPDX-License-Identifier: Apache-2.0
"""Draws an experiment's figures from its results, as its paper draws them, with the paper's numbers in them.

Timelines, bars and curves are drawn here; what shows the phases of single runs in
accesspoint.experiments.render.panels.
"""

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter

from accesspoint.experiments.experiment import (
    Arm,
    Bars,
    Curves,
    Distribution,
    Experiment,
    Panels,
    Point,
    Ranked,
    Regulation,
    Reported,
    Scatter,
    Timeline,
)
from accesspoint.experiments.experiment import Figure as Declared
from accesspoint.experiments.measure.samples import Sample, by_source, percentile
from accesspoint.experiments.render import panels, theme
from accesspoint.experiments.render.theme import LIGHT
from accesspoint.experiments.runs.store import Run
from accesspoint.experiments.verdict.goals import Table

LETTER = 0.08  # in, of a legend's text
COLUMNS = 3  # of a timeline's panels: words of more are too small on a page
MAX_GROUPS = 5  # of bars side by side
MAX_LINES = 10  # runs of an arm in a timeline: more would add nothing, and need all of their samples
MARKERS = "osD^vPX*"


def write_all(experiment: Experiment, summary: dict[str, Any], runs: Sequence[Run], directory: Path) -> list[Declared]:
    """Draws every figure that there is data for; returns those. summary: its `arms`, `points` and `cells`. runs: those
    that its figures are of."""
    drawn = []
    for figure in experiment.figures:
        drawing = Drawing(experiment, summary, runs, figure)
        if drawing.arms:
            theme.save(figure.name, drawing.draw, directory)
            drawn.append(figure)
    return drawn


class Drawing:
    """One figure, and the data for it."""

    def __init__(self, experiment: Experiment, summary: dict[str, Any], runs: Sequence[Run], figure: Declared) -> None:
        self._experiment, self._summary, self._figure = experiment, summary, figure
        self._table = Table(summary["cells"])
        self._read: dict[str, dict[str, list[Sample]]] = {}  # run -> source -> samples
        chosen = figure.arms or tuple(summary["arms"])
        self._runs = {arm: [run for run in runs if run.order.arm == arm] for arm in chosen}
        self.arms = [arm for arm in chosen if arm in summary["arms"] and self._has_data(arm)]

    def _has_data(self, arm: str) -> bool:
        match self._figure:
            case Timeline(point=point):
                return bool(self._at(point, arm))
            case Bars(measures=measures, point=point):
                return any(self._table.cell(measure, arm, point) for measure in measures)
            case Curves() as curves:
                return any(self._table.cell(curves.measure, arm, point) for point in self._swept(curves))
            case Regulation():
                return any(panels.feedback(run) for run in self._runs[arm][:1])
            case Panels() | Distribution():
                return bool(self._runs[arm])
            case Scatter() | Ranked():
                return any(self._summary.get("compared", {}).get("pairs", {}).values())

    def _at(self, point: Point, arm: str) -> list[Run]:
        """The first runs of an arm at a point."""
        return [run for run in self._runs[arm] if dict(run.order.point) == dict(point)][:MAX_LINES]

    def _swept(self, figure: Curves) -> list[dict[str, Any]]:
        """The points that a curve goes through."""
        return [dict(p) for p in self._summary["points"] if figure.point.items() <= dict(p).items()]

    def _reported(self, measure: str, arm: str) -> list[Reported]:
        return [one for one in self._experiment.reported if (one.measure, one.arm) == (measure, arm)]

    def draw(self) -> Figure:
        match self._figure:
            case Timeline() as timeline:
                return self._timeline(timeline)
            case Bars() as bars:
                return self._bars(bars)
            case Curves() as curves:
                return self._curves(curves)
            case Panels() as declared:
                return panels.overview(declared, self._first(), self._table, self._experiment)
            case Scatter() as scatter:
                return panels.scatter(scatter, self._summary["compared"]["pairs"])
            case Ranked() as ranked:
                return panels.ranked(ranked, self._summary["compared"]["pairs"])
            case Distribution() as distribution:
                return panels.distribution(distribution, self._first(), self._experiment)
            case Regulation() as regulation:
                return panels.regulation(regulation, self._first()[-1])

    def _first(self) -> list[tuple[Arm, Run]]:
        """The first run of each arm."""
        return [(self._experiment.arm(arm), self._runs[arm][0]) for arm in self.arms]

    def _timeline(self, figure: Timeline) -> Figure:
        columns = min(COLUMNS, len(self.arms))
        lines = math.ceil(len(self.arms) / columns)
        drawn = Figure(figsize=(3.1 * columns + 0.6, 2.5 * lines + 0.7), layout="constrained")
        axes = drawn.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        palette = dict(zip(figure.sources, (LIGHT.down, LIGHT.up, LIGHT.ping, *LIGHT.arms), strict=False))
        for number, ax in enumerate(axes.flat):
            if number >= len(self.arms):
                ax.set_visible(False)
                continue
            self._panel(ax, self.arms[number], figure, palette)
            if number % columns == 0:
                ax.set_ylabel(figure.label)
                if not figure.log:
                    ax.set_ylim(0, self._ceiling(figure))
            if number + columns >= len(self.arms):
                ax.set_xlabel("time (s)")
                ax.tick_params(labelbottom=True)
        handles = [Line2D([], [], color=color, label=_named(source)) for source, color in palette.items()]
        if figure.levels:
            handles.append(Line2D([], [], color=LIGHT.ink, ls=(0, (4, 2)), lw=1.4, label="reported by the paper"))
        drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
        return drawn

    def _panel(self, ax: Axes, arm: str, figure: Timeline, palette: dict[str, str]) -> None:
        ax.set_title(_wrapped(self._experiment.arm(arm).label), fontsize=10.5, fontweight="bold", loc="left")
        for number, run in enumerate(self._at(figure.point, arm)):
            scale = run.facts["scale"]
            for pattern, color in palette.items():
                style: dict[str, Any] = {"lw": 1.5, "zorder": 3} if number == 0 else {"lw": 0.7, "alpha": 0.35}
                for own in self._lines(run, figure, pattern):
                    ax.plot([s.time / scale for s in own], [s.value for s in own], color=color, **style)
        for measure, (start, end) in figure.levels.items():
            for one in self._reported(measure, arm):
                ax.plot([start, end], [one.middle] * 2, color=LIGHT.ink, ls=(0, (4, 2)), lw=1.4, zorder=4)
                ax.annotate(
                    f"{one.middle:.3g}", (end, one.middle), (3, 0), textcoords="offset points", va="center",
                    fontsize=8.5, color=LIGHT.ink, fontweight="bold", zorder=5,
                )  # fmt: skip
        ax.set_xlim(left=0)
        if figure.log:
            ax.set_yscale("log")

    def _lines(self, run: Run, figure: Timeline, pattern: str) -> list[list[Sample]]:
        """A run's samples of each source that the pattern matches. Read once: the axis asks first."""
        if run.order.id not in self._read:
            self._read[run.order.id] = by_source(s for s in run.samples() if s.quantity == figure.quantity)
        return [line for source, line in self._read[run.order.id].items() if fnmatchcase(source, pattern)]

    def _ceiling(self, figure: Timeline) -> float:
        """Above nearly all samples and every figure of the paper: a burst of one interval would make the rest small."""
        runs = [run for arm in self.arms for run in self._at(figure.point, arm)]
        lines = [line for run in runs for source in figure.sources for line in self._lines(run, figure, source)]
        values = [s.value for line in lines for s in line]
        paper = [one.middle for arm in self.arms for measure in figure.levels for one in self._reported(measure, arm)]
        return 1.2 * max([percentile(values, 0.99), *paper]) if values else 1.0

    def _bars(self, figure: Bars) -> Figure:
        lines = math.ceil(len(self.arms) / MAX_GROUPS)
        columns = math.ceil(len(self.arms) / lines)
        drawn = Figure(figsize=(max(5.0, 1.5 * columns + 1.2), 3.4 * lines + 0.8), layout="constrained")
        axes = list(drawn.subplots(lines, squeeze=False).flat)
        palette = (LIGHT.down, LIGHT.up, LIGHT.ping, *LIGHT.arms)
        for line, ax in enumerate(axes):
            self._groups(ax, figure, self.arms[line * columns :][:columns], palette)
        if lines > 1:
            bottoms, tops = zip(*(ax.get_ylim() for ax in axes), strict=True)
            for ax in axes:
                ax.set(xlim=(-0.5, columns - 0.5), ylim=(min(bottoms), max(tops)))
        handles = [
            Line2D([], [], color=palette[i % len(palette)], lw=8, label=self._experiment.measure(name).text)
            for i, name in enumerate(figure.measures)
        ]
        if any(self._reported_at(figure, name, arm) for name in figure.measures for arm in self.arms):
            label = f"line and [ ]: from {self._experiment.asked_by}"
            handles.append(Line2D([], [], color=LIGHT.ink, label=label, lw=2.2))
        _legend(drawn, handles)
        return drawn

    def _reported_at(self, figure: Bars, measure: str, arm: str) -> list[Reported]:
        return [one for one in self._reported(measure, arm) if dict(one.point) == dict(figure.point)]

    def _groups(self, ax: Axes, figure: Bars, arms: Sequence[str], palette: Sequence[str]) -> None:
        """A group of bars for each arm, a bar for each measure."""
        ax.grid(axis="x", visible=False)
        width = 0.8 / len(figure.measures)
        for number, name in enumerate(figure.measures):
            measure, color = self._experiment.measure(name), palette[number % len(palette)]
            for group, arm in enumerate(arms):
                x = group + (number - (len(figure.measures) - 1) / 2) * width
                cell = self._table.cell(name, arm, figure.point)
                if cell:
                    value = cell["median"]
                    spread = [[value - min(value, cell["low"])], [max(value, cell["high"]) - value]]
                    ax.bar(x, value, width * 0.92, color=color, yerr=spread, ecolor=LIGHT.ink, capsize=2)
                reported = self._reported_at(figure, name, arm)
                for one in reported:
                    ax.plot([x - width / 2, x + width / 2], [one.middle] * 2, color=LIGHT.ink, lw=2.2, zorder=5)
                tops = [*([cell["median"], cell["high"]] if cell else []), *(one.middle for one in reported)]
                if tops:
                    shown = [f"[{one.middle:.3g}]" for one in reported]
                    shown += [measure.shown.format(cell["median"])] if cell else []
                    ax.annotate(
                        "\n".join(shown), (x, max(tops)), (0, 3), textcoords="offset points", ha="center",
                        fontsize=8, linespacing=1.3, color=LIGHT.ink,
                    )  # fmt: skip
        ax.set_xticks(range(len(arms)), [_wrapped(self._experiment.arm(arm).label, 18) for arm in arms])
        ax.tick_params(axis="x", labelsize=9, length=0)
        ax.set_ylabel(figure.label)
        _scale(ax, figure.log)

    def _curves(self, figure: Curves) -> Figure:
        drawn = Figure(figsize=(7.2, 4.4), layout="constrained")
        ax = drawn.subplots()
        points = self._swept(figure)
        values = list(dict.fromkeys(p[figure.x] for p in points))
        # Names have no order and nothing between them: their place is their number, the arms' beside each other.
        names = [value for value in values if isinstance(value, str)]
        line = "none" if names else "-"
        for number, arm in enumerate(self.arms):
            places: dict[Any, Any] = {
                name: k + 0.1 * (number - (len(self.arms) - 1) / 2) for k, name in enumerate(names)
            }
            color = LIGHT.arms[number % len(LIGHT.arms)]
            marker = MARKERS[number // len(LIGHT.arms) % len(MARKERS)]
            found = [(p[figure.x], self._table.cell(figure.measure, arm, p)) for p in points]
            cells = [(x, cell) for x, cell in found if cell]
            xs = [places.get(x, x) for x, _ in cells]
            ys = [cell["median"] for _, cell in cells]
            spread = [
                [y - min(y, cell["low"]) for y, (_, cell) in zip(ys, cells, strict=True)],
                [max(y, cell["high"]) - y for y, (_, cell) in zip(ys, cells, strict=True)],
            ]
            label = self._experiment.arm(arm).label
            ax.errorbar(xs, ys, spread, color=color, marker=marker, ms=5, capsize=2, elinewidth=1, label=label, ls=line)
            paper = [
                one for one in self._reported(figure.measure, arm) if figure.point.items() <= dict(one.point).items()
            ]
            told = [one.point[figure.x] for one in paper]
            ax.plot(
                [places.get(x, x) for x in told], [one.middle for one in paper],
                marker=marker, ms=10, mfc="none", mec=color, mew=1.6, ls=(0, (1, 2)), color=color, lw=1,
            )  # fmt: skip
        if figure.log_x:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.xaxis.set_minor_formatter(NullFormatter())
        if names:
            ax.set_xticks(range(len(names)), names)
            ax.set_xlim(-0.5, len(names) - 0.5)
        elif len(values) <= 12:
            ax.set_xticks(sorted(values), [f"{value:g}" for value in sorted(values)])
        ax.set_xlabel(figure.xlabel)
        ax.set_ylabel(figure.label)
        _scale(ax, figure.log)
        handles = [*ax.get_legend_handles_labels()[0]]
        if any(self._reported(figure.measure, arm) for arm in self.arms):
            style: dict[str, Any] = {"marker": "o", "ms": 9, "mfc": "none", "ls": (0, (1, 2)), "lw": 1}
            handles.append(Line2D([], [], color=LIGHT.ink, label="reported by the paper", **style))
        _legend(drawn, handles)
        return drawn


def _legend(drawn: Figure, handles: list[Any]) -> None:
    """Below the axes, in two columns where the names are short enough for the picture's width."""
    letters = 2 * max(len(str(handle.get_label())) for handle in handles)
    fits = letters * LETTER + 1.5 < drawn.get_figwidth()
    drawn.legend(handles=handles, loc="outside lower center", ncols=2 if fits else 1, frameon=False)


def _scale(ax: Axes, log: bool) -> None:
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
        ax.margins(y=0.2)
        # A bar stands on 0, which a logarithm has not: the axis begins below the lowest value.
        if 0 < ax.dataLim.minposy < math.inf:
            ax.set_ylim(bottom=ax.dataLim.minposy / 2)
    else:
        # A margin of the data's own span is none for a flat line.
        top = ax.dataLim.ymax  # infinite where nothing was drawn
        ax.set_ylim(0, 1.12 * top if 0 < top < math.inf else 1)


def _named(pattern: str) -> str:
    return f"each {pattern[:-1]}" if pattern.endswith("*") else pattern


def _wrapped(text: str, width: int = 28) -> str:
    """A title on as many lines as its length takes."""
    lines = [""]
    for word in (text[0].upper() + text[1:]).split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
