# SPDX-License-Identifier: Apache-2.0
"""Answers of claims as data: lines of answers.toml, and the figures that they stand for."""

import tomllib
from typing import Any

import pytest

from accesspoint.experiments.catalogue.ncr.settings import SETTINGS
from accesspoint.experiments.experiment import Value
from accesspoint.experiments.verdict import claim_evidence, claims
from accesspoint.experiments.verdict.claims import Point, Repeats

DATA = tomllib.loads(claim_evidence.FILE.read_text())
FIELDS = {"like", "experiment", "measure", "arm", "point", "how", "missing", "factor", "where", "form", "else", "not"}
FIELDS |= claim_evidence.OPERANDS.keys() | {"least", "each", "first"}
FIGURES = {  # measure, arm, n -> value
    ("rate", "plain", 1): 4.0, ("rate", "plain", 2): 6.0, ("rate", "ours", 1): 8.0, ("rate", "ours", 2): 3.0,
    ("delay", "ours", 2): 20.0,
}  # fmt: skip


def measured(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
    found = FIGURES.get((measure, arm, int(point["n"])))
    return None if found is None or experiment != "e" else Repeats({1: found, 2: 1.5 * found})


def answer(name: str = "", point: Point | None = None, /, **fields: Any) -> float | None:
    spec = {"experiment": "e", "measure": "rate", "arm": "plain", "point": {"n": 1}} | fields
    found = claim_evidence.figure(claim_evidence.whole(spec), measured, name, point)
    return None if found is None else found.values[1]


@pytest.mark.parametrize(
    ("name", "point", "fields", "expected"),
    [
        ("", None, {}, 4.0),
        ("", 2, {"point": {"n": "@point"}}, 6.0),
        ("", None, {"point": {"n": "@point 2"}}, 6.0),
        ("2 nodes", None, {"point": {"n": "@arm1"}}, 6.0),
        ("", "1x2", {"point": {"n": "@2"}}, 6.0),
        ("this access point", None, {"arm": {"this": "ours", "*": "plain"}}, 8.0),
        ("another", None, {"arm": {"this": "ours"}}, None),
        ("", None, {"factor": 1000}, 4000.0),
        ("", None, {"point": {"n": [1, 2]}}, 5.0),
        ("", None, {"point": {"n": [1, 2]}, "how": "sum"}, 10.0),
        ("", None, {"point": {"n": [1, 2]}, "how": "most"}, 6.0),
        ("", None, {"arm": ["plain", "ours"], "how": "best"}, 8.0),
        ("", None, {"point": {"n": [1, 2]}, "how": "spread"}, 0.4),
        ("", None, {"point": {"n": [1, 2]}, "arm": "plain", "less": {"arm": "ours"}, "first": "n", "factor": 10}, 20.0),
        ("", None, {"point": {"n": [2, 1]}, "arm": "ours", "less": {"arm": "plain"}, "first": "n"}, 1.0),
        ("", None, {"point": {"n": [1]}, "arm": "plain", "less": {"arm": "ours"}, "first": "n"}, 1.0),
        ("", None, {"point": {"n": [1, 3]}, "first": "n"}, None),
        ("", None, {"point": {"n": [1, 3]}}, None),
        ("", None, {"point": {"n": [1, 3]}, "missing": "run"}, 4.0),
        ("", None, {"less": {"arm": "ours"}}, -4.0),
        ("", None, {"over": {"point": {"n": 2}}}, 4.0 / 6.0),
        ("itself", None, {"over": {"not": "itself"}}, 4.0),
        ("", None, {"over": {"not": "itself"}}, 1.0),
        ("", None, {"arm": "ours", "point": {"n": 2}, "where": {"measure": "delay", "least": 10}}, 3.0),
        ("", None, {"arm": "ours", "point": {"n": 2}, "where": {"measure": "delay", "least": 30}}, 0.0),
        ("", None, {"point": {"n": 3}, "else": {"point": {"n": 2}}}, 6.0),
        ("", None, {"form": "quick", "else": {"form": "full", "arm": "ours"}}, 8.0),
    ],
)
def test_figure(name: str, point: Point | None, fields: dict[str, Any], expected: float | None) -> None:
    found = answer(name, point, **fields)
    assert found == (None if expected is None else pytest.approx(expected))


def fields_of(spec: dict[str, Any]) -> set[str]:
    inner = [spec[name] for name in (*claim_evidence.OPERANDS, "where", "else") if name in spec]
    return set(spec).union(*map(fields_of, inner))


@pytest.mark.parametrize("table", ["kinds", "answers", "beats"])
def test_line_has_known_fields(table: str) -> None:
    unknown = {name: fields_of(spec) - FIELDS for name, spec in DATA[table].items()}
    assert not {name: own for name, own in unknown.items() if own}


def test_asked_are_experiments_of_both_ways_to_answer() -> None:
    claim = next(one for one in claims.load() if one.id == "000-fig10-aggregate")
    assert claim_evidence.asked(claim) == {"cell-wimax", "ncr-wimax"}


def test_each_measure_of_a_line_is_a_part_of_the_claim() -> None:
    claim = next(one for one in claims.load() if one.id == "003-fig4-hspa-rtt-and-jitter")
    of = {"rtt": 1000.0, "rtt_difference": 100.0}

    def found(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
        return Repeats({1: of[measure] + (arm == "hspa")})

    parts = claim_evidence.answers(claim, found)
    assert parts.keys() == of.keys()
    for name, part in parts.items():
        hspa, adsl = part("HSPA", None), part("ADSL2", None)
        assert hspa and adsl and (hspa.values, adsl.values) == ({1: of[name] + 1}, {1: of[name]})


def test_spread_is_of_each_batch() -> None:
    claim = next(one for one in claims.load() if one.id == "003-fig4-adsl-steadier")

    def found(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
        batch = int(point["batch"])
        return Repeats({1: 100.0, 2: 100.0 + batch, 3: 100.0 - batch}, "quick") if batch <= 5 else None

    (answer_,) = claim_evidence.answers(claim, found).values()
    spread = answer_("HSPA", None)
    assert spread and spread.form == "quick"
    assert spread.values == pytest.approx({batch: 2 * batch / 100 for batch in range(1, 6)})


def test_best_setting_is_chosen_of_all() -> None:
    assert DATA["answers"]["000-sec1-tcp-settings-do-not-help"]["arm"]["*"] == list(SETTINGS)


def test_arm_that_was_not_run_has_the_figures_of_another() -> None:
    def only(run: str, value: float) -> claim_evidence.Measured:
        def found(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
            return Repeats({1: value}) if arm == run else None

        return found

    (arm, other), *_ = claim_evidence.INSTEAD.items()
    for has, value in ((arm, 1.0), (other, 2.0)):
        found = claim_evidence._or_instead(only(has, value))("e", "rate", arm)
        assert found and found.values == {1: value}
