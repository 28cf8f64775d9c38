# SPDX-License-Identifier: Apache-2.0
"""From samples to figures, ratios and verdicts."""

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accesspoint.experiments.catalogue.ncr import headline
from accesspoint.experiments.catalogue.ncr.radios import STATIONS
from accesspoint.experiments.execution import phases
from accesspoint.experiments.experiment import Setting
from accesspoint.experiments.measure.run_data import Raw, longest_between_answers, longest_gap
from accesspoint.experiments.measure.samples import Sample, averaged, by_source, mean_rate, percentile, summed_up
from accesspoint.experiments.runs import registry
from accesspoint.experiments.runs.plan import Order
from accesspoint.experiments.runs.store import Run
from accesspoint.experiments.scenes.scene import AccessPoint, Walk
from accesspoint.experiments.tests import synthetic
from accesspoint.topologies import lab_kinds
from accesspoint.topologies.links.profiles import PROFILES, link_profile
from accesspoint.topologies.requirements import LabError

FIFO, ACKS_FIRST, NCR = headline.EXPERIMENT.arms


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
    during = headline.EXPERIMENT.phases["during"]
    assert averaged(*during) == pytest.approx((9, 15.75))
    assert averaged(3, 6) == pytest.approx((3.375, 5.75)), "at most an eighth of the phase"


def test_the_figures_of_an_arm() -> None:
    figures = phases.by_phase(headline.EXPERIMENT, synthetic.run(FIFO, before=13.4, during=2.0, up=0.9, ping=580))
    assert figures["downlink_mbps"] == {"before": 13.4, "during": 2.0, "after": 13.4}
    assert figures["uplink_mbps"] == {"during": 0.9}
    assert (figures["ping_ms"]["p50"], figures["ping_ms"]["max"]) == (581.5, 583.0)
    assert figures["ping_ms"]["phases"]["before"]["p50"] == 4.0
    assert figures["self_check"]["congestion_control"] == {"downlink": "cubic", "uplink": "cubic"}
    assert figures["self_check"]["window"]["downlink"] == {"cwnd_limited": 1.0}


def without_pings() -> list[Sample]:
    return [s for s in synthetic.samples() if s.quantity != "ping_ms"]


def test_an_arm_without_probes_has_no_ping() -> None:
    figures = phases.by_phase(headline.EXPERIMENT, synthetic.made(NCR, without_pings()))
    assert figures["ping_ms"]["p50"] is None


def test_the_downloads_of_many_stations_are_one() -> None:
    samples = [
        Sample(t + 0.5, "rate_mbps", 2.0, 1.0, f"downlink of sta{n + 1}") for t in range(60) for n in range(STATIONS)
    ]
    facts = {"seconds": 60, "scale": 1.0, "self_check": synthetic.SELF_CHECK}
    order = Order("many-stations", "ncr", {}, 1, 60, "apswitch")
    run = synthetic.Made(order, Path("nowhere"), facts, samples)
    figures = phases.by_phase(registry.find("many-stations"), run)
    assert figures["downlink_mbps"] == {"before": 8.0, "during": 8.0, "after": 8.0}
    assert figures["uplink_mbps"] == {"during": 0.0}, "that never came up"


def test_a_walk_is_told_with_its_longest_gap() -> None:
    samples = [Sample(t / 20, "ping_ms", 5.0) for t in range(20 * 60) if not 500 <= t < 510]
    found = {"from": {"sta1": "ap1"}, "to": {"sta1": "ap2"}}
    facts = {"seconds": 60, "scale": 1.0, "self_check": synthetic.SELF_CHECK, "found": found}
    order = Order("handover", "ncr", {}, 1, 60, "apswitch")
    run: Run = synthetic.Made(order, Path("nowhere"), facts, samples)
    figures = phases.by_phase(registry.find("handover"), run)
    assert figures["handover"] == found | {"longest_gap_ms": 550}
    assert set(figures["uplink_mbps"]) == {"before", "during", "after"}


def test_a_station_walks_through_its_part_of_the_timeline() -> None:
    class Stage:
        scale, seconds = 0.5, 30.0

        def __init__(self) -> None:
            self.found: dict[str, Any] = {}
            self.at_end: list[tuple[float, Any]] = []
            self.ways: list[float] = []
            self.time, self.where, self.lab = -1.0, "ap1", self

        def associations(self) -> dict[str, str]:
            return {"sta1": self.where}

        def walk(self, way: float) -> None:
            self.ways.append(way)

        def now(self) -> float:
            return self.time

        def always(self, action: Any) -> None:
            self.action = action

        def at(self, second: float, action: Any) -> None:
            self.at_end.append((second, action))

    stage = Stage()
    Walk(20, 40).prepare(stage)  # type: ignore[arg-type]
    for stage.time in (-1.0, 10.0, 15.0, 20.0, 29.0):
        stage.action()
    assert stage.ways == [0.0, 0.0, 0.5, 1.0, 1.0]
    ((second, action),) = stage.at_end
    stage.where = "ap2"
    action()
    assert (second, stage.found) == (60.0, {"from": {"sta1": "ap1"}, "to": {"sta1": "ap2"}})


