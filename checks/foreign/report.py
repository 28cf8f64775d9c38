# SPDX-License-Identifier: Apache-2.0
"""Outcomes as a table, as a file, and as a page of both targets."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from accesspoint.checks.conformance.report import cell
from accesspoint.checks.foreign.case import FAIL, NOT_RUN, PASS, Case, Outcome

STYLES = {PASS: "green", FAIL: "bold red", NOT_RUN: "yellow"}
COLUMNS = {"apswitch": "this switch", "bmv2": "BMv2"}
MAX_CHARACTERS = 160  # of what was seen
BEGIN, END = "<!-- foreign: begin -->", "<!-- foreign: end -->"


def totals(outcomes: Iterable[Outcome]) -> str:
    """Return the number of cases by outcome, in words."""
    count = Counter(one.status for one in outcomes)
    return f"{count[PASS]} passed, {count[FAIL]} failed, {count[NOT_RUN]} not run"


def tell(console: Console, outcome: Outcome) -> None:
    """Print the outcome of a case that has just ended."""
    line = f"{outcome.status:8}{outcome.name} ({outcome.seconds:.1f} s) {outcome.reason}"
    console.print(Text(line, style=STYLES[outcome.status]))


def show(console: Console, outcomes: list[Outcome], cases: Mapping[str, Case], heading: str) -> None:
    """Print a row for each case, and the totals."""
    rows = Table(title_justify="left", expand=False)
    for name in ("client", "case", "result", "reason"):
        rows.add_column(name, no_wrap=name == "result", overflow="fold")
    for one in outcomes:
        rows.add_row(cases[one.name].client, one.name, Text(one.status, style=STYLES[one.status]), Text(one.reason))
    console.print(rows)
    console.print(f"[bold]{heading}[/bold]: {totals(outcomes)}", highlight=False)


def keep(path: Path, outcomes: list[Outcome], version: str, cases: Mapping[str, Case]) -> Path:
    """Add the outcomes to those of earlier runs: of each case that is known its newest one."""
    earlier = json.loads(path.read_text())["outcomes"] if path.exists() else {}
    found = earlier | {one.name: dataclasses.asdict(one) for one in outcomes}
    content = {"version": version, "outcomes": {name: found[name] for name in cases if name in found}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def page(path: Path, out: Path, cases: Mapping[str, Case]) -> None:
    """Renew the totals and the table of the page, between its two marks, from the results of both targets in `out`."""
    files = {name: out / f"{name}.json" for name in COLUMNS}
    found = {name: json.loads(file.read_text()) if file.exists() else {} for name, file in files.items()}
    outcomes = {
        name: {key: Outcome(**one) for key, one in told.get("outcomes", {}).items()} for name, told in found.items()
    }
    lines = [f"- {told['version']}: {totals(outcomes[name].values())}" for name, told in found.items() if told]
    lines += ["", f"| client | what | {' | '.join(COLUMNS.values())} | remark |", "| --- | --- | --- | --- | --- |"]
    for one in cases.values():
        own = {name: outcomes[name].get(one.name) for name in COLUMNS}
        cells = [cell(one.client), cell(one.task), *(mark(outcome) for outcome in own.values()), remark(one, own)]
        lines.append(f"| {' | '.join(cells)} |")
    table = f"{BEGIN}\n" + "\n".join(lines) + f"\n{END}"
    path.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: table, path.read_text(), flags=re.S))


def mark(outcome: Outcome | None) -> str:
    """Return an outcome in a word of Markdown."""
    status = outcome.status if outcome else NOT_RUN
    return status if status == PASS else f"**{status}**"


def remark(case: Case, outcomes: Mapping[str, Outcome | None]) -> str:
    """Return what was seen on each target, once where it is the same, and the known causes."""
    said: dict[str, Any] = {
        name: cell(one.reason[:MAX_CHARACTERS].rstrip(".")) for name, one in outcomes.items() if one and one.reason
    }
    if len(set(said.values())) == 1 and len(said) == len(outcomes):
        said = {"": next(iter(said.values()))}
    words = [f"{COLUMNS[name]}: {text}" if name else text for name, text in said.items()]
    failed = [name for name, one in outcomes.items() if one and one.status == FAIL]
    words += list(dict.fromkeys(case.known[name] for name in failed if name in case.known))
    return ". ".join(words)
