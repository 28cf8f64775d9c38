# SPDX-License-Identifier: Apache-2.0
"""The rate of CAKE that follows a link, as cake-autorate has it."""

import pytest

from accesspoint.topologies.links.autorate import AFTER_DELAY, PING_SECONDS, PINGERS, WINDOW, Limits, Shaper
from accesspoint.topologies.links.traces import FRAME_BITS, Trace

LIMITS = Limits(2_000_000, 10_000_000, 16_000_000)
FRAME = 1e3 * FRAME_BITS / LIMITS.base
EACH = PING_SECONDS / PINGERS


class Played:
    """A shaper that gets an answer every 50 ms."""

    def __init__(self) -> None:
        self.shaper, self.now = Shaper(LIMITS), 0.0

    def for_seconds(self, seconds: float, rtt: float, carried: float) -> float:
        """Return the rate after it, bit/s. carried: part of the rate."""
        for number in range(round(seconds / EACH)):
            if number % 4 == 0:
                self.shaper.carried(carried * self.shaper.rate)
            self.now += EACH
            self.shaper.answered(self.now, rtt)
        return self.shaper.rate


def test_a_full_shaper_without_delay_rises_by_four_per_cent_each_time_its_rate_was_measured() -> None:
    played = Played()
    played.for_seconds(2, 20, 0.0)
    assert played.for_seconds(1.0, 20, 0.9) == pytest.approx(LIMITS.base * 1.04**5)
    assert played.for_seconds(60, 20, 0.9) == LIMITS.most


def test_delay_takes_a_quarter_at_most_and_no_more_often_than_it_may() -> None:
    played = Played()
    played.for_seconds(2, 20, 0.9)
    before = played.shaper.rate
    played.for_seconds(WINDOW * EACH, 20 + 200, 0.9)
    assert 0.70 * before < played.shaper.rate < 0.80 * before
    before = played.for_seconds(1, 220, 0.9)
    lowered = 2 / AFTER_DELAY
    assert played.for_seconds(2, 220, 0.9) == pytest.approx(max(LIMITS.least, before * 0.75**lowered), rel=0.5)
    assert played.for_seconds(20, 220, 0.9) == LIMITS.least


def test_three_late_answers_of_six_are_a_queue_and_two_are_none() -> None:
    played = Played()
    played.for_seconds(2, 20, 0.5)
    for rtt in (80, 20, 20, 80, 20, 20):
        played.for_seconds(EACH, rtt, 0.5)
    assert played.shaper.rate == LIMITS.base
    for rtt in (80, 80, 80):
        played.for_seconds(EACH, rtt, 0.5)
    assert played.shaper.rate < LIMITS.base


def test_a_frame_on_a_slow_link_is_no_queue() -> None:
    played = Played()
    played.for_seconds(2, 20, 0.5)
    assert played.for_seconds(2, 20 + 29 + FRAME, 0.5) == LIMITS.base
    assert played.for_seconds(2, 20 + 32 + FRAME, 0.5) < LIMITS.base


def test_without_load_it_goes_back_to_its_base_by_one_per_cent_a_second() -> None:
    played = Played()
    played.for_seconds(2, 20, 0.0)
    raised = played.for_seconds(3, 20, 0.9)
    assert raised * 0.95 < played.for_seconds(3, 20, 0.1) < raised * 0.985
    assert played.for_seconds(120, 20, 0.1) == LIMITS.base


def test_limits_are_those_of_the_links_own_seconds() -> None:
    times = [at for second in range(10) for at in range(1000 * second + 1, 1000 * second + 1 + 100 * (second + 1))]
    limits = Limits.of(Trace((*times, 10_000)))
    assert limits.least == 200 * FRAME_BITS and limits.most == 900 * FRAME_BITS
    assert limits.base == pytest.approx(550 * FRAME_BITS, rel=0.01)
