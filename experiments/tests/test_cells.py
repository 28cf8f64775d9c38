# SPDX-License-Identifier: Apache-2.0
"""Cells in ns-3: a short form of one experiment of each paper, each in a process of its own, as a run has one."""

import hashlib
import json
import subprocess
import sys
from typing import Any

import pytest

from experiments import plan, registry
from experiments.cwnd import radio
from experiments.experiment import Point
from topologies.kernels.kernel import REAL, SIMULATED
from topologies.ns3 import build
from topologies.requirements import ROOT, LabError

PROGRAM = """
import json, sys
from dataclasses import astuple
from pathlib import Path
from experiments import registry
from experiments.raw import Raw
name, arm, seconds, seed, point = json.loads(sys.argv[1])
experiment = registry.find(name)
scene = experiment.scene_of(point, experiment.arm(arm))
samples, _ = scene.simulate(experiment.arm(arm), point, seconds, seed, Path("."))
raw = Raw(samples, seconds, seconds / scene.seconds, point, arm)
print(json.dumps([{one.name: one.of(raw) for one in experiment.measures}, [astuple(one) for one in samples]]))
"""


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    try:
        build.library()
    except LabError as error:
        pytest.skip(str(error))


def simulate(name: str, arm: str, seconds: float, point: Point, seed: int = 1) -> tuple[dict[str, Any], str]:
    """The measures of a run, and a checksum of its samples."""
    told = json.dumps([name, arm, seconds, seed, dict(point)])
    command = [sys.executable, "-c", PROGRAM, told]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=300).stdout
    measures, samples = json.loads(said)
    return measures, hashlib.sha256(json.dumps(samples).encode()).hexdigest()


def test_paper_001_in_short_udp_fills_a_cell_of_802_11b() -> None:
    """A frame of 1472 bytes takes 1.9 ms with its acknowledgement and the mean backoff (IEEE Std 802.11, 15.2)."""
    measures, _ = simulate("cell-effective", "plain", 15.0, {"protocol": "UDP", "direction": "down", "nodes": 1})
    assert measures["total"] == pytest.approx(6.1, rel=0.05)


def test_a_seed_makes_the_same_run_to_the_byte() -> None:
    point = {"terminals": 2, "delay": 4}
    run = simulate("cell-terminals", "plain", 3.5, point)
    assert simulate("cell-terminals", "plain", 3.5, point) == run
    assert simulate("cell-terminals", "plain", 3.5, point, seed=2)[1] != run[1]


def test_paper_002_in_short_the_middleware_bounds_what_stands_in_queues() -> None:
    point = {"terminals": 1, "delay": 4}
    plain, bounded = (simulate("cell-terminals", arm, 10.0, point)[0] for arm in ("plain", "middleware"))
    assert plain["largest_ratio"] > 6 and bounded["most_rtt"] < plain["most_rtt"]
    assert bounded["kept_ratio"] < plain["kept_ratio"] / 2 and bounded["total"] > plain["total"] / 2


def test_paper_004_in_short_uploads_at_54_mbps_carry_what_its_target_asks_for() -> None:
    """23 Mb/s, "nearly equal to the maximum TCP throughput" (section IV.A.1), and nobody is left out so soon."""
    qos, _ = simulate("cell-buffers", "qos", 5.0, {"buffer": 37})
    assert qos["total"] == pytest.approx(23, rel=0.1) and qos["unlucky"] == 0
    assert qos["first"] + qos["others"] == pytest.approx(qos["total"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stations": 0}, "a cell has 1 to 200 stations"),
        ({"stations": 201}, "a cell has 1 to 200 stations"),
        ({"stations": 1, "colour": "red"}, "a cell knows no 'colour'"),
        ({"stations": 1, "ap_queue": "many"}, "ap_queue=many is no number"),
    ],
)
def test_a_cell_that_cannot_be_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    program = (
        "import json, sys\nfrom topologies.ns3.cell import Cell\nfrom topologies.requirements import LabError\n"
        "try:\n    Cell(**json.loads(sys.argv[1]))\nexcept LabError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", program, json.dumps(settings)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert said.returncode == 0 and said.stdout.strip() == f"the cell cannot be: {message}"


def test_a_simulation_has_its_own_clock_only() -> None:
    made = plan.make(registry.find("cell-terminals"), quick=True)
    assert made.clock == SIMULATED
    with pytest.raises(LabError, match="'cell-terminals' is a simulation"):
        plan.require(plan.make(registry.find("cell-terminals"), quick=True, clock=REAL))
    with pytest.raises(LabError, match="has no simulation"):
        plan.require(plan.make(registry.find("batcp"), quick=True, clock=SIMULATED))


def test_the_middlewares_law_is_fitted_to_the_plain_throughput_that_is_published() -> None:
    summary = json.loads((ROOT / "docs/results/summaries/cell-terminals.json").read_text())
    totals: dict[int, list[float]] = {}
    for cell in summary["cells"]:
        if cell["measure"] == "total" and cell["arm"] == "plain":
            totals.setdefault(cell["point"]["terminals"], []).extend(cell["values"].values())
    fitted = radio.exponent({terminals: sum(values) / len(values) for terminals, values in totals.items()})
    most = max(value for values in totals.values() for value in values)
    assert (round(most, 1), round(fitted, 2)) == (radio.BANDWIDTH, radio.EXPONENT)
