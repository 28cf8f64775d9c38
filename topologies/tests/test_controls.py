# SPDX-License-Identifier: Apache-2.0
"""Names of congestion controls: one process of the machine holds each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.topologies.kernels import controls
from accesspoint.topologies.kernels.controls import alone, free
from accesspoint.topologies.requirements import ROOT, LabError

HOLD = """
import sys
from accesspoint.topologies.kernels.controls import alone
with alone("vegas", "westwood"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="congestion controls need root")
def test_a_name_is_held_by_one_process_until_it_ends() -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout and other.stdout.readline() == "held\n"
        with pytest.raises(LabError, match="westwood is in use by another process"), alone("westwood", patience=0.0):
            pass
        other.kill()
        with alone("westwood", "vegas"), alone("vegas", patience=0.0):
            again = subprocess.run(
                [sys.executable, "-c", HOLD.replace('"westwood"', "patience=0.0")],
                cwd=ROOT, input="", capture_output=True, text=True,
            )  # fmt: skip
            assert "vegas is in use by another process" in again.stderr and not again.stdout
    finally:
        other.kill()
        other.communicate()


def test_a_name_that_cannot_be_asked_for_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(controls, "LOCKS", tmp_path / "file" / "locks")
    with pytest.raises(LabError, match="congestion controls in BPF need root"):
        free("vegas")
