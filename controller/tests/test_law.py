# SPDX-License-Identifier: Apache-2.0
"""The laws of feedback: what they are written out, what holds for every input, and where they come to rest."""

import ast
import inspect
import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accesspoint.controller.agent.flow_table import FlowTable
from accesspoint.controller.agent.regulator import PortRegulator
from accesspoint.controller.config import AccessPointConfig, Ncr
from accesspoint.controller.law import LAWS, base, paper, pi2
from accesspoint.controller.law.base import DeviceTerm, Law
from accesspoint.controller.law.pi2 import MAX_BURST, Pi2DeviceTerm, desired_volumes, max_min_shares
from accesspoint.controller.law.shares import MIN_SHARE, divide

from .plant import settle

PI2, PAPER = LAWS["pi2"], LAWS["paper"]
OF_THE_PAPER: dict[str, Any] = {
    "law": "paper", "kappa2": 1.0, "flow_interval": 0.01, "device_interval": 0.01, "queue_target_ms": 1.0,
    "queue_target_packets": 50,
}  # fmt: skip
"""Section 4.1; alpha, beta, gamma and kappa1 are those of `pi2`, too."""

VOLUMES = st.floats(0, 1e9, allow_subnormal=False)
WEIGHTS = st.floats(0.01, 1000)
CAPACITIES = st.floats(0, 1e9, allow_subnormal=False)
ASKING = st.lists(st.tuples(VOLUMES, WEIGHTS), max_size=20)
STEPS = st.floats(0.001, 5)


