# SPDX-License-Identifier: Apache-2.0
"""Every declared experiment is consistent, and the one in the docs is valid."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from accesspoint.controller.config import AccessPointConfig
from accesspoint.experiments.catalogue.fairness import cells as fairness
from accesspoint.experiments.experiment import Bars, Curves, Experiment, Timeline
from accesspoint.experiments.lab.stage import STAGGER, start_of
from accesspoint.experiments.measure import run_data
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs import plan, registry
from accesspoint.experiments.scenes.scene import Effect, Flow
from accesspoint.experiments.scenes.tcp_info import round_trip
from accesspoint.experiments.verdict.claims import MIN_REPEATS
from accesspoint.topologies.features import configured
from accesspoint.topologies.links.profiles import ProfileError
from accesspoint.topologies.requirements import ROOT

ALL = list(registry.experiments().values())


def documented() -> Experiment:
    page = (ROOT / "docs/experiments.md").read_text()
    space: dict[str, Any] = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1], space)  # type: ignore[index]
    found: Experiment = space["EXPERIMENT"]
    return found


@pytest.mark.parametrize("experiment", [*ALL, documented()], ids=lambda experiment: experiment.name)
def test_everything_that_is_named_is_there(experiment: Experiment) -> None:
    arms = {arm.name for arm in experiment.arms}
    measures = {measure.name for measure in experiment.measures}
    assert len(arms) == len(experiment.arms) and len(measures) == len(experiment.measures)
    # Some figures of the papers are pictures without a number in the text: then the differences say so.
    known = experiment.reported or experiment.paper.startswith("none: ")
    assert known or any("picture" in text for text in experiment.differences)
    # Points that count together are the sample: each runs once.
    assert experiment.figures and experiment.repeats >= (1 if experiment.under or experiment.tally else 3)
    for reported in experiment.reported:
        assert reported.measure in measures and reported.where
        assert dict(reported.point) in [dict(p) for p in experiment.points()] or not reported.point
    for figure in experiment.figures:
        assert set(figure.arms) <= arms
        match figure:
            case Timeline():
                assert set(figure.levels) <= measures
            case Bars():
                assert set(figure.measures) <= measures
            case Curves():
                assert figure.measure in measures and figure.x in experiment.sweep
    assert set(experiment.quick.sweep) <= set(experiment.sweep) and set(experiment.quick.arms) <= arms
    # A comparison of single connections repeats those that it lists.
    least = 1 if experiment.tally else 3 if experiment.compared else MIN_REPEATS["quick"]
    assert experiment.quick.repeats >= least


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.name)
def test_goals_can_be_decided_and_arms_can_be_set(experiment: Experiment) -> None:
    asked = set()

    def medians(measure: str, arm: str, **point: Any) -> float:
        asked.add((measure, arm))
        assert point in [dict(p) for p in experiment.points()], f"no arm runs at {point}"
        return 1.0

    def quick_medians(measure: str, arm: str, **point: Any) -> float | None:
        here = point in [dict(p) for p in experiment.points(quick=True)]
        return 1.0 if here and arm in plan.make(experiment, quick=True).arms else None

    for goal in experiment.goals:
        assert isinstance(float(goal.value(quick_medians)), float), "the quick form does not measure it"
        assert (goal.at_least is None) != (goal.at_most is None)
        assert isinstance(float(goal.value(medians)), float)
        assert goal.text.format(value=1, limit=1)
    known = {(measure.name, arm.name) for measure in experiment.measures for arm in experiment.arms}
    assert asked <= known
    for arm in experiment.arms:
        port = {"port": 1, "role": "uplink", "capacity_bps": 1_000_000}
        AccessPointConfig.model_validate({"name": "ap1", **configured([port], arm.features, arm.controller)})
        for point in experiment.points():
            scene = experiment.scene_of(point, arm)
            assert scene.seconds > 0 and scene.traffic


@pytest.mark.parametrize(
    "experiment", [one for one in ALL if any(arm.role == "peer" for arm in one.arms)], ids=lambda one: one.name
)
def test_a_comparison_says_what_the_load_adds_to_the_ping_of_its_own_empty_links(experiment: Experiment) -> None:
    """Behind a switch of its own and behind the kernel's queues empty links are not equally quick."""
    samples = [Sample(0.0, "empty_ping_ms", 4.0)]
    samples += [
        Sample(t / 10, "ping_ms", 9.0) for t in range(10 * round(experiment.scene_of(*_first(experiment)).seconds))
    ]
    assert experiment.measure("ping_added").of(Raw(samples, seconds=samples[-1].time)) == pytest.approx(5.0)


