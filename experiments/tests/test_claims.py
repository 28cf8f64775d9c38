# SPDX-License-Identifier: Apache-2.0
"""The papers' claims are unchanged since before any measurement, and the rules there decide every word."""

import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from accesspoint.experiments.experiment import Value
from accesspoint.experiments.measure.intervals import of_mean
from accesspoint.experiments.runs import registry
from accesspoint.experiments.verdict import claim_evidence, claims, gains
from accesspoint.experiments.verdict import judge as judge_
from accesspoint.experiments.verdict.claims import Claim, Repeats, judge

CLAIMS = Path(__file__).resolve().parents[1] / "verdict/claims.toml"
ORIGINAL = CLAIMS.parents[2] / "shared" / "design" / "claims.toml"
"""The original of the file, beside the checkout: not every machine has it."""

SHA256 = "6e20142ff8d2a99a2b588a73bc7dc5ac552bc9af4c2272ccc4c6549c36f63bca"


def test_the_claims_are_as_they_were_written() -> None:
    """Bytewise where the original is beside the checkout, by its checksum everywhere."""
    text = CLAIMS.read_bytes()
    assert hashlib.sha256(text).hexdigest() == SHA256
    if ORIGINAL.exists():
        assert text == ORIGINAL.read_bytes()


def test_there_are_the_claims_of_five_papers() -> None:
    claims = tomllib.loads(CLAIMS.read_text())["claim"]
    assert len(claims) == len({claim["id"] for claim in claims}) == 155
    assert {claim["paper"] for claim in claims} == {"000", "001", "002", "003", "004"}


def claim(kind: str, **fields: Any) -> Claim:
    usual = {
        "id": "x", "paper": "000", "figure": "Fig. 1", "quote": "q", "setting": "s", "measure": "m", "needs": "n",
        "arms": ["a"], "kind": kind,
    }  # fmt: skip
    return Claim.model_validate(usual | fields)


def around(mean: float, spread: float = 0.0, form: str = "quick", repeats: int = 5) -> Repeats:
    """Repeats whose interval reaches `spread` to both sides of `mean`."""
    values = [0.0] * repeats
    values[0], values[-1] = -1.0, 1.0
    plain = of_mean(values)
    assert plain
    return Repeats({n + 1: mean + value * spread / plain.high for n, value in enumerate(values)}, form)


def word(of: Claim, measured: Mapping[Any, Repeats]) -> str:
    """measured: by arm, or by arm and point."""
    return judge(of, lambda arm, point: measured.get(arm if point is None else (arm, point))).word


@pytest.mark.parametrize(
    ("mean", "reach", "expected"),
    [
        (10.0, 0.5, "reproduced"),
        (8.5, 1.0, "reproduced"),  # overlaps 8 to 12.5
        (7.9, 0.2, "reproduced"),
        (7.5, 0.2, "contradicted"),
        (12.8, 0.2, "contradicted"),
        (10.0, 5.0, "undecided"),  # holds all of 8 to 12.5
        (14.0, 4.0, "reproduced"),
    ],
)
def test_r1_number_and_ratio(mean: float, reach: float, expected: str) -> None:
    assert word(claim("number", value=10), {"a": around(mean, reach)}) == expected
    over = {"a": around(mean, reach), "b": around(1.0)}
    assert word(claim("ratio", value=10, arms=["a", "b"]), over) == expected


def test_r1_range_and_values_by_point() -> None:
    of = claim("number", low=10, high=20)
    assert [word(of, {"a": around(value, 0.1)}) for value in (7.8, 8.0, 25.0, 25.2)] == [
        "contradicted", "reproduced", "reproduced", "contradicted",
    ]  # fmt: skip
    of = claim("number", values=[1, 100], axis="n", points=[1, 2])
    assert word(of, {("a", 1): around(1), ("a", 2): around(100)}) == "reproduced"
    assert word(of, {("a", 1): around(1), ("a", 2): around(10)}) == "contradicted"
    of = claim("number", values=[1, 100], axis="arm", points=["a", "b"], arms=["a", "b"])
    assert word(of, {("a", "a"): around(1), ("b", "b"): around(100)}) == "reproduced"


