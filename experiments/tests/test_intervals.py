# SPDX-License-Identifier: Apache-2.0
"""Intervals enclose what they say in as many cases as they say."""

import numpy as np
import pytest

from accesspoint.experiments.measure import intervals


def test_of_a_mean_as_in_a_table_of_students_t() -> None:
    found = intervals.of_mean([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None
    # t of 4 degrees of freedom is 2.776, the standard error sqrt(2.5 / 5).
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 3.0 - 1.9632, 3.0 + 1.9632), abs=1e-4)


def test_of_a_median_as_in_a_table_of_order_statistics() -> None:
    """Ranks and confidences as in tables of the sign test: of 10 the second and ninth, 97.9 %."""
    for n, ends, confidence in ((3, (1, 3), 0.75), (5, (1, 5), 0.9375), (6, (1, 6), 0.96875), (10, (2, 9), 0.97852)):
        found = intervals.of_median([float(number) for number in range(n, 0, -1)])
        assert found is not None
        assert (found.low, found.high) == ends
        assert found.confidence == pytest.approx(confidence, abs=1e-5)
        assert found.value == (n + 1) / 2


def test_one_value_has_no_interval() -> None:
    assert intervals.of_mean([1.0]) is intervals.of_median([1.0]) is None


@pytest.mark.parametrize("n", [3, 5, 10])
def test_they_enclose_as_often_as_they_say(n: int) -> None:
    """A bootstrap of three values, which ends at the least and the largest, called itself 95 %."""
    chance, runs = np.random.default_rng(1), 4000
    # A skewed quantity with median 1; and a normal one with mean 1.
    skewed = [intervals.of_median(list(values)) for values in np.exp(chance.normal(0, 1, (runs, n)))]
    normal = [intervals.of_mean(list(values)) for values in chance.normal(1, 0.3, (runs, n))]
    for found in (skewed, normal):
        enclosing = sum(each.low <= 1 <= each.high for each in found if each) / runs
        assert found[0]
        assert enclosing == pytest.approx(found[0].confidence, abs=0.02)
