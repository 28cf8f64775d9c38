# SPDX-License-Identifier: Apache-2.0
"""Draw single runs: rates and round trips over time, the distribution of round trips, and the controller's view and
feedback."""

import csv
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullLocator

from accesspoint.experiments.experiment import Arm, Distribution, Experiment, Panels, Ranked, Regulation, Scatter
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample, percentile, summed_up
from accesspoint.experiments.render.theme import LIGHT
from accesspoint.experiments.runs.store import Run
from accesspoint.experiments.verdict.goals import Table

DASHED = (0, (4, 3))
Drawn = Sequence[tuple[Arm, Run]]


def overview(declared: Panels, drawn: Drawn, table: Table, experiment: Experiment) -> Figure:
    """A column per arm: throughput above, round trip (logarithmic) below, the load's time shaded."""
    figure = Figure(figsize=(4.2 * len(drawn) + 0.6, 6.4))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    axes = figure.subplots(2, len(drawn), sharex=True, sharey="row", squeeze=False, height_ratios=(1.25, 1))
    ceiling, pings = declared.rate * 1.12, [10.0]
    least = declared.rtt * 0.7
    for column, (arm, run) in enumerate(drawn):
        top, bottom = axes[0][column], axes[1][column]
        samples, scale = run.samples(), run.facts["scale"]
        for ax in (top, bottom):
            _over_time(ax, run, declared.loaded)
        top.set_title(arm.label[0].upper() + arm.label[1:], fontsize=14, fontweight="bold", loc="left", pad=24)
        top.text(
            0, 1.03, _told(declared, arm, table, experiment), transform=top.transAxes, color=LIGHT.ink, fontsize=9.5
        )
        top.set_ylim(0, ceiling)
        for source, color in zip(declared.sources, (LIGHT.down, LIGHT.up), strict=False):
            own = _rates(samples, source, run.facts["seconds"])
            top.plot([s.time for s in own], [s.value for s in own], color=color)
        for measure, part in declared.levels.items():
            if cell := table.cell(measure, arm.name, run.order.point):
                behind = LIGHT.shade if part == declared.loaded else LIGHT.paper
                _level(top, cell["median"], sum(part) / 2 * scale, ceiling, behind)
        own = [s for s in samples if s.quantity == "ping_ms"]
        bottom.plot([s.time for s in own], [s.value for s in own], ".", color=LIGHT.ping, markersize=3.2, alpha=0.75)
        bottom.axhline(declared.rtt, color=LIGHT.faint, lw=1, ls=DASHED)
        bottom.set_yscale("log")
        bottom.yaxis.set_major_formatter(FuncFormatter(_milliseconds))
        bottom.yaxis.set_minor_locator(NullLocator())
        bottom.set_xlabel("time (s)")
        pings.append(max((s.value for s in own), default=0.0))
        least = min([least, *(s.value for s in own)])
    first, below = axes[0][0], axes[1][0]
    first.set_ylabel("throughput (Mb/s)")
    below.set_ylabel("ping")
    below.set_ylim(least * 0.8 or 1, max(pings) * 1.6)
    middle = sum(declared.loaded) / 2 * drawn[0][1].facts["scale"]
    first.text(middle, ceiling * 0.985, declared.loaded_by, ha="center", va="top", color=LIGHT.faint, fontsize=9)
    handles = [
        Line2D([], [], color=LIGHT.down, label="download"),
        Line2D([], [], color=LIGHT.up, label="upload"),
        Line2D([], [], color=LIGHT.ping, ls="", marker=".", label="ping"),
        Line2D([], [], color=LIGHT.faint, lw=1, ls=DASHED, label="round trip of the empty links"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _over_time(ax: Axes, run: Run, loaded: tuple[float, float]) -> None:
    scale = run.facts["scale"]
    ax.axvspan(loaded[0] * scale, loaded[1] * scale, color=LIGHT.shade, lw=0, zorder=0)
    ax.set_xlim(0, run.facts["seconds"])


def _told(declared: Panels, arm: Arm, table: Table, experiment: Experiment) -> str:
    """The arm's line with its measures; empty where one of them was not measured."""
    medians = {measure.name: table(measure.name, arm.name) for measure in experiment.measures}
    known = {name: value for name, value in medians.items() if value is not None}
    try:
        return declared.told.format(**known)
    except KeyError:
        return ""


def _rates(samples: Sequence[Sample], source: str, seconds: float) -> list[Sample]:
    """The summed rates of all flows whose name begins so."""
    raw = Raw(samples, seconds)
    own = raw.of("rate_mbps", f"{source}*")
    return summed_up(own, {"rate_mbps"}, seconds) if len({s.source for s in own}) > 1 else own


def _level(ax: Axes, value: float, middle: float, ceiling: float, behind: str) -> None:
    below = value > 0.75 * ceiling
    ax.annotate(
        f"{value:.1f}", (middle, value), (0, -16 if below else 12), textcoords="offset points",
        ha="center", va="center", color=LIGHT.down, fontsize=12, fontweight="bold",
        path_effects=[withStroke(linewidth=4, foreground=behind)],
    )  # fmt: skip


def _milliseconds(value: float, _position: int) -> str:
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"


def distribution(declared: Distribution, drawn: Drawn, experiment: Experiment) -> Figure:
    """Cumulative share of samples over time, a line per arm."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    ax = figure.subplots()
    for arm, run in drawn:
        color = LIGHT.arms[experiment.arms.index(arm) % len(LIGHT.arms)]
        values = sorted(run.raw().values(declared.quantity, "*", *declared.within))
        if not values:
            continue
        shares = [(i + 1) / len(values) for i in range(len(values))]
        half = percentile(values, 0.5)
        ax.step(values, shares, where="post", color=color, lw=2.2, label=f"{arm.label}: {half:.0f} ms")
        ax.plot([half], [0.5], "o", color=color, ms=6)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(_milliseconds))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axvline(declared.rtt, color=LIGHT.faint, lw=1, ls=DASHED)
    ax.set_ylim(0, 1.01)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="best", frameon=False, labelcolor="linecolor", prop={"size": 11, "weight": "bold"})
    ax.set_title(declared.title, fontsize=14, fontweight="bold", loc="left")
    ax.set_xlabel("round trip (dots: half of the probes were faster; dashed: the empty links)")
    ax.set_ylabel("probes that came back by then")
    return figure


def scatter(declared: Scatter, pairs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """A point for each pair, a cross for one that fails; where both are equal, and where the second is too large."""
    figure = Figure(figsize=(6.6, 5.8), layout="constrained")
    ax = figure.subplots()
    values = [one[key] for group in pairs.values() for one in group for key in ("first", "second")]
    least, most = min(values) / 1.3, max(values) * 1.3
    steps = [least * (most / least) ** (place / 200) for place in range(201)]
    ax.plot([least, most], [least, most], color=LIGHT.faint, lw=1)
    ax.plot(steps, [declared.ratio * x + declared.added for x in steps], color=LIGHT.faint, lw=1, ls=DASHED)
    for number, (name, group) in enumerate(pairs.items()):
        color = (LIGHT.down, LIGHT.up, LIGHT.ping)[number % 3]
        styles: dict[bool, dict[str, Any]] = {
            False: {"marker": "o", "s": 14, "alpha": 0.6},
            True: {"marker": "x", "s": 36},
        }
        for fails, style in styles.items():
            own = [one for one in group if one["fails"] == fails]
            label = f"{name}: {len(own)} {'too slow' if fails else 'within the limit'}"
            ax.scatter([one["first"] for one in own], [one["second"] for one in own], color=color, label=label, **style)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(least, most)
    ax.set_ylim(least, most)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(_milliseconds))
        axis.set_minor_locator(NullLocator())
    ax.set_xlabel(declared.xlabel)
    ax.set_ylabel(declared.label)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def ranked(declared: Ranked, pairs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """A line for each group: the ratios of its pairs, from the smallest to the largest."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    ax = figure.subplots()
    for (name, group), color in zip(pairs.items(), (LIGHT.down, LIGHT.up, LIGHT.ping, LIGHT.green), strict=False):
        ratios = [one["second"] / one["first"] for one in group]
        ratios = sorted(1 / ratio for ratio in ratios) if name in declared.inverted else sorted(ratios)
        shares = [(place + 0.5) / len(ratios) for place in range(len(ratios))]
        ax.plot(shares, ratios, ".-", color=color, lw=1.4, ms=4, label=f"{name}: {len(ratios)}")
    ax.axhline(1.0, color=LIGHT.faint, lw=1)
    ax.axhspan(1 - declared.level, 1 + declared.level, color=LIGHT.shade, lw=0, zorder=0)
    ax.set_yscale("log")
    # Round values, as far as the ratios go, the same number on both sides of 1.
    low, high = ax.get_ylim()
    ticks = [
        tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10, 20, 50, 100) if low <= tick <= high
    ]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    ax.set_xlabel("pairs, the smallest ratio first")
    ax.set_ylabel(declared.label)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


def uplink(run: Run) -> list[dict[str, float]]:
    """The controller's statistics of the uplink port (the last) within a run, `time` in s since its start."""
    statistics = run.logs / "controller.csv"
    if not statistics.exists():
        return []
    with statistics.open(newline="") as file:
        rows = [
            {name: float(value) for name, value in row.items() if name != "access_point" and value}
            for row in csv.DictReader(file)
        ]
    port = max((row["port"] for row in rows), default=0)
    started, seconds = run.facts["started"], run.facts["seconds"]
    return [
        row | {"time": row["time"] - started}
        for row in rows
        if row["port"] == port and 0 <= row["time"] - started < seconds
    ]


def feedback(run: Run) -> bool:
    """Return whether the controller sent any feedback at the uplink."""
    return any(value for row in uplink(run) for name, value in row.items() if name.startswith("feedback"))


def regulation(declared: Regulation, drawn: tuple[Arm, Run]) -> Figure:
    """Queue's delay (above) and feedback (below) at the uplink, as the controller saw and set them."""
    arm, run = drawn
    rows = uplink(run)
    figure = Figure(figsize=(9.5, 5.2))
    figure.set_layout_engine("constrained", h_pad=0.1)
    top, bottom = figure.subplots(2, 1, sharex=True)
    times = [row["time"] for row in rows]
    for ax in (top, bottom):
        _over_time(ax, run, declared.loaded)
    top.set_title(f"Inside {arm.label}: the uplink", fontsize=14, fontweight="bold", loc="left")
    top.fill_between(times, [row["delay_ms"] for row in rows], color=LIGHT.ping, alpha=0.3, lw=0)
    top.plot(times, [row["delay_ms"] for row in rows], color=LIGHT.ping, lw=1.2, label="delay of the queue")
    top.plot(times, [row["target_ms"] for row in rows], color=LIGHT.faint, ls=DASHED, lw=1.2, label="its target")
    top.set_ylabel("queue (ms)")
    for name, label, color in (
        ("feedback_device", "device", LIGHT.ink),
        ("feedback_uplink", "uplink class", LIGHT.up),
        ("feedback_downlink", "downlink class", LIGHT.down),
        ("feedback_largest_flow", "largest flow", LIGHT.arms[2]),
    ):
        values = [row[name] * 100 for row in rows]
        if any(values):
            bottom.plot(times, values, color=color, lw=1.4, label=label)
    bottom.set_ylabel("feedback: packets marked")
    bottom.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    bottom.set_xlabel("time (s)")
    for ax in (top, bottom):
        ax.set_ylim(bottom=0)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper right", frameon=False, ncols=4, fontsize=9)
    return figure
