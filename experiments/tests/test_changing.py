# SPDX-License-Identifier: Apache-2.0
"""Links that change: every repeat meets a trace of its own, and each arm is told what it is meant to know."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accesspoint.experiments.runs import plan, registry
from accesspoint.experiments.scenes.scene import Effect
from accesspoint.topologies.features import Features
from accesspoint.topologies.links import traces
from accesspoint.topologies.mininet import controllers
from accesspoint.topologies.targets import Port

pytest.importorskip("mininet")

EXPERIMENT = registry.find("changing")


def lab(arm: str, repeat: int, directory: Path) -> Any:
    """The lab of one run, not started."""
    made = plan.make(EXPERIMENT, quick=True, arms=[arm], repeats=2)
    order = next(one for one in made.orders() if (one.repeat, one.point["link"]) == (repeat, "rate-steps"))
    chosen = EXPERIMENT.arm(arm)
    return EXPERIMENT.scene_of(order.point, chosen).lab(chosen, "apswitch", directory, order.seed)


def played(made: Any) -> list[traces.Trace]:
    return [traces.read(Path(file)) for file in (made.profile.down_trace, made.profile.up_trace)]


def test_all_arms_of_a_repeat_meet_one_trace_and_each_repeat_another(tmp_path: Path) -> None:
    first, second = (played(lab("ours", repeat, tmp_path / str(repeat))) for repeat in (1, 2))
    assert first == played(lab("ours-auto", 1, tmp_path / "auto"))
    assert first[0].times != second[0].times and first[1].times != second[1].times


def test_both_directions_change_on_their_own(tmp_path: Path) -> None:
    one, other = (traces.read(Effect("rate-steps", 1e6, 30, number).trace(tmp_path, 5)[0]) for number in (0, 1))
    assert one.times != other.times


def test_who_is_told_a_rate_is_told_the_mean_of_its_run(tmp_path: Path) -> None:
    made = lab("ours", 1, tmp_path)
    down, up = played(made)
    assert (made.profile.down, made.profile.up) == (round(down.rate), round(up.rate))


@pytest.mark.parametrize(("capacity", "told"), [(None, [2_000_000, 1_000_000]), ("auto", ["auto", "auto"])])
def test_a_controller_may_be_told_no_rate(capacity: Any, told: list[Any]) -> None:
    ports = {1: Port(2_000_000, 1_000_000, 100), 2: Port(1_000_000, 2_000_000, 100)}
    access_point = SimpleNamespace(name="ap1", grpc="127.0.0.1:1", device_id=1, radios=frozenset(), isolated=True)
    entry = controllers.entry(access_point, ports, Features(), capacity=capacity)  # type: ignore[arg-type]
    assert [port["capacity_bps"] for port in entry["ports"]] == told


def test_the_arm_that_learns_is_told_nothing(tmp_path: Path) -> None:
    assert lab("ours-auto", 1, tmp_path)._capacity == "auto" and lab("ours", 1, tmp_path)._capacity is None