def parts(asking: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [value[0] for value in asking], [value[1] for value in asking]


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
    assert shares == pytest.approx(filled_one_by_one(capacity, asking), rel=1e-6, abs=1e-3)


@given(CAPACITIES, ASKING)
def test_shares_add_up_to_what_there_is_or_is_asked(capacity: float, asking: list[tuple[float, float]]) -> None:
    demands, weights = parts(asking)
    shares = max_min_shares(capacity, demands, weights)
    assert math.isclose(sum(shares), min(capacity, sum(demands)), rel_tol=1e-9, abs_tol=1e-6)
    assert all(0 <= share <= demand for share, demand in zip(shares, demands, strict=True))


@given(CAPACITIES, ASKING)
def test_nobody_below_his_demand_has_less_by_weight_than_another(
    capacity: float, asking: list[tuple[float, float]]
) -> None:
    demands, weights = parts(asking)
    shares = max_min_shares(capacity, demands, weights)
    levels = [share / weight for share, weight in zip(shares, weights, strict=True)]
    for level, share, demand in zip(levels, shares, demands, strict=True):
        assert share >= demand * (1 - 1e-9) or max(levels) <= level * (1 + 1e-6) + 1e-6


@given(CAPACITIES, ASKING.filter(bool))
def test_desired_volumes_give_all_of_the_capacity_out(capacity: float, asking: list[tuple[float, float]]) -> None:
    demands, weights = parts(asking)
    desired = desired_volumes(capacity, demands, weights)
    assert math.isclose(sum(desired), max(capacity, 0.0), rel_tol=1e-9, abs_tol=1e-6)
    shares = max_min_shares(capacity, demands, weights)
    assert all(volume >= share for volume, share in zip(desired, shares, strict=True))


def test_shares_by_weight() -> None:
    shares = max_min_shares(12.0, [100.0, 100.0, 1.0], [2.0, 1.0, 5.0])
    assert shares == pytest.approx([22 / 3, 11 / 3, 1.0])


@given(CAPACITIES, ASKING.filter(bool))
def test_one_group_is_divided_as_the_law_does(capacity: float, asking: list[tuple[float, float]]) -> None:
    demands, weights = parts(asking)
    got, fair = divide(capacity, np.array(demands), [(np.zeros(len(demands), np.int64), np.array(weights))])
    desired = desired_volumes(capacity, demands, weights)
    assert got == pytest.approx(np.maximum(desired, MIN_SHARE), rel=1e-9)
    highest = max(volume / weight for volume, weight in zip(desired, weights, strict=True))
    assert fair == pytest.approx(highest * np.array(weights), rel=1e-6)


@given(CAPACITIES, st.lists(ASKING.filter(bool), min_size=1, max_size=6))
def test_groups_have_their_parts_whatever_is_in_them(capacity: float, asking: list[list[tuple[float, float]]]) -> None:
    flows = [flow for group in asking for flow in group]
    demands, weights = parts(flows)
    of = np.repeat(np.arange(len(asking)), [len(group) for group in asking])
    of_groups = np.arange(1.0, len(asking) + 1)
    levels = [(of, np.array(weights)), (np.zeros(len(asking), np.int64), of_groups)]
    got, fair = divide(capacity, np.array(demands), levels)
    wanted = desired_volumes(capacity, [sum(parts(group)[0]) for group in asking], of_groups.tolist())
    for number, (group, share) in enumerate(zip(asking, wanted, strict=True)):
        within = np.maximum(desired_volumes(share, *parts(group)), MIN_SHARE)
        assert got[of == number] == pytest.approx(within, rel=1e-6)
    assert (fair >= got * (1 - 1e-6) - MIN_SHARE).all()


def test_what_a_member_does_not_ask_for_stays_in_its_group() -> None:
    # Two stations of equal weight: an upload beside a call, and three uploads.
    levels = [(np.array([0, 0, 1, 1, 1]), np.ones(5)), (np.zeros(2, np.int64), np.ones(2))]
    got, fair = divide(120.0, np.array([100.0, 4.0, 50.0, 50.0, 50.0]), levels)
    assert got.tolist() == [56.0, 4.0, 20.0, 20.0, 20.0]
    assert fair.tolist() == [56.0, 56.0, 20.0, 20.0, 20.0]
    # Who asks for little in a group that asks for little could have its part of the group's.
    got, fair = divide(120.0, np.array([1.0, 4.0, 50.0, 50.0, 50.0]), levels)
    assert got.tolist() == [1.0, 4.0, 115 / 3, 115 / 3, 115 / 3]
    assert fair[:2].min() >= 30.0


class Terms:
    """Share terms over time, with names for the places."""

    def __init__(self, law: Law = PI2) -> None:
        self.law = law
        self.feedback: dict[Any, float] = {}
        self.time: float | None = None

    def update(
        self, now: float, capacity: float, measured: dict[Any, tuple[float, float]], *, gain: float = 0.03,
        limit: float = 0.5, fullness: float = 1.0,
    ) -> dict[Any, float]:  # fmt: skip
        rates, weights = parts(list(measured.values()))
        before = [self.feedback.get(key, 0.0) for key in measured]
        elapsed = 0.0 if self.time is None else now - self.time
        feedback, _ = self.law.shares(
            before, elapsed, capacity, rates, weights, [1.0] * len(measured), gain=gain, interval=0.1, limit=limit,
            fullness=fullness,
        )  # fmt: skip
        self.feedback, self.time = dict(zip(measured, feedback, strict=True)), now
        return self.feedback


@given(
    st.lists(st.tuples(st.floats(0, 1), VOLUMES, WEIGHTS, st.floats(0, 1)), min_size=1, max_size=20),
    st.floats(1, 1e9),
    STEPS,
    st.floats(0, 10),
    st.floats(0.01, 1),
    st.booleans(),
)
def test_the_shares_of_pi2_are_those_written_out(
    flows: list[tuple[float, float, float, float]], capacity: float, step: float, gain: float, limit: float, busy: bool
) -> None:
    """x(n) = x(n-1) + gain (M - D) / (C T), one flow after the other; the feedback is x^2."""
    before, rates, weights, elastic = (list(values) for values in zip(*flows, strict=True))
    got, desired = PI2.shares(
        before, step, capacity, rates, weights, elastic, gain=gain, interval=0.1, limit=limit,
        fullness=0.5 if busy else 0.49,
    )  # fmt: skip
    total = sum(rates)
    shares = filled_one_by_one(capacity, [(rate * (1 + 0.1 * part), weight) for _, rate, weight, part in flows])
    spare = max(0.0, capacity - sum(shares))
    for number, (feedback, rate, weight, _) in enumerate(flows):
        wanted = shares[number] + spare * weight / sum(weights)
        assert desired[number] == pytest.approx(wanted, rel=1e-6, abs=1e-3 + capacity * 1e-9)
        left = rate * min(1.0, capacity / total) if total > 0 else 0.0
        error = (left - desired[number]) / capacity
        error = error if busy else min(0.0, error)
        x = min(math.sqrt(limit), max(0.0, math.sqrt(feedback) + gain * error * step / 0.1))
        assert got[number] == pytest.approx(x * x, rel=1e-6, abs=1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 1), VOLUMES, WEIGHTS), min_size=1, max_size=20),
    st.floats(1, 1e9),
    STEPS,
    st.floats(0, 10),
)
def test_the_shares_of_the_paper_are_those_written_out(
    flows: list[tuple[float, float, float]], capacity: float, step: float, gain: float
) -> None:
    """f(n) = f(n-1) + gain (M - D) / (C T), linear; neither limit nor queue nor demand plays a part."""
    before, rates, weights = (list(values) for values in zip(*flows, strict=True))
    got, desired = PAPER.shares(
        before, step, capacity, rates, weights, [0.0] * len(flows), gain=gain, interval=0.01, limit=0.1, fullness=0.0
    )  # fmt: skip
    spare = sum(max(0.0, capacity * weight / sum(weights) - rate) for _, rate, weight in flows)
    for number, (feedback, rate, weight) in enumerate(flows):
        wanted = (capacity + spare) * weight / sum(weights)
        assert desired[number] == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        moved = gain * (rate - wanted) / capacity * step / 0.01
        assert got[number] == pytest.approx(min(1.0, max(0.0, feedback + moved)), rel=1e-6, abs=1e-9)


