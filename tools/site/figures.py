#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the figures of docs/results/peers.md, docs/index.md and README.md over from the results that are kept:
`.venv/bin/python tools/site/figures.py`."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from accesspoint.experiments.verdict import overview

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
TESTBED = RESULTS / "peers-testbed.md"
ARMS = {"fifo": "a plain FIFO", "cake-ack-filter": "CAKE with its ACK filter", "ours": "this access point"}
COLUMNS = (("download beside the upload", "Mb/s"), ("upload", "Mb/s"), ("ping beside both, mean", "ms"))
BLOCK = re.compile(r"(<!-- made by .*? -->\n).*?(<!-- end -->)", re.S)


def headline() -> str:
    """The testbed's table, in short."""
    # The figure of each cell, without its interval.
    table = [line.strip("|\n").split("|") for line in TESTBED.open() if line.startswith("|")]
    rows = [[cell.strip().partition("<br>")[0] for cell in row] for row in table]
    columns = [rows[0].index(f"{name} ({unit})") for name, unit in COLUMNS]
    lines = ["| behind | download | upload | ping, mean |", "| --- | ---: | ---: | ---: |"]
    for arm, words in ARMS.items():
        row = next(row for row in rows if row[0].startswith(f"**{arm}**"))
        cells = [f"{row[column]} {unit}" for column, (_, unit) in zip(columns, COLUMNS, strict=True)]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def protected() -> str:
    """Summary of the traffic that is protected compared with CAKE, and of that which is not."""
    return overview.in_short(overview.kept(RESULTS), "docs/results")


PAGES: Mapping[Path, Callable[[], str]] = {ROOT / "docs/index.md": headline, ROOT / "README.md": protected}


def made(page: Path) -> str:
    """The page with its figures as they are now."""
    text, blocks = BLOCK.subn(lambda match: match[1] + PAGES[page]() + match[2], page.read_text())
    assert blocks == 1, f"{page} has {blocks} places for figures"
    return text


if __name__ == "__main__":
    (RESULTS / "peers.md").write_text(overview.page(overview.kept(RESULTS)))
    for page in PAGES:
        page.write_text(made(page))
