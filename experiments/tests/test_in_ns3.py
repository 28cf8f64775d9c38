# SPDX-License-Identifier: Apache-2.0
"""A scene on wires in ns-3: what a run of it leaves, and what is refused."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from accesspoint.experiments.lab import in_ns3
from accesspoint.experiments.runs import plan, registry
from accesspoint.experiments.runs.store import read_samples
from accesspoint.experiments.scenes.scene import AccessPoint, At
from accesspoint.topologies.kernels.kernel import SIMULATED
from accesspoint.topologies.ns3 import build
from accesspoint.topologies.requirements import ROOT, LabError

pytestmark = pytest.mark.usefixtures("ns3")


def test_a_run_of_the_testbed_leaves_the_same_samples_twice(tmp_path: Path) -> None:
    order = plan.Order("ncr-testbed", "ours", {}, 1, 12.0, "apswitch", clock=SIMULATED)
    for name, number in (("a", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        command = [
            sys.executable,
            "-m",
            "accesspoint.experiments.execution.worker",
            json.dumps(asdict(order)),
            str(tmp_path / name),
        ]
        environment = os.environ | {"PYTHONHASHSEED": number}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    files = [(tmp_path / name / "samples.parquet").read_bytes() for name in ("a", "b")]
    assert files[0] == files[1]
    facts = json.loads((tmp_path / "a/run.json").read_text())
    assert facts["clock"] == SIMULATED and facts["versions"]["ns-3"] == build.version()
    measured = {name: row["value"] for name, row in json.loads((tmp_path / "a/measures.json").read_text()).items()}
    assert measured["download_during"] > 12 and measured["upload_during"] > 0.3
    quantities = {sample.quantity for sample in read_samples(tmp_path / "a/samples.parquet")}
    assert quantities == {"rate_mbps", "streams", "ping_ms", "delay_up_ms", "delay_down_ms", "empty_ping_ms"}


def test_what_ns3_does_not_have_is_refused_in_one_line() -> None:
    experiment = registry.find("ncr-testbed")
    arm = experiment.arm("ours")
    scene = experiment.scene_of({}, arm)
    assert isinstance(scene, AccessPoint)
    for changed, of, said in (
        (replace(scene, traffic=(At(1.0, lambda stage: None),)), arm, "needs real hosts for its At: leave LAB=ns3 out"),
        (replace(scene, peers=("cake",)), arm, "queue disciplines of Linux, which ns-3 has not"),
        (scene, replace(arm, controls=("vegas_fair",)), "loads congestion controls in BPF, which ns-3 has not"),
        (scene, replace(arm, cc="cdg"), "ns-3 has no congestion control 'cdg'"),
    ):
        with pytest.raises(LabError, match=said) as error:
            in_ns3.require(changed, of)
        assert "\n" not in str(error.value)
    with pytest.raises(LabError, match="target 'bmv2' is not in ns-3"):
        in_ns3.require(scene, arm, "bmv2")
