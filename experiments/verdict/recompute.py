# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.experiments.verdict.recompute [NAME...]`: compute the figures of docs/results again, from the
samples that are kept there.

Where a measure was computed wrongly, its figures follow from what was measured once, without another run: summaries
and pages are written anew, plots stay. Then `python -m accesspoint.experiments.verdict.judge` for the claims.
`--check` writes nothing. It names the first figure of each page that does not follow from its samples, and counts the
figures that differ, those without samples, and those of commits that are not in the history or were dirty. Exit code 1:
some differ, a page's head does not say what is missing, or what was measured since the day of that rule
(accesspoint.experiments.verdict.audit) cannot be audited. `--strict`, which releases take, allows nothing of all this.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from accesspoint.experiments.experiment import Experiment
from accesspoint.experiments.runs import archive, registry
from accesspoint.experiments.runs.plan import Order
from accesspoint.experiments.runs.store import write
from accesspoint.experiments.verdict import audit, pages, summary

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"


def names(results: Path = RESULTS) -> list[str]:
    """Experiments with a summary and samples that are small enough for the checkout."""
    return [path.stem for path in sorted((results / archive.FOLDER).glob("*.parquet"))]


def cells(experiment: Experiment, kept: summary.Summary, results: Path = RESULTS) -> list[dict[str, Any]]:
    """The cells of a summary, from its samples."""
    known = []
    for facts, raw in archive.read(results / archive.FOLDER / f"{experiment.name}.parquet"):
        values = {measure.name: measure.of(raw) for measure in experiment.measures}
        order = Order(experiment.name, facts["arm"], facts["point"], facts["repeat"], facts["seconds"], kept["target"])
        known.append((order, {name: float(value) for name, value in values.items() if value is not None}))
    return summary.figures(experiment, kept["arms"], kept["points"], known)


def recomputed(name: str, results: Path = RESULTS) -> tuple[summary.Summary, list[str]]:
    """Return a summary with its figures and verdicts computed from its samples, and what of these has changed."""
    experiment = registry.find(name)
    kept = json.loads((results / "summaries" / f"{name}.json").read_text())
    made = cells(experiment, kept, results)
    before = {_key(cell): cell["values"] for cell in kept["cells"]}
    others = [key for cell in made if before.get(key := _key(cell)) != cell["values"]]
    others += sorted(before.keys() - {_key(cell) for cell in made})
    kept |= {"cells": made}
    if experiment.compared:
        runs = [raw for _, raw in archive.read(results / archive.FOLDER / f"{name}.parquet")]
        kept |= json.loads(json.dumps(summary.compared(experiment, runs)))
    kept |= summary.tallied(experiment, kept)
    word = kept["word"]
    kept |= summary.judged(experiment, kept)
    return kept, [*others, *(["its verdict"] if kept["word"] != word else [])]


def _key(cell: dict[str, Any]) -> str:
    return f"{cell['measure']} of {cell['arm']} at {json.dumps(cell['point'])}"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.experiments.verdict.recompute", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all that have their samples if left out")
    parser.add_argument("--check", action="store_true", help="only compare, and count")
    parser.add_argument("--strict", action="store_true", help="with --check: allow no figure that cannot be audited")
    options = parser.parse_args(words)
    differing: dict[str, int] = {}
    for name in options.names or names():
        made, others = recomputed(name)
        if not others:
            print(f"{name}: as it stands")
            continue
        print(f"{name}: {len(others)} differ: {others[0]}{', ...' if len(others) > 1 else ''}")
        differing[name] = len(others)
        if options.check:
            continue
        write(RESULTS / "summaries" / f"{name}.json", json.dumps(made, indent=1) + "\n")
        write(RESULTS / f"{name}.md", pages.experiment_page(made, RESULTS))
    return check(differing, options.strict) if options.check else 0


def check(differing: dict[str, int], strict: bool, results: Path = RESULTS) -> int:
    """Print the counts, and what has to be mended. Return the exit code."""
    audits, whole = audit.look_at_all(results), audit.whole_history()
    figures = {name: sum(len(c["values"]) for c in one["cells"]) for name, one in audit.summaries(results).items()}
    print(f"{sum(figures.values())} figures on {len(figures)} pages")
    counts = {
        "differ": differing,
        "without samples": {name: figures[name] for name, each in audits.items() if not each.samples},
        "commit not there": {name: figures[name] for name, each in audits.items() if each.of("gone")},
        "files differed from the commit": {name: figures[name] for name, each in audits.items() if each.of("dirty")},
    }
    for what, of in counts.items():
        print(f"  {what}: {sum(of.values())}" + (f" on {len(of)} pages: {', '.join(of)}" if of else ""))
    problems = [f"{name}: figures differ from their samples" for name in differing]
    problems += audit.new_and_incomplete(results, audits)
    if whole and audit.kept(results) != audits:
        problems.append("pages say otherwise: renew them with `python -m accesspoint.experiments.verdict.judge`")
    if strict:
        problems += [f"{name}: {each.missing}" for name, each in audits.items() if not each.complete]
        problems += [] if whole else ["the history is not here: fetch it with `git fetch --unshallow`"]
    for text in dict.fromkeys(problems):
        print(f"error: {text}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
