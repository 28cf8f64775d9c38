# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/results/, from the summaries of experiments."""

import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from accesspoint.experiments.experiment import Experiment, Measure, Point
from accesspoint.experiments.runs import registry
from accesspoint.experiments.verdict import audit, compare
from accesspoint.experiments.verdict.claims import CITED
from accesspoint.experiments.verdict.goals import Table, word

Summary = dict[str, Any]

MAX_COLUMNS = 6  # of a table: those of a page's width
ONCE = "one repeat, which says nothing of chance"

INTERVALS = (
    "Below a median is its exact interval, of order statistics; in brackets how sure it is where that is below 95 %. "
    "A goal is taken repeat by repeat, and the worse end of its interval counts."
)


WORDS = (
    "The verdicts are those of [the paper's claims](claims.md), over means of the repeats with Student's 95 % "
    "interval; nothing in the experiment can move them."
)


def source(paper: str) -> str:
    """Return where an experiment comes from: a paper by author and year, or none."""
    for number, cited in CITED.items():
        paper = re.sub(rf"\b(?:paper )?{number}\b", cited, paper)
    own = paper.removeprefix("none: ")
    return (
        f"Not from a paper: {own}"
        if own != paper
        else f"[{paper.partition(',')[0]}](../papers.md){paper[len(paper.partition(',')[0]) :]}"
    )


def experiment_page(summary: Summary, results: Path) -> str:
    """A page of docs/results/ for a declared experiment: the paper, plain and ours side by side, verdicts, pictures,
    what took part. results: the folder that the page is for, with the pictures that there are."""
    experiment = registry.under(summary["experiment"], summary.get("setting", {}), summary["target"])
    audited = audit.kept(results).get(experiment.name)
    lines = [f"# {experiment.name}: {experiment.title}", "", experiment.question, ""]
    lines += audited.head() if audited else []
    repeats = summary["repeats"]
    once = f"one repeat at each of {len(summary['points'])} points" if experiment.tally else ONCE
    made = f"medians of {repeats} repeats" if repeats > 1 else once
    lines += [f"{source(experiment.paper)}. {summary['form'].capitalize()} form: {made}.", ""]
    for measures, points in () if experiment.tally else compare.apart(experiment, summary):
        for part in _parts(measures, MAX_COLUMNS - (2 if experiment.sweep else 1)):
            lines += [*_table(experiment, summary, part, points), ""]
    judged = any(verdict["kind"] == "claim" for verdict in summary["verdicts"])
    intervals = "" if experiment.tally else f"{INTERVALS} "
    lines += [f"{intervals}In short: **{word(summary['verdicts'])}**.", ""]
    lines += [f"- {verdict['word']}: {verdict['text']}" for verdict in summary["verdicts"]]
    lines += ["", WORDS] if judged else []
    for grid in summary.get("compared", {}).get("grids", ()):
        lines += _grid(grid)
    lines += _pictures(experiment, results)
    unfit, counted = (
        [
            f"{one['run']} ({'; '.join(one['problems'])})"
            for one in summary["unfit"]
            if one.get("counted", False) == kind
        ]
        for kind in (False, True)
    )
    lines += ["", f"{summary['runs']} fit runs of {summary['wanted']}."]
    lines += [f"Unfit and left out: {', '.join(unfit)}."] if unfit else []
    lines += [f"Unfit, and counted for want of others: {', '.join(counted)}."] if counted else []
    if summary.get("target_differences"):
        lines += ["", f"{summary['target']} is not all that was asked for:", ""]
        lines += [f"- {text}" for text in summary["target_differences"]]
    if experiment.differences:
        lines += [
            "",
            "Differences from the paper:" if experiment.asked_by == "the paper" else "Notes:",
            "",
            *(f"- {text}" for text in experiment.differences),
        ]
    return "\n".join([*lines, "", *_reproduction(summary), *_took_part(summary)]) + "\n"


def _parts(measures: Sequence[Measure], most: int) -> list[Sequence[Measure]]:
    """Measures in parts of about equal length, each for a table of its own."""
    tables = math.ceil(len(measures) / most)
    ends = [round(len(measures) * number / tables) for number in range(tables + 1)]
    return [measures[start:end] for start, end in pairwise(ends)]


