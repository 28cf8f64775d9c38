# SPDX-License-Identifier: Apache-2.0
"""From samples to figures."""

import gzip
import json
import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accesspoint.experiments.catalogue.ncr import headline
from accesspoint.experiments.measure.run_data import Raw, longest_between_answers, longest_gap
from accesspoint.experiments.measure.samples import (
    Sample,
    averaged,
    by_source,
    mean_rate,
    mean_rates,
    percentile,
    summed_up,
)
from accesspoint.experiments.runs import flent
from accesspoint.experiments.tests import synthetic


def test_a_rate_is_the_volume_of_the_window_over_its_length() -> None:
    samples = [Sample(0.5, "x", 10.0, 1.0), Sample(1.5, "x", 20.0, 1.0), Sample(1.5, "y", 99.0, 1.0)]
    assert mean_rate(samples, "x", 0, 2) == pytest.approx(15)
    assert mean_rate(samples, "x", 0.5, 1.5) == pytest.approx(15), "a sample counts by its part within"
    assert mean_rate(samples, "x", 1.75, 2.0) == pytest.approx(20)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 9))),
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 6),
)  # fmt: skip
def test_rates_of_windows_are_what_each_window_holds(
    samples: list[tuple[int, int, int]], step: int, width: int, count: int
) -> None:
    windows = [(float(step * place), float(step * place + width)) for place in range(count)]
    kept = [Sample(begin + span / 2, "x", float(value), float(span)) for begin, span, value in samples]
    # Windows and samples begin and end at whole seconds: each second is in a window, or it is not.
    seconds = [(begin + second, value) for begin, span, value in samples for second in range(span)]
    held = [sum(value for second, value in seconds if start <= second < end) for start, end in windows]
    assert mean_rates(kept, "x", windows) == pytest.approx([volume / width for volume in held])


def test_a_gap_counts_as_nothing() -> None:
    assert mean_rate([Sample(0.5, "x", 10.0, 1.0)], "x", 0, 4) == pytest.approx(2.5)


def test_flows_of_one_quantity_are_summed_up() -> None:
    one = [Sample(i / 4 + 0.1, "downlink_mbps", 2.0, 0.25) for i in range(8)]
    two = [Sample(i / 4 + 0.2, "downlink_mbps", 1.0, 0.25) for i in range(8)]
    pings = [Sample(0.5, "ping_ms", 7.0)]
    result = summed_up([*one, *two, *pings], {"downlink_mbps"}, 2)
    assert [s for s in result if s.quantity == "ping_ms"] == pings
    total = [s for s in result if s.quantity == "downlink_mbps"]
    assert len(total) == 8 and all(s.span == 0.25 for s in total)
    assert [s.value for s in total[1:7]] == pytest.approx([3.0] * 6)
    assert mean_rate(total, "downlink_mbps", 0.25, 1.75) == pytest.approx(3.0)


def test_a_terminal_that_comes_back_has_one_line() -> None:
    first = [Sample(i / 4, "rate_mbps", 3.0 if i < 4 else 0.0, 0.25, "sta1") for i in range(8)]
    second = [Sample(i / 4, "rate_mbps", 5.0, 0.25, "sta1") for i in range(6, 8)]
    other = Sample(0.5, "rate_mbps", 7.0, 0.25, "sta2")
    lines = by_source([*first, other, *second])
    assert [s.value for s in lines["sta1"]] == [3, 3, 3, 3, 0, 0, 5, 5] and lines["sta2"] == [other]


def test_by_source_sample_reported_twice_counts_once() -> None:
    last = Sample(7.9, "rate_mbps", 1.0, 0.15, "upload")
    assert by_source([last, last]) == {"upload": [last]}


def test_the_longest_gap_counts_from_edge_to_edge() -> None:
    raw = Raw([Sample(time, "ping_ms", 5.0) for time in (0.9, 1.2, 1.9, 2.0)], seconds=4)
    assert longest_gap("ping_ms", 1, 3)(raw) == pytest.approx(1000)
    assert longest_gap("ping_ms", 1, 2.1)(raw) == pytest.approx(700)
    assert longest_gap("loss", 1, 3)(raw) == 2000


def test_probes_that_waited_are_answers_of_when_they_came() -> None:
    late = [Sample(1.0 + i / 20, "ping_ms", 1000.0 - 50 * i) for i in range(20)]  # all answered at 2.0
    raw = Raw([Sample(0.9, "ping_ms", 5.0), *late, Sample(2.1, "ping_ms", 5.0)], seconds=4)
    assert longest_gap("ping_ms", 1, 2)(raw) == pytest.approx(50)
    assert longest_between_answers(1, 2)(raw) == pytest.approx(1095)
    assert longest_between_answers(2.05, 3)(raw) == pytest.approx(1895), "to the run's end, as no more came"
    assert longest_between_answers(1, 2)(Raw([], seconds=4)) == 4000


@given(st.lists(st.floats(0, 1e4), min_size=2, max_size=200))
def test_percentiles_are_those_of_the_library(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")
    assert percentile(values, 0.5) == pytest.approx(expected[49], abs=1e-6)
    assert percentile(values, 0.99) == pytest.approx(expected[98], abs=1e-6)
    assert percentile(values, 1.0) == max(values)


def test_no_value_has_no_percentile() -> None:
    assert math.isnan(percentile([], 0.5))


def test_the_edges_of_a_phase_are_left_out() -> None:
    during = headline.thirds(24)["during"]
    assert averaged(*during) == pytest.approx((9, 15.75))
    assert averaged(3, 6) == pytest.approx((3.375, 5.75)), "at most an eighth of the phase"


def test_flent_file_has_the_form_of_flent_2(tmp_path: Path) -> None:
    """The form that flent/resultset.py of Flent 2.x reads."""
    ways = {"downlink": "downlink_mbps", "uplink": "uplink_mbps"}
    by_way = [replace(s, quantity=ways.get(s.source, s.quantity)) for s in synthetic.samples(during=12.9, up=0.87)]
    flent.write(tmp_path / "run.flent.gz", flent.data(by_way, "a title", synthetic.STARTED, synthetic.SECONDS))
    with gzip.open(tmp_path / "run.flent.gz", "rt") as file:
        content = json.load(file)
    assert content["version"] == 4
    assert content["metadata"]["NAME"] == "tcp_bidirectional"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", content["metadata"]["T0"])
    assert set(content["results"]) == set(content["raw_values"]) == set(flent.SERIES)
    for series in content["results"].values():
        assert len(series) == len(content["x_values"])
    at = content["x_values"].index(12.0)
    assert content["results"]["TCP download"][at] == pytest.approx(12.9)
    assert content["results"]["TCP upload"][0] is None
    assert content["raw_values"]["TCP upload"][0] == {"t": 1_700_000_008.125, "val": 0.87}
