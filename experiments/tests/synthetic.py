# SPDX-License-Identifier: Apache-2.0
"""Runs in the foreground with known figures, in place of a measurement."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accesspoint.experiments.catalogue.ncr import headline
from accesspoint.experiments.execution import phases
from accesspoint.experiments.execution.foreground import Made
from accesspoint.experiments.experiment import Arm, Experiment, Setting
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs import measures
from accesspoint.experiments.runs.plan import Order
from accesspoint.experiments.verdict.goals import Cell
from accesspoint.experiments.verdict.summary import figures

SECONDS = 24
QUANTITIES = {"downlink": "downlink_mbps", "uplink": "uplink_mbps"}
FLOW = {"congestion_control": "cubic", "ecn": True, "window": {"cwnd_limited": 1.0}}
SELF_CHECK: dict[str, Any] = {
    "cpu_busy": 0.2,
    "cpu_steal": 0.0,
    "switch_cpu": 0.1,
    "controller_cpu": 0.1,
    "timer_late_p99_ms": 0.2,
    "probes_unanswered": 0,
    "flows": {"downlink": FLOW, "uplink": FLOW},
    "radio_drops": {},
    "problems": [],
}


def samples(before: float = 13.0, during: float = 13.0, up: float = 0.9, ping: float = 10.0) -> list[Sample]:
    """A run of 24 s: the download's rate in the upload's third and outside of it, the upload's, and the ping (ms)."""
    result = []
    for step in range(4 * SECONDS):
        time = step / 4 + 0.125
        busy = SECONDS / 3 <= time < 2 * SECONDS / 3
        result.append(Sample(time, "rate_mbps", during if busy else before, 0.25, "downlink"))
        if busy:
            result.append(Sample(time, "rate_mbps", up, 0.25, "uplink"))
        for quantity in ("ping_ms", "delay_up_ms", "delay_down_ms"):
            result.append(Sample(time, quantity, ping + step % 4 if busy else 4.0))
    return result


def made(arm: Arm, measured: Sequence[Sample], problems: Sequence[str] = ()) -> Made:
    """A finished run of an arm."""
    facts = {
        "seconds": SECONDS,
        "scale": 1.0,
        "started": 1_700_000_000.0,
        "self_check": SELF_CHECK | {"problems": list(problems)},
    }
    by_way = [replace(s, quantity=QUANTITIES.get(s.source, s.quantity)) for s in measured]
    return Made(Order("headline", arm.name, {}, 1, SECONDS, "apswitch"), Path("nowhere"), facts, measured, by_way)


def run(arm: Arm, **figures: float) -> Made:
    return made(arm, samples(**figures))


def runs() -> list[Made]:
    """Collapse, ACKs first, and cure."""
    figures = (
        {"during": 2.0, "up": 0.92, "ping": 580.0},
        {"during": 13.0, "up": 0.63, "ping": 400.0},
        {"during": 12.9, "up": 0.87, "ping": 9.0},
    )
    return [run(arm, **values) for arm, values in zip(headline.EXPERIMENT.arms, figures, strict=True)]


def cells(experiment: Experiment, of: Sequence[Made]) -> list[Cell]:
    taken = [(run.order, measures.values(measures.take(experiment.measures, run.raw()))) for run in of]
    return figures(experiment, [run.order.arm for run in of], [{}], taken)


def summarised(of: Sequence[Made], setting: Setting | None = None) -> phases.Summary:
    setting = setting or Setting()
    experiment = headline.under(setting)
    return phases.summarise(experiment, setting, of, cells(experiment, of))
