# SPDX-License-Identifier: Apache-2.0
"""The headline experiment for real, in short, and what happens when it cannot run or is stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies import targets
from accesspoint.topologies.requirements import ROOT, LabError

COMMAND = [sys.executable, "-m", "accesspoint.experiments"]


def experiments(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "run", *arguments], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True,
        timeout=120, check=False,
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
    summary = json.loads((tmp_path / "headline/summary.json").read_text())
    kept = {name: summary["ratios"][f"{name}_downlink_during_of_before"] for name in ("fifo", "ncr")}
    # BMv2's six threads and the wires lose a part to whatever else runs here, with or without an upload.
    assert kept["fifo"] < 0.5 and kept["ncr"] > (0.9 if target == "apswitch" else 0.75)
    fifo, ncr = (summary["arms"][name] for name in ("fifo", "ncr"))
    assert ncr["uplink_mbps"]["during"] > (0.6 if target == "apswitch" else 0.5)
    assert ncr["ping_ms"]["p50"] < fifo["ping_ms"]["p50"] / 4
    for figures in (fifo, ncr):
        assert figures["self_check"]["congestion_control"] == {"downlink": "cubic", "uplink": "cubic"}
        assert figures["self_check"]["ecn"] == {"downlink": True, "uplink": True}
    assert (summary["target"]["name"], summary["target"]["version"]) == (target, version)
    for difference in summary["target"]["differences"]:
        assert difference[:30] in done.stdout
    assert bool(summary["target"]["differences"]) == (target != "apswitch")
    for name in ("report.html", "samples.csv", "fifo.flent.gz", "ncr.flent.gz", "overview.svg", "overview.png"):
        assert (tmp_path / "headline" / name).stat().st_size > 1000


@pytest.mark.realtime
@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_claims_no_summary(tmp_path: Path, number: signal.Signals, code: int) -> None:
    (tmp_path / "headline").mkdir()
    (tmp_path / "headline/summary.json").write_text("{}")  # an earlier run's
    process = subprocess.Popen(
        [*COMMAND, "run", "headline", "--seconds", "30", "--arms", "fifo", "--out", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    # However slow the machine is: the controller writes a row for each of two ports ten times a second.
    statistics = tmp_path / "headline/logs/fifo/controller.csv"
    assert eventually(lambda: statistics.exists() and statistics.read_text().count("\n") > 120, seconds=60)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == code, output
    assert "Traceback" not in output
    assert not (tmp_path / "headline/summary.json").exists()
    assert (tmp_path / "headline/samples.csv").read_text().count("downlink_mbps") >= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "experiment 'nonsense' is unknown"),
        (["headline", "--profile", "dsl"], "link profile 'dsl' is unknown"),
        (["headline", "--down", "8"], "rate '8'"),
        (["headline", "--rtt", "fast"], "time 'fast'"),
        (["headline", "--cc", "warp"], "congestion control 'warp' is not available"),
        (["headline", "--arms", "fifo,cake"], "arm 'cake' is unknown"),
        (["headline", "--seconds", "1"], "seconds '1' is not possible"),
        (["headline", "--seconds", "ten"], "seconds 'ten' is not possible"),
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
    ("target", "message"), [("apswitch", "ap1: the switch did not start"), ("bmv2", "ap1: a wire ended")]
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
