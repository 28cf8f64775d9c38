# SPDX-License-Identifier: Apache-2.0
"""Measures are taken at a run's end: a report over many runs reads no samples of them but those that it draws."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accesspoint.experiments.experiment import Measure
from accesspoint.experiments.measure.run_data import Raw, mean, rate, total
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.render import figures, site
from accesspoint.experiments.runs import measures, plan, registry, store
from accesspoint.experiments.runs.store import Store
from accesspoint.experiments.tests import finished
from accesspoint.experiments.verdict import summary
from accesspoint.experiments.verdict.goals import Table
from accesspoint.topologies.requirements import ROOT

ARMS = ("fifo", "ours")
REPEATS = 40


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose samples are read."""
    paths: list[Path] = []
    original = store.read_samples

    def reading(path: Path) -> list[Sample]:
        paths.append(path)
        return original(path)

    monkeypatch.setattr(store, "read_samples", reading)
    return paths


def many(out: Path) -> tuple[plan.Plan, Store]:
    """A store of many runs, as their workers leave them."""
    experiment = registry.find("ncr-testbed")
    planned = plan.make(experiment, True, ARMS, repeats=REPEATS, seconds=12)
    kept = Store(out, planned.experiment, planned.quick)
    kept.begin(planned)
    (kept.directory / "machine.json").write_text(json.dumps(finished.MACHINE))
    for order in planned.orders():
        finished.keep(kept, order)
        run = kept.find(order)
        assert run
        raw = Raw(finished.samples(order), order.seconds, run.facts["scale"], order.point, order.arm)
        measures.keep(measures.take(experiment.measures, raw), run.directory)
    return planned, kept


def test_a_report_over_many_runs_reads_no_samples_but_those_that_it_draws(tmp_path: Path, read: list[Path]) -> None:
    planned, kept = many(tmp_path)
    found = summary.write(planned, kept)
    assert read == [] and found["runs"] == len(ARMS) * REPEATS
    cell = Table(found["cells"]).cell("download_during", "ours", {})
    assert cell and cell["n"] == REPEATS and cell["median"] == pytest.approx(13.3 + (REPEATS + 1) / 200)
    site.build([kept], tmp_path)
    assert 0 < len(set(read)) <= figures.MAX_LINES * len(ARMS) < len(ARMS) * REPEATS


def test_what_is_defined_otherwise_is_taken_again_and_then_kept(tmp_path: Path, read: list[Path]) -> None:
    _, kept = finished.made(tmp_path, ("ours",))
    order = plan.make(registry.find("ncr-testbed"), True, ["ours"], repeats=1).orders()[0]
    finished.keep(kept, order)
    run = kept.find(order)
    assert run
    experiment = registry.find("ncr-testbed")
    first = measures.of_run(experiment, run)
    assert len(read) == 1 and measures.of_run(experiment, run) == first and len(read) == 1
    *others, ping = experiment.measures
    changed = replace(experiment, measures=(*others, replace(ping, of=mean("ping_ms", 0, 10))))
    assert measures.of_run(changed, run) == first | {"ping_during": 4.0} and len(read) == 2
    assert measures.of_run(changed, run)["ping_during"] == 4.0 and len(read) == 2
    # A measure's name and format have no effect on its value.
    renamed = replace(changed, measures=(*others, replace(changed.measures[-1], text="?", shown="{}")))
    assert measures.of_run(renamed, run)["ping_during"] == 4.0 and len(read) == 2


def test_what_has_no_value_is_known_to_have_none(tmp_path: Path, read: list[Path]) -> None:
    _, kept = finished.made(tmp_path, ("ours",))
    order = plan.make(registry.find("ncr-testbed"), True, ["ours"], repeats=1).orders()[0]
    finished.keep(kept, order)
    run = kept.find(order)
    assert run
    nothing = (Measure("none", "1", "none", lambda raw: None), Measure("nan", "1", "none", lambda raw: float("nan")))
    experiment = replace(registry.find("ncr-testbed"), measures=nothing)
    assert measures.of_run(experiment, run) == measures.of_run(experiment, run) == {} and len(read) == 1
    (run.directory / measures.FILE).write_text('{"none')  # a disk that lost power
    assert measures.of_run(experiment, run) == {} and len(read) == 2


def helper(raw: Raw) -> float:
    return 1.0


def other(raw: Raw) -> float:
    return 2.0


def calling(of: Callable[[Raw], float]) -> Callable[[Raw], float]:
    return lambda raw: of(raw) + 1


def defined(of: Any) -> str:
    return measures.definition(Measure("a", "1", "a", of))


def test_a_definition_is_what_computes_the_value() -> None:
    assert defined(rate("download", 0, 60)) == defined(rate("download", 0, 60))
    assert len({defined(rate("download", *part)) for part in ((0, 60), (0, 61), (1, 60))}) == 3
    assert defined(rate("download")) != defined(rate("upload")) != defined(mean("upload"))
    assert defined(calling(helper)) != defined(calling(other)), "what it closes over"
    assert defined(lambda raw: helper(raw)) != defined(lambda raw: other(raw)), "what it calls"


ALL = (
    "from accesspoint.experiments.runs import measures, registry\n"
    "for one in registry.experiments().values():\n"
    "    print(one.name, [measures.definition(measure) for measure in one.measures])"
)


def test_definitions_are_the_same_in_every_process() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", ALL], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1] and said[0].count("\n") == len(registry.experiments())


def test_a_mean_has_the_same_digits_on_every_python() -> None:
    """From Python 3.12 on `sum` carries what it rounds away; `fsum` rounds once on all of them."""
    raw = Raw([Sample(number / 10, "ping_ms", 0.1) for number in range(10)], 1.0)
    assert mean("ping_ms")(raw) == 0.1
    assert total("ping_ms")(raw) == 1.0
