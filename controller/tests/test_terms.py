# SPDX-License-Identifier: Apache-2.0
"""The effects of each difference between the laws: the page and the table say what the simulation gives."""

import math

import pytest

from accesspoint.controller.config import Ncr
from accesspoint.controller.law.base import DeviceTerm
from accesspoint.controller.law.pi2 import Pi2, Pi2DeviceTerm

from . import terms
from .terms import AS_IS, FIGURES, NOT_SIMULATED, ROWS, SCENARIOS, WHOLE, Figure

RENEW = "renew it with .venv/bin/python -m accesspoint.controller.tests.terms"
CHEAP = "one upload, 1 Mb/s, 4 ms"


def test_a_part_of_the_page_is_made_again() -> None:
    text = terms.PAGE.read_text()
    assert text.startswith(terms.HEAD), RENEW
    assert terms.section(CHEAP) in text, RENEW


def test_the_page_has_every_row_and_scenario() -> None:
    kept = terms.kept(terms.PAGE.read_text())
    assert list(kept) == [AS_IS, *ROWS, *WHOLE]
    for row in kept.values():
        assert list(row) == list(SCENARIOS)
        assert all(len(figures) == len(FIGURES) for figures in row.values())


def test_the_table_says_what_the_page_says() -> None:
    text = terms.LAWS_PAGE.read_text()
    assert terms.with_effects(text, terms.PAGE.read_text()) == text, RENEW


def test_every_difference_is_simulated_or_says_why_not() -> None:
    table = terms.TABLE.search(terms.LAWS_PAGE.read_text())
    assert table
    _, _, *lines = table[0].removeprefix(table[1]).removesuffix(table[2]).splitlines()
    assert sorted(line.split("|")[1].strip() for line in lines) == sorted([*ROWS, *NOT_SIMULATED])


def figures(used: Figure, delay: Figure) -> dict[str, list[Figure]]:
    same = Figure(1.0, 1.0, 1.0)
    return {scenario: [used, delay, same, same] for scenario in SCENARIOS}


def test_an_effect_is_what_is_apart_by_more_than_the_seeds() -> None:
    as_is = figures(Figure(0.95, 0.94, 0.96), Figure(15.0, 14.0, 16.0))

    def effect(used: Figure, delay: Figure) -> str:
        return terms.effect(as_is, figures(used, delay))

    same_used, same_delay = as_is[CHEAP][:2]
    assert effect(same_used, same_delay) == "no figure differs"
    # Ranges that meet, a small step of the link's use, and one of a delay.
    assert effect(Figure(0.98, 0.96, 0.99), Figure(18.0, 16.0, 20.0)) == "no figure differs"
    assert terms.differs("link used", Figure(0.95, 0.95, 0.95), Figure(0.959, 0.959, 0.959)) is False
    assert terms.differs("p50, ms", Figure(100.0, 99.0, 101.0), Figure(109.0, 108.0, 110.0)) is False
    assert terms.differs("p50, ms", Figure(1.0, 1.0, 1.0), Figure(1.9, 1.9, 1.9)) is False
    better, mixed = Figure(0.99, 0.98, 1.0), Figure(20.0, 19.0, 21.0)
    number = len(SCENARIOS)
    assert effect(better, Figure(12.0, 11.0, 13.0)) == f"**better**: link used in {number}, p50 in {number}"
    assert effect(better, mixed) == f"**worse**: p50 in {number}; **better**: link used in {number}"


STOOD = 100
"""Ticks."""
GIVEN = {"gain": 0.03, "interval": 0.1, "limit": 0.5, "fullness": 1.0}


def test_the_linear_form_adds_to_the_feedback() -> None:
    got, desired = terms.Linear().shares([0.2, 0.49], 0.1, 1e5, [9e4, 6e4], [1.0, 1.0], [1.0, 1.0], **GIVEN)
    squared, wanted = Pi2().shares([0.04, 0.2401], 0.1, 1e5, [9e4, 6e4], [1.0, 1.0], [1.0, 1.0], **GIVEN)
    # Of 60 and 40 kB/s that pass on each is to have 50.
    assert desired == wanted == pytest.approx([5e4, 5e4])
    assert got == pytest.approx([0.2 + 0.03 * 0.1, 0.49 - 0.03 * 0.1])
    assert squared == pytest.approx([value * value for value in got])