def test_r2_order_is_of_differences_repeat_by_repeat() -> None:
    of = claim("order", sense="higher", arms=["a", "b"])
    assert word(of, {"a": around(2, 0.5), "b": around(1)}) == "reproduced"
    assert word(of, {"a": around(1.2, 0.5), "b": around(1)}) == "undecided"
    assert word(of, {"a": around(0, 0.5), "b": around(1)}) == "contradicted"
    assert word(claim("order", sense="lower", arms=["a", "b"]), {"a": around(0, 0.5), "b": around(1)}) == "reproduced"
    # Chance that both have in a repeat cancels out: both vary by 50, their difference by nothing.
    assert word(of, {"a": around(101, 50), "b": around(100, 50)}) == "reproduced"
    of = claim("order", sense="higher", arms=["a", ["b", "c"]])
    assert word(of, {"a": around(2), "b": around(1), "c": around(3, 0.1)}) == "contradicted"


def test_r3_trends() -> None:
    def found(direction: str, *series: Repeats) -> str:
        points = list(range(len(series)))
        of = claim("trend", direction=direction, axis="n", points=points)
        return word(of, {("a", point): one for point, one in zip(points, series, strict=True)})

    assert found("flat", around(1), around(1.2), around(1.25)) == "reproduced"
    assert found("flat", around(1), around(1.3), around(1.1)) == "contradicted"
    assert found("flat", around(1, 0.5), around(1.3), around(1.1)) == "undecided"
    assert found("depends", around(1), around(1.3), around(1.1)) == "reproduced"
    assert found("depends", around(1), around(1.2), around(1.1)) == "contradicted"
    assert found("flat", around(0), around(1), around(0)) == "contradicted"
    assert found("rises", around(1), around(3), around(2)) == "reproduced"
    assert found("falls", around(1), around(3), around(2)) == "contradicted"
    assert found("rises", around(1), around(3), around(2, 1.5)) == "undecided"
    # The ends say one thing and the points between them another.
    assert found("rises", around(3), around(2), around(1), around(0), around(4)) == "undecided"


def test_r4_bounds() -> None:
    of = claim("bound", high=6)
    assert [word(of, {"a": around(mean, 1)}) for mean in (5, 5.5, 7.5)] == ["reproduced", "undecided", "contradicted"]
    assert word(claim("bound", low=2, high=6), {"a": around(3, 0.5)}) == "reproduced"


def test_r5_too_few_repeats_or_points_are_not_measured() -> None:
    of = claim("number", value=1)
    assert word(of, {"a": around(1, repeats=4)}) == "not measured"
    assert word(of, {"a": around(1, form="full", repeats=9)}) == "not measured"
    assert word(of, {"a": around(1, form="full", repeats=10)}) == "reproduced"
    assert word(of, {}) == "not measured"
    of = claim("number", value=1, axis="n", points=[1, 2, 3, 4, 5])

    def at(*points: int, form: str = "quick") -> str:
        return word(of, {("a", point): around(1, form=form, repeats=10) for point in points})

    assert at(1, 3, 5) == at(1, 2, 3, 4, 5, form="full") == "reproduced"
    # Not both ends; too few; and the full form takes all of them.
    assert at(1, 2, 3) == at(1, 5) == at(1, 3, 5, form="full") == "not measured"
    judged = judge(of, lambda arm, point: around(1) if point in (1, 3, 5) else None)
    assert judged.why == "at 3 of 5 points"
    # Two repeats with a figure in common are two, however many each has.
    short = {"a": around(1), "b": Repeats({4: 1.0, 5: 1.0, 6: 1.0, 7: 1.0, 8: 1.0}, "quick")}
    assert word(claim("ratio", value=1, arms=["a", "b"]), short) == "not measured"


