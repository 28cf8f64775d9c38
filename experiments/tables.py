# SPDX-License-Identifier: Apache-2.0
"""The table and the verdicts, for people at a terminal."""

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from experiments.live import LiveExperiment, Summary
from experiments.metrics import Verdict
from topologies.profiles import PROFILES, LinkProfile


def peers(profile: LinkProfile, cc: str) -> dict[str, Any] | None:
    """The peers measured on this very link profile with this congestion control, if any."""
    known = json.loads((Path(__file__).parent / "peers.json").read_text())
    entry: dict[str, Any] | None = known.get(profile.name)
    return entry if entry and PROFILES.get(profile.name) == profile and entry["conditions"]["cc"] == cc else None


def results(experiment: LiveExperiment, summary: Summary) -> Table:
    """One row per arm."""
    table = _table(
        "arm", ["down\nbefore", "\nduring", "\nafter", "kept", "up\nduring", "ping ms\np50", "\np99", "\nmax"]
    )
    for arm in experiment.arms:
        if arm.name not in summary["arms"]:
            continue
        figures = summary["arms"][arm.name]
        down, up, ping = figures["downlink_mbps"], figures["uplink_mbps"], figures["ping_ms"]
        table.add_row(
            Text(arm.name, style="bold"),
            *(_number(down[phase], 2) for phase in ("before", "during", "after")),
            _kept(summary["ratios"].get(f"{arm.name}_downlink_during_of_before")),
            _number(up["during"], 2),
            *(_milliseconds(ping[name]) for name in ("p50", "p99", "max")),
        )
    return table


def beside_peers(experiment: LiveExperiment, summary: Summary, known: dict[str, Any]) -> Table:
    """The measured peers, and the last arm with the same figures."""
    table = _table("measured peers", ["down\nbefore", "\nduring", "kept", "up\nduring", "ping ms\nmean", "\nmax"])
    for peer in known["systems"]:
        before, during = peer["downlink_before"], peer["downlink_during"]
        table.add_row(
            peer["name"],
            *(_number(value, 2) for value in (before, during)),
            f"{during / before:.0%}",
            _number(peer["uplink_during"], 2),
            *(_milliseconds(peer[name]) for name in ("ping_mean", "ping_max")),
        )
    name = [arm.name for arm in experiment.arms if arm.name in summary["arms"]][-1]
    figures = summary["arms"][name]
    table.add_row(
        f"{name}, this run",
        *(_number(figures["downlink_mbps"][phase], 2) for phase in ("before", "during")),
        _kept(summary["ratios"].get(f"{name}_downlink_during_of_before")),
        _number(figures["uplink_mbps"]["during"], 2),
        *(_milliseconds(figures["ping_ms"][key]) for key in ("mean", "max")),
        style="bold",
    )
    return table


def _table(first: str, headers: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column(f"Mb/s\n{first}", no_wrap=True)
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _kept(ratio: float | None) -> Text:
    return Text("-" if ratio is None else f"{ratio:.0%}", style="green" if ratio and ratio >= 0.9 else "red")


def _milliseconds(value: float | None) -> str:
    return _number(value, 0 if value is None or value >= 100 else 1)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def show_target(console: Console, target: dict[str, Any]) -> None:
    """Prints where a target is not what was asked for; nothing when it is."""
    if target["differences"]:
        console.print(
            f"{target['name']} {target['version']} is not all that was asked for:", style="yellow", highlight=False
        )
    for difference in target["differences"]:
        console.print(Padding(Text(difference, style="yellow"), (0, 0, 0, 2)))


def show(
    console: Console, experiment: LiveExperiment, summary: Summary, decided: list[Verdict], known: dict[str, Any] | None
) -> None:
    """Prints the table, where the peers come from, the verdicts, and what makes the run unfit."""
    console.print(results(experiment, summary))
    if known:
        console.print(beside_peers(experiment, summary, known))
        console.print(f"Peers: {known['source']}.\n", style="dim", highlight=False)
    for verdict in decided:
        word, style = ("met    ", "bold green") if verdict.met else ("not met", "bold red")
        console.print(Text.assemble((word, style), f"  {verdict.text}"), highlight=False)
    for name, figures in summary["arms"].items():
        for problem in figures["self_check"]["problems"]:
            console.print(Text.assemble(("caution", "bold yellow"), f"  {name}: {problem}"), highlight=False)