def _first(experiment: Experiment) -> tuple[Any, Any]:
    return next(experiment.points()), experiment.arms[0]


def test_a_plan_has_every_arm_at_every_point_in_every_repeat() -> None:
    experiment = registry.find("ncr-testbed")
    orders = plan.make(experiment, quick=False, arms=["ours", "fifo"], repeats=2).orders()
    assert [(order.arm, order.repeat) for order in orders] == [("fifo", 1), ("ours", 1), ("fifo", 2), ("ours", 2)]
    assert {order.seconds for order in orders} == {180.0}
    assert {order.seconds for order in plan.make(experiment, quick=True).orders()} == {experiment.quick.seconds}
    assert len({order.id for order in orders}) == 4
    assert orders[0].seed == orders[1].seed != orders[2].seed
    made = plan.make(experiment, quick=True, seconds=12)
    assert plan.Plan.from_json(made.as_json()) == made


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arms": ["cake"]}, "arm 'cake' is unknown"),
        ({"repeats": 0}, "0 repeats are not possible"),
        ({"seconds": 1.0}, "1 seconds are not possible"),
    ],
)
def test_an_impossible_plan_is_told(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        plan.make(registry.find("ncr-testbed"), True, **wrong)


def test_measures_of_raw_data() -> None:
    samples = [
        Sample(t + 0.5, "rate_mbps", rate, 1.0, name) for t in range(20) for name, rate in (("up1", 3.0), ("up2", 1.0))
    ]
    samples += [Sample(t + 0.5, "ping_ms", float(t)) for t in range(20)]
    data = Raw(samples, seconds=20, scale=0.1)  # a timeline of 200 s
    assert run_data.rate("up*", 0, 100)(data) == pytest.approx(4.0)
    assert run_data.rate("up1")(data) == pytest.approx(3.0, rel=0.05)
    assert run_data.jain("up*", 0, 100)(data) == pytest.approx(16 / (2 * 10))
    assert run_data.least("up*", 0, 100)(data) == pytest.approx(1.0)
    assert run_data.quantile("ping_ms", 0.5, 100, 200)(data) == pytest.approx(14.5)
    assert run_data.mean("ping_ms", 0, 100)(data) == pytest.approx(4.5)
    assert run_data.mean("nothing")(data) is None and run_data.jain("nobody")(data) is None


def test_rates_of_every_window_of_a_part_of_the_timeline() -> None:
    samples = [Sample(t + 0.5, "rate_mbps", 2.0 if t == 12 else 1.0, 1.0, name) for t in range(20) for name in "ab"]
    raw = Raw(samples, seconds=20)
    found = run_data.windows(raw, "a", 5, 20, 5)
    assert found == pytest.approx([1.0, 1.0, 1.0, 1.2, 1.2, 1.2, 1.2, 1.2, 1.0, 1.0, 1.0])
    assert run_data.windows(raw, "*", 5, 12, 5) == pytest.approx([2.0] * 3)
    assert run_data.windows(raw, "nobody", 5, 10, 5) == [0.0]


def test_swept_ecn_is_that_of_every_host() -> None:
    experiment = registry.find("hosts")
    assert [experiment.arm_at("ours", {"ecn": word}).ecn for word in ("on", "off")] == [True, False]
    assert experiment.arm_at("ours", {}) is experiment.arm("ours")


def test_a_flow_that_never_came_up_counts_as_one_that_got_nothing() -> None:
    """It has no samples of its rate; that it was started is one."""

    def run(*rates: float, started: int) -> Raw:
        samples = [Sample(t + 0.5, "rate_mbps", rate, 1.0, f"up{n}") for t in range(20) for n, rate in enumerate(rates)]
        samples += [Sample(t + 0.5, "stream_mbps", 1.0, 1.0, f"many/{n}") for t in range(20) for n in range(3)]
        samples += [Sample(0.0, "streams", 1.0, source=f"up{n}") for n in range(started)]
        return Raw([*samples, Sample(0.0, "streams", 4.0, source="many")], seconds=20)

    assert run_data.jain("up*")(run(3.0, 3.0, started=2)) == pytest.approx(1.0)
    assert run_data.jain("up*")(run(3.0, 3.0, started=4)) == pytest.approx(0.5)
    assert run_data.least("up*")(run(3.0, 3.0, started=3)) == 0.0
    # One of four streams of one flow never came up.
    assert run_data.jain("many*", quantity="stream_mbps")(run(started=0)) == pytest.approx(3 / 4)
    assert run_data.jain("up*")(run(started=3)) is None and run_data.least("up*")(run(started=3)) == 0.0
    # A flow that is started after the part that counts is ignored.
    late = run(3.0, 3.0, started=2)
    late.samples.append(Sample(15.0, "streams", 1.0, source="up9"))  # type: ignore[attr-defined]
    assert run_data.jain("up*", 0, 10)(late) == pytest.approx(1.0)
    assert run_data.jain("up*", 0, 20)(late) == pytest.approx(2 / 3)


def test_a_starved_session_makes_the_index_worse() -> None:
    """A session that did not end may have needed any time: it counts as 0, the least that it may come to. A wholly
    starved one of 500 KB that began 2.5 s before the end once counted 1.29, more than any that ended in time."""

    def index(*samples: Sample) -> float | None:
        of = fairness.index("session_s")
        return of(Raw(samples, 20.0, 1.0, {"direction": "down", "nodes": 4, "bytes": 500_000}))

    ideal = 500_000 / (fairness.EFFECTIVE["down"] * 1e6 / 8 / 4)
    fair = Sample(1.0, "session_s", ideal, source="sta3")
    starved = [Sample(17.5, "unfinished_s", 2.5, source="sta4"), Sample(17.5, "session_bytes", 0.0, source="sta4")]
    assert index(fair) == pytest.approx(1.0)
    assert index(fair, *starved) == pytest.approx(0.5)
    assert index(*starved) == 0.0
    assert index() is None


def test_asdict_of_an_order_makes_it_again() -> None:
    order = plan.make(registry.find("ncr-testbed"), True).orders()[0]
    assert plan.Order(**asdict(order)) == order


def test_every_repeat_meets_chances_of_its_own(tmp_path: Path) -> None:
    """R5: independent repeats. Traces are the seed's, the same for all arms of a repeat."""
    texts = [
        Effect("hspa", 355e3).trace(tmp_path / str(place), run)[0].read_text() for place, run in enumerate([1, 1, 2])
    ]
    assert texts[0] == texts[1] != texts[2]
    seeds = [order.seed for order in plan.make(registry.find("batcp"), quick=True, arms=["paper"]).orders()]
    assert len(seeds) == len(set(seeds))
    starts = [start_of(Flow("download", "down", 10.0), seed, scale=0.5) for seed in seeds]
    assert len(starts) == len(set(starts)) and all(5.0 <= start < 5.0 + STAGGER for start in starts)


def test_how_a_flows_rate_varies() -> None:
    samples = [Sample(t + 0.5, "rate_mbps", 1.0 if t % 2 else 3.0, 1.0, "download") for t in range(20)]
    steady = [Sample(t + 0.5, "rate_mbps", 2.0, 1.0, "upload") for t in range(20)]
    data = Raw([*samples, *steady], seconds=20)
    assert run_data.variation("upload")(data) == pytest.approx(0.0)
    # Bins of 1 s between whole ones of 3 and of 1 Mb/s, as what is averaged begins on a second.
    assert run_data.variation("download")(data) == pytest.approx(0.5)
    assert run_data.variation("nobody")(data) is None and run_data.variation("upload", 0, 1)(data) is None


def test_the_round_trip_is_that_of_the_connection_that_has_sent_most() -> None:
    line = "\t cubic wscale:7,7 rto:204 rtt:{rtt}/0.5 cwnd:10 bytes_sent:{sent} bytes_acked:1\n"
    control, data = line.format(rtt=4.5, sent=300), line.format(rtt=812.25, sent=500_000)
    assert round_trip(f"ESTAB 0 0 a b\n{control}ESTAB 0 0 c d\n{data}") == 812.25
    assert round_trip(f"ESTAB 0 0 a b\n{control}") is None and round_trip("") is None
