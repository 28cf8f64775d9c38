# SPDX-License-Identifier: Apache-2.0
"""The pictures: throughput and delay over time side by side, the delay's distribution, the controller's own figures.

Each is drawn for light and dark pages, as PNG and SVG.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.live import LiveExperiment, Summary
from experiments.runner import ArmRun, Setting
from experiments.samples import Sample, percentile
from experiments.theme import Theme, save


def write_all(
    experiment: LiveExperiment, setting: Setting, runs: Sequence[ArmRun], summary: Summary, directory: Path
) -> list[str]:
    """Draws every picture that there is data for into `directory`; returns their names, most telling first."""
    drawings: dict[str, Callable[[Theme], Figure]] = {
        "overview": lambda theme: overview(experiment, setting, runs, summary, theme),
        "ping-cdf": lambda theme: ping_cdf(experiment, setting, runs, theme),
    }
    last = runs[-1]
    rows = uplink_stats(last, setting.seconds)
    if any(value for row in rows for name, value in row.items() if name.startswith("feedback")):
        drawings["controller"] = lambda theme: controller(experiment, setting, last, rows, theme)
    for name, draw in drawings.items():
        save(name, draw, directory, png=True)
    return list(drawings)


def _points(samples: Sequence[Sample], quantity: str) -> tuple[list[float], list[float]]:
    chosen = [(s.time, s.value) for s in samples if s.quantity == quantity]
    return [time for time, _ in chosen], [value for _, value in chosen]


def _busy(experiment: LiveExperiment, seconds: int) -> tuple[float, float]:
    phase = experiment.phase(experiment.busy_phase)
    return phase.start * seconds, phase.end * seconds


def overview(
    experiment: LiveExperiment, setting: Setting, runs: Sequence[ArmRun], summary: Summary, theme: Theme
) -> Figure:
    """A column per arm: throughput above, round trip (logarithmic) below, the upload's time shaded."""
    figure = Figure(figsize=(4.2 * len(runs) + 0.6, 6.4))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    axes = figure.subplots(2, len(runs), sharex=True, sharey="row", squeeze=False, height_ratios=(1.25, 1))
    busy = _busy(experiment, setting.seconds)
    for column, run in enumerate(runs):
        figures = summary["arms"][run.arm.name]
        kept = summary["ratios"].get(f"{run.arm.name}_downlink_during_of_before")
        top, bottom = axes[0][column], axes[1][column]
        for ax in (top, bottom):
            ax.axvspan(*busy, color=theme.shade, lw=0, zorder=0)
            ax.set_xlim(0, setting.seconds)
        top.set_title(run.arm.label[0].upper() + run.arm.label[1:], fontsize=14, fontweight="bold", loc="left", pad=24)
        outcome = f"download keeps {kept:.0%}" if kept is not None else ""
        outcome += f", upload {figures['uplink_mbps']['during']:.2f} Mb/s, ping {figures['ping_ms']['p50'] or 0:.0f} ms"
        top.text(0, 1.03, outcome, transform=top.transAxes, color=theme.ink, fontsize=9.5)
        ceiling = max(setting.profile.down, setting.profile.up) / 1e6 * 1.12
        top.set_ylim(0, ceiling)
        for quantity, color in (("downlink_mbps", theme.down), ("uplink_mbps", theme.up)):
            times, values = _points(run.samples, quantity)
            top.plot(times, values, color=color)
        for phase in experiment.phases:
            value = figures["downlink_mbps"].get(phase.name)
            if value is not None:
                middle = (phase.start + phase.end) / 2 * setting.seconds
                below = value > 0.75 * ceiling
                behind = theme.shade if phase.name == experiment.busy_phase else theme.paper
                top.annotate(
                    f"{value:.1f}", (middle, value), (0, -16 if below else 12), textcoords="offset points",
                    ha="center", va="center", color=theme.down, fontsize=12, fontweight="bold",
                    path_effects=[withStroke(linewidth=4, foreground=behind)],
                )  # fmt: skip
        times, values = _points(run.samples, "ping_ms")
        bottom.plot(times, values, ".", color=theme.ping, markersize=3.2, alpha=0.75)
        bottom.axhline(setting.profile.rtt * 1e3, color=theme.faint, lw=1, ls=(0, (4, 3)))
        bottom.set_yscale("log")
        bottom.yaxis.set_major_formatter(FuncFormatter(_milliseconds))
        bottom.yaxis.set_minor_locator(NullLocator())
        bottom.set_xlabel("time (s)")
    first, below = axes[0][0], axes[1][0]
    first.set_ylabel("throughput (Mb/s)")
    below.set_ylabel("ping")
    pings = [value for run in runs for value in _points(run.samples, "ping_ms")[1]]
    below.set_ylim(min([setting.profile.rtt * 700, *pings]) * 0.8 or 1, max([10.0, *pings]) * 1.6)
    middle = sum(busy) / 2
    ceiling = first.get_ylim()[1]
    first.text(middle, ceiling * 0.985, "upload runs", ha="center", va="top", color=theme.faint, fontsize=9)
    figure.legend(
        handles=[
            mpl.lines.Line2D([], [], color=theme.down, label="download"),
            mpl.lines.Line2D([], [], color=theme.up, label="upload"),
            mpl.lines.Line2D([], [], color=theme.ping, ls="", marker=".", label="ping"),
            mpl.lines.Line2D([], [], color=theme.faint, lw=1, ls=(0, (4, 3)), label="round trip of the empty links"),
        ],
        loc="outside lower center", ncols=4, frameon=False,
    )  # fmt: skip
    return figure


