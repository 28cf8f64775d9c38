# SPDX-License-Identifier: Apache-2.0
"""Runs of the headline with known figures, in place of a measurement."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accesspoint.experiments.experiment import Experiment, Value
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs import measures, plan, registry, store
from accesspoint.experiments.runs.plan import Order, Plan
from accesspoint.experiments.runs.store import Store
from accesspoint.experiments.tests.finished import MACHINE
from accesspoint.experiments.verdict import summary
from accesspoint.experiments.verdict.goals import Cell

SECONDS = 24
STARTED = 1_700_000_000.0
FIGURES: Mapping[str, Mapping[str, float]] = {  # collapse, ACKs first, and cure
    "fifo": {"during": 2.0, "up": 0.92, "ping": 580.0},
    "ack-priority": {"during": 13.0, "up": 0.63, "ping": 400.0},
    "ncr": {"during": 12.9, "up": 0.87, "ping": 9.0},
}
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


def cells(experiment: Experiment, of: Mapping[str, Sequence[Sample]]) -> list[Cell]:
    """The cells of two equal repeats of each arm."""
    known = [
        (
            Order(experiment.name, arm, {}, repeat, SECONDS, "apswitch"),
            measures.values(measures.take(experiment.measures, Raw(list(own), SECONDS, 1.0, {}, arm))),
        )
        for arm, own in of.items()
        for repeat in (1, 2)
    ]
    return summary.figures(experiment, list(of), [{}], known)


def keep(kept: Store, order: Order, problems: Sequence[str] = ()) -> None:
    """Puts a run of an order, with its arm's figures, into a store."""
    part = kept.part(order)
    store.write_samples(samples(**FIGURES[order.arm]), part / "samples.parquet")
    check = SELF_CHECK | {"problems": list(problems)}
    facts = {"seconds": SECONDS, "scale": 1.0, "started": STARTED, "clock": "real", "self_check": check}
    (part / "run.json").write_text(json.dumps(facts | {"versions": {"kernel": "6.1"}}))
    kept.keep(order, part)


def planned(out: Path, **setting: Value) -> tuple[Plan, Store]:
    """A plan of one run of each arm on such links, and an empty store for it."""
    made = plan.make(registry.find("headline"), quick=False, setting=setting)
    kept = Store(out, made.experiment, made.quick)
    kept.begin(made)
    (kept.directory / "machine.json").write_text(json.dumps(MACHINE))
    return made, kept


def run(out: Path, problems: Mapping[str, Sequence[str]] | None = None, **setting: Value) -> Store:
    """A store with a run of each arm, summarised. problems: of arms whose run is unfit."""
    made, kept = planned(out, **setting)
    for order in made.orders():
        keep(kept, order, (problems or {}).get(order.arm, ()))
    summary.write(made, kept)
    return kept
