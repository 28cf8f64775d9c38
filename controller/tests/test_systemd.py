# SPDX-License-Identifier: Apache-2.0
"""The unit files: systemd takes them as they are, and the controller's command runs with the rights and limits that it
gives."""

import contextlib
import os
import resource
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from accesspoint.checks.harness.switches import ROOT, WAIT_SECONDS, end, wait_for
from accesspoint.controller.realtime import PRIORITY
from accesspoint.topologies.namespaces.namespace import end_with_parent

UNIT = ROOT / "controller/access-point-controller.service"
UNITS = sorted((ROOT / "controller").glob("*.service"))
INSTALLED, STATE = "/opt/access-point", "/var/lib/access-point"
MAX_EXPOSURE = 4.0
"""Exposure out of 10, as `systemd-analyze security` counts."""


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_it_is_tried_again_for_as_long_as_it_takes(unit: Path) -> None:
    service = unit.read_text().partition("[Service]")
    assert "\nStartLimitIntervalSec=0\n" in service[0] and "\nRestart=always\n" in service[2]


def settings() -> dict[str, str]:
    lines = UNIT.read_text().replace("\\\n", "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def analyze(unit: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """systemd-analyze on the unit, as if this folder were the installed one."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(INSTALLED, str(ROOT)))
    return subprocess.run(["systemd-analyze", *words, copy], capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    done = analyze(unit, tmp_path, "verify", "--man=no")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    copy = tmp_path / unit.name
    copy.write_text(copy.read_text().replace("Restart=", "Resart="))
    assert "Resart" in subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True).stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_it_may_do_little(unit: Path, tmp_path: Path) -> None:
    done = analyze(unit, tmp_path, "security", "--offline=yes", f"--threshold={MAX_EXPOSURE * 10:g}", "--no-pager")
    assert done.returncode == 0, done.stdout


def test_its_command_runs_with_what_it_gives(tmp_path: Path) -> None:
    unit = settings()
    command = [
        word.replace(INSTALLED, str(ROOT)).replace(STATE, str(tmp_path)).replace(":8080", ":0")
        for word in shlex.split(unit["ExecStart"])
        if word != "$OPTIONS"
    ]

    def limited() -> None:
        end_with_parent()
        # A container may have no right to give this one.
        with contextlib.suppress(ValueError, PermissionError):
            # A nice value of n is 20 - n there (getrlimit(2)).
            resource.setrlimit(resource.RLIMIT_NICE, (20 - int(unit["LimitNICE"]),) * 2)

    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"] if os.geteuid() == 0 else []
    with (tmp_path / "said").open("wb") as said:
        running: subprocess.Popen[Any] = subprocess.Popen(
            [*without, *command], cwd=ROOT, stdout=said, stderr=said, preexec_fn=limited
        )
    try:
        found: str = wait_for(lambda: (tmp_path / "said").read_text().partition("rest ")[2].strip())
        assert httpx.get(f"{found}/readyz", timeout=WAIT_SECONDS).status_code == 200
        assert {path.name for path in tmp_path.iterdir()} >= {"controller.db", "controller.token"}
        # Without any capability it goes before other work.
        nice = 20 - resource.prlimit(running.pid, resource.RLIMIT_NICE)[0]
        if nice <= PRIORITY:
            wait_for(lambda: os.getpriority(os.PRIO_PROCESS, running.pid) == PRIORITY)
    finally:
        assert end(running) == 0