def _milliseconds(value: float, _position: int) -> str:
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"


def ping_cdf(experiment: LiveExperiment, setting: Setting, runs: Sequence[ArmRun], theme: Theme) -> Figure:
    """How much of the probes came back within which time, while the upload ran."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    ax = figure.subplots()
    start, end = _busy(experiment, setting.seconds)
    for run in runs:
        color = theme.arms[experiment.arms.index(run.arm) % len(theme.arms)]
        values = sorted(s.value for s in run.samples if s.quantity == "ping_ms" and start <= s.time < end)
        if not values:
            continue
        shares = [(i + 1) / len(values) for i in range(len(values))]
        half = percentile(values, 0.5)
        ax.step(values, shares, where="post", color=color, lw=2.2, label=f"{run.arm.label}: {half:.0f} ms")
        ax.plot([half], [0.5], "o", color=color, ms=6)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(_milliseconds))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axvline(setting.profile.rtt * 1e3, color=theme.faint, lw=1, ls=(0, (4, 3)))
    ax.set_ylim(0, 1.01)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    ax.legend(loc="best", frameon=False, labelcolor="linecolor", prop={"size": 11, "weight": "bold"})
    ax.set_title("Ping while the upload runs", fontsize=14, fontweight="bold", loc="left")
    ax.set_xlabel("round trip (dots: half of the probes were faster; dashed: the empty links)")
    ax.set_ylabel("probes that came back by then")
    return figure


def uplink_stats(run: ArmRun, seconds: int) -> list[dict[str, float]]:
    """The controller's statistics of the uplink port (the last) within the arm's time, `time` in s since its start."""
    if not run.stats or not run.stats.exists():
        return []
    with run.stats.open(newline="") as file:
        rows = [
            {name: float(value) for name, value in row.items() if name != "access_point" and value}
            for row in csv.DictReader(file)
        ]
    uplink = max((row["port"] for row in rows), default=0)
    return [
        row | {"time": row["time"] - run.started}
        for row in rows
        if row["port"] == uplink and 0 <= row["time"] - run.started < seconds
    ]


def controller(
    experiment: LiveExperiment, setting: Setting, run: ArmRun, rows: Sequence[dict[str, float]], theme: Theme
) -> Figure:
    """What the controller saw and did at the uplink: the queue's delay above, the feedback below."""
    figure = Figure(figsize=(9.5, 5.2))
    figure.set_layout_engine("constrained", h_pad=0.1)
    top, bottom = figure.subplots(2, 1, sharex=True)
    times = [row["time"] for row in rows]
    for ax in (top, bottom):
        ax.axvspan(*_busy(experiment, setting.seconds), color=theme.shade, lw=0, zorder=0)
        ax.set_xlim(0, setting.seconds)
    top.set_title(f"Inside {run.arm.label}: the uplink", fontsize=14, fontweight="bold", loc="left")
    top.fill_between(times, [row["delay_ms"] for row in rows], color=theme.ping, alpha=0.3, lw=0)
    top.plot(times, [row["delay_ms"] for row in rows], color=theme.ping, lw=1.2, label="delay of the queue")
    top.plot(times, [row["target_ms"] for row in rows], color=theme.faint, ls=(0, (4, 3)), lw=1.2, label="its target")
    top.set_ylabel("queue (ms)")
    for name, label, color in (
        ("feedback_device", "device", theme.ink),
        ("feedback_uplink", "uplink class", theme.up),
        ("feedback_downlink", "downlink class", theme.down),
        ("feedback_largest_flow", "largest flow", theme.arms[2]),
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