def test_who_walks_needs_radios() -> None:
    experiment = registry.find("handover")
    scene = experiment.scene_of({}, experiment.arms[0])
    with pytest.raises(LabError, match="needs more than one access point: give LAB=mininet-wifi"):
        scene.require(experiment.arms[0], "apswitch")
    assert experiment.under
    scene = experiment.under(Setting(lab=lab_kinds.WIRELESS, air="wmediumd")).scene_of({}, experiment.arms[0])
    assert isinstance(scene, AccessPoint)
    assert (scene.kind, scene.access_points, scene.air, scene.early) == (lab_kinds.WIRELESS, 2, "wmediumd", 4.0)


def test_radios_are_asked_for_as_they_were_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def lab(*_: Any, **named: Any) -> None:
        asked.update(named)

    monkeypatch.setattr(lab_kinds, "lab_class", lambda kind: lab)
    declared = registry.find("handover")
    assert declared.under
    for kind, air in ((lab_kinds.WIRED, "plain"), (lab_kinds.WIRELESS, "wmediumd")):
        experiment = declared.under(Setting(lab=kind, air=air))
        asked.clear()
        experiment.scene_of({}, experiment.arms[0]).lab(experiment.arms[0], "bmv2", tmp_path, seed=7)
        assert (asked["target"], asked["seed"], asked["stats"]) == ("bmv2", 7, True)
        radios = {name: value for name, value in asked.items() if name in ("access_points", "air")}
        assert radios == ({} if kind == lab_kinds.WIRED else {"access_points": 2, "air": "wmediumd"})


def test_ratios() -> None:
    found = synthetic.summarised(synthetic.runs())["ratios"]
    assert found["fifo_downlink_during_of_before"] == pytest.approx(2 / 13, abs=1e-4)
    assert found["ncr_downlink_during_of_before"] == pytest.approx(12.9 / 13, abs=1e-4)
    assert found["ncr_uplink_during_of_link"] == pytest.approx(0.87)
    assert found["ncr_downlink_during_of_fifo"] == pytest.approx(6.45)
    assert found["ncr_ping_p50_of_fifo"] == pytest.approx(10.5 / 581.5, abs=1e-4)


def verdicts(setting: Setting, *runs: synthetic.Made) -> list[phases.Summary]:
    experiment = headline.under(setting)
    arms = {run.order.arm: phases.by_phase(experiment, run) for run in runs}
    return phases.verdicts(experiment, arms, synthetic.cells(experiment, runs))


def decide(target: str = "apswitch", /, **changes: float) -> list[bool]:
    figures = {"during": 12.9, "up": 0.87, "ping": 9.0} | changes
    runs = synthetic.run(FIFO, during=2.0, up=0.92, ping=580.0), synthetic.run(NCR, **figures)
    return [verdict["met"] for verdict in verdicts(Setting(target=target), *runs)]


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
    fifo = synthetic.runs()[0]
    assert len(verdicts(Setting(), fifo)) == 1
    assert not verdicts(Setting(cc="bbr"), fifo)
    assert not verdicts(Setting(link_profile("testbed", up="600kbit")), fifo)


def test_the_limits_scale_with_the_link() -> None:
    run = synthetic.run(NCR, during=12.9, up=11.9, ping=9.0)
    download, upload, ping = verdicts(Setting(PROFILES["lte"]), run)
    assert download["met"] and not upload["met"] and "at least 12.00 Mb/s" in upload["text"]
    assert ping["met"] and "at most 14.0 ms" in ping["text"]
    download, ping = verdicts(Setting(link_profile("testbed", up="500kbit", rtt="20ms"), "bbr"), run)
    assert "at most 52.0 ms" in ping["text"] and ping["arm"] == "ncr"


def test_an_arm_without_probes_meets_nothing_about_the_ping() -> None:
    found = verdicts(Setting(), synthetic.made(NCR, without_pings()))
    assert [verdict["met"] for verdict in found] == [True, True, False]
    assert found[-1]["text"] == "nothing was measured"