def fed_back(term: DeviceTerm, queues: list[float], limit: float = 1.0) -> list[float]:
    """Return the feedback of one tick each, with q* 10 and the default's gains; a queue below 0 is an idle port. It has
    stood at q* until then."""
    ncr, got = Ncr(), []
    for tick, queue in enumerate([10.0] * STOOD + queues):
        value = term.update(
            tick * 0.01, max(queue, 0.0), 10.0, queue >= 0, gamma=ncr.gamma, kappa1=ncr.kappa1, kappa2=ncr.kappa2,
            interval=0.01, limit=limit,
        )  # fmt: skip
        got.append(value)
    return got[STOOD:]


def test_the_linear_device_term_is_the_root_of_the_square() -> None:
    queues = [0.0, 20.0, 25.0, 25.0, 5.0]
    squared, linear = fed_back(Pi2DeviceTerm(), queues, 0.25**2), fed_back(terms.LinearTerm(), queues, 0.25)
    assert linear == pytest.approx([math.sqrt(value) for value in squared])
    assert max(linear) == pytest.approx(0.15 + 0.05 * 0.03)
    term = terms.LinearTerm()
    term.resume(0.3)
    assert term.sum == pytest.approx(0.3)


def test_each_sum_goes_its_way() -> None:
    gains = 0.05 * 0.03

    def summed(term: Pi2DeviceTerm, queues: list[float], limit: float = 1.0) -> float:
        fed_back(term, queues, limit)
        return term.sum

    # Growth 1 and distance 1; then distance 4.
    assert summed(Pi2DeviceTerm(), [10.0, 20.0, 50.0]) == pytest.approx(gains * 2)
    assert summed(terms.GrowthSummed(), [10.0, 15.0, 15.0]) == pytest.approx(gains * 1.5)
    assert summed(terms.ErrorUnbounded(), [10.0, 20.0, 50.0]) == pytest.approx(gains * 5)
    # A burst of 100 ms after as long a gap.
    burst = [0.0] * 12 + [20.0] * 10
    assert summed(Pi2DeviceTerm(), burst) == 0.0
    assert summed(terms.BurstsCount(), burst) == pytest.approx(gains * 10)
    # At a limit of x = 0.05 from the first tick on.
    assert summed(Pi2DeviceTerm(), [10.0, 40.0, 40.0], 0.05**2) == 0.0
    assert summed(terms.GoesOnAtLimit(), [10.0, 40.0, 40.0], 0.05**2) == pytest.approx(gains * 2)
    # Two seconds without a queue or traffic, after which nothing is left, but for who lowers it by the distance alone.
    idle = [20.0] * 300 + [-1.0] * 200
    assert summed(Pi2DeviceTerm(), idle) == 0.0
    assert summed(terms.NeverForgets(), idle) == pytest.approx(gains * (300 - 200))


def test_what_is_measured_wanted_and_asked_for() -> None:
    def wanted(law: Pi2) -> list[float]:
        return law.shares([0.0] * 2, 0.1, 1e5, [2e4, 9e4], [1.0, 1.0], [1.0, 1.0], **GIVEN)[1]

    assert wanted(Pi2()) == pytest.approx([2.2e4, 7.8e4])
    assert wanted(terms.NoProbe()) == pytest.approx([2e4, 8e4])
    # What is left of 50 kB/s is given out once, whether it is taken or not.
    assert wanted(terms.SharesOfPaper()) == pytest.approx([6.4e4, 6.4e4])
    assert Pi2().measured(1e5, [2e4, 18e4]) == pytest.approx([1e4, 9e4])
    assert terms.OneInterval().measured(1e5, [2e4, 18e4]) == [2e4, 18e4]
    assert (Pi2().averaging(0.5), terms.OneInterval().averaging(0.5)) == (0.5, 0.0)


def test_terms_that_grow_without_a_queue_and_drops_of_all() -> None:
    def grown(law: Pi2) -> float:
        given = {**GIVEN, "fullness": 0.0}
        return law.shares([0.0] * 2, 0.1, 1e5, [9e4, 3e4], [1.0, 1.0], [1.0, 1.0], **given)[0][0]

    assert grown(Pi2()) == 0.0
    # Three quarters of the link passed, where 0.67 are wanted.
    assert grown(terms.AlwaysGrows()) == pytest.approx((0.03 * 0.08) ** 2)
    assert (Pi2().dropped(0.9), terms.DropsAll().dropped(0.9)) == (0.25, 0.9)
