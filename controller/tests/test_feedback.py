# SPDX-License-Identifier: Apache-2.0
"""Measured rates and quantised feedback: they hold for every input, so hypothesis looks for one where they do not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accesspoint.controller.agent.feedback import Rate, Rates, quantise


@given(st.floats(0, 1))
def test_quantised_feedback_fits_the_data_plane(feedback: float) -> None:
    assert 0 <= quantise(feedback) <= 65535
    assert abs(quantise(feedback) / 65535 - feedback) < 1e-5


def test_quantised_ends() -> None:
    assert (quantise(0.0), quantise(1.0)) == (0, 65535)


ALL = slice(None)


@given(st.lists(st.tuples(st.floats(0.001, 1), st.integers(0, 10**6)), min_size=1, max_size=50))
def test_a_rate_stays_between_the_slowest_and_the_fastest(steps: list[tuple[float, int]]) -> None:
    rates, now, volume = Rates(1), 0.0, 0
    rates.update(ALL, np.zeros(1), now, 0.5)
    seen = [0.0]
    for step, grown in steps:
        now += step
        volume += grown
        seen.append(grown / step)
        rates.update(ALL, np.array([float(volume)]), now, 0.5)
        assert min(seen) - 1e-6 <= rates.value[0] <= max(seen) * (1 + 1e-9) + 1e-6


def test_a_rate_does_not_depend_on_when_it_is_read() -> None:
    values = []
    for step in (0.01, 0.1, 0.25):
        rates = Rates(1)
        for tick in range(round(1 / step) + 1):
            rates.update(ALL, np.array([1000 * tick * step]), tick * step, 0.5)
        values.append(rates.value[0])
    assert values == pytest.approx([values[0]] * 3)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2000).map(lambda ms: ms / 1000),
            st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), unique_by=lambda x: x[0]),
        ),
        max_size=30,
    ),
    st.floats(0.01, 2),
)
def test_rates_are_those_written_out(readings: list[tuple[float, list[tuple[int, int]]]], tau: float) -> None:
    """Each counter by itself: an exponential average, begun anew when the counter falls."""
    rates, now = Rates(4), 0.0
    single = [Rate() for _ in range(4)]
    known: dict[int, tuple[float, int, float, float]] = {}  # time, volume, rate, moved
    for step, read in readings:
        now += step
        for place, volume in read:
            time, before, rate, moved = known.get(place, (now, math.inf, 0.0, 0.0))
            if volume < before:
                known[place] = now, volume, 0.0, now
            elif now > time:
                rate += ((volume - before) / (now - time) - rate) * (1 - math.exp(-(now - time) / tau))
                known[place] = now, volume, rate, now if volume > before else moved
            single[place].update(float(volume), now, tau)
        at = np.array([place for place, _ in read], np.int64)
        rates.update(at, np.array([float(volume) for _, volume in read]), now, tau)
        for place, (_, _, rate, moved) in known.items():
            assert rates.value[place] == pytest.approx(rate, rel=1e-6, abs=1e-9)
            assert rates.idle(np.array([place]), now)[0] == (now - moved > 1.0)
        assert rates.value.tolist() == [rate.value for rate in single]
        assert rates.idle(slice(None), now).tolist() == [rate.idle(now) for rate in single]
    assert all(rates.idle(np.array([place]), now)[0] for place in range(4) if place not in known)


def test_a_rate_without_an_average_is_that_of_the_last_interval() -> None:
    rates, single = Rates(1), Rate()
    for second, volume in enumerate((0.0, 1000.0, 1000.0, 5000.0)):
        rates.update(ALL, np.array([volume]), second * 0.01, 0.0)
        single.update(volume, second * 0.01, 0.0)
    assert rates.value[0] == single.value == pytest.approx(4000 / 0.01)