def test_what_a_flow_leaves_is_given_out_once_by_weight() -> None:
    # 8 and 2 of 10 are theirs; of the 5 that the first leaves, the second gets a fifth.
    assert paper.desired_volumes(10.0, [3.0, 9.0], [4.0, 1.0]) == pytest.approx([12.0, 3.0])


def test_the_device_term_of_the_paper_is_that_written_out() -> None:
    """(25) to (28), by hand: q* 10, T_m 10 ms."""
    term = PAPER.device()
    given = {"gamma": 0.05, "kappa1": 1.0, "kappa2": 1.0, "interval": 0.01, "limit": 0.01}
    queues, errors, got = [0.0, 20.0, 25.0, 25.0], [], []
    for tick, queue in enumerate(queues):
        got.append(term.update(tick * 0.01, queue, 10.0, False, **given))
        if tick:
            errors.append((queue - queues[tick - 1] + (queue - 10.0)) / 10.0)
    expected = [0.05 * (errors[tick] + sum(errors[: tick + 1])) for tick in range(len(errors))]
    # The limit and whether anything arrives are none of the paper's.
    assert got == pytest.approx([0.0, *expected])
    assert expected == pytest.approx([0.3, 0.35, 0.4])


def fed_back(
    term: DeviceTerm, now: float, queue: float, target: float, *, arriving: bool = True, **changed: float
) -> float:
    """Return the feedback of a device term with the default parameters."""
    ncr = Ncr()
    usual = {
        "gamma": ncr.gamma, "kappa1": ncr.kappa1, "kappa2": ncr.kappa2, "interval": ncr.device_interval,
        "limit": 1.0,
    }  # fmt: skip
    return term.update(now, queue, target, arriving, **{**usual, **changed})


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@given(
    samples=st.lists(st.tuples(STEPS, VOLUMES, st.booleans()), max_size=60),
    target=st.floats(1, 1e9),
    gamma=st.floats(0, 10),
    kappa2=st.floats(0, 100),
    limit=st.floats(0, 1),
)
def test_device_feedback_is_a_probability(
    law: Law, samples: list[tuple[float, float, bool]], target: float, gamma: float, kappa2: float, limit: float
) -> None:
    term, now = law.device(), 0.0
    for step, queue, arriving in samples:
        now += step
        feedback = fed_back(term, now, queue, target, arriving=arriving, gamma=gamma, kappa2=kappa2, limit=limit)
        assert 0 <= feedback <= (1.0 if law is PAPER else limit) + 1e-12


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@given(
    samples=st.lists(
        st.tuples(STEPS, st.dictionaries(st.integers(0, 50), st.tuples(VOLUMES, WEIGHTS)), st.floats(0, 10))
    ),
    capacity=CAPACITIES,
    gain=st.floats(0, 10),
    limit=st.floats(0, 1),
)
def test_share_feedback_is_a_probability(
    law: Law,
    samples: list[tuple[float, dict[int, tuple[float, float]], float]],
    capacity: float,
    gain: float,
    limit: float,
) -> None:
    terms, now = Terms(law), 0.0
    for step, measured, fullness in samples:
        now += step
        feedback = terms.update(now, capacity, measured, gain=gain, limit=limit, fullness=fullness)
        assert all(0 <= value <= (1.0 if law is PAPER else limit) + 1e-12 for value in feedback.values())


