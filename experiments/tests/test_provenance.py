# SPDX-License-Identifier: Apache-2.0
"""Provenance that runs record."""

import json
import subprocess
from pathlib import Path

import pytest

from accesspoint.experiments.runs import provenance, registry
from accesspoint.experiments.runs.plan import make


def git(*words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words], check=True, capture_output=True
    )


def test_a_commit_is_told_with_what_differs_from_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one\n")
    git("-C", str(tmp_path), "init")
    git("-C", str(tmp_path), "add", "file")
    git("-C", str(tmp_path), "commit", "-m", "One")
    clean = provenance.commit(tmp_path)
    assert len(clean) >= 7 and int(clean, 16)
    (tmp_path / "file").write_text("two\n")
    assert provenance.commit(tmp_path) == f"{clean}-dirty"
    # An archive that was unpacked in there is not of that commit.
    (tmp_path / "unpacked").mkdir()
    assert provenance.commit(tmp_path / "unpacked") == provenance.NO_COMMIT


def test_without_git_the_versions_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.commit() == provenance.NO_COMMIT
    monkeypatch.setattr(provenance.targets, "TARGETS", {})
    monkeypatch.setattr(provenance.targets, "DEFAULT", "none")
    monkeypatch.setitem(provenance.targets.TARGETS, "none", type("Target", (), {"version": lambda self: "1.2.3"})())
    found = provenance.versions("none")
    assert found["commit"] == provenance.NO_COMMIT and found["iperf3"] == "unknown" and found["none"] == "1.2.3"


@pytest.mark.parametrize("name", registry.experiments())
def test_a_runs_parameters_are_whole_and_the_same_each_time(name: str) -> None:
    experiment = registry.find(name)
    order = make(experiment, True).orders()[-1]
    arm = experiment.arm(order.arm)
    texts = {
        json.dumps([provenance.parameters(arm), provenance.parameters(experiment.scene_of(order.point, arm))])
        for _ in range(2)
    }
    (text,) = texts
    found = json.loads(text)
    assert found[0]["name"] == order.arm and found[0]["cc"] == arm.cc and found[1]["traffic"]
    assert "object at 0x" not in text
