# SPDX-License-Identifier: Apache-2.0
"""The queue that counters show, with losses that no counter shows."""

from hypothesis import given
from hypothesis import strategies as st

from controller.queue_estimate import FULL_FRAME, PortCounters, QueueEstimate

CAPACITY = 125_000.0


def reading(arrived: int, gone: int) -> PortCounters:
    return PortCounters(arrived, arrived * FULL_FRAME, gone, gone * FULL_FRAME, gone * FULL_FRAME)


def test_without_loss_it_is_what_arrived_and_has_not_left() -> None:
    estimate = QueueEstimate(CAPACITY, 1000)
    estimate.update(reading(0, 0), 0.0)
    estimate.update(reading(50, 10), 0.12)
    assert estimate.packets == 40
    assert estimate.delay == 40 * FULL_FRAME / CAPACITY


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.floats(0.001, 0.5)), max_size=50))
def test_it_is_never_negative_and_never_above_the_limit(steps: list[tuple[int, int, float]]) -> None:
    estimate = QueueEstimate(CAPACITY, 64)
    arrived, gone, now = 0, 0, 0.0
    for more, left, step in steps:
        arrived, gone, now = arrived + more, gone + left, now + step
        estimate.update(reading(arrived, gone), now)
        assert 0 <= estimate.packets <= 64
        assert 0 <= estimate.bytes <= 64 * FULL_FRAME * 1.001


def test_a_full_queue_stays_at_its_limit_while_packets_are_lost() -> None:
    estimate = QueueEstimate(CAPACITY, 100)
    for tick in range(500):
        now = tick * 0.01
        estimate.update(reading(5 * tick, int(now * CAPACITY / FULL_FRAME)), now)
    assert 95 <= estimate.packets <= 100


def test_losses_are_forgotten_when_the_port_cannot_have_been_busy() -> None:
    estimate = QueueEstimate(CAPACITY, 100)
    estimate.update(reading(0, 0), 0.0)
    estimate.update(reading(130, 0), 0.01)
    # The queue holds 60, not 100: 30 more than the limit were lost, and 40 that the estimate cannot know of.
    served = 0
    for tick in range(1, 400):
        now = 0.01 + tick * 0.01
        served = min(60, int(now * CAPACITY / FULL_FRAME))
        estimate.update(reading(130, served), now)
    assert served == 60
    assert estimate.packets == 0
    # And what comes then counts in full.
    estimate.update(reading(140, 60), 4.1)
    assert estimate.packets == 10


def test_a_standing_queue_on_a_link_slower_than_configured_is_not_forgotten() -> None:
    estimate = QueueEstimate(CAPACITY, 1000)
    for tick in range(1000):
        now = tick * 0.01
        gone = int(now * 0.92 * CAPACITY / FULL_FRAME)
        estimate.update(reading(gone + 40, gone), now)
    assert estimate.packets == 40


def test_counters_of_a_new_pipeline_start_anew() -> None:
    estimate = QueueEstimate(CAPACITY, 100)
    estimate.update(reading(0, 0), 0.0)
    estimate.update(reading(500, 10), 0.1)
    estimate.update(reading(5, 2), 0.2)
    assert estimate.packets == 3
    assert estimate.lost_packets == 0


def test_a_packet_between_two_reads_is_no_loss() -> None:
    estimate = QueueEstimate(CAPACITY, 100)
    estimate.update(reading(10, 0), 0.0)
    estimate.update(reading(10, 12), 0.01)
    assert estimate.packets == 0
    estimate.update(reading(12, 12), 0.02)
    estimate.update(reading(20, 12), 0.03)
    assert estimate.packets == 8