def run_device(term: DeviceTerm, start: float, seconds: float, queue: float, step: float = 0.01) -> float:
    """Hold the queue for some time; returns the last feedback."""
    feedback = 0.0
    for tick in range(round(seconds / step)):
        feedback = fed_back(term, start + tick * step, queue, 1e4)
    return feedback


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("overload", [10.0, 100.0, 3600.0])
def test_no_windup(law: Law, overload: float) -> None:
    term = law.device()
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
    term = Pi2DeviceTerm()
    run_device(term, 0.0, 60.0, 1e6)
    for tick in range(20):
        feedback = fed_back(term, 60 + tick * 0.1, 0.0, 1e4, arriving=False)
    assert feedback == 0.0
    assert term.sum == 0.0


def test_device_term_lets_a_burst_pass_and_counts_what_stands() -> None:
    def feedback(queues: list[float]) -> list[float]:
        term = Pi2DeviceTerm()
        return [fed_back(term, tick * 0.01, queue, 10.0) for tick, queue in enumerate(queues)]

    def burst(seconds: float, gap: float) -> float:
        """The first queue is no burst; `gap` s after it comes another one for `seconds`: the last feedback."""
        return feedback([0.0] * 10 + [5.0] * 10 + [0.0] * round(gap / 0.01) + [40.0] * round(seconds / 0.01))[-1]

    assert burst(MAX_BURST - 0.01, gap=0.3) == 0.0
    assert burst(MAX_BURST + 0.01, gap=0.3) > 0.02
    assert burst(0.04, gap=0.05) == 0.0
    assert burst(0.07, gap=0.05) > 0.02
    # After a second without a queue it counts at once, as in a flow's first round trips.
    assert burst(0.02, gap=2.0) > 0.02
    # So it does after a second without traffic, from whose first 0.99 s there was a credit.
    term, now = Pi2DeviceTerm(), 0.0
    for queue, arriving, step in ((5.0, True, 0.0), (0.0, True, 0.5), (0.0, False, 0.49), (0.0, False, 60.0)):
        now += step
        fed_back(term, now, queue, 10.0, arriving=arriving)
    assert fed_back(term, now + 0.01, 40.0, 10.0) > 0.02
    # Windows of a slow start: each leaves before the next one comes.
    windows = [([0.0] * 20 + [40.0] * 10) * 10, ([0.0] * 10 + [40.0] * 20) * 10]
    assert max(feedback([0.0] * 20 + windows[0])) == 0.0 < 0.02 < max(feedback(windows[1]))
    # The pressure that was learnt stays in force in a burst.
    term = Pi2DeviceTerm()
    term.resume(0.01)
    queues = [5.0] + [0.0] * 20 + [40.0] * 5
    got = [fed_back(term, tick * 0.01, queue, 10.0) for tick, queue in enumerate(queues)]
    assert got[-5:] == pytest.approx([term.sum**2] * 5) and got[-1] > 0.002


def test_the_device_term_does_not_depend_on_the_step() -> None:
    values = []
    for step in (0.005, 0.01, 0.02, 0.05):
        term = PI2.device()
        values.append(run_device(term, 0.0, 3.0 + step, 1.5e4, step=step))
    assert values == pytest.approx([values[0]] * 4, rel=0.02)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_share_terms_do_not_depend_on_the_step(law: Law) -> None:
    values = []
    for step in (0.01, 0.05, 0.1, 0.5):
        terms = Terms(law)
        for tick in range(round(5 / step) + 1):
            feedback = terms.update(tick * step, 1e5, {"a": (9e4, 1.0), "b": (3e4, 1.0)})
        values.append(feedback["a"])
    assert values == pytest.approx([values[0]] * 4)
    assert values[0] > 0


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_no_capacity_and_no_demand_give_numbers(law: Law) -> None:
    assert Terms(law).update(0.0, 0.0, {1: (5.0, 1.0)}) == {1: 0.0}
    assert Terms(law).update(1.0, 1e5, {1: (0.0, 1.0)}) == {1: 0.0}
    assert Terms(law).update(1.0, 1e5, {}) == {}
    assert max_min_shares(0.0, [0.0], [1.0]) == [0.0]
    assert law.queue_target(0.0, 0.015, 6056.0, 0.0) == 6056.0


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
        feedback = terms.update(tick * 0.1, 1e5, {"a": (9e4, 1.0), "b": (1e3, 1.0)}, fullness=0.49)
    assert feedback == {"a": 0.0, "b": 0.0}


def test_the_laws_know_nothing_of_the_controller() -> None:
    for module in (base, paper, pi2):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [f"{'.' * node.level}{node.module}"] if isinstance(node, ast.ImportFrom) else []
            names = [name if name.startswith(".") else name.partition(".")[0] for name in names]
            assert set(names) <= {".base", *sys.stdlib_module_names}, module.__name__


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_a_device_term_goes_on_from_what_was_fed_back(law: Law) -> None:
    term = law.device()
    term.resume(0.25)
    assert fed_back(term, 0.0, 1e4, 1e4) == pytest.approx(0.25)
    assert fed_back(term, 0.01, 1e4, 1e4) == pytest.approx(0.25)


