# SPDX-License-Identifier: Apache-2.0
"""The headline experiment for real, in short, and what happens when it cannot run or is stopped."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.experiments.runs import plan, registry
from accesspoint.experiments.runs.store import Store
from accesspoint.experiments.verdict.goals import Table
from accesspoint.topologies import targets
from accesspoint.topologies.requirements import ROOT, LabError

COMMAND = [sys.executable, "-m", "accesspoint.experiments"]


def experiments(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "run", *arguments], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip


@pytest.fixture
def privileged() -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")


@pytest.mark.realtime
@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize("target", targets.TARGETS)
def test_an_upload_starves_the_download_and_the_access_point_ends_it(tmp_path: Path, target: str) -> None:
    try:
        version = targets.find(target).version()
    except LabError as error:
        pytest.skip(str(error))
    arguments = ["--target", target, "--seconds", "15", "--arms", "fifo,ncr", "--out", str(tmp_path)]
    done = experiments("headline", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = Store(tmp_path, "headline", False)
    summary = kept.summary()
    table = Table(summary["cells"])
    # BMv2's six threads and the wires lose a part to whatever else runs here, with or without an upload.
    fifo, ncr = (table("kept", arm) or 0.0 for arm in ("fifo", "ncr"))
    assert fifo < 0.5 and ncr > (0.9 if target == "apswitch" else 0.75)
    assert (table("upload_during", "ncr") or 0.0) > (0.6 if target == "apswitch" else 0.5)
    fifo, ncr = (table("ping_p50", arm) or 0.0 for arm in ("fifo", "ncr"))
    assert 0.0 < ncr < fifo / 4
    planned = kept.plan()
    assert planned
    for run in kept.runs(planned):
        for flow in run.facts["self_check"]["flows"].values():
            assert (flow["congestion_control"], flow["ecn"]) == ("cubic", True)
    assert (summary["target"], summary["versions"][target]) == (target, version)
    for difference in summary["target_differences"]:
        assert difference[:30] in done.stdout
    assert bool(summary["target_differences"]) == (target != "apswitch")
    for name in ("index.html", "overview.svg", "runs/fifo_1/samples.parquet", "runs/ncr_1/run.flent.gz"):
        assert (kept.directory / name).stat().st_size > 1000


@pytest.mark.realtime
@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_claims_no_summary(tmp_path: Path, number: signal.Signals, code: int) -> None:
    kept = Store(tmp_path, "headline", False)
    kept.directory.mkdir(parents=True)
    (kept.directory / "summary.json").write_text("{}")  # an earlier run's
    process = subprocess.Popen(
        [*COMMAND, "run", "headline", "--seconds", "30", "--arms", "fifo", "--out", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    order = plan.make(registry.find("headline"), False, ["fifo"]).orders()[0]
    # However slow the machine is, the live line has the download's rate at some time.
    assert eventually(lambda: re.search(r"down [1-9].* Mb/s  ping \d", kept.live(order)) is not None, seconds=120)
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code, output
    assert "Traceback" not in output
    assert {path.name for path in kept.directory.iterdir()} == {"plan.json", "machine.json", "runs"}
    assert not list((kept.directory / "runs").iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "experiment 'nonsense' is unknown"),
        (["headline", "--profile", "dsl"], "link profile 'dsl' is unknown"),
        (["headline", "--down", "8"], "rate '8'"),
        (["headline", "--rtt", "fast"], "time 'fast'"),
        (["headline", "--cc", "warp"], "congestion control 'warp' is not available"),
        (["headline", "--arms", "fifo,cake"], "arm 'cake' is unknown"),
        (["headline", "--seconds", "1"], "1 seconds are not possible"),
        (["headline", "--seconds", "ten"], "seconds 'ten' is not possible"),
        (["ncr-testbed", "--rtt", "20ms"], "--rtt is for headline, many-stations, handover: 'ncr-testbed' names"),
        (["headline", "--out", "/proc/nowhere"], "[Errno 2] No such file or directory: '/proc/nowhere"),
    ],
)
@pytest.mark.usefixtures("privileged")
def test_bad_input_gets_one_line(arguments: list[str], message: str) -> None:
    done = experiments(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1


@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize(
    ("target", "message"),
    [("apswitch", "headline/fifo_1: ap1: the switch did not start"), ("bmv2", "headline/fifo_1: ap1: a wire ended")],
)
def test_a_switch_that_does_not_start_is_named(tmp_path: Path, target: str, message: str) -> None:
    if target == "bmv2" and not shutil.which("simple_switch_grpc"):
        pytest.skip("simple_switch_grpc is not on PATH")
    switch = tmp_path / "apswitch"
    switch.write_text("#!/bin/sh\n[ $1 = --version ] && echo 1.2.3 || exit 1\n")
    switch.chmod(0o755)
    done = experiments("headline", "--target", target, "--out", str(tmp_path), APSWITCH=str(switch))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1


@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"APSWITCH": "/nowhere/apswitch"}, "the switch /nowhere/apswitch is missing: build it with `make switch`"),
        ({"APSWITCH": "/bin/false"}, "/bin/false --version says 'false (GNU coreutils)"),
        ({"PATH": "/usr/sbin:/sbin"}, "mnexec is missing: install it with `apt install mininet`"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, environment: dict[str, str], message: str) -> None:
    done = experiments("headline", "--out", str(tmp_path), **environment)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1