def test_r6_one_part_decides_for_a_claim_and_one_claim_for_a_figure() -> None:
    of = claim("number", value=1, arms=["a", "b"])
    assert word(of, {"a": around(1), "b": around(1, 5)}) == "undecided"
    assert word(of, {"a": around(9), "b": around(1, 5)}) == "contradicted"
    parts = {"a": judge(of, lambda arm, point: around(1)), "b": judge(of, lambda arm, point: around(9))}
    assert claims.together({"": parts["a"]}) == parts["a"]
    both_needed = claims.together(parts)
    assert both_needed.word == "contradicted"
    assert [one.where for one in both_needed.conditions] == ["a: a", "a: b", "b: a", "b: b"]
    both = [claim("number", value=1), claim("number", value=1, id="y")]
    assert claims.figures({"x": "reproduced", "y": "reproduced"}, both) == {("000", "Fig. 1"): "reproduced"}
    assert claims.figures({"x": "reproduced", "y": "not measured"}, both) == {("000", "Fig. 1"): "not measured"}


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "number"}, {"kind": "number", "value": 1, "low": 1, "high": 2}, {"kind": "order", "arms": ["a", "b"]},
        {"kind": "number", "values": [1], "points": [1, 2]}, {"kind": "trend", "direction": "flat"},
        {"kind": "bound"}, {"kind": "number", "value": "1"}, {"kind": "number", "value": float("nan")},
        {"kind": "number", "value": 1, "limit": 2}, {"kind": "number", "value": 1, "quote": ""},
        {"kind": "number", "value": 1, "points": list(range(21))}, {"kind": "number", "value": 1, "paper": "005"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_claim_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        claim(**fields)


def test_a_file_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    text = CLAIMS.read_text()
    for name, wrong in (("else", "limit = 1\n" + text), ("twice", text + text[text.index("\n[[claim]]") :])):
        file = tmp_path / name
        file.write_text(wrong)
        with pytest.raises(ValueError, match=r"other parts|duplicate id"):
            claims.load(file)
    file.write_bytes(b"#" * 1_000_001)
    claims.load.cache_clear()
    with pytest.raises(ValueError, match="more than"):
        claims.load(file)


def test_every_claim_is_answered_or_named_with_what_is_missing() -> None:
    all_ = {one.id: one for one in claims.load()}
    had = claim_evidence.HAS | {part for parts in claim_evidence.LACKS.values() for part in parts}
    needed = {part.strip() for one in all_.values() for part in one.needs.split(";")}
    assert needed == had and len(had) == len(claim_evidence.HAS) + sum(map(len, claim_evidence.LACKS.values()))
    able = {name for name, one in all_.items() if not claim_evidence.lacking(one)}
    assert able == claim_evidence.ANSWERS.keys() | claim_evidence.MISSING.keys()
    assert not claim_evidence.ANSWERS.keys() & claim_evidence.MISSING.keys()
    assert {name for name in claim_evidence.BEATEN if all_[name].beat} == claim_evidence.BEATEN.keys()


def test_every_answer_is_a_figure_that_an_experiment_has() -> None:
    """Every arm of the claim at every point has one, too."""

    def measured(experiment: str, measure: str, arm: str, **point: Value) -> Repeats:
        declared = registry.find(experiment)
        assert declared.measure(measure) and declared.arm(arm)
        assert point in [dict(one) for one in declared.points()], f"{experiment} has no {point}"
        return around(1)

    for one in map(claim_evidence.placed, claims.load()):
        places = [
            (arm, point)
            for point in one.points or (None,)
            for arm in ([str(point)] if one.points_are_arms else one.sides)
        ]
        answers = claim_evidence.answers(one, measured)
        without = [(name, *place) for name, answer in answers.items() for place in places if answer(*place) is None]
        assert not without, f"{one.id}: {without}"
    for name, ours in claim_evidence.BEATEN.items():
        one = next(one for one in claims.load() if one.id == name)
        assert all(ours(measured, one.sides[0], point) is not None for point in one.points or (None,))


def summary(made: str) -> dict[str, Any]:
    """A summary as an experiment makes it: a download of 3.1 Mb/s with NCR, in five repeats."""
    values = {str(repeat): 3.0 + repeat / 50 for repeat in range(1, 6)}
    cells = [{"measure": "download_during", "arm": arm, "point": {}, "values": values} for arm in ("ncr-paper", "ours")]
    return {"experiment": "ncr-wlan", "form": "quick", "claims": made, "cells": cells}


def test_results_are_judged_by_the_claims_that_they_were_measured_for() -> None:
    of = next(one for one in claims.load() if one.id == "000-fig6-ncr-download-mixed")
    now = judge_.Results([summary(SHA256)])
    judged = judge_.judged(of, now)
    assert (judged.word, judge_.shown(judged.conditions[0].interval)) == ("reproduced", "3.06 (3.021 to 3.099)")
    assert judge_.beaten(of, now) == "at least 3.26 Mb/s: fail, 3.06 (3.021 to 3.099)"
    assert f"| `{of.id}` | **reproduced** | Fig. 6 | 3.08: goodput" in judge_.page(now)
    for before in ("0" * 64, ""):
        older = judge_.Results([summary(before)])
        assert judge_.judged(of, older).word == "not measured"
        assert "so not judged: ncr-wlan" in judge_.page(older)


def test_a_papers_experiment_has_claims_and_no_goals_of_its_own() -> None:
    papers = {one.paper for one in claims.load()}
    declared = [each for each in registry.experiments().values() if each.number in papers]
    assert {each.number for each in declared} == papers
    assert not [each.name for each in declared if each.goals]
    others = [each for each in registry.experiments().values() if each.number not in papers]
    assert others and all(each.goals or each.compared or each.tally for each in others)


def test_an_experiment_says_the_words_of_the_claims_that_it_answers() -> None:
    found = judge_.verdicts("000", summary(SHA256))
    words = {one["text"].split("`")[1]: one["word"] for one in found}
    assert words["000-fig6-ncr-download-mixed"] == "reproduced" and words["000-sec6-gain-above-loss"] == "not measured"
    for name, of in words.items():
        claim_ = next(one for one in claims.load() if one.id == name)
        assert claim_evidence.asked(claim_) == {"ncr-wlan"}
        assert judge_.judged(claim_, judge_.Results([summary(SHA256)])).word == of
    (none,) = judge_.verdicts("004", summary(SHA256) | {"experiment": "one of 004 that answers none"})[:1]
    assert none["word"] == "not measured" and "the lab lacks" in none["text"]
    (short,) = judge_.verdicts("000", summary(SHA256) | {"repeats": 1})
    assert short["word"] == "not measured" and short["text"].endswith(
        "claims of the paper take 5 repeats, and this is 1"
    )
    assert judge_.verdicts("none: a comparison", summary(SHA256)) == []


def test_the_page_of_the_claims_is_made_of_the_committed_summaries() -> None:
    assert judge_.PAGE.read_text() == judge_.page(judge_.kept()), (
        "`python -m accesspoint.experiments.verdict.judge` makes it"
    )


def test_ours_stands_beside_the_papers_proposal_and_the_best_peer() -> None:
    """Ratios are taken repeat by repeat; what was not run has no row."""
    figures = {"ours": around(930.0, 3.0), "paper": around(620.0, 2.0)}

    def measured(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
        here = (experiment, measure, point.get("links"), point.get("bytes"))
        return figures.get(arm) if here == ("batcp", "throughput", "adsl-adsl", 5_000_000) else None

    (row,) = gains.rows("003", measured)
    assert row[0] == "of the file (kbit/s), [batcp](batcp.md) at links adsl-adsl, bytes 5000000"
    assert row[1] == "BATCP, the paper's scheduler" and row[4].startswith("1.5 (1.5 to 1.5)")
    assert not [*gains.rows("000", measured)]
    for gain in gains.GAINS:
        experiment = registry.find(gain.experiment)
        assert experiment.arm(gains.OURS) and experiment.arm(gain.other)
        assert all(experiment.measure(name) for name in gain.measures)
        assert gain.points == ({},) or all(point in list(experiment.points(quick=True)) for point in gain.points)