def _table(experiment: Experiment, summary: Summary, measures: Sequence[Measure], points: Sequence[Point]) -> list[str]:
    """Arms at these points by these measures."""
    words = ["arm", "at"] if experiment.sweep else ["arm"]
    lines = [f"| {' | '.join([*words, *(measure.heading for measure in measures)])} |"]
    lines += [f"|{' --- |' * len(words)}{' ---: |' * len(measures)}"]
    table = Table(summary["cells"])
    places = [experiment.measures.index(measure) for measure in measures]
    for row in (row for row in compare.rows(experiment, summary) if row.point in points):
        measured = row.role != "paper's figure"
        label = f"**{row.arm}**: {row.label}" if measured else row.label
        spreads = [compare.spread(table, m, row.arm, row.point) if measured else "" for m in measures]
        own = [row.cells[place] for place in places]
        if not any(own):
            continue  # the paper has figures of other measures
        figures = [f"{cell}<br>{spread}" if spread else cell for cell, spread in zip(own, spreads, strict=True)]
        cells = [label, *([compare.words(row.point)] if experiment.sweep else []), *figures]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _grid(grid: Summary) -> list[str]:
    lines = ["", f"## {grid['title']}", *(["", grid["text"]] if grid["text"] else [])]
    if grid["rows"]:
        lines += ["", f"| {' | '.join(grid['headings'])} |", f"|{' --- |' * len(grid['headings'])}"]
        lines += [f"| {' | '.join(row)} |" for row in grid["rows"]]
    return lines


def plots(results: Path, name: str) -> Path:
    """Folder of the pictures of an experiment's page."""
    return results / "plots" / name


def _pictures(experiment: Experiment, results: Path) -> list[str]:
    """The pictures that were drawn, with their captions."""
    lines = []
    for figure in experiment.figures:
        path = plots(results, experiment.name) / f"{figure.name}.svg"
        if path.exists():
            lines += ["", f"![{figure.caption}]({path.relative_to(results).as_posix()})", "", figure.caption]
    return lines


def stale(results: Path) -> list[Path]:
    """Pages of a folder of results that differ from those that its summaries make."""
    found = []
    for path in sorted((results / "summaries").glob("*.json")):
        page, made = results / f"{path.stem}.md", experiment_page(json.loads(path.read_text()), results)
        if not page.exists() or page.read_text() != made:
            found.append(page)
    return found


def _reproduction(summary: Summary) -> list[str]:
    """The command that makes the figures again, versions, and the place of files; empty for a summary of the old
    form."""
    if "seeds" not in summary:
        return []
    name, form = summary["experiment"], summary["form"]
    command, points = summary["command"], summary["seeds"]
    seeds = ", ".join(str(seed) for seed in points[0]["of"].values())
    runs = f"out/{name}/{form}/runs/ARM{'_POINT' if len(points) > 1 else ''}_REPEAT"
    return [
        f"`{command}` makes it again, with the same seed for all arms of a repeat"
        + (f": {seeds}." if len(points) == 1 else "; a seed for each point and repeat is in the summary."),
        "",
        *_raw(summary),
        f"Output: `{runs}/`, every sample as `samples.parquet`, commit, parameters, versions and "
        f"self-check as `run.json`. Every repeat's figures: [summary](summaries/{name}.json).",
        "",
        f"Claims: checksum `{summary['claims'][:16]}`." if summary["claims"] else "Claims: of more than one version.",
        "",
    ]


def _raw(summary: Summary) -> list[str]:
    """The file of the samples behind the figures; empty for a summary of the old form."""
    if "raw" not in summary:
        return []
    raw = summary["raw"]
    where = (
        f"[every sample]({raw['file']})" if raw["file"] else "too large for the checkout; the command makes the like"
    )
    return [f"Raw data: {where}, {raw['bytes'] / 1e6:.1f} MB, sha256 `{raw['sha256']}`.", ""]


def _took_part(summary: Summary) -> list[str]:
    """commit: `-dirty` where files differed from it."""
    versions = ", ".join(f"{name} {value.split(' (')[0]}" for name, value in summary["versions"].items())
    machine, clocks = summary["machine"], summary.get("clocks", [])
    return [
        f"Versions: {versions}." + (f" The runs were in {' and '.join(clocks)} time." if clocks else ""),
        "",
        f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory']}, {machine['system']}.",
    ]
