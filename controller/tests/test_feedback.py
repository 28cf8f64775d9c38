# SPDX-License-Identifier: Apache-2.0
"""Properties of the NCR mathematics: they hold for every input, so hypothesis looks for one where they do not."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config import Ncr
from controller.feedback import (
    DeviceTerm,
    Floats,
    Rate,
    Rates,
    desired_volumes,
    max_min_shares,
    quantise,
    queue_target,
    share_terms,
    share_terms_of_few,
)

VOLUMES = st.floats(0, 1e9, allow_subnormal=False)
WEIGHTS = st.floats(0.01, 1000)
CAPACITIES = st.floats(0, 1e9, allow_subnormal=False)
ASKING = st.lists(st.tuples(VOLUMES, WEIGHTS), max_size=20)
STEPS = st.floats(0.001, 5)


def parts(asking: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    return np.array([value[0] for value in asking]), np.array([value[1] for value in asking])


def filled_one_by_one(capacity: float, asking: list[tuple[float, float]]) -> list[float]:
    """Weighted max-min shares as their definition reads: pour in until somebody is full, and again without him."""
    shares = [0.0] * len(asking)
    hungry = [number for number, (demand, _) in enumerate(asking) if demand > 0]
    while hungry and capacity > 0:
        weight = sum(asking[number][1] for number in hungry)
        full_at = {number: (asking[number][0] - shares[number]) / asking[number][1] for number in hungry}
        level = min(capacity / weight, *full_at.values(), math.inf)
        for number in hungry:
            shares[number] += level * asking[number][1]
        capacity -= level * weight
        if level == min(full_at.values()):
            hungry = [number for number in hungry if full_at[number] > level]
        else:
            break
    return shares


@given(CAPACITIES, ASKING)
def test_shares_are_those_of_the_definition(capacity: float, asking: list[tuple[float, float]]) -> None:
    shares = max_min_shares(capacity, *parts(asking))
    assert shares.tolist() == pytest.approx(filled_one_by_one(capacity, asking), rel=1e-6, abs=1e-3)


@given(CAPACITIES, ASKING)
def test_shares_add_up_to_what_there_is_or_is_asked(capacity: float, asking: list[tuple[float, float]]) -> None:
    demands, weights = parts(asking)
    shares = max_min_shares(capacity, demands, weights)
    assert math.isclose(shares.sum(), min(capacity, demands.sum()), rel_tol=1e-9, abs_tol=1e-6)
    assert ((shares >= 0) & (shares <= demands)).all()


@given(CAPACITIES, ASKING)
def test_nobody_below_his_demand_has_less_by_weight_than_another(
    capacity: float, asking: list[tuple[float, float]]
) -> None:
    demands, weights = parts(asking)
    shares = max_min_shares(capacity, demands, weights)
    levels = shares / weights
    for level in levels[shares < demands * (1 - 1e-9)]:
        assert (levels <= level * (1 + 1e-6) + 1e-6).all()


@given(CAPACITIES, ASKING.filter(bool))
def test_desired_volumes_give_all_of_the_capacity_out(capacity: float, asking: list[tuple[float, float]]) -> None:
    demands, weights = parts(asking)
    desired = desired_volumes(capacity, demands, weights)
    assert math.isclose(desired.sum(), max(capacity, 0.0), rel_tol=1e-9, abs_tol=1e-6)
    assert (desired >= max_min_shares(capacity, demands, weights)).all()


def test_shares_by_weight() -> None:
    shares = max_min_shares(12.0, np.array([100.0, 100.0, 1.0]), np.array([2.0, 1.0, 5.0]))
    assert shares.tolist() == pytest.approx([22 / 3, 11 / 3, 1.0])


class Terms:
    """Share terms over time, with names for the places."""

    def __init__(self) -> None:
        self.pressure: dict[Any, float] = {}
        self.time: float | None = None

    def update(
        self, now: float, capacity: float, measured: dict[Any, tuple[float, float]], *, gain: float = 0.03,
        limit: float = 0.5, busy: bool = True,
    ) -> dict[Any, float]:  # fmt: skip
        rates, weights = parts(list(measured.values()))
        before = np.array([self.pressure.get(key, 0.0) for key in measured])
        elapsed = 0.0 if self.time is None else now - self.time
        pressure, _ = share_terms(
            before, elapsed, capacity, rates, weights, np.ones(len(measured)), gain=gain, interval=0.1, limit=limit,
            busy=busy,
        )  # fmt: skip
        self.pressure, self.time = dict(zip(measured, pressure.tolist(), strict=True)), now
        return {key: value**2 for key, value in self.pressure.items()}


@given(
    st.lists(st.tuples(st.floats(0, 1), VOLUMES, WEIGHTS, st.floats(0, 1)), min_size=1, max_size=20),
    st.floats(1, 1e9),
    STEPS,
    st.floats(0, 10),
    st.floats(0.01, 1),
    st.booleans(),
)
def test_share_terms_are_those_written_out(
    flows: list[tuple[float, float, float, float]], capacity: float, step: float, gain: float, limit: float, busy: bool
) -> None:
    """x(n) = x(n-1) + gain (M - D) / (C T), one flow after the other."""
    pressure, rates, weights, elastic = (np.array(values) for values in zip(*flows, strict=True))
    got, desired = share_terms(
        pressure, step, capacity, rates, weights, elastic, gain=gain, interval=0.1, limit=limit, busy=busy
    )
    total = sum(rate for _, rate, _, _ in flows)
    shares = filled_one_by_one(capacity, [(rate * (1 + 0.1 * part), weight) for _, rate, weight, part in flows])
    spare = max(0.0, capacity - sum(shares))
    for number, (before, rate, weight, _) in enumerate(flows):
        wanted = shares[number] + spare * weight / sum(flow[2] for flow in flows)
        assert desired[number] == pytest.approx(wanted, rel=1e-6, abs=1e-3 + capacity * 1e-9)
        left = rate * min(1.0, capacity / total) if total > 0 else 0.0
        error = (left - float(desired[number])) / capacity
        error = error if busy else min(0.0, error)
        x = min(math.sqrt(limit), max(0.0, before + gain * error * step / 0.1))
        assert got[number] == pytest.approx(x, rel=1e-6, abs=1e-9)
    few, wanted_by_few = share_terms_of_few(
        *(pressure.tolist(), step, capacity, rates.tolist(), weights.tolist(), elastic.tolist()),
        gain=gain, interval=0.1, limit=limit, busy=busy,
    )  # fmt: skip
    assert few == pytest.approx(got.tolist(), rel=1e-9, abs=1e-9)
    assert wanted_by_few == pytest.approx(desired.tolist(), rel=1e-9, abs=1e-9 * capacity)


@given(
    st.lists(st.tuples(STEPS, VOLUMES, st.booleans()), max_size=60),
    st.floats(1, 1e9),
    st.floats(0, 10),
    st.floats(0, 100),
    st.floats(0, 1),
)
def test_device_feedback_is_a_probability(
    samples: list[tuple[float, float, bool]], target: float, gamma: float, kappa2: float, limit: float
) -> None:
    parameters = Ncr(gamma=gamma, kappa2=kappa2, device_limit=limit)
    term, now = DeviceTerm(), 0.0
    for step, queue, arriving in samples:
        now += step
        assert 0 <= term.update(now, queue, target, parameters, arriving=arriving) <= limit + 1e-12


@given(
    st.lists(st.tuples(STEPS, st.dictionaries(st.integers(0, 50), st.tuples(VOLUMES, WEIGHTS)), st.booleans())),
    CAPACITIES,
    st.floats(0, 10),
    st.floats(0, 1),
)
def test_share_feedback_is_a_probability(
    samples: list[tuple[float, dict[int, tuple[float, float]], bool]], capacity: float, gain: float, limit: float
) -> None:
    terms, now = Terms(), 0.0
    for step, measured, busy in samples:
        now += step
        feedback = terms.update(now, capacity, measured, gain=gain, limit=limit, busy=busy)
        assert all(0 <= value <= limit + 1e-12 for value in feedback.values())


def run_device(term: DeviceTerm, start: float, seconds: float, queue: float, step: float = 0.01) -> float:
    """Hold the queue for some time; returns the last feedback."""
    feedback = 0.0
    for tick in range(round(seconds / step)):
        feedback = term.update(start + tick * step, queue, 1e4, Ncr(), arriving=True)
    return feedback


@pytest.mark.parametrize("overload", [10.0, 100.0, 3600.0])
def test_no_windup(overload: float) -> None:
    term = DeviceTerm()
    assert run_device(term, 0.0, overload, 1e6, step=0.1) == 1.0
    # However long the overload was, the first second below the target leaves saturation.
    assert run_device(term, overload, 1.0, 0.0) < 0.9
    assert run_device(term, overload + 1, 5.0, 0.0) == 0.0


def test_share_terms_do_not_wind_up() -> None:
    def hold(terms: Terms, start: float, seconds: float, big: float) -> float:
        value = 0.0
        for tick in range(round(seconds / 0.1)):
            value = terms.update(start + tick * 0.1, 1e5, {"big": (big, 1.0), "small": (1e4, 1.0)})["big"]
        return value

    for overload in (60.0, 3600.0):
        terms = Terms()
        assert hold(terms, 0.0, overload, 1e6) == pytest.approx(0.5)
        assert hold(terms, overload, 2.0, 1e3) < 0.4


def test_the_device_term_recovers_after_idle() -> None:
    term = DeviceTerm()
    run_device(term, 0.0, 60.0, 1e6)
    for tick in range(20):
        feedback = term.update(60 + tick * 0.1, 0.0, 1e4, Ncr(), arriving=False)
    assert feedback == 0.0
    assert term.sum == 0.0


def test_the_device_term_does_not_depend_on_the_step() -> None:
    values = []
    for step in (0.005, 0.01, 0.02, 0.05):
        term = DeviceTerm()
        values.append(run_device(term, 0.0, 3.0 + step, 1.5e4, step=step))
    assert values == pytest.approx([values[0]] * 4, rel=0.02)


def test_the_share_terms_do_not_depend_on_the_step() -> None:
    values = []
    for step in (0.01, 0.05, 0.1, 0.5):
        terms = Terms()
        for tick in range(round(5 / step) + 1):
            feedback = terms.update(tick * step, 1e5, {"a": (9e4, 1.0), "b": (3e4, 1.0)})
        values.append(feedback["a"])
    assert values == pytest.approx([values[0]] * 4)
    assert values[0] > 0


def test_no_capacity_and_no_demand_give_numbers() -> None:
    assert Terms().update(0.0, 0.0, {1: (5.0, 1.0)}) == {1: 0.0}
    assert Terms().update(1.0, 1e5, {1: (0.0, 1.0)}) == {1: 0.0}
    assert Terms().update(1.0, 1e5, {}) == {}
    assert max_min_shares(0.0, np.zeros(1), np.ones(1)).tolist() == [0.0]
    assert queue_target(0.0, Ncr()) > 0


def test_weights_move_the_point_of_balance() -> None:
    terms = Terms()
    for tick in range(50):
        feedback = terms.update(tick * 0.1, 1e5, {"heavy": (6e4, 2.0), "light": (4e4, 1.0)})
    # Desired are 2/3 and 1/3: the heavy flow has less than that, the light one more.
    assert feedback["heavy"] == 0.0
    assert feedback["light"] > 0.0


def test_shares_need_a_queue_to_share() -> None:
    terms = Terms()
    for tick in range(100):
        feedback = terms.update(tick * 0.1, 1e5, {"a": (9e4, 1.0), "b": (1e3, 1.0)}, busy=False)
    assert feedback == {"a": 0.0, "b": 0.0}


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
