# SPDX-License-Identifier: Apache-2.0
"""From samples to figures, ratios and verdicts."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.headline import HEADLINE
from experiments.metrics import (
    arm_summary,
    longest_gap,
    ratios,
    summed,
    verdicts,
    window,
)
from experiments.samples import Sample, mean_rate, percentile
from experiments.tests import synthetic
from experiments.wireless import MANY_STATIONS
from topologies.profiles import PROFILES, link_profile

TESTBED = PROFILES["testbed"]


def test_a_rate_is_the_volume_of_the_window_over_its_length() -> None:
    samples = [Sample(0.5, "x", 10.0, 1.0), Sample(1.5, "x", 20.0, 1.0), Sample(1.5, "y", 99.0, 1.0)]
    assert mean_rate(samples, "x", 0, 2) == pytest.approx(15)
    assert mean_rate(samples, "x", 0.5, 1.5) == pytest.approx(15), "a sample counts by its part within"
    assert mean_rate(samples, "x", 1.75, 2.0) == pytest.approx(20)


def test_a_gap_counts_as_nothing() -> None:
    assert mean_rate([Sample(0.5, "x", 10.0, 1.0)], "x", 0, 4) == pytest.approx(2.5)


def test_flows_of_one_quantity_are_summed_up() -> None:
    one = [Sample(i / 4 + 0.1, "downlink_mbps", 2.0, 0.25) for i in range(8)]
    two = [Sample(i / 4 + 0.2, "downlink_mbps", 1.0, 0.25) for i in range(8)]
    pings = [Sample(0.5, "ping_ms", 7.0)]
    result = summed([*one, *two, *pings], MANY_STATIONS, 2)
    assert [s for s in result if s.quantity == "ping_ms"] == pings
    total = [s for s in result if s.quantity == "downlink_mbps"]
    assert len(total) == 8 and all(s.span == 0.25 for s in total)
    assert [s.value for s in total[1:7]] == pytest.approx([3.0] * 6)
    assert mean_rate(total, "downlink_mbps", 0.25, 1.75) == pytest.approx(3.0)
    assert summed(one, HEADLINE, 2) == one, "a single flow's samples stay as they are"


def test_the_longest_gap_counts_from_edge_to_edge() -> None:
    samples = [Sample(time, "ping_ms", 5.0) for time in (0.9, 1.2, 1.9, 2.0)]
    assert longest_gap(samples, "ping_ms", 1, 3) == pytest.approx(1.0)
    assert longest_gap(samples, "ping_ms", 1, 2.1) == pytest.approx(0.7)
    assert longest_gap(samples, "loss", 1, 3) == 2


@given(st.lists(st.floats(0, 1e4), min_size=2, max_size=200))
def test_percentiles_are_those_of_the_library(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")
    assert percentile(values, 0.5) == pytest.approx(expected[49], abs=1e-6)
    assert percentile(values, 0.99) == pytest.approx(expected[98], abs=1e-6)
    assert percentile(values, 1.0) == max(values)


def test_no_value_has_no_percentile() -> None:
    assert math.isnan(percentile([], 0.5))


def test_the_edges_of_a_phase_are_left_out() -> None:
    during = HEADLINE.phase("during")
    assert window(during, 24) == pytest.approx((9, 15.75))
    assert window(during, 9) == pytest.approx((3.375, 5.75)), "at most an eighth of the phase"


def test_the_figures_of_an_arm() -> None:
    summary = arm_summary(HEADLINE, synthetic.samples(before=13.4, during=2.0, up=0.9, ping=580), synthetic.SECONDS)
    assert summary["downlink_mbps"] == {"before": 13.4, "during": 2.0, "after": 13.4}
    assert summary["uplink_mbps"] == {"during": 0.9}
    assert (summary["ping_ms"]["p50"], summary["ping_ms"]["max"]) == (581.5, 583.0)
    assert summary["ping_ms"]["phases"]["before"]["p50"] == 4.0


def test_an_arm_without_probes_has_no_ping() -> None:
    samples = [s for s in synthetic.samples() if s.quantity != "ping_ms"]
    assert arm_summary(HEADLINE, samples, synthetic.SECONDS)["ping_ms"]["p50"] is None


def test_ratios() -> None:
    found = ratios(HEADLINE, TESTBED, {run.arm.name: run.summary or {} for run in synthetic.runs()})
    assert found["fifo_downlink_during_of_before"] == pytest.approx(2 / 13, abs=1e-4)
    assert found["ncr_downlink_during_of_before"] == pytest.approx(12.9 / 13, abs=1e-4)
    assert found["ncr_uplink_during_of_link"] == pytest.approx(0.87)
    assert found["ncr_downlink_during_of_fifo"] == pytest.approx(6.45)
    assert found["ncr_ping_p50_of_fifo"] == pytest.approx(10.5 / 581.5, abs=1e-4)


def decide(target: str = "apswitch", /, **changes: float) -> list[bool]:
    fifo, _, ncr = HEADLINE.arms
    figures = {"during": 12.9, "up": 0.87, "ping": 9.0} | changes
    arms = {
        "fifo": synthetic.run(fifo, during=2.0, up=0.92, ping=580.0).summary or {},
        "ncr": synthetic.run(ncr, **figures).summary or {},
    }
    return [verdict.met for verdict in verdicts(HEADLINE, TESTBED, "cubic", arms, target)]


@pytest.mark.parametrize(
    ("changes", "met"),
    [
        ({}, [True, True, True, True]),
        ({"during": 13 * 0.98}, [True, True, True, True]),
        ({"during": 13 * 0.97}, [True, False, True, True]),
        ({"up": 0.80}, [True, True, True, True]),
        ({"up": 0.79}, [True, True, False, True]),
        ({"ping": 18.5}, [True, True, True, True]),
        ({"ping": 19.0}, [True, True, True, False]),
    ],
)
def test_the_limits_of_the_testbed(changes: dict[str, float], met: list[bool]) -> None:
    assert decide(**changes) == met


def test_bmv2_has_limits_of_its_own() -> None:
    assert decide("bmv2", during=13 * 0.95, up=0.58) == [True, True, True, True]
    assert decide("bmv2", during=13 * 0.94, up=0.57) == [True, False, False, True]


def test_the_collapse_is_asked_for_only_where_it_was_measured() -> None:
    arms = {"fifo": synthetic.runs()[0].summary or {}}
    assert len(verdicts(HEADLINE, TESTBED, "cubic", arms)) == 1
    assert not verdicts(HEADLINE, TESTBED, "bbr", arms)
    assert not verdicts(HEADLINE, link_profile("testbed", up="600kbit"), "cubic", arms)


def test_the_limits_scale_with_the_link() -> None:
    arms = {"ncr": synthetic.run(HEADLINE.arms[2], during=12.9, up=11.9, ping=9.0).summary or {}}
    download, upload, ping = verdicts(HEADLINE, PROFILES["lte"], "cubic", arms)
    assert download.met and not upload.met and "at least 12.00 Mb/s" in upload.text
    assert ping.met and "at most 14.0 ms" in ping.text
    download, ping = verdicts(HEADLINE, link_profile("testbed", up="500kbit", rtt="20ms"), "bbr", arms)
    assert "at most 52.0 ms" in ping.text


def test_an_arm_without_probes_meets_nothing_about_the_ping() -> None:
    arms = {"ncr": arm_summary(HEADLINE, [s for s in synthetic.samples() if s.quantity != "ping_ms"], 24)}
    assert [verdict.met for verdict in verdicts(HEADLINE, TESTBED, "cubic", arms)] == [True, True, False]
