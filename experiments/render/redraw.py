# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.experiments.render.redraw [NAME...]`: draw the pictures of docs/results again, from the
summaries and samples that are kept there.

A new label or style reaches them without another run. Timelines need samples that are small enough for the checkout;
bars and curves need the summary alone.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.render import figures
from accesspoint.experiments.runs import archive, registry
from accesspoint.experiments.runs.plan import Order
from accesspoint.experiments.runs.store import Run
from accesspoint.experiments.verdict import pages
from accesspoint.experiments.verdict.judge import RESULTS
from accesspoint.topologies.requirements import ROOT


@dataclass(frozen=True)
class KeptRun(Run):
    """A run whose samples are in docs/results/raw."""

    kept: tuple[Sample, ...] = ()

    def samples(self) -> list[Sample]:
        return list(self.kept)


def names() -> list[str]:
    """Experiments whose pages have pictures."""
    summaries = sorted((RESULTS / "summaries").glob("*.json"))
    return [path.stem for path in summaries if pages.plots(RESULTS, path.stem).exists()]


def redraw(name: str, directory: Path) -> list[Path]:
    """Draw the pictures of an experiment's page into a folder; return their files."""
    summary = json.loads((RESULTS / "summaries" / f"{name}.json").read_text())
    experiment = registry.under(name, summary.get("setting", {}), summary["target"])
    file = RESULTS / archive.FOLDER / f"{name}.parquet"
    runs = []
    for facts, raw in archive.read(file) if file.exists() else ():
        order = Order(name, facts["arm"], facts["point"], facts["repeat"], facts["seconds"], summary["target"])
        runs.append(KeptRun(order, file, dict(facts), tuple(raw.samples)))
    return [directory / f"{one.name}.svg" for one in figures.write_all(experiment, summary, runs, directory)]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m accesspoint.experiments.render.redraw", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all that have pictures if left out")
    for name in parser.parse_args(words).names or names():
        for path in redraw(name, pages.plots(RESULTS, name)):
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
