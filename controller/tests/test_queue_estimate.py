# SPDX-License-Identifier: Apache-2.0
"""The queue that counters show, with losses that no counter shows."""

from hypothesis import given
from hypothesis import strategies as st

from accesspoint.controller.agent.queue_estimate import FULL_FRAME, PortCounters, QueueEstimate

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


def test_bulk_that_acks_push_out_is_missing_like_what_is_turned_away() -> None:
    limit, ack = 100, 66
    estimate = QueueEstimate(CAPACITY, limit)
    arrived = arrived_bytes = gone = gone_bytes = bulk = credit = 0
    for tick in range(1000):
        # Eight ACKs, which go first, and four packets of bulk, of which the full queue keeps what it has room for.
        acks, more = (8, 4) if tick < 500 else (0, 0)
        arrived, arrived_bytes = arrived + acks + more, arrived_bytes + acks * ack + more * FULL_FRAME
        bulk = min(bulk + more, limit - acks)
        gone, gone_bytes = gone + acks, gone_bytes + acks * ack
        credit += int(CAPACITY * 0.01) - acks * ack
        while credit >= FULL_FRAME and bulk:
            bulk, credit, gone, gone_bytes = bulk - 1, credit - FULL_FRAME, gone + 1, gone_bytes + FULL_FRAME
        credit = min(credit, FULL_FRAME)
        estimate.update(PortCounters(arrived, arrived_bytes, gone, gone_bytes, gone_bytes), tick * 0.01)
        if 200 < tick < 500:
            assert abs(estimate.packets - bulk) <= 10 and abs(estimate.bytes / (bulk * FULL_FRAME) - 1) < 0.12
    assert bulk == estimate.packets == estimate.bytes == 0


def test_what_is_rounded_stays_within_the_limit() -> None:
    for more in range(65, 400):
        estimate = QueueEstimate(CAPACITY, 64)
        estimate.update(reading(0, 0), 0.0)
        estimate.update(reading(more, 0), 0.01)
        assert estimate.packets <= 64, more


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
