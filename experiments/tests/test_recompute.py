# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/results follow from the samples that are kept beside them."""

import json
import shutil
from pathlib import Path

import pytest

from accesspoint.experiments.catalogue.cwnd import radio
from accesspoint.experiments.catalogue.qos import handover
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.verdict import recompute


@pytest.mark.parametrize("name", recompute.names())
def test_figures_follow_from_their_samples(name: str) -> None:
    made, others = recompute.recomputed(name)
    assert not others
    assert json.loads((recompute.RESULTS / "summaries" / f"{name}.json").read_text())["word"] == made["word"]


def test_a_figure_that_does_not_is_named(tmp_path: Path) -> None:
    name = "cell-effective"
    for folder in ("raw", "summaries"):
        (tmp_path / folder).mkdir()
    shutil.copy(recompute.RESULTS / "raw" / f"{name}.parquet", tmp_path / "raw")
    summary = json.loads((recompute.RESULTS / "summaries" / f"{name}.json").read_text())
    cell = summary["cells"][3]
    cell["values"]["1"] *= 1.01
    (tmp_path / "summaries" / f"{name}.json").write_text(json.dumps(summary))
    made, others = recompute.recomputed(name, tmp_path)
    assert others == [f"{cell['measure']} of {cell['arm']} at {json.dumps(cell['point'])}"]
    assert made["cells"][3]["values"]["1"] == pytest.approx(cell["values"]["1"] / 1.01, rel=1e-5)


def test_what_is_told_at_a_runs_end_is_counted() -> None:
    """Cells tell how often a terminal repaired losses when the run is over."""
    samples = [Sample(30.0, quantity, 3.0, source="sta4") for quantity in ("timeouts", "recoveries")]
    raw = Raw(samples, 30.0)
    assert radio.interruptions(raw) == pytest.approx(12.0)
    assert handover.repaired("timeouts")(raw) == pytest.approx(
        3.0 / handover.BEYOND / (handover.SECONDS - handover.LEAVES) * 60
    )
