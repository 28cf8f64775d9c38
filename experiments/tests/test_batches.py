# SPDX-License-Identifier: Apache-2.0
"""Batches of uploads: seeds of their own, round trips from the socket, and differences of successive ones."""

from types import SimpleNamespace
from typing import Any

import pytest

from accesspoint.experiments.catalogue.batcp.batches import EXPERIMENT, UPLOADS, RoundTrips
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs import plan


def test_upload_of_a_batch_has_a_seed_that_no_other_has() -> None:
    orders = plan.make(EXPERIMENT, quick=True).orders()
    assert len({order.seed for order in orders}) == 5 * UPLOADS == len(orders) / len(EXPERIMENT.arms)


def test_round_trips_are_of_the_phones_connection_once_a_second() -> None:
    found: list[tuple[float, str, float]] = []
    due: list[float] = []

    def at(second: float, action: Any) -> None:
        due.append(second)
        action()

    said = " cubic rtt:95.4/40 bytes_sent:50000 bytes_acked:40000"
    stage: Any = SimpleNamespace(
        station=lambda number: SimpleNamespace(run=lambda *command: said if number == 1 else ""),
        at=at, seconds=4.5, scale=0.5, now=lambda: 3.0, sample=lambda *sample: found.append(sample),
    )  # fmt: skip
    RoundTrips().prepare(stage)
    assert due == [2.0, 4.0, 6.0]
    assert found == [(3.0, "tcp_rtt_ms", 95.4)] * 3


def test_rtt_difference_is_the_mean_of_successive_ones() -> None:
    of = EXPERIMENT.measure("rtt_difference").of
    samples = [Sample(float(second), "tcp_rtt_ms", value) for second, value in enumerate((40.0, 100.0, 90.0))]
    assert of(Raw(samples, 3.0)) == pytest.approx(35.0)
    assert of(Raw(samples[:1], 3.0)) is None
