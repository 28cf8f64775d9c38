# SPDX-License-Identifier: Apache-2.0
"""The result as a table, on the screen and as a page."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from accesspoint.checks.conformance.suite import FAIL, NOT_APPLICABLE, PASS, SECTIONS, Outcome

STYLES = {PASS: "green", FAIL: "bold red", NOT_APPLICABLE: "yellow"}
PAGE = """# Conformance of {name}

The [conformance suite](../conformance.md) asks a P4Runtime server what the [specification](https://p4.org/p4-spec/p4runtime/main/P4Runtime-Spec.html)
and v1model ask for. {version}: {totals}.

| section | | pass | fail | n/a |
| --- | --- | ---: | ---: | ---: |
"""


def totals(outcomes: Iterable[Outcome]) -> str:
    """Return the number of checks by outcome, in words."""
    count = Counter(one.status for one in outcomes)
    return f"{count[PASS]} passed, {count[FAIL]} failed, {count[NOT_APPLICABLE]} not applicable"


def table(outcomes: list[Outcome], all_of_them: bool) -> Table:
    """A row for each check; without `all_of_them` only those that did not pass."""
    rows = Table(title_justify="left", show_lines=False, expand=False)
    rows.add_column("section", no_wrap=True)
    rows.add_column("check", ratio=3, overflow="fold")
    rows.add_column("result", no_wrap=True)
    rows.add_column("reason", ratio=4, overflow="fold")
    for one in outcomes:
        if all_of_them or one.status != PASS:
            result = Text(one.status, style=STYLES[one.status])
            rows.add_row(one.check.section, Text(one.check.title), result, Text(one.reason))
    return rows


def show(console: Console, outcomes: list[Outcome], all_of_them: bool, heading: str) -> None:
    """Prints the table and the totals."""
    rows = table(outcomes, all_of_them)
    if rows.row_count:
        console.print(rows)
    console.print(f"[bold]{heading}[/bold]: {totals(outcomes)}", highlight=False)


def cell(text: str) -> str:
    """Text within a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def page(outcomes: list[Outcome], name: str, version: str) -> str:
    """The result in Markdown."""
    text = PAGE.format(name=name, version=version, totals=totals(outcomes))
    for key, title in SECTIONS.items():
        count = Counter(one.status for one in outcomes if one.check.group == key)
        if count:
            text += f"| {key} | {title} | {count[PASS]} | {count[FAIL]} | {count[NOT_APPLICABLE]} |\n"
    text += "\n| section | check | result | reason |\n| --- | --- | --- | --- |\n"
    for one in outcomes:
        result = one.status if one.status == PASS else f"**{one.status}**"
        text += f"| {one.check.section} | {cell(one.check.title)} | {result} | {cell(one.reason)} |\n"
    return text


def write(path: Path, outcomes: list[Outcome], name: str, version: str) -> None:
    """The page into a file, in a folder that is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(outcomes, name, version))
