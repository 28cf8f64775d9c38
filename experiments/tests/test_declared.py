# SPDX-License-Identifier: Apache-2.0
"""Every declared experiment hangs together, and the one in the docs is one."""

import re
from dataclasses import asdict
from typing import Any

import pytest

from controller.config import AccessPointConfig
from experiments import plan, registry
from experiments.experiment import Bars, Curves, Experiment, Timeline
from experiments.raw import Raw
from experiments.samples import Sample
from topologies.profiles import ProfileError
from topologies.requirements import ROOT

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
    assert experiment.figures and experiment.goals and experiment.repeats >= 3
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
    assert experiment.quick.repeats >= 3


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
        AccessPointConfig.model_validate(
            {"name": "ap1", "ports": [port], "features": dict(arm.features), **arm.controller}
        )
        for point in experiment.points():
            scene = experiment.scene_of(point, arm)
            assert scene.seconds > 0 and scene.traffic


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
    from experiments import raw

    samples = [
        Sample(t + 0.5, "rate_mbps", rate, 1.0, name) for t in range(20) for name, rate in (("up1", 3.0), ("up2", 1.0))
    ]
    samples += [Sample(t + 0.5, "ping_ms", float(t)) for t in range(20)]
    data = Raw(samples, seconds=20, scale=0.1)  # a timeline of 200 s
    assert raw.rate("up*", 0, 100)(data) == pytest.approx(4.0)
    assert raw.rate("up1")(data) == pytest.approx(3.0, rel=0.05)
    assert raw.jain("up*", 0, 100)(data) == pytest.approx(16 / (2 * 10))
    assert raw.least("up*", 0, 100)(data) == pytest.approx(1.0)
    assert raw.quantile("ping_ms", 0.5, 100, 200)(data) == pytest.approx(14.5)
    assert raw.mean("ping_ms", 0, 100)(data) == pytest.approx(4.5)
    assert raw.mean("nothing")(data) is None and raw.jain("nobody")(data) is None


def test_asdict_of_an_order_makes_it_again() -> None:
    order = plan.make(registry.find("ncr-testbed"), True).orders()[0]
    assert plan.Order(**asdict(order)) == order
