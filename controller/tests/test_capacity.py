# SPDX-License-Identifier: Apache-2.0
"""Capacity of a link, learned from counters; and the loop on links with a wrong configuration."""

from collections.abc import Callable

import pytest

from accesspoint.controller.agent.capacity import Capacity
from accesspoint.controller.agent.queue_estimate import FULL_FRAME, PortCounters, QueueEstimate
from accesspoint.controller.law.simulation import Sender, simulate

TICK = 0.01
Rate = Callable[[float], float]


class Link:
    """A queue and a link of whole frames, seen by an estimate every tick."""

    def __init__(self, configured: float, limit: int = 1000, said: int | None = None) -> None:
        """`limit`: packets that the queue holds, `said`: what is configured of that."""
        self.capacity = Capacity(configured / 8)
        self.estimate = QueueEstimate(self.capacity.value, said or limit)
        self.limit = limit
        self.queue = self.arrived = self.sent = 0
        self._offered = self._served = 0.0

    def tick(self, now: float, rate: float, offered: float) -> None:
        """Go on to `now`, with bits/s that the link carries and that come."""
        self._offered += offered / 8 * TICK / FULL_FRAME
        self._served += rate / 8 * TICK / FULL_FRAME
        came = int(self._offered)
        self._offered -= came
        left = min(int(self._served), self.queue + came)
        # An idle link saves nothing up.
        self._served = min(self._served - left, 1.0)
        self.arrived, self.sent = self.arrived + came, self.sent + left
        # What a full queue turns away is counted as arrived.
        self.queue = min(self.queue + came, self.limit + left) - left
        sizes = (self.arrived * FULL_FRAME, self.sent, self.sent * FULL_FRAME, self.sent * FULL_FRAME)
        self.estimate.update(PortCounters(self.arrived, *sizes), now)
        self.capacity.update(sizes[2], self.sent, self.estimate.packets - self.estimate.doubt, now)
        self.estimate.capacity = self.capacity.value

    def run(self, seconds: float, rate: Rate, offered: Rate) -> list[tuple[float, float]]:
        """Run, and return the time and capacity in bits/s of each update."""
        found = []
        for tick in range(1, round(seconds / TICK) + 1):
            now = tick * TICK
            self.tick(now, rate(now), offered(now))
            found.append((now, 8 * self.capacity.value))
        return found


@pytest.mark.parametrize("rate", [500e3, 1e6, 14e6, 200e6])
@pytest.mark.parametrize("configured", [0.0, 0.5, 1.0, 2.0])
def test_a_busy_link_tells_its_capacity(rate: float, configured: float) -> None:
    link = Link(configured * rate, limit=100_000)
    found = link.run(6, lambda _: rate, lambda now: 1.3 * rate if now < 1 else rate)
    assert all(value == pytest.approx(rate, rel=0.15) for now, value in found if now > 3)
    assert link.capacity.wrong == (configured in (0.5, 2.0))
    assert 8 * link.capacity.learned == pytest.approx(rate, rel=0.1)


def test_a_link_that_is_not_busy_tells_nothing_below_what_is_configured() -> None:
    link = Link(10e6)
    link.run(5, lambda _: 10e6, lambda _: 3e6)
    assert not link.capacity.wrong and 8 * link.capacity.value == 10e6


def test_more_than_is_configured_is_seen_without_any_queue() -> None:
    link = Link(5e6)
    link.run(3, lambda _: 100e6, lambda _: 9e6)
    assert link.capacity.wrong and 8 * link.capacity.value == pytest.approx(9e6, rel=0.1)


def test_of_a_link_that_was_never_busy_nothing_is_known() -> None:
    link = Link(0.0)
    link.run(5, lambda _: 10e6, lambda _: 3e6)
    assert link.capacity.value == 0


@pytest.mark.parametrize("after", [3e6, 30e6])
def test_a_step_is_followed_within_half_a_second(after: float) -> None:
    link = Link(0.0, limit=100_000)
    found = link.run(5, lambda now: 10e6 if now < 3 else after, lambda now: 40e6 if now > 0.2 else 0.0)
    assert all(value == pytest.approx(10e6, rel=0.1) for now, value in found if 2 < now < 2.99)
    assert all(value == pytest.approx(after, rel=0.1) for now, value in found if now >= 3.5)


def test_a_queue_that_overflows_is_no_slow_link() -> None:
    # Twice of what the link carries is configured, and a flood is turned away at a short queue. Afterwards packets come
    # in bursts, which are gone before the next one.
    link = Link(2e6, limit=50)
    for tick in range(1, 1500):
        now = tick * TICK
        link.tick(now, 1e6, 10e6 if now < 2 else 3e6 * (tick % 20 < 4))
        if 1 < now < 2 or now > 8:
            assert abs(link.estimate.packets - link.queue) <= 3
    assert link.capacity.wrong and 8 * link.capacity.value == pytest.approx(1e6, rel=0.15)


def test_a_flood_at_a_queue_that_is_shorter_than_configured_leaves_no_queue_behind() -> None:
    link = Link(1e6, limit=100, said=1000)
    link.run(3, lambda _: 1e6, lambda _: 5e6)
    assert link.estimate.packets > 500
    for tick in range(300, 1400):
        link.tick(tick * TICK, 1e6, 0.0)
    assert link.estimate.packets == link.queue == 0
    # The silence has not made the link look slow.
    assert 8 * link.capacity.value == pytest.approx(1e6, rel=0.1)


def test_packets_that_vanish_are_no_queue_for_ever() -> None:
    link = Link(0.0)
    link.run(2, lambda _: 10e6, lambda now: 6e6 if now % 0.5 < 0.25 else 1e6)
    link.arrived += 30
    for tick in range(200, 800):
        now = tick * TICK
        link.tick(now, 10e6, 6e6 if now % 1.5 < 0.75 else 1e6)
    assert abs(link.estimate.packets - link.queue) <= 3


def on(rate: Rate, mean: float, configured: float) -> tuple[float, float]:
    """Median delay of the queue and utilisation of a link behind two senders."""
    senders = [Sender(number, 0.02) for number in range(2)]
    result = simulate(senders, mean, 22, configured_bps=configured, rate=rate, warm_up=10, limit=100)
    return result.delay(0.5), result.utilisation


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 2.0])
def test_the_loop_keeps_its_target_whatever_is_configured(factor: float) -> None:
    rate = 14e6
    delay, used = on(lambda _: rate, rate, factor * rate)
    assert delay < 0.020
    assert used > 0.98


@pytest.mark.parametrize(("rate", "flows"), [(1e6, 1), (1e6, 5), (14e6, 1)])
def test_rate_that_is_changed_ten_times_a_second_costs_nothing(rate: float, flows: int) -> None:
    """For a minute, up and down by a tenth of it, as an autorate script does."""

    def run(retuned: Rate | None) -> tuple[float, float]:
        found = [
            simulate([Sender(number, 0.02) for number in range(flows)], rate, 65, retuned=retuned, seed=seed)
            for seed in (1, 2)
        ]
        delays = [delay for result in found for delay in result.delays]
        return sum(result.utilisation for result in found) / len(found), sum(delays) / len(delays)

    used, delay = run(None)
    used_retuned, delay_retuned = run(lambda now: rate * (1.1 if int(now * 10) % 2 else 0.9))
    assert used_retuned >= 0.98 * used
    assert delay_retuned <= delay + 0.002


def test_the_loop_keeps_its_target_on_a_link_that_changes() -> None:
    delay, used = on(lambda now: (6e6, 14e6, 10e6)[int(now / 4) % 3], 10e6, 0.0)
    assert delay < 0.025
    assert used > 0.93
