# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.experiments.runs.determinism RUN RUN`: compare two runs of one seed, and print from when on
and by how much they differ. RUN: a run's folder (accesspoint.experiments.runs.store). Exit code 1 when they differ.

Times and values are compared to 6 digits (1 us), as floating-point sums in different orders differ below that.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs.plan import Order
from accesspoint.experiments.runs.store import Run

DIGITS = 6
Row = tuple[float, float, float]


@dataclass(frozen=True)
class Difference:
    """A quantity of one source that differs. first: the time (s) of the first sample that the other run does not
    have."""

    quantity: str
    source: str
    first: float
    samples: tuple[int, int]
    means: tuple[float, float]

    @property
    def text(self) -> str:
        of = f" of {self.source}" if self.source else ""
        counted, means = " and ".join(map(str, self.samples)), " and ".join(f"{mean:.4g}" for mean in self.means)
        return f"{self.quantity}{of}: differs from {self.first:.3f} s on; {counted} samples, means {means}"


def differences(one: Iterable[Sample], other: Iterable[Sample]) -> list[Difference]:
    """Return the quantities that differ between two runs, the earliest first."""
    both = [_by_source(one), _by_source(other)]
    found = []
    for key in sorted(both[0].keys() | both[1].keys()):
        rows = both[0].get(key, []), both[1].get(key, [])
        if rows[0] == rows[1]:
            continue
        only = set(rows[0]) ^ set(rows[1])
        means = tuple(fmean(row[1] for row in each) if each else 0.0 for each in rows)
        first = min((row[0] for row in only), default=0.0)
        found.append(Difference(*key, first, (len(rows[0]), len(rows[1])), (means[0], means[1])))
    return sorted(found, key=lambda each: each.first)


def _by_source(samples: Iterable[Sample]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for s in samples:
        found[s.quantity, s.source].append((round(s.time, DIGITS), round(s.value, DIGITS), round(s.span, DIGITS)))
    return {key: sorted(rows) for key, rows in found.items()}


def read(folder: Path) -> tuple[Order, list[Sample]]:
    facts = json.loads((folder / "run.json").read_text())
    order = Order(**{name: facts[name] for name in Order.__dataclass_fields__ if name in facts})
    return order, Run(order, folder, facts).samples()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m accesspoint.experiments.runs.determinism", description=__doc__)
    parser.add_argument("runs", metavar="RUN", nargs=2, type=Path)
    options = parser.parse_args(argv)
    (one, first), (other, second) = (read(folder) for folder in options.runs)
    if (one.arm, one.seed, one.seconds) != (other.arm, other.seed, other.seconds):
        print("error: these are not runs of one arm, seed and length", file=sys.stderr)
        return 2
    found = differences(first, second)
    for difference in found:
        print(difference.text)
    print(f"{one.key}, seed {one.seed}: " + ("not the same" if found else f"the same, {len(first)} samples"))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
