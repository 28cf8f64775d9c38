# SPDX-License-Identifier: Apache-2.0
"""Decisions on goals: figures of the same repeat, and the worse end of their interval."""

from typing import Any

import pytest

from accesspoint.experiments.experiment import Goal
from accesspoint.experiments.verdict.goals import decide, word


def cell(arm: str, **values: float) -> dict[str, Any]:
    numbered = {name.removeprefix("r"): value for name, value in values.items()}
    return {"arm": arm, "point": {}, "measure": "download", "median": -1.0, "values": numbered}


def goal(at_least: float | None = None, at_most: float | None = None) -> Goal:
    return Goal(
        "ours has {value} (limit {limit})",
        lambda medians: medians("download", "ours") / medians("download", "cake"),
        at_least=at_least, at_most=at_most,
    )  # fmt: skip


CELLS = [cell("ours", r1=10.0, r2=9.0, r3=12.0), cell("cake", r1=10.0, r2=10.0, r3=10.0)]


def test_the_worse_end_counts() -> None:
    low, high = decide(goal(at_least=1.0), CELLS), decide(goal(at_most=1.1), CELLS)
    assert low and (low.value, low.worse, low.n) == pytest.approx((1.0, 0.9, 3)) and not low.holds
    assert high and high.worse == pytest.approx(1.2) and not high.holds
    assert low.text == "ours has 0.90 (limit 1.00); missed by 10.0 %"
    kept = decide(goal(at_least=0.9), CELLS)
    assert kept and kept.holds and kept.text == "ours has 0.90 (limit 0.90)"


def test_repeats_are_taken_together_that_had_the_same_seed() -> None:
    """Ours has CAKE's in every one, however these differ."""
    apart = [cell("ours", r1=1.0, r2=2.0, r3=4.0), cell("cake", r1=1.0, r2=2.0, r3=4.0)]
    decision = decide(goal(at_least=1.0), apart)
    assert decision and decision.holds


def test_a_repeat_that_lacks_an_arm_says_nothing() -> None:
    decision = decide(goal(at_least=1.0), [cell("ours", r1=1.0, r2=0.5), cell("cake", r1=1.0, r3=1.0)])
    assert decision and (decision.n, decision.worse) == (1, 1.0)
    assert decide(goal(at_least=1.0), [cell("ours", r1=1.0)]) is None
    assert decide(goal(at_least=1.0), [cell("ours", r1=1.0), cell("cake", r1=0.0)]) is None


def test_one_repeat_decides_nothing() -> None:
    one = [cell("ours", r1=10.0), cell("cake", r1=10.0)]
    for limit in (0.9, 1.1):
        decision = decide(goal(at_least=limit), one)
        assert decision and decision.verdict == "inconclusive"
        assert decision.text == f"ours has 1.00 (limit {limit:.2f}); one repeat decides nothing"


def test_a_limit_of_nothing_is_missed_by_what_there_is() -> None:
    counted = Goal("{value} (at most {limit})", lambda medians: medians("download", "ours"), at_most=0.0)
    decision = decide(counted, [cell("ours", r1=0.0, r2=3.0)])
    assert decision and decision.text == "3.00 (at most 0.00); missed by 3.00"


@pytest.mark.parametrize(
    ("of_goals", "short"),
    [
        ([], "not run"),
        (["pass", "not run"], "1 pass, 1 not run"),
        (["pass", "pass"], "pass"),
        (["fail"], "1 fail"),
        (["fail", "pass", "inconclusive", "pass"], "2 pass, 1 fail, 1 inconclusive"),
    ],
)
def test_word_counts_each_verdict(of_goals: list[str], short: str) -> None:
    assert word([{"kind": "goal", "word": of} for of in of_goals]) == short