def test_a_law_is_changed_while_it_runs() -> None:
    ports = [
        {"port": 1, "role": "station", "capacity_bps": 14_000_000},
        {"port": 2, "role": "uplink", "capacity_bps": 1_000_000},
    ]
    config = AccessPointConfig(name="ap", ports=ports)  # type: ignore[arg-type]
    regulator = PortRegulator(config, config.ports[1], FlowTable(), [0, 1, 2])
    regulator.resume(0.04, {2: 0.01})
    changed = config.model_copy(update={"ncr": Ncr(**OF_THE_PAPER)})
    regulator.configure(changed)
    assert regulator.target == 50 * 1514
    regulator.update(0.0)
    # What is fed back goes on; from there the other law leads.
    assert (regulator.feedback, regulator.class_feedback[2]) == (pytest.approx(0.04), 0.01)


RATES = (1e6, 14e6, 50e6)
SENDERS = (1, 10)


@pytest.mark.parametrize("rtt", [0.004, 0.05])
@pytest.mark.parametrize("target_ms", [5.0, 15.0, 50.0])
def test_pi2_comes_to_rest_at_its_target(target_ms: float, rtt: float) -> None:
    """Over a fifty-fold range of rates, ten of targets and of senders."""
    for bps in RATES:
        for senders in SENDERS:
            ncr = Ncr(queue_target_ms=target_ms)
            rest = settle(ncr, bps, rtt, senders)
            assert rest.used > 0.999
            assert rest.swing < 0.01
            # Above it only with all the feedback that there may be: two segments of each sender are more than that.
            most = rest.feedback > ncr.device_limit - 1e-9
            assert rest.queue == pytest.approx(1.0, abs=0.01) or (most and rest.queue > 1.0)


@pytest.mark.parametrize("target_ms", [5.0, 15.0, 50.0])
def test_pi2_over_long_paths_swings_and_keeps_nine_tenths_of_the_link(target_ms: float) -> None:
    rests = [settle(Ncr(queue_target_ms=target_ms), bps, 0.2, senders) for bps in RATES for senders in SENDERS]
    assert min(rest.used for rest in rests) > 0.9
    assert max(rest.swing for rest in rests) > 0.3


@pytest.mark.parametrize("packets", [50.0, 200.0])
def test_the_paper_keeps_the_link_busy_with_its_target_and_above(packets: float) -> None:
    for bps in RATES:
        for senders in SENDERS:
            for rtt in (0.004, 0.05):
                rest = settle(Ncr(**{**OF_THE_PAPER, "queue_target_packets": packets}), bps, rtt, senders)
                assert rest.used > 0.98
                assert rest.swing < 0.35


def test_the_paper_holds_a_single_sender_below_its_target() -> None:
    """Packets in the queue arrived beyond the sender's share: the flow term alone works against them."""
    for bps in RATES:
        assert settle(Ncr(**OF_THE_PAPER), bps, 0.05, 1).queue < 0.1


def test_a_short_queue_makes_the_paper_swing() -> None:
    """Its gains are for 50 packets: a fifth of that is five times the gain."""
    tight = {**OF_THE_PAPER, "queue_target_packets": 10.0}
    assert settle(Ncr(**tight), 14e6, 0.05, 10).used < 0.85
    assert settle(Ncr(**tight), 14e6, 0.2, 10).used < 0.7
    assert settle(Ncr(queue_target_packets=10), 14e6, 0.05, 10).used > 0.999


def test_scalable_senders_get_k_times_the_root() -> None:
    law = LAWS["pi2"]
    assert [law.scalable(feedback) for feedback in (0.0, 0.01, 0.0625, 0.25, 1.0)] == [0.0, 0.2, 0.5, 1.0, 1.0]
    assert LAWS["paper"].scalable(0.3) == 0.3


def test_the_port_drops_no_more_than_a_quarter() -> None:
    # Where all scalable packets are marked, marks say nothing new: p_Cmax of RFC 9332.
    law = LAWS["pi2"]
    assert [law.dropped(feedback) for feedback in (0.0, 0.1, 0.25, 1.0)] == [0.0, 0.1, 0.25, 0.25]
    assert law.scalable(law.dropped(1.0)) == 1.0
    assert LAWS["paper"].dropped(1.0) == 1.0
