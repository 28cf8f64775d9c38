# SPDX-License-Identifier: Apache-2.0
"""Rates of ports that a script changes all the time, as autorate scripts do."""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from accesspoint.experiments.experiment import OURS, Arm, Experiment, Goal, Measure, Medians, Point, Quick, Timeline
from accesspoint.experiments.measure.run_data import mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

SECONDS, SETTLED = 70, 10
TESTBED = PROFILES["testbed"]
PER_SECOND = 10
BY = 0.05
"""Part of its rate by which a port's is above or below it; the mean is the link's."""
OURS_ALONE = Arm("ours", "this access point", "ours", OURS)
RETUNED = replace(OURS_ALONE, name="ours-retuned", label=f"the same, rates changed {PER_SECOND} times a second",
                  options={"retuned": True})  # fmt: skip


@dataclass(frozen=True)
class Retuned:
    """Both ports get another `capacity_bps` over REST, many times a second, in the arms that ask for it."""

    def prepare(self, stage: "Stage") -> None:
        if stage.arm.options.get("retuned"):
            for number in range(round(stage.seconds * PER_SECOND)):
                stage.at(number / PER_SECOND / stage.scale, partial(self._change, stage, number))

    def _change(self, stage: "Stage", number: int) -> None:
        from accesspoint.topologies.mininet.controllers import change_ports  # a lab's kind decides who imports Mininet

        entry = stage.lab.controller_config()[0]
        sign = 1 if number % 2 else -1
        ports = [port | {"capacity_bps": round(port["capacity_bps"] * (1 + sign * BY))} for port in entry["ports"]]
        change_ports(stage.lab.rest_url, stage.lab.rest_token, entry["name"], ports)


def _scene(point: Point, arm: Arm) -> AccessPoint:
    flows = (Flow("download", "down", cwnd_limited=False), Flow("upload", "up", cwnd_limited=False))
    return AccessPoint(TESTBED, SECONDS, (*flows, Retuned()))


def _kept(measure: str) -> Goal:
    return Goal(
        f"the {measure} keeps {{value}} of its rate while rates change (at least {{limit}})",
        lambda medians: medians(measure, RETUNED.name) / medians(measure, OURS_ALONE.name),
        at_least=0.98, shown="{:.1%}",
    )  # fmt: skip


def _slower(medians: Medians) -> float:
    return float(medians("ping_mean", RETUNED.name) - medians("ping_mean", OURS_ALONE.name))


EXPERIMENT = Experiment(
    name="retuned",
    title="Rates of ports that change ten times a second",
    paper="none: what autorate scripts do (docs/controller/loop.md)",
    question="What does a change of the ports' rates cost, ten times a second for a minute?",
    scene=_scene,
    arms=(OURS_ALONE, RETUNED),
    measures=(
        Measure("download", "Mb/s", "download", rate("download", SETTLED)),
        Measure("upload", "Mb/s", "upload", rate("upload", SETTLED)),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", SETTLED), "{:.1f}"),
        Measure("ping_p99", "ms", "ping, p99", quantile("ping_ms", 0.99, SETTLED), "{:.0f}"),
    ),
    goals=(
        _kept("download"),
        _kept("upload"),
        Goal("a ping takes {value} ms longer while rates change (at most {limit})", _slower, at_most=2.0),
    ),
    figures=(Timeline("throughput", "Throughput over time.", ("download", "upload")),),
    repeats=5,
    quick=Quick(seconds=30),
    differences=(
        f"each port's rate goes {BY:.0%} above and below what its link carries, so that its mean is the link's",
        "both ports change in one PATCH, which makes a revision",
    ),
    clock=VIRTUAL,
)  # fmt: skip
