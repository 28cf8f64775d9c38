#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renew docs/results/peers.md and the figures of docs/index.md and README.md from the stored results:
`.venv/bin/python tools/site/figures.py`."""

import re
from pathlib import Path

from accesspoint.experiments.runs import registry
from accesspoint.experiments.verdict import audit, overview
from accesspoint.experiments.verdict.goals import Table

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
TESTBED = "peers-testbed"
ARMS = {"fifo": "FIFO", "cake-rtt": "CAKE with `ack-filter`, `rtt 1s` down", "ours": "**this access point**"}
MEASURES = ("download_during", "upload_during", "ping_mean")
BLOCK = re.compile(r"(<!-- made by .*? -->\n).*?(<!-- end -->)", re.S)


def headline() -> str:
    """Return the table of the first pages: download, upload and ping of three arms of peers-testbed."""
    experiment = registry.find(TESTBED)
    table = Table(overview.kept(RESULTS)[TESTBED]["cells"])
    lines = ["| | Download | Upload | Ping (mean) |", "| --- | ---: | ---: | ---: |"]
    for arm, words in ARMS.items():
        cells = []
        for measure in map(experiment.measure, MEASURES):
            cells.append(f"{measure.shown.format(table(measure.name, arm))} {measure.unit}")
        lines.append(f"| {words} | {' | '.join(cells)} |")
    audited = audit.kept(RESULTS)[TESTBED]
    return "\n".join([*lines, *(["", *audited.head()[:-1]] if audited.head() else [])]) + "\n"


PAGES = (ROOT / "docs/index.md", ROOT / "README.md")


def made(page: Path) -> str:
    """Return the page with the current figures."""
    text, blocks = BLOCK.subn(lambda match: match[1] + headline() + match[2], page.read_text())
    assert blocks == 1, f"{page} has {blocks} places for figures"
    return text


if __name__ == "__main__":
    (RESULTS / "peers.md").write_text(overview.page(overview.kept(RESULTS), audit.kept(RESULTS)))
    for page in PAGES:
        page.write_text(made(page))
