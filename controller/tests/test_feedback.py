# SPDX-License-Identifier: Apache-2.0
"""Properties of the NCR mathematics: they hold for every input, so hypothesis looks for one where they do not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config import Ncr
from controller.feedback import (
    DeviceTerm,
    Measured,
    Rate,
    ShareTerms,
    desired_volumes,
    max_min_shares,
    quantise,
    queue_target,
)

VOLUMES = st.floats(0, 1e9, allow_subnormal=False)
WEIGHTS = st.floats(0.01, 1000)
CAPACITIES = st.floats(0, 1e9, allow_subnormal=False)
ASKING = st.dictionaries(st.integers(0, 50), st.tuples(VOLUMES, WEIGHTS), max_size=20)
STEPS = st.floats(0.001, 5)


def parts(asking: dict[int, tuple[float, float]]) -> tuple[dict[int, float], dict[int, float]]:
    return {key: value[0] for key, value in asking.items()}, {key: value[1] for key, value in asking.items()}


@given(CAPACITIES, ASKING)
def test_shares_add_up_to_what_there_is_or_is_asked(capacity: float, asking: dict[int, tuple[float, float]]) -> None:
    demands, weights = parts(asking)
    shares = max_min_shares(capacity, demands, weights)
    assert math.isclose(sum(shares.values()), min(capacity, sum(demands.values())), rel_tol=1e-9, abs_tol=1e-6)
    assert all(0 <= shares[key] <= demands[key] for key in demands)


@given(CAPACITIES, ASKING)
def test_nobody_below_his_demand_has_less_by_weight_than_another(
    capacity: float, asking: dict[int, tuple[float, float]]
) -> None:
    demands, weights = parts(asking)
    shares = max_min_shares(capacity, demands, weights)
    for key, share in shares.items():
        if share < demands[key] * (1 - 1e-9):
            level = share / weights[key]
            assert all(other / weights[name] <= level * (1 + 1e-6) + 1e-6 for name, other in shares.items())


@given(CAPACITIES, ASKING.filter(bool))
def test_desired_volumes_give_all_of_the_capacity_out(capacity: float, asking: dict[int, tuple[float, float]]) -> None:
    demands, weights = parts(asking)
    desired = desired_volumes(capacity, demands, weights)
    assert math.isclose(sum(desired.values()), capacity, rel_tol=1e-9, abs_tol=1e-6)
    shares = max_min_shares(capacity, demands, weights)
    assert all(desired[key] >= shares[key] for key in demands)


def test_shares_by_weight() -> None:
    assert max_min_shares(12.0, {"a": 100.0, "b": 100.0, "c": 1.0}, {"a": 2.0, "b": 1.0, "c": 5.0}) == pytest.approx(
        {"a": 22 / 3, "b": 11 / 3, "c": 1.0}
    )


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


@given(st.lists(st.tuples(STEPS, ASKING, st.booleans()), max_size=30), CAPACITIES, st.floats(0, 10), st.floats(0, 1))
def test_share_feedback_is_a_probability(
    samples: list[tuple[float, dict[int, tuple[float, float]], bool]], capacity: float, gain: float, limit: float
) -> None:
    terms: ShareTerms[int] = ShareTerms()
    now = 0.0
    for step, asking, busy in samples:
        now += step
        measured = {key: Measured(*value) for key, value in asking.items()}
        feedback = terms.update(now, capacity, measured, gain=gain, interval=0.1, limit=limit, busy=busy)
        assert feedback.keys() == measured.keys()
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
    def hold(terms: ShareTerms[str], start: float, seconds: float, big: float) -> float:
        value = 0.0
        for tick in range(round(seconds / 0.1)):
            measured = {"big": Measured(big, 1.0), "small": Measured(1e4, 1.0)}
            value = terms.update(
                start + tick * 0.1, 1e5, measured, gain=0.03, interval=0.1, limit=0.5, busy=True
            )["big"]  # fmt: skip
        return value

    for overload in (60.0, 3600.0):
        terms: ShareTerms[str] = ShareTerms()
        assert hold(terms, 0.0, overload, 1e6) == pytest.approx(0.5)
        assert hold(terms, overload, 2.0, 1e3) < 0.4


def test_who_goes_idle_starts_anew() -> None:
    terms: ShareTerms[str] = ShareTerms()
    both = {"a": Measured(9e4, 1.0), "b": Measured(2e4, 1.0)}
    for tick in range(100):
        terms.update(tick * 0.1, 1e5, both, gain=0.03, interval=0.1, limit=0.5, busy=True)
    assert terms.pressure["a"] > 0
    terms.update(10.0, 1e5, {"b": both["b"]}, gain=0.03, interval=0.1, limit=0.5, busy=True)
    assert terms.update(10.1, 1e5, both, gain=0.0, interval=0.1, limit=0.5, busy=True)["a"] == 0.0


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
        terms: ShareTerms[str] = ShareTerms()
        measured = {"a": Measured(9e4, 1.0), "b": Measured(3e4, 1.0)}
        for tick in range(round(5 / step) + 1):
            feedback = terms.update(tick * step, 1e5, measured, gain=0.03, interval=0.1, limit=0.5, busy=True)
        values.append(feedback["a"])
    assert values == pytest.approx([values[0]] * 4)
    assert values[0] > 0


def test_no_capacity_and_no_demand_give_numbers() -> None:
    terms: ShareTerms[int] = ShareTerms()
    assert terms.update(0.0, 0.0, {1: Measured(5.0, 1.0)}, gain=1, interval=0.1, limit=1, busy=True) == {1: 0.0}
    assert terms.update(1.0, 1e5, {1: Measured(0.0, 1.0)}, gain=1, interval=0.1, limit=1, busy=True) == {1: 0.0}
    assert max_min_shares(0.0, {1: 0.0}, {1: 1.0}) == {1: 0.0}
    assert max_min_shares(10.0, {}, {}) == {}
    assert queue_target(0.0, Ncr()) > 0


def test_weights_move_the_point_of_balance() -> None:
    terms: ShareTerms[str] = ShareTerms()
    measured = {"heavy": Measured(6e4, 2.0), "light": Measured(4e4, 1.0)}
    for tick in range(50):
        feedback = terms.update(tick * 0.1, 1e5, measured, gain=0.03, interval=0.1, limit=0.5, busy=True)
    # Desired are 2/3 and 1/3: the heavy flow has less than that, the light one more.
    assert feedback["heavy"] == 0.0
    assert feedback["light"] > 0.0


def test_shares_need_a_queue_to_share() -> None:
    terms: ShareTerms[str] = ShareTerms()
    measured = {"a": Measured(9e4, 1.0), "b": Measured(1e3, 1.0)}
    for tick in range(100):
        feedback = terms.update(tick * 0.1, 1e5, measured, gain=0.03, interval=0.1, limit=0.5, busy=False)
    assert feedback == {"a": 0.0, "b": 0.0}


@given(st.floats(0, 1))
def test_quantised_feedback_fits_the_data_plane(feedback: float) -> None:
    assert 0 <= quantise(feedback) <= 65535
    assert abs(quantise(feedback) / 65535 - feedback) < 1e-5


def test_quantised_ends() -> None:
    assert (quantise(0.0), quantise(1.0)) == (0, 65535)


@given(st.lists(st.tuples(st.floats(0.001, 1), st.integers(0, 10**6)), min_size=1, max_size=50))
def test_a_rate_stays_between_the_slowest_and_the_fastest(steps: list[tuple[float, int]]) -> None:
    rate, now, volume = Rate(0.5), 0.0, 0
    rate.update(0, now)
    seen = [0.0]
    for step, grown in steps:
        now += step
        volume += grown
        seen.append(grown / step)
        assert min(seen) - 1e-6 <= rate.update(volume, now) <= max(seen) * (1 + 1e-9) + 1e-6


def test_a_rate_does_not_depend_on_when_it_is_read() -> None:
    values = []
    for step in (0.01, 0.1, 0.25):
        rate = Rate(0.5)
        for tick in range(round(1 / step) + 1):
            rate.update(1000 * tick * step, tick * step)
        values.append(rate.value)
    assert values == pytest.approx([values[0]] * 3)
