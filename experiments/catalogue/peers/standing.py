# SPDX-License-Identifier: Apache-2.0
"""Compares this access point with CAKE, scenario by scenario, and counts. Pure.

CAKE's figure is that of its better set-up, for each measure by itself: no single set-up has all of them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from accesspoint.experiments.experiment import SEED, Compared, Grid, Medians, Pair, Point
from accesspoint.experiments.measure.intervals import of_part

OURS = "ours"
LEVEL = 0.02  # of CAKE's figure
MIN_FIGURE = 0.001  # Mb/s or ms; a ratio of less says nothing
Word = Literal["ahead", "level", "behind"]
WORDS: tuple[Word, ...] = ("ahead", "level", "behind")


@dataclass(frozen=True)
class Judged:
    """A measure that scenarios are compared by. less: the smaller value is the better one."""

    name: str
    text: str
    shown: str
    less: bool = False

    def best(self, values: Sequence[float]) -> float:
        return min(values) if self.less else max(values)

    def word(self, ours: float, cake: float) -> Word:
        """Return this access point's standing."""
        ours, cake = max(ours, MIN_FIGURE), max(cake, MIN_FIGURE)
        if abs(ours / cake - 1) <= LEVEL:
            return "level"
        return "ahead" if (ours < cake) == self.less else "behind"


JUDGED = (
    Judged("download", "download", "{:.3g}"),
    Judged("upload", "upload", "{:.3g}"),
    Judged("ping_mean", "ping mean", "{:.1f}", less=True),
    Judged("ping_p99", "ping p99", "{:.1f}", less=True),
)
"""Each of the worst-off station."""

Both = dict[str, tuple[float, float]]
"""Measure -> this access point's figure and CAKE's."""


def figures(medians: Medians, points: Sequence[Point], cakes: Sequence[str]) -> list[tuple[Point, Both]]:
    """Return both figures of each scenario that ran behind all arms. A scenario without downloads has none of them."""
    there = [cake for cake in cakes if any(medians(JUDGED[-1].name, cake, **point) is not None for point in points)]
    found = []
    for point in points if there else ():
        both: Both = {}
        for measure in JUDGED:
            ours, *others = (medians(measure.name, arm, **point) for arm in (OURS, *there))
            if ours is not None and None not in others:
                both[measure.name] = ours, measure.best(others)
        if both:
            found.append((point, both))
    return found


def tally(
    medians: Medians, points: Sequence[Point], cakes: Sequence[str], describe: Callable[[Point], str]
) -> Compared:
    """Return verdicts, tables and pairs (CAKE's figure, this access point's) over all scenarios."""
    found = figures(medians, points, cakes)
    if not found:
        return Compared()
    counts = {
        measure.text: Counter(measure.word(*both[measure.name]) for _, both in found if measure.name in both)
        for measure in JUDGED
    }
    pairs = {
        measure.text: [_pair(*both[measure.name]) for _, both in found if measure.name in both] for measure in JUDGED
    }
    return Compared(
        tuple(_verdict(text, count) for text, count in counts.items()),
        (_counts(counts, found), _behind(found, points, describe)),
        {text: group for text, group in pairs.items() if group},
    )


def _pair(ours: float, cake: float) -> Pair:
    return Pair(float(f"{max(cake, MIN_FIGURE):.6g}"), float(f"{max(ours, MIN_FIGURE):.6g}"))


def _ratio(ours: float, cake: float) -> str:
    return f"{ours / cake:.2f}" if cake else "-"


def _verdict(text: str, count: Counter[Word]) -> dict[str, str]:
    """A pass where scenarios ahead are more than those behind by more than chance (the sign test's interval)."""
    said = ", ".join(f"{word} in {count[word]}" for word in WORDS)
    interval = of_part(count["ahead"], count["ahead"] + count["behind"])
    if interval is None:
        return {"kind": "goal", "word": "inconclusive" if count["level"] else "not run", "text": f"{text}: {said}"}
    word = "pass" if interval.low > 0.5 else "fail" if interval.high < 0.5 else "inconclusive"
    part = f"{interval.value:.0%} ({interval.low:.0%} to {interval.high:.0%})"
    return {
        "kind": "goal",
        "word": word,
        "text": f"{text} of the worst-off station: {said} of {count.total()} scenarios; ahead in {part} of those that "
        "are not level (more than half, by more than chance)",
    }


def _counts(counts: dict[str, Counter[Word]], found: Sequence[tuple[Point, Both]]) -> Grid:
    rows = []
    for text, count in counts.items():
        interval = of_part(count["ahead"], count["ahead"] + count["behind"])
        part = f"{interval.value:.0%} ({interval.low:.0%} to {interval.high:.0%})" if interval else "-"
        rows.append((text, str(count.total()), *(str(count[word]) for word in WORDS), part))
    behind = sum(bool(_of(both, "behind")) for _, both in found)
    ahead = sum(bool(_of(both, "ahead")) and not _of(both, "behind") for _, both in found)
    text = (
        f"CAKE's figure is that of its better set-up, measure by measure; level is within {LEVEL * 100:g} % of it. In "
        f"{behind} of {len(found)} scenarios this access point is behind in some measure, in {ahead} it is ahead in "
        "some and behind in none. Each scenario ran once behind each arm: the scenarios, not repeats, are the sample. "
        "In brackets is the exact 95 % interval of the sign test."
    )
    headings = ("worst-off station", "scenarios", *WORDS, "ahead, of those not level")
    return Grid("Ahead, level and behind", headings, tuple(rows), text)


def _of(both: Both, word: Word) -> list[Judged]:
    """Return the measures of a scenario with that standing."""
    return [one for one in JUDGED if one.name in both and one.word(*both[one.name]) == word]


def _behind(found: Sequence[tuple[Point, Both]], points: Sequence[Point], describe: Callable[[Point], str]) -> Grid:
    """List every scenario that is behind in any measure."""
    rows = []
    for point, both in found:
        if behind := _of(both, "behind"):
            named = ", ".join(f"{one.text} ({_ratio(*both[one.name])})" for one in behind)
            pairs = (
                " / ".join(one.shown.format(value) for value in both[one.name]) if one.name in both else "-"
                for one in JUDGED
            )
            rows.append((f"{point[SEED]} / {point['scenario']}: {describe(point)}", named, *pairs))
    headings = (
        "seed / scenario: drawn", "behind in (ratio)", "download (Mb/s)", "upload (Mb/s)", "ping mean (ms)",
        "ping p99 (ms)",
    )  # fmt: skip
    text = "Figures are this access point's / CAKE's, of the worst-off station." if rows else "None."
    if missing := len(points) - len(found):
        text += f" {missing} of {len(points)} scenarios have no fit run behind some arm, and are not counted."
    return Grid("Behind", headings, tuple(rows), text)
