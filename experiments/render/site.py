# SPDX-License-Identifier: Apache-2.0
"""The reports: a static page per experiment and an overview of all, built from results alone. Built twice, they are the
same to the byte."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from accesspoint.experiments.render import figures
from accesspoint.experiments.runs import registry, store
from accesspoint.experiments.runs.store import Store, counted
from accesspoint.experiments.verdict import compare
from accesspoint.experiments.verdict.goals import Table


def environment() -> jinja2.Environment:
    """Jinja environment of this package's templates."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["number"] = lambda value, digits: "-" if value is None else f"{value:.{digits}f}"
    return made


def build(stores: Sequence[Store], out: Path) -> Path:
    """Pages of these results, and `out/index.html` over all that have one; returns that."""
    templates = environment()
    for kept in stores:
        _page(kept, templates)
    entries = []
    for name, experiment in ((name, registry.find(name)) for name in registry.with_seeds(out)):
        forms = [kept for quick in (False, True) if (kept := Store(out, name, quick)).has_page()]
        entries += [(experiment, [(kept.directory.relative_to(out), kept.summary()) for kept in forms])]
    store.write(out / "index.html", templates.get_template("overview.html.j2").render(entries=entries))
    return out / "index.html"


def _page(kept: Store, templates: jinja2.Environment) -> None:
    summary, plan = kept.summary(), kept.plan()
    assert plan
    experiment = plan.declared()
    runs = kept.runs(plan)
    drawn = figures.write_all(experiment, summary, counted(plan, runs), kept.directory)
    table = Table(summary["cells"])
    page = templates.get_template("experiment.html.j2").render(
        experiment=experiment,
        summary=summary,
        figures=drawn,
        rows=[_row(experiment, table, row) for row in compare.rows(experiment, summary)],
        words=compare.words,
        runs=runs,
    )
    store.write(kept.directory / "index.html", page)


def _row(experiment: Any, table: Table, row: compare.Row) -> dict[str, Any]:
    measured = row.role != "paper's figure"
    spreads = [compare.spread(table, m, row.arm, row.point) if measured else "" for m in experiment.measures]
    return {"row": row, "cells": list(zip(row.cells, spreads, strict=True))}
